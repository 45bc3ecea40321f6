/* Whether the corpora of a run have the labels that its objective predicts. */
#ifndef PLM_STAGES_SUPERVISOR_PREPARE_RUN_LABELS_H
#define PLM_STAGES_SUPERVISOR_PREPARE_RUN_LABELS_H

#include "common/config/config.h"

/* Reads the descriptions of the corpora before any stage starts. Nothing is checked if the
 * objective predicts no labels, or if a corpus is not on this host. PLM_CONFIG as
 * plm_config_choose_labels; other errors: a description cannot be read. */
plm_status plm_run_labels_check(const struct plm_config *config, struct plm_error *error);

#endif
