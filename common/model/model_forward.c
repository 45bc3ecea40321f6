/* The forward pass: embeddings, blocks in the order of the list, head and loss; and inference. */
#include <math.h>
#include <string.h>

#include "common/model/model_state.h"

struct plm_value_table plm_model_value_table(const struct plm_model *model,
                                             const struct model_block *block)
{
  return (struct plm_value_table){.table = model->tables[block->table].vectors,
                                  .tokens = model->tokens,
                                  .V = model->config.vocab_size,
                                  .level = block->shape.level,
                                  .room = model->value_embedding,
                                  .room_gradient = model->value_gradient};
}

void plm_model_value_embedding(struct plm_model *model, const struct model_pass *pass,
                               const struct model_block *block)
{
  const struct token_table *table = &model->tables[block->table];
  model->ops->token_mean_forward(model->ops, model->value_embedding, table->vectors, model->tokens,
                                 pass_rows(pass, block->shape.level), table->width,
                                 model->config.vocab_size, block->shape.level);
}

struct plm_attention_shape plm_model_attention_shape(const struct plm_model *model,
                                                     const struct model_pass *pass,
                                                     const struct model_block *block)
{
  const int32_t H = (int32_t)model->config.num_attention_heads;
  const int32_t K = (int32_t)block->shape.width / H;
  return (struct plm_attention_shape){.B = pass->B,
                                      .L = pass->L >> block->shape.level,
                                      .H = H,
                                      .K = K,
                                      .row_stride = 3 * H * K,
                                      .scale = (float)(1.0 / sqrt((double)K))};
}

struct plm_mix plm_model_mix(const struct plm_model *model, const struct model_block *block)
{
  const struct block_places *places = &block->places;
  struct plm_mix mix = {.x = block->x,
                        .p = block->projects ? block->p : model->x0[block->shape.level],
                        .b = model->parameters + places->input_mix};
  if (block->shape.skip >= 0) {
    mix.skip = model->blocks[block->shape.skip].out;
    mix.s = model->parameters + places->skip_weight;
  }
  return mix;
}

/* mixed = b0 (x + s skip) + b1 p, h = norm(mixed); a plain block: h = norm(x). */
void plm_model_block_mix(struct plm_model *model, const struct model_pass *pass,
                         const struct model_block *block)
{
  struct plm_ops *ops = model->ops;
  const struct plm_block_shape *shape = &block->shape;
  const int64_t N = pass_rows(pass, shape->level), D = shape->width;
  if (shape->kind == PLM_BLOCK_PLAIN) {
    ops->norm_forward(ops, block->h, block->x, N, D);
    return;
  }
  if (block->projects)
    ops->linear_forward(ops, block->p, model->x0[shape->level],
                        model_weight(model, block->places.projection), NULL, N,
                        model->config.hidden_size, D);
  const struct plm_mix mix = plm_model_mix(model, block);
  ops->mix_norm_forward(ops, block->mixed, block->h, &mix, N, D);
}

/* qkv_raw -> attended, of whole chunks. */
static void attend(struct plm_model *model, const struct model_pass *pass,
                   const struct model_block *block)
{
  struct plm_ops *ops = model->ops;
  const float *mix = model->parameters + block->places.value_mix;
  const int level = block->shape.level;
  const int64_t D = block->shape.width;
  const struct plm_attention_shape shape = plm_model_attention_shape(model, pass, block);
  const float *cosine = model->rotary[level].cosine, *sine = model->rotary[level].sine;
  if (block->table >= 0) {
    const struct plm_value_table value = plm_model_value_table(model, block);
    ops->qkv_value_forward(ops, block->qkv, block->qkv_raw, &value, mix, cosine, sine, shape.B,
                           shape.L, shape.H, shape.K);
  } else {
    ops->qkv_prepare_forward(ops, block->qkv, block->qkv_raw, NULL, mix, cosine, sine, shape.B,
                             shape.L, shape.H, shape.K);
  }
  ops->attention_forward(ops, block->attended, block->lse, block->qkv, act_at(model, block->qkv, D),
                         act_at(model, block->qkv, 2 * D),
                         plm_masks_at(pass->masks, level, (int)block->shape.entry), &shape);
}

