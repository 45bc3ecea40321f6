/* The plan of a model's buffers: what each block keeps for its backward pass, and what blocks
 * share, by the recomputation asked for. Run twice: to count bytes, then to set pointers.
 *
 *   recompute none   a block keeps everything its backward reads
 *             mlp    h2 and hidden are shared and made again from y
 *             block  everything but the block's input is shared and made again
 *   inference        as block, and the residual stream alternates between two buffers; only
 *                    outputs that a skip will read are kept
 */
#include <string.h>

#include "common/model/model_state.h"

enum { ALIGN_BYTES = 256 };

static void *take(struct plm_arena *arena, size_t bytes)
{
  void *place = (void *)(arena->base + arena->used_bytes);
  arena->used_bytes += (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
  return place;
}

struct planner {
  struct plm_model *model;
  size_t act_bytes;
  act *slot[2];               /* inference: the residual stream's two buffers */
  size_t largest_rows_width;  /* elements: max over levels of N_k D_k */
  size_t largest_rows_hidden; /* … of N_k F */
  struct model_block shared;  /* buffers that blocks share */
};

/* Rows of a level in the largest batch. */
static size_t level_rows(const struct plm_model *model, int level)
{
  return (size_t)model->options.max_chunks * (model->config.max_length >> level);
}

static act *take_act(struct planner *planner, struct plm_arena *arena, size_t elements)
{
  return take(arena, elements * planner->act_bytes);
}

static void measure(struct planner *planner)
{
  const struct plm_model *model = planner->model;
  size_t *width = &planner->largest_rows_width, *hidden = &planner->largest_rows_hidden;
  *width = level_rows(model, 0) * model->config.hidden_size;
  for (uint32_t i = 0; i < model->block_count; i++) {
    const struct plm_block_shape *shape = &model->blocks[i].shape;
    const size_t rows = level_rows(model, shape->level);
    if (rows * shape->width > *width) *width = rows * shape->width;
    if (rows * shape->hidden > *hidden) *hidden = rows * shape->hidden;
  }
}

/* A buffer for the residual stream that is not `live`. */
static act *take_stream(struct planner *planner, const act *live, size_t elements)
{
  if (planner->model->options.training)
    return take_act(planner, &planner->model->activations, elements);
  return planner->slot[0] == live ? planner->slot[1] : planner->slot[0];
}

static void plan_attention(struct planner *planner, struct plm_arena *arena,
                           struct model_block *block, size_t n, size_t rows)
{
  block->h = take_act(planner, arena, n);
  block->qkv_raw = take_act(planner, arena, 3 * n);
  block->qkv = take_act(planner, arena, 3 * n);
  block->attended = take_act(planner, arena, n);
  block->lse = take(arena, rows * planner->model->config.num_attention_heads * sizeof(float));
}

static void plan_mlp(struct planner *planner, struct plm_arena *arena, struct model_block *block,
                     size_t rows_width, size_t rows_hidden)
{
  block->h2 = take_act(planner, arena, rows_width);
  block->hidden = take_act(planner, arena, rows_hidden);
}

/* Buffers that every block may use, of the largest block's size. */
static void plan_shared(struct planner *planner)
{
  struct plm_model *model = planner->model;
  struct plm_arena *arena = &model->activations;
  const bool training = model->options.training;
  const size_t n = planner->largest_rows_width;
  if (!training)
    for (int i = 0; i < 2; i++) planner->slot[i] = take_act(planner, arena, n);
  if (!training || model->options.recompute == PLM_RECOMPUTE_BLOCK) {
    planner->shared.mixed = take_act(planner, arena, n);
    planner->shared.p = take_act(planner, arena, n);
    planner->shared.y = take_act(planner, arena, n);
    plan_attention(planner, arena, &planner->shared, n, level_rows(model, 0));
  }
  if (!training || model->options.recompute != PLM_RECOMPUTE_NONE)
    plan_mlp(planner, arena, &planner->shared, n, planner->largest_rows_hidden);
}

static void plan_input(struct planner *planner, uint32_t i)
{
  struct plm_model *model = planner->model;
  struct model_block *block = &model->blocks[i];
  const size_t n = level_rows(model, block->shape.level) * block->shape.width;
  block->source = i == 0 ? model->x0[0] : model->blocks[i - 1].out;
  block->x = block->source;
  if (block->shape.source != PLM_SOURCE_SAME) block->x = take_stream(planner, block->source, n);
}

static void plan_block(struct planner *planner, uint32_t i)
{
  struct plm_model *model = planner->model;
  struct model_block *block = &model->blocks[i];
  struct plm_arena *arena = &model->activations;
  const size_t rows = level_rows(model, block->shape.level);
  const size_t n = rows * block->shape.width, hidden = rows * block->shape.hidden;
  const bool training = model->options.training;
  const enum plm_recompute recompute = model->options.recompute;

  plan_input(planner, i);
  if (training && recompute != PLM_RECOMPUTE_BLOCK) {
    if (block->shape.kind != PLM_BLOCK_PLAIN) block->mixed = take_act(planner, arena, n);
    if (block->projects) block->p = take_act(planner, arena, n);
    if (block->shape.kind != PLM_BLOCK_BOTTLENECK) {
      plan_attention(planner, arena, block, n, rows);
      block->y = take_act(planner, arena, n);
    }
  } else {
    block->mixed = planner->shared.mixed;
    block->p = planner->shared.p;
    block->h = planner->shared.h;
    block->qkv_raw = planner->shared.qkv_raw;
    block->qkv = planner->shared.qkv;
    block->attended = planner->shared.attended;
    block->lse = planner->shared.lse;
    block->y = planner->shared.y;
  }
  if (training && recompute == PLM_RECOMPUTE_NONE) {
    plan_mlp(planner, arena, block, n, hidden);
  } else {
    block->h2 = planner->shared.h2;
    block->hidden = planner->shared.hidden;
  }
  if (block->shape.kind == PLM_BLOCK_PLAIN) block->mixed = block->x;
  if (block->shape.kind == PLM_BLOCK_BOTTLENECK) {
    block->y = block->mixed;
    block->h = block->h2;
  }
  block->out = !training && block->skipped_by >= 0 ? take_act(planner, arena, n)
                                                   : take_stream(planner, block->x, n);
}

static void plan_logits(struct planner *planner, struct plm_arena *arena)
{
  struct plm_model *model = planner->model;
  const size_t rows = level_rows(model, 0);
  model->head_gelu = take_act(planner, arena, rows * model->config.hidden_size);
  model->logits = take(arena, rows * model->config.vocab_size * sizeof(float));
}

static void plan_head(struct planner *planner)
{
  struct plm_model *model = planner->model;
  struct plm_arena *arena = &model->activations;
  const size_t rows = level_rows(model, 0);
  const size_t n = rows * model->config.hidden_size;
  model->positions = take(arena, rows * sizeof(int32_t));
  model->labels = take(arena, rows * sizeof(int32_t));
  model->label_weights = take(arena, rows * sizeof(float));
  model->row_loss = take(arena, rows * sizeof(float));
  model->head_x = take_act(planner, arena, n);
  model->head_attended = take_act(planner, arena, (rows + 1) / 2 * model->config.hidden_size);
  model->head_norm = take_act(planner, arena, n);
  model->head_dense = take_act(planner, arena, n);
  if (!model->options.training) plan_logits(planner, arena);
}

/* Tables made once, and those that follow the weights. */
static void plan_tables(struct plm_model *model)
{
  struct plm_arena *arena = &model->workspace;
  const uint32_t H = model->config.num_attention_heads;
  for (int level = 0; level < plm_architecture_attention_levels(&model->config); level++) {
    const size_t pairs = (size_t)(model->config.max_length >> level) *
                         (plm_architecture_width(&model->config, level) / H / 2);
    model->rotary[level].cosine = take(arena, pairs * sizeof(float));
    model->rotary[level].sine = take(arena, pairs * sizeof(float));
  }
  for (uint32_t i = 0; i < model->table_total; i++) {
    struct token_table *table = &model->tables[i];
    const size_t bytes = (size_t)table->width * model->config.vocab_size * sizeof(float);
    table->vectors = take(arena, bytes);
    if (i == 0 && model->options.training) table->gradient = take(arena, bytes);
  }
}

static size_t larger(size_t a, size_t b)
{
  return a > b ? a : b;
}

/* Workspace: the head's, the MLP's and the attention's backward passes never overlap in time, nor
 * with what a model open for training makes of a batch without training on it; so they overlap in
 * memory. */
static void plan_workspace(struct planner *planner)
{
  struct plm_model *model = planner->model;
  struct plm_arena *arena = &model->workspace;
  const size_t n = planner->largest_rows_width;
  const size_t outputs = level_rows(model, 0) * model->config.hidden_size;
  if (!model->options.training) {
    model->value_embedding = take_act(planner, arena, n);
    model->rows_fp32 = take(arena, outputs * sizeof(float));
    return;
  }
  for (int i = 0; i < 2; i++) model->stream[i] = take_act(planner, arena, n);
  for (int level = 0; level < model->levels; level++)
    if (model->config.architecture != PLM_TRANSFORMER)
      model->x0_gradient[level] =
          take_act(planner, arena, level_rows(model, level) * model->config.hidden_size);
  model->norm_gradient = take_act(planner, arena, n);

  const size_t start = arena->used_bytes;
  for (int i = 0; i < 2; i++) model->row_gradient[i] = take_act(planner, arena, outputs);
  size_t end = arena->used_bytes;
  arena->used_bytes = start;
  model->hidden_gradient = take_act(planner, arena, planner->largest_rows_hidden);
  end = larger(end, arena->used_bytes);
  arena->used_bytes = start;
  model->attended_gradient = take_act(planner, arena, n);
  model->qkv_gradient = take_act(planner, arena, 3 * n);
  model->value_embedding = take_act(planner, arena, n);
  model->value_gradient = take_act(planner, arena, n);
  model->projection_gradient = model->attended_gradient; /* spent when the input is reached */
  end = larger(end, arena->used_bytes);
  arena->used_bytes = start;
  model->rows_fp32 = take(arena, outputs * sizeof(float));
  plan_logits(planner, arena);
  arena->used_bytes = larger(end, arena->used_bytes);
}

void plm_model_plan(struct plm_model *model)
{
  struct planner planner = {.model = model, .act_bytes = model->act_bytes};
  model->activations.used_bytes = 0;
  model->workspace.used_bytes = 0;
  measure(&planner);
  model->tokens = take(&model->activations, level_rows(model, 0) * sizeof(int32_t));
  for (int level = 0; level < model->levels; level++)
    model->x0[level] = take_act(&planner, &model->activations,
                                level_rows(model, level) * model->config.hidden_size);
  plan_shared(&planner);
  for (uint32_t i = 0; i < model->block_count; i++) plan_block(&planner, i);
  plan_head(&planner);
  plan_tables(model);
  plan_workspace(&planner);
}
