/* Chooses alpha, fits, and predicts. */
#include "evaluator/probe/probe_fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "evaluator/probe/logistic.h"
#include "evaluator/probe/ridge.h"

enum { ALPHAS = 8 };
static const double choices[ALPHAS] = {1e5, 1e4, 1e3, 100, 10, 1, 0.1, 0.01};

struct fitting {
  const struct plm_probe_items *items;
  const struct plm_features *features;
  struct plm_pool *pool;
  struct plm_probe_fit *fit;
  uint32_t classes;          /* of the table; 0: numbers */
  uint32_t *train, *held;    /* (items) */
  uint32_t *inside, *beside; /* (items) of an inner fold */
  int32_t *labels;           /* (items) numbers among the classes that are fitted */
  int32_t *numbers;          /* (classes) of a class among them; -1: it is not */
  double *z, *outputs, *row; /* (padded width), (classes), (classes or 1) */
};

/* A fit to some rows, by either method. */
struct method {
  struct plm_ridge *ridge;
  struct plm_logistic *logistic;
  const struct plm_linear *model;
  uint32_t fitted; /* classes */
};

static plm_status open_method(struct fitting *fitting, const struct plm_row_list *list,
                              struct method *method, struct plm_error *error)
{
  const struct plm_probe_items *items = fitting->items;
  *method = (struct method){0};
  if (fitting->classes == 0)
    return plm_ridge_open(fitting->features, list, items->targets, fitting->pool, &method->ridge,
                          error);
  for (uint32_t k = 0; k < fitting->classes; k++) fitting->numbers[k] = -1;
  for (size_t i = 0; i < list->count; i++) fitting->numbers[items->labels[list->rows[i]]] = 0;
  for (uint32_t k = 0; k < fitting->classes; k++)
    if (fitting->numbers[k] == 0) fitting->numbers[k] = (int32_t)method->fitted++;
  for (size_t i = 0; i < list->count; i++)
    fitting->labels[list->rows[i]] = fitting->numbers[items->labels[list->rows[i]]];
  if (method->fitted < 2) return PLM_OK; /* the only class is certain */
  return plm_logistic_open(fitting->features, list, fitting->labels, method->fitted, fitting->pool,
                           &method->logistic, error);
}

static void close_method(struct method *method)
{
  plm_ridge_close(method->ridge);
  plm_logistic_close(method->logistic);
}

static plm_status solve(struct method *method, double alpha, bool rough, struct plm_error *error)
{
  if (method->ridge != NULL) method->model = plm_ridge_solve(method->ridge, alpha);
  if (method->logistic == NULL) return PLM_OK;
  return plm_logistic_solve(method->logistic, alpha, rough, &method->model, error);
}

/* out: a number, or the probabilities of all classes of the table. */
static void predict(const struct fitting *fitting, const struct method *method, uint32_t item,
                    double *out)
{
  if (method->model != NULL) {
    plm_linear_standardise(method->model, fitting->features, item, fitting->z);
    plm_linear_apply(method->model, fitting->z, fitting->outputs);
  }
  if (fitting->classes == 0) {
    *out = fitting->outputs[0];
    return;
  }
  double probabilities[PLM_MOST_CLASSES] = {1};
  if (method->model != NULL)
    plm_logistic_probabilities(fitting->outputs, method->fitted, probabilities);
  for (uint32_t k = 0; k < fitting->classes; k++)
    out[k] = fitting->numbers[k] < 0 ? 0 : probabilities[fitting->numbers[k]];
}

/* The sum of the losses of held-out items. A class that was not fitted costs as much as the
 * smallest number. */
static double sum_losses(const struct fitting *fitting, const struct method *method,
                         const struct plm_row_list *held)
{
  const struct plm_probe_items *items = fitting->items;
  double sum = 0;
  for (size_t i = 0; i < held->count; i++) {
    const uint32_t item = held->rows[i];
    predict(fitting, method, item, fitting->row);
    if (fitting->classes == 0) {
      const double error = fitting->row[0] - items->targets[item];
      sum += error * error;
    } else {
      sum -= log(fmax(fitting->row[items->labels[item]], 1e-300));
    }
  }
  return sum;
}

