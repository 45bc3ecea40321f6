/* Steps with cJSON that several programs make. */
#ifndef PLM_COMMON_BASE_JSON_H
#define PLM_COMMON_BASE_JSON_H

#include "common/base/status.h"

struct cJSON;

/* A member of an object; `otherwise` where it is missing or of another type. The string is the
 * object's. */
double plm_json_number(const struct cJSON *object, const char *name, double otherwise);
const char *plm_json_string(const struct cJSON *object, const char *name, const char *otherwise);

/* Prints json as one line to stdout and deletes it, also when it fails (PLM_NO_MEMORY). */
plm_status plm_json_print(struct cJSON *json, struct plm_error *error);

#endif
