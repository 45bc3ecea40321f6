/* struct plm_model: opening and closing it, and its memory. */
#include "common/model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/numbers/size.h"
#include "common/model/model_state.h"

static const struct plm_parameter *model_find(const struct plm_model *model, const char *prefix,
                                              const char *name)
{
  const size_t length = strlen(prefix);
  for (size_t i = 0; i < model->table_count; i++) {
    const char *candidate = model->table[i].name;
    if (strncmp(candidate, prefix, length) == 0 && strcmp(candidate + length, name) == 0)
      return &model->table[i];
  }
  return NULL;
}

static size_t model_place_of(const struct plm_model *model, const char *prefix, const char *name)
{
  const struct plm_parameter *parameter = model_find(model, prefix, name);
  return parameter == NULL ? 0 : parameter->offset;
}

/* The place of PREFIX NAME ENDING; 0 if name is NULL or there is no such parameter. */
static size_t place_ending(const struct plm_model *model, const char *prefix, const char *name,
                           const char *ending)
{
  char whole[96];
  if (name == NULL) return 0;
  (void)snprintf(whole, sizeof whole, "%s%s", name, ending);
  return model_place_of(model, prefix, whole);
}

static struct model_norm find_norm(const struct plm_model *model, const char *prefix,
                                   const char *name, enum plm_norm_kind kind, double eps)
{
  return (struct model_norm){.kind = kind,
                             .weight = place_ending(model, prefix, name, ".weight"),
                             .bias = place_ending(model, prefix, name, ".bias"),
                             .eps = eps};
}

static struct model_product find_product(const struct plm_model *model, const char *prefix,
                                         const char *name, bool biased)
{
  char whole[96];
  (void)snprintf(whole, sizeof whole, "%s.weight", name);
  const struct plm_parameter *weight = model_find(model, prefix, whole);
  return (struct model_product){.weight = weight != NULL ? weight->offset : 0,
                                .bias = place_ending(model, prefix, name, ".bias"),
                                .biased = biased,
                                .frozen = weight != NULL && weight->frozen};
}

/* The places of attention and MLP. */
static void resolve_layers(struct plm_model *model, struct model_block *block)
{
  const struct plm_block_traits *traits = block->shape.traits;
  const struct plm_block_names *names = &traits->names;
  const char *prefix = block->shape.prefix;
  const double eps = plm_architecture_stream_eps(&model->config);
  struct block_places *places = &block->places;
  places->norm = find_norm(model, prefix, names->attention_norm, traits->norm, eps);
  places->mlp_norm = find_norm(model, prefix, names->mlp_norm, traits->norm, eps);
  places->qkv = find_product(model, prefix, names->query, traits->bias);
  places->output = find_product(model, prefix, names->output, traits->bias);
  places->q_norm = place_ending(model, prefix, names->q_norm, ".weight");
  places->k_norm = place_ending(model, prefix, names->k_norm, ".weight");
  places->up =
      find_product(model, prefix, names->gate != NULL ? names->gate : names->up, traits->bias);
  places->down = find_product(model, prefix, names->down, traits->bias);
}

static void resolve_block(struct plm_model *model, uint32_t i)
{
  struct model_block *block = &model->blocks[i];
  plm_architecture_block(&model->config, i, &block->shape);
  const char *prefix = block->shape.prefix;
  struct block_places *places = &block->places;
  resolve_layers(model, block);
  places->value_mix = model_place_of(model, prefix, "attention.value_mix");
  places->input_mix = model_place_of(model, prefix, "input_mix");
  places->projection = model_place_of(model, prefix, "input_projection.weight");
  block->projects = model_find(model, prefix, "input_projection.weight") != NULL;
  if (block->shape.input != PLM_INPUT_SAME) {
    char name[32];
    (void)snprintf(name, sizeof name, "%d.weight", block->shape.resample);
    places->resample = model_place_of(
        model, block->shape.input == PLM_INPUT_MERGE ? "plm.merge." : "plm.expand.", name);
  }
  if (block->shape.skip_weight >= 0)
    places->skip_weight =
        model_place_of(model, "plm.", "skip_weights") + (size_t)block->shape.skip_weight;
  block->table = -1;
  block->skipped_by = -1;
  if (block->shape.value_table[0] == '\0') return;
  const size_t table = model_place_of(model, "", block->shape.value_table);
  for (uint32_t t = 0; t < model->table_total; t++)
    if (model->tables[t].place == table) block->table = (int)t;
}

