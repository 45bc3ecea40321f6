/* Linear layers: three products each, those of the MLP with relu2, and products with a bias and
 * GELU, which a kernel adds afterwards: cuBLASLt's GELU is the approximation with tanh. */
#include "kernels/cuda/products/products.cuh"
#include "kernels/cuda/products/relu2_products.cuh"

namespace
{

void linear_forward(struct plm_ops *ops, act *y, const act *x, const act *w, const act *residual,
                    int64_t N, int64_t I, int64_t O)
{
  struct plm_cuda_shape shape = {};
  shape.M = N, shape.N = O, shape.K = I;
  shape.lda = I, shape.ldb = I, shape.ldc = O;
  shape.transpose_b = true;
  shape.add = residual != nullptr;
  shape.batch = 1;
  plm_cuda_multiply(plm_cuda_of(ops), &shape, y, x, w, residual);
}

void linear_backward_input(struct plm_ops *ops, act *dx, const act *dy, const act *w, int64_t N,
                           int64_t I, int64_t O, bool accumulate)
{
  struct plm_cuda_shape shape = {};
  shape.M = N, shape.N = I, shape.K = O;
  shape.lda = O, shape.ldb = I, shape.ldc = I;
  shape.add = accumulate;
  shape.batch = 1;
  plm_cuda_multiply(plm_cuda_of(ops), &shape, dx, dy, w, dx);
}

void relu2_by_library(struct plm_cuda *cuda, const struct plm_relu2_product *p)
{
  struct plm_ops *ops = &cuda->ops;
  if (plm_relu2_is_backward(p)) {
    linear_backward_input(ops, p->out, p->a, p->w, p->N, p->I, p->O, false);
    plm_cuda_relu2_backward(cuda, p->out, p->hidden, p->N * p->I);
  } else {
    linear_forward(ops, p->out, p->a, p->w, nullptr, p->N, p->I, p->O);
    plm_cuda_relu2(cuda, p->out, p->N * p->O);
  }
}

void linear_relu2_forward(struct plm_ops *ops, act *hidden, const act *x, const act *w, int64_t N,
                          int64_t I, int64_t O)
{
  const struct plm_relu2_product p = {hidden, x, w, nullptr, N, I, O};
  plm_cuda_relu2_product(plm_cuda_of(ops), &p, relu2_by_library);
}

void linear_relu2_backward_input(struct plm_ops *ops, act *dup, const act *dy, const act *w,
                                 const act *hidden, int64_t N, int64_t I, int64_t O)
{
  const struct plm_relu2_product p = {dup, dy, w, hidden, N, I, O};
  plm_cuda_relu2_product(plm_cuda_of(ops), &p, relu2_by_library);
}

void linear_bias_forward(struct plm_ops *ops, act *y, const act *x,
                         const struct plm_biased_linear *layer, const act *residual, int64_t N,
                         int64_t I, int64_t O)
{
  linear_forward(ops, y, x, layer->w, residual, N, I, O);
  plm_cuda_bias(plm_cuda_of(ops), y, layer->bias, N, O);
}

void linear_bias_gelu_forward(struct plm_ops *ops, act *hidden, act *before, const act *x,
                              const struct plm_biased_linear *layer, int64_t N, int64_t I,
                              int64_t O)
{
  if (before == nullptr) before = hidden;
  linear_forward(ops, before, x, layer->w, nullptr, N, I, O);
  plm_cuda_bias_gelu(plm_cuda_of(ops), hidden, before, layer->bias, N, O);
}

void linear_gelu_backward_input(struct plm_ops *ops, act *dbefore, const act *dy, const act *w,
                                const act *before, int64_t N, int64_t I, int64_t O)
{
  linear_backward_input(ops, dbefore, dy, w, N, I, O, false);
  ops->gelu_backward(ops, dbefore, dbefore, before, N * I);
}

void linear_backward_weight(struct plm_ops *ops, float *dw, const act *dy, const act *x, int64_t N,
                            int64_t I, int64_t O)
{
  struct plm_cuda_shape shape = {};
  if (N <= 0) return; /* cuBLASLt has no product with an empty sum */
  shape.M = O, shape.N = I, shape.K = N;
  shape.lda = O, shape.ldb = I, shape.ldc = I;
  shape.transpose_a = true;
  shape.float_c = true;
  shape.add = true;
  shape.batch = 1;
  plm_cuda_multiply(plm_cuda_of(ops), &shape, dw, dy, x, dw);
}

void linear_bias_backward_weight(struct plm_ops *ops, float *dw, float *dbias, const act *dy,
                                 const act *x, int64_t N, int64_t I, int64_t O)
{
  linear_backward_weight(ops, dw, dy, x, N, I, O);
  plm_cuda_add_columns(plm_cuda_of(ops), dbias, dy, N, O);
}

} // namespace

void plm_cuda_linear_register(struct plm_cuda *cuda)
{
  cuda->ops.linear_forward = linear_forward;
  cuda->ops.linear_backward_input = linear_backward_input;
  cuda->ops.linear_bias_forward = linear_bias_forward;
  cuda->ops.linear_bias_gelu_forward = linear_bias_gelu_forward;
  cuda->ops.linear_gelu_backward_input = linear_gelu_backward_input;
  cuda->ops.linear_relu2_forward = linear_relu2_forward;
  cuda->ops.linear_relu2_backward_input = linear_relu2_backward_input;
  cuda->ops.linear_backward_weight = linear_backward_weight;
  cuda->ops.linear_bias_backward_weight = linear_bias_backward_weight;
}
