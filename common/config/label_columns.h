/* The columns of labels that a configuration names, in the corpora that it names. */
#ifndef PLM_COMMON_CONFIG_LABEL_COLUMNS_H
#define PLM_COMMON_CONFIG_LABEL_COLUMNS_H

#include "common/config/config.h"
#include "common/plan/batch_labels.h"

/* Chooses trainer.labels for an objective that predicts labels. schemas: of each corpus; NULL: it
 * has no labels. Errors are those of plm_label_choose, with trainer.labels in error->where. */
plm_status plm_config_choose_labels(const struct plm_config *config,
                                    const struct plm_label_schema *const *schemas,
                                    struct plm_label_choice *choice, struct plm_error *error);

/* The same from the descriptions of the corpora in their folders. PLM_NOT_FOUND: a corpus is not on
 * this host, or the configuration names none. On success the caller deinits. */
plm_status plm_config_read_labels(const struct plm_config *config, struct plm_label_choice *choice,
                                  struct plm_error *error);

/* Whether the corpus of a set has what the evaluator needs to measure this objective: columns with
 * the names and kinds of trainer.labels, and a class that is trained. Other objectives need
 * nothing. schema: NULL: it has no labels. choice: of the run; NULL: not known, so that its classes
 * are not compared. PLM_CONFIG, with the set in error->where. */
plm_status plm_config_check_set_labels(const struct plm_config *config,
                                       const struct plm_config_set *set,
                                       const struct plm_label_schema *schema,
                                       const struct plm_label_choice *choice,
                                       struct plm_error *error);

#endif