/* The places of what is before the first block and after the last one. */
static void resolve_ends(struct plm_model *model)
{
  const struct plm_model_config *config = &model->config;
  const struct plm_architecture_rules *rules = model->rules;
  const double eps = config->layer_norm_eps;
  model->embedding_norm = find_norm(model, "", rules->embedding_norm_name, PLM_NORM_LAYER, eps);
  model->final_norm = find_norm(model, "", rules->final_norm_name, rules->final_norm,
                                plm_architecture_stream_eps(config));
  model->head_norm_after = find_norm(model, "", rules->head_norm_name, PLM_NORM_LAYER, eps);
  if (config->head.kind != PLM_PREDICTS_TOKENS) {
    const bool layered = config->head.kind == PLM_PREDICTS_SEQUENCES && config->head.hidden > 0;
    const char *name = config->head.kind == PLM_PREDICTS_RESIDUES ? rules->residue_head
                       : layered                                  ? "classifier.out_proj"
                                                                  : "classifier";
    model->label_output = find_product(model, "", name, true);
    if (layered) model->label_hidden = find_product(model, "", "classifier.dense", true);
    return;
  }
  model->dense = find_product(model, "lm_head.", "dense", rules->head_norm_name != NULL);
  model->bias = model_place_of(model, "", rules->head_bias);
  model->decoder = config->tie_embeddings ? model->tables[0].place
                                          : model_place_of(model, "lm_head.", "decoder.weight");
}

/* Elements that passes write as the gradient of a frozen parameter: the most of one, without those
 * of products, whose gradients are not computed. */
static size_t largest_discarded(const struct plm_model *model)
{
  size_t most = 0;
  for (size_t i = 0; i < model->table_count; i++) {
    const struct plm_parameter *parameter = &model->table[i];
    const bool product = parameter->ndim == 2 && parameter->group == PLM_GROUP_HIDDEN;
    if (parameter->frozen && !product && parameter->count > most) most = parameter->count;
  }
  return plm_size_round_up(most, PLM_PARAMETER_ALIGNMENT);
}

/* A block of which more than adapters is trained is trained as a whole. */
enum model_reach model_reach_of(const struct plm_parameter *parameter)
{
  if (parameter->adapter == 0) return REACH_INPUT;
  switch ((enum plm_lora_target)(parameter->adapter - 1)) {
  case PLM_LORA_O: return REACH_OUTPUT;
  case PLM_LORA_GATE:
  case PLM_LORA_UP: return REACH_UP;
  case PLM_LORA_DOWN: return REACH_DOWN;
  default: return REACH_QKV;
  }
}

/* How far a pass goes into the first block that needs a backward pass. */
static enum model_reach first_reach(const struct plm_model *model)
{
  enum model_reach reach = REACH_DOWN;
  if (model->trains_embeddings) return REACH_BEFORE;
  for (size_t i = 0; i < model->table_count; i++) {
    const struct plm_parameter *parameter = &model->table[i];
    const enum model_reach needed =
        parameter->part == PLM_PART_TRUNK ? REACH_INPUT : model_reach_of(parameter);
    const bool here =
        parameter->part == PLM_PART_TRUNK || parameter->part == (int)model->trained_from;
    if (!parameter->frozen && here && needed < reach) reach = needed;
  }
  return reach;
}

/* Finds out how far backward a pass has to go. */
static void resolve_frozen(struct plm_model *model)
{
  model->trained_from = model->block_count;
  for (uint32_t i = 0; i < model->block_count; i++) model->blocks[i].frozen = true;
  for (size_t i = 0; i < model->table_count; i++) {
    const struct plm_parameter *parameter = &model->table[i];
    if (parameter->frozen || parameter->part == PLM_PART_HEAD) continue;
    model->trains_trunk = true;
    uint32_t from = model->block_count;
    if (parameter->part == PLM_PART_EMBEDDINGS) {
      model->trains_embeddings = true;
      from = 0;
    } else if (parameter->part >= 0) {
      from = (uint32_t)parameter->part;
      if (parameter->adapter == 0) model->blocks[from].frozen = false;
    } else if (strcmp(parameter->name, "plm.skip_weights") == 0) {
      from = 0;
      while (from < model->block_count && model->blocks[from].shape.skip_weight < 0) from++;
    }
    if (from < model->trained_from) model->trained_from = from;
  }
  for (uint32_t i = 0; i < model->block_count; i++)
    model->blocks[i].keeps = model->options.training && i >= model->trained_from;
  if (model->trained_from < model->block_count)
    model->blocks[model->trained_from].reach = first_reach(model);
  model->discarded_elements = model->options.training ? largest_discarded(model) : 0;
}

