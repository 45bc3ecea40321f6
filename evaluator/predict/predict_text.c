/* Writes predictions as rows of a table or as JSON lines: see predict_text.h. */
#include "evaluator/predict/predict_text.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text/json.h"
#include "evaluator/labels/label_loss.h"

static bool of_residues(const struct plm_predict_text *form)
{
  return form->head->kind == PLM_PREDICTS_RESIDUES;
}

/* Whether there is a column for each output. */
static bool has_all(const struct plm_predict_text *form)
{
  return form->logits || form->head->loss != PLM_LOSS_CLASS;
}

/* ---- fields -------------------------------------------------------------------------------- */

/* A row that is being written; `fields` counts those that it has. */
struct row {
  const struct plm_predict_text *form;
  struct plm_text *text;
  uint32_t fields;
};

static void next_field(struct row *row, const char *key)
{
  const bool json = row->form->format == PLM_PREDICT_JSONL;
  if (json) plm_text_puts(row->text, row->fields == 0 ? "{" : ", ");
  if (!json && row->fields > 0)
    plm_text_puts(row->text, row->form->format == PLM_PREDICT_TSV ? "\t" : ",");
  if (json) {
    plm_json_put_string(row->text, key, strlen(key));
    plm_text_puts(row->text, ": ");
  }
  row->fields++;
}

static void put_words(struct row *row, const char *key, const char *words, size_t size)
{
  next_field(row, key);
  if (row->form->format == PLM_PREDICT_JSONL)
    plm_json_put_string(row->text, words, size);
  else
    plm_text_put_csv(row->text, words, size, row->form->format == PLM_PREDICT_TSV ? '\t' : ',');
}

static void put_number(struct row *row, const char *key, double value)
{
  next_field(row, key);
  if (isfinite(value))
    plm_text_printf(row->text, "%.9g", value);
  else
    plm_text_puts(row->text, row->form->format == PLM_PREDICT_JSONL ? "null" : "NaN");
}

static void end_row(struct row *row)
{
  plm_text_puts(row->text, row->form->format == PLM_PREDICT_JSONL ? "}\n" : "\n");
}

/* ---- values -------------------------------------------------------------------------------- */

/* The class with the largest output, and its probability. */
static uint32_t best_class(const float *outputs, uint32_t count, double *probability)
{
  const uint32_t best = plm_label_largest(outputs, count);
  *probability = exp(-plm_label_class_loss(outputs, count, (int32_t)best));
  return best;
}

static double value_of(const struct plm_predict_text *form, const float *outputs, uint32_t o)
{
  const double output = (double)outputs[o];
  if (form->logits) return output;
  if (form->head->loss == PLM_LOSS_CLASSES) return 1 / (1 + exp(-output));
  return form->names->mean == NULL ? output
                                   : output * form->names->deviation[o] + form->names->mean[o];
}

/* The columns of one sequence or residue. */
static void put_values(struct row *row, const float *outputs)
{
  const struct plm_predict_text *form = row->form;
  double probability;
  for (uint32_t o = 0; o < form->head->outputs && has_all(form); o++)
    put_number(row, form->names->names[o], value_of(form, outputs, o));
  if (has_all(form)) return;
  const char *name = form->names->names[best_class(outputs, form->head->outputs, &probability)];
  put_words(row, "prediction", name, strlen(name));
  put_number(row, "probability", probability);
}

static bool are_letters(const struct plm_label_names *names)
{
  for (uint32_t i = 0; i < names->count; i++)
    if (strlen(names->names[i]) != 1) return false;
  return true;
}

/* The classes of all residues in one field. */
static void put_joined(struct row *row, const struct plm_predicted *predicted)
{
  const struct plm_predict_text *form = row->form;
  const bool letters = are_letters(form->names);
  const uint32_t outputs = form->head->outputs;
  struct plm_text joined = {0};
  double probability;
  for (uint32_t i = 0; i < predicted->count; i++) {
    const float *of = predicted->outputs + (size_t)i * outputs;
    if (i > 0 && !letters) plm_text_puts(&joined, " ");
    plm_text_puts(&joined, form->names->names[best_class(of, outputs, &probability)]);
  }
  put_words(row, "prediction", joined.data == NULL ? "" : joined.data, joined.length);
  plm_text_deinit(&joined);
}