/* Adds the losses of the held-out items for each alpha. */
static plm_status try_alphas(struct fitting *fitting, const struct plm_row_list *train,
                             const struct plm_row_list *held, double losses[ALPHAS],
                             struct plm_error *error)
{
  struct method method;
  plm_status status = open_method(fitting, train, &method, error);
  for (int i = 0; i < ALPHAS && status == PLM_OK; i++) {
    status = solve(&method, choices[i], true, error);
    if (status == PLM_OK) losses[i] += sum_losses(fitting, &method, held);
  }
  close_method(&method);
  return status;
}

static double take_best(struct fitting *fitting, const double losses[ALPHAS], size_t count)
{
  int best = 0;
  for (int i = 1; i < ALPHAS; i++)
    if (losses[i] < losses[best]) best = i;
  fitting->fit->loss += losses[best] / (double)count / fitting->fit->fits;
  return choices[best];
}

static plm_status choose_by_folds(struct fitting *fitting, const struct plm_row_list *train,
                                  double *alpha, struct plm_error *error)
{
  double losses[ALPHAS] = {0};
  size_t tried = 0;
  for (uint32_t fold = 0; fold < PLM_INNER_FOLDS; fold++) {
    struct plm_row_list beside = {fitting->beside, 0}, inside = {fitting->inside, 0};
    for (size_t i = 0; i < train->count; i++) {
      const uint32_t item = train->rows[i];
      if (fitting->items->inner[item] == fold)
        fitting->inside[inside.count++] = item;
      else
        fitting->beside[beside.count++] = item;
    }
    if (beside.count == 0 || inside.count == 0) continue;
    tried += inside.count;
    PLM_TRY(try_alphas(fitting, &beside, &inside, losses, error));
  }
  if (tried == 0) { /* all sequences are in one fold */
    *alpha = 1;
    return PLM_OK;
  }
  *alpha = take_best(fitting, losses, tried);
  return PLM_OK;
}

static plm_status check_classes(const struct fitting *fitting, const struct plm_row_list *train,
                                struct plm_error *error)
{
  const struct plm_labelled_table *table = fitting->items->table;
  if (train->count == 0) {
    plm_error_set(error, PLM_FORMAT, "there are no labels to fit a probe to");
    plm_error_hint(error, "the training part of %.200s is empty", table->path);
    return plm_error_where(error, "%s", table->path);
  }
  for (size_t i = 1; i < train->count && fitting->classes > 0; i++)
    if (fitting->items->labels[train->rows[i]] != fitting->items->labels[train->rows[0]])
      return PLM_OK;
  if (fitting->classes == 0) return PLM_OK;
  plm_error_set(error, PLM_FORMAT,
                "all labels in \"%.80s\" that a probe is fitted to are \"%.80s\"",
                table->target_name, table->classes[fitting->items->labels[train->rows[0]]]);
  plm_error_hint(error, "a probe needs at least two classes in its training data");
  return plm_error_where(error, "%s", table->path);
}

/* Fits to the rows, and predicts all items of a part, whose places in the result are at hand. */
static plm_status fit_and_predict(struct fitting *fitting, const struct plm_row_list *train,
                                  double alpha, uint32_t part, struct plm_error *error)
{
  struct plm_probe_fit *fit = fitting->fit;
  struct method method;
  plm_status status = open_method(fitting, train, &method, error);
  if (status == PLM_OK) status = solve(&method, alpha, false, error);
  const size_t width = fitting->classes == 0 ? 1 : fitting->classes;
  for (uint32_t i = 0; i < fit->count && status == PLM_OK; i++)
    if (fitting->items->parts[fit->items[i]] == part)
      predict(fitting, &method, fit->items[i], fit->predicted + i * width);
  close_method(&method);
  return status;
}

static size_t list_part(const struct plm_probe_items *items, uint32_t part, bool without,
                        uint32_t *rows)
{
  size_t count = 0;
  for (uint32_t i = 0; i < items->count; i++)
    if ((items->parts[i] == part) != without) rows[count++] = i;
  return count;
}

