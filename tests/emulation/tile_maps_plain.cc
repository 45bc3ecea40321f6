/* Maps of tiles under the emulation, with the conditions under which a driver refuses one. */
#include "kernels/cuda/sm90/warpgroups.cuh"

bool plm_sm90_map_tiles(plm_tile_map *map, const plm_bf16 *data, int rank, const int64_t *sizes,
                        const int64_t *strides, const int *box)
{
  enum { MOST_RANK = 4, MOST_BOX = 256 };
  if ((uintptr_t)data % 16 != 0) return false;
  for (int i = 0; i < rank; i++)
    if (sizes[i] < 1 || box[i] < 1 || box[i] > MOST_BOX || (i > 0 && strides[i] % 16 != 0))
      return false;
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
