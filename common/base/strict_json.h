/* Parses untrusted JSON. cJSON does the parsing; before it, a scan refuses what cJSON would accept
 * (control bytes, invalid UTF-8, U+0000 in strings, malformed numbers, deep nesting), and after it,
 * duplicate keys are refused. */
#ifndef PLM_COMMON_BASE_STRICT_JSON_H
#define PLM_COMMON_BASE_STRICT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

struct cJSON;

enum plm_json_numbers {
  PLM_JSON_ANY_NUMBER,
  PLM_JSON_COUNTS, /* only non-negative integers up to 2^53 */
};

/* Parses one object, which only blanks may follow. The caller frees *object with cJSON_Delete.
 * PLM_FORMAT, PLM_NO_MEMORY; the caller adds `where`. */
plm_status plm_json_parse(const char *text, size_t size, unsigned max_depth,
                          enum plm_json_numbers numbers, struct cJSON **object,
                          struct plm_error *error);

/* Reads an integer from 0 to 2^53, which a double represents exactly; false for anything else. */
bool plm_json_count(const struct cJSON *value, uint64_t *count);

#endif
