/* What the attention kernels share: their arguments, tiles in shared memory, fragments of products.
 *
 * bf16 runs on mma.m16n8k16 (sm_80 and newer): a block has four warps and 64 rows, a warp 16 rows.
 * Tiles are (rows, KP), where KP is the head width K rounded up to a multiple of 16 and columns
 * from K on are 0. Rows are KP + 8 elements apart, so the eight rows of a matrix load lie in
 * different banks. Tiles that are walked begin where the mask's range begins, not at multiples
 * of 64. */
#ifndef PLM_KERNELS_CUDA_ATTENTION_ATTENTION_CUH
#define PLM_KERNELS_CUDA_ATTENTION_ATTENTION_CUH

#include "kernels/cuda/device/cuda_ops.cuh"
#include "kernels/cuda/device/instructions.cuh"

/* The arguments of one slab of a call (ops_attention.cu): some of its chunks and heads. */
template <class T> struct plm_attention_of {
  const T *q, *k, *v, *dout;
  T *out, *dq, *dk, *dv;
  float *lse;         /* (B, H, L) */
  const float *delta; /* (B, H, L) sum of dout * out, for the backward pass */
  struct plm_interval_mask mask;
  struct plm_attention_shape shape;
  int32_t heads; /* computed: shape.H, or fewer if the slab is a single chunk */
};
struct plm_attention : plm_attention_of<plm_bf16> {
};

enum {
  PLM_ATTENTION_ROWS = 64, /* of a block; PLM_MASK_TILE */
  PLM_ATTENTION_WARPS = 4,
  PLM_ATTENTION_THREADS = PLM_ATTENTION_WARPS * PLM_WARP,
};
static_assert((int)PLM_ATTENTION_ROWS == (int)PLM_MASK_TILE,
              "the mask's tiles are the blocks' rows");

/* Where a block of a bf16 kernel works (64 rows of one head of one chunk), and which part of a
 * fragment this thread holds: rows group, group + 8, and columns pair, pair + 1 of every eight. */
struct plm_attention_block {
  int head, chunk, first; /* first: its first row in the chunk */
  int warp, group, pair;
  int64_t tile;     /* index in the mask's arrays of tiles */
  int64_t base;     /* the head's first element in q, k, v, dq, dk, dv */
  int64_t out_base; /* the same in out, dout */

  __device__ __forceinline__ explicit plm_attention_block(const plm_attention &p)
      : head((int)blockIdx.y), chunk((int)blockIdx.z), first((int)blockIdx.x * PLM_ATTENTION_ROWS),
        warp((int)threadIdx.x / PLM_WARP), group((int)threadIdx.x % PLM_WARP / 4),
        pair((int)threadIdx.x % 4 * 2), tile((int64_t)chunk * gridDim.x + blockIdx.x),
        base((int64_t)chunk * p.shape.L * p.shape.row_stride + (int64_t)head * p.shape.K),
        out_base(((int64_t)chunk * p.shape.L * p.shape.H + head) * p.shape.K)
  {
  }

  /* The rows in the chunk of the thread's fragments, r = 0 or 1. */
  __device__ __forceinline__ int row(int r) const
  {
    return first + warp * 16 + group + 8 * r;
  }
  /* The index of a row of the chunk in (B, L), and in (B, H, L). */
  __device__ __forceinline__ int64_t of_chunk(const plm_attention &p, int row) const
  {
    return (int64_t)chunk * p.shape.L + row;
  }
  __device__ __forceinline__ int64_t of_head(const plm_attention &p, int row) const
  {
    return ((int64_t)chunk * p.shape.H + head) * p.shape.L + row;
  }
};

static constexpr float PLM_LOG2E = 1.44269504088896340736f;
static constexpr float PLM_LN2 = 0.69314718055994530942f;

