/* Embeds the sequences of a table and fits probes, layer by layer. */
#include "evaluator/probe/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text/text.h"
#include "common/model/architecture.h"

/* The layers of one pass over the table together take at most this many bytes, but there is at
 * least one. */
static const size_t pass_bytes = (size_t)1 << 30;

struct probing {
  const struct plm_probe_request *request;
  struct plm_inference *inference;
  struct plm_probe_results *results;
  struct plm_pool *pool;
};

static plm_status fit_one(struct probing *probing, const float *x, uint32_t width,
                          struct plm_probe_fit *fit, struct plm_error *error)
{
  const struct plm_features features = {x, width};
  return plm_probe_fit_run(&probing->results->items, &features, probing->request->alpha,
                           probing->pool, fit, error);
}

/* The matrices of features that a pass fills: one for each of its layers. */
struct matrices {
  float *x[PLM_MAX_LAYERS];
  uint32_t widths[PLM_MAX_LAYERS];
  uint32_t count;
};

static plm_status open_matrices(const struct plm_probe_embedding *embedding, uint32_t hidden,
                                struct matrices *matrices, struct plm_error *error)
{
  const struct plm_layer_choice *layers = embedding->layers;
  const size_t items = (size_t)embedding->items->count + 1;
  const uint32_t count = layers != NULL && !embedding->joined ? layers->count : 1;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t width = layers == NULL      ? hidden
                           : embedding->joined ? layers->width
                                               : layers->widths[i];
    matrices->widths[i] = plm_probe_width(embedding, width);
    matrices->x[i] = malloc(items * matrices->widths[i] * sizeof(float));
    if (matrices->x[i] == NULL)
      return plm_error_set(error, PLM_NO_MEMORY, "out of memory for %zu embeddings of %u floats",
                           items, matrices->widths[i]);
    matrices->count++;
  }
  return PLM_OK;
}

static plm_status run_pass(struct probing *probing, const struct plm_probe_embedding *embedding,
                           struct matrices *matrices, struct plm_error *error)
{
  struct plm_probe_results *results = probing->results;
  const struct plm_layer_choice *layers = embedding->layers;
  PLM_TRY(open_matrices(embedding, probing->inference->config.hidden_size, matrices, error));
  PLM_TRY(plm_probe_embed(embedding, probing->inference, matrices->x, error));
  for (uint32_t i = 0; i < matrices->count; i++) {
    struct plm_probed *probed = &results->layers[results->count];
    if (layers == NULL)
      snprintf(probed->layer, sizeof probed->layer, "last");
    else if (embedding->joined)
      snprintf(probed->layer, sizeof probed->layer, "%s", layers->name);
    else
      snprintf(probed->layer, sizeof probed->layer, "%u", layers->states[i]);
    PLM_TRY(fit_one(probing, matrices->x[i], matrices->widths[i], &probed->fit, error));
    results->count++;
  }
  return PLM_OK;
}

/* Embeds with some layers, and fits a probe to each of them or, joined, to all together. NULL: the
 * last hidden state. */
static plm_status probe_layers(struct probing *probing, const struct plm_layer_choice *layers,
                               bool joined, struct plm_error *error)
{
  const struct plm_probe_request *request = probing->request;
  const struct plm_probe_embedding embedding = {.items = &probing->results->items,
                                                .pooling = &request->pooling,
                                                .layers = layers,
                                                .joined = joined,
                                                .check = request->check,
                                                .context = request->context};
  struct matrices matrices = {0};
  const plm_status status = run_pass(probing, &embedding, &matrices, error);
  for (uint32_t i = 0; i < matrices.count; i++) free(matrices.x[i]);
  return status;
}

