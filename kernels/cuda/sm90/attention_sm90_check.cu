/* Checks whether the attention kernels for sm_90a compute on this device what those on mma.sync
 * compute, with a few shapes that take every path through them. Runs when the first backend of a
 * process opens. The kernels were written against the emulation; if a device disagrees, it uses
 * mma.sync. */
#include <cmath>

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/sm90/check_sm90.cuh"

namespace
{

struct Shape {
  int B, L, H, K, document; /* consecutive documents have this length, or 7 less in chunk 1 */
  bool causal;
  float cap;
};
/* Short and long (over 512) ranges of keys, both widths of tiles, columns of zeros, caps; for each
 * kernel a shape with a second chunk. */
const Shape shapes[] = {
    {2, 330, 1, 64, 130, false, 0},  {2, 330, 1, 128, 130, true, 0}, {1, 700, 1, 64, 650, true, 0},
    {1, 700, 1, 128, 650, false, 0}, {2, 200, 2, 96, 90, true, 5},   {1, 600, 1, 64, 580, false, 5},
    {2, 130, 1, 64, 70, true, 5},
};
/* So few that a block takes several work items of these small shapes. */
enum { BLOCKS = 2 };

constexpr double LSE = 2e-3; /* the most by which lse may differ */

enum { QKV, DOUT, OUT, GRADIENTS, BUFFERS };

struct Tensors {
  size_t bytes[BUFFERS];
  void *at[BUFFERS] = {};
  float *lse = nullptr;
};

/* The mask's arrays, as plm_mask_build makes them. Positions after the last whole document of a
 * chunk are padding. */
struct Mask {
  int B, L, tiles; /* tiles of a chunk */
  int rows, all;   /* positions and tiles of all chunks */
  std::vector<int32_t> values;
  explicit Mask(const Shape &shape)
      : B(shape.B), L(shape.L), tiles((shape.L + PLM_MASK_TILE - 1) / PLM_MASK_TILE),
        rows(shape.B * shape.L), all(shape.B * tiles)
  {
    values.assign((size_t)(4 * rows + 6 * all), 0);
    for (int chunk = 0; chunk < B; chunk++) {
      documents(chunk, shape.document - 7 * chunk, shape.causal);
      for (int side = 0; side < 2; side++)
        for (int t = 0; t < tiles; t++) tile(chunk, side, t);
    }
  }
  void documents(int chunk, int length, bool causal)
  {
    int32_t *of_chunk = values.data() + chunk * L;
    for (int i = 0; i < L - L % length; i++) {
      const int first = i - i % length, end = first + length;
      of_chunk[i] = first;
      of_chunk[rows + i] = causal ? i + 1 : end;
      of_chunk[2 * rows + i] = causal ? i : first;
      of_chunk[3 * rows + i] = end;
    }
  }
  void tile(int chunk, int side, int t)
  {
    const int32_t *begin = values.data() + 2 * side * rows + chunk * L, *end = begin + rows;
    int least = INT32_MAX, largest = 0, latest = 0, earliest = INT32_MAX;
    for (int i = t * PLM_MASK_TILE; i < L && i < (t + 1) * PLM_MASK_TILE; i++) {
      if (begin[i] == end[i]) {
        earliest = 0;
        continue;
      }
      least = min(least, begin[i]), latest = max(latest, begin[i]);
      largest = max(largest, end[i]), earliest = min(earliest, end[i]);
    }
    int32_t *out = values.data() + 4 * rows + 4 * side * all + chunk * tiles + t;
    out[0] = largest > 0 ? least : 0;
    out[all] = largest;
    if (side == 1) return;
    out[2 * all] = latest < earliest ? latest : 0;
    out[3 * all] = latest < earliest ? earliest : 0;
  }
  struct plm_interval_mask view(const int32_t *at) const
  {
    struct plm_interval_mask mask = {};
    const int32_t *t = at + 4 * rows;
    mask.B = B, mask.L = L;
    mask.key_begin = at, mask.key_end = at + rows;
    mask.query_begin = at + 2 * rows, mask.query_end = at + 3 * rows;
    mask.tile_key_begin = t, mask.tile_key_end = t + all;
    mask.tile_full_begin = t + 2 * all, mask.tile_full_end = t + 3 * all;
    mask.tile_query_begin = t + 4 * all, mask.tile_query_end = t + 5 * all;
    return mask;
  }
};

/* Forward and backward on mma.sync or on sm90. The backward pass takes out and lse from `given`. */
void compute(struct plm_cuda *cuda, bool sm90, const Tensors &t, const Tensors &given,
             const struct plm_interval_mask &mask, const struct plm_attention_shape &shape)
{
  struct plm_ops *ops = &cuda->ops;
  const size_t part = (size_t)shape.H * (size_t)shape.K * sizeof(plm_bf16);
  const struct plm_attention_inputs in = plm_attention_inputs_of(given.at[QKV], part);
  const struct plm_attention_gradients to = plm_attention_gradients_of(t.at[GRADIENTS], part);
  cuda->attention_sm90 = sm90;
  ops->attention_forward(ops, t.at[OUT], t.lse, &in, &mask, &shape);
  ops->attention_backward(ops, &to, given.at[DOUT], given.at[OUT], given.lse, &in, &mask, &shape);
  cuda->attention_sm90 = false;
}

bool close(const std::vector<float> &got, const std::vector<float> &expected)
{
  for (size_t i = 0; i < got.size(); i++) {
    if (got[i] == expected[i]) continue; /* also infinity */
    if (!(fabsf(got[i] - expected[i]) <= LSE)) return false;
  }
  return true;
}

/* Allocates what a shape needs on the device. The caller releases it, also after an error. */
plm_status allocate(struct plm_ops *ops, Tensors &t, size_t rows, size_t width, size_t heads,
                    struct plm_error *error)
{
  const size_t bytes[BUFFERS] = {3 * rows * width * 2, rows * width * 2, rows * width * 2,
                                 3 * rows * width * 2};
  for (int i = 0; i < BUFFERS; i++) {
    t.bytes[i] = bytes[i];
    PLM_TRY(ops->allocate(ops, bytes[i], &t.at[i], error));
  }
  return ops->allocate(ops, rows * heads * sizeof(float), reinterpret_cast<void **>(&t.lse), error);
}

plm_status compare(struct plm_cuda *cuda, const Tensors t[2], size_t lse_count,
                   const char *const names[BUFFERS], struct plm_error *error)
{
  struct plm_ops *ops = &cuda->ops;
  for (int i = OUT; i < BUFFERS; i++) {
    std::vector<uint16_t> both[2];
    for (int way = 0; way < 2; way++) {
      both[way].resize(t[way].bytes[i] / 2);
      ops->download(ops, both[way].data(), t[way].at[i], t[way].bytes[i]);
    }
    PLM_TRY(plm_sm90_settle(cuda, error));
    if (!plm_sm90_close(both[1], both[0]))
      return plm_error_set(error, PLM_CORRUPT, "%s differs from that of mma.sync", names[i]);
  }
  std::vector<float> lse[2];
  for (int way = 0; way < 2; way++) {
    lse[way].resize(lse_count);
    ops->download(ops, lse[way].data(), t[way].lse, lse_count * sizeof(float));
  }
  PLM_TRY(plm_sm90_settle(cuda, error));
  if (!close(lse[1], lse[0]))
    return plm_error_set(error, PLM_CORRUPT, "lse differs from that of mma.sync");
  return PLM_OK;
}

plm_status check_shape(struct plm_cuda *cuda, const Shape &shape, Tensors t[2], void **mask_values,
                       struct plm_error *error)
{
  static const char *const names[BUFFERS] = {"", "", "the output", "a gradient"};
  struct plm_ops *ops = &cuda->ops;
  const size_t rows = (size_t)shape.B * (size_t)shape.L, width = (size_t)shape.H * (size_t)shape.K;
  const Mask mask(shape);
  std::vector<uint16_t> qkv(3 * rows * width), dout(rows * width), none(3 * rows * width, 0xffff);
  plm_sm90_draw(qkv, 1);
  plm_sm90_draw(dout, 2);
  PLM_TRY(ops->allocate(ops, mask.values.size() * sizeof(int32_t), mask_values, error));
  ops->upload(ops, *mask_values, mask.values.data(), mask.values.size() * sizeof(int32_t));
  for (int way = 0; way < 2; way++) {
    PLM_TRY(allocate(ops, t[way], rows, width, (size_t)shape.H, error));
    ops->upload(ops, t[way].at[OUT], none.data(), t[way].bytes[OUT]); /* NaN */
    ops->upload(ops, t[way].at[GRADIENTS], none.data(), t[way].bytes[GRADIENTS]);
  }
  ops->upload(ops, t[0].at[QKV], qkv.data(), t[0].bytes[QKV]);
  ops->upload(ops, t[0].at[DOUT], dout.data(), t[0].bytes[DOUT]);
  const struct plm_attention_shape s = {
      shape.B,  shape.L, shape.H, shape.K, 3 * shape.H * shape.K, 1 / sqrtf((float)shape.K),
      shape.cap};
  const struct plm_interval_mask view = mask.view(static_cast<const int32_t *>(*mask_values));
  compute(cuda, false, t[0], t[0], view, s);
  PLM_TRY(plm_sm90_settle(cuda, error));
  compute(cuda, true, t[1], t[0], view, s);
  PLM_TRY(plm_sm90_settle(cuda, error));
  return compare(cuda, t, rows * (size_t)shape.H, names, error);
}

} // namespace

