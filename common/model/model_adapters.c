/* Adapters of products (lora_config.h): y += (alpha / rank) B A dropout(x).
 *
 * A product may compute several layers side by side: query, key and value, or gate and up. A row of
 * its result is then that many rows of one layer, of which the adapter adds to one. What the
 * backward pass reads besides x (the result of A, and what dropout leaves of x) is computed again.
 */
#include <stdlib.h>

#include "common/model/model_state.h"

/* Dropout has this place in the model (common/ops/label_operands.h) for target t of block i. */
static uint32_t dropout_place(uint32_t i, uint32_t t)
{
  enum { FIRST_PLACE = 16, PLACES_OF_A_BLOCK = 8 };
  return FIRST_PLACE + PLACES_OF_A_BLOCK * i + t;
}

/* The product of a target, and which of its layers that is. */
static struct model_adapters *adapters_of(struct model_block *block, enum plm_lora_target target,
                                          int *part)
{
  struct block_places *places = &block->places;
  const bool gated = block->shape.traits->mlp == PLM_MLP_SWIGLU;
  *part = 0;
  switch (target) {
  case PLM_LORA_O: return &places->output.adapters;
  case PLM_LORA_GATE: return &places->up.adapters;
  case PLM_LORA_UP: *part = gated; return &places->up.adapters;
  case PLM_LORA_DOWN: return &places->down.adapters;
  default: *part = (int)target; return &places->qkv.adapters;
  }
}

void plm_model_resolve_adapters(struct plm_model *model)
{
  for (size_t i = 0; i + 1 < model->table_count; i++) {
    const struct plm_parameter *a = &model->table[i], *b = &model->table[i + 1];
    if (a->adapter == 0) continue;
    struct model_block *block = &model->blocks[a->part];
    const uint32_t target = a->adapter - 1U;
    int part;
    struct model_adapters *adapters = adapters_of(block, (enum plm_lora_target)target, &part);
    PLM_ASSERT(b->adapter == a->adapter && b->part == a->part);
    adapters->parts = target <= PLM_LORA_V ? 3
                      : block->shape.traits->mlp == PLM_MLP_SWIGLU &&
                              (target == PLM_LORA_GATE || target == PLM_LORA_UP)
                          ? 2
                          : 1;
    adapters->level = block->shape.level;
    adapters->in = a->cols;
    adapters->out = b->rows;
    adapters->of[part] = (struct model_adapter){.present = true,
                                                .a = a->offset,
                                                .b = b->offset,
                                                .place = dropout_place((uint32_t)a->part, target)};
    i++;
  }
}

size_t plm_model_adapter_keys(const struct plm_model_config *config, uint32_t chunks,
                              uint32_t length)
{
  size_t keys = 0;
  if (config->lora.rank == 0 || config->lora.dropout == 0) return 0;
  for (int level = 0; level < plm_architecture_levels(config); level++)
    keys += (size_t)chunks * (length >> level);
  return keys;
}

void plm_model_adapter_keys_fill(const struct plm_model_config *config,
                                 const struct plm_batch *batch, uint64_t *keys)
{
  if (plm_model_adapter_keys(config, batch->chunks, batch->max_length) == 0) return;
  for (int level = 0; level < plm_architecture_levels(config); level++)
    for (uint32_t c = 0; c < batch->chunks; c++) {
      const uint64_t g = batch->chunk_ids != NULL ? batch->chunk_ids[c] : batch->first_chunk + c;
      for (uint32_t x = 0; x < batch->max_length >> level; x++)
        *keys++ = plm_dropout_key(g, x << level);
    }
}

uint64_t *plm_model_device_adapter_keys(struct plm_model *model)
{
  return model->adapter_keys;
}

