/* What is in the folder of a run. */
#ifndef PLM_TESTS_SUPPORT_CASES_RUN_FILES_H
#define PLM_TESTS_SUPPORT_CASES_RUN_FILES_H

#include <cjson/cJSON.h>
#include <stdbool.h>

/* The lines of a file of metrics (PLM_RUN_TRAINER_METRICS, ...) as a list, which the caller frees.
 */
cJSON *run_files_metrics(const char *run, const char *file);

/* Whether a stage has written down this endpoint ("feed", ...). */
bool run_files_has_endpoint(const char *run, const char *key);

#endif
