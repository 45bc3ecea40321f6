/* Parses untrusted JSON. cJSON does the parsing; before it, a scan refuses what cJSON would accept
 * (control bytes, invalid UTF-8, U+0000 in strings, malformed numbers, deep nesting), and after it,
 * duplicate keys are refused. cJSON takes about 100 bytes for each value, so a text with more
 * values than its reader expects is refused before any of them is stored. */
#ifndef PLM_COMMON_BASE_TEXT_STRICT_JSON_H
#define PLM_COMMON_BASE_TEXT_STRICT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

struct cJSON;

enum plm_json_numbers {
  PLM_JSON_ANY_NUMBER,
  PLM_JSON_COUNTS, /* only non-negative integers up to 2^53 */
};

struct plm_json_limits {
  size_t values;  /* at most so many, with keys */
  unsigned depth; /* of nested objects and arrays */
  enum plm_json_numbers numbers;
};

/* Parses one object, which only blanks may follow. The caller frees *object with cJSON_Delete.
 * PLM_FORMAT, PLM_LIMIT, PLM_NO_MEMORY; the caller adds `where`. */
plm_status plm_json_parse(const char *text, size_t size, const struct plm_json_limits *limits,
                          struct cJSON **object, struct plm_error *error);

/* How many values and keys a JSON text can have at most, from its commas, colons and brackets. */
size_t plm_json_values(const char *text, size_t size);

/* Parses files and messages of our own, which may nevertheless have been changed: with cJSON and
 * without the strict rules, but only if plm_json_values() is at most `values`. NULL: it is more,
 * the text is not JSON, or there is no memory. The caller frees it with cJSON_Delete. */
struct cJSON *plm_json_bounded(const char *text, size_t size, size_t values);
/* The same for a line of a metrics file, a small file or a reply: at most 65,536 values. */
struct cJSON *plm_json_line(const char *text);

/* Whether the last of these two calls in this thread returned NULL for want of memory. */
bool plm_json_no_memory(void);

/* Reads an integer from 0 to 2^53, which a double represents exactly; false for anything else. */
bool plm_json_count(const struct cJSON *value, uint64_t *count);

#endif
