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
  int32_t part;
  uint8_t adapter;
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
  entry->part = builder->part;
  entry->adapter = builder->adapter;
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
  (void)snprintf(parameter.name, sizeof parameter.name, "%s%s.weight", prefix, name);
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

/* NAME.weight or NAME.bias, a vector */
static void append_vector(struct builder *builder, const char *prefix, const char *name,
                          const char *ending, int64_t count, enum plm_initialiser initialiser)
{
  char whole[56];
  (void)snprintf(whole, sizeof whole, "%s%s", name, ending);
  append_scalars(builder, prefix, whole, count, initialiser);
}

static void append_norm(struct builder *builder, const char *prefix, const char *name,
                        enum plm_norm_kind kind, int64_t count)
{
  if (kind == PLM_NORM_RMS) return;
  append_vector(builder, prefix, name, ".weight", count, PLM_INIT_ONE);
  if (kind == PLM_NORM_LAYER) append_vector(builder, prefix, name, ".bias", count, PLM_INIT_ZERO);
}

static void append_table(struct builder *builder, const char *name, int64_t rows, int64_t cols,
                         enum plm_initialiser initialiser)
{
  struct plm_parameter parameter = {
      .rows = rows, .cols = cols, .ndim = 2, .group = PLM_GROUP_EMBED, .initialiser = initialiser};
  (void)snprintf(parameter.name, sizeof parameter.name, "%s", name);
  parameters_append(builder, &parameter);
}

/* A norm, and the attention after it. The weights of query, key and value are adjacent, and so are
 * their biases, so that one product computes all three. */
static void append_attention(struct builder *builder, const struct plm_block_shape *block,
                             enum plm_initialiser in, enum plm_initialiser out)
{
  const struct plm_block_traits *traits = block->traits;
  const struct plm_block_names *names = &traits->names;
  const char *const parts[3] = {names->query, names->key, names->value};
  const char *prefix = block->prefix;
  const int64_t D = block->width;
  append_norm(builder, prefix, names->attention_norm, traits->norm, D);
  for (int i = 0; i < 3; i++) append_matrix(builder, prefix, parts[i], D, D, in);
  for (int i = 0; i < 3 && traits->bias; i++)
    append_vector(builder, prefix, parts[i], ".bias", D, PLM_INIT_ZERO);
  if (traits->qk_norm == PLM_QK_NORM_WIDTH) {
    append_norm(builder, prefix, names->q_norm, PLM_NORM_LAYER_WEIGHT, D);
    append_norm(builder, prefix, names->k_norm, PLM_NORM_LAYER_WEIGHT, D);
  }
  append_matrix(builder, prefix, names->output, D, D, out);
  if (traits->bias) append_vector(builder, prefix, names->output, ".bias", D, PLM_INIT_ZERO);
}

/* A norm, and the MLP after it. The weights of gate and up are adjacent. */
static void append_mlp(struct builder *builder, const struct plm_block_shape *block,
                       enum plm_initialiser in, enum plm_initialiser out)
{
  const struct plm_block_traits *traits = block->traits;
  const struct plm_block_names *names = &traits->names;
  const char *prefix = block->prefix;
  const int64_t D = block->width, F = block->hidden;
  append_norm(builder, prefix, names->mlp_norm, traits->norm, D);
  if (traits->mlp == PLM_MLP_SWIGLU) append_matrix(builder, prefix, names->gate, F, D, in);
  append_matrix(builder, prefix, names->up, F, D, in);
  if (traits->bias) append_vector(builder, prefix, names->up, ".bias", F, PLM_INIT_ZERO);
  append_matrix(builder, prefix, names->down, D, F, out);
  if (traits->bias) append_vector(builder, prefix, names->down, ".bias", D, PLM_INIT_ZERO);
}

/* The adapters of a block's products, behind the parameters that have to be adjacent. They begin as
 * those of PEFT: A uniform, by kaiming_uniform with a = sqrt(5), and B zero. */
static void append_adapters(struct builder *builder, const struct plm_lora_config *lora,
                            const struct plm_block_shape *block)
{
  const int64_t D = block->width, F = block->hidden, r = lora->rank;
  for (int t = 0; t < PLM_LORA_TARGETS && r > 0; t++) {
    char name[48];
    if ((lora->targets >> t & 1) == 0) continue;
    const char *of = plm_block_target_name(&block->traits->names, (enum plm_lora_target)t);
    const int64_t in = t == PLM_LORA_DOWN ? F : D;
    const int64_t out = t == PLM_LORA_GATE || t == PLM_LORA_UP ? F : D;
    if (block->kind == PLM_BLOCK_BOTTLENECK && t <= PLM_LORA_O) continue; /* it has no attention */
    builder->adapter = (uint8_t)(1 + t);
    (void)snprintf(name, sizeof name, "%s.lora_A", of);
    append_matrix(builder, block->prefix, name, r, in, PLM_INIT_UNIFORM);
    (void)snprintf(name, sizeof name, "%s.lora_B", of);
    append_matrix(builder, block->prefix, name, out, r, PLM_INIT_ZERO);
    builder->adapter = 0;
  }
}