template <int KP> struct plm_tile {
  static constexpr int LD = KP + 8;

  /* Begins to copy rows [first, first + ROWS) of one head. Rows outside [0, L) become zeros. */
  template <int ROWS>
  static __device__ __forceinline__ void copy(plm_bf16 *tile, const plm_bf16 *head,
                                              int64_t row_stride, int first, int L, int K)
  {
    const int vectors = K / 8; /* of 16 bytes, in a row */
    for (int i = (int)threadIdx.x; i < ROWS * vectors; i += PLM_ATTENTION_THREADS) {
      const int row = i / vectors, vector = i % vectors, at = first + row;
      const bool inside = at >= 0 && at < L;
      copy_async(tile + row * LD + vector * 8, head + (inside ? at : 0) * row_stride + vector * 8,
                 inside);
    }
  }

  /* Clears the columns from K on. Done once, since copies never write there. */
  template <int ROWS> static __device__ __forceinline__ void clear_margin(plm_bf16 *tile, int K)
  {
    const int margin = KP - K;
    for (int i = (int)threadIdx.x; i < ROWS * margin; i += PLM_ATTENTION_THREADS)
      tile[i / margin * LD + K + i % margin] = plm_bf16{0};
  }

  /* Operand A: rows [row, row + 16), columns [16 step, 16 step + 16). */
  static __device__ __forceinline__ void load_a(unsigned a[4], const plm_bf16 *tile, int row,
                                                int step)
  {
    const int lane = (int)threadIdx.x % PLM_WARP;
    load_matrices(a, tile + (row + lane % 16) * LD + step * 16 + lane / 16 * 8);
  }

  /* Operand B of X Y^T: rows [row, row + 16) of Y are two tiles of columns, b[0..1] and b[2..3]. */
  static __device__ __forceinline__ void load_b(unsigned b[4], const plm_bf16 *tile, int row,
                                                int step)
  {
    const int lane = (int)threadIdx.x % PLM_WARP;
    load_matrices(b, tile + (row + lane / 16 * 8 + lane % 8) * LD + step * 16 + lane / 8 % 2 * 8);
  }

  /* Operand B of X Y: the sum is over rows [row, row + 16) of Y; columns [16 step, 16 step + 16)
   * are two tiles of columns. */
  static __device__ __forceinline__ void load_b_transposed(unsigned b[4], const plm_bf16 *tile,
                                                           int row, int step)
  {
    const int lane = (int)threadIdx.x % PLM_WARP;
    load_matrices_transposed(b, tile + (row + lane % 16) * LD + step * 16 + lane / 16 * 8);
  }
};

/* A warp computes s (16, COLUMNS) += X Y^T: 16 rows of X from x_row on, COLUMNS rows of Y. */
template <int KP, int COLUMNS>
static __device__ __forceinline__ void product_rows(float s[COLUMNS / 8][4], const plm_bf16 *x,
                                                    int x_row, const plm_bf16 *y)
{
#pragma unroll
  for (int step = 0; step < KP / 16; step++) {
    unsigned a[4], b[4];
    plm_tile<KP>::load_a(a, x, x_row, step);
#pragma unroll
    for (int n = 0; n < COLUMNS / 16; n++) {
      plm_tile<KP>::load_b(b, y, n * 16, step);
      mma_bf16(s[2 * n], a, b);
      mma_bf16(s[2 * n + 1], a, b + 2);
    }
  }
}

/* A warp computes o (16, KP) += P Y. P (16, COLUMNS) is in accumulators and is rounded to bf16; Y
 * has COLUMNS rows. */
template <int KP, int COLUMNS>
static __device__ __forceinline__ void
product_columns(float o[KP / 8][4], const float p[COLUMNS / 8][4], const plm_bf16 *y)
{
#pragma unroll
  for (int k = 0; k < COLUMNS / 16; k++) {
    const unsigned a[4] = {pack_bf16(p[2 * k][0], p[2 * k][1]), pack_bf16(p[2 * k][2], p[2 * k][3]),
                           pack_bf16(p[2 * k + 1][0], p[2 * k + 1][1]),
                           pack_bf16(p[2 * k + 1][2], p[2 * k + 1][3])};
#pragma unroll
    for (int step = 0; step < KP / 16; step++) {
      unsigned b[4];
      plm_tile<KP>::load_b_transposed(b, y, k * 16, step);
      mma_bf16(o[2 * step], a, b);
      mma_bf16(o[2 * step + 1], a, b + 2);
    }
  }
}