void plm_model_pass_reads(const struct plm_model *model, struct model_pass *pass,
                          const int32_t *positions, int64_t R)
{
  pass->positions = positions;
  pass->R = positions != NULL ? R : pass_rows(pass, 0);
  pass->narrowed = NULL;
  if (model->block_count == 0 || pass->R == 0 || 2 * pass->R > pass_rows(pass, 0)) return;
  const struct model_block *last = &model->blocks[model->block_count - 1];
  PLM_ASSERT(last->shape.level == 0);
  if (last->shape.kind != PLM_BLOCK_BOTTLENECK) pass->narrowed = last;
}

/* attended -> y = mixed + Wo attended */
static void block_output(struct plm_model *model, const struct model_pass *pass,
                         const struct model_block *block)
{
  struct plm_ops *ops = model->ops;
  const int64_t N = block_rows(pass, block), D = block->shape.width;
  const act *attended = block->attended, *mixed = block->mixed;
  if (block == pass->narrowed) {
    ops->gather_rows(ops, model->head_attended, attended, pass->positions, N, D);
    ops->gather_rows(ops, model->head_x, mixed, pass->positions, N, D);
    attended = model->head_attended;
    mixed = model->head_x;
  }
  ops->linear_forward(ops, block->y, attended, model_weight(model, block->places.output), mixed, N,
                      D, D);
}

/* h -> y */
void plm_model_block_attention(struct plm_model *model, const struct model_pass *pass,
                               const struct model_block *block)
{
  if (block->shape.kind == PLM_BLOCK_BOTTLENECK) return;
  struct plm_ops *ops = model->ops;
  const int level = block->shape.level;
  const int64_t N = pass_rows(pass, level), D = block->shape.width;
  ops->linear_forward(ops, block->qkv_raw, block->h, model_weight(model, block->places.qkv), NULL,
                      N, D, 3 * D);
  if (pass->decode != NULL) {
    if (block->table >= 0) plm_model_value_embedding(model, pass, block);
    plm_decode_attend(pass->decode, block, block->table >= 0 ? model->value_embedding : NULL);
  } else {
    attend(model, pass, block);
  }
  block_output(model, pass, block);
}

/* y -> hidden = relu(Wup norm(y))^2; a bottleneck's mix has made the norm. */
void plm_model_block_hidden(struct plm_model *model, const struct model_pass *pass,
                            const struct model_block *block)
{
  struct plm_ops *ops = model->ops;
  const int64_t N = block_rows(pass, block);
  const int64_t D = block->shape.width, F = block->shape.hidden;
  if (block->shape.kind != PLM_BLOCK_BOTTLENECK) ops->norm_forward(ops, block->h2, block->y, N, D);
  ops->linear_relu2_forward(ops, block->hidden, block->h2, model_weight(model, block->places.up), N,
                            D, F);
}

/* The output of the block before in the block's shape, where it is not: merge or expand. */
static void block_input(struct plm_model *model, const struct model_pass *pass,
                        const struct model_block *block)
{
  const struct plm_block_shape *shape = &block->shape;
  if (shape->source == PLM_SOURCE_SAME) return;
  const int64_t shallow = plm_architecture_width(&model->config, shape->resample);
  const int64_t deep = plm_architecture_width(&model->config, shape->resample + 1);
  const bool merge = shape->source == PLM_SOURCE_MERGE;
  /* both multiply the deeper level's rows */
  model->ops->linear_forward(
      model->ops, block->x, block->source, model_weight(model, block->places.resample), NULL,
      pass_rows(pass, shape->resample + 1), merge ? 2 * shallow : deep, merge ? deep : 2 * shallow);
}

