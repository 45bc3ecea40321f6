/* Training: the head with its loss and gradients, and the backward pass. Each function here is the
 * counterpart of one in model_forward.c, and they run in the opposite order. `dx`, which is
 * model->stream[0], is the gradient of the residual stream at the point that the pass has reached.
 */
#include "common/model/model_state.h"

/* d out -> d y. A bottleneck has only one norm, whose backward is in block_mix_backward. */
static void block_mlp_backward(struct plm_model *model, const struct model_pass *pass,
                               const struct model_block *block)
{
  const int64_t N = block_rows(pass, block);
  model_mlp_backward(model, pass, block, N);
  if (block->reach >= REACH_UP) return;
  if (block->shape.kind != PLM_BLOCK_BOTTLENECK)
    model_norm_backward(model, &block->places.mlp_norm, model->stream[0], model->norm_gradient,
                        block->y, N, block->shape.width);
}

/* Scatters the rows of a gradient to their positions among all rows; the other rows become 0. */
static void model_backward_widen(struct plm_model *model, const struct model_pass *pass, act *all,
                                 const act *rows, int64_t D)
{
  struct plm_ops *ops = model->ops;
  ops->zero(ops, all, (size_t)(pass_rows(pass, 0) * D) * model->act_bytes);
  ops->scatter_rows(ops, all, rows, pass->positions, pass->R, D);
}

/* Turns dx of the rows that the head reads into dx of all rows. */
void plm_model_widen_stream(struct plm_model *model, const struct model_pass *pass, int64_t D)
{
  act *rows = model->stream[0];
  model_backward_widen(model, pass, model->stream[1], rows, D);
  model->stream[0] = model->stream[1];
  model->stream[1] = rows;
}

/* d y -> d attended. dx is not changed: it is also the gradient of mixed through the residual
 * connection. */
static void block_output_backward(struct plm_model *model, const struct model_pass *pass,
                                  const struct model_block *block)
{
  struct plm_ops *ops = model->ops;
  const struct block_places *places = &block->places;
  const int64_t N = block_rows(pass, block), D = block->shape.width;
  const bool narrowed = block == pass->narrowed;
  const act *dx = model->stream[0], *attended = narrowed ? model->head_attended : block->attended;
  act *dattended = narrowed ? model->norm_gradient : model->attended_gradient;
  model_product_backward(model, &places->output, dx, attended, N, D, D);
  if (block->reach == REACH_OUTPUT) {
    model_adapters_backward(model, pass, &places->output.adapters, NULL, dx, attended, N);
    return;
  }
  ops->linear_backward_input(ops, dattended, dx, model_weight(model, places->output.weight), N, D,
                             D, false);
  model_adapters_backward(model, pass, &places->output.adapters, dattended, dx, attended, N);
  if (!narrowed) return;
  model_backward_widen(model, pass, model->attended_gradient, dattended, D);
  plm_model_widen_stream(model, pass, D);
}

/* d y -> d h into model->norm_gradient, if that is needed. */
static void block_attention_backward(struct plm_model *model, const struct model_pass *pass,
                                     const struct model_block *block)
{
  if (block->shape.kind == PLM_BLOCK_BOTTLENECK || block->reach >= REACH_UP) return;
  struct plm_ops *ops = model->ops;
  const struct block_places *places = &block->places;
  const int level = block->shape.level;
  const int64_t N = pass_rows(pass, level), D = block->shape.width;
  const struct plm_attention_shape shape = plm_model_attention_shape(model, pass, block);
  act *dattended = model->attended_gradient, *dqkv = model->qkv_gradient;
  block_output_backward(model, pass, block);
  if (block->reach == REACH_OUTPUT) return;
  const size_t part = (size_t)D * ops->act_bytes;
  const struct plm_attention_inputs prepared = plm_attention_inputs_of(block->qkv, part);
  const struct plm_attention_gradients gradients = plm_attention_gradients_of(dqkv, part);
  ops->attention_backward(ops, &gradients, dattended, block->attended, block->lse, &prepared,
                          plm_model_mask(model, pass, block), &shape);
  const struct plm_qkv in = plm_model_qkv(model, pass, block);
  if (block->table >= 0) {
    const struct plm_value_table value = plm_model_value_table(model, block);
    ops->qkv_value_backward(ops, dqkv, model->tables[block->table].gradient,
                            model_gradient(model, places->value_mix), dqkv, &in, &value);
  } else {
    ops->qkv_prepare_backward(ops, dqkv, NULL, NULL, dqkv, &in);
  }
  if (plm_model_by_token(model, block)) {
    plm_model_token_rows_qkv_backward(model, pass, dqkv);
    return;
  }
  model_product_backward(model, &places->qkv, dqkv, block->h, N, D, 3 * D);
  act *dh = block->reach == REACH_QKV ? NULL : model->norm_gradient;
  if (dh != NULL)
    ops->linear_backward_input(ops, dh, dqkv, model_weight(model, places->qkv.weight), N, D, 3 * D,
                               false);
  model_adapters_backward(model, pass, &places->qkv.adapters, dh, dqkv, block->h, N);
}

