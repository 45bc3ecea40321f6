/* JSON lines: each line is an object with `sequence` and optionally `name` or `id`. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text/strict_json.h"
#include "common/corpus/corpus.h"
#include "common/sequences/sequence_parts.h"

/* The limit on the length of a line: each residue may be written as \uXXXX, and the other fields
 * may take a MiB. */
static const size_t other_fields_bytes = 1 << 20;
static const size_t bytes_a_residue = 6;
static const size_t values_limit = 1 << 16; /* each takes about 100 bytes */

static bool jsonl_reader_keep(struct plm_sequence_reader *reader, const struct plm_line_span *span)
{
  const uint64_t limit = reader->builder.max_residues * bytes_a_residue + other_fields_bytes;
  if (span->begins) {
    reader->line_size = 0;
    reader->line_too_long = false;
    reader->record_line = reader->lines.line;
  }
  if (reader->line_too_long || reader->line_size + span->size > limit) {
    reader->line_too_long = true;
    return true;
  }
  if (reader->line_size + span->size + 1 > reader->line_capacity) {
    const size_t capacity = 2 * (reader->line_size + span->size) + 4096;
    char *larger = realloc(reader->line, capacity);
    if (larger == NULL) return false;
    reader->line = larger;
    reader->line_capacity = capacity;
  }
  memcpy(reader->line + reader->line_size, span->bytes, span->size);
  reader->line_size += span->size;
  return true;
}

/* cJSON would silently end a string at a NUL, whether it is a byte or written as \u0000. */
static bool has_nul(const char *line, size_t size)
{
  return memchr(line, '\0', size) != NULL || memmem(line, size, "\\u0000", 6) != NULL;
}

/* The digits of an integer; NULL if it is none, or has more digits than a double keeps. */
static const char *number_text(const cJSON *value, char text[32])
{
  if (!cJSON_IsNumber(value) || !(fabs(value->valuedouble) < 1e15) ||
      value->valuedouble != floor(value->valuedouble))
    return NULL;
  snprintf(text, 32, "%.0f", value->valuedouble);
  return text;
}

static enum plm_sequence_result jsonl_parse_object(struct plm_sequence_reader *reader,
                                                   const cJSON *root, struct plm_sequence *sequence,
                                                   struct plm_error *error)
{
  const uint64_t line = reader->record_line;
  const cJSON *residues = cJSON_GetObjectItemCaseSensitive(root, "sequence");
  const cJSON *name = cJSON_GetObjectItemCaseSensitive(root, "name");
  if (!cJSON_IsObject(root)) return plm_sequence_bad(reader, line, error, "not a JSON object");
  if (name == NULL || cJSON_IsNull(name)) name = cJSON_GetObjectItemCaseSensitive(root, "id");
  if (name != NULL && !cJSON_IsNull(name)) {
    char number[32];
    const char *text = cJSON_IsString(name) ? name->valuestring : number_text(name, number);
    if (text == NULL || !plm_sequence_set_name(reader, text, strlen(text)))
      return plm_sequence_bad(
          reader, line, error,
          "\"%s\" is neither a string without control characters nor an integer "
          "of at most 15 digits",
          name->string);
  }
  if (reader->name_size == 0) plm_sequence_name_by_place(reader);
  if (!cJSON_IsString(residues))
    return plm_sequence_bad(reader, line, error, "this object has no string \"sequence\"");
  const struct plm_line_span span = {.bytes = (const uint8_t *)residues->valuestring,
                                     .size = strlen(residues->valuestring)};
  plm_sequence_builder_add(&reader->builder, &span, line);
  return plm_sequence_complete(reader, sequence, error);
}

static enum plm_sequence_result jsonl_parse_line(struct plm_sequence_reader *reader,
                                                 struct plm_sequence *sequence,
                                                 struct plm_error *error)
{
  reader->name_size = 0;
  reader->name_too_long = false;
  plm_sequence_builder_reset(&reader->builder);
  if (reader->line_too_long)
    return plm_sequence_bad(reader, reader->record_line, error,
                            "this line is too long for a sequence of at most %llu residues",
                            (unsigned long long)reader->builder.max_residues);
  if (has_nul(reader->line, reader->line_size))
    return plm_sequence_bad(reader, reader->record_line, error,
                            "this line contains a NUL character");
  if (plm_json_values(reader->line, reader->line_size) > values_limit)
    return plm_sequence_bad(reader, reader->record_line, error,
                            "this line has more than %zu values", values_limit);
  cJSON *root = plm_json_bounded(reader->line, reader->line_size, values_limit);
  if (root == NULL && plm_json_no_memory()) {
    (void)plm_error_set(error, PLM_NO_MEMORY, "no memory for a line of JSON");
    return PLM_SEQUENCE_FAILED;
  }
  if (root == NULL)
    return plm_sequence_bad(reader, reader->record_line, error, "not a JSON object");
  const enum plm_sequence_result result = jsonl_parse_object(reader, root, sequence, error);
  cJSON_Delete(root);
  return result;
}

enum plm_sequence_result plm_jsonl_next(struct plm_sequence_reader *reader,
                                        struct plm_sequence *sequence, struct plm_error *error)
{
  for (;;) {
    struct plm_line_span span;
    const enum plm_sequence_result result = plm_sequence_line_span(reader, &span, error);
    if (result != PLM_SEQUENCE_READ) return result;
    if (!jsonl_reader_keep(reader, &span)) {
      plm_error_set(error, PLM_NO_MEMORY, "out of memory for a line of %s",
                    plm_byte_stream_name(reader->lines.stream));
      return PLM_SEQUENCE_FAILED;
    }
    if (!span.ends) continue;
    if (!reader->line_too_long && plm_line_is_blank(reader->line, reader->line_size)) continue;
    return jsonl_parse_line(reader, sequence, error);
  }
}
