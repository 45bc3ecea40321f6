/* The forward pass over the device's buffers: token embeddings, the blocks in their order, and the
 * head up to the logits. What a pass works on is prepared by model_pass.c and decode.c. */
#include <math.h>

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

struct plm_qkv plm_model_qkv(const struct plm_model *model, const struct model_pass *pass,
                             const struct model_block *block)
{
  const struct plm_attention_shape shape = plm_model_attention_shape(model, pass, block);
  struct plm_qkv qkv = {.qkv = block->qkv_raw,
                        .a = model_value(model, block->places.value_mix),
                        .cosine = model->rotary[block->shape.level].cosine,
                        .sine = model->rotary[block->shape.level].sine,
                        .B = shape.B,
                        .L = shape.L,
                        .H = shape.H,
                        .K = shape.K};
  qkv.norm = block->shape.traits->qk_norm;
  if (qkv.norm != PLM_QK_NORM_WIDTH) return qkv;
  qkv.eps = (float)model->config.layer_norm_eps;
  qkv.q_weight = model_value(model, block->places.q_norm);
  qkv.k_weight = model_value(model, block->places.k_norm);
  if (model->options.training) {
    qkv.dq_weight = model_gradient(model, block->places.q_norm);
    qkv.dk_weight = model_gradient(model, block->places.k_norm);
  }
  return qkv;
}

struct plm_mix plm_model_mix(const struct plm_model *model, const struct model_block *block)
{
  const struct block_places *places = &block->places;
  struct plm_mix mix = {.x = block->x, .b = model_value(model, places->input_mix)};
  if (block->projects) {
    mix.p = block->p;
  } else if (block->shape.level > 0) {
    mix.p = model->x0[block->shape.level];
  } else { /* a table of a few kilobytes stays in a cache, where x0 is as large as x */
    mix.p = model->tables[0].rounded;
    mix.p_rows = model->tokens;
  }
  if (block->shape.skip >= 0) {
    mix.skip = model->blocks[block->shape.skip].out;
    mix.s = model_value(model, places->skip_weight);
  }
  return mix;
}

/* x -> mixed and h; in a plain block, x -> h */
void plm_model_block_mix(struct plm_model *model, const struct model_pass *pass,
                         const struct model_block *block)
{
  struct plm_ops *ops = model->ops;
  const struct plm_block_shape *shape = &block->shape;
  const int64_t N = pass_rows(pass, shape->level), D = shape->width;
  if (plm_model_by_token(model, block)) {
    plm_model_token_rows_mix(model, pass);
    return;
  }
  if (shape->kind == PLM_BLOCK_PLAIN) {
    model_norm_forward(model, &block->places.norm, block->h, block->x, N, D);
    return;
  }
  if (block->projects)
    model_block_product(model, &(struct model_product){.weight = block->places.projection},
                        block->p, model->x0[shape->level], NULL, N, model->config.hidden_size, D);
  const struct plm_mix mix = plm_model_mix(model, block);
  ops->mix_norm_forward(ops, block->mixed, block->h, &mix, N, D);
}

const struct plm_interval_mask *plm_model_mask(const struct plm_model *model,
                                               const struct model_pass *pass,
                                               const struct model_block *block)
{
  if (block == pass->narrowed && pass->narrows_attention) return &model->narrow;
  return plm_masks_at(pass->masks, block->shape.level, (int)block->shape.entry);
}

static void narrow_attention(struct plm_model *model, const struct model_pass *pass,
                             const struct model_block *block)
{
  if (block != pass->narrowed || !pass->narrows_attention) return;
  const struct plm_interval_mask *whole = plm_masks_at(pass->masks, 0, (int)block->shape.entry);
  model->ops->narrow_mask(model->ops, model->narrow_begin, model->narrow_end, whole,
                          pass->positions, pass->R);
  model->narrow = *whole;
  model->narrow.key_begin = model->narrow_begin;
  model->narrow.key_end = model->narrow_end;
}

