/* Strict parsing with cJSON: a scan of the bytes before it, a check of the keys after it. */
#include "common/base/text/strict_json.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text/json.h"
#include "common/base/text/text.h"

struct scanner {
  const unsigned char *text;
  size_t size, at;
  unsigned depth, max_depth;
  enum plm_json_numbers numbers;
};

static plm_status strict_json_refuse(const struct scanner *scan, const char *what,
                                     struct plm_error *error)
{
  return plm_error_set(error, PLM_FORMAT, "byte %zu of the JSON: %s", scan->at, what);
}

/* cJSON reads \uXXXX with other than hexadecimal digits as U+0000 and ends the string there. */
static plm_status scan_escape(struct scanner *scan, struct plm_error *error)
{
  const unsigned char *here = scan->text + scan->at;
  const size_t left = scan->size - scan->at;
  if (left >= 2 && here[1] != '\0' && strchr("\"\\/bfnrt", here[1]) != NULL) {
    scan->at += 2;
    return PLM_OK;
  }
  size_t digits = 0;
  while (digits < 4 && left > 2 + digits && isxdigit(here[2 + digits])) digits++;
  if (left < 2 || here[1] != 'u' || digits < 4)
    return strict_json_refuse(scan, "an invalid escape", error);
  if (memcmp(here + 2, "0000", 4) == 0)
    return strict_json_refuse(scan, "U+0000 in a string", error);
  scan->at += 6;
  return PLM_OK;
}

static plm_status scan_string(struct scanner *scan, struct plm_error *error)
{
  scan->at++; /* the quote */
  while (scan->at < scan->size && scan->text[scan->at] != '"') {
    const unsigned char *here = scan->text + scan->at;
    const size_t left = scan->size - scan->at;
    if (*here < 0x20) return strict_json_refuse(scan, "a control character in a string", error);
    if (*here == '\\') {
      PLM_TRY(scan_escape(scan, error));
      continue;
    }
    const size_t length = plm_utf8_length(here, left);
    if (length == 0) return strict_json_refuse(scan, "invalid UTF-8", error);
    scan->at += length;
  }
  if (scan->at >= scan->size) return strict_json_refuse(scan, "an unterminated string", error);
  scan->at++;
  return PLM_OK;
}

static bool is_digit(int c)
{
  return c >= '0' && c <= '9';
}

static size_t digits_at(const struct scanner *scan, size_t at)
{
  size_t count = 0;
  while (at + count < scan->size && is_digit(scan->text[at + count])) count++;
  return count;
}

/* A number by the grammar of RFC 8259. A count has at most 16 digits and no sign, point or
 * exponent. */
static plm_status scan_number(struct scanner *scan, struct plm_error *error)
{
  const size_t begin = scan->at;
  size_t at = begin;
  const unsigned char *text = scan->text;
  bool integer = true;
  if (text[at] == '-') at++, integer = false;
  const size_t whole = digits_at(scan, at);
  if (whole == 0 || (whole > 1 && text[at] == '0'))
    return strict_json_refuse(scan, "a malformed number", error);
  at += whole;
  if (at < scan->size && text[at] == '.') {
    const size_t fraction = digits_at(scan, at + 1);
    if (fraction == 0) return strict_json_refuse(scan, "a malformed number", error);
    at += 1 + fraction;
    integer = false;
  }
  if (at < scan->size && (text[at] == 'e' || text[at] == 'E')) {
    at++;
    if (at < scan->size && (text[at] == '+' || text[at] == '-')) at++;
    const size_t exponent = digits_at(scan, at);
    if (exponent == 0) return strict_json_refuse(scan, "a malformed number", error);
    at += exponent;
    integer = false;
  }
  if (at - begin > 60)
    return strict_json_refuse(scan, "a number of more than 60 characters", error);
  if (scan->numbers == PLM_JSON_COUNTS) {
    if (!integer)
      return strict_json_refuse(scan, "a number that is not a non-negative integer", error);
    uint64_t count = 0;
    for (size_t i = begin; i < at && whole <= 16; i++)
      count = count * 10 + (uint64_t)(text[i] - '0');
    if (whole > 16 || count > UINT64_C(1) << 53)
      return strict_json_refuse(scan, "a number beyond 2^53", error);
  }
  scan->at = at;
  return PLM_OK;
}

