/* Finds the columns that a head's outputs are about. */
#include "evaluator/labels/label_match.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text/text.h"
#include "common/model/labelled_rows.h"

void plm_label_match_deinit(struct plm_label_match *match)
{
  plm_label_choice_deinit(&match->choice);
  free(match->output);
  *match = (struct plm_label_match){0};
}

/* The kind of the one column that has the labels. */
static enum plm_label_kind kind_of(enum plm_label_task task)
{
  static const enum plm_label_kind kinds[PLM_LABEL_TASKS] = {PLM_LABEL_NUMBER, PLM_LABEL_CLASS,
                                                             PLM_LABEL_CLASSES, PLM_LABEL_RESIDUES};
  return kinds[task];
}

/* Whether a column has labels of one output: numbers, or yes and no. */
static bool is_one_output(enum plm_label_task task, const struct plm_label_column *column)
{
  if (task == PLM_TASK_REGRESSION) return column->kind == PLM_LABEL_NUMBER;
  return task == PLM_TASK_MULTILABEL && column->kind == PLM_LABEL_CLASS && column->class_count == 2;
}

static bool is_unnamed(const struct plm_label_names *names)
{
  char standard[24];
  for (uint32_t i = 0; i < names->count; i++) {
    snprintf(standard, sizeof standard, "LABEL_%u", i);
    if (strcmp(names->names[i], standard) != 0) return false;
  }
  return true;
}

/* ---- classes ----------------------------------------------------------------------------------
 */

/* Whether an output before this one has its name. */
static bool is_named_before(const struct plm_label_names *names, uint32_t output)
{
  for (uint32_t o = 0; o < output; o++)
    if (strcmp(names->names[o], names->names[output]) == 0) return true;
  return false;
}

struct called {
  const char *name;
  int32_t output;
};

static int by_name(const void *a, const void *b)
{
  const struct called *x = a, *y = b;
  const int order = strcmp(x->name, y->name);
  return order != 0 ? order : x->output - y->output;
}

/* Fills output (classes of the column). Returns how many classes the model knows. */
static uint32_t place_classes(const struct plm_label_names *names,
                              const struct plm_label_column *column, int32_t *output)
{
  uint32_t known = 0;
  const bool in_order = is_unnamed(names) && names->count == column->class_count;
  struct called *sorted = plm_alloc_zeroed(names->count, sizeof *sorted);
  for (uint32_t o = 0; o < names->count; o++)
    sorted[o] = (struct called){names->names[o], (int32_t)o};
  qsort(sorted, names->count, sizeof *sorted, by_name);
  for (uint32_t c = 0, at = 0; c < column->class_count; c++) { /* classes are sorted, too */
    while (at < names->count && strcmp(sorted[at].name, column->classes[c]) < 0) at++;
    const bool same = at < names->count && strcmp(sorted[at].name, column->classes[c]) == 0;
    output[c] = in_order ? (int32_t)c : same ? sorted[at].output : PLM_NO_OUTPUT;
    known += output[c] != PLM_NO_OUTPUT;
  }
  free(sorted);
  return known;
}

static bool knows_a_class(const struct plm_label_names *names,
                          const struct plm_label_column *column)
{
  int32_t *output = plm_alloc_zeroed(column->class_count, sizeof *output);
  const uint32_t known = place_classes(names, column, output);
  free(output);
  return known > 0;
}

/* ---- columns ----------------------------------------------------------------------------------
 */

/* Columns by their numbers in the schema. */
struct found {
  uint32_t columns[PLM_LABEL_COLUMNS_MOST];
  uint32_t count;
};

static void found_add(struct found *found, const struct plm_label_schema *schema,
                      const struct plm_label_column *column)
{
  PLM_ASSERT(found->count < PLM_LABEL_COLUMNS_MOST);
  found->columns[found->count++] = (uint32_t)(column - schema->columns);
}