/* qkv_raw -> attended, for whole chunks. */
static void attend(struct plm_model *model, const struct model_pass *pass,
                   const struct model_block *block)
{
  struct plm_ops *ops = model->ops;
  const struct plm_attention_shape shape = plm_model_attention_shape(model, pass, block);
  const struct plm_qkv in = plm_model_qkv(model, pass, block);
  if (block->table >= 0) {
    const struct plm_value_table value = plm_model_value_table(model, block);
    ops->qkv_value_forward(ops, block->qkv, &in, &value);
  } else {
    ops->qkv_prepare_forward(ops, block->qkv, &in);
  }
  const struct plm_attention_inputs prepared =
      plm_attention_inputs_of(block->qkv, (size_t)block->shape.width * ops->act_bytes);
  narrow_attention(model, pass, block);
  ops->attention_forward(ops, block->attended, block->lse, &prepared,
                         plm_model_mask(model, pass, block), &shape);
}

/* qkv_raw -> attended for rows of incremental decoding; their keys and values go to the cache. */
static void attend_cached(struct plm_model *model, const struct model_pass *pass,
                          const struct model_block *block)
{
  struct plm_ops *ops = model->ops;
  const struct decode_pass *decode = pass->decode;
  struct plm_cached_rows rows = decode->rows;
  const int64_t N = rows.rows, D = block->shape.width;
  const act *value_embedding = NULL;
  if (block->table >= 0) {
    ops->token_mean_forward(ops, model->value_embedding, model->tables[block->table].vectors,
                            model->tokens, N, D, model->config.vocab_size, block->shape.level);
    value_embedding = model->value_embedding;
  }
  char *keys = decode->cache + 2 * (size_t)(block - model->blocks) * decode->part_bytes;
  rows.key_begin += block->shape.entry * N;
  /* qkv_prepare sees the rows as one chunk of N positions, with each row's own rotary angles. */
  const struct plm_qkv in = {.qkv = block->qkv_raw,
                             .vi = value_embedding,
                             .a = model_value(model, block->places.value_mix),
                             .cosine = decode->cosine,
                             .sine = decode->sine,
                             .B = 1,
                             .L = N,
                             .H = rows.H,
                             .K = rows.K,
                             .norm = block->shape.traits->qk_norm};
  ops->qkv_prepare_forward(ops, block->qkv, &in);
  ops->attention_cached(ops, block->attended, keys, keys + decode->part_bytes, block->qkv,
                        act_at(model, block->qkv, D), act_at(model, block->qkv, 2 * D), &rows);
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
  model_block_product(model, &block->places.output, block->y, attended, mixed, N, D, D);
  model_adapters_forward(model, pass, &block->places.output.adapters, block->y, attended, N);
}

/* h -> y */
void plm_model_block_attention(struct plm_model *model, const struct model_pass *pass,
                               const struct model_block *block)
{
  if (block->shape.kind == PLM_BLOCK_BOTTLENECK) return;
  const int64_t N = pass_rows(pass, block->shape.level), D = block->shape.width;
  if (plm_model_by_token(model, block))
    plm_model_token_rows_qkv(model, pass);
  else
    model_block_product(model, &block->places.qkv, block->qkv_raw, block->h, NULL, N, D, 3 * D);
  model_adapters_forward(model, pass, &block->places.qkv.adapters, block->qkv_raw, block->h, N);
  if (pass->decode != NULL)
    attend_cached(model, pass, block);
  else
    attend(model, pass, block);
  block_output(model, pass, block);
}

/* y -> hidden; in a bottleneck, the mix has computed h2 already */
void plm_model_block_hidden(struct plm_model *model, const struct model_pass *pass,
                            const struct model_block *block)
{
  const int64_t N = block_rows(pass, block);
  if (block->shape.kind != PLM_BLOCK_BOTTLENECK)
    model_norm_forward(model, &block->places.mlp_norm, block->h2, block->y, N, block->shape.width);
  model_mlp_forward(model, pass, block, N);
}

/* If the previous block is on another level, a merge or expand turns its output into x. */
static void block_input(struct plm_model *model, const struct model_pass *pass,
                        const struct model_block *block)
{
  const struct plm_block_shape *shape = &block->shape;
  if (shape->input == PLM_INPUT_SAME) return;
  int64_t I, O;
  model_resample_sizes(model, shape, &I, &O);
  model_block_product(model, &(struct model_product){.weight = block->places.resample}, block->x,
                      block->input, NULL, pass_rows(pass, shape->resample + 1), I, O);
}