/* The sum or the maximum over the four lanes that share a row of a fragment. */
static __device__ __forceinline__ float quad_sum(float x)
{
  x += __shfl_xor_sync(PLM_ALL_LANES, x, 1);
  return x + __shfl_xor_sync(PLM_ALL_LANES, x, 2);
}
static __device__ __forceinline__ float quad_max(float x)
{
  x = fmaxf(x, __shfl_xor_sync(PLM_ALL_LANES, x, 1));
  return fmaxf(x, __shfl_xor_sync(PLM_ALL_LANES, x, 2));
}

/* The logit of a product: scaled, and capped if cap > 0. */
static __device__ __forceinline__ float plm_logit(float product, float scale, float cap)
{
  const float x = product * scale;
  return cap > 0 ? cap * tanhf(x / cap) : x;
}

/* Writes a warp's 16 rows of accumulators. Rows group and group + 8 have their own factors. */
template <int KP>
static __device__ __forceinline__ void store_rows(plm_bf16 *head, int64_t row_stride, int first,
                                                  int L, int K, const float o[KP / 8][4],
                                                  float factor_low, float factor_high)
{
  const int lane = (int)threadIdx.x % PLM_WARP, row = first + lane / 4, column = lane % 4 * 2;
#pragma unroll
  for (int n = 0; n < KP / 8; n++) {
    if (n * 8 >= K) break;
    if (row < L)
      *reinterpret_cast<unsigned *>(head + row * row_stride + n * 8 + column) =
          pack_bf16(o[n][0] * factor_low, o[n][1] * factor_low);
    if (row + 8 < L)
      *reinterpret_cast<unsigned *>(head + (row + 8) * row_stride + n * 8 + column) =
          pack_bf16(o[n][2] * factor_high, o[n][3] * factor_high);
  }
}

/* Calls f with KP as a compile-time constant. */
template <class F> static inline void plm_with_head_width(int K, F f)
{
  switch ((K + 15) / 16) {
  case 1: f(std::integral_constant<int, 16>()); break;
  case 2: f(std::integral_constant<int, 32>()); break;
  case 3: f(std::integral_constant<int, 48>()); break;
  case 4: f(std::integral_constant<int, 64>()); break;
  case 5: f(std::integral_constant<int, 80>()); break;
  case 6: f(std::integral_constant<int, 96>()); break;
  case 7: f(std::integral_constant<int, 112>()); break;
  case 8: f(std::integral_constant<int, 128>()); break;
  default: PLM_ASSERT(!"a head is 16 to 128 wide");
  }
}

/* fp32, on plain multiply-adds: attention_plain.cu. */
void plm_cuda_attention_plain_forward(struct plm_cuda *cuda,
                                      const plm_attention_of<float> *attention);
void plm_cuda_attention_plain_backward(struct plm_cuda *cuda,
                                       const plm_attention_of<float> *attention);
/* bf16: attention_forward.cu, attention_backward.cu. */
void plm_cuda_attention_forward(struct plm_cuda *cuda, const struct plm_attention *attention);
void plm_cuda_attention_backward(struct plm_cuda *cuda, const struct plm_attention *attention);
/* The same on sm_90a (sm90/attention_sm90.cu), for backends with attention_sm90. They return false
 * and do nothing for heads of 32 or narrower, and for tensors that TMA cannot address. */
bool plm_cuda_attention_sm90_forward(struct plm_cuda *cuda, const struct plm_attention *attention);
/* partial: scratch for the backward pass in one kernel, aligned to 16 bytes, or NULL: it is then
 * two kernels. The choice is that of kernel_choices.cuh. */
bool plm_cuda_attention_sm90_backward(struct plm_cuda *cuda, const struct plm_attention *attention,
                                      float *partial);
/* How many floats `partial` has; 0 if one kernel cannot be used. It keeps fp32 sums of dQ, for each
 * block those of one head of a chunk. */
int64_t plm_cuda_attention_sm90_partial(const struct plm_cuda *cuda,
                                        const struct plm_attention *attention);
/* Compares both on this device, the second time with the backward pass in one kernel. PLM_CORRUPT:
 * they differ. PLM_TIMEOUT: a kernel did not end, and the stream cannot be used any more. Other
 * errors are the device's, and stay with its context. */
plm_status plm_cuda_attention_sm90_check(struct plm_cuda *cuda, struct plm_error *error);
plm_status plm_cuda_attention_onepass_check(struct plm_cuda *cuda, struct plm_error *error);

#endif