static plm_status no_column(const struct plm_label_search *search, const char *why,
                            struct plm_error *error)
{
  static const char *const predictions[PLM_LABEL_TASKS] = {"numbers", "a class", "several classes",
                                                           "a class of each residue"};
  const struct plm_label_schema *schema = search->schema;
  const struct plm_label_names *names = search->names;
  struct plm_text outputs = {0}, columns = {0};
  for (uint32_t o = 0; o < names->count && outputs.length < 200; o++)
    plm_text_printf(&outputs, "%s%.100s", o == 0 ? "" : ", ", names->names[o]);
  for (uint32_t c = 0; c < schema->count && columns.length < 300; c++)
    plm_text_printf(&columns, "%s%.100s (%s)", c == 0 ? "" : ", ", schema->columns[c].name,
                    plm_label_kind_name(schema->columns[c].kind));
  plm_error_set(error, PLM_CONFIG, "%s; the model predicts %s: %s%s", why,
                predictions[plm_label_task_of(search->head)],
                outputs.data == NULL ? "" : outputs.data, outputs.length >= 200 ? ", ..." : "");
  plm_error_hint(error, "the corpus has the columns %s; %s", columns.data,
                 search->of_run ? "the run trains on those of trainer.labels"
                                : "choose one with --labels");
  plm_text_deinit(&outputs);
  plm_text_deinit(&columns);
  return PLM_CONFIG;
}

/* The columns that the user named. */
static plm_status take_named(const struct plm_label_search *search, struct found *found,
                             struct plm_error *error)
{
  for (uint32_t i = 0; i < search->column_count; i++) {
    const struct plm_label_column *column =
        plm_label_schema_find(search->schema, search->columns[i]);
    char why[160];
    snprintf(why, sizeof why, "there is no column of labels called %.80s", search->columns[i]);
    if (column == NULL) return no_column(search, why, error);
    for (uint32_t k = 0; k < found->count; k++)
      if (&search->schema->columns[found->columns[k]] == column)
        return plm_error_set(error, PLM_CONFIG, "the column %.80s of labels is named twice",
                             search->columns[i]);
    found_add(found, search->schema, column);
  }
  return PLM_OK;
}

/* The columns that are called as the outputs; none unless all of them are there. */
static void take_called(const struct plm_label_search *search, enum plm_label_task task,
                        struct found *found)
{
  for (uint32_t o = 0; o < search->names->count; o++) {
    const struct plm_label_column *column =
        plm_label_schema_find(search->schema, search->names->names[o]);
    if (column == NULL || is_named_before(search->names, o) || !is_one_output(task, column)) {
      found->count = 0;
      return;
    }
    found_add(found, search->schema, column);
  }
}

/* All columns that could be the one that is meant, or of numbers, those that are as many as the
 * outputs. */
static void take_fitting(const struct plm_label_search *search, enum plm_label_task task,
                         struct found *found)
{
  for (uint32_t c = 0; c < search->schema->count; c++) {
    const struct plm_label_column *column = &search->schema->columns[c];
    if (column->kind == kind_of(task) &&
        (task == PLM_TASK_REGRESSION || knows_a_class(search->names, column)))
      found_add(found, search->schema, column);
  }
  const uint32_t outputs = search->head->outputs;
  if (task == PLM_TASK_REGRESSION &&
      (found->count != outputs || (outputs > 1 && !is_unnamed(search->names))))
    found->count = 0;
}

/* Whether the columns that the user named are called as the outputs, in whatever order. */
static bool are_the_outputs(const struct plm_label_search *search)
{
  if (search->column_count != search->names->count) return false;
  for (uint32_t o = 0; o < search->names->count; o++) {
    uint32_t i = 0;
    while (i < search->column_count && strcmp(search->columns[i], search->names->names[o]) != 0)
      i++;
    if (i == search->column_count) return false;
  }
  return true;
}