void plm_model_blocks_forward(struct plm_model *model, const struct model_pass *pass)
{
  struct plm_ops *ops = model->ops;
  const int levels = model->config.architecture == PLM_TRANSFORMER ? 1 : model->levels;
  for (int level = 0; level < levels; level++)
    ops->token_mean_forward(ops, model->x0[level], model->tables[0].vectors, model->tokens,
                            pass_rows(pass, level), model->config.hidden_size,
                            model->config.vocab_size, level);
  for (uint32_t i = 0; i < model->block_count; i++) {
    const struct model_block *block = &model->blocks[i];
    block_input(model, pass, block);
    plm_model_block_mix(model, pass, block);
    plm_model_block_attention(model, pass, block);
    plm_model_block_hidden(model, pass, block);
    ops->linear_forward(ops, block->out, block->hidden, model_weight(model, block->places.down),
                        block->y, block_rows(pass, block), block->shape.hidden, block->shape.width);
  }
}

static act *last_hidden(const struct plm_model *model)
{
  return model->block_count == 0 ? model->x0[0] : model->blocks[model->block_count - 1].out;
}

const act *plm_model_head_input(const struct plm_model *model, const struct model_pass *pass)
{
  return pass->positions == NULL || pass->narrowed != NULL ? last_hidden(model) : model->head_x;
}

void plm_model_head_dense(struct plm_model *model, const struct model_pass *pass)
{
  struct plm_ops *ops = model->ops;
  const int64_t R = pass->R, D = model->config.hidden_size;
  const act *x = plm_model_head_input(model, pass);
  if (x == model->head_x)
    ops->gather_rows(ops, model->head_x, last_hidden(model), pass->positions, R, D);
  ops->norm_forward(ops, model->head_norm, x, R, D);
  ops->linear_forward(ops, model->head_dense, model->head_norm, model_weight(model, model->dense),
                      NULL, R, D, D);
}

void plm_model_head_forward(struct plm_model *model, const struct model_pass *pass, float cap)
{
  struct plm_ops *ops = model->ops;
  const int64_t R = pass->R, D = model->config.hidden_size, V = model->config.vocab_size;
  plm_model_head_dense(model, pass);
  ops->gelu_forward(ops, model->head_gelu, model->head_dense, R * D);
  ops->logits_forward(ops, model->logits, model->head_gelu, model_weight(model, model->decoder),
                      model->parameters + model->bias, R, D, V);
  if (cap != 0.0f) ops->soft_cap_forward(ops, model->logits, R * V, cap);
}

plm_status plm_model_check_batch(const struct plm_model *model, const struct plm_batch *batch,
                                 const int32_t *inputs, struct plm_error *error)
{
  const uint32_t V = model->config.vocab_size, L = batch->max_length;
  if (batch->chunks == 0 || batch->chunks > model->options.max_chunks)
    return plm_error_set(error, PLM_LIMIT, "a batch of %u chunks; the model takes 1 to %u",
                         batch->chunks, model->options.max_chunks);
  if (L == 0 || L > model->config.max_length || L % plm_architecture_group(&model->config) != 0)
    return plm_error_set(error, PLM_LIMIT,
                         "chunks of %u tokens; the model takes multiples of %u up to %u", L,
                         plm_architecture_group(&model->config), model->config.max_length);
  const size_t tokens = (size_t)batch->chunks * L;
  for (size_t i = 0; i < tokens; i++)
    if ((uint32_t)inputs[i] >= V)
      return plm_error_set(error, PLM_CORRUPT, "token %d at %zu is outside the vocabulary of %u",
                           inputs[i], i, V);
  return PLM_OK;
}

