/* The optimizer's passes over parameters in fp32: the decision on a step, Adam, and the moving
 * average. Muon is in ops_muon.cu. */
#include "kernels/cuda/device/cuda_ops.cuh"
#include "kernels/cuda/optimizer/tensor_blocks.cuh"

namespace
{

enum { THREADS = 256 };

__global__ void decide_kernel(struct plm_update *update)
{
  plm_update_decide(update);
}

void decide_update(struct plm_ops *ops, struct plm_update *update)
{
  plm_launch(plm_cuda_of(ops)->stream, decide_kernel, dim3(1), dim3(1), 0, update);
}

/* Many tensors in one launch (tensor_blocks.cuh). Passed by value; a launch's arguments may take
 * 4 KB. */
enum { TENSORS = 56 };
struct Tensors {
  struct plm_adam_tensor of[TENSORS];
  unsigned first_block[TENSORS + 1];
  int count;
  struct plm_adam_options options;
  const struct plm_update *update;
};

/* Adam (Kingma and Ba 2015) with decoupled weight decay (Loshchilov and Hutter 2019). */
__global__ void adam_kernel(Tensors tensors)
{
  const struct plm_update *update = tensors.update;
  if (update->decision.skipped) return;
  const int of = plm_tensor_of_block(tensors.first_block, tensors.count);
  const struct plm_adam_tensor &t = tensors.of[of];
  const struct plm_adam_options &o = tensors.options;
  const int64_t i = (int64_t)(blockIdx.x - tensors.first_block[of]) * THREADS + threadIdx.x;
  if (i >= (int64_t)t.n) return;
  const float rate = update->inputs.rate[t.rate];
  const float gradient = t.g[i] * update->decision.gradient_scale;
  const float first = o.beta1 * t.m[i] + (1 - o.beta1) * gradient;
  const float second = o.beta2 * t.v[i] + (1 - o.beta2) * gradient * gradient;
  t.m[i] = first;
  t.v[i] = second;
  t.w[i] = t.w[i] * (1 - rate * t.weight_decay) -
           rate / update->inputs.correction1 * first /
               (sqrtf(second / update->inputs.correction2) + o.eps);
}

void adam_step(struct plm_ops *ops, const struct plm_adam_tensor *tensors, size_t count,
               const struct plm_adam_options *options, const struct plm_update *update)
{
  Tensors some = {};
  static_assert(sizeof some <= 4000, "a launch's arguments");
  some.options = *options;
  some.update = update;
  unsigned blocks = 0;
  for (size_t i = 0; i < count; i++) {
    some.of[some.count] = tensors[i];
    some.first_block[some.count++] = blocks;
    blocks += plm_blocks((int64_t)tensors[i].n, THREADS);
    if (some.count < TENSORS && i + 1 < count) continue;
    if (blocks > 0)
      plm_launch(plm_cuda_of(ops)->stream, adam_kernel, dim3(blocks), dim3(THREADS), 0, some);
    some.count = 0;
    blocks = 0;
  }
}

__global__ void average_kernel(float *average, const float *w, int64_t n,
                               const struct plm_update *update)
{
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && !update->decision.skipped)
    average[i] += (1 - update->inputs.average_decay) * (w[i] - average[i]);
}

void average_step(struct plm_ops *ops, float *average, const float *w, size_t n,
                  const struct plm_update *update)
{
  if (n == 0) return;
  plm_launch(plm_cuda_of(ops)->stream, average_kernel, dim3(plm_blocks((int64_t)n, THREADS)),
             dim3(THREADS), 0, average, w, (int64_t)n, update);
}

} // namespace

void plm_cuda_optimizer_register(struct plm_cuda *cuda)
{
  struct plm_ops *ops = &cuda->ops;
  ops->decide_update = decide_update;
  ops->adam_step = adam_step;
  ops->average_step = average_step;
}