/* Brings activations to the room of the taps. Returns whether they are there; a failed download
 * shows when the pass is synchronised. The buffer for fp32 rows takes `part` elements, of which
 * there is a whole number. */
static bool bring(struct plm_model *model, const struct model_pass *pass, act *x, size_t elements,
                  size_t part)
{
  struct plm_ops *ops = model->ops;
  for (size_t done = 0; done < elements; done += part) {
    ops->act_to_float(ops, model->rows_fp32, act_at(model, x, (int64_t)done), part);
    ops->download(ops, pass->taps->room + done, model->rows_fp32, part * sizeof(float));
  }
  return ops->synchronize(ops, NULL) == PLM_OK;
}

/* Hands out a state, if it is wanted: what the stream holds, without its scale, and after the last
 * block of published weights its norm. */
static void tap(struct plm_model *model, const struct model_pass *pass, uint32_t state, act *x,
                size_t elements)
{
  double scale = plm_architecture_stream_scale(&model->config);
  bool wanted = false;
  for (uint32_t i = 0; pass->taps != NULL && i < pass->taps->count; i++)
    wanted = wanted || pass->taps->states[i] == state;
  if (!wanted) return;
  if (state == model->block_count && model->rules->published) {
    (void)plm_model_state_after(model, pass);
    x = model->head_norm;
    scale = 1.0;
  }
  if (!bring(model, pass, x, elements, elements)) return;
  for (size_t i = 0; scale != 1.0 && i < elements; i++)
    pass->taps->room[i] = (float)(pass->taps->room[i] / scale);
  pass->taps->on_state(pass->taps->context, state);
}

/* Hands out the queries, keys and values of a block, if they are wanted. */
static void tap_attention(struct plm_model *model, const struct model_pass *pass, uint32_t block)
{
  const struct plm_block_shape *shape = &model->blocks[block].shape;
  if (pass->taps == NULL || pass->taps->on_attention == NULL) return;
  if (shape->kind == PLM_BLOCK_BOTTLENECK) return;
  const size_t elements = (size_t)(pass_rows(pass, shape->level) * shape->width);
  if (bring(model, pass, model->blocks[block].qkv, 3 * elements, elements))
    pass->taps->on_attention(pass->taps->context, block);
}

struct embedded_rows plm_model_embedded_batch(const struct plm_model *model,
                                              const struct model_pass *pass)
{
  struct embedded_rows rows = {.tokens = model->tokens,
                               .B = pass->B,
                               .L = pass->L,
                               .factors = model->dropout_factors,
                               .before = model->embedded,
                               .x = model->x0[0]};
  if (!model_scales_dropout(model)) return rows;
  const struct plm_interval_mask *documents = plm_masks_at(pass->masks, 0, 0);
  rows.begin = documents->key_begin;
  rows.end = documents->key_end;
  return rows;
}

void plm_model_embed(struct plm_model *model, const struct embedded_rows *rows)
{
  struct plm_ops *ops = model->ops;
  const int64_t N = rows->B * rows->L, D = model->config.hidden_size;
  const float scale = (float)plm_architecture_stream_scale(&model->config);
  act *first = rows->before != NULL ? rows->before : rows->x;
  ops->token_mean_forward(ops, first, model->tables[0].vectors, rows->tokens, N, D,
                          model->config.vocab_size, 0);
  if (model_scales_dropout(model)) {
    const struct plm_token_dropout of = {.tokens = rows->tokens,
                                         .begin = rows->begin,
                                         .end = rows->end,
                                         .B = rows->B,
                                         .L = rows->L,
                                         .mask_token = plm_architecture_mask_token(&model->config)};
    ops->token_dropout(ops, rows->factors, &of);
    ops->scale_rows(ops, first, rows->factors, N, D);
  }
  if (scale != 1.0f) ops->scale(ops, first, scale, N * D);
  if (rows->before != NULL) model_norm_forward(model, &model->embedding_norm, rows->x, first, N, D);
}