static plm_status scan_all(struct scanner *scan, struct plm_error *error)
{
  while (scan->at < scan->size) {
    const unsigned char c = scan->text[scan->at];
    if (c == '"') {
      PLM_TRY(scan_string(scan, error));
    } else if (is_digit(c) || c == '-') {
      PLM_TRY(scan_number(scan, error));
    } else if (c == '{' || c == '[') {
      if (++scan->depth > scan->max_depth)
        return strict_json_refuse(scan, "nested too deeply", error);
      scan->at++;
    } else if (c == '}' || c == ']') {
      if (scan->depth-- == 0)
        return strict_json_refuse(scan, "an unmatched closing bracket", error);
      scan->at++;
    } else if ((c >= 'a' && c <= 'z') || c == ':' || c == ',' || c == ' ' || c == '\n' ||
               c == '\r' || c == '\t') {
      scan->at++; /* cJSON checks the literals */
    } else {
      return strict_json_refuse(scan, "an unexpected character", error);
    }
  }
  return PLM_OK;
}

static int compare_names(const void *a, const void *b)
{
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static plm_status strict_json_check_keys(const cJSON *object, struct plm_error *error)
{
  const int count = cJSON_GetArraySize(object);
  const char **names = malloc(((size_t)count + 1) * sizeof *names);
  plm_status status = PLM_OK;
  if (!names) return plm_error_set(error, PLM_NO_MEMORY, "no memory for %d keys", count);
  size_t used = 0;
  for (const cJSON *item = object->child; item; item = item->next) names[used++] = item->string;
  qsort(names, used, sizeof *names, compare_names);
  for (size_t i = 1; i < used && status == PLM_OK; i++)
    if (strcmp(names[i - 1], names[i]) == 0)
      status = plm_error_set(error, PLM_FORMAT, "the key \"%.200s\" occurs twice", names[i]);
  free(names);
  return status;
}

/* Checks that no object in the tree has a key twice. The scan has bounded the depth. */
static plm_status check_tree(const cJSON *value, struct plm_error *error)
{
  if (cJSON_IsObject(value)) PLM_TRY(strict_json_check_keys(value, error));
  if (!cJSON_IsObject(value) && !cJSON_IsArray(value)) return PLM_OK;
  for (const cJSON *item = value->child; item; item = item->next) PLM_TRY(check_tree(item, error));
  return PLM_OK;
}

/* Each value and key follows a bracket, a comma or a colon, except the first value. */
size_t plm_json_values(const char *text, size_t size)
{
  size_t values = 1;
  bool quoted = false;
  for (size_t i = 0; i < size; i++) {
    if (text[i] == '"')
      quoted = !quoted;
    else if (quoted)
      i += text[i] == '\\';
    else
      values += text[i] == ',' || text[i] == ':' || text[i] == '[' || text[i] == '{';
  }
  return values;
}

plm_status plm_json_parse(const char *text, size_t size, const struct plm_json_limits *limits,
                          cJSON **object, struct plm_error *error)
{
  struct scanner scan = {.text = (const unsigned char *)text,
                         .size = size,
                         .max_depth = limits->depth,
                         .numbers = limits->numbers};
  *object = NULL;
  if (size == 0 || text[0] != '{')
    return plm_error_set(error, PLM_FORMAT, "the JSON does not begin with {");
  const size_t values = plm_json_values(text, size);
  if (values > limits->values)
    return plm_error_set(error, PLM_LIMIT, "the JSON has about %zu values; the limit is %zu",
                         values, limits->values);
  PLM_TRY(scan_all(&scan, error));
  const char *end = NULL;
  bool lacked;
  cJSON *parsed = plm_json_parse_bytes(text, size, &end, &lacked);
  if (!parsed && lacked) return plm_error_set(error, PLM_NO_MEMORY, "no memory for JSON");
  if (!parsed) {
    scan.at = (size_t)(end - text);
    return strict_json_refuse(&scan, "invalid JSON", error);
  }
  while (end < text + size && (*end == ' ' || *end == '\n' || *end == '\r' || *end == '\t')) end++;
  scan.at = (size_t)(end - text);
  plm_status status = PLM_OK;
  if (end != text + size) status = strict_json_refuse(&scan, "something follows the object", error);
  if (status == PLM_OK) status = check_tree(parsed, error);
  if (status != PLM_OK) {
    cJSON_Delete(parsed);
    return status;
  }
  *object = parsed;
  return PLM_OK;
}

static _Thread_local bool no_memory; /* for the last text of plm_json_bounded */

cJSON *plm_json_bounded(const char *text, size_t size, size_t values)
{
  no_memory = false;
  if (plm_json_values(text, size) > values) return NULL;
  return plm_json_parse_bytes(text, size, NULL, &no_memory);
}

bool plm_json_no_memory(void)
{
  return no_memory;
}

cJSON *plm_json_line(const char *text)
{
  return plm_json_bounded(text, strlen(text), 1 << 16);
}

bool plm_json_count(const cJSON *value, uint64_t *count)
{
  if (!cJSON_IsNumber(value)) return false;
  const double number = value->valuedouble;
  if (!(number >= 0 && number <= 0x1p53)) return false;
  *count = (uint64_t)number;
  return (double)*count == number;
}
