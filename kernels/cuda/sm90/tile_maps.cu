/* Maps of tiles for the copy engine, made by the driver. */
#include "kernels/cuda/sm90/warpgroups.cuh"

enum { MOST_RANK = 4 };

namespace
{

typedef CUresult (*encode_function)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                    const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                    const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                    CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's function, found at run time: the shared object does not link libcuda. */
encode_function find_encode()
{
  void *function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const unsigned since = 12000;
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, since,
                                       cudaEnableDefault, &result) != cudaSuccess ||
      result != cudaDriverEntryPointSuccess) {
    cudaGetLastError(); /* the caller uses other kernels */
    return nullptr;
  }
  return reinterpret_cast<encode_function>(function);
}

} // namespace

bool plm_sm90_map_tiles(plm_tile_map *map, const plm_bf16 *data, int rank, const int64_t *sizes,
                        const int64_t *strides, const int *box)
{
  static const encode_function encode = find_encode();
  if (encode == nullptr) return false;
  cuuint64_t global_sizes[MOST_RANK], global_strides[MOST_RANK - 1];
  cuuint32_t boxes[MOST_RANK], steps[MOST_RANK];
  for (int i = 0; i < rank; i++) {
    global_sizes[i] = (cuuint64_t)sizes[i];
    boxes[i] = (cuuint32_t)box[i];
    steps[i] = 1;
    if (i > 0) global_strides[i - 1] = (cuuint64_t)strides[i];
  }
  return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, (cuuint32_t)rank,
                const_cast<plm_bf16 *>(data), global_sizes, global_strides, boxes, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
