/* Heads for labels: the mean of groups of rows, tanh, dropout, losses, and the gradients of a
 * decoder with any number of outputs. A warp works on a row. */
#include "kernels/cuda/rows/norm.cuh"

namespace
{

enum { THREADS = 256, SLAB_ROWS = 256, MOST_SLABS = plm_most_parts(64) };

/* Launches a kernel with a warp for each of N rows. */
template <class... Parameters, class... Arguments>
void run_label_rows(struct plm_cuda *cuda, void (*kernel)(Parameters...), int64_t N,
                    Arguments... arguments)
{
  if (N > 0)
    plm_launch(cuda->stream, kernel, dim3(plm_blocks(N, PLM_NORM_WARPS)),
               dim3(PLM_NORM_WARPS * PLM_WARP), 0, arguments...);
}

/* ---- pooling ---- */
template <class T, bool VECTOR>
__global__ void pool_kernel(T *out, const T *x, struct plm_row_groups groups, int64_t D)
{
  typedef Columns<T, VECTOR> C;
  const int64_t r = first_row();
  if (r >= groups.R) return; /* the whole warp */
  const int32_t begin = groups.begin[r], end = groups.end[r];
  const float share = begin < end ? 1 / (float)(end - begin) : 0;
  EACH_COLUMN(C, D)
  {
    float sum[C::N] = {};
    for (int64_t n = begin; n < end; n++) {
      float v[C::N];
      C::load(v, x + n * D + j);
#pragma unroll
      for (int i = 0; i < C::N; i++) sum[i] += v[i];
    }
#pragma unroll
    for (int i = 0; i < C::N; i++) sum[i] *= share;
    C::store(out + r * D + j, sum);
  }
}

template <class T, bool VECTOR>
__global__ void pool_backward_kernel(T *dx, const T *dout, struct plm_row_groups groups, int64_t D)
{
  typedef Columns<T, VECTOR> C;
  const int64_t r = first_row();
  if (r >= groups.R) return; /* the whole warp */
  const int32_t begin = groups.begin[r], end = groups.end[r];
  const float share = begin < end ? 1 / (float)(end - begin) : 0;
  EACH_COLUMN(C, D)
  {
    float d[C::N];
    C::load(d, dout + r * D + j);
    for (int64_t n = begin; n < end; n++) {
      float v[C::N];
      C::load(v, dx + n * D + j);
#pragma unroll
      for (int i = 0; i < C::N; i++) v[i] += d[i] * share;
      C::store(dx + n * D + j, v);
    }
  }
}

void pool_rows(struct plm_ops *ops, act *out, const act *x, const struct plm_row_groups *groups,
               int64_t D)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    run_label_rows(cuda, plm_whole_vectors<T>(D) ? pool_kernel<T, true> : pool_kernel<T, false>,
                   groups->R, static_cast<T *>(out), static_cast<const T *>(x), *groups, D);
  });
}

void pool_rows_backward(struct plm_ops *ops, act *dx, const act *dout,
                        const struct plm_row_groups *groups, int64_t D)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    run_label_rows(cuda,
                   plm_whole_vectors<T>(D) ? pool_backward_kernel<T, true>
                                           : pool_backward_kernel<T, false>,
                   groups->R, static_cast<T *>(dx), static_cast<const T *>(dout), *groups, D);
  });
}

/* ---- tanh and dropout ---- */
template <class T> __global__ void tanh_kernel(T *out, const T *x, int64_t n)
{
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = from_float<T>(tanhf(to_float(x[i])));
}

template <class T> __global__ void tanh_backward_kernel(T *dx, const T *dy, const T *y, int64_t n)
{
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float value = to_float(y[i]);
  dx[i] = from_float<T>(to_float(dy[i]) * (1 - value * value));
}

void tanh_forward(struct plm_ops *ops, act *out, const act *x, int64_t n)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (n <= 0) return;
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    plm_launch(cuda->stream, tanh_kernel<T>, dim3(plm_blocks(n, THREADS)), dim3(THREADS), 0,
               static_cast<T *>(out), static_cast<const T *>(x), n);
  });
}

void tanh_backward(struct plm_ops *ops, act *dx, const act *dy, const act *y, int64_t n)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (n <= 0) return;
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    plm_launch(cuda->stream, tanh_backward_kernel<T>, dim3(plm_blocks(n, THREADS)), dim3(THREADS),
               0, static_cast<T *>(dx), static_cast<const T *>(dy), static_cast<const T *>(y), n);
  });
}