/* Fills in what depends only on the configuration. */
static plm_status model_resolve(struct plm_model *model, struct plm_error *error)
{
  const struct plm_model_config *config = &model->config;
  PLM_TRY(plm_model_parameters(config, &model->table, &model->table_count, &model->arena_elements,
                               error));
  model->order = plm_alloc_zeroed(model->table_count, sizeof *model->order);
  model->trained_elements =
      plm_parameters_freeze(model->table, model->table_count, &model->options.freeze);
  size_t placed = 0;
  for (int frozen = 0; frozen < 2; frozen++)
    for (size_t i = 0; i < model->table_count; i++)
      if (model->table[i].frozen == (frozen != 0)) model->order[placed++] = i;
  model->rules = plm_architecture_rules(config->architecture);
  model->block_count = plm_architecture_blocks(config);
  PLM_ASSERT(model->block_count > 0);
  model->levels = plm_architecture_levels(config);
  for (size_t i = 0; i < model->table_count; i++)
    model->table_total += model->table[i].group == PLM_GROUP_EMBED;
  model->blocks = plm_alloc_zeroed(model->block_count, sizeof *model->blocks);
  model->tables = plm_alloc_zeroed(model->table_total, sizeof *model->tables);
  uint32_t tables = 0; /* the embedding is the first of its group */
  for (size_t i = 0; i < model->table_count; i++)
    if (model->table[i].group == PLM_GROUP_EMBED)
      model->tables[tables++] =
          (struct token_table){.place = model->table[i].offset, .width = model->table[i].cols};
  for (uint32_t i = 0; i < model->block_count; i++) {
    resolve_block(model, i);
    const int skip = model->blocks[i].shape.skip;
    if (skip >= 0) model->blocks[skip].skipped_by = (int)i;
  }
  plm_model_resolve_adapters(model);
  resolve_ends(model);
  resolve_frozen(model);
  return PLM_OK;
}

static plm_status check_positions(uint32_t max_chunks, uint32_t max_length, struct plm_error *error)
{
  if ((uint64_t)max_chunks * max_length <= INT32_MAX) return PLM_OK;
  return plm_error_set(error, PLM_LIMIT, "%u chunks of %u tokens exceed the limit of %d tokens",
                       max_chunks, max_length, INT32_MAX);
}

/* Counts the bytes of the buffers, whose bases are NULL. */
static plm_status count_buffers(struct plm_model *model, struct plm_error *error)
{
  plm_model_lay_out(model);
  if (model->activations.used_bytes != SIZE_MAX && model->workspace.used_bytes != SIZE_MAX)
    return PLM_OK;
  return plm_error_set(error, PLM_LIMIT,
                       "the model's buffers for %u chunks of %u tokens are larger than the "
                       "address space",
                       model->options.max_chunks, model->config.max_length);
}

static plm_status model_create(const struct plm_model_config *config, size_t act_bytes,
                               const struct plm_model_options *options, struct plm_model **model,
                               struct plm_error *error)
{
  PLM_ASSERT(options->max_chunks > 0 && config->pattern_count > 0);
  PLM_TRY(check_positions(options->max_chunks, config->max_length, error));
  struct plm_model *made = plm_alloc_zeroed(1, sizeof *made);
  made->config = *config;
  made->options = *options;
  made->act_bytes = act_bytes;
  PLM_ASSERT(!options->int8 || (!options->training && act_bytes == sizeof(float)));
  plm_status status = model_resolve(made, error);
  if (status == PLM_OK && options->int8) status = plm_model_plan_int8(made, error);
  if (status != PLM_OK) {
    plm_model_close(made);
    return status;
  }
  plm_model_keep(made);
  const plm_status counted = count_buffers(made, error);
  if (counted != PLM_OK) {
    plm_model_close(made);
    return counted;
  }
  *model = made;
  return PLM_OK;
}

