/* Small helpers around cJSON. */
#ifndef PLM_COMMON_BASE_JSON_H
#define PLM_COMMON_BASE_JSON_H

#include <stdbool.h>

#include "common/base/status.h"

struct cJSON;

/* A member of an object, or `otherwise` if it is missing or has another type. The object owns the
 * string. */
double plm_json_number(const struct cJSON *object, const char *name, double otherwise);
const char *plm_json_string(const struct cJSON *object, const char *name, const char *otherwise);

/* The text of json, which is UTF-8 even if strings in it are not (plm_text_put_json): on one line,
 * or indented. The caller frees it; NULL: out of memory. */
char *plm_json_text(const struct cJSON *json, bool indented);
/* Prints json on one line of stdout and deletes it, even if it fails (PLM_NO_MEMORY). */
plm_status plm_json_print(struct cJSON *json, struct plm_error *error);

#endif