/* A lane draws for four columns at a time. */
template <class T>
__global__ void dropout_kernel(T *out, const T *x, struct plm_dropout dropout, int64_t N, int64_t D)
{
  const int64_t n = first_row();
  if (n >= N) return; /* the whole warp */
  for (int64_t j = 4 * (int64_t)(threadIdx.x % PLM_WARP); j < D; j += 4 * PLM_WARP) {
    const struct plm_philox_words draw =
        plm_philox(dropout.seed, (uint32_t)(j / 4), dropout.keys[n], dropout.purpose);
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (j + i < D)
        out[n * D + j + i] = from_float<T>(plm_dropout_drops(&dropout, draw.w[i])
                                               ? 0
                                               : to_float(x[n * D + j + i]) * dropout.scale);
  }
}

void dropout_rows(struct plm_ops *ops, act *out, const act *x, const struct plm_dropout *dropout,
                  int64_t N, int64_t D)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    run_label_rows(cuda, dropout_kernel<T>, N, static_cast<T *>(out), static_cast<const T *>(x),
                   *dropout, N, D);
  });
}

/* ---- losses ---- */

/* All lanes get the loss of a class, and whether no output is larger than its own. dlogits may be
 * NULL or the outputs. */
__device__ __forceinline__ float class_loss(float *dlogits, bool *hit, const float *outputs,
                                            int64_t O, int32_t label, float weight, float scale)
{
  const int lane = (int)threadIdx.x % PLM_WARP;
  const float at_label = outputs[label];
  float most = -INFINITY, exps = 0;
  for (int64_t o = lane; o < O; o += PLM_WARP) most = fmaxf(most, outputs[o]);
  most = warp_max(most);
  *hit = weight != 0 && at_label >= most;
  for (int64_t o = lane; o < O; o += PLM_WARP) exps += expf(outputs[o] - most);
  const float lse = most + logf(warp_sum(exps));
  __syncwarp(); /* all lanes have read the output of the label */
  for (int64_t o = lane; o < O && dlogits != NULL; o += PLM_WARP)
    dlogits[o] = weight * scale * (expf(outputs[o] - lse) - (o == label ? 1 : 0));
  return weight * (lse - at_label);
}

/* The lane's part of the losses of numbers or of several classes. */
__device__ __forceinline__ float target_losses(float *dlogits, const float *outputs,
                                               const struct plm_label_rows &rows, int64_t n,
                                               float scale)
{
  float sum = 0;
  for (int64_t o = (int)threadIdx.x % PLM_WARP; o < rows.O; o += PLM_WARP) {
    const float target = rows.targets[n * rows.O + o], z = outputs[o];
    const float weight = rows.weights == NULL ? 1 : rows.weights[o];
    float loss, slope;
    if (rows.kind == PLM_LOSS_SQUARES) {
      loss = (z - target) * (z - target);
      slope = 2 * (z - target);
    } else {
      loss = fmaxf(z, 0) + log1pf(expf(-fabsf(z))) - target * z;
      slope = 1 / (1 + expf(-z)) - target;
    }
    const bool missing = target != target;
    if (!missing) sum += weight * loss;
    if (dlogits != NULL) dlogits[o] = missing ? 0 : scale * weight * slope;
  }
  return sum;
}

__global__ void label_loss_kernel(float *row_loss, float *dlogits, const float *outputs,
                                  struct plm_label_rows rows, float scale)
{
  const int64_t n = first_row();
  if (n >= rows.N) return; /* the whole warp */
  const int lane = (int)threadIdx.x % PLM_WARP;
  float *to = dlogits == NULL ? NULL : dlogits + n * rows.O;
  float loss = 0;
  bool hit = false;
  if (rows.kind != PLM_LOSS_CLASS) {
    loss = warp_sum(target_losses(to, outputs + n * rows.O, rows, n, scale));
  } else if (rows.classes[n] >= 0) {
    const float weight = rows.weights == NULL ? 1 : rows.weights[rows.classes[n]];
    loss = class_loss(to, &hit, outputs + n * rows.O, rows.O, rows.classes[n], weight, scale);
  } else {
    for (int64_t o = lane; o < rows.O && to != NULL; o += PLM_WARP) to[o] = 0;
  }
  if (lane != 0) return;
  row_loss[n] = loss;
  if (rows.hits != NULL) rows.hits[n] = hit;
}