enum plm_label_part plm_probe_tested(const struct plm_labelled_table *table)
{
  return table->parts[PLM_PART_TEST] > 0 ? PLM_PART_TEST : PLM_PART_VALID;
}

/* The alpha of a fit to the rows, and its number in the result. */
static plm_status choose(struct fitting *fitting, const struct plm_row_list *train, double given,
                         uint32_t number, struct plm_error *error)
{
  PLM_TRY(check_classes(fitting, train, error));
  fitting->fit->alphas[number] = given;
  return given > 0 ? PLM_OK : choose_by_folds(fitting, train, &fitting->fit->alphas[number], error);
}

static plm_status fit_parts(struct fitting *fitting, double given, struct plm_error *error)
{
  const struct plm_probe_items *items = fitting->items;
  const enum plm_label_part tested = plm_probe_tested(items->table);
  struct plm_row_list train = {fitting->train, 0}, valid = {fitting->held, 0};
  train.count = list_part(items, PLM_PART_TRAIN, false, fitting->train);
  if (tested != PLM_PART_VALID)
    valid.count = list_part(items, PLM_PART_VALID, false, fitting->held);
  if (valid.count == 0) {
    PLM_TRY(choose(fitting, &train, given, 0, error));
    return fit_and_predict(fitting, &train, fitting->fit->alphas[0], tested, error);
  }
  PLM_TRY(check_classes(fitting, &train, error));
  fitting->fit->alphas[0] = given;
  if (!(given > 0)) {
    double losses[ALPHAS] = {0};
    PLM_TRY(try_alphas(fitting, &train, &valid, losses, error));
    fitting->fit->alphas[0] = take_best(fitting, losses, valid.count);
  }
  train.count = list_part(items, PLM_PART_TEST, true, fitting->train);
  return fit_and_predict(fitting, &train, fitting->fit->alphas[0], tested, error);
}

static plm_status fit_folds(struct fitting *fitting, double given, struct plm_error *error)
{
  for (uint32_t fold = 0; fold < fitting->items->table->folds; fold++) {
    struct plm_row_list train = {fitting->train, 0};
    train.count = list_part(fitting->items, fold, true, fitting->train);
    PLM_TRY(choose(fitting, &train, given, fold, error));
    PLM_TRY(fit_and_predict(fitting, &train, fitting->fit->alphas[fold], fold, error));
  }
  return PLM_OK;
}

/* ---- measures ---- */

static plm_status measure_fit(const struct fitting *fitting, struct plm_error *error)
{
  const struct plm_probe_items *items = fitting->items;
  struct plm_probe_fit *fit = fitting->fit;
  double *truth = calloc(fit->count + (size_t)1, sizeof *truth);
  int32_t *labels = calloc(fit->count + (size_t)1, sizeof *labels);
  uint32_t *units = calloc(fit->count + (size_t)1, sizeof *units);
  plm_status status = PLM_OK;
  uint32_t unit_count = 0;
  if (truth == NULL || labels == NULL || units == NULL)
    status = plm_error_set(error, PLM_NO_MEMORY, "out of memory for %u predictions", fit->count);
  for (uint32_t i = 0; i < fit->count && status == PLM_OK; i++) {
    const uint32_t item = fit->items[i];
    if (items->targets != NULL) truth[i] = items->targets[item];
    if (items->labels != NULL) labels[i] = items->labels[item];
    unit_count += i == 0 || items->rows[item] != items->rows[fit->items[i - 1]];
    units[i] = unit_count - 1;
  }
  const struct plm_class_predictions predictions = {.probabilities = fit->predicted,
                                                    .truth = labels,
                                                    .units = units,
                                                    .count = fit->count,
                                                    .unit_count = unit_count,
                                                    .classes = fitting->classes};
  if (status == PLM_OK && fitting->classes == 0)
    status = plm_measure_numbers(fit->predicted, truth, fit->count, true, fit->measured, error);
  else if (status == PLM_OK)
    status = plm_measure_classes(&predictions, true, fit->measured, error);
  free(truth);
  free(labels);
  free(units);
  return status;
}

/* ---- all ---- */