/* All states, in passes of as many as their matrices may take. */
static plm_status probe_all_layers(struct probing *probing, struct plm_error *error)
{
  const struct plm_model_config *config = &probing->inference->config;
  const uint32_t states = plm_architecture_blocks(config) + 1;
  const size_t bytes =
      ((size_t)probing->results->items.count + 1) * config->hidden_size * sizeof(float);
  const size_t fit = pass_bytes / bytes;
  const uint32_t most = fit < 1 ? 1 : fit < PLM_MAX_LAYERS ? (uint32_t)fit : PLM_MAX_LAYERS;
  for (uint32_t first = 0; first < states; first += most) {
    struct plm_layer_choice layers;
    struct plm_text text = {0};
    for (uint32_t i = first; i < states && i < first + most; i++)
      plm_text_printf(&text, "%s%u", i == first ? "" : ",", i);
    plm_status status = plm_layer_choice_parse(text.data, config, &layers, error);
    plm_text_deinit(&text);
    if (status == PLM_OK) status = probe_layers(probing, &layers, false, error);
    PLM_TRY(status);
  }
  return PLM_OK;
}

static plm_status probe_baseline(struct probing *probing, struct plm_error *error)
{
  const struct plm_tokenizer *tokenizer = probing->inference->tokenizer;
  const struct plm_probe_items *items = &probing->results->items;
  const uint32_t width = plm_probe_composition_width(items, tokenizer);
  float *x = malloc(((size_t)items->count + 1) * width * sizeof *x);
  if (x == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for the composition of %u items",
                         items->count);
  plm_probe_composition(items, tokenizer, x);
  const plm_status status = fit_one(probing, x, width, &probing->results->baseline, error);
  free(x);
  return status;
}

/* Makes the items, and room for the longest sequence that they see. */
static plm_status open_items(struct probing *probing, const struct plm_labelled_table *table,
                             struct plm_error *error)
{
  struct plm_inference *inference = probing->inference;
  uint32_t longest = 0;
  PLM_TRY(plm_inference_set_limit(inference, probing->request->max_length, error));
  const uint32_t most = plm_inference_most(inference);
  PLM_TRY(plm_probe_items_init(&probing->results->items, table, most, error));
  for (size_t i = 0; i < table->count; i++)
    if (table->rows[i].length > longest) longest = table->rows[i].length;
  return plm_inference_make_room(inference, longest < most - 2 ? longest + 2 : most, error);
}

/* The baseline comes first: it takes little time, and finds whatever is wrong with the labels. */
static plm_status probe_all(struct probing *probing, const struct plm_labelled_table *table,
                            struct plm_error *error)
{
  const struct plm_model_config *config = &probing->inference->config;
  struct plm_probe_results *results = probing->results;
  const char *layers = probing->request->layers;
  const uint32_t most = plm_architecture_blocks(config) + 1;
  struct plm_layer_choice choice;
  const bool all = layers != NULL && strcmp(layers, "all") == 0;
  if (layers != NULL && !all) PLM_TRY(plm_layer_choice_parse(layers, config, &choice, error));
  PLM_TRY(open_items(probing, table, error));
  results->layers = plm_alloc_zeroed(all ? most : 1, sizeof *results->layers);
  PLM_TRY(probe_baseline(probing, error));
  PLM_TRY(all ? probe_all_layers(probing, error)
              : probe_layers(probing, layers != NULL ? &choice : NULL, true, error));
  results->best = results->count - 1;
  for (uint32_t i = 0; i < results->count; i++)
    if (results->layers[i].fit.loss < results->layers[results->best].fit.loss) results->best = i;
  return PLM_OK;
}

plm_status plm_probe_run(const struct plm_probe_request *request,
                         const struct plm_labelled_table *table, struct plm_inference *inference,
                         struct plm_probe_results *results, struct plm_error *error)
{
  struct probing probing = {.request = request, .inference = inference, .results = results};
  const uint32_t threads = inference->ops->threads;
  *results = (struct plm_probe_results){0};
  PLM_TRY(plm_pool_open(threads > 0 ? threads : 1, &probing.pool, error));
  const plm_status status = probe_all(&probing, table, error);
  plm_pool_close(probing.pool);
  if (status != PLM_OK) plm_probe_results_deinit(results);
  return status;
}

void plm_probe_results_deinit(struct plm_probe_results *results)
{
  for (uint32_t i = 0; i < results->count; i++) plm_probe_fit_deinit(&results->layers[i].fit);
  free(results->layers);
  plm_probe_fit_deinit(&results->baseline);
  plm_probe_items_deinit(&results->items);
  *results = (struct plm_probe_results){0};
}
