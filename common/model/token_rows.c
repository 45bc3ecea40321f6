/* The first block reads the embeddings, which are the same wherever a token is the same. Up to its
 * queries, keys and values it is therefore computed for the V tokens instead of for all rows, whose
 * results are copies; backward, the gradients of equal rows are added up first. Rows do not depend
 * on each other in these operators, so the outputs have the same bits either way; only queries,
 * keys and values of padding, which no other row reads, may differ. A sum of many gradients would
 * lose too much if it were rounded to bf16, so training does this only in fp32. */
#include <stdlib.h>

#include "common/model/model_state.h"

enum { REPEATS = 4 /* a pass has at least so many rows for each token */ };

bool plm_model_has_token_rows(const struct plm_model *model)
{
  if (model->options.training && model->act_bytes != sizeof(float)) return false;
  const struct model_block *first = &model->blocks[0];
  return first->shape.kind != PLM_BLOCK_BOTTLENECK && first->shape.level == 0 &&
         first->shape.input == PLM_INPUT_SAME && first->shape.skip < 0 && !first->projects &&
         first->places.qkv.adapters.parts == 0 &&
         (uint64_t)model->options.max_chunks * model->config.max_length >=
             (uint64_t)REPEATS * model->config.vocab_size;
}

plm_status plm_model_upload_token_rows(struct plm_model *model, struct plm_error *error)
{
  struct token_rows *rows = &model->token_rows;
  const size_t V = model->config.vocab_size;
  if (rows->tokens == NULL) return PLM_OK;
  int32_t *numbers = malloc((V + 1) * sizeof *numbers);
  if (numbers == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the numbers of %zu tokens", V);
  for (size_t i = 0; i <= V; i++) numbers[i] = (int32_t)i;
  model->ops->upload(model->ops, rows->tokens, numbers, (V + 1) * sizeof *numbers);
  free(numbers);
  return PLM_OK;
}

/* Whether a token is <mask>, whose document is then scaled by another factor than the others. */
static bool any_is_masked(struct plm_model *model, int64_t N)
{
  const int32_t mask = plm_architecture_mask_token(&model->config);
  int32_t *tokens = model->host_positions;
  model->ops->download(model->ops, tokens, model->tokens, (size_t)N * sizeof *tokens);
  for (int64_t n = 0; n < N; n++)
    if (tokens[n] == mask) return true;
  return false;
}

void plm_model_choose_token_rows(struct plm_model *model, const struct model_pass *pass)
{
  struct token_rows *rows = &model->token_rows;
  const int64_t N = pass_rows(pass, 0), V = model->config.vocab_size;
  rows->in_use = rows->tokens != NULL && model->ops->shares_rows && pass->decode == NULL &&
                 N >= REPEATS * V && (!model_scales_dropout(model) || !any_is_masked(model, N));
}

bool plm_model_by_token(const struct plm_model *model, const struct model_block *block)
{
  return block == model->blocks && model->token_rows.in_use;
}

struct embedded_rows plm_model_embedded_tokens(const struct plm_model *model)
{
  const struct token_rows *rows = &model->token_rows;
  /* each token is a document of its own */
  return (struct embedded_rows){.tokens = rows->tokens,
                                .begin = rows->tokens,
                                .end = rows->tokens + 1,
                                .B = 1,
                                .L = model->config.vocab_size,
                                .factors = rows->factors,
                                .before = rows->before,
                                .x = rows->x};
}

static struct plm_mix mix_of(const struct plm_model *model)
{
  struct plm_mix mix = plm_model_mix(model, model->blocks);
  mix.x = model->token_rows.x;
  mix.p_rows = model->token_rows.tokens;
  return mix;
}

void plm_model_token_rows_mix(struct plm_model *model, const struct model_pass *pass)
{
  struct plm_ops *ops = model->ops;
  const struct model_block *block = model->blocks;
  const struct token_rows *rows = &model->token_rows;
  const struct embedded_rows of = plm_model_embedded_tokens(model);
  const int64_t V = of.L, D = block->shape.width;
  plm_model_embed(model, &of);
  if (block->shape.kind == PLM_BLOCK_PLAIN) {
    model_norm_forward(model, &block->places.norm, rows->h, rows->x, V, D);
    return;
  }
  const struct plm_mix mix = mix_of(model);
  ops->mix_norm_forward(ops, rows->mixed, rows->h, &mix, V, D);
  ops->gather_rows(ops, block->mixed, rows->mixed, model->tokens, pass_rows(pass, 0), D);
}

void plm_model_token_rows_qkv(struct plm_model *model, const struct model_pass *pass)
{
  const struct model_block *block = model->blocks;
  const struct token_rows *rows = &model->token_rows;
  const int64_t V = model->config.vocab_size, D = block->shape.width;
  model_block_product(model, &block->places.qkv, rows->qkv, rows->h, NULL, V, D, 3 * D);
  model->ops->gather_rows(model->ops, block->qkv_raw, rows->qkv, model->tokens, pass_rows(pass, 0),
                          3 * D);
}

/* sums_VD = the sums of the gradients of equal rows */
static void sum_rows(struct plm_model *model, const struct model_pass *pass, act *sums,
                     const act *gradient, int64_t D)
{
  struct plm_ops *ops = model->ops;
  const int64_t V = model->config.vocab_size;
  PLM_ASSERT(model->act_bytes == sizeof(float));
  ops->zero(ops, sums, (size_t)(V * D) * sizeof(float));
  ops->token_mean_backward(ops, sums, gradient, model->tokens, pass_rows(pass, 0), D, V, 0);
}

void plm_model_token_rows_qkv_backward(struct plm_model *model, const struct model_pass *pass,
                                       const act *dqkv)
{
  struct plm_ops *ops = model->ops;
  const struct model_block *block = model->blocks;
  const struct token_rows *rows = &model->token_rows;
  const int64_t V = model->config.vocab_size, D = block->shape.width;
  sum_rows(model, pass, rows->qkv, dqkv, 3 * D);
  model_product_backward(model, &block->places.qkv, rows->qkv, rows->h, V, D, 3 * D);
  if (block->reach == REACH_QKV) return;
  ops->linear_backward_input(ops, rows->dh, rows->qkv,
                             model_weight(model, block->places.qkv.weight), V, D, 3 * D, false);
}

void plm_model_token_rows_mix_backward(struct plm_model *model, const struct model_pass *pass)
{
  struct plm_ops *ops = model->ops;
  const struct model_block *block = model->blocks;
  const struct token_rows *rows = &model->token_rows;
  const int64_t V = model->config.vocab_size, D = block->shape.width;
  const size_t bytes = (size_t)(V * D) * model->act_bytes;
  if (block->shape.kind == PLM_BLOCK_PLAIN) {
    ops->zero(ops, rows->dx, bytes);
    model_norm_backward(model, &block->places.norm, rows->dx, rows->dh, rows->x, V, D);
    return;
  }
  const struct plm_mix mix = mix_of(model);
  const struct plm_mix_gradients to = {
      .dx = rows->dx, .dp = rows->dp, .db = model_gradient(model, block->places.input_mix)};
  sum_rows(model, pass, rows->dx, model->stream[0], D);
  ops->zero(ops, rows->dp, bytes);
  ops->mix_norm_backward(ops, &to, rows->dx, rows->dh, &mix, V, D);
}
