/* The schema of the labels in corpus.json. */
#include "common/corpus/corpus_labels_json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/base/alloc.h"

static const double labels_largest_exact = 9007199254740992.0; /* 2^53: JSON numbers are doubles */

static void labels_print_column(const struct plm_label_column *column, struct plm_text *text)
{
  plm_text_puts(text, "\n    {\"name\": ");
  plm_corpus_print_string(text, column->name);
  plm_text_printf(text, ", \"kind\": \"%s\", \"labels\": [%" PRIu64 ", %" PRIu64 ", %" PRIu64 "]",
                  plm_label_kind_name(column->kind), column->labels[0], column->labels[1],
                  column->labels[2]);
  if (column->kind == PLM_LABEL_NUMBER) {
    plm_text_printf(text, ", \"mean\": %.17g, \"deviation\": %.17g}", column->mean,
                    column->deviation);
    return;
  }
  plm_text_puts(text, ", \"classes\": [");
  for (uint32_t c = 0; c < column->class_count; c++) {
    if (c > 0) plm_text_puts(text, ", ");
    plm_corpus_print_string(text, column->classes[c]);
  }
  plm_text_puts(text, "], \"counts\": [");
  for (uint32_t c = 0; c < column->class_count; c++)
    plm_text_printf(text, "%s%" PRIu64, c == 0 ? "" : ", ", column->counts[c]);
  plm_text_puts(text, "]}");
}

void plm_corpus_labels_print(const struct plm_label_schema *schema, struct plm_text *text)
{
  plm_text_puts(text, "  \"labels\": [");
  for (uint32_t i = 0; i < schema->count; i++) {
    if (i > 0) plm_text_puts(text, ",");
    labels_print_column(&schema->columns[i], text);
  }
  plm_text_puts(text, "\n  ],\n");
}

/* ---- parsing ------------------------------------------------------------------------------ */

static bool labels_parse_count(const cJSON *item, uint64_t *value)
{
  if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) ||
      item->valuedouble > labels_largest_exact)
    return false;
  *value = (uint64_t)item->valuedouble;
  return true;
}

static bool parse_array(const cJSON *array, uint64_t *values, int count)
{
  const cJSON *item;
  if (!cJSON_IsArray(array) || cJSON_GetArraySize(array) != count) return false;
  cJSON_ArrayForEach(item, array)
  {
    if (!labels_parse_count(item, values++)) return false;
  }
  return true;
}

static bool parse_kind(const cJSON *item, enum plm_label_kind *kind)
{
  for (int k = PLM_LABEL_NUMBER; k < PLM_LABEL_KINDS && cJSON_IsString(item); k++) {
    if (strcmp(item->valuestring, plm_label_kind_name((enum plm_label_kind)k)) != 0) continue;
    *kind = (enum plm_label_kind)k;
    return true;
  }
  return false;
}

static bool labels_parse_classes(const cJSON *object, struct plm_label_column *column)
{
  const cJSON *names = cJSON_GetObjectItemCaseSensitive(object, "classes"), *name;
  const int count = cJSON_GetArraySize(names);
  if (!cJSON_IsArray(names)) return false; /* whether there are too many, the schema's check says */
  column->classes = plm_alloc_zeroed((size_t)count, sizeof *column->classes);
  column->counts = plm_alloc_zeroed((size_t)count, sizeof *column->counts);
  cJSON_ArrayForEach(name, names)
  {
    if (!cJSON_IsString(name)) return false;
    column->classes[column->class_count++] = plm_strdup(name->valuestring);
  }
  return parse_array(cJSON_GetObjectItemCaseSensitive(object, "counts"), column->counts, count);
}

static bool labels_parse_column(const cJSON *object, struct plm_label_column *column)
{
  const cJSON *name = cJSON_GetObjectItemCaseSensitive(object, "name");
  const cJSON *mean = cJSON_GetObjectItemCaseSensitive(object, "mean");
  const cJSON *deviation = cJSON_GetObjectItemCaseSensitive(object, "deviation");
  if (!cJSON_IsString(name)) return false;
  column->name = plm_strdup(name->valuestring);
  if (!parse_kind(cJSON_GetObjectItemCaseSensitive(object, "kind"), &column->kind) ||
      !parse_array(cJSON_GetObjectItemCaseSensitive(object, "labels"), column->labels,
                   PLM_PROOF_SPLITS))
    return false;
  if (column->kind != PLM_LABEL_NUMBER) return labels_parse_classes(object, column);
  if (!cJSON_IsNumber(mean) || !cJSON_IsNumber(deviation) || !isfinite(mean->valuedouble) ||
      !isfinite(deviation->valuedouble) || deviation->valuedouble < 0)
    return false;
  column->mean = mean->valuedouble;
  column->deviation = deviation->valuedouble;
  return true;
}

bool plm_corpus_labels_parse(const cJSON *array, struct plm_label_schema *schema)
{
  const cJSON *object;
  const int count = cJSON_GetArraySize(array);
  if (!cJSON_IsArray(array) || count == 0 || count > PLM_LABEL_COLUMNS_MOST) return false;
  schema->columns = plm_alloc_zeroed((size_t)count, sizeof *schema->columns);
  cJSON_ArrayForEach(object, array)
  {
    if (!labels_parse_column(object, &schema->columns[schema->count++])) return false;
  }
  return plm_label_schema_check(schema, NULL) == PLM_OK;
}
