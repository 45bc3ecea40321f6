/* JSON from files that others may have written: cJSON parses it, and this refuses first what cJSON
 * would let pass (control bytes, invalid UTF-8, U+0000 in strings, sloppy numbers, deep nesting)
 * and afterwards what it can't see (duplicate keys). */
#ifndef PLM_COMMON_BASE_STRICT_JSON_H
#define PLM_COMMON_BASE_STRICT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

struct cJSON;

enum plm_json_numbers {
  PLM_JSON_ANY_NUMBER,
  PLM_JSON_COUNTS, /* non-negative integers up to 2^53 and nothing else, as a format may demand */
};

/* One object from exactly these bytes, nothing but blanks after it. The caller cJSON_Deletes
 * *object. Errors are PLM_FORMAT (or PLM_NO_MEMORY); the caller adds where. */
plm_status plm_json_parse(const char *text, size_t size, unsigned max_depth,
                          enum plm_json_numbers numbers, struct cJSON **object,
                          struct plm_error *error);

/* A count that a double holds exactly; false for anything else. */
bool plm_json_count(const struct cJSON *value, uint64_t *count);

#endif