static void append_block(struct builder *builder, const struct plm_model_config *config,
                         const struct plm_block_shape *block)
{
  const bool small = plm_architecture_rules(config->architecture)->small_weights;
  const enum plm_initialiser in = small ? PLM_INIT_SMALL : PLM_INIT_UNIFORM;
  const enum plm_initialiser out = small ? PLM_INIT_SMALL : PLM_INIT_ZERO;
  const char *prefix = block->prefix;
  if (block->kind != PLM_BLOCK_BOTTLENECK) append_attention(builder, block, in, out);
  if (block->kind == PLM_BLOCK_MIXED)
    append_scalars(builder, prefix, "attention.value_mix", 2, PLM_INIT_HALF);
  if (block->kind != PLM_BLOCK_PLAIN) {
    append_scalars(builder, prefix, "input_mix", 2, PLM_INIT_ONE_ZERO);
    if (block->width != config->hidden_size)
      append_matrix(builder, prefix, "input_projection", block->width, config->hidden_size,
                    PLM_INIT_UNIFORM);
  }
  append_mlp(builder, block, in, out);
  append_adapters(builder, &config->lora, block);
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
    (void)snprintf(name, sizeof name, "plm.merge.%d", block->resample);
    append_matrix(builder, "", name, deep, 2 * shallow, PLM_INIT_UNIFORM);
  } else {
    (void)snprintf(name, sizeof name, "plm.expand.%d", block->resample);
    append_matrix(builder, "", name, 2 * shallow, deep, PLM_INIT_UNIFORM);
  }
}

static void append_of_head(struct builder *builder, const char *name, int64_t rows, int64_t cols,
                           enum plm_initialiser initialiser)
{
  struct plm_parameter parameter = {.rows = rows,
                                    .cols = cols,
                                    .ndim = rows == 0 ? 1 : 2,
                                    .group = PLM_GROUP_HEAD,
                                    .initialiser = initialiser};
  if (rows == 0) parameter.rows = 1;
  (void)snprintf(parameter.name, sizeof parameter.name, "%s", name);
  parameters_append(builder, &parameter);
}

static void append_head(struct builder *builder, const struct plm_model_config *config)
{
  enum { VECTOR = 0 };
  const struct plm_architecture_rules *rules = plm_architecture_rules(config->architecture);
  const enum plm_initialiser weights = rules->small_weights ? PLM_INIT_SMALL : PLM_INIT_UNIFORM;
  const int64_t D = config->hidden_size, V = config->vocab_size;
  append_of_head(builder, "lm_head.dense.weight", D, D, weights);
  if (rules->head_norm_name != NULL) {
    char name[64];
    append_of_head(builder, "lm_head.dense.bias", VECTOR, D, PLM_INIT_ZERO);
    (void)snprintf(name, sizeof name, "%s.weight", rules->head_norm_name);
    append_of_head(builder, name, VECTOR, D, PLM_INIT_ONE);
    (void)snprintf(name, sizeof name, "%s.bias", rules->head_norm_name);
    append_of_head(builder, name, VECTOR, D, PLM_INIT_ZERO);
  }
  if (!config->tie_embeddings) append_of_head(builder, "lm_head.decoder.weight", V, D, weights);
  append_of_head(builder, rules->head_bias, VECTOR, V, PLM_INIT_ZERO);
}

/* A Linear with a bias, initialised as transformers does. */
static void append_labels_linear(struct builder *builder, const char *name, int64_t rows,
                                 int64_t cols)
{
  enum { VECTOR = 0 };
  char whole[64];
  (void)snprintf(whole, sizeof whole, "%s.weight", name);
  append_of_head(builder, whole, rows, cols, PLM_INIT_SMALL);
  (void)snprintf(whole, sizeof whole, "%s.bias", name);
  append_of_head(builder, whole, VECTOR, rows, PLM_INIT_ZERO);
}

