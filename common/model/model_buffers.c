/* The layout of a model's buffers: which ones each block keeps until its backward pass, and which
 * ones all blocks share. It is computed twice: to count bytes, and to set pointers.
 *
 *   recompute: none    a block keeps everything that its backward pass reads
 *   recompute: mlp     h2 and hidden are shared; the backward pass computes them again from y
 *   recompute: block   everything but the block's input and output is shared and computed again
 *   inference          as `block`, but the residual stream alternates between two buffers, and only
 *                      outputs that a skip will read are kept. The same holds for blocks that no
 *                      backward pass reaches, because they and all before them are frozen
 */
#include <string.h>

#include "common/base/numbers/size.h"
#include "common/model/model_state.h"

enum { ALIGN_BYTES = 256 };

/* The limits of a configuration and of a pass keep every single size far below 2^64. Their sum over
 * all blocks may exceed it, so sums saturate, and plm_model_open checks the result. */
static void *arena_reserve(struct plm_arena *arena, size_t bytes)
{
  void *place = (void *)(arena->base + arena->used_bytes);
  arena->used_bytes = plm_size_sum(arena->used_bytes, plm_size_round_up(bytes, ALIGN_BYTES));
  return place;
}

static size_t model_buffers_larger(size_t a, size_t b)
{
  return a > b ? a : b;
}

struct layout {
  struct plm_model *model;
  size_t act_bytes;
  act *slot[2];               /* the residual stream's two buffers, in blocks that keep nothing */
  size_t largest_rows_width;  /* elements: the largest N_k D_k of the blocks */
  size_t largest_rows_hidden; /* elements: the largest N_k F */
  size_t largest_rows_before; /* elements: of the blocks' `before` */
  struct model_block shared;  /* the buffers that blocks share */
};

/* The rows of a level in the largest batch. */
static size_t level_rows(const struct plm_model *model, int level)
{
  return (size_t)model->options.max_chunks * (model->config.max_length >> level);
}

static act *reserve_act(struct layout *layout, struct plm_arena *arena, size_t elements)
{
  return arena_reserve(arena, plm_size_product(elements, layout->act_bytes));
}

/* The elements of a block's `before` for a number of rows. */
static size_t before_elements(const struct layout *layout, const struct plm_block_shape *shape,
                              size_t rows)
{
  switch (shape->traits->mlp) {
  case PLM_MLP_GELU: return layout->model->options.training ? rows * shape->hidden : 0;
  case PLM_MLP_SWIGLU: return 2 * rows * shape->hidden;
  default: return 0;
  }
}

static void model_buffers_measure(struct layout *layout)
{
  const struct plm_model *model = layout->model;
  size_t *width = &layout->largest_rows_width, *hidden = &layout->largest_rows_hidden;
  for (uint32_t i = 0; i < model->block_count; i++) {
    const struct plm_block_shape *shape = &model->blocks[i].shape;
    const size_t rows = level_rows(model, shape->level);
    if (rows * shape->width > *width) *width = rows * shape->width;
    if (rows * shape->hidden > *hidden) *hidden = rows * shape->hidden;
    const size_t before = before_elements(layout, shape, rows);
    if (before > layout->largest_rows_before) layout->largest_rows_before = before;
  }
}

/* Whether all blocks keep what their backward pass reads. */
static bool all_keep(const struct plm_model *model)
{
  return model->options.training && model->trained_from == 0;
}

/* A buffer for the residual stream of a block, other than `live`, which has yet to be read. */
static act *reserve_stream(struct layout *layout, const struct model_block *block, const act *live,
                           size_t elements)
{
  if (block->keeps) return reserve_act(layout, &layout->model->activations, elements);
  return layout->slot[0] == live ? layout->slot[1] : layout->slot[0];
}

static void place_attention(struct layout *layout, struct plm_arena *arena,
                            struct model_block *block, size_t n, size_t rows)
{
  block->h = reserve_act(layout, arena, n);
  block->qkv_raw = reserve_act(layout, arena, 3 * n);
  block->qkv = reserve_act(layout, arena, 3 * n);
  block->attended = reserve_act(layout, arena, n);
  block->lse =
      arena_reserve(arena, rows * layout->model->config.num_attention_heads * sizeof(float));
}

static void place_mlp(struct layout *layout, struct plm_arena *arena, struct model_block *block,
                      size_t rows_width, size_t rows_hidden, size_t before)
{
  block->h2 = reserve_act(layout, arena, rows_width);
  block->hidden = reserve_act(layout, arena, rows_hidden);
  if (before > 0) block->before = reserve_act(layout, arena, before);
}

