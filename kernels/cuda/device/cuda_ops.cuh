/* The inside of the CUDA backend: its state, its scratch memory, and the registration of operators.
 *
 * A reduction is two launches: blocks leave partial sums in scratch, and a second kernel adds them
 * in their order. The bits therefore depend only on shapes, never on timing. */
#ifndef PLM_KERNELS_CUDA_DEVICE_CUDA_OPS_CUH
#define PLM_KERNELS_CUDA_DEVICE_CUDA_OPS_CUH

#include "kernels/cuda/device/numbers.cuh"

extern "C" {
#include "kernels/cuda/cuda.h"
}

struct plm_cuda_products;
struct plm_cuda_algorithms;
struct plm_cuda_choices;

/* How work is done for which there are two ways: by the first one; as tuning found for the shape
 * (by the first one if it was not tuned); or by the second one. */
enum plm_ways { PLM_WAYS_FIRST, PLM_WAYS_TUNED, PLM_WAYS_SECOND };

struct plm_cuda {
  struct plm_ops ops; /* must be first: plm_cuda_of */
  bool bf16;          /* activations are bf16, else fp32 */
  int device;
  char processor[128]; /* the device's name */
  char driver[64];
  char location[32];
  char kernels[64], fallback[384];
  int capability, multiprocessors;  /* of the device; capability is 90 for 9.0 */
  size_t shared_bytes;              /* shared memory that it allows a block */
  bool attention_sm90;              /* use kernels/cuda/sm90 for heads that it takes */
  enum plm_ways attention_backward; /* on sm90: by two kernels, or by one */
  enum plm_ways relu2;              /* by the library and a pass, or by one kernel */
  plm_stream stream;                /* of the computation */
  cudaStream_t copies;              /* of copies beside the computation */
  cudaEvent_t computed, copied;     /* how far each stream was when the other was told to follow */
  cudaEvent_t *marks;               /* (mark_count): see ops_marks.cu */
  uint32_t mark_count;
  bool recording; /* between record_begin and record_end */
  struct plm_error recording_error;
  void *scratch; /* device */
  size_t scratch_bytes;
  struct plm_cuda_products *products;
  struct plm_cuda_algorithms *algorithms; /* of products */
  struct plm_cuda_choices *choices;
  struct plm_error error; /* the first error; sticky */
};

static inline struct plm_cuda *plm_cuda_of(struct plm_ops *ops)
{
  return reinterpret_cast<struct plm_cuda *>(ops);
}

/* The scratch as T. An operator whose needs grow with its shape asks plm_cuda_scratch_room() and
 * works in slabs; the others need a few KiB. One operator uses it at a time; the stream orders
 * them. It has room for one slab of the largest operator in any configuration: (V, D + 1) floats
 * for the head and the token tables, with 261 tokens and a width of 65,536. */
enum { PLM_CUDA_SCRATCH_BYTES = 72 << 20 };
static_assert((int64_t)PLM_CUDA_SCRATCH_BYTES >= (int64_t)261 * 65537 * (int64_t)sizeof(float),
              "a slab of the widest head");
template <class T> static inline int64_t plm_cuda_scratch_room(const struct plm_cuda *cuda)
{
  return (int64_t)(cuda->scratch_bytes / sizeof(T));
}
template <class T> static inline T *plm_cuda_scratch(struct plm_cuda *cuda, size_t count)
{
  PLM_ASSERT(count * sizeof(T) <= cuda->scratch_bytes);
  return static_cast<T *>(
      plm_platform_scratch(cuda->stream, cuda->scratch, cuda->scratch_bytes, count * sizeof(T)));
}

/* The largest number of parts into which work is cut; each part then takes several turns if there
 * is more work. The emulation cuts it into so few that small shapes take several turns. */
static constexpr int plm_most_parts(int most)
{
  return PLM_EMULATED && most > 3 ? 3 : most;
}

static inline unsigned plm_blocks(int64_t n, int64_t each)
{
  const int64_t blocks = (n + each - 1) / each;
  PLM_ASSERT(blocks <= INT32_MAX); /* the limit of a grid's x */
  return (unsigned)blocks;
}

/* out[i] += the sum over parts, in their order, of partial[part * count + i], for i < count. */
void plm_cuda_add_partials(struct plm_cuda *cuda, float *out, const float *partial, int64_t parts,
                           int64_t count);

/* Gradients of rows that were looked up in a table of V rows of D floats. */
struct plm_cuda_token_rows {
  const act *dout;       /* N rows of D, row_stride elements apart */
  const float *scale;    /* on the device: rounded *scale * dout is taken; NULL: dout itself */
  const int32_t *tokens; /* 2^level for each row */
  int64_t row_stride, N, D, V;
  int level;
};
/* dtable (V, D) += for each token its rows' gradients / 2^level (token_mean_backward of ops.h). */
void plm_cuda_token_backward(struct plm_cuda *cuda, float *dtable,
                             const struct plm_cuda_token_rows *rows);

