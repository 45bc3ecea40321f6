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

/* As cJSON_AddItemToArray and cJSON_AddItemToObject, but the item is released if it cannot be
 * added, because the array or the object could not be made. */
void plm_json_append(struct cJSON *array, struct cJSON *item);
void plm_json_put(struct cJSON *object, const char *name, struct cJSON *item);

/* Everything that cJSON allocates is watched, because a member that lacks memory is left out of its
 * object without a word. The functions below return NULL if this thread lacked memory for any JSON
 * since it printed the last one. So print what you have made before you print anything else.
 *
 * The bytes of json as cJSON prints them: indented, or on one line. The caller frees them; NULL:
 * out of memory, now or while json was made. */
char *plm_json_bytes(const struct cJSON *json, bool indented);
/* The text of json, which is UTF-8 even if strings in it are not (plm_text_put_json): on one line,
 * or indented. The caller frees it; NULL as above. */
char *plm_json_text(const struct cJSON *json, bool indented);
/* Whether this thread lacked memory; from now on it counts as `lacks`. For work that reports it by
 * itself, such as parsing: set to false before, and back afterwards. */
bool plm_json_exchange_lack(bool lacks);
/* Prints json on one line of stdout and deletes it, even if it fails (PLM_NO_MEMORY). */
plm_status plm_json_print(struct cJSON *json, struct plm_error *error);

#endif