/* The shared buffers, large enough for every block. */
static void place_shared(struct layout *layout)
{
  struct plm_model *model = layout->model;
  struct plm_arena *arena = &model->activations;
  const bool share = !all_keep(model);
  const size_t n = layout->largest_rows_width;
  if (share)
    for (int i = 0; i < 2; i++) layout->slot[i] = reserve_act(layout, arena, n);
  if (share || model->options.recompute == PLM_RECOMPUTE_BLOCK) {
    layout->shared.p = reserve_act(layout, arena, n);
    layout->shared.y = reserve_act(layout, arena, n);
    place_attention(layout, arena, &layout->shared, n, level_rows(model, 0));
  }
  if (share || model->options.recompute != PLM_RECOMPUTE_NONE)
    place_mlp(layout, arena, &layout->shared, n, layout->largest_rows_hidden,
              layout->largest_rows_before);
}

static void place_input(struct layout *layout, uint32_t i)
{
  struct plm_model *model = layout->model;
  struct model_block *block = &model->blocks[i];
  const size_t n = level_rows(model, block->shape.level) * block->shape.width;
  block->input = i == 0 ? model->x0[0] : model->blocks[i - 1].out;
  block->x = block->input;
  if (block->shape.input != PLM_INPUT_SAME)
    block->x = reserve_stream(layout, block, block->input, n);
}

static void place_block(struct layout *layout, uint32_t i)
{
  struct plm_model *model = layout->model;
  struct model_block *block = &model->blocks[i];
  struct plm_arena *arena = &model->activations;
  const size_t rows = level_rows(model, block->shape.level);
  const size_t n = rows * block->shape.width, hidden = rows * block->shape.hidden;
  const enum plm_recompute recompute = model->options.recompute;

  place_input(layout, i);
  if (block->keeps && recompute != PLM_RECOMPUTE_BLOCK) {
    if (block->projects) block->p = reserve_act(layout, arena, n);
    if (block->shape.kind != PLM_BLOCK_BOTTLENECK) place_attention(layout, arena, block, n, rows);
    block->y = reserve_act(layout, arena, n);
  } else {
    block->p = layout->shared.p;
    block->h = layout->shared.h;
    block->qkv_raw = layout->shared.qkv_raw;
    block->qkv = layout->shared.qkv;
    block->attended = layout->shared.attended;
    block->lse = layout->shared.lse;
    block->y = layout->shared.y;
  }
  if (block->keeps && recompute == PLM_RECOMPUTE_NONE) {
    place_mlp(layout, arena, block, n, hidden, before_elements(layout, &block->shape, rows));
  } else {
    block->h2 = layout->shared.h2;
    block->hidden = layout->shared.hidden;
    block->before = layout->shared.before;
  }
  block->mixed = block->shape.kind == PLM_BLOCK_PLAIN ? block->x : block->y;
  if (block->shape.kind == PLM_BLOCK_BOTTLENECK) block->h = block->h2;
  block->out = !block->keeps && block->skipped_by >= 0 ? reserve_act(layout, arena, n)
                                                       : reserve_stream(layout, block, block->x, n);
}

/* The largest number of rows of a head that predicts labels. */
static size_t label_rows(const struct plm_model *model)
{
  return plm_model_most_label_rows(&model->config, level_rows(model, 0));
}

/* What such a head needs; the logits are its outputs. */
static void place_label_head(struct layout *layout, struct plm_arena *arena)
{
  struct plm_model *model = layout->model;
  const struct plm_head_config *head = &model->config.head;
  const size_t rows = label_rows(model), outputs = plm_size_product(rows, head->outputs);
  model->label_end = arena_reserve(arena, rows * sizeof(int32_t));
  model->label_keys = arena_reserve(arena, rows * sizeof(uint64_t));
  if (head->loss != PLM_LOSS_CLASS)
    model->label_values = arena_reserve(arena, plm_size_product(outputs, sizeof(float)));
  if (head->hidden > 0) {
    model->label_tanh = reserve_act(layout, arena, rows * head->hidden);
    model->label_kept = model->options.training && head->dropout > 0
                            ? reserve_act(layout, arena, rows * head->hidden)
                            : model->label_tanh;
  }
  model->logits = arena_reserve(arena, plm_size_product(outputs, sizeof(float)));
}

static void place_logits(struct layout *layout, struct plm_arena *arena)
{
  struct plm_model *model = layout->model;
  const size_t rows = level_rows(model, 0);
  if (model->rules->head_norm_name == NULL)
    model->head_gelu = reserve_act(layout, arena, rows * model->config.hidden_size);
  model->logits = arena_reserve(arena, rows * model->config.vocab_size * sizeof(float));
}