void label_loss(struct plm_ops *ops, float *row_loss, float *dlogits, const float *outputs,
                const struct plm_label_rows *rows, float loss_scale)
{
  run_label_rows(plm_cuda_of(ops), label_loss_kernel, rows->N, row_loss, dlogits, outputs, *rows,
                 loss_scale);
}

/* ---- the decoder ---- */

/* A thread computes an element of dh. */
template <class T>
__global__ void decoder_input_kernel(T *dh, const float *dlogits, const T *w, int64_t D, int64_t V)
{
  const int64_t n = blockIdx.y, j = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (j >= D) return;
  float sum = 0;
#pragma unroll 4
  for (int64_t v = 0; v < V; v++) sum += dlogits[n * V + v] * to_float(w[v * D + j]);
  dh[n * D + j] = from_float<T>(sum);
}

/* Block y adds up the products of a slab of rows for the tokens [first, first + count): partial
 * (slabs, count, D). With BIAS, h is 1 and D is 1. */
template <class T, bool BIAS>
__global__ void decoder_weight_kernel(float *partial, const float *dlogits, const T *h, int64_t N,
                                      int64_t D, int64_t V, int64_t first, int64_t count)
{
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count * D) return;
  const int64_t v = first + i / D, j = i % D, slab = blockIdx.y, slabs = gridDim.y;
  const int64_t begin = N * slab / slabs, end = N * (slab + 1) / slabs;
  float sum = 0;
#pragma unroll 4
  for (int64_t n = begin; n < end; n++)
    sum += dlogits[n * V + v] * (BIAS ? 1.0f : to_float(h[n * D + j]));
  partial[slab * count * D + i] = sum;
}

/* to (V, D) += dlogits^T h, for as many tokens at a time as the scratch has room for. */
template <class T, bool BIAS>
void add_weight(struct plm_cuda *cuda, float *to, const float *dlogits, const T *h, int64_t N,
                int64_t D, int64_t V)
{
  const int64_t room = plm_cuda_scratch_room<float>(cuda);
  for (int64_t first = 0, count; first < V; first += count) {
    count = V - first < room / D ? V - first : room / D;
    int64_t slabs = (N + SLAB_ROWS - 1) / SLAB_ROWS;
    if (slabs > MOST_SLABS) slabs = MOST_SLABS;
    if (slabs > room / (count * D)) slabs = room / (count * D);
    float *partial = plm_cuda_scratch<float>(cuda, (size_t)(slabs * count * D));
    plm_launch(cuda->stream, decoder_weight_kernel<T, BIAS>,
               dim3(plm_blocks(count * D, THREADS), (unsigned)slabs), dim3(THREADS), 0, partial,
               dlogits, h, N, D, V, first, count);
    plm_cuda_add_partials(cuda, to + first * D, partial, slabs, count * D);
  }
}

void logits_backward(struct plm_ops *ops, const struct plm_logits_gradients *to,
                     const float *dlogits, const act *h, const act *w, int64_t N, int64_t D,
                     int64_t V)
{
  enum { MOST_ROWS = 65535 }; /* the limit of a grid's y */
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (N <= 0) return;
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    for (int64_t n = 0; n < N; n += MOST_ROWS) {
      const unsigned rows = N - n < MOST_ROWS ? (unsigned)(N - n) : (unsigned)MOST_ROWS;
      plm_launch(cuda->stream, decoder_input_kernel<T>, dim3(plm_blocks(D, THREADS), rows),
                 dim3(THREADS), 0, static_cast<T *>(to->dh) + n * D, dlogits + n * V,
                 static_cast<const T *>(w), D, V);
    }
    add_weight<T, false>(cuda, to->dw, dlogits, static_cast<const T *>(h), N, D, V);
    add_weight<T, true>(cuda, to->dbias, dlogits, static_cast<const T *>(h), N, 1, V);
  });
}

} // namespace

void plm_cuda_labels_register(struct plm_cuda *cuda)
{
  struct plm_ops *ops = &cuda->ops;
  ops->pool_rows = pool_rows;
  ops->pool_rows_backward = pool_rows_backward;
  ops->tanh_forward = tanh_forward;
  ops->tanh_backward = tanh_backward;
  ops->dropout = dropout_rows;
  ops->label_loss = label_loss;
  ops->logits_backward = logits_backward;
}
