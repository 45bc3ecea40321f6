/* Attention backward in bf16, deterministic. In one kernel a block owns 64 keys and walks their
 * queries for dK and dV; in the other a block owns 64 queries and walks their keys for dQ. No
 * gradient is added up by atomics; the price is that the logits are computed twice.
 *
 * With P = softmax(S), dP = dout V^T and delta = sum(dout * out) over a head (Dao 2023):
 *   dS = P (dP - delta), times 1 - (s / cap)^2 if logits are capped
 *   dQ = scale dS K, dK = scale dS^T Q, dV = P^T dout */
#include "kernels/cuda/attention/attention.cuh"

namespace
{

enum { ROWS = PLM_ATTENTION_ROWS };

/* Rows that a block walks at a time; fewer for wide heads, to save registers. */
template <int KP> struct Walk {
  static constexpr int ROWS_AT_ONCE = KP <= 64 ? 64 : 32;
};

/* Turns one pair's products s = Q K^T and dp into P and dS. */
__device__ __forceinline__ void pair_gradient(float &s, float &dp, bool allowed, float lse,
                                              float delta, float scale, float cap)
{
  const float logit = plm_logit(s, scale, cap);
  const float weight = allowed ? exp2_fast((logit - lse) * PLM_LOG2E) : 0;
  const float ratio = cap > 0 ? logit / cap : 0;
  dp = allowed ? weight * (dp - delta) * (1 - ratio * ratio) : 0;
  s = weight;
}

template <int KP>
__global__ void __launch_bounds__(PLM_ATTENTION_THREADS) dq_kernel(plm_attention p)
{
  typedef plm_tile<KP> Tile;
  constexpr int WALK = Walk<KP>::ROWS_AT_ONCE;
  enum { TILE = ROWS * Tile::LD, STEP = WALK * Tile::LD };
  plm_bf16 *q_tile = plm_shared<plm_bf16>(), *dout_tile = q_tile + TILE;
  plm_bf16 *k_tile = dout_tile + TILE, *v_tile = k_tile + STEP;
  const plm_attention_block own(p);
  const int L = p.shape.L, K = p.shape.K, H = p.shape.H;
  const int key_begin = p.mask.tile_key_begin[own.tile], key_end = p.mask.tile_key_end[own.tile];
  if (K < KP) {
    Tile::template clear_margin<ROWS>(q_tile, K);
    Tile::template clear_margin<ROWS>(dout_tile, K);
    Tile::template clear_margin<WALK>(k_tile, K);
    Tile::template clear_margin<WALK>(v_tile, K);
  }
  Tile::template copy<ROWS>(q_tile, p.q + own.base, p.shape.row_stride, own.first, L, K);
  Tile::template copy<ROWS>(dout_tile, p.dout + own.out_base, (int64_t)H * K, own.first, L, K);
  copy_async_commit();

  int begin[2], end[2];
  float lse[2], delta[2];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int query = own.row(r);
    const int64_t at = own.of_chunk(p, query), of_head = own.of_head(p, query);
    begin[r] = query < L ? p.mask.key_begin[at] : 0;
    end[r] = query < L ? p.mask.key_end[at] : 0;
    lse[r] = query < L ? p.lse[of_head] : INFINITY;
    delta[r] = query < L ? p.delta[of_head] : 0;
  }
  float dq[KP / 8][4] = {};
  for (int key = key_begin; key < key_end; key += WALK) {
    Tile::template copy<WALK>(k_tile, p.k + own.base, p.shape.row_stride, key, L, K);
    Tile::template copy<WALK>(v_tile, p.v + own.base, p.shape.row_stride, key, L, K);
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    float s[WALK / 8][4] = {}, dp[WALK / 8][4] = {};
    product_rows<KP, WALK>(s, q_tile, own.warp * 16, k_tile);
    product_rows<KP, WALK>(dp, dout_tile, own.warp * 16, v_tile);
#pragma unroll
    for (int n = 0; n < WALK / 8; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int at = key + n * 8 + own.pair + i % 2;
        pair_gradient(s[n][i], dp[n][i], at >= begin[i / 2] && at < end[i / 2], lse[i / 2],
                      delta[i / 2], p.shape.scale, p.shape.soft_cap);
      }
    }
    product_columns<KP, WALK>(dq, dp, k_tile);
    __syncthreads();
  }
  copy_async_wait<0>();
  store_rows<KP>(p.dq + own.base, p.shape.row_stride, own.first + own.warp * 16, L, K, dq,
                 p.shape.scale, p.shape.scale);
}

/* What a block keeps of the queries that it walks. */
template <int WALK> struct Queries {
  float lse[WALK], delta[WALK];
  int begin[WALK], end[WALK];
};

