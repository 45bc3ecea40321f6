/* The products of the MLP for sm_90a, with relu2 in the epilogue. A tile of the result is 128 x
 * 256; each of the two workers holds 64 x 256 accumulators. The copy engine brings 64 of the sum at
 * a time, up to four stages ahead.
 *
 * The first worker begins a little earlier than the second. Both take equally long for a tile, so
 * it stays ahead, and the epilogue of one runs during the products of the other. What the epilogue
 * of the backward pass needs of `hidden` is loaded before the tile's products and waits in
 * registers.
 *
 * Each warp rearranges its results through its own panel of shared memory, so that 16 lanes write
 * 256 bytes of a row. */
#include "kernels/cuda/products/relu2_products.cuh"
#include "kernels/cuda/sm90/warpgroups.cuh"

namespace
{

enum {
  ROWS = 128,               /* of a tile of the result */
  COLUMNS = 256,            /* of a tile of the result */
  DEPTH = PLM_TILE_COLUMNS, /* of the sum in a stage */
  STAGES = 4,
  A_BYTES = ROWS * PLM_TILE_ROW_BYTES,
  B_BYTES = COLUMNS * DEPTH * 2,
  STAGE_BYTES = A_BYTES + B_BYTES,
  GROUP = 16,          /* rows of tiles that form a group, walked column by column */
  HEAD_START = 2,      /* stages */
  WARP_ROWS = 16,      /* of a warp's accumulators */
  PANEL_COLUMNS = 128, /* written by a warp at a time */
  PANELS = COLUMNS / PANEL_COLUMNS,
  PANEL_ROW_BYTES = PANEL_COLUMNS * 2,
  PANEL_BYTES = WARP_ROWS * PANEL_ROW_BYTES,
  ROW_LANES = PANEL_ROW_BYTES / 16,    /* 16 bytes each */
  TURNS = PANEL_BYTES / 16 / PLM_WARP, /* in which the lanes, 16 bytes each, move a panel */
};

struct Product {
  plm_bf16 *out;
  const plm_bf16 *hidden;
  int M, N, K;
  int tile_rows, tile_columns, tiles, steps;
  int blocks; /* the grid's size; a parameter needs no register */
};

struct Barriers {
  plm_ring_barriers<STAGES> stages;
};
constexpr size_t PANELS_AT = (size_t)STAGES * STAGE_BYTES;
constexpr size_t BARRIERS_AT = PANELS_AT + (size_t)PLM_SM90_WORKERS * PLM_SM90_WARPS * PANEL_BYTES;
constexpr size_t SHARED = PLM_SWIZZLE_BYTES + BARRIERS_AT + sizeof(Barriers);
static_assert(SHARED <= 227 << 10, "shared memory of a block");

typedef plm_ring<STAGES> Ring;

/* Where a tile begins in the result. At any time blocks work on consecutive tiles, which are in
 * GROUP rows and few columns, so that L2 holds their operands. */
struct Place {
  int row, column;
  __device__ __forceinline__ Place(const Product &p, int tile)
  {
    const int of_group = GROUP * p.tile_columns, group = tile / of_group;
    const int inside = tile - group * of_group, rows = min((int)GROUP, p.tile_rows - group * GROUP);
    const int along = inside / rows;
    row = (group * GROUP + inside - along * rows) * ROWS;
    column = along * COLUMNS;
  }
};

/* ---- the thread that loads tiles ---- */

/* Forward, B is COLUMNS rows and DEPTH columns of w. Backward, it is DEPTH rows and COLUMNS
 * columns, copied 64 columns at a time. */
template <bool BACKWARD>
__device__ __forceinline__ void produce(unsigned char *shared, Barriers *barriers, const Product &p,
                                        const plm_tile_map *a, const plm_tile_map *w)
{
  Ring ring;
  tile_map_prefetch(a);
  tile_map_prefetch(w);
  for (int tile = (int)blockIdx.x; tile < p.tiles; tile += p.blocks) {
    const Place place(p, tile);
    for (int step = 0; step < p.steps; step++, ring.advance()) {
      barriers->stages.wait_empty(ring);
      uint64_t *full = &barriers->stages.full[ring.stage()];
      unsigned char *stage = shared + ring.stage() * STAGE_BYTES, *b = stage + A_BYTES;
      const int depth = step * DEPTH;
      barrier_expect(full, STAGE_BYTES);
      tile_load(stage, a, full, depth, place.row);
      if (BACKWARD) {
#pragma unroll
        for (int i = 0; i < COLUMNS / PLM_TILE_COLUMNS; i++)
          tile_load(b + i * DEPTH * PLM_TILE_ROW_BYTES, w, full,
                    place.column + i * PLM_TILE_COLUMNS, depth);
      } else {
        tile_load(b, w, full, depth, place.column);
      }
    }
  }
}

/* ---- epilogue ---- */

/* A warp's 16 rows of the result, and which 16 bytes of a panel this lane moves: each turn is two
 * rows further. */
struct Rows {
  int row, column; /* of this lane in the first turn and panel */
  int64_t at;      /* their element in the result */
  __device__ __forceinline__ Rows(const Product &p, const Place &place, int worker)
  {
    const int warp = (int)threadIdx.x % PLM_WARPGROUP / PLM_WARP;
    const int lane = (int)threadIdx.x % PLM_WARP;
    row = place.row + worker * PLM_TILE_ROWS + warp * WARP_ROWS + lane / ROW_LANES;
    column = place.column + lane % ROW_LANES * 8;
    at = (int64_t)row * p.N + column;
  }
  __device__ __forceinline__ bool inside(const Product &p, int panel, int turn) const
  {
    return row + turn * (PLM_WARP / ROW_LANES) < p.M && column + panel * PANEL_COLUMNS < p.N;
  }
  __device__ __forceinline__ int64_t element(const Product &p, int panel, int turn) const
  {
    return at + (int64_t)(turn * (PLM_WARP / ROW_LANES)) * p.N + panel * PANEL_COLUMNS;
  }
};

/* The offset of a part of 16 bytes in a panel. The parts of a row are permuted by the row modulo 8,
 * so that neither rows nor columns have bank conflicts. */
__device__ __forceinline__ int part_at(int row, int part)
{
  return row * PANEL_ROW_BYTES + ((part ^ (row & 7)) << 4);
}
/* The part of a panel that this lane moves in a turn. */
__device__ __forceinline__ uint4 *part_of_turn(unsigned char *panel, int turn)
{
  const int lane = (int)threadIdx.x % PLM_WARP;
  return reinterpret_cast<uint4 *>(
      panel + part_at(turn * (PLM_WARP / ROW_LANES) + lane / ROW_LANES, lane % ROW_LANES));
}

typedef uint4 Held[PANELS * TURNS];

__device__ __forceinline__ void load_hidden(Held &held, const Product &p, const Rows &rows)
{
#pragma unroll
  for (int i = 0; i < PANELS * TURNS; i++) {
    held[i] = uint4{0, 0, 0, 0};
    if (rows.inside(p, i / TURNS, i % TURNS))
      held[i] = load_now(p.hidden + rows.element(p, i / TURNS, i % TURNS));
  }
}

/* Two sums times the slopes of relu2, where `hidden` packs its two values. */
__device__ __forceinline__ unsigned through_relu2(float low, float high, unsigned hidden)
{
  const float first = root_fast(__uint_as_float(hidden << 16));
  const float second = root_fast(__uint_as_float(hidden & 0xffff0000u));
  return pack_bf16(low * (2 * first), high * (2 * second));
}

template <bool BACKWARD>
__device__ __forceinline__ void finish(unsigned char *panel, const float (&d)[COLUMNS / 2],
                                       const Held &held, const Product &p, const Rows &rows)
{
  const int lane = (int)threadIdx.x % PLM_WARP;
#pragma unroll
  for (int half = 0; half < PANELS; half++) {
    if (BACKWARD) {
#pragma unroll
      for (int turn = 0; turn < TURNS; turn++)
        *part_of_turn(panel, turn) = held[half * TURNS + turn];
      __syncwarp();
    }
#pragma unroll
    for (int i = 0; i < PANEL_COLUMNS / 16; i++) {
      /* 16 x 16: rows 0-7 and 8-15 of the first 8 columns, then of the others */
      const float *sums = d + (half * (PANEL_COLUMNS / 16) + i) * 8;
      unsigned char *at = panel + part_at(lane % 16, 2 * i + lane / 16);
      unsigned words[4];
      if (BACKWARD) {
        load_matrices(words, at);
#pragma unroll
        for (int j = 0; j < 4; j++)
          words[j] = through_relu2(sums[2 * j], sums[2 * j + 1], words[j]);
      } else {
        /* x |x| equals relu2(x) if x is positive, and is negative otherwise */
#pragma unroll
        for (int j = 0; j < 4; j++)
          words[j] = pack_bf16_positive(sums[2 * j] * fabsf(sums[2 * j]),
                                        sums[2 * j + 1] * fabsf(sums[2 * j + 1]));
      }
      store_matrices(at, words);
    }
    matrices_settle();
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
      const uint4 part = *part_of_turn(panel, turn);
      if (rows.inside(p, half, turn))
        *reinterpret_cast<uint4 *>(p.out + rows.element(p, half, turn)) = part;
    }
    __syncwarp(); /* the next half overwrites the panel */
  }
}