/* The head that predicts labels, under the names of transformers' classes. */
static void append_label_head(struct builder *builder, const struct plm_model_config *config)
{
  const struct plm_architecture_rules *rules = plm_architecture_rules(config->architecture);
  const struct plm_head_config *head = &config->head;
  const int64_t D = config->hidden_size, H = head->hidden;
  if (head->kind == PLM_PREDICTS_RESIDUES) {
    append_labels_linear(builder, rules->residue_head, head->outputs, D);
  } else if (H == 0) {
    append_labels_linear(builder, "classifier", head->outputs, D);
  } else {
    append_labels_linear(builder, "classifier.dense", H, D);
    append_labels_linear(builder, "classifier.out_proj", head->outputs, H);
  }
}

/* The embedding with its norm, and the tables of value embeddings. */
static void append_tables(struct builder *builder, const struct plm_model_config *config)
{
  const struct plm_architecture_rules *rules = plm_architecture_rules(config->architecture);
  struct plm_block_shape block;
  char name[64];
  (void)snprintf(name, sizeof name, "%s.weight", rules->embedding);
  append_table(builder, name, config->vocab_size, config->hidden_size,
               rules->pad_row         ? PLM_INIT_SMALL_PAD
               : rules->small_weights ? PLM_INIT_SMALL
                                      : PLM_INIT_NORMAL);
  if (config->emb_layer_norm_before)
    append_norm(builder, "", rules->embedding_norm_name, PLM_NORM_LAYER, config->hidden_size);
  for (uint32_t i = 0; i < plm_architecture_blocks(config); i++) {
    plm_architecture_block(config, i, &block);
    if (block.value_table[0] != '\0' && !block.borrows_table)
      append_table(builder, block.value_table, config->vocab_size, block.width, PLM_INIT_NORMAL);
  }
}

plm_status plm_model_parameters(const struct plm_model_config *config, struct plm_parameter **table,
                                size_t *count, size_t *arena_elements, struct plm_error *error)
{
  PLM_TRY(plm_model_config_check(config, error));
  struct builder builder = {0};
  const uint32_t blocks = plm_architecture_blocks(config);
  struct plm_block_shape block;
  builder.part = PLM_PART_EMBEDDINGS;
  append_tables(&builder, config);
  for (uint32_t i = 0; i < blocks; i++) {
    plm_architecture_block(config, i, &block);
    builder.final_at = i;
    builder.part = (int32_t)i;
    append_resample(&builder, config, &block);
    append_block(&builder, config, &block);
  }
  builder.final_at = 0; /* blocks share this vector */
  builder.part = PLM_PART_TRUNK;
  const uint32_t skips = plm_architecture_skips(config);
  if (skips > 0) append_scalars(&builder, "plm.", "skip_weights", skips, PLM_INIT_ONE);
  builder.final_at = blocks;
  const struct plm_architecture_rules *rules = plm_architecture_rules(config->architecture);
  append_norm(&builder, "", rules->final_norm_name, rules->final_norm, config->hidden_size);
  builder.part = PLM_PART_HEAD;
  if (config->head.kind == PLM_PREDICTS_TOKENS)
    append_head(&builder, config);
  else
    append_label_head(&builder, config);
  if (plm_size_product(builder.elements, sizeof(double)) == SIZE_MAX) {
    free(builder.table);
    return plm_error_set(error, PLM_LIMIT, "the parameters are larger than the address space");
  }
  *table = builder.table;
  *count = builder.count;
  *arena_elements = builder.elements;
  return PLM_OK;
}

static bool is_frozen(const struct plm_parameter *parameter, const struct plm_freeze *freeze)
{
  const bool lm_head = strncmp(parameter->name, "lm_head.", 8) == 0;
  if (freeze->base) return parameter->adapter == 0 && (parameter->part != PLM_PART_HEAD || lm_head);
  if (parameter->part == PLM_PART_HEAD) return false;
  if (freeze->trunk) return true;
  if (parameter->part == PLM_PART_EMBEDDINGS) return freeze->embeddings;
  return parameter->part >= 0 && (uint32_t)parameter->part < freeze->blocks;
}

size_t plm_parameters_freeze(struct plm_parameter *table, size_t count,
                             const struct plm_freeze *freeze)
{
  size_t elements = 0, trained = 0;
  for (int frozen = 0; frozen < 2; frozen++) {
    for (size_t i = 0; i < count; i++) {
      if (is_frozen(&table[i], freeze) != (frozen != 0)) continue;
      table[i].frozen = frozen != 0;
      table[i].offset = elements;
      elements += plm_size_round_up(table[i].count, PLM_PARAMETER_ALIGNMENT);
    }
    if (frozen == 0) trained = elements;
  }
  return trained;
}