plm_status plm_model_upload_adapter_rows(struct plm_model *model, struct plm_error *error)
{
  const size_t rows = (size_t)model->options.max_chunks * model->config.max_length;
  if (model->config.lora.rank == 0) return PLM_OK;
  int32_t *numbers = malloc(rows * sizeof *numbers);
  if (numbers == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the numbers of %zu rows", rows);
  for (int parts = 2; parts <= 3; parts++)
    for (int part = 0; part < parts; part++) {
      int32_t *to = model->adapter_rows[parts - 2][part];
      if (to == NULL) continue;
      for (size_t n = 0; n < rows; n++) numbers[n] = (int32_t)(n * (size_t)parts) + part;
      model->ops->upload(model->ops, to, numbers, rows * sizeof *numbers);
    }
  free(numbers);
  return PLM_OK;
}

static bool drops(const struct plm_model *model, const struct model_pass *pass)
{
  return pass->dropout_seed != NULL && model->config.lora.dropout > 0;
}

static void drop(const struct plm_model *model, const struct model_pass *pass,
                 const struct model_adapters *adapters, int part, act *out, const act *x, int64_t N)
{
  const uint64_t *keys = model->adapter_keys;
  for (int level = 0; level < adapters->level; level++) keys += pass_rows(pass, level);
  const struct plm_dropout dropout = plm_dropout_of(*pass->dropout_seed, adapters->of[part].place,
                                                    model->config.lora.dropout, keys);
  PLM_ASSERT(N == pass_rows(pass, adapters->level));
  model->ops->dropout(model->ops, out, x, &dropout, N, adapters->in);
}

/* u_Nr = (alpha / rank) A dropout(x), in model->adapter_rank[0]. Returns dropout(x). */
static const act *adapter_inner(const struct plm_model *model, const struct model_pass *pass,
                                const struct model_adapters *adapters, int part, const act *x,
                                int64_t N)
{
  struct plm_ops *ops = model->ops;
  const struct plm_lora_config *lora = &model->config.lora;
  act *u = model->adapter_rank[0];
  if (drops(model, pass)) {
    drop(model, pass, adapters, part, model->adapter_wide[1], x, N);
    x = model->adapter_wide[1];
  }
  ops->linear_forward(ops, u, x, model_weight(model, adapters->of[part].a), NULL, N, adapters->in,
                      lora->rank);
  if (lora->alpha != lora->rank)
    ops->scale(ops, u, (float)(lora->alpha / lora->rank), N * lora->rank);
  return x;
}

void model_adapters_forward(const struct plm_model *model, const struct model_pass *pass,
                            const struct model_adapters *adapters, act *y, const act *x, int64_t N)
{
  struct plm_ops *ops = model->ops;
  const int64_t r = model->config.lora.rank, O = adapters->out;
  const act *u = model->adapter_rank[0];
  for (int part = 0; part < adapters->parts; part++) {
    if (!adapters->of[part].present) continue;
    const act *b = model_weight(model, adapters->of[part].b);
    (void)adapter_inner(model, pass, adapters, part, x, N);
    if (adapters->parts == 1) {
      ops->linear_forward(ops, y, u, b, y, N, r, O);
      continue;
    }
    act *added = model->adapter_wide[0];
    ops->linear_forward(ops, added, u, b, NULL, N, r, O);
    ops->scatter_rows(ops, y, added, model->adapter_rows[adapters->parts - 2][part], N, O);
  }
}

void model_adapters_backward(const struct plm_model *model, const struct model_pass *pass,
                             const struct model_adapters *adapters, act *dx, const act *dy,
                             const act *x, int64_t N)
{
  struct plm_ops *ops = model->ops;
  const struct plm_lora_config *lora = &model->config.lora;
  const int64_t r = lora->rank, I = adapters->in, O = adapters->out;
  act *u = model->adapter_rank[0], *du = model->adapter_rank[1];
  for (int part = 0; part < adapters->parts; part++) {
    const struct model_adapter *adapter = &adapters->of[part];
    if (!adapter->present) continue;
    const act *of_part = dy;
    if (adapters->parts > 1) {
      ops->gather_rows(ops, model->adapter_wide[0], dy,
                       model->adapter_rows[adapters->parts - 2][part], N, O);
      of_part = model->adapter_wide[0];
    }
    const act *read = adapter_inner(model, pass, adapters, part, x, N);
    ops->linear_backward_weight(ops, model_gradient(model, adapter->b), of_part, u, N, r, O);
    ops->linear_backward_input(ops, du, of_part, model_weight(model, adapter->b), N, r, O, false);
    if (lora->alpha != r) ops->scale(ops, du, (float)(lora->alpha / lora->rank), N * r);
    ops->linear_backward_weight(ops, model_gradient(model, adapter->a), du, read, N, I, r);
    if (dx == NULL) continue;
    if (!drops(model, pass)) {
      ops->linear_backward_input(ops, dx, du, model_weight(model, adapter->a), N, I, r, true);
      continue;
    }
    act *dropped = model->adapter_wide[1];
    ops->linear_backward_input(ops, dropped, du, model_weight(model, adapter->a), N, I, r, false);
    drop(model, pass, adapters, part, dropped, dropped, N);
    ops->add(ops, dx, dropped, N * I);
  }
}
