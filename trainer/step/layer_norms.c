/* Measures norms by layer. */
#include "trainer/step/layer_norms.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/size.h"
#include "common/checkpoint/tensor_names.h"
#include "trainer/ranks/held.h"

struct layer {
  char name[96];
  double norms[PLM_MEASURED_NORMS];
};

struct plm_layer_norms {
  struct plm_ops *ops;
  struct plm_model *model;
  struct plm_ranks *ranks;
  const uint32_t *owners;
  size_t parameters;
  float *before;   /* device: the values that this process updates, before the update */
  size_t *places;  /* by parameter: its offset in before */
  double *squares; /* device (PLM_MEASURED_NORMS, parameters) */
  double *mine, *all;
  struct plm_array
      *arrays[PLM_MEASURED_NORMS]; /* by parameter; without elements if it is not held */
  struct layer *layers;
  size_t layer_count;
  size_t *layer_of; /* by parameter */
};

/* ---- layers ---------------------------------------------------------------------------------- */

/* The word before the first number of a parameter's name, with the number; the first word of a name
 * without one. What the name of the whole model adds is left out. */
static void name_of_layer(char name[96], const char *parameter)
{
  const char *word = plm_tensor_within_trunk(parameter);
  size_t length = strcspn(word, ".");
  for (const char *next = word; next[strcspn(next, ".")] == '.';) {
    const size_t own = strcspn(next, ".");
    if (isdigit((unsigned char)next[own + 1])) {
      word = next;
      length = own + 1 + strcspn(next + own + 1, ".");
      break;
    }
    next += own + 1;
  }
  snprintf(name, 96, "%.*s", (int)length, word);
}