static void count_memory(const struct plm_model *model, struct plm_model_memory *memory)
{
  const uint64_t elements = model->arena_elements;
  *memory = (struct plm_model_memory){
      .parameters = model->kept_elements * sizeof(float),
      .weights = model->act_bytes == sizeof(float) ? plm_model_int8_bytes(model)
                                                   : elements * model->act_bytes,
      .gradients = model->options.training
                       ? (model->trained_elements + model->discarded_elements) * sizeof(float)
                       : 0,
      .activations = model->activations.used_bytes,
      .workspace = model->workspace.used_bytes};
}

plm_status plm_model_memory(const struct plm_model_config *config, size_t act_bytes,
                            const struct plm_model_options *options,
                            struct plm_model_memory *memory, struct plm_error *error)
{
  struct plm_model *model;
  PLM_TRY(model_create(config, act_bytes, options, &model, error));
  count_memory(model, memory);
  plm_model_close(model);
  return PLM_OK;
}

/* cos and sin of position * 10000^(-2i/K) (Su et al. 2021, RoFormer), computed in double and
 * rounded once. */
static plm_status upload_rotary(struct plm_model *model, struct plm_error *error)
{
  const size_t most = (size_t)model->config.max_length * 64; /* K <= 128 */
  float *cosine = malloc(2 * most * sizeof *cosine);
  if (cosine == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for rotary tables of %zu bytes",
                         2 * most * sizeof *cosine);
  float *sine = cosine + most;
  const float direction = model->rules->rotates_forward ? -1.0f : 1.0f;
  for (int level = 0; level < plm_architecture_attention_levels(&model->config); level++) {
    const size_t length = model->config.max_length >> level;
    const size_t K =
        plm_architecture_width(&model->config, level) / model->config.num_attention_heads;
    PLM_ASSERT(K <= 128);
    for (size_t position = 0; position < length; position++) {
      for (size_t i = 0; i < K / 2; i++) {
        const double frequency = pow(10000.0, -2.0 * (double)i / (double)K);
        const double angle = (double)position * frequency;
        cosine[position * (K / 2) + i] = (float)cos(angle);
        sine[position * (K / 2) + i] = direction * (float)sin(angle);
      }
    }
    const size_t bytes = length * (K / 2) * sizeof(float);
    model->ops->upload(model->ops, model->rotary[level].cosine, cosine, bytes);
    model->ops->upload(model->ops, model->rotary[level].sine, sine, bytes);
  }
  const plm_status status = model->ops->synchronize(model->ops, error);
  free(cosine);
  return status;
}