/* ---- columns that the input has ------------------------------------------------------------ */

static bool writes(const struct plm_predict_text *form, const char *name)
{
  static const char *const own[] = {"name", "position", "residue", "prediction", "probability"};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (strcmp(own[i], name) == 0) return true;
  for (uint32_t o = 0; o < form->names->count; o++)
    if (strcmp(form->names->names[o], name) == 0) return true;
  return false;
}

static bool is_among(const cJSON *names, const char *name)
{
  for (const cJSON *each = names->child; each != NULL; each = each->next)
    if (strcmp(each->valuestring, name) == 0) return true;
  return false;
}

void plm_predict_take_columns(struct plm_predict_text *form, const char *columns)
{
  cJSON *names = cJSON_Parse(columns);
  form->given = cJSON_CreateArray();
  for (const cJSON *name = names->child; name != NULL; name = name->next) {
    struct plm_text text = {0};
    size_t prefixes = writes(form, name->valuestring);
    do {
      plm_text_clear(&text);
      for (size_t i = 0; i < prefixes; i++) plm_text_puts(&text, "given_");
      plm_text_puts(&text, name->valuestring);
    } while (prefixes++ > 0 && (writes(form, text.data) || is_among(names, text.data)));
    plm_json_append(form->given, cJSON_CreateString(text.data));
    plm_text_deinit(&text);
  }
  cJSON_Delete(names);
}

void plm_predict_release(struct plm_predict_text *form)
{
  cJSON_Delete(form->given);
  form->given = NULL;
}

/* fields: one for each column of the form's given */
static void put_given(struct row *row, const cJSON *fields)
{
  if (row->form->given == NULL) return;
  const cJSON *field = fields->child;
  for (const cJSON *column = row->form->given->child; column != NULL && field != NULL;
       column = column->next, field = field->next)
    put_words(row, column->valuestring, field->valuestring, strlen(field->valuestring));
}

/* ---- rows ---------------------------------------------------------------------------------- */

void plm_predict_put(const struct plm_predict_text *form, const struct plm_predicted *predicted,
                     struct plm_text *text)
{
  const bool each = of_residues(form) && (form->per_residue || form->logits);
  cJSON *given = form->given == NULL ? NULL : cJSON_Parse(predicted->given);
  for (uint32_t i = 0; i < (each ? predicted->count : 1); i++) {
    struct row row = {form, text, 0};
    put_words(&row, "name", predicted->name, predicted->name_size);
    put_given(&row, given);
    if (each) {
      put_number(&row, "position", i + 1);
      put_words(&row, "residue", predicted->residues + i, 1);
    }
    if (of_residues(form) && !each)
      put_joined(&row, predicted);
    else
      put_values(&row, predicted->outputs + (each ? (size_t)i * form->head->outputs : 0));
    end_row(&row);
  }
  cJSON_Delete(given);
}

void plm_predict_put_header(const struct plm_predict_text *form, struct plm_text *text)
{
  const bool each = of_residues(form) && (form->per_residue || form->logits);
  struct row row = {form, text, 0};
  if (form->format == PLM_PREDICT_JSONL) return;
  put_words(&row, "", "name", 4);
  put_given(&row, form->given);
  if (each) put_words(&row, "", "position", 8);
  if (each) put_words(&row, "", "residue", 7);
  for (uint32_t o = 0; o < form->head->outputs && has_all(form); o++)
    put_words(&row, "", form->names->names[o], strlen(form->names->names[o]));
  if (!has_all(form)) put_words(&row, "", "prediction", 10);
  if (!has_all(form) && (each || !of_residues(form))) put_words(&row, "", "probability", 11);
  end_row(&row);
}