static void place_head(struct layout *layout)
{
  struct plm_model *model = layout->model;
  struct plm_arena *arena = &model->activations;
  const size_t rows = level_rows(model, 0);
  const size_t n = rows * model->config.hidden_size;
  model->positions = arena_reserve(arena, rows * sizeof(int32_t));
  model->labels = arena_reserve(arena, rows * sizeof(int32_t));
  model->label_weights = arena_reserve(arena, rows * sizeof(float));
  model->row_loss = arena_reserve(arena, rows * sizeof(float));
  model->hits = arena_reserve(arena, rows * sizeof(float));
  model->head_x = reserve_act(layout, arena, n);
  model->head_attended = reserve_act(layout, arena, (rows + 1) / 2 * model->config.hidden_size);
  model->narrow_begin = arena_reserve(arena, rows * sizeof(int32_t));
  model->narrow_end = arena_reserve(arena, rows * sizeof(int32_t));
  model->head_norm = reserve_act(layout, arena, n);
  if (model->config.head.kind != PLM_PREDICTS_TOKENS) {
    place_label_head(layout, arena);
    return;
  }
  model->head_dense = reserve_act(layout, arena, n);
  if (model->rules->head_norm_name != NULL) {
    model->head_gelu = reserve_act(layout, arena, n);
    model->head_activated =
        model->options.training ? reserve_act(layout, arena, n) : model->head_gelu;
  }
  if (!model->options.training) place_logits(layout, arena);
}

/* The rotary tables, which never change, and the token tables, which follow the weights. */
static void place_tables(struct plm_model *model)
{
  struct plm_arena *arena = &model->workspace;
  const uint32_t H = model->config.num_attention_heads;
  for (int level = 0; level < plm_architecture_attention_levels(&model->config); level++) {
    const size_t pairs = (size_t)(model->config.max_length >> level) *
                         (plm_architecture_width(&model->config, level) / H / 2);
    model->rotary[level].cosine = arena_reserve(arena, pairs * sizeof(float));
    model->rotary[level].sine = arena_reserve(arena, pairs * sizeof(float));
  }
  for (uint32_t i = 0; i < model->table_total; i++) {
    struct token_table *table = &model->tables[i];
    const size_t elements = (size_t)table->width * model->config.vocab_size;
    const size_t bytes = elements * sizeof(float);
    table->vectors = arena_reserve(arena, bytes);
    if (i == 0 && model->rules->mirrors)
      table->rounded = model->act_bytes == sizeof(float)
                           ? (act *)table->vectors
                           : arena_reserve(arena, elements * model->act_bytes);
    if (i == 0 && model->options.training && model->rules->normalises_tables)
      table->gradient = arena_reserve(arena, bytes);
  }
}

/* What adapters compute in. */
static void place_adapters(struct layout *layout)
{
  struct plm_model *model = layout->model;
  struct plm_arena *arena = &model->workspace;
  const struct plm_lora_config *lora = &model->config.lora;
  const size_t rows = level_rows(model, 0);
  const size_t wide = model_buffers_larger(layout->largest_rows_width, layout->largest_rows_hidden);
  if (lora->rank == 0) return;
  const bool gated = model->rules->block.mlp == PLM_MLP_SWIGLU;
  for (int i = 0; i < 2; i++)
    model->adapter_rank[i] = reserve_act(layout, arena, rows * lora->rank);
  model->adapter_wide[0] = reserve_act(layout, arena, wide);
  for (int parts = gated ? 2 : 3; parts <= 3; parts++)
    for (int part = 0; part < parts; part++)
      model->adapter_rows[parts - 2][part] = arena_reserve(arena, rows * sizeof(int32_t));
  if (!model->options.training || lora->dropout == 0) return;
  model->adapter_wide[1] = reserve_act(layout, arena, wide);
  model->adapter_keys = arena_reserve(
      arena, sizeof(uint64_t) * plm_model_adapter_keys(&model->config, model->options.max_chunks,
                                                       model->config.max_length));
}

/* The backward passes of the head, of an MLP and of an attention layer never run at the same time,
 * nor does inference with a model that is open for training. Their buffers therefore overlap. */
