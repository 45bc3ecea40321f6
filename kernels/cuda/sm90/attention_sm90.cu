/* Where the attention kernels of sm_90a begin on the host: what they take, tensor maps, launches.
 */
#include "kernels/cuda/sm90/attention_sm90.cuh"

namespace
{

/* The shape and pointers that the copy engine can address: 16-byte pieces. */
bool takes(const plm_attention &p)
{
  const plm_attention_shape &s = p.shape;
  const plm_bf16 *const pointers[] = {p.q, p.k, p.v, p.dout, p.out, p.dq, p.dk, p.dv};
  for (const plm_bf16 *pointer : pointers) {
    if ((uintptr_t)pointer % 16 != 0) return false;
  }
  /* narrower heads would compute zeros for the most part; scale: the largest product has the
   * largest logit */
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

#ifndef PLM_EMULATE
typedef CUresult (*encode_function)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                    const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                    const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                    CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* From the driver that is there: the shared object does not link libcuda. */
encode_function find_encode()
{
  void *function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const unsigned since = 12000;
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, since,
                                       cudaEnableDefault, &result) != cudaSuccess ||
      result != cudaDriverEntryPointSuccess) {
    cudaGetLastError(); /* the caller has another way */
    return nullptr;
  }
  return reinterpret_cast<encode_function>(function);
}
#endif

} // namespace

bool plm_sm90_map(plm_tile_map *map, const plm_bf16 *data, const plm_attention_shape *shape,
                  int64_t row_stride)
{
  const int64_t bytes = sizeof(plm_bf16);
  const int64_t sizes[] = {shape->K, shape->H, shape->L, shape->B};
  const int64_t strides[] = {bytes, shape->K * bytes, row_stride * bytes,
                             row_stride * bytes * shape->L};
  const int box[] = {PLM_TILE_COLUMNS, 1, PLM_TILE_ROWS, 1};
#ifdef PLM_EMULATE
  map->base = reinterpret_cast<const char *>(data);
  for (int i = 0; i < 4; i++)
    map->size[i] = sizes[i], map->stride[i] = strides[i], map->box[i] = box[i];
  return true;
#else
  static const encode_function encode = find_encode();
  if (encode == nullptr) return false;
  cuuint64_t global_sizes[4], global_strides[3];
  cuuint32_t boxes[4], steps[4];
  for (int i = 0; i < 4; i++) {
    global_sizes[i] = (cuuint64_t)sizes[i];
    boxes[i] = (cuuint32_t)box[i];
    steps[i] = 1;
    if (i > 0) global_strides[i - 1] = (cuuint64_t)strides[i];
  }
  return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<plm_bf16 *>(data),
                global_sizes, global_strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
#endif
}

static bool map_inputs(plm_tile_map maps[3], const struct plm_attention *attention)
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

bool plm_cuda_attention_sm90_backward(struct plm_cuda *cuda, const struct plm_attention *attention)
{
  const plm_attention_shape *shape = &attention->shape;
  plm_tile_map maps[3], dout;
  if (!takes(*attention) || !map_inputs(maps, attention) ||
      !plm_sm90_map(&dout, attention->dout, shape, (int64_t)shape->H * shape->K))
    return false;
  const plm_sm90_attention a = arguments(cuda, *attention);
  plm_sm90_backward(cuda->stream, a, maps[0], maps[1], maps[2], dout);
  return true;
}
