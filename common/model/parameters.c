/* The parameter table: names, shapes, groups, initialisers and offsets.
 * doc/model.md#parameters */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/numbers/size.h"
#include "common/model/architecture.h"
#include "common/model/model.h"

struct builder {
  struct plm_parameter *table;
  size_t count, capacity, elements;
  uint32_t final_at; /* of what is appended */
};

static void parameters_append(struct builder *builder, const struct plm_parameter *parameter)
{
  if (builder->count == builder->capacity) {
    const size_t capacity = builder->capacity == 0 ? 64 : 2 * builder->capacity;
    builder->table = plm_realloc(builder->table, capacity * sizeof *builder->table);
    builder->capacity = capacity;
  }
  struct plm_parameter *entry = &builder->table[builder->count++];
  *entry = *parameter;
  entry->count = plm_size_product((size_t)entry->rows, (size_t)entry->cols);
  entry->offset = builder->elements;
  entry->final_at = builder->final_at;
  builder->elements =
      plm_size_sum(builder->elements, plm_size_round_up(entry->count, PLM_PARAMETER_ALIGNMENT));
}

/* The weight of a Linear, (out, in). */
static void append_matrix(struct builder *builder, const char *prefix, const char *name,
                          int64_t rows, int64_t cols, enum plm_initialiser initialiser)
{
  struct plm_parameter parameter = {.rows = rows,
                                    .cols = cols,
                                    .ndim = 2,
                                    .group = PLM_GROUP_HIDDEN,
                                    .initialiser = initialiser,
                                    .decay = true};
  (void)snprintf(parameter.name, sizeof parameter.name, "%s%s", prefix, name);
  parameters_append(builder, &parameter);
}

static void append_scalars(struct builder *builder, const char *prefix, const char *name,
                           int64_t count, enum plm_initialiser initialiser)
{
  struct plm_parameter parameter = {
      .rows = 1, .cols = count, .ndim = 1, .group = PLM_GROUP_SCALAR, .initialiser = initialiser};
  (void)snprintf(parameter.name, sizeof parameter.name, "%s%s", prefix, name);
  parameters_append(builder, &parameter);
}

static void append_table(struct builder *builder, const char *name, int64_t rows, int64_t cols)
{
  struct plm_parameter parameter = {.rows = rows,
                                    .cols = cols,
                                    .ndim = 2,
                                    .group = PLM_GROUP_EMBED,
                                    .initialiser = PLM_INIT_NORMAL};
  (void)snprintf(parameter.name, sizeof parameter.name, "%s", name);
  parameters_append(builder, &parameter);
}

static void append_block(struct builder *builder, const struct plm_model_config *config,
                         const struct plm_block_shape *block)
{
  const int64_t D = block->width, F = block->hidden;
  const char *prefix = block->prefix;
  if (block->kind != PLM_BLOCK_BOTTLENECK) {
    /* These three are adjacent, so that one product computes q, k and v. */
    append_matrix(builder, prefix, "attention.query.weight", D, D, PLM_INIT_UNIFORM);
    append_matrix(builder, prefix, "attention.key.weight", D, D, PLM_INIT_UNIFORM);
    append_matrix(builder, prefix, "attention.value.weight", D, D, PLM_INIT_UNIFORM);
    append_matrix(builder, prefix, "attention.output.weight", D, D, PLM_INIT_ZERO);
  }
  if (block->kind == PLM_BLOCK_MIXED)
    append_scalars(builder, prefix, "attention.value_mix", 2, PLM_INIT_HALF);
  if (block->kind != PLM_BLOCK_PLAIN) {
    append_scalars(builder, prefix, "input_mix", 2, PLM_INIT_ONE_ZERO);
    if (block->width != config->hidden_size)
      append_matrix(builder, prefix, "input_projection.weight", D, config->hidden_size,
                    PLM_INIT_UNIFORM);
  }
  append_matrix(builder, prefix, "mlp.up.weight", F, D, PLM_INIT_UNIFORM);
  append_matrix(builder, prefix, "mlp.down.weight", D, F, PLM_INIT_ZERO);
}

/* The Linear of the merge or expand before a block. */
static void append_resample(struct builder *builder, const struct plm_model_config *config,
                            const struct plm_block_shape *block)
{
  if (block->input == PLM_INPUT_SAME) return;
  const int64_t shallow = plm_architecture_width(config, block->resample);
  const int64_t deep = plm_architecture_width(config, block->resample + 1);
  char name[32];
  if (block->input == PLM_INPUT_MERGE) {
    (void)snprintf(name, sizeof name, "plm.merge.%d.weight", block->resample);
    append_matrix(builder, "", name, deep, 2 * shallow, PLM_INIT_UNIFORM);
  } else {
    (void)snprintf(name, sizeof name, "plm.expand.%d.weight", block->resample);
    append_matrix(builder, "", name, 2 * shallow, deep, PLM_INIT_UNIFORM);
  }
}

static void append_head(struct builder *builder, const struct plm_model_config *config)
{
  const int64_t D = config->hidden_size, V = config->vocab_size;
  struct plm_parameter parameter = {
      .rows = D, .cols = D, .ndim = 2, .group = PLM_GROUP_HEAD, .initialiser = PLM_INIT_UNIFORM};
  (void)snprintf(parameter.name, sizeof parameter.name, "lm_head.dense.weight");
  parameters_append(builder, &parameter);
  if (!config->tie_embeddings) {
    parameter.rows = V;
    (void)snprintf(parameter.name, sizeof parameter.name, "lm_head.decoder.weight");
    parameters_append(builder, &parameter);
  }
  parameter.rows = 1;
  parameter.cols = V;
  parameter.ndim = 1;
  parameter.initialiser = PLM_INIT_ZERO;
  (void)snprintf(parameter.name, sizeof parameter.name, "lm_head.bias");
  parameters_append(builder, &parameter);
}

plm_status plm_model_parameters(const struct plm_model_config *config, struct plm_parameter **table,
                                size_t *count, size_t *arena_elements, struct plm_error *error)
{
  PLM_TRY(plm_model_config_check(config, error));
  struct builder builder = {0};
  const uint32_t blocks = plm_architecture_blocks(config);
  struct plm_block_shape block;
  append_table(&builder, "plm.embeddings.weight", config->vocab_size, config->hidden_size);
  for (uint32_t i = 0; i < blocks; i++) {
    plm_architecture_block(config, i, &block);
    /* The decoder of `unet` uses the tables of the encoder. */
    const bool shared = config->architecture == PLM_UNET && block.skip >= 0;
    if (block.value_table[0] != '\0' && !shared)
      append_table(&builder, block.value_table, config->vocab_size, block.width);
  }
  for (uint32_t i = 0; i < blocks; i++) {
    plm_architecture_block(config, i, &block);
    builder.final_at = i;
    append_resample(&builder, config, &block);
    append_block(&builder, config, &block);
  }
  builder.final_at = 0; /* blocks share this vector */
  const uint32_t skips = plm_architecture_skips(config);
  if (skips > 0) append_scalars(&builder, "plm.", "skip_weights", skips, PLM_INIT_ONE);
  builder.final_at = blocks;
  append_head(&builder, config);
  if (plm_size_product(builder.elements, sizeof(double)) == SIZE_MAX) {
    free(builder.table);
    return plm_error_set(error, PLM_LIMIT, "the parameters are larger than the address space");
  }
  *table = builder.table;
  *count = builder.count;
  *arena_elements = builder.elements;
  return PLM_OK;
}