plm_status plm_model_check_targets(const struct plm_model *model, const struct plm_batch *batch,
                                   const struct plm_targets *targets, struct plm_error *error)
{
  const int64_t tokens = (int64_t)batch->chunks * batch->max_length;
  int64_t before = -1;
  for (uint32_t i = 0; i < targets->rows; i++) {
    const int32_t position = targets->positions[i], label = targets->labels[i];
    if (position <= before || position >= tokens)
      return plm_error_set(error, PLM_CORRUPT, "labelled position %d is out of order or range",
                           position);
    if ((uint32_t)label >= model->config.vocab_size)
      return plm_error_set(error, PLM_CORRUPT, "label %d is outside the vocabulary of %u", label,
                           model->config.vocab_size);
    before = position;
  }
  return PLM_OK;
}

static struct model_pass start_pass(struct plm_model *model, const struct plm_batch *batch,
                                    const int32_t *inputs, const struct plm_masks *masks)
{
  model->ops->upload(model->ops, model->tokens, inputs,
                     (size_t)batch->chunks * batch->max_length * sizeof *inputs);
  return (struct model_pass){
      .B = (int32_t)batch->chunks, .L = (int32_t)batch->max_length, .masks = masks};
}

uint32_t plm_model_rows(const struct plm_ops *ops, uint64_t positions, uint64_t rows)
{
  enum { PARTS = 16 };
  if (ops->record_begin == NULL) return (uint32_t)rows;
  const uint64_t part = (positions + PARTS - 1) / PARTS, rounded = (rows + part - 1) / part * part;
  return (uint32_t)(rounded < positions ? rounded : positions);
}

void plm_model_pass_asks(struct plm_model *model, struct model_pass *pass, const int32_t *positions,
                         size_t rows)
{
  if (positions == NULL) {
    plm_model_pass_reads(model, pass, NULL, 0);
    return;
  }
  const size_t R = plm_model_rows(model->ops, (uint64_t)pass_rows(pass, 0), rows);
  int32_t *padded = model->host_positions;
  memcpy(padded, positions, rows * sizeof *padded);
  for (size_t i = rows; i < R; i++) padded[i] = -1;
  model->ops->upload(model->ops, model->positions, padded, R * sizeof *padded);
  plm_model_pass_reads(model, pass, model->positions, (int64_t)R);
}

/* The same with what the loss wants. */
static plm_status start_targets(struct plm_model *model, const struct plm_batch *batch,
                                const struct plm_masks *masks, const struct plm_targets *targets,
                                struct model_pass *pass, struct plm_error *error)
{
  struct plm_ops *ops = model->ops;
  const size_t rows = targets->rows;
  PLM_TRY(plm_model_check_batch(model, batch, targets->inputs, error));
  PLM_TRY(plm_model_check_targets(model, batch, targets, error));
  *pass = start_pass(model, batch, targets->inputs, masks);
  if (rows == 0) return PLM_OK;
  plm_model_pass_asks(model, pass, targets->positions, rows);
  ops->zero(ops, model->labels, (size_t)pass->R * sizeof(int32_t));
  ops->zero(ops, model->label_weights, (size_t)pass->R * sizeof(float));
  ops->upload(ops, model->labels, targets->labels, rows * sizeof(int32_t));
  ops->upload(ops, model->label_weights, targets->weights, rows * sizeof(float));
  return PLM_OK;
}

/* The losses of R rows to the host, and their sum. */
static plm_status fetch_loss(struct plm_model *model, size_t R, struct plm_loss_result *result,
                             float *row_loss, struct plm_error *error)
{
  struct plm_ops *ops = model->ops;
  *result = (struct plm_loss_result){.rows = R};
  if (R == 0) return ops->synchronize(ops, error);
  float *rows = row_loss != NULL ? row_loss : model->host_row_loss;
  ops->download(ops, rows, model->row_loss, R * sizeof(float));
  PLM_TRY(ops->synchronize(ops, error));
  for (size_t i = 0; i < R; i++) result->loss += (double)rows[i];
  return PLM_OK;
}

