/* Attention forward in bf16: online softmax over tiles of keys (Dao 2023, FlashAttention-2), where
 * the keys of a query are one run. A block takes 64 queries of a head. While it works on a tile of
 * keys, the next tile is being copied. */
#include "kernels/cuda/attention/attention.cuh"

namespace
{

enum { KEYS = 64 };

/* The softmax's state of a warp's 16 queries; a lane holds rows group and group + 8. */
struct Running {
  float most[2], sum[2];
  int begin[2], end[2]; /* runs of keys */
};

/* Turns products into weights, in place, and rescales the accumulated output. */
template <int KP>
__device__ __forceinline__ void soften(float s[KEYS / 8][4], float o[KP / 8][4], Running &row,
                                       int first_key, bool full, float scale, float cap)
{
  const int pair = (int)threadIdx.x % 4 * 2;
  float most[2] = {row.most[0], row.most[1]};
#pragma unroll
  for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int key = first_key + n * 8 + pair + i % 2;
      const bool allowed = full || (key >= row.begin[i / 2] && key < row.end[i / 2]);
      s[n][i] = allowed ? plm_logit(s[n][i], scale, cap) * PLM_LOG2E : -INFINITY;
      most[i / 2] = fmaxf(most[i / 2], s[n][i]);
    }
  }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    most[r] = quad_max(most[r]);
    /* if there was no key so far, avoid infinity minus infinity */
    const float base = most[r] == -INFINITY ? 0 : most[r];
    const float factor = exp2_fast(row.most[r] - base);
    row.most[r] = most[r];
    float sum = 0;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) {
      s[n][2 * r] = exp2_fast(s[n][2 * r] - base);
      s[n][2 * r + 1] = exp2_fast(s[n][2 * r + 1] - base);
      sum += s[n][2 * r] + s[n][2 * r + 1];
    }
    row.sum[r] = row.sum[r] * factor + sum;
#pragma unroll
    for (int n = 0; n < KP / 8; n++) {
      o[n][2 * r] *= factor;
      o[n][2 * r + 1] *= factor;
    }
  }
}

template <int KP>
__global__ void __launch_bounds__(PLM_ATTENTION_THREADS) forward_kernel(plm_attention p)
{
  typedef plm_tile<KP> Tile;
  enum { TILE = PLM_ATTENTION_ROWS * Tile::LD };
  plm_bf16 *shared = plm_shared<plm_bf16>();
  plm_bf16 *q_tile = shared, *k_tiles = shared + TILE, *v_tiles = shared + 3 * TILE;
  const plm_attention_block own(p);
  const int L = p.shape.L, K = p.shape.K, H = p.shape.H;
  const int key_begin = p.mask.tile_key_begin[own.tile], key_end = p.mask.tile_key_end[own.tile];
  const int full_begin = p.mask.tile_full_begin[own.tile];
  const int full_end = p.mask.tile_full_end[own.tile];

  if (K < KP) {
    for (int i = 0; i < 5; i++)
      Tile::template clear_margin<PLM_ATTENTION_ROWS>(shared + i * TILE, K);
  }
  Tile::template copy<PLM_ATTENTION_ROWS>(q_tile, p.q + own.base, p.shape.row_stride, own.first, L,
                                          K);
  Tile::template copy<KEYS>(k_tiles, p.k + own.base, p.shape.row_stride, key_begin, L, K);
  Tile::template copy<KEYS>(v_tiles, p.v + own.base, p.shape.row_stride, key_begin, L, K);
  copy_async_commit();

  Running row;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int query = own.row(r);
    row.most[r] = -INFINITY;
    row.sum[r] = 0;
    row.begin[r] = query < L ? p.mask.key_begin[own.of_chunk(p, query)] : 0;
    row.end[r] = query < L ? p.mask.key_end[own.of_chunk(p, query)] : 0;
  }
  float o[KP / 8][4] = {};
  int stage = 0;
  for (int key = key_begin; key < key_end; key += KEYS, stage ^= 1) {
    if (key + KEYS < key_end) {
      plm_bf16 *next = k_tiles + (stage ^ 1) * TILE, *next_v = v_tiles + (stage ^ 1) * TILE;
      Tile::template copy<KEYS>(next, p.k + own.base, p.shape.row_stride, key + KEYS, L, K);
      Tile::template copy<KEYS>(next_v, p.v + own.base, p.shape.row_stride, key + KEYS, L, K);
    }
    copy_async_commit();
    copy_async_wait<1>();
    __syncthreads();
    float s[KEYS / 8][4] = {};
    product_rows<KP, KEYS>(s, q_tile, own.warp * 16, k_tiles + stage * TILE);
    soften<KP>(s, o, row, key, key >= full_begin && key + KEYS <= full_end, p.shape.scale,
               p.shape.soft_cap);
    product_columns<KP, KEYS>(o, s, v_tiles + stage * TILE);
    __syncthreads(); /* the next round overwrites the tiles of this stage */
  }
  copy_async_wait<0>();

  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int query = own.row(r);
    const float sum = quad_sum(row.sum[r]);
    factor[r] = sum > 0 ? 1 / sum : 0;
    if (query < L && threadIdx.x % 4 == 0)
      p.lse[own.of_head(p, query)] = sum > 0 ? row.most[r] * PLM_LN2 + logf(sum) : INFINITY;
  }
  store_rows<KP>(p.out + own.out_base, (int64_t)H * K, own.first + own.warp * 16, L, K, o,
                 factor[0], factor[1]);
}

} // namespace

void plm_cuda_attention_forward(struct plm_cuda *cuda, const struct plm_attention *attention)
{
  const struct plm_attention_shape *shape = &attention->shape;
  const dim3 grid(plm_blocks(shape->L, PLM_ATTENTION_ROWS), (unsigned)attention->heads,
                  (unsigned)shape->B);
  plm_with_head_width(shape->K, [&](auto width) {
    constexpr int KP = decltype(width)::value;
    const size_t shared = 5 * PLM_ATTENTION_ROWS * plm_tile<KP>::LD * sizeof(plm_bf16);
    plm_launch(cuda->stream, forward_kernel<KP>, grid, dim3(PLM_ATTENTION_THREADS), shared,
               *attention);
  });
}
