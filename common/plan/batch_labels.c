/* Choosing columns of labels, and the labels of a batch. */
#include "common/plan/batch_labels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text/text.h"

const char *const plm_label_task_names[] = {"regression", "classification", "multilabel",
                                            "residues", NULL};

/* ---- the choice --------------------------------------------------------------------------- */

void plm_label_choice_deinit(struct plm_label_choice *choice)
{
  struct plm_label_schema columns = {choice->columns, choice->column_count};
  plm_label_schema_deinit(&columns);
  free(choice->mean);
  free(choice->deviation);
  *choice = (struct plm_label_choice){0};
}

static plm_status no_such_column(const struct plm_label_schema *schema, const char *source,
                                 const char *name, struct plm_error *error)
{
  struct plm_text names = {0};
  if (schema == NULL || schema->count == 0) {
    plm_error_set(error, PLM_CONFIG, "corpus %s has no labels", source);
    return plm_error_hint(error,
                          "plm-pipeline ingest TABLE --corpus DIR --labels %s makes one with "
                          "labels",
                          name);
  }
  for (uint32_t i = 0; i < schema->count && names.length < 300; i++)
    plm_text_printf(&names, "%s%s", i == 0 ? "" : ", ", schema->columns[i].name);
  plm_error_set(error, PLM_CONFIG, "corpus %s has no column of labels called %s", source, name);
  plm_error_hint(error, "its columns are %s", names.data);
  plm_text_deinit(&names);
  return PLM_CONFIG;
}

/* Adds the statistics of another source's column: the moments of both together (Chan et al. 1979,
 * "Updating formulae and a pairwise algorithm for computing sample variances"). */
static void add_statistics(struct plm_label_column *to, const struct plm_label_column *more)
{
  const double a = (double)to->labels[0], b = (double)more->labels[0], n = a + b;
  if (b > 0) { /* those of classes are 0 and stay so */
    const double apart = more->mean - to->mean;
    const double squares = a * to->deviation * to->deviation +
                           b * more->deviation * more->deviation + apart * apart * a * b / n;
    to->mean += apart * b / n;
    to->deviation = sqrt(squares / n);
  }
  for (uint32_t c = 0; c < to->class_count; c++) to->counts[c] += more->counts[c];
  for (int s = 0; s < PLM_PROOF_SPLITS; s++) to->labels[s] += more->labels[s];
}

static bool kind_fits(enum plm_label_task task, const struct plm_label_column *column)
{
  switch (task) {
  case PLM_TASK_REGRESSION: return column->kind == PLM_LABEL_NUMBER;
  case PLM_TASK_CLASSIFICATION: return column->kind == PLM_LABEL_CLASS;
  case PLM_TASK_RESIDUES: return column->kind == PLM_LABEL_RESIDUES;
  default:
    return column->kind == PLM_LABEL_CLASSES ||
           (column->kind == PLM_LABEL_CLASS && column->class_count == 2);
  }
}

/* What the task needs of a column of any corpus. */
static plm_status check_kind(enum plm_label_task task, uint32_t count,
                             const struct plm_label_column *column, struct plm_error *error)
{
  static const char *const needs[PLM_LABEL_TASKS] = {
      "columns of numbers", "one column of kind class",
      "one column of kind classes, or several of kind class with two classes each",
      "one column of kind residues"};
  const bool several = task == PLM_TASK_REGRESSION ||
                       (task == PLM_TASK_MULTILABEL && column->kind == PLM_LABEL_CLASS);
  if (!kind_fits(task, column) || (count > 1 && !several))
    return plm_error_set(error, PLM_CONFIG,
                         "objective %s needs %s, and %s of %u is of kind %s with %u classes",
                         plm_label_task_names[task], needs[task], column->name, count,
                         plm_label_kind_name(column->kind), column->class_count);
  return PLM_OK;
}

/* What it needs besides of one that is trained on. */
static plm_status check_trained(enum plm_label_task task, const struct plm_label_column *column,
                                struct plm_error *error)
{
  if (column->labels[0] == 0)
    return plm_error_set(error, PLM_CONFIG, "no document of the training split has a label %s",
                         column->name);
  if (column->kind != PLM_LABEL_NUMBER && column->class_count < 2 && task != PLM_TASK_MULTILABEL)
    return plm_error_set(error, PLM_CONFIG,
                         "column %s has one class only, so nothing can be learnt", column->name);
  return PLM_OK;
}

/* Finds the column in all sources, and collects their statistics. */
static plm_status choose_column(const char *name, const struct plm_label_schema *const *schemas,
                                const char *const *sources, uint32_t source_count,
                                struct plm_label_column *out, struct plm_error *error)
{
  for (uint32_t k = 0; k < source_count; k++) {
    const char *source = sources[k] != NULL ? sources[k] : "of the run";
    const struct plm_label_column *column =
        schemas[k] == NULL ? NULL : plm_label_schema_find(schemas[k], name);
    if (column == NULL) return no_such_column(schemas[k], source, name, error);
    if (k == 0) {
      struct plm_label_schema one = {(struct plm_label_column *)column, 1}, copy;
      plm_label_schema_copy(&one, &copy);
      *out = copy.columns[0];
      free(copy.columns);
      continue;
    }
    if (!plm_label_column_equal(out, column))
      return plm_error_set(error, PLM_CONFIG,
                           "the labels %s of corpus %s have another kind or other classes than "
                           "those of corpus %s",
                           name, source, sources[0]);
    add_statistics(out, column);
  }
  return PLM_OK;
}