/* The output of block i may be read by the next block and by a skip connection. Returns where the
 * skip's gradient is added: in the backward pass of the next block's mix (true), or before the
 * backward pass of block i (false). */
static bool skip_joins_behind(const struct plm_model *model, uint32_t i)
{
  return model->blocks[i].skipped_by >= 0 && model->blocks[i + 1].shape.input == PLM_INPUT_SAME;
}

/* d mixed and d h -> d x; adds to the gradient of x0 on the block's level. The skip's gradient
 * stays in the buffer of x, which is not read any more, until the pass reaches the encoder block
 * whose output the skip connection adds. */
static void block_mix_backward(struct plm_model *model, const struct model_pass *pass, uint32_t i)
{
  struct plm_ops *ops = model->ops;
  const struct model_block *block = &model->blocks[i];
  const struct plm_block_shape *shape = &block->shape;
  const int64_t N = pass_rows(pass, shape->level), D = shape->width;
  act *dx = model->stream[0];
  if (block->reach > REACH_INPUT) return;
  if (plm_model_by_token(model, block)) {
    plm_model_token_rows_mix_backward(model, pass);
    return;
  }
  if (shape->kind == PLM_BLOCK_PLAIN) {
    model_norm_backward(model, &block->places.norm, dx, model->norm_gradient, block->x, N, D);
    return;
  }
  act *dx0 = model->x0_gradient[shape->level];
  const struct plm_mix mix = plm_model_mix(model, block);
  struct plm_mix_gradients to = {
      .dx = dx, .dp = dx0, .db = model_gradient(model, block->places.input_mix)};
  if (block->projects) {
    to.dp = model->projection_gradient;
    ops->zero(ops, to.dp, (size_t)(N * D) * model->act_bytes);
  }
  if (shape->skip >= 0) {
    to.dskip = block->x;
    to.ds = model_gradient(model, block->places.skip_weight);
  }
  if (i > 0 && skip_joins_behind(model, i - 1))
    to.more = model->blocks[model->blocks[i - 1].skipped_by].x;
  ops->mix_norm_backward(ops, &to, dx, model->norm_gradient, &mix, N, D);
  if (block->projects) {
    const int64_t base = model->config.hidden_size;
    if (!block->frozen)
      ops->linear_backward_weight(ops, model_gradient(model, block->places.projection), to.dp,
                                  model->x0[shape->level], N, base, D);
    if (model->trains_embeddings)
      ops->linear_backward_input(ops, dx0, to.dp, model_weight(model, block->places.projection), N,
                                 base, D, true);
  }
}

/* d x -> the gradient of the previous block's output, in stream[0]. */
static void block_input_backward(struct plm_model *model, const struct model_pass *pass,
                                 const struct model_block *block)
{
  struct plm_ops *ops = model->ops;
  const struct plm_block_shape *shape = &block->shape;
  act *dx = model->stream[0];
  if (shape->input == PLM_INPUT_SAME || block->reach > REACH_INPUT) return;
  const int64_t N = pass_rows(pass, shape->resample + 1);
  int64_t I, O;
  model_resample_sizes(model, shape, &I, &O);
  if (!block->frozen)
    ops->linear_backward_weight(ops, model_gradient(model, block->places.resample), dx,
                                block->input, N, I, O);
  if (block->reach != REACH_BEFORE) return;
  ops->linear_backward_input(ops, model->stream[1], dx, model_weight(model, block->places.resample),
                             N, I, O, false);
  model->stream[0] = model->stream[1];
  model->stream[1] = dx;
}

