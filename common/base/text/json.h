/* Small helpers around cJSON. */
#ifndef PLM_COMMON_BASE_TEXT_JSON_H
#define PLM_COMMON_BASE_TEXT_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text/text.h"

struct cJSON;

/* A member of an object, or `otherwise` if it is missing or has another type. The object owns the
 * string. */
double plm_json_number(const struct cJSON *object, const char *name, double otherwise);
/* The same of an integer from 0 to most: `otherwise` stands for any other number, too. */
uint64_t plm_json_whole(const struct cJSON *object, const char *name, uint64_t most,
                        uint64_t otherwise);
const char *plm_json_string(const struct cJSON *object, const char *name, const char *otherwise);

/* A number that is read back as the same bits: with 15 digits if they suffice, else with 17. cJSON
 * leaves out digits that it takes for rounding errors. */
enum { PLM_JSON_NUMBER_SIZE = 40 };
void plm_json_number_text(double value, char text[PLM_JSON_NUMBER_SIZE]);

/* As cJSON_AddItemToArray and cJSON_AddItemToObject, but the item is released if it cannot be
 * added, because the array or the object is NULL. */
void plm_json_append(struct cJSON *array, struct cJSON *item);
void plm_json_put(struct cJSON *object, const char *name, struct cJSON *item);

/* What cJSON allocates is small (alloc.h): the functions of cJSON that make and print JSON do not
 * fail for lack of memory. Only parsing does, by the functions of strict_json.h and this one, on
 * which they are built: *no_memory says whether it returned NULL because of that. *end is where the
 * value, or what could be read of it, ends. The caller frees it with cJSON_Delete. */
struct cJSON *plm_json_parse_bytes(const char *text, size_t size, const char **end,
                                   bool *no_memory);

/* The bytes of json as cJSON prints them: indented, or on one line. The caller frees them. */
char *plm_json_bytes(const struct cJSON *json, bool indented);
/* The text of json, which is UTF-8 even if strings in it are not (plm_text_put_json): on one line,
 * or indented. The caller frees it. */
char *plm_json_text(const struct cJSON *json, bool indented);
/* Appends a JSON string of these bytes, up to the first NUL. */
void plm_json_put_string(struct plm_text *text, const char *bytes, size_t size);
/* Prints json on one line of stdout and deletes it. PLM_OK. */
plm_status plm_json_print(struct cJSON *json, struct plm_error *error);

#endif