static void set_outputs(struct plm_label_choice *choice)
{
  const struct plm_label_column *first = &choice->columns[0];
  const bool by_columns = choice->task == PLM_TASK_REGRESSION ||
                          (choice->task == PLM_TASK_MULTILABEL && first->kind == PLM_LABEL_CLASS);
  choice->outputs = by_columns ? choice->column_count : first->class_count;
  if (choice->task != PLM_TASK_REGRESSION) return;
  choice->mean = plm_alloc_zeroed(choice->outputs, sizeof *choice->mean);
  choice->deviation = plm_alloc_zeroed(choice->outputs, sizeof *choice->deviation);
  for (uint32_t i = 0; i < choice->outputs; i++) {
    const double deviation = choice->columns[i].deviation;
    choice->mean[i] = choice->columns[i].mean;
    choice->deviation[i] = deviation > 0 ? deviation : 1;
  }
}

plm_status plm_label_choose(enum plm_label_task task, const char *const *names, uint32_t count,
                            const struct plm_label_schema *const *schemas,
                            const char *const *sources, uint32_t source_count,
                            struct plm_label_choice *choice, struct plm_error *error)
{
  PLM_ASSERT(count > 0 && source_count > 0 && (unsigned)task < PLM_LABEL_TASKS);
  *choice = (struct plm_label_choice){.task = task};
  choice->columns = plm_alloc_zeroed(count, sizeof *choice->columns);
  plm_status status = PLM_OK;
  for (uint32_t i = 0; i < count && status == PLM_OK; i++) {
    for (uint32_t j = 0; j < i; j++)
      if (strcmp(names[i], names[j]) == 0)
        status = plm_error_set(error, PLM_CONFIG, "column %s is named twice", names[i]);
    if (status == PLM_OK)
      status = choose_column(names[i], schemas, sources, source_count, &choice->columns[i], error);
    choice->column_count += choice->columns[i].name != NULL;
    if (status == PLM_OK) status = check_kind(task, count, &choice->columns[i], error);
    if (status == PLM_OK) status = check_trained(task, &choice->columns[i], error);
  }
  if (status == PLM_OK)
    set_outputs(choice);
  else
    plm_label_choice_deinit(choice);
  return status;
}

plm_status plm_label_check_columns(enum plm_label_task task, const char *const *names,
                                   uint32_t count, const struct plm_label_schema *schema,
                                   const char *source, struct plm_error *error)
{
  PLM_ASSERT((unsigned)task < PLM_LABEL_TASKS);
  for (uint32_t i = 0; i < count; i++) {
    const struct plm_label_column *column =
        schema == NULL ? NULL : plm_label_schema_find(schema, names[i]);
    if (column == NULL) return no_such_column(schema, source, names[i], error);
    PLM_TRY(check_kind(task, count, column, error));
  }
  return PLM_OK;
}

/* ---- batches ------------------------------------------------------------------------------ */

void plm_batch_labels_deinit(struct plm_batch_labels *labels)
{
  free(labels->spans);
  free(labels->begin);
  free(labels->values);
  free(labels->classes);
  free(labels->residues);
  *labels = (struct plm_batch_labels){0};
}

static plm_status batch_labels_grow(void *array, size_t *capacity, size_t count, size_t size,
                                    struct plm_error *error)
{
  void **at = array;
  if (count <= *capacity) return PLM_OK;
  const size_t wanted = count + count / 4 + 16;
  free(*at);
  *capacity = 0;
  *at = malloc(wanted * size);
  if (*at == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the labels of a batch: %zu values",
                         count);
  *capacity = wanted;
  return PLM_OK;
}

static plm_status reserve(const struct plm_label_choice *choice, const struct plm_batch *batch,
                          struct plm_batch_labels *labels, struct plm_error *error)
{
  const uint32_t D = batch->document_begin[batch->chunks] - batch->document_begin[0];
  const size_t B = batch->chunks;
  labels->task = choice->task;
  labels->outputs = choice->outputs;
  labels->B = batch->chunks;
  labels->L = batch->max_length;
  labels->documents = D;
  labels->known = 0;
  PLM_TRY(
      batch_labels_grow(&labels->spans, &labels->span_capacity, D, sizeof *labels->spans, error));
  PLM_TRY(batch_labels_grow(&labels->begin, &labels->begin_capacity, B + 1, sizeof *labels->begin,
                            error));
  if (choice->task == PLM_TASK_CLASSIFICATION)
    return batch_labels_grow(&labels->classes, &labels->class_capacity, D, sizeof *labels->classes,
                             error);
  if (choice->task == PLM_TASK_RESIDUES)
    return batch_labels_grow(&labels->residues, &labels->residue_capacity, B * batch->max_length,
                             sizeof *labels->residues, error);
  return batch_labels_grow(&labels->values, &labels->value_capacity, (size_t)D * choice->outputs,
                           sizeof *labels->values, error);
}

