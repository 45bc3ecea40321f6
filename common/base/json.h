/* Small helpers around cJSON. */
#ifndef PLM_COMMON_BASE_JSON_H
#define PLM_COMMON_BASE_JSON_H

#include "common/base/status.h"

struct cJSON;

/* A member of an object, or `otherwise` if it is missing or has another type. The object owns the
 * string. */
double plm_json_number(const struct cJSON *object, const char *name, double otherwise);
const char *plm_json_string(const struct cJSON *object, const char *name, const char *otherwise);

/* Prints json on one line of stdout and deletes it, even if it fails (PLM_NO_MEMORY). */
plm_status plm_json_print(struct cJSON *json, struct plm_error *error);

#endif