static plm_status allocate_fitting(struct fitting *fitting, struct plm_error *error)
{
  const struct plm_labelled_table *table = fitting->items->table;
  const size_t count = fitting->items->count + (size_t)1;
  const size_t width = fitting->classes == 0 ? 1 : fitting->classes;
  struct plm_probe_fit *fit = fitting->fit;
  fitting->train = calloc(count, sizeof *fitting->train);
  fitting->held = calloc(count, sizeof *fitting->held);
  fitting->inside = calloc(count, sizeof *fitting->inside);
  fitting->beside = calloc(count, sizeof *fitting->beside);
  fitting->labels = calloc(count, sizeof *fitting->labels);
  fitting->numbers = plm_alloc_zeroed(width, sizeof *fitting->numbers);
  fitting->outputs = plm_alloc_zeroed(width, sizeof *fitting->outputs);
  fitting->row = plm_alloc_zeroed(width, sizeof *fitting->row);
  fitting->z = malloc(plm_padded_width(fitting->features->width) * sizeof *fitting->z);
  fit->fits = table->folds > 0 ? table->folds : 1;
  fit->alphas = plm_alloc_zeroed(fit->fits, sizeof *fit->alphas);
  fit->items = calloc(count, sizeof *fit->items);
  for (uint32_t i = 0; i < fitting->items->count && fit->items != NULL; i++)
    if (table->folds > 0 || fitting->items->parts[i] == (uint32_t)plm_probe_tested(table))
      fit->items[fit->count++] = i;
  fit->predicted = malloc((fit->count + (size_t)1) * width * sizeof *fit->predicted);
  if (fitting->train != NULL && fitting->held != NULL && fitting->inside != NULL &&
      fitting->beside != NULL && fitting->labels != NULL && fitting->z != NULL &&
      fit->items != NULL && fit->predicted != NULL)
    return PLM_OK;
  return plm_error_set(error, PLM_NO_MEMORY, "out of memory for a probe of %zu labels", count);
}

static plm_status check_tested(const struct fitting *fitting, struct plm_error *error)
{
  const struct plm_labelled_table *table = fitting->items->table;
  if (table->folds == 1)
    plm_error_set(error, PLM_FORMAT, "all rows are in one fold, so there is nothing to fit to");
  else if (fitting->fit->count == 0)
    plm_error_set(error, PLM_FORMAT, "there are no labels to test a probe with");
  else
    return PLM_OK;
  plm_error_hint(
      error, table->hashed ? "the table is too small to be split by chance; name the column of its "
                             "split with --split"
                           : "the column of the split needs rows of test or valid, or of at least "
                             "two folds");
  return plm_error_where(error, "%s", table->path);
}

plm_status plm_probe_fit_run(const struct plm_probe_items *items,
                             const struct plm_features *features, double alpha,
                             struct plm_pool *pool, struct plm_probe_fit *fit,
                             struct plm_error *error)
{
  const bool numbers = items->table->kind == PLM_LABEL_NUMBER;
  struct fitting fitting = {.items = items,
                            .features = features,
                            .pool = pool,
                            .fit = fit,
                            .classes = numbers ? 0 : items->table->class_count};
  *fit = (struct plm_probe_fit){.loss = alpha > 0 ? NAN : 0};
  plm_status status = allocate_fitting(&fitting, error);
  if (status == PLM_OK) status = check_tested(&fitting, error);
  if (status == PLM_OK)
    status = items->table->folds > 0 ? fit_folds(&fitting, alpha, error)
                                     : fit_parts(&fitting, alpha, error);
  if (status == PLM_OK) status = measure_fit(&fitting, error);
  free(fitting.train);
  free(fitting.held);
  free(fitting.inside);
  free(fitting.beside);
  free(fitting.labels);
  free(fitting.numbers);
  free(fitting.outputs);
  free(fitting.row);
  free(fitting.z);
  if (status != PLM_OK) plm_probe_fit_deinit(fit);
  return status;
}

void plm_probe_fit_deinit(struct plm_probe_fit *fit)
{
  free(fit->items);
  free(fit->predicted);
  free(fit->alphas);
  *fit = (struct plm_probe_fit){0};
}