template <int KP>
__global__ void __launch_bounds__(PLM_ATTENTION_THREADS) dkv_kernel(plm_attention p)
{
  typedef plm_tile<KP> Tile;
  constexpr int WALK = Walk<KP>::ROWS_AT_ONCE;
  enum { TILE = ROWS * Tile::LD, STEP = WALK * Tile::LD };
  plm_bf16 *k_tile = plm_shared<plm_bf16>(), *v_tile = k_tile + TILE;
  plm_bf16 *q_tile = v_tile + TILE, *dout_tile = q_tile + STEP;
  Queries<WALK> *queries = reinterpret_cast<Queries<WALK> *>(dout_tile + STEP);
  const plm_attention_block own(p);
  const int L = p.shape.L, K = p.shape.K, H = p.shape.H;
  const int query_begin = p.mask.tile_query_begin[own.tile];
  const int query_end = p.mask.tile_query_end[own.tile];
  if (K < KP) {
    Tile::template clear_margin<ROWS>(k_tile, K);
    Tile::template clear_margin<ROWS>(v_tile, K);
    Tile::template clear_margin<WALK>(q_tile, K);
    Tile::template clear_margin<WALK>(dout_tile, K);
  }
  Tile::template copy<ROWS>(k_tile, p.k + own.base, p.shape.row_stride, own.first, L, K);
  Tile::template copy<ROWS>(v_tile, p.v + own.base, p.shape.row_stride, own.first, L, K);
  copy_async_commit();

  float dk[KP / 8][4] = {}, dv[KP / 8][4] = {};
  for (int query = query_begin; query < query_end; query += WALK) {
    Tile::template copy<WALK>(q_tile, p.q + own.base, p.shape.row_stride, query, L, K);
    Tile::template copy<WALK>(dout_tile, p.dout + own.out_base, (int64_t)H * K, query, L, K);
    copy_async_commit();
    for (int i = (int)threadIdx.x; i < WALK; i += PLM_ATTENTION_THREADS) {
      const bool inside = query + i < query_end;
      const int64_t at = own.of_chunk(p, query + i), of_head = own.of_head(p, query + i);
      queries->lse[i] = inside ? p.lse[of_head] : INFINITY;
      queries->delta[i] = inside ? p.delta[of_head] : 0;
      queries->begin[i] = inside ? p.mask.key_begin[at] : 0;
      queries->end[i] = inside ? p.mask.key_end[at] : 0;
    }
    copy_async_wait<0>();
    __syncthreads();
    /* transposed: rows are keys, columns are queries */
    float s[WALK / 8][4] = {}, dp[WALK / 8][4] = {};
    product_rows<KP, WALK>(s, k_tile, own.warp * 16, q_tile);
    product_rows<KP, WALK>(dp, v_tile, own.warp * 16, dout_tile);
#pragma unroll
    for (int n = 0; n < WALK / 8; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int column = n * 8 + own.pair + i % 2, key = own.row(i / 2);
        const bool allowed = key >= queries->begin[column] && key < queries->end[column];
        pair_gradient(s[n][i], dp[n][i], allowed, queries->lse[column], queries->delta[column],
                      p.shape.scale, p.shape.soft_cap);
      }
    }
    product_columns<KP, WALK>(dv, s, dout_tile);
    product_columns<KP, WALK>(dk, dp, q_tile);
    __syncthreads();
  }
  copy_async_wait<0>();
  store_rows<KP>(p.dk + own.base, p.shape.row_stride, own.first + own.warp * 16, L, K, dk,
                 p.shape.scale, p.shape.scale);
  store_rows<KP>(p.dv + own.base, p.shape.row_stride, own.first + own.warp * 16, L, K, dv, 1, 1);
}

} // namespace

void plm_cuda_attention_backward(struct plm_cuda *cuda, const struct plm_attention *attention)
{
  const struct plm_attention_shape *shape = &attention->shape;
  const dim3 grid(plm_blocks(shape->L, ROWS), (unsigned)attention->heads, (unsigned)shape->B);
  plm_with_head_width(shape->K, [&](auto width) {
    constexpr int KP = decltype(width)::value, WALK = Walk<KP>::ROWS_AT_ONCE;
    const size_t tiles = 2 * (ROWS + WALK) * plm_tile<KP>::LD * sizeof(plm_bf16);
    plm_launch(cuda->stream, dkv_kernel<KP>, grid, dim3(PLM_ATTENTION_THREADS),
               tiles + sizeof(Queries<WALK>), *attention);
    plm_launch(cuda->stream, dq_kernel<KP>, grid, dim3(PLM_ATTENTION_THREADS), tiles, *attention);
  });
}
