/* The corpora that a packer serves: those of --corpus, or else of the configuration. */
#ifndef PLM_COMMON_CONFIG_CORPUS_PATHS_H
#define PLM_COMMON_CONFIG_CORPUS_PATHS_H

#include <stdint.h>

#include "common/config/config.h"

/* Begin with {0}. The module owns the paths. */
struct plm_corpus_paths {
  char *paths[PLM_MAX_SOURCES];
  uint32_t count;
};

/* given: "A,B", or one folder, whose name may contain a comma if it exists; or NULL for those of
 * the configuration (NULL: none). PLM_USAGE if there are more than PLM_MAX_SOURCES.
 * Deinit it also after an error. */
plm_status plm_corpus_paths_find(const char *given, const struct plm_config *config,
                                 struct plm_corpus_paths *corpora, struct plm_error *error);
void plm_corpus_paths_deinit(struct plm_corpus_paths *corpora);

#endif
