/* The host's side of attention on sm_90a: what the kernels take, tensor maps, launches. */
#include "kernels/cuda/products/kernel_choices.cuh"
#include "kernels/cuda/sm90/attention_sm90.cuh"

namespace
{

/* Whether TMA can address the tensors (in items of 16 bytes), and the kernels take the shape. */
bool takes(const plm_attention &p)
{
  const plm_attention_shape &s = p.shape;
  const plm_bf16 *const pointers[] = {p.q, p.k, p.v, p.dout, p.out, p.dq, p.dk, p.dv};
  for (const plm_bf16 *pointer : pointers) {
    if ((uintptr_t)pointer % 16 != 0) return false;
  }
  /* narrower heads would mostly compute zeros; the kernels take the maximum over products, which is
   * that over logits only if the scale is positive */
  return s.K > 32 && s.K <= 128 && s.K % 8 == 0 && s.row_stride % 8 == 0 && s.scale > 0;
}

plm_sm90_attention arguments(const struct plm_cuda *cuda, const plm_attention &p)
{
  plm_sm90_attention a = {};
  a.p = p;
  a.tiles = (p.shape.L + PLM_MASK_TILE - 1) / PLM_MASK_TILE;
  a.pairs = (a.tiles + PLM_SM90_WORKERS - 1) / PLM_SM90_WORKERS;
  a.items = a.pairs * p.heads * p.shape.B;
  a.blocks = min(cuda->multiprocessors, a.items);
  a.unit = PLM_LOG2E * p.shape.scale;
  if (p.shape.soft_cap > 0) {
    a.inverse_cap = 1 / p.shape.soft_cap;
    a.cap_unit = 2 * a.unit * a.inverse_cap;
  }
  return a;
}

} // namespace

bool plm_sm90_map(plm_tile_map *map, const plm_bf16 *data, const plm_attention_shape *shape,
                  int64_t row_stride)
{
  const int64_t bytes = sizeof(plm_bf16);
  const int64_t sizes[] = {shape->K, shape->H, shape->L, shape->B};
  const int64_t strides[] = {bytes, shape->K * bytes, row_stride * bytes,
                             row_stride * bytes * shape->L};
  const int box[] = {PLM_TILE_COLUMNS, 1, PLM_TILE_ROWS, 1};
  return plm_sm90_map_tiles(map, data, 4, sizes, strides, box);
}

static bool map_inputs(plm_tile_map *maps, const struct plm_attention *attention)
{
  const plm_attention_shape *shape = &attention->shape;
  const plm_bf16 *const inputs[] = {attention->q, attention->k, attention->v};
  for (int i = 0; i < 3; i++) {
    if (!plm_sm90_map(&maps[i], inputs[i], shape, shape->row_stride)) return false;
  }
  return true;
}

bool plm_cuda_attention_sm90_forward(struct plm_cuda *cuda, const struct plm_attention *attention)
{
  plm_tile_map maps[3];
  if (!takes(*attention) || !map_inputs(maps, attention)) return false;
  const plm_sm90_attention a = arguments(cuda, *attention);
  plm_sm90_forward(cuda->stream, a, maps[0], maps[1], maps[2]);
  return true;
}

/* ---- the backward pass: two kernels, or one ---- */

namespace
{

struct Ways {
  plm_sm90_attention a, onepass;
  plm_tile_map maps[4]; /* q, k, v, dout */
  float *partial;
};

/* A block of one kernel has all keys of one head of a chunk. */
plm_sm90_attention onepass_arguments(const struct plm_cuda *cuda, const plm_attention &p)
{
  plm_sm90_attention a = arguments(cuda, p);
  a.items = p.heads * p.shape.B;
  a.blocks = min(cuda->multiprocessors, a.items);
  return a;
}

bool run_way(struct plm_cuda *cuda, const void *context, bool onepass)
{
  const Ways *ways = static_cast<const Ways *>(context);
  const plm_tile_map *maps = ways->maps;
  if (onepass)
    plm_sm90_onepass(cuda->stream, ways->onepass, maps, ways->partial);
  else
    plm_sm90_backward(cuda->stream, ways->a, maps[0], maps[1], maps[2], maps[3]);
  return true;
}

} // namespace

int64_t plm_cuda_attention_sm90_partial(const struct plm_cuda *cuda,
                                        const struct plm_attention *attention)
{
  if (cuda->attention_backward == PLM_WAYS_FIRST || !takes(*attention)) return 0;
  const plm_sm90_attention a = onepass_arguments(cuda, *attention);
  const int width = attention->shape.K <= 64 ? 64 : 128;
  return (int64_t)a.blocks * a.tiles * PLM_MASK_TILE * width;
}

bool plm_cuda_attention_sm90_backward(struct plm_cuda *cuda, const struct plm_attention *attention,
                                      float *partial)
{
  const plm_attention_shape *shape = &attention->shape;
  Ways ways = {arguments(cuda, *attention), onepass_arguments(cuda, *attention), {}, partial};
  if (!takes(*attention) || !map_inputs(ways.maps, attention) ||
      !plm_sm90_map(&ways.maps[3], attention->dout, shape, (int64_t)shape->H * shape->K))
    return false;
  const struct plm_choice_shape choice = {
      PLM_CHOICE_ATTENTION_BACKWARD, {(int64_t)shape->B * attention->heads, shape->L, shape->K}};
  run_way(cuda, &ways, partial != nullptr && plm_cuda_takes_second(cuda, &choice, run_way, &ways));
  return true;
}