/* ---- a warpgroup that computes ---- */

template <bool BACKWARD>
__device__ __forceinline__ void begin_stage(float (&d)[COLUMNS / 2], unsigned a, unsigned b,
                                            bool accumulate)
{
#pragma unroll
  for (int step = 0; step < DEPTH / PLM_PRODUCT_STEP; step++)
    product_tiles<COLUMNS, BACKWARD>(d, a + step * PLM_COLUMNS_FURTHER,
                                     b + step * (BACKWARD ? PLM_ROWS_FURTHER : PLM_COLUMNS_FURTHER),
                                     accumulate || step > 0);
}

template <bool BACKWARD>
__device__ __forceinline__ void work(unsigned char *shared, Barriers *barriers, const Product &p,
                                     int worker)
{
  const int warp = (int)threadIdx.x % PLM_WARPGROUP / PLM_WARP;
  unsigned char *panel = shared + PANELS_AT + (worker * PLM_SM90_WARPS + warp) * PANEL_BYTES;
  Ring ring;
  /* counts down to the stage after which the second worker may begin */
  int head_start = worker == 0 ? min((int)HEAD_START, p.steps) : 0;
  if (worker > 0) named_sync(PLM_BAR_TURN, PLM_SM90_WORKERS * PLM_WARPGROUP);
  for (int tile = (int)blockIdx.x; tile < p.tiles; tile += p.blocks) {
    const Rows rows(p, Place(p, tile), worker);
    Held held;
    float d[COLUMNS / 2];
    if (BACKWARD) load_hidden(held, p, rows);
    Ring before;
    for (int step = 0; step < p.steps; step++) {
      unsigned char *stage = shared + ring.stage() * STAGE_BYTES;
      const unsigned a = tile_descriptor(stage + worker * PLM_TILE_BYTES, 0);
      const unsigned b =
          tile_descriptor(stage + A_BYTES, BACKWARD ? DEPTH * PLM_TILE_ROW_BYTES : 0);
      barriers->stages.wait_full(ring);
      products_fence();
      begin_stage<BACKWARD>(d, a, b, step > 0);
      products_commit();
      if (step > 0) {
        products_wait<1>();
        barriers->stages.release(before);
      }
      if (--head_start == 0) named_arrive(PLM_BAR_TURN, PLM_SM90_WORKERS * PLM_WARPGROUP);
      before = ring;
      ring.advance();
    }
    products_wait<0>();
    products_hold(d);
    barriers->stages.release(before);
    finish<BACKWARD>(panel, d, held, p, rows);
  }
}