static plm_status choose(const struct plm_label_search *search, enum plm_label_task task,
                         struct found *found, struct plm_error *error)
{
  if (search->column_count == 0 || are_the_outputs(search)) take_called(search, task, found);
  if (found->count > 0) return PLM_OK;
  if (search->column_count > 0) return take_named(search, found, error);
  take_fitting(search, task, found);
  if (found->count == 0) return no_column(search, "no column of labels fits the model", error);
  if (found->count > 1 && task != PLM_TASK_REGRESSION)
    return no_column(search, "several columns of labels fit the model", error);
  return PLM_OK;
}

/* Whether the columns are what the head predicts. */
static plm_status check(const struct plm_label_search *search, enum plm_label_task task,
                        const struct found *found, struct plm_error *error)
{
  const struct plm_label_column *columns = search->schema->columns;
  const struct plm_label_column *first = &columns[found->columns[0]];
  char why[200];
  if (is_one_output(task, first) && found->count != search->head->outputs) {
    snprintf(why, sizeof why, "columns of labels that are chosen: %u, outputs of the model: %u",
             found->count, search->head->outputs);
    return no_column(search, why, error);
  }
  for (uint32_t i = 0; i < found->count; i++) {
    const struct plm_label_column *column = &columns[found->columns[i]];
    const bool one = is_one_output(task, first)
                         ? is_one_output(task, column)
                         : found->count == 1 && column->kind == kind_of(task);
    snprintf(why, sizeof why, "the column %.80s of labels does not fit the model", column->name);
    if (!one) return no_column(search, why, error);
    snprintf(why, sizeof why, "the model knows no class of the column %.80s of labels",
             column->name);
    if (!is_one_output(task, first) && !knows_a_class(search->names, column))
      return no_column(search, why, error);
  }
  return PLM_OK;
}

/* Copies the columns. Numbers are scaled as those that the model was trained with. */
static void copy_choice(const struct plm_label_search *search, enum plm_label_task task,
                        const struct found *found, struct plm_label_choice *choice)
{
  const bool numbers = task == PLM_TASK_REGRESSION;
  *choice = (struct plm_label_choice){.task = task, .column_count = found->count};
  struct plm_label_schema some = {plm_alloc_zeroed(found->count, sizeof *some.columns),
                                  found->count};
  struct plm_label_schema copy;
  for (uint32_t i = 0; i < found->count; i++)
    some.columns[i] = search->schema->columns[found->columns[i]];
  plm_label_schema_copy(&some, &copy);
  free(some.columns); /* the names are the schema's */
  choice->columns = copy.columns;
  choice->outputs =
      is_one_output(task, &choice->columns[0]) ? found->count : choice->columns[0].class_count;
  if (!numbers) return;
  choice->mean = plm_alloc_zeroed(found->count, sizeof *choice->mean);
  choice->deviation = plm_alloc_zeroed(found->count, sizeof *choice->deviation);
  for (uint32_t i = 0; i < found->count; i++) {
    const bool scaled = search->names->mean != NULL;
    choice->mean[i] = scaled ? search->names->mean[i] : 0;
    choice->deviation[i] = scaled ? search->names->deviation[i] : 1;
  }
}

plm_status plm_label_match_find(const struct plm_label_search *search,
                                struct plm_label_match *match, struct plm_error *error)
{
  const enum plm_label_task task = plm_label_task_of(search->head);
  struct found found = {0};
  *match = (struct plm_label_match){0};
  if (search->schema == NULL || search->schema->count == 0) {
    plm_error_set(error, PLM_CONFIG, "the corpus has no labels, which this model predicts");
    return plm_error_hint(error, "make one with `plm-pipeline ingest TABLE --corpus DIR --labels "
                                 "COLUMN`");
  }
  PLM_TRY(choose(search, task, &found, error));
  PLM_TRY(check(search, task, &found, error));
  copy_choice(search, task, &found, &match->choice);
  const struct plm_label_column *first = &match->choice.columns[0];
  if (is_one_output(task, first)) return PLM_OK;
  match->output = plm_alloc_zeroed(first->class_count, sizeof *match->output);
  match->foreign = first->class_count - place_classes(search->names, first, match->output);
  return PLM_OK;
}
