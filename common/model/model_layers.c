/* The layers of a block and of the head with their parameters, as the traits of the architecture
 * say: norms, products with or without a bias, and the three kinds of MLP. */
#include "common/model/model_state.h"

static struct plm_layer_norm layer_norm_of(const struct plm_model *model,
                                           const struct model_norm *norm)
{
  const bool biased = norm->kind == PLM_NORM_LAYER;
  return (struct plm_layer_norm){.weight = model_value(model, norm->weight),
                                 .bias = biased ? model_value(model, norm->bias) : NULL,
                                 .eps = (float)norm->eps};
}

void model_norm_forward(const struct plm_model *model, const struct model_norm *norm, act *out,
                        const act *x, int64_t N, int64_t D)
{
  struct plm_ops *ops = model->ops;
  if (norm->kind == PLM_NORM_RMS) {
    ops->norm_forward(ops, out, x, N, D);
    return;
  }
  const struct plm_layer_norm of = layer_norm_of(model, norm);
  ops->layer_norm_forward(ops, out, x, &of, N, D);
}

void model_norm_backward(const struct plm_model *model, const struct model_norm *norm, act *dx,
                         const act *dh, const act *x, int64_t N, int64_t D)
{
  struct plm_ops *ops = model->ops;
  if (norm->kind == PLM_NORM_RMS) {
    ops->norm_backward(ops, dx, dh, x, N, D);
    return;
  }
  const struct plm_layer_norm of = layer_norm_of(model, norm);
  const struct plm_layer_norm_gradients to = {model_gradient(model, norm->weight),
                                              of.bias != NULL ? model_gradient(model, norm->bias)
                                                              : NULL};
  ops->layer_norm_backward(ops, dx, &to, dh, x, &of, N, D);
}

void model_product_forward(const struct plm_model *model, const struct model_product *product,
                           act *y, const act *x, const act *residual, int64_t N, int64_t I,
                           int64_t O)
{
  struct plm_ops *ops = model->ops;
  const act *w = model_weight(model, product->weight);
  if (product->biased) {
    const struct plm_biased_linear layer = {w, model_value(model, product->bias)};
    ops->linear_bias_forward(ops, y, x, &layer, residual, N, I, O);
  } else
    ops->linear_forward(ops, y, x, w, residual, N, I, O);
}

void model_resample_sizes(const struct plm_model *model, const struct plm_block_shape *shape,
                          int64_t *I, int64_t *O)
{
  const int64_t shallow = plm_architecture_width(&model->config, shape->resample);
  const int64_t deep = plm_architecture_width(&model->config, shape->resample + 1);
  const bool merge = shape->input == PLM_INPUT_MERGE;
  *I = merge ? 2 * shallow : deep;
  *O = merge ? deep : 2 * shallow;
}

/* The parameters of an int8 product, and what follows it. */
static struct plm_int8_linear int8_layer(const struct plm_model *model,
                                         const struct model_product *product,
                                         enum plm_int8_after after)
{
  return (struct plm_int8_linear){.w = model_int8_weight(model, product->weight),
                                  .bias =
                                      product->biased ? model_value(model, product->bias) : NULL,
                                  .after = after};
}

void model_block_product(const struct plm_model *model, const struct model_product *product, act *y,
                         const act *x, const act *residual, int64_t N, int64_t I, int64_t O)
{
  if (model->int8 == NULL) {
    model_product_forward(model, product, y, x, residual, N, I, O);
    return;
  }
  const struct plm_int8_linear layer = int8_layer(model, product, PLM_INT8_LINEAR);
  model->ops->linear_int8_forward(model->ops, y, x, &layer, residual, N, I, O);
}

void model_product_backward(const struct plm_model *model, const struct model_product *product,
                            const act *dy, const act *x, int64_t N, int64_t I, int64_t O)
{
  struct plm_ops *ops = model->ops;
  if (product->frozen) return;
  float *dw = model_gradient(model, product->weight);
  if (product->biased)
    ops->linear_bias_backward_weight(ops, dw, model_gradient(model, product->bias), dy, x, N, I, O);
  else
    ops->linear_backward_weight(ops, dw, dy, x, N, I, O);
}

/* The MLP whose product `up` has an adapter, so that the activation is an operator of its own. */
static void adapted_mlp_forward(const struct plm_model *model, const struct model_pass *pass,
                                const struct model_block *block, int64_t N)
{
  struct plm_ops *ops = model->ops;
  const struct model_product *up = &block->places.up;
  const int64_t D = block->shape.width, F = block->shape.hidden;
  act *before = block->before != NULL ? block->before : block->hidden;
  const int64_t O = block->shape.traits->mlp == PLM_MLP_SWIGLU ? 2 * F : F;
  model_block_product(model, up, before, block->h2, NULL, N, D, O);
  model_adapters_forward(model, pass, &up->adapters, before, block->h2, N);
  switch (block->shape.traits->mlp) {
  case PLM_MLP_RELU2: ops->relu2_forward(ops, block->hidden, N * F); break;
  case PLM_MLP_GELU: ops->gelu_forward(ops, block->hidden, before, N * F); break;
  case PLM_MLP_SWIGLU: ops->swiglu_forward(ops, block->hidden, before, N, F); break;
  }
}

