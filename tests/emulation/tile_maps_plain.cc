/* Maps of tiles under the emulation. The process ends if a map breaks a rule of the driver
 * (cuTensorMapEncodeTiled); a map that the driver may refuse nevertheless is not modelled. */
#include "kernels/cuda/sm90/warpgroups.cuh"

namespace plm::emulation
{

TensorMap &TensorMap::operator=(const TensorMap &other)
{
  base = other.base, rank = other.rank;
  memcpy(size, other.size, sizeof size);
  memcpy(stride, other.stride, sizeof stride);
  memcpy(box, other.box, sizeof box);
  copies = other.copies + (self != nullptr);
  return *this;
}

} // namespace plm::emulation

using plm::emulation::stop;

bool plm_sm90_map_tiles(plm_tile_map *map, const plm_bf16 *data, int rank, const int64_t *sizes,
                        const int64_t *strides, const int *box)
{
  enum { MOST_RANK = 4, MOST_BOX = 256, ALIGNMENT = 16 };
  constexpr int64_t MOST_SIZE = (int64_t)1 << 32, STRIDE_END = (int64_t)1 << 40;
  if ((uintptr_t)data % ALIGNMENT != 0) stop("a map of tiles of memory that is not aligned");
  if (box[0] != PLM_TILE_COLUMNS) stop("a map of tiles of %d columns", box[0]);
  if (strides[0] != (int64_t)sizeof *data) stop("a map of tiles of elements with gaps");
  for (int i = 0; i < rank; i++) {
    if (sizes[i] < 1 || sizes[i] > MOST_SIZE) stop("a map of tiles of size %ld", (long)sizes[i]);
    if (box[i] < 1 || box[i] > MOST_BOX) stop("a map of tiles with a box of %d", box[i]);
    if (i > 0 && (strides[i] % ALIGNMENT != 0 || strides[i] >= STRIDE_END || strides[i] <= 0))
      stop("a map of tiles with a stride of %ld bytes", (long)strides[i]);
    if (i > 0 && strides[i] % strides[i - 1] != 0)
      stop("a map of tiles with strides of %ld and %ld bytes", (long)strides[i - 1],
           (long)strides[i]);
  }
  map->base = reinterpret_cast<const char *>(data);
  map->rank = rank;
  for (int i = 0; i < MOST_RANK; i++) {
    const bool is = i < rank;
    map->size[i] = is ? sizes[i] : 1;
    map->stride[i] = is ? strides[i] : 0;
    map->box[i] = is ? box[i] : 1;
  }
  return true;
}