static void find_layers(struct plm_layer_norms *norms, const struct plm_parameter *table)
{
  for (size_t i = 0; i < norms->parameters; i++) {
    char name[96];
    size_t layer = 0;
    if (table[i].frozen) continue; /* its numbers are 0 */
    name_of_layer(name, table[i].name);
    while (layer < norms->layer_count && strcmp(norms->layers[layer].name, name) != 0) layer++;
    if (layer == norms->layer_count)
      memcpy(norms->layers[norms->layer_count++].name, name, sizeof name);
    norms->layer_of[i] = layer;
  }
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool is_held(const struct plm_layer_norms *norms, size_t parameter)
{
  const struct plm_held held = {.owners = norms->owners, .rank = norms->ranks->rank};
  return plm_is_held(&held, parameter);
}

/* Returns the elements of the copy. */
static size_t layer_norms_place(struct plm_layer_norms *norms, const struct plm_parameter *table)
{
  size_t elements = 0;
  for (size_t i = 0; i < norms->parameters; i++) {
    norms->places[i] = elements;
    if (is_held(norms, i)) elements += plm_size_round_up(table[i].count, PLM_PARAMETER_ALIGNMENT);
  }
  return elements;
}

static void layer_norms_describe(struct plm_layer_norms *norms, const struct plm_parameter *table)
{
  const float *gradients = plm_model_gradient_arena(norms->model);
  for (size_t i = 0; i < norms->parameters; i++) {
    if (!is_held(norms, i)) continue;
    const float *weights = plm_model_parameter(norms->model, i);
    struct plm_array *const *arrays = norms->arrays;
    arrays[PLM_MEASURED_GRADIENT][i] =
        (struct plm_array){.x = gradients + table[i].offset, .n = table[i].count};
    arrays[PLM_MEASURED_WEIGHT][i] = (struct plm_array){.x = weights, .n = table[i].count};
    arrays[PLM_MEASURED_UPDATE][i] = (struct plm_array){
        .x = weights, .n = table[i].count, .minus = norms->before + norms->places[i]};
  }
}

static plm_status layer_norms_allocate(struct plm_layer_norms *norms,
                                       const struct plm_parameter *table, struct plm_error *error)
{
  const size_t count = norms->parameters, numbers = PLM_MEASURED_NORMS * count;
  const uint32_t ranks = norms->ranks->ranks;
  bool taken = true;
  for (int kind = 0; kind < PLM_MEASURED_NORMS; kind++) {
    norms->arrays[kind] = calloc(count, sizeof *norms->arrays[kind]);
    taken = taken && norms->arrays[kind] != NULL;
  }
  norms->places = calloc(count, sizeof *norms->places);
  norms->layer_of = calloc(count, sizeof *norms->layer_of);
  norms->layers = calloc(count, sizeof *norms->layers);
  norms->mine = calloc(numbers, sizeof *norms->mine);
  norms->all = calloc(numbers * ranks, sizeof *norms->all);
  if (!taken || norms->places == NULL || norms->layer_of == NULL || norms->layers == NULL ||
      norms->mine == NULL || norms->all == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the norms of layers");
  find_layers(norms, table);
  const size_t elements = layer_norms_place(norms, table);
  if (elements > 0)
    PLM_TRY(
        norms->ops->allocate(norms->ops, elements * sizeof(float), (void **)&norms->before, error));
  PLM_TRY(
      norms->ops->allocate(norms->ops, numbers * sizeof(double), (void **)&norms->squares, error));
  layer_norms_describe(norms, table);
  return PLM_OK;
}

plm_status plm_layer_norms_open(struct plm_model *model, struct plm_ranks *ranks,
                                const uint32_t *owners, struct plm_layer_norms **out,
                                struct plm_error *error)
{
  struct plm_layer_norms *norms = calloc(1, sizeof *norms);
  if (norms == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the norms of layers");
  *norms = (struct plm_layer_norms){
      .ops = plm_model_ops(model), .model = model, .ranks = ranks, .owners = owners};
  const struct plm_parameter *table = plm_model_table(model, &norms->parameters);
  const plm_status status = layer_norms_allocate(norms, table, error);
  if (status != PLM_OK) {
    plm_layer_norms_close(norms);
    return status;
  }
  *out = norms;
  return PLM_OK;
}

void plm_layer_norms_close(struct plm_layer_norms *norms)
{
  if (norms == NULL) return;
  struct plm_ops *ops = norms->ops;
  if (norms->before != NULL) ops->release(ops, norms->before);
  if (norms->squares != NULL) ops->release(ops, norms->squares);
  for (int kind = 0; kind < PLM_MEASURED_NORMS; kind++) free(norms->arrays[kind]);
  free(norms->places);
  free(norms->layer_of);
  free(norms->layers);
  free(norms->mine);
  free(norms->all);
  free(norms);
}

/* ---- measuring ------------------------------------------------------------------------------- */

static void sum(struct plm_layer_norms *norms, enum plm_measured_norm kind)
{
  norms->ops->sum_squares(norms->ops, norms->squares + (size_t)kind * norms->parameters,
                          norms->arrays[kind], norms->parameters);
}

void plm_layer_norms_before(struct plm_layer_norms *norms)
{
  struct plm_ops *ops = norms->ops;
  for (size_t i = 0; i < norms->parameters; i++) {
    const struct plm_array *weights = &norms->arrays[PLM_MEASURED_WEIGHT][i];
    if (weights->n == 0) continue;
    ops->copy(ops, norms->before + norms->places[i], weights->x, weights->n * sizeof(float));
  }
  sum(norms, PLM_MEASURED_GRADIENT);
}

void plm_layer_norms_after(struct plm_layer_norms *norms)
{
  sum(norms, PLM_MEASURED_WEIGHT);
  sum(norms, PLM_MEASURED_UPDATE);
}

/* The sum of squares of a parameter, from the rank that updates it. */
static double square_of(const struct plm_layer_norms *norms, enum plm_measured_norm kind, size_t i)
{
  const size_t place = (size_t)kind * norms->parameters + i;
  const uint32_t from = plm_speaker(norms->owners[i]);
  return norms->all[from * PLM_MEASURED_NORMS * norms->parameters + place];
}

plm_status plm_layer_norms_finish(struct plm_layer_norms *norms, double count,
                                  struct plm_error *error)
{
  struct plm_ops *ops = norms->ops;
  const size_t bytes = PLM_MEASURED_NORMS * norms->parameters * sizeof(double);
  ops->download(ops, norms->mine, norms->squares, bytes);
  PLM_TRY(ops->synchronize(ops, error));
  PLM_TRY(plm_collective_gather(norms->ranks->collective, PLM_LANE_STEP, norms->all, norms->mine,
                                bytes, error));
  for (int kind = 0; kind < PLM_MEASURED_NORMS; kind++) {
    for (size_t l = 0; l < norms->layer_count; l++) norms->layers[l].norms[kind] = 0;
    for (size_t i = 0; i < norms->parameters; i++)
      norms->layers[norms->layer_of[i]].norms[kind] += square_of(norms, kind, i);
    for (size_t l = 0; l < norms->layer_count; l++)
      norms->layers[l].norms[kind] =
          sqrt(norms->layers[l].norms[kind]) / (kind == PLM_MEASURED_GRADIENT ? count : 1);
  }
  return PLM_OK;
}

size_t plm_layer_norms_count(const struct plm_layer_norms *norms)
{
  return norms->layer_count;
}

const char *plm_layer_norms_name(const struct plm_layer_norms *norms, size_t layer)
{
  return norms->layers[layer].name;
}

double plm_layer_norms_value(const struct plm_layer_norms *norms, enum plm_measured_norm kind,
                             size_t layer)
{
  return norms->layers[layer].norms[kind];
}
