/* The entries of `corpus` and evaluator.sets in a configuration, for the other files of this
 * folder. */
#ifndef PLM_COMMON_CONFIG_CONFIG_CORPORA_H
#define PLM_COMMON_CONFIG_CONFIG_CORPORA_H

#include "common/config/config.h"

/* Whether any source has a final weight. */
bool plm_sources_move(const struct plm_config *config);
/* Frees the entries: the configuration then has no list. */
void plm_sources_release(struct plm_config *config);
/* Appends the list as YAML, on one line. */
void plm_sources_print(const struct plm_config *config, struct plm_text *text);
/* Appends the two weights of an entry, as in that list. */
void plm_source_print_weights(const struct plm_config_source *source, struct plm_text *text);
/* The same for evaluator.sets. */
void plm_config_sets_release(struct plm_config_evaluator *evaluator);
void plm_config_sets_print(const struct plm_config_evaluator *evaluator, struct plm_text *text);

#endif
