/* What a profile in the run folder is of (RUN/profile.json, trainer/profile/profile.h). */
#ifndef PLM_COMMON_RUN_RUN_PROFILE_H
#define PLM_COMMON_RUN_RUN_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

struct cJSON;

/* The first line of a profile as an object of its own, which has no events. NULL if it is no such
 * line. Changes the line. The caller frees it with cJSON_Delete. */
struct cJSON *plm_run_profile_head(char *line);

/* Reads the first and the last step from the first line of the file. False: there is no such file,
 * or it does not begin like a profile. */
bool plm_run_profile_steps(const char *path, uint64_t *first, uint64_t *last);

#endif
