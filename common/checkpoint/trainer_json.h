/* trainer.json of a checkpoint, for those who only look something up in it. The trainer reads it
 * with trainer/checkpoint/trainer_state.h. */
#ifndef PLM_COMMON_CHECKPOINT_TRAINER_JSON_H
#define PLM_COMMON_CHECKPOINT_TRAINER_JSON_H

#include <stdbool.h>

#include "common/base/status.h"

struct cJSON;
struct plm_corpus_info;

/* *json, which the caller deletes, is NULL if the folder has no trainer.json. PLM_FORMAT: it is not
 * JSON; PLM_NO_MEMORY; and the errors of reading the file. */
plm_status plm_trainer_json_read(const char *directory, struct cJSON **json,
                                 struct plm_error *error);
/* Whether the corpus is one of those that the checkpoint was trained on, perhaps before an upgrade
 * of it. True if the file does not say so. */
bool plm_trainer_json_is_of(const struct cJSON *json, const struct plm_corpus_info *corpus);

#endif
