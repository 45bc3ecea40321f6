/* Muon (Jordan et al. 2024): the momentum's nearest orthogonal matrix by five quintic Newton-Schulz
 * steps X <- a X + (b A + c A^2) X with A = X X^T, the short side first. A tall matrix is not
 * transposed: there A = X^T X multiplies from the right. Products are bf16 with fp32 accumulation
 * when the backend is bf16, else fp32. */
#include "kernels/cuda/products.cuh"

namespace
{

enum { THREADS = 256, SUM_BLOCKS = 256, STEPS = 5 };
static constexpr float NEWTON_SCHULZ[3] = {3.4445f, -4.7750f, 2.0315f};

/* The momentum, and Nesterov's look ahead: buf = lerp(buf, g, 1 - m), out = lerp(g, buf, m); and a
 * block's part of |out|^2. */
__global__ void direction_kernel(float *out, double *partial, float *buffer, const float *g,
                                 const struct plm_update *update, int64_t n)
{
  const float scale = update->decision.gradient_scale, momentum = update->plan.momentum;
  if (update->decision.skipped) return;
  double sum = 0;
  const int64_t stride = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    const float gradient = g[i] * scale;
    const float kept = buffer[i] + (1 - momentum) * (gradient - buffer[i]);
    const float ahead = gradient + momentum * (kept - gradient);
    buffer[i] = kept;
    out[i] = ahead;
    sum += (double)ahead * (double)ahead;
  }
  sum = block_sum(sum, plm_shared<double>());
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/* X = G / (|G| + 1e-7); every block adds the parts up in their order */
template <class T>
__global__ void normalise_kernel(T *x, const float *in, const double *partial, int parts, int64_t n)
{
  double sum = 0;
  for (int i = 0; i < parts; i++) sum += partial[i];
  const float inverse = (float)(1 / (sqrt(sum) + 1e-7));
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = from_float<T>(in[i] * inverse);
}

template <class T> __global__ void round_kernel(T *out, const float *in, int64_t n)
{
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = from_float<T>(in[i]);
}

/* out = a x + c y; out may be x */
template <class T>
__global__ void combine_kernel(T *out, const T *x, const float *y, float a, float c, int64_t n)
{
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = from_float<T>(a * to_float(x[i]) + c * y[i]);
}

template <class T>
__global__ void update_kernel(float *w, const T *u, float weight_decay, float scale, int rate,
                              const struct plm_update *update, int64_t n)
{
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  const float lr = update->plan.rate[rate];
  if (i < n && !update->decision.skipped)
    w[i] = w[i] * (1 - lr * weight_decay) - lr * scale * to_float(u[i]);
}

template <class T> struct Iteration {
  struct plm_cuda *cuda;
  int64_t rows, cols, side;
  T *x;          /* (rows, cols) */
  float *result; /* (rows, cols) */
  T *a, *b;      /* (side, side) */
  float *square; /* (side, side) */

  void launch_all(void (*kernel)(T *, const T *, const float *, float, float, int64_t), T *out,
                  const T *in, const float *y, float f, float g, int64_t n) const
  {
    plm_launch(cuda->stream, kernel, dim3(plm_blocks(n, THREADS)), dim3(THREADS), 0, out, in, y, f,
               g, n);
  }

  void step() const
  {
    const bool tall = rows > cols;
    struct plm_cuda_shape gram = {}, power = {}, apply = {};
    gram.M = gram.N = side, gram.K = tall ? rows : cols;
    gram.lda = gram.ldb = cols, gram.ldc = side;
    gram.transpose_a = tall, gram.transpose_b = !tall;
    power.M = power.N = power.K = power.lda = power.ldb = power.ldc = side;
    apply.M = rows, apply.N = cols, apply.K = side;
    apply.lda = tall ? cols : side, apply.ldb = cols, apply.ldc = cols;
    gram.float_c = power.float_c = apply.float_c = true;
    gram.batch = power.batch = apply.batch = 1;

    plm_cuda_multiply(cuda, &gram, square, x, x, nullptr);
    plm_launch(cuda->stream, round_kernel<T>, dim3(plm_blocks(side * side, THREADS)), dim3(THREADS),
               0, a, square, side * side);
    plm_cuda_multiply(cuda, &power, square, a, a, nullptr);
    launch_all(combine_kernel<T>, b, a, square, NEWTON_SCHULZ[1], NEWTON_SCHULZ[2], side * side);
    plm_cuda_multiply(cuda, &apply, result, tall ? x : b, tall ? b : x, nullptr);
    launch_all(combine_kernel<T>, x, x, result, NEWTON_SCHULZ[0], 1, rows * cols);
  }
};

template <class T>
void one_matrix(struct plm_cuda *cuda, const struct plm_muon_matrix *matrix, float *scratch,
                const struct plm_update *update)
{
  const int64_t rows = matrix->rows, cols = matrix->cols, n = rows * cols;
  const int64_t side = rows < cols ? rows : cols;
  float *after = scratch + 2 * n;
  const Iteration<T> it = {cuda,
                           rows,
                           cols,
                           side,
                           reinterpret_cast<T *>(scratch),
                           scratch + n,
                           reinterpret_cast<T *>(after + side * side),
                           reinterpret_cast<T *>(after + 2 * side * side),
                           after};
  const unsigned blocks = min(plm_blocks(n, THREADS), (unsigned)SUM_BLOCKS);
  double *partial = plm_cuda_scratch<double>(cuda, SUM_BLOCKS);
  plm_launch(cuda->stream, direction_kernel, dim3(blocks), dim3(THREADS), 33 * sizeof(double),
             it.result, partial, matrix->momentum, matrix->g, update, n);
  plm_launch(cuda->stream, normalise_kernel<T>, dim3(plm_blocks(n, THREADS)), dim3(THREADS), 0,
             it.x, it.result, partial, (int)blocks, n);
  for (int i = 0; i < STEPS; i++) it.step();
  plm_launch(cuda->stream, update_kernel<T>, dim3(plm_blocks(n, THREADS)), dim3(THREADS), 0,
             matrix->w, it.x, matrix->weight_decay, matrix->update_scale, (int)matrix->rate, update,
             n);
}

void muon_step(struct plm_ops *ops, const struct plm_muon_matrix *matrices, size_t count,
               float *scratch, const struct plm_update *update)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  for (size_t i = 0; i < count; i++) {
    plm_with_act(cuda, [&](auto *type) {
      typedef std::remove_pointer_t<decltype(type)> T;
      one_matrix<T>(cuda, &matrices[i], scratch, update);
    });
  }
}

size_t muon_scratch(const struct plm_ops *ops, const struct plm_muon_matrix *matrices, size_t count)
{
  size_t most = 0;
  (void)ops;
  for (size_t i = 0; i < count; i++) {
    const int64_t rows = matrices[i].rows, cols = matrices[i].cols;
    const int64_t side = rows < cols ? rows : cols;
    const size_t floats = (size_t)(2 * rows * cols + 3 * side * side);
    if (floats > most) most = floats;
  }
  return most;
}

} // namespace

void plm_cuda_muon_register(struct plm_cuda *cuda)
{
  cuda->ops.muon_step = muon_step;
  cuda->ops.muon_scratch = muon_scratch;
}