static void blocks_backward(struct plm_model *model, const struct model_pass *pass,
                            struct plm_backward_part part)
{
  struct plm_ops *ops = model->ops;
  const enum plm_recompute recompute = model->options.recompute;
  const uint32_t first = part.first > model->trained_from ? part.first : model->trained_from;
  for (uint32_t i = part.end; i-- > first;) {
    const struct model_block *block = &model->blocks[i];
    if (block->skipped_by >= 0 && !skip_joins_behind(model, i))
      ops->add(ops, model->stream[0], model->blocks[block->skipped_by].x,
               pass_rows(pass, block->shape.level) * block->shape.width);
    const bool bottleneck = block->shape.kind == PLM_BLOCK_BOTTLENECK;
    if (recompute == PLM_RECOMPUTE_BLOCK || (recompute == PLM_RECOMPUTE_MLP && bottleneck))
      plm_model_block_mix(model, pass, block);
    if (recompute == PLM_RECOMPUTE_BLOCK) plm_model_block_attention(model, pass, block);
    if (recompute != PLM_RECOMPUTE_NONE) plm_model_block_hidden(model, pass, block);
    block_mlp_backward(model, pass, block);
    block_attention_backward(model, pass, block);
    block_mix_backward(model, pass, i);
    block_input_backward(model, pass, block);
  }
}

/* Computes the loss of the labelled rows and the gradient of the last block's output. If that block
 * is narrowed, the gradient has only the labelled rows; otherwise it has all rows, and those
 * without a label are 0. */
static void head_train(struct plm_model *model, const struct model_pass *pass,
                       const struct plm_loss_options *loss, float loss_scale)
{
  struct plm_ops *ops = model->ops;
  const int64_t R = pass->R, D = model->config.hidden_size;
  const bool activated = model->head_activated != NULL;
  act *ddense = model->row_gradient[0], *dnorm = model->row_gradient[1];
  const struct plm_head_rows rows = {.dense = activated ? model->head_activated : model->head_dense,
                                     .w = model_weight(model, model->decoder),
                                     .bias = model_value(model, model->bias),
                                     .labels = model->labels,
                                     .weights = model->label_weights,
                                     .N = R,
                                     .D = D,
                                     .V = model->config.vocab_size,
                                     .hits = model->hits,
                                     .activated = activated};
  plm_model_head_dense(model, pass);
  ops->head_train(ops, model->row_loss, ddense, model_gradient(model, model->decoder),
                  model_gradient(model, model->bias), &rows, loss_scale, loss);
  if (activated) { /* back through the norm and GELU between dense and decoder */
    act *dgelu = model->row_gradient[1];
    ops->zero(ops, dgelu, (size_t)(R * D) * model->act_bytes);
    model_norm_backward(model, &model->head_norm_after, dgelu, ddense, model->head_gelu, R, D);
    ops->gelu_backward(ops, dgelu, dgelu, model->head_dense, R * D);
    dnorm = ddense;
    ddense = dgelu;
  }
  model_product_backward(model, &model->dense, ddense, model->head_norm, R, D, D);
  if (!model->trains_trunk) return;
  ops->linear_backward_input(ops, dnorm, ddense, model_weight(model, model->dense.weight), R, D, D,
                             false);
  act *dx = model->stream[0];
  ops->zero(ops, dx, (size_t)(R * D) * model->act_bytes);
  model_norm_backward(model, &model->final_norm, dx, dnorm, plm_model_head_input(model, pass), R,
                      D);
  if (pass->narrowed == NULL) plm_model_widen_stream(model, pass, D);
}

