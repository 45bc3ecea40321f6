/* Asks plm-trainer what a configuration would need here, because plm-pipeline links no backend. */
#ifndef PLM_STAGES_SUPERVISOR_PREPARE_TRAINER_ESTIMATE_H
#define PLM_STAGES_SUPERVISOR_PREPARE_TRAINER_ESTIMATE_H

#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "common/config/config.h"

struct cJSON;

/* Runs `plm-trainer --dry-run --json` for the configuration, at most 20 s, and returns its answer,
 * which the caller deletes; NULL if there was none. said (may be NULL) receives what the trainer
 * wrote to standard error, which otherwise goes to this program's. */
struct cJSON *plm_trainer_estimate_ask(const char *program_directory,
                                       const struct plm_config *config, struct plm_text *said);

/* Bytes of one checkpoint, computed from such an answer, and how many of them the run folder holds
 * at most. */
double plm_checkpoint_bytes(const struct plm_config *config, const struct cJSON *answer);
double plm_checkpoints_kept(const struct plm_config *config);

/* Writes the nearest folder of path that exists, which may be path itself, into folder. */
void plm_nearest_folder(const char *path, char folder[PLM_PATH_SIZE]);
/* Bytes that are free where the path is or would be made. 0: unknown. */
double plm_disk_free_bytes(const char *path);

#endif