/* Rows of the slabs whose sums by token go to scratch, if each slab leaves so many floats there. */
int64_t plm_cuda_token_slab_rows(const struct plm_cuda *cuda, int64_t N, int64_t floats);

/* x = relu(x)^2; dx *= the slope of relu2 where it gave `out`. n elements, in place. */
void plm_cuda_relu2(struct plm_cuda *cuda, act *x, int64_t n);
void plm_cuda_relu2_backward(struct plm_cuda *cuda, act *dx, const act *out, int64_t n);

/* y (N, O) += bias (O); and the same with hidden = gelu(before), which may be `before` itself. */
void plm_cuda_bias(struct plm_cuda *cuda, act *y, const float *bias, int64_t N, int64_t O);
void plm_cuda_bias_gelu(struct plm_cuda *cuda, act *hidden, act *before, const float *bias,
                        int64_t N, int64_t O);

/* sums_D += the sums of the columns of x (N, D), in a fixed order. */
void plm_cuda_add_columns(struct plm_cuda *cuda, float *sums, const act *x, int64_t N, int64_t D);

/* Calls f with a null pointer of the activations' type, plm_bf16 * or float *. */
template <class F> static inline void plm_with_act(const struct plm_cuda *cuda, F f)
{
  if (cuda->bf16)
    f(static_cast<plm_bf16 *>(nullptr));
  else
    f(static_cast<float *>(nullptr));
}

/* Makes the streams on the current device. Close them also after a failed open. */
plm_status plm_cuda_streams_open(struct plm_cuda *cuda, struct plm_error *error);
void plm_cuda_streams_close(struct plm_cuda *cuda);
/* Returns whether a recording is being made, in which `what` (an upload, …) is not allowed. The
 * error is kept for record_end. */
bool plm_cuda_forbids(struct plm_cuda *cuda, const char *what);
/* The same as a status: PLM_FAILURE while operators are recorded. */
plm_status plm_cuda_permits(struct plm_cuda *cuda, const char *what, struct plm_error *error);
/* Says how much of the device's memory is free. */
plm_status plm_cuda_no_memory(struct plm_error *error, size_t bytes, const char *why);
/* Keeps the first failure in cuda->error, or in the recording's error. Later failures are
 * consequences of it. */
void plm_cuda_remember(struct plm_cuda *cuda, cudaError_t code, const char *what);
/* The name of the kernel whose launch failed first since the last call, or ""; valid until the next
 * call. Without CUDA_LAUNCH_BLOCKING=1 an earlier kernel may be the one that failed. */
const char *plm_cuda_failed_kernel(void);
/* Makes the next opening of a backend check the kernels for sm_90a again. */
void plm_cuda_forget_checks(void);
/* Says that this process has called CUDA, so that a child of it cannot. */
void plm_cuda_touched(void);
bool plm_cuda_is_touched(void);
bool plm_cuda_launches_block(void);
/* Makes all kernels ask again for large shared memory: the device may have been reset since. */
void plm_cuda_forget_shared(void);

/* Frees the marks of a profile, if there are some. */
void plm_cuda_marks_close(struct plm_cuda *cuda);

void plm_cuda_memory_register(struct plm_cuda *cuda);
void plm_cuda_streams_register(struct plm_cuda *cuda);
void plm_cuda_marks_register(struct plm_cuda *cuda);
void plm_cuda_elementwise_register(struct plm_cuda *cuda);
void plm_cuda_norm_register(struct plm_cuda *cuda);
void plm_cuda_layer_norm_register(struct plm_cuda *cuda);
void plm_cuda_activations_register(struct plm_cuda *cuda);
void plm_cuda_mix_register(struct plm_cuda *cuda);
void plm_cuda_tokens_register(struct plm_cuda *cuda);
void plm_cuda_qkv_register(struct plm_cuda *cuda);
void plm_cuda_attention_register(struct plm_cuda *cuda);
void plm_cuda_attention_cached_register(struct plm_cuda *cuda);
void plm_cuda_head_register(struct plm_cuda *cuda);
void plm_cuda_labels_register(struct plm_cuda *cuda);
void plm_cuda_linear_register(struct plm_cuda *cuda);
void plm_cuda_sums_register(struct plm_cuda *cuda);
void plm_cuda_optimizer_register(struct plm_cuda *cuda);
void plm_cuda_muon_register(struct plm_cuda *cuda);
void plm_cuda_targets_register(struct plm_cuda *cuda);

#endif