plm_status plm_model_forward(struct plm_model *model, const struct plm_batch *batch,
                             const struct plm_masks *masks, const struct plm_targets *targets,
                             const struct plm_loss_options *loss, struct plm_loss_result *result,
                             float *row_loss, struct plm_error *error)
{
  struct plm_ops *ops = model->ops;
  struct model_pass pass;
  PLM_TRY(start_targets(model, batch, masks, targets, &pass, error));
  if (pass.R > 0) {
    plm_model_blocks_forward(model, &pass);
    plm_model_head_forward(model, &pass, loss->soft_cap);
    ops->cross_entropy(ops, model->row_loss, model->logits, model->labels, model->label_weights,
                       loss, pass.R, model->config.vocab_size);
  }
  return fetch_loss(model, targets->rows, result, row_loss, error);
}

plm_status plm_model_gradients(struct plm_model *model, const struct plm_batch *batch,
                               const struct plm_masks *masks, const struct plm_targets *targets,
                               const struct plm_loss_options *loss, float loss_scale,
                               struct plm_loss_result *result, float *row_loss,
                               struct plm_error *error)
{
  struct model_pass pass;
  PLM_TRY(start_targets(model, batch, masks, targets, &pass, error));
  plm_model_train_rows(model, &pass, loss, loss_scale);
  return fetch_loss(model, targets->rows, result, row_loss, error);
}

struct plm_device_targets plm_model_device_targets(struct plm_model *model)
{
  return (struct plm_device_targets){model->tokens, model->positions, model->labels,
                                     model->label_weights};
}

void plm_model_train(struct plm_model *model, uint32_t chunks, uint32_t length,
                     const struct plm_masks *masks, uint32_t rows,
                     const struct plm_loss_options *loss, double *loss_sum)
{
  struct model_pass pass = {.B = (int32_t)chunks, .L = (int32_t)length, .masks = masks};
  PLM_ASSERT(chunks > 0 && chunks <= model->options.max_chunks);
  PLM_ASSERT(length <= model->config.max_length && rows <= chunks * length);
  if (rows == 0) return; /* neither loss nor gradient */
  plm_model_pass_reads(model, &pass, model->positions, rows);
  plm_model_train_rows(model, &pass, loss, 1);
  model->ops->add_sum(model->ops, loss_sum, model->row_loss, rows);
}

plm_status plm_model_infer(struct plm_model *model, const struct plm_batch *batch,
                           const int32_t *inputs, const struct plm_masks *masks,
                           const int32_t *positions, uint32_t rows, float *hidden, float *logits,
                           struct plm_error *error)
{
  struct plm_ops *ops = model->ops;
  PLM_TRY(plm_model_check_batch(model, batch, inputs, error));
  struct model_pass pass = start_pass(model, batch, inputs, masks);
  const int64_t N = pass_rows(&pass, 0), D = model->config.hidden_size;
  if (positions == NULL) rows = (uint32_t)N;
  if (rows > N)
    return plm_error_set(error, PLM_LIMIT, "logits of %u positions of %ld", rows, (long)N);
  for (uint32_t i = 0; positions != NULL && i < rows; i++)
    if (positions[i] < 0 || positions[i] >= N)
      return plm_error_set(error, PLM_CORRUPT, "position %d of %ld", positions[i], (long)N);
  plm_model_pass_asks(model, &pass, positions, rows);
  if (hidden != NULL) pass.narrowed = NULL; /* all rows are wanted */
  plm_model_blocks_forward(model, &pass);
  if (hidden != NULL) {
    ops->act_to_float(ops, model->rows_fp32, last_hidden(model), (size_t)(N * D));
    ops->download(ops, hidden, model->rows_fp32, (size_t)(N * D) * sizeof(float));
  }
  if (logits != NULL && rows > 0) {
    plm_model_head_forward(model, &pass, (float)model->config.soft_logit_cap);
    ops->download(ops, logits, model->logits,
                  (size_t)rows * model->config.vocab_size * sizeof(float));
  }
  return ops->synchronize(ops, error);
}