static void int8_mlp_forward(const struct plm_model *model, const struct model_block *block,
                             int64_t N)
{
  struct plm_ops *ops = model->ops;
  const int64_t D = block->shape.width, F = block->shape.hidden;
  const enum plm_mlp_kind kind = block->shape.traits->mlp;
  const struct plm_int8_linear up = int8_layer(model, &block->places.up,
                                               kind == PLM_MLP_RELU2  ? PLM_INT8_RELU2
                                               : kind == PLM_MLP_GELU ? PLM_INT8_GELU
                                                                      : PLM_INT8_LINEAR);
  if (kind != PLM_MLP_SWIGLU) {
    ops->linear_int8_forward(ops, block->hidden, block->h2, &up, NULL, N, D, F);
    return;
  }
  ops->linear_int8_forward(ops, block->before, block->h2, &up, NULL, N, D, 2 * F);
  ops->swiglu_forward(ops, block->hidden, block->before, N, F);
}

void model_mlp_forward(const struct plm_model *model, const struct model_pass *pass,
                       const struct model_block *block, int64_t N)
{
  struct plm_ops *ops = model->ops;
  const struct model_product *up = &block->places.up;
  const int64_t D = block->shape.width, F = block->shape.hidden;
  if (up->adapters.parts > 0) {
    adapted_mlp_forward(model, pass, block, N);
    return;
  }
  if (model->int8 != NULL) {
    int8_mlp_forward(model, block, N);
    return;
  }
  const act *w = model_weight(model, up->weight);
  switch (block->shape.traits->mlp) {
  case PLM_MLP_RELU2: ops->linear_relu2_forward(ops, block->hidden, block->h2, w, N, D, F); break;
  case PLM_MLP_GELU:
    PLM_ASSERT(up->biased);
    ops->linear_bias_gelu_forward(ops, block->hidden, block->before, block->h2,
                                  &(struct plm_biased_linear){w, model_value(model, up->bias)}, N,
                                  D, F);
    break;
  case PLM_MLP_SWIGLU:
    model_product_forward(model, up, block->before, block->h2, NULL, N, D, 2 * F);
    ops->swiglu_forward(ops, block->hidden, block->before, N, F);
    break;
  }
}

/* d out -> dup, the gradient of what the activation is applied to. */
static void down_backward(const struct plm_model *model, const struct model_block *block, act *dup,
                          int64_t N)
{
  struct plm_ops *ops = model->ops;
  const act *w = model_weight(model, block->places.down.weight);
  const int64_t D = block->shape.width, F = block->shape.hidden;
  const act *dx = model->stream[0];
  act *dhidden = model->hidden_gradient;
  switch (block->shape.traits->mlp) {
  case PLM_MLP_RELU2:
    ops->linear_relu2_backward_input(ops, dup, dx, w, block->hidden, N, F, D);
    break;
  case PLM_MLP_GELU:
    ops->linear_gelu_backward_input(ops, dup, dx, w, block->before, N, F, D);
    break;
  case PLM_MLP_SWIGLU:
    ops->linear_backward_input(ops, dhidden, dx, w, N, F, D, false);
    ops->swiglu_backward(ops, dup, dhidden, block->before, N, F);
    break;
  }
}

/* The same if the product `down` has an adapter. */
static void adapted_down_backward(const struct plm_model *model, const struct model_pass *pass,
                                  const struct model_block *block, act *dup, int64_t N)
{
  struct plm_ops *ops = model->ops;
  const struct model_product *down = &block->places.down;
  const int64_t D = block->shape.width, F = block->shape.hidden;
  const act *dx = model->stream[0];
  act *dhidden = model->hidden_gradient;
  if (block->reach == REACH_DOWN) {
    model_adapters_backward(model, pass, &down->adapters, NULL, dx, block->hidden, N);
    return;
  }
  ops->linear_backward_input(ops, dhidden, dx, model_weight(model, down->weight), N, F, D, false);
  model_adapters_backward(model, pass, &down->adapters, dhidden, dx, block->hidden, N);
  switch (block->shape.traits->mlp) {
  case PLM_MLP_RELU2: ops->relu2_backward(ops, dup, block->hidden, N * F); break;
  case PLM_MLP_GELU: ops->gelu_backward(ops, dup, dhidden, block->before, N * F); break;
  case PLM_MLP_SWIGLU: ops->swiglu_backward(ops, dup, dhidden, block->before, N, F); break;
  }
}

void model_mlp_backward(const struct plm_model *model, const struct model_pass *pass,
                        const struct model_block *block, int64_t N)
{
  struct plm_ops *ops = model->ops;
  const struct model_product *up = &block->places.up, *down = &block->places.down;
  const bool gated = block->shape.traits->mlp == PLM_MLP_SWIGLU;
  const int64_t D = block->shape.width, F = block->shape.hidden, O = gated ? 2 * F : F;
  /* The gradient of gate and up replaces these, which nothing reads any more. */
  act *dup = gated ? block->before : model->hidden_gradient, *dh2 = model->norm_gradient;
  model_product_backward(model, down, model->stream[0], block->hidden, N, F, D);
  if (down->adapters.parts > 0)
    adapted_down_backward(model, pass, block, dup, N);
  else
    down_backward(model, block, dup, N);
  if (block->reach == REACH_DOWN) return;
  model_product_backward(model, up, dup, block->h2, N, D, O);
  if (block->reach == REACH_UP)
    dh2 = NULL;
  else
    ops->linear_backward_input(ops, dh2, dup, model_weight(model, up->weight), N, D, O, false);
  model_adapters_backward(model, pass, &up->adapters, dh2, dup, block->h2, N);
}
