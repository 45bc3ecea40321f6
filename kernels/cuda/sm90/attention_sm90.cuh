/* What the attention kernels of sm_90a share: their arguments, the work that a block takes, and the
 * way of accumulators to memory.
 *
 * Each of a block's two computing warpgroups (warpgroups.cuh) has one tile of the mask, so it knows
 * its own range and skips what this tile does not touch. The tiles of the next work item are
 * loaded while one ends; this matters for short documents, where an item takes a few
 * microseconds. */
#ifndef PLM_KERNELS_CUDA_SM90_ATTENTION_SM90_CUH
#define PLM_KERNELS_CUDA_SM90_ATTENTION_SM90_CUH

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/sm90/warpgroups.cuh"

struct plm_sm90_attention {
  plm_attention p;
  int tiles;  /* of the mask in a chunk */
  int pairs;  /* of tiles in a chunk */
  int items;  /* pairs of all heads and chunks */
  int blocks; /* the grid's size; a parameter needs no register */
  /* factors: from a product to log2(e) times its logit, from a product to the exponent of tanh, and
   * 1 / cap */
  float unit, cap_unit, inverse_cap;
};

/* Returns i, but the compiler does not know that: values that depend on it are computed again
 * instead of being kept in registers. */
static __device__ __forceinline__ int plm_sm90_again(int i)
{
  asm volatile("" : "+r"(i));
  return i;
}

/* A work item: two tiles of 64 rows of one head. */
struct plm_sm90_item {
  int head, chunk, tile;
  __device__ __forceinline__ plm_sm90_item(int head_, int chunk_, int tile_)
      : head(head_), chunk(chunk_), tile(tile_)
  {
  }
  __device__ __forceinline__ plm_sm90_item(const plm_sm90_attention &a, int item)
  {
    const int pairs = plm_sm90_again(a.pairs), heads = plm_sm90_again(a.p.heads);
    const int of_head = item / pairs;
    tile = (item - of_head * pairs) * PLM_SM90_WORKERS;
    chunk = of_head / heads;
    head = of_head - chunk * heads;
  }
};

/* A tile's range [begin, end) in the mask's arrays; empty beyond the end of the chunk. */
struct plm_sm90_range {
  int begin = 0, end = 0;
  __device__ __forceinline__ plm_sm90_range(const plm_sm90_attention &a, int chunk, int tile,
                                            const int32_t *begins, const int32_t *ends)
  {
    if (tile >= a.tiles) return;
    begin = begins[(int64_t)chunk * a.tiles + tile];
    end = ends[(int64_t)chunk * a.tiles + tile];
  }
  /* Extends the range to what either tile touches. */
  __device__ __forceinline__ void join(const plm_sm90_range &other)
  {
    if (other.end <= other.begin) return;
    const bool none = end <= begin;
    begin = none ? other.begin : min(begin, other.begin);
    end = none ? other.end : max(end, other.end);
  }
};

/* Begins to copy ROWS rows (a multiple of 64) of one head, KP columns, to a tile of two halves:
 * first the first 64 columns of all rows, then the others. */
template <int KP, int ROWS>
static __device__ __forceinline__ void load_rows(unsigned char *tile, const plm_tile_map *map,
                                                 uint64_t *barrier, const plm_sm90_item &item,
                                                 int row)
{
#pragma unroll
  for (int half = 0; half < KP / PLM_TILE_COLUMNS; half++)
#pragma unroll
    for (int r = 0; r < ROWS / PLM_TILE_ROWS; r++)
      tile_load(tile + (half * (ROWS / PLM_TILE_ROWS) + r) * PLM_TILE_BYTES, map, barrier,
                half * PLM_TILE_COLUMNS, item.head, row + r * PLM_TILE_ROWS, item.chunk);
}

/* Begins s (64, ROWS) = X Y^T, with 64 rows of X, ROWS rows of Y, and KP columns in halves. */
template <int KP, int ROWS>
static __device__ __forceinline__ void begin_scores(float (&s)[ROWS / 2], unsigned x, unsigned y)
{
#pragma unroll
  for (int step = 0; step < KP / PLM_PRODUCT_STEP; step++) {
    const int half = step / 4, inside = step % 4 * PLM_COLUMNS_FURTHER;
    product_tiles<ROWS>(s, x + half * (PLM_TILE_BYTES >> 4) + inside,
                        y + half * (ROWS * PLM_TILE_ROW_BYTES >> 4) + inside, step > 0);
  }
}