static struct plm_label_span span_of(uint32_t chunk, const struct plm_chunk_document *document)
{
  const uint32_t has_cls = document->offset == 0;
  const uint64_t begin = has_cls ? 0 : (uint64_t)document->offset + 1;
  const uint32_t has_eos = begin + document->tokens == (uint64_t)document->residues + 2;
  return (struct plm_label_span){.chunk = chunk,
                                 .start = document->start,
                                 .tokens = document->tokens,
                                 .first_residue = document->start + has_cls,
                                 .residues = document->tokens - has_cls - has_eos,
                                 .whole = has_cls != 0 && has_eos != 0};
}

/* Where the columns of the choice are in records of one source. */
struct places {
  const struct plm_label_schema *schema;
  uint32_t columns[PLM_LABEL_COLUMNS_MOST];
};

static void find_places(const struct plm_label_choice *choice,
                        const struct plm_label_schema *schema, struct places *places)
{
  places->schema = schema;
  for (uint32_t i = 0; i < choice->column_count; i++) {
    const struct plm_label_column *column = plm_label_schema_find(schema, choice->columns[i].name);
    PLM_ASSERT(column != NULL); /* plm_label_choose found it */
    places->columns[i] = (uint32_t)(column - schema->columns);
  }
}

static void fill_values(const struct plm_label_choice *choice, const struct places *places,
                        const uint8_t *record, uint32_t residues, float *values, uint64_t *known)
{
  const bool mask = choice->columns[0].kind == PLM_LABEL_CLASSES;
  for (uint32_t k = 0; k < choice->outputs; k++) {
    const uint8_t *at =
        record + plm_label_record_offset(places->schema, places->columns[mask ? 0 : k], residues);
    if (choice->task == PLM_TASK_REGRESSION) {
      values[k] = (float)((plm_label_number(at) - choice->mean[k]) / choice->deviation[k]);
    } else {
      const int value = mask ? plm_label_has(at, k) : plm_label_class(at);
      values[k] = value < 0 ? NAN : (float)value;
    }
    *known += !isnan(values[k]);
  }
}

static void fill_residues(const struct plm_label_span *span,
                          const struct plm_chunk_document *document, const uint8_t *at,
                          struct plm_batch_labels *labels)
{
  int32_t *to = labels->residues + (size_t)span->chunk * labels->L + span->first_residue;
  for (uint32_t i = 0; i < span->residues; i++) {
    to[i] = plm_label_residue(at, document->offset + i);
    labels->known += to[i] >= 0;
  }
}

/* Fills what follows from document d of the table, which is document i of the labels. */
static void fill_document(const struct plm_label_choice *choice, const struct places *places,
                          const struct plm_batch *batch, uint32_t chunk, uint32_t d, uint32_t i,
                          struct plm_batch_labels *labels)
{
  const struct plm_chunk_document *document = &batch->documents[d];
  const uint8_t *record = batch->labels + batch->label_at[d];
  const uint8_t *first =
      record + plm_label_record_offset(places->schema, places->columns[0], document->residues);
  labels->spans[i] = span_of(chunk, document);
  switch (choice->task) {
  case PLM_TASK_CLASSIFICATION:
    labels->classes[i] = plm_label_class(first);
    labels->known += labels->classes[i] >= 0;
    return;
  case PLM_TASK_RESIDUES: fill_residues(&labels->spans[i], document, first, labels); return;
  default:
    fill_values(choice, places, record, document->residues,
                labels->values + (size_t)i * choice->outputs, &labels->known);
  }
}

plm_status plm_batch_labels_fill(const struct plm_label_choice *choice,
                                 const struct plm_label_schema *const *schemas,
                                 const struct plm_batch *batch, struct plm_batch_labels *labels,
                                 struct plm_error *error)
{
  struct places places = {0};
  PLM_ASSERT(batch->labels != NULL && batch->label_at != NULL);
  PLM_TRY(reserve(choice, batch, labels, error));
  for (size_t x = 0; choice->task == PLM_TASK_RESIDUES && x < (size_t)labels->B * labels->L; x++)
    labels->residues[x] = -1;
  uint32_t i = 0;
  for (uint32_t c = 0; c < batch->chunks; c++) {
    const struct plm_label_schema *schema = schemas[batch->sources == NULL ? 0 : batch->sources[c]];
    if (schema != places.schema) find_places(choice, schema, &places);
    labels->begin[c] = i;
    for (uint32_t d = batch->document_begin[c]; d < batch->document_begin[c + 1]; d++)
      fill_document(choice, &places, batch, c, d, i++, labels);
  }
  labels->begin[batch->chunks] = i;
  PLM_ASSERT(i == labels->documents);
  return PLM_OK;
}