static void place_workspace(struct layout *layout)
{
  struct plm_model *model = layout->model;
  struct plm_arena *arena = &model->workspace;
  const size_t n = layout->largest_rows_width;
  const size_t outputs = level_rows(model, 0) * model->config.hidden_size;
  if (!model->options.training) {
    model->value_embedding = reserve_act(layout, arena, n);
    model->rows_fp32 = arena_reserve(arena, outputs * sizeof(float));
    return;
  }
  for (int i = 0; i < 2; i++) model->stream[i] = reserve_act(layout, arena, n);
  for (int level = 0; level < model->levels; level++)
    if (model->rules->mirrors)
      model->x0_gradient[level] =
          reserve_act(layout, arena, level_rows(model, level) * model->config.hidden_size);
  model->norm_gradient = reserve_act(layout, arena, n);

  const size_t start = arena->used_bytes;
  const size_t hidden = model->config.head.kind == PLM_PREDICTS_TOKENS
                            ? 0
                            : label_rows(model) * model->config.head.hidden;
  for (int i = 0; i < 2; i++)
    model->row_gradient[i] = reserve_act(layout, arena, model_buffers_larger(outputs, hidden));
  size_t end = arena->used_bytes;
  arena->used_bytes = start;
  model->hidden_gradient = reserve_act(layout, arena, layout->largest_rows_hidden);
  PLM_ASSERT(model->hidden_gradient == model->row_gradient[0]);
  end = model_buffers_larger(end, arena->used_bytes);
  arena->used_bytes = start;
  model->attended_gradient = reserve_act(layout, arena, n);
  PLM_ASSERT(model->attended_gradient == model->row_gradient[0]);
  model->qkv_gradient = reserve_act(layout, arena, 3 * n);
  model->value_embedding = reserve_act(layout, arena, n);
  model->value_gradient = reserve_act(layout, arena, n);
  model->projection_gradient =
      model->attended_gradient; /* no longer read once the pass reaches the block's input */
  end = model_buffers_larger(end, arena->used_bytes);
  arena->used_bytes = start;
  model->rows_fp32 = arena_reserve(arena, outputs * sizeof(float));
  PLM_ASSERT(model->rows_fp32 == model->row_gradient[0]);
  if (model->config.head.kind == PLM_PREDICTS_TOKENS) place_logits(layout, arena);
  arena->used_bytes = model_buffers_larger(end, arena->used_bytes);
}

/* What becomes x0 on level 0. */
static void place_embedding(struct layout *layout)
{
  struct plm_model *model = layout->model;
  const size_t rows = level_rows(model, 0);
  if (model_scales_dropout(model))
    model->dropout_factors = arena_reserve(&model->activations, rows * sizeof(float));
  if (model->config.emb_layer_norm_before)
    model->embedded = reserve_act(layout, &model->activations, rows * model->config.hidden_size);
}

/* Few and small, so they are also there for a backend that does not use them: a model's size does
 * not depend on its backend. */
static void place_token_rows(struct layout *layout)
{
  struct plm_model *model = layout->model;
  struct plm_arena *arena = &model->workspace;
  struct token_rows *rows = &model->token_rows;
  *rows = (struct token_rows){0};
  if (!plm_model_has_token_rows(model)) return;
  const size_t V = model->config.vocab_size, n = V * model->config.hidden_size;
  rows->tokens = arena_reserve(arena, (V + 1) * sizeof(int32_t));
  if (model_scales_dropout(model)) rows->factors = arena_reserve(arena, V * sizeof(float));
  if (model->config.emb_layer_norm_before) rows->before = reserve_act(layout, arena, n);
  rows->x = reserve_act(layout, arena, n);
  rows->h = reserve_act(layout, arena, n);
  rows->qkv = reserve_act(layout, arena, 3 * n);
  const bool mixes = model->blocks[0].shape.kind != PLM_BLOCK_PLAIN;
  if (mixes) rows->mixed = reserve_act(layout, arena, n);
  if (!model->options.training) return;
  rows->dx = reserve_act(layout, arena, n);
  rows->dh = reserve_act(layout, arena, n);
  if (mixes) rows->dp = reserve_act(layout, arena, n);
}

void plm_model_lay_out(struct plm_model *model)
{
  struct layout layout = {.model = model, .act_bytes = model->act_bytes};
  model->activations.used_bytes = 0;
  model->workspace.used_bytes = 0;
  model_buffers_measure(&layout);
  model->tokens = arena_reserve(&model->activations, level_rows(model, 0) * sizeof(int32_t));
  for (int level = 0; level < model->levels; level++)
    model->x0[level] = reserve_act(&layout, &model->activations,
                                   level_rows(model, level) * model->config.hidden_size);
  place_embedding(&layout);
  place_shared(&layout);
  for (uint32_t i = 0; i < model->block_count; i++) place_block(&layout, i);
  place_head(&layout);
  place_tables(model);
  place_adapters(&layout);
  place_token_rows(&layout);
  place_workspace(&layout);
}