/* Begins d (64, KP) += P Y, with P (64, ROWS) rounded in registers and ROWS rows of Y. The leading
 * bytes of Y's descriptor are those of ROWS rows. */
template <int KP, int ROWS>
static __device__ __forceinline__ void begin_sums(float (&d)[KP / 2], const unsigned (&p)[ROWS / 4],
                                                  unsigned y)
{
#pragma unroll
  for (int step = 0; step < ROWS / PLM_PRODUCT_STEP; step++)
    product_registers<KP>(d, p + 4 * step, y + step * PLM_ROWS_FURTHER);
}

/* plm_logit with a cap, but without the branch of tanhf, which must not come between asynchronous
 * products. The error is at most about 1e-7 of the cap. */
static __device__ __forceinline__ float plm_sm90_capped(float product, const plm_sm90_attention &a)
{
  const float e = exp2_fast(product * a.cap_unit);
  return a.p.shape.soft_cap - 2 * a.p.shape.soft_cap * reciprocal_fast(e + 1);
}

template <int COUNT>
static __device__ __forceinline__ void round_accumulators(unsigned (&p)[COUNT / 2],
                                                          const float (&s)[COUNT])
{
#pragma unroll
  for (int i = 0; i < COUNT / 2; i++) p[i] = pack_bf16(s[2 * i], s[2 * i + 1]);
}

/* Writes a warpgroup's 64 rows of accumulators, times a factor for each row. The four lanes of a
 * row exchange pairs, so that each lane writes 16 bytes. */
template <int KP>
static __device__ __forceinline__ void
store_accumulators(plm_bf16 *head, int64_t row_stride, int first, int L, int K,
                   const float (&d)[KP / 2], float low, float high)
{
  const int lane = (int)threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int row = first + plm_sm90_row() + 8 * r;
    const float factor = r == 0 ? low : high;
#pragma unroll
    for (int i = 0; i < KP / 32; i++) {
      unsigned w[4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const int at = (4 * i + j) * 4 + 2 * r;
        w[j] = pack_bf16(d[at] * factor, d[at + 1] * factor);
      }
#pragma unroll
      for (int bit = 1; bit <= 2; bit *= 2) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
          const int even = bit == 1 ? 2 * j : j, odd = even + bit;
          const bool upper = (lane & bit) != 0;
          const unsigned other = __shfl_xor_sync(PLM_ALL_LANES, upper ? w[even] : w[odd], bit);
          w[even] = upper ? other : w[even];
          w[odd] = upper ? w[odd] : other;
        }
      }
      const int column = (4 * i + lane) * 8;
      if (row < L && column < K)
        *reinterpret_cast<uint4 *>(head + row * row_stride + column) =
            uint4{w[0], w[1], w[2], w[3]};
    }
  }
}

/* ---- the host's side: attention_sm90.cu ---- */
/* Makes a map of (B, L, heads of K) whose rows are row_stride elements apart. */
bool plm_sm90_map(plm_tile_map *map, const plm_bf16 *data, const plm_attention_shape *shape,
                  int64_t row_stride);

/* Calls f with KP, 64 or 128, and whether logits are capped, as compile-time constants. */
template <class F> static inline void plm_sm90_with(const plm_attention_shape *shape, F f)
{
  const bool capped = shape->soft_cap > 0;
  if (shape->K <= 64) {
    if (capped)
      f(std::integral_constant<int, 64>(), std::true_type());
    else
      f(std::integral_constant<int, 64>(), std::false_type());
  } else {
    if (capped)
      f(std::integral_constant<int, 128>(), std::true_type());
    else
      f(std::integral_constant<int, 128>(), std::false_type());
  }
}

/* attention_sm90_forward.cu, attention_sm90_backward.cu */
void plm_sm90_forward(plm_stream stream, const plm_sm90_attention &a, const plm_tile_map &q,
                      const plm_tile_map &k, const plm_tile_map &v);
void plm_sm90_backward(plm_stream stream, const plm_sm90_attention &a, const plm_tile_map &q,
                       const plm_tile_map &k, const plm_tile_map &v, const plm_tile_map &dout);

/* attention_sm90_onepass.cu; maps: q, k, v, dout. */
void plm_sm90_onepass(plm_stream stream, const plm_sm90_attention &a, const plm_tile_map maps[4],
                      float *partial);

#endif