/* Allocates the buffers of passes, and fills the tables that never change. */
static plm_status allocate_buffers(struct plm_model *model, struct plm_error *error)
{
  struct plm_ops *ops = model->ops;
  struct plm_model_memory memory;
  count_memory(model, &memory);
  void *activations, *workspace;
  PLM_TRY(ops->allocate(ops, memory.activations, &activations, error));
  model->activations.base = (uintptr_t)activations;
  PLM_TRY(ops->allocate(ops, memory.workspace, &workspace, error));
  model->workspace.base = (uintptr_t)workspace;
  const size_t rows = (size_t)model->options.max_chunks * model->config.max_length;
  model->host_row_loss = calloc(rows, sizeof *model->host_row_loss);
  model->host_positions = calloc(rows, sizeof *model->host_positions);
  if (model->host_row_loss == NULL || model->host_positions == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu rows of the head", rows);
  plm_model_lay_out(model);
  PLM_TRY(plm_model_upload_adapter_rows(model, error));
  PLM_TRY(plm_model_upload_token_rows(model, error));
  return upload_rotary(model, error);
}

static void release_buffers(struct plm_model *model)
{
  if (model->workspace.base != 0) model->ops->release(model->ops, (void *)model->workspace.base);
  if (model->activations.base != 0)
    model->ops->release(model->ops, (void *)model->activations.base);
  model->workspace.base = model->activations.base = 0;
  free(model->host_positions);
  free(model->host_row_loss);
  model->host_positions = NULL;
  model->host_row_loss = NULL;
}

static plm_status model_allocate(struct plm_model *model, struct plm_error *error)
{
  struct plm_ops *ops = model->ops;
  struct plm_model_memory memory;
  count_memory(model, &memory);
  PLM_TRY(ops->allocate(ops, memory.parameters, (void **)&model->parameters, error));
  model->weights = model->parameters;
  if (memory.weights > 0) {
    model->weights = NULL;
    PLM_TRY(ops->allocate(ops, memory.weights, &model->weights, error));
  }
  if (memory.gradients > 0)
    PLM_TRY(ops->allocate(ops, memory.gradients, (void **)&model->gradients, error));
  PLM_TRY(allocate_buffers(model, error));
  /* only that of normalised rows is not the parameter's */
  for (uint32_t i = model->rules->normalises_tables;
       i < model->table_total && model->options.training; i++)
    model->tables[i].gradient = model_gradient(model, model->tables[i].place);
  ops->zero(ops, model->parameters, memory.parameters);
  if (memory.weights > 0) ops->zero(ops, model->weights, memory.weights);
  if (memory.gradients > 0) ops->zero(ops, model->gradients, memory.gradients);
  return PLM_OK;
}

plm_status plm_model_open(const struct plm_model_config *config, struct plm_ops *ops,
                          const struct plm_model_options *options, struct plm_model **model,
                          struct plm_error *error)
{
  struct plm_model *made;
  struct plm_model_options wanted = *options;
  if (ops->int8 && options->training)
    return plm_error_set(error, PLM_UNSUPPORTED,
                         "int8 is only for inference: a model is trained in fp32 or bf16");
  wanted.int8 = ops->int8;
  PLM_TRY(model_create(config, ops->act_bytes, &wanted, &made, error));
  made->ops = ops;
  const plm_status status = model_allocate(made, error);
  if (status != PLM_OK) {
    plm_model_close(made);
    return status;
  }
  *model = made;
  return PLM_OK;
}

plm_status plm_model_make_room(struct plm_model *model, uint32_t max_chunks, uint32_t max_length,
                               struct plm_error *error)
{
  PLM_ASSERT(!model->options.training && max_chunks > 0);
  PLM_ASSERT(max_length % plm_architecture_group(&model->config) == 0);
  PLM_ASSERT(max_length <= plm_architecture_longest(&model->config));
  PLM_TRY(check_positions(max_chunks, max_length, error));
  release_buffers(model);
  model->options.max_chunks = max_chunks;
  model->config.max_length = max_length;
  PLM_TRY(count_buffers(model, error));
  PLM_TRY(allocate_buffers(model, error));
  plm_model_weights_changed(model); /* it fills the token tables */
  return PLM_OK;
}

void plm_model_close(struct plm_model *model)
{
  if (model == NULL) return;
  if (model->ops != NULL) {
    struct plm_ops *ops = model->ops;
    release_buffers(model);
    if (model->gradients != NULL) ops->release(ops, model->gradients);
    if (model->weights != NULL && model->weights != model->parameters)
      ops->release(ops, model->weights);
    if (model->parameters != NULL) ops->release(ops, model->parameters);
  }
  free(model->tables);
  free(model->blocks);
  plm_model_forget_int8(model);
  free(model->kept_at);
  free(model->order);
  free(model->table);
  free(model);
}

const struct plm_model_config *plm_model_config(const struct plm_model *model)
{
  return &model->config;
}

struct plm_ops *plm_model_ops(struct plm_model *model)
{
  return model->ops;
}

const struct plm_parameter *plm_model_table(const struct plm_model *model, size_t *count)
{
  *count = model->table_count;
  return model->table;
}

size_t plm_model_arena_elements(const struct plm_model *model)
{
  return model->arena_elements;
}

size_t plm_model_trained_elements(const struct plm_model *model)
{
  return model->trained_elements;
}

float *plm_model_gradient_arena(struct plm_model *model)
{
  return model->gradients;
}

void plm_model_zero_gradients(struct plm_model *model)
{
  PLM_ASSERT(model->options.training);
  model->ops->zero(model->ops, model->gradients, model->trained_elements * sizeof(float));
}
