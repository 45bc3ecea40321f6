/* The entry points of a pass: a batch is checked, uploaded and run forward, backward or to logits.
 */
#include <string.h>

#include "common/model/model_state.h"

void plm_model_attention_masks(const struct plm_model *model, const struct plm_batch *batch,
                               uint32_t window, struct plm_masks *masks)
{
  PLM_ASSERT(plm_masks_fit(masks, &model->config));
  plm_masks_fill(masks, batch, window);
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

static plm_status check_targets(const struct plm_model *model, const struct plm_batch *batch,
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

struct model_pass plm_model_start_pass(struct plm_model *model,
                                       const struct plm_masked_batch *input, const int32_t *inputs)
{
  const struct plm_batch *batch = input->batch;
  model->ops->upload(model->ops, model->tokens, inputs,
                     (size_t)batch->chunks * batch->max_length * sizeof *inputs);
  return (struct model_pass){
      .B = (int32_t)batch->chunks, .L = (int32_t)batch->max_length, .masks = input->masks};
}

uint32_t plm_model_rows(const struct plm_ops *ops, uint64_t positions, uint64_t rows)
{
  enum { PARTS = 16 };
  if (ops->record_begin == NULL) return (uint32_t)rows;
  const uint64_t part = (positions + PARTS - 1) / PARTS, rounded = (rows + part - 1) / part * part;
  return (uint32_t)(rounded < positions ? rounded : positions);
}

/* Whether the attention of the last block computes only the queries that are read. Where a query
 * sees its whole document, leaving out others changes no bit of its result: the keys that it sees,
 * and their order, stay the same. The gradients of keys and values are sums over queries, which may
 * be rounded differently if several queries of a document are read. It pays if about one query of
 * each tile is read, as with one row for each document. */
static bool narrows_attention(const struct plm_model *model, const struct model_pass *pass)
{
  const uint32_t entry = pass->narrowed->shape.entry;
  return model->ops->narrow_mask != NULL && pass->R * PLM_MASK_TILE <= pass_rows(pass, 0) &&
         model->config.pattern[entry] == PLM_ATTENTION_DOCUMENT;
}

void plm_model_pass_reads(const struct plm_model *model, struct model_pass *pass,
                          const int32_t *positions, int64_t R)
{
  pass->positions = positions;
  pass->R = positions != NULL ? R : pass_rows(pass, 0);
  pass->narrowed = NULL;
  if (pass->R == 0 || 2 * pass->R > pass_rows(pass, 0)) return;
  const struct model_block *last = &model->blocks[model->block_count - 1];
  PLM_ASSERT(last->shape.level == 0);
  if (last->shape.kind == PLM_BLOCK_BOTTLENECK) return;
  pass->narrowed = last;
  pass->narrows_attention = narrows_attention(model, pass);
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

/* Checks and uploads a batch with its targets, and sets up the pass. */
static plm_status start_targets(struct plm_model *model, const struct plm_masked_batch *input,
                                const struct plm_targets *targets, struct model_pass *pass,
                                struct plm_error *error)
{
  struct plm_ops *ops = model->ops;
  const size_t rows = targets->rows;
  PLM_TRY(plm_model_check_batch(model, input->batch, targets->inputs, error));
  PLM_TRY(check_targets(model, input->batch, targets, error));
  *pass = plm_model_start_pass(model, input, targets->inputs);
  if (rows == 0) return PLM_OK;
  plm_model_pass_asks(model, pass, targets->positions, rows);
  ops->zero(ops, model->labels, (size_t)pass->R * sizeof(int32_t));
  ops->zero(ops, model->label_weights, (size_t)pass->R * sizeof(float));
  ops->upload(ops, model->labels, targets->labels, rows * sizeof(int32_t));
  ops->upload(ops, model->label_weights, targets->weights, rows * sizeof(float));
  return PLM_OK;
}

plm_status plm_model_fetch_loss(struct plm_model *model, size_t R, struct plm_loss_result *result,
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

plm_status plm_model_forward(struct plm_model *model, const struct plm_masked_batch *input,
                             const struct plm_targets *targets, const struct plm_loss_options *loss,
                             struct plm_loss_result *result, float *row_loss,
                             struct plm_error *error)
{
  struct plm_ops *ops = model->ops;
  struct model_pass pass;
  PLM_TRY(start_targets(model, input, targets, &pass, error));
  if (pass.R > 0) {
    plm_model_blocks_forward(model, &pass);
    plm_model_head_forward(model, &pass, loss->soft_cap);
    ops->cross_entropy(ops, model->row_loss, model->logits, model->labels, model->label_weights,
                       loss, pass.R, model->config.vocab_size);
  }
  return plm_model_fetch_loss(model, targets->rows, result, row_loss, error);
}

plm_status plm_model_gradients(struct plm_model *model, const struct plm_masked_batch *input,
                               const struct plm_targets *targets,
                               const struct plm_loss_options *loss, float loss_scale,
                               struct plm_loss_result *result, float *row_loss,
                               struct plm_error *error)
{
  struct model_pass pass;
  PLM_TRY(start_targets(model, input, targets, &pass, error));
  if (pass.R > 0) {
    plm_model_train_head(model, &pass, loss, loss_scale);
    plm_model_train_blocks(model, &pass, plm_model_whole_pass(model));
  }
  return plm_model_fetch_loss(model, targets->rows, result, row_loss, error);
}

struct plm_device_targets plm_model_device_targets(struct plm_model *model)
{
  return (struct plm_device_targets){model->tokens, model->positions, model->labels,
                                     model->label_weights};
}

struct plm_backward_part plm_model_whole_pass(const struct plm_model *model)
{
  return (struct plm_backward_part){0, model->block_count};
}

void plm_model_train(struct plm_model *model, const struct plm_train_pass *of,
                     struct plm_backward_part part)
{
  struct model_pass pass = {.B = (int32_t)of->chunks, .L = (int32_t)of->length, .masks = of->masks};
  PLM_ASSERT(of->chunks > 0 && of->chunks <= model->options.max_chunks);
  PLM_ASSERT(of->length <= model->config.max_length && of->rows <= of->chunks * of->length);
  if (of->rows == 0) return; /* neither loss nor gradient */
  const bool labels = model->config.head.kind != PLM_PREDICTS_TOKENS;
  if (labels)
    plm_model_pass_labels(model, &pass, of->rows);
  else
    plm_model_pass_reads(model, &pass, model->positions, of->rows);
  pass.dropped = of->labels;
  pass.dropout_seed = of->dropout_seed;
  if (pass.dropout_seed != NULL) pass.narrowed = NULL; /* keys are those of all rows */
  if (part.end == model->block_count) {
    if (labels)
      plm_model_train_labels(model, &pass, of->labels, 1);
    else
      plm_model_train_head(model, &pass, of->loss, 1);
    model->ops->add_sum(model->ops, of->loss_sum, model->row_loss, of->rows);
    if (of->hit_sum != NULL) model->ops->add_sum(model->ops, of->hit_sum, model->hits, of->rows);
    if (of->chunk_losses != NULL)
      model->ops->sum_chunks(model->ops, of->chunk_losses, model->row_loss, model->positions,
                             of->rows, of->chunks, of->length);
  }
  plm_model_train_blocks(model, &pass, part);
}

plm_status plm_model_infer(struct plm_model *model, const struct plm_masked_batch *input,
                           const int32_t *inputs, const int32_t *positions, uint32_t rows,
                           float *hidden, float *logits, struct plm_error *error)
{
  struct plm_ops *ops = model->ops;
  PLM_TRY(plm_model_check_batch(model, input->batch, inputs, error));
  struct model_pass pass = plm_model_start_pass(model, input, inputs);
  const int64_t N = pass_rows(&pass, 0), D = model->config.hidden_size;
  if (positions == NULL) rows = (uint32_t)N;
  if (rows > N)
    return plm_error_set(error, PLM_LIMIT,
                         "logits of %u positions were requested, but the batch has %ld", rows,
                         (long)N);
  for (uint32_t i = 0; positions != NULL && i < rows; i++)
    if (positions[i] < 0 || positions[i] >= N)
      return plm_error_set(error, PLM_CORRUPT,
                           "position %d is outside the %ld positions of the batch", positions[i],
                           (long)N);
  plm_model_pass_asks(model, &pass, positions, rows);
  if (hidden != NULL) pass.narrowed = NULL; /* all rows are wanted */
  plm_model_blocks_forward(model, &pass);
  if (hidden != NULL) {
    ops->act_to_float(ops, model->rows_fp32, plm_model_state_after(model, &pass), (size_t)(N * D));
    ops->download(ops, hidden, model->rows_fp32, (size_t)(N * D) * sizeof(float));
  }
  if (logits != NULL && rows > 0) {
    plm_model_head_forward(model, &pass, (float)model->config.soft_logit_cap);
    ops->download(ops, logits, model->logits,
                  (size_t)rows * model->config.vocab_size * sizeof(float));
  }
  return ops->synchronize(ops, error);
}

plm_status plm_model_infer_states(struct plm_model *model, const struct plm_masked_batch *input,
                                  const int32_t *inputs, const struct plm_state_taps *taps,
                                  struct plm_error *error)
{
  PLM_TRY(plm_model_check_batch(model, input->batch, inputs, error));
  struct model_pass pass = plm_model_start_pass(model, input, inputs);
  plm_model_pass_asks(model, &pass, NULL, (uint32_t)pass_rows(&pass, 0));
  pass.taps = taps;
  plm_model_blocks_forward(model, &pass);
  return model->ops->synchronize(model->ops, error);
}