/* tokens -> x0 on all levels */
static void embed(struct plm_model *model, const struct model_pass *pass)
{
  struct plm_ops *ops = model->ops;
  const struct embedded_rows rows = plm_model_embedded_batch(model, pass);
  plm_model_embed(model, &rows);
  for (int level = 1; level < model->levels; level++)
    ops->token_mean_forward(ops, model->x0[level], model->tables[0].vectors, model->tokens,
                            pass_rows(pass, level), model->config.hidden_size,
                            model->config.vocab_size, level);
}

void plm_model_blocks_forward(struct plm_model *model, const struct model_pass *pass)
{
  embed(model, pass);
  plm_model_choose_token_rows(model, pass);
  tap(model, pass, 0, model->x0[0], (size_t)(pass_rows(pass, 0) * model->config.hidden_size));
  for (uint32_t i = 0; i < model->block_count; i++) {
    const struct model_block *block = &model->blocks[i];
    block_input(model, pass, block);
    plm_model_block_mix(model, pass, block);
    plm_model_block_attention(model, pass, block);
    tap_attention(model, pass, i);
    plm_model_block_hidden(model, pass, block);
    model_block_product(model, &block->places.down, block->out, block->hidden, block->y,
                        block_rows(pass, block), block->shape.hidden, block->shape.width);
    model_adapters_forward(model, pass, &block->places.down.adapters, block->out, block->hidden,
                           block_rows(pass, block));
    tap(model, pass, i + 1, block->out, (size_t)(block_rows(pass, block) * block->shape.width));
  }
}

const act *plm_model_last_hidden(const struct plm_model *model)
{
  return model->blocks[model->block_count - 1].out;
}

const act *plm_model_state_after(const struct plm_model *model, const struct model_pass *pass)
{
  const act *x = plm_model_last_hidden(model);
  if (!model->rules->published) return x;
  model_norm_forward(model, &model->final_norm, model->head_norm, x, pass_rows(pass, 0),
                     model->config.hidden_size);
  return model->head_norm;
}

const act *plm_model_head_input(const struct plm_model *model, const struct model_pass *pass)
{
  return pass->positions == NULL || pass->narrowed != NULL ? plm_model_last_hidden(model)
                                                           : model->head_x;
}

void plm_model_head_dense(struct plm_model *model, const struct model_pass *pass)
{
  struct plm_ops *ops = model->ops;
  const int64_t R = pass->R, D = model->config.hidden_size;
  const act *x = plm_model_head_input(model, pass);
  if (x == model->head_x)
    ops->gather_rows(ops, model->head_x, plm_model_last_hidden(model), pass->positions, R, D);
  model_norm_forward(model, &model->final_norm, model->head_norm, x, R, D);
  if (model->head_activated == NULL) {
    model_product_forward(model, &model->dense, model->head_dense, model->head_norm, NULL, R, D, D);
    return;
  }
  const struct plm_biased_linear dense = {model_weight(model, model->dense.weight),
                                          model_value(model, model->dense.bias)};
  ops->linear_bias_gelu_forward(ops, model->head_gelu,
                                model->options.training ? model->head_dense : NULL,
                                model->head_norm, &dense, R, D, D);
  model_norm_forward(model, &model->head_norm_after, model->head_activated, model->head_gelu, R, D);
}

void plm_model_head_forward(struct plm_model *model, const struct model_pass *pass, float cap)
{
  struct plm_ops *ops = model->ops;
  const int64_t R = pass->R, D = model->config.hidden_size, V = model->config.vocab_size;
  plm_model_head_dense(model, pass);
  const act *activated = model->head_activated;
  if (activated == NULL) {
    ops->gelu_forward(ops, model->head_gelu, model->head_dense, R * D);
    activated = model->head_gelu;
  }
  ops->logits_forward(ops, model->logits, activated, model_weight(model, model->decoder),
                      model_value(model, model->bias), R, D, V);
  if (cap != 0.0f) ops->soft_cap_forward(ops, model->logits, R * V, cap);
}