void plm_model_embed_backward(struct plm_model *model, const struct embedded_rows *rows, act *dx,
                              act *spare)
{
  struct plm_ops *ops = model->ops;
  const int64_t N = rows->B * rows->L, D = model->config.hidden_size;
  const float scale = (float)plm_architecture_stream_scale(&model->config);
  if (rows->before != NULL) {
    ops->zero(ops, spare, (size_t)(N * D) * model->act_bytes);
    model_norm_backward(model, &model->embedding_norm, spare, dx, rows->before, N, D);
    dx = spare;
  }
  if (scale != 1.0f) ops->scale(ops, dx, scale, N * D);
  if (model_scales_dropout(model)) ops->scale_rows(ops, dx, rows->factors, N, D);
  ops->token_mean_backward(ops, model->tables[0].gradient, dx, rows->tokens, N, D,
                           model->config.vocab_size, 0);
}

/* The gradients of x0 on all levels and of the first block's input -> the embedding. If that block
 * was computed by token, the latter has a row for each token; where x0 has a gradient of its own,
 * the stream's is part of it. */
static void add_table_gradients(struct plm_model *model, const struct model_pass *pass)
{
  struct plm_ops *ops = model->ops;
  const int64_t D = model->config.hidden_size, V = model->config.vocab_size;
  const struct token_rows *first = &model->token_rows;
  float *gradient = model->tables[0].gradient;
  if (model->x0_gradient[0] == NULL) {
    const struct embedded_rows batch = plm_model_embedded_batch(model, pass);
    plm_model_embed_backward(model, &batch, model->stream[0], model->stream[1]);
    if (!first->in_use) return;
    const struct embedded_rows tokens = plm_model_embedded_tokens(model);
    plm_model_embed_backward(model, &tokens, first->dx, first->dh);
    return;
  }
  if (!first->in_use)
    ops->add(ops, model->x0_gradient[0], model->stream[0], pass_rows(pass, 0) * D);
  for (int level = 0; level < model->levels; level++)
    ops->token_mean_backward(ops, gradient, model->x0_gradient[level], model->tokens,
                             pass_rows(pass, level), D, V, level);
  if (!first->in_use) return;
  ops->token_mean_backward(ops, gradient, first->dx, first->tokens, V, D, V, 0);
  ops->token_mean_backward(ops, gradient, first->dp, first->tokens, V, D, V, 0);
}

/* The gradient of the embedding, through its norm. */
static void tables_backward(struct plm_model *model, const struct model_pass *pass)
{
  struct plm_ops *ops = model->ops;
  const int64_t D = model->config.hidden_size, V = model->config.vocab_size;
  struct token_table *embedding = &model->tables[0];
  add_table_gradients(model, pass);
  const int64_t mask = plm_architecture_mask_token(&model->config);
  const bool zeroed = model->config.token_dropout && !model->rules->scales_dropout;
  for (uint32_t i = 0; i < model->table_total && zeroed; i++) {
    const struct token_table *table = &model->tables[i]; /* <mask> has no vector then */
    ops->zero(ops, table->gradient + mask * table->width, (size_t)table->width * sizeof(float));
  }
  if (!model->rules->normalises_tables) return; /* the gradient is the parameter's */
  ops->norm_rows_backward(ops, model_gradient(model, embedding->place), embedding->gradient,
                          model_value(model, embedding->place), V, D);
}

void plm_model_train_forward(struct plm_model *model, const struct model_pass *pass)
{
  struct plm_ops *ops = model->ops;
  PLM_ASSERT(model->options.training && pass->R > 0);
  plm_model_blocks_forward(model, pass);
  if (model->rules->normalises_tables)
    ops->zero(ops, model->tables[0].gradient,
              (size_t)model->config.hidden_size * model->config.vocab_size * sizeof(float));
  for (int level = 0; level < model->levels; level++)
    if (model->x0_gradient[level] != NULL)
      ops->zero(ops, model->x0_gradient[level],
                (size_t)(pass_rows(pass, level) * model->config.hidden_size) * model->act_bytes);
}

void plm_model_train_head(struct plm_model *model, const struct model_pass *pass,
                          const struct plm_loss_options *loss, float loss_scale)
{
  plm_model_train_forward(model, pass);
  head_train(model, pass, loss, loss_scale);
}

void plm_model_train_blocks(struct plm_model *model, const struct model_pass *pass,
                            struct plm_backward_part part)
{
  PLM_ASSERT(part.first <= part.end && part.end <= model->block_count);
  blocks_backward(model, pass, part);
  if (part.first == 0 && model->trains_embeddings) tables_backward(model, pass);
}
