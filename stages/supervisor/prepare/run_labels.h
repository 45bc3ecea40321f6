/* Whether the corpora of a run and of evaluator.sets have the labels that its objective predicts.
 */
#ifndef PLM_STAGES_SUPERVISOR_PREPARE_RUN_LABELS_H
#define PLM_STAGES_SUPERVISOR_PREPARE_RUN_LABELS_H

#include "common/config/config.h"

/* Reads the descriptions of the corpora before any stage starts. Nothing is checked if the
 * objective predicts no labels; the run's corpora are not checked if one of them is not on this
 * host, nor is a set whose corpus is not. PLM_CONFIG as plm_config_choose_labels and
 * plm_config_check_set_labels; other errors: a description cannot be read. */
plm_status plm_run_labels_check(const struct plm_config *config, struct plm_error *error);

#endif