/* Compares sm90 with mma.sync. The backward pass on sm90 is `backward`. */
static plm_status check(struct plm_cuda *cuda, enum plm_ways backward, struct plm_error *error)
{
  plm_status status = PLM_OK;
  const bool chosen = cuda->attention_sm90;
  const enum plm_ways backward_chosen = cuda->attention_backward;
  const int multiprocessors = cuda->multiprocessors;
  cuda->multiprocessors = min(multiprocessors, (int)BLOCKS);
  cuda->attention_backward = backward;
  for (const Shape &shape : shapes) {
    if (backward == PLM_WAYS_SECOND && shape.B == 1) continue; /* for the forward pass */
    Tensors t[2];
    void *mask_values = nullptr;
    status = check_shape(cuda, shape, t, &mask_values, error);
    if (status == PLM_TIMEOUT) break; /* a release would wait forever */
    for (Tensors &each : t) {
      for (void *buffer : each.at) {
        if (buffer != nullptr) cuda->ops.release(&cuda->ops, buffer);
      }
      if (each.lse != nullptr) cuda->ops.release(&cuda->ops, each.lse);
    }
    if (mask_values != nullptr) cuda->ops.release(&cuda->ops, mask_values);
    if (status != PLM_OK) {
      plm_error_where(error, "heads of %d, %d chunks of %d positions", shape.K, shape.B, shape.L);
      break;
    }
  }
  cuda->attention_sm90 = chosen;
  cuda->multiprocessors = multiprocessors;
  cuda->attention_backward = backward_chosen;
  return status;
}

plm_status plm_cuda_attention_sm90_check(struct plm_cuda *cuda, struct plm_error *error)
{
  return check(cuda, PLM_WAYS_FIRST, error);
}

plm_status plm_cuda_attention_onepass_check(struct plm_cuda *cuda, struct plm_error *error)
{
  return check(cuda, PLM_WAYS_SECOND, error);
}