template <bool BACKWARD>
__global__ void __launch_bounds__(PLM_SM90_THREADS, 1)
    product_kernel(const PLM_GRID_CONSTANT plm_tile_map a, const PLM_GRID_CONSTANT plm_tile_map w,
                   const PLM_GRID_CONSTANT Product p)
{
  unsigned char *shared = plm_sm90_shared();
  Barriers *barriers = reinterpret_cast<Barriers *>(shared + BARRIERS_AT);
  if (threadIdx.x == 0) {
    barriers->stages.init(1, PLM_SM90_WORKERS * PLM_SM90_WARPS);
    barrier_init_fence();
  }
  __syncthreads();
  const int group = (int)threadIdx.x / PLM_WARPGROUP;
  if (group == 0) {
    registers_release<PLM_SM90_PRODUCER_REGISTERS>();
    if (threadIdx.x == 0) produce<BACKWARD>(shared, barriers, p, &a, &w);
  } else {
    registers_acquire<PLM_SM90_WORKER_REGISTERS>();
    work<BACKWARD>(shared, barriers, p, group - 1);
  }
}

/* ---- the host's side ---- */

/* Makes a map of a row-major matrix, with boxes of box_rows rows. */
bool map_matrix(plm_tile_map *map, const void *data, int64_t rows, int64_t columns, int box_rows)
{
  const int64_t sizes[] = {columns, rows};
  const int64_t strides[] = {sizeof(plm_bf16), columns * (int64_t)sizeof(plm_bf16)};
  const int box[] = {PLM_TILE_COLUMNS, box_rows};
  return plm_sm90_map_tiles(map, static_cast<const plm_bf16 *>(data), 2, sizes, strides, box);
}

} // namespace

