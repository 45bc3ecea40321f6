/* The optimizer's passes over parameters, in fp32: sums of squares, scaling, Adam, the moving
 * average. Muon is in muon.cu. */
#include "kernels/cuda/cuda_ops.cuh"

namespace
{

enum { THREADS = 256, SUM_BLOCKS = 1024 };

__global__ void sum_squares_kernel(double *partial, const float *x, int64_t n)
{
  double sum = 0;
  const int64_t stride = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
    sum += (double)x[i] * (double)x[i];
  sum = block_sum(sum, plm_shared<double>());
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

double sum_squares(struct plm_ops *ops, const float *x, size_t n)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  double sums[SUM_BLOCKS], total = 0;
  if (n == 0) return 0;
  const unsigned blocks = min(plm_blocks((int64_t)n, THREADS), (unsigned)SUM_BLOCKS);
  double *partial = plm_cuda_scratch<double>(cuda, SUM_BLOCKS);
  plm_launch(cuda->stream, sum_squares_kernel, dim3(blocks), dim3(THREADS), 33 * sizeof(double),
             partial, x, (int64_t)n);
  ops->download(ops, sums, partial, blocks * sizeof *sums);
  for (unsigned i = 0; i < blocks; i++) total += sums[i];
  return total;
}

__global__ void scale_kernel(float *x, float factor, int64_t n)
{
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= factor;
}

void scale(struct plm_ops *ops, float *x, float factor, size_t n)
{
  if (n == 0) return;
  plm_launch(plm_cuda_of(ops)->stream, scale_kernel, dim3(plm_blocks((int64_t)n, THREADS)),
             dim3(THREADS), 0, x, factor, (int64_t)n);
}

/* Kingma and Ba 2015, with decoupled decay (Loshchilov and Hutter 2019). */
__global__ void adam_kernel(float *w, float *m, float *v, const float *g, int64_t n,
                            struct plm_adam_options o)
{
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float gradient = g[i] * o.gradient_scale;
  const float first = o.beta1 * m[i] + (1 - o.beta1) * gradient;
  const float second = o.beta2 * v[i] + (1 - o.beta2) * gradient * gradient;
  m[i] = first;
  v[i] = second;
  w[i] = w[i] * (1 - o.lr * o.weight_decay) -
         o.lr / o.correction1 * first / (sqrtf(second / o.correction2) + o.eps);
}

void adam_step(struct plm_ops *ops, float *w, float *m, float *v, const float *g, size_t n,
               const struct plm_adam_options *options)
{
  if (n == 0) return;
  plm_launch(plm_cuda_of(ops)->stream, adam_kernel, dim3(plm_blocks((int64_t)n, THREADS)),
             dim3(THREADS), 0, w, m, v, g, (int64_t)n, *options);
}

__global__ void ema_kernel(float *average, const float *w, float decay, int64_t n)
{
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) average[i] += (1 - decay) * (w[i] - average[i]);
}

void ema_step(struct plm_ops *ops, float *average, const float *w, float decay, size_t n)
{
  if (n == 0) return;
  plm_launch(plm_cuda_of(ops)->stream, ema_kernel, dim3(plm_blocks((int64_t)n, THREADS)),
             dim3(THREADS), 0, average, w, decay, (int64_t)n);
}

} // namespace

void plm_cuda_optimizer_register(struct plm_cuda *cuda)
{
  struct plm_ops *ops = &cuda->ops;
  ops->sum_squares = sum_squares;
  ops->scale = scale;
  ops->adam_step = adam_step;
  ops->ema_step = ema_step;
}