bool plm_cuda_product_sm90_takes(const struct plm_cuda *cuda, const struct plm_relu2_product *p)
{
  const uintptr_t pointers =
      (uintptr_t)p->out | (uintptr_t)p->a | (uintptr_t)p->w | (uintptr_t)p->hidden;
  const int64_t most = INT32_MAX - ROWS; /* so that the last row of a tile is an int */
  return cuda->bf16 && pointers % 16 == 0 && p->N > 0 && p->I > 0 && p->O > 0 && p->I % 8 == 0 &&
         p->O % 8 == 0 && p->N <= most && p->I <= most / 2 && p->O <= most / 2 &&
         plm_blocks(p->N, ROWS) * (int64_t)plm_blocks(max(p->I, p->O), COLUMNS) <=
             INT32_MAX - GROUP - cuda->multiprocessors;
}

bool plm_cuda_product_sm90(struct plm_cuda *cuda, const struct plm_relu2_product *product)
{
  const bool backward = plm_relu2_is_backward(product);
  plm_tile_map a, w;
  Product p = {};
  PLM_ASSERT(plm_cuda_product_sm90_takes(cuda, product));
  p.out = static_cast<plm_bf16 *>(product->out);
  p.hidden = static_cast<const plm_bf16 *>(product->hidden);
  p.M = (int)product->N;
  p.N = (int)(backward ? product->I : product->O);
  p.K = (int)(backward ? product->O : product->I);
  p.tile_rows = (int)plm_blocks(p.M, ROWS);
  p.tile_columns = (int)plm_blocks(p.N, COLUMNS);
  p.tiles = p.tile_rows * p.tile_columns;
  p.steps = (int)plm_blocks(p.K, DEPTH);
  p.blocks = min(cuda->multiprocessors, p.tiles);
  if (!map_matrix(&a, product->a, p.M, p.K, ROWS) ||
      !map_matrix(&w, product->w, product->O, product->I, backward ? DEPTH : COLUMNS))
    return false;
  plm_launch(cuda->stream, backward ? product_kernel<true> : product_kernel<false>,
             dim3((unsigned)p.blocks), dim3(PLM_SM90_THREADS), SHARED, a, w, p);
  return true;
}
