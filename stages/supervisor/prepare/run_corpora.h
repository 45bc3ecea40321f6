/* The corpora of a configuration, as `up` and `validate` read them. */
#ifndef PLM_STAGES_SUPERVISOR_PREPARE_RUN_CORPORA_H
#define PLM_STAGES_SUPERVISOR_PREPARE_RUN_CORPORA_H

#include <stdbool.h>

#include "common/config/config.h"
#include "common/config/problems.h"

/* Room for the fingerprints of all corpora in hex, two of each, with what separates them. */
enum { PLM_FINGERPRINTS_SIZE = 2 * PLM_MAX_SOURCES * PLM_HASH_HEX_SIZE };

/* Opens each corpus and checks that it fits the configuration and is there once. fingerprints
 * becomes "HEX,HEX,...", or "" if the configuration names no corpus; an upgraded corpus is
 * "HEX:HEX", with its fingerprint before the upgrade second. PLM_CONFIG: a corpus does not exist,
 * has another tokenizer, keeps no clusters, or is there twice. */
plm_status plm_run_corpora_read(const struct plm_config *config,
                                char fingerprints[PLM_FINGERPRINTS_SIZE], struct plm_error *error);

/* Whether a corpus may lie on a remote file system: packers copy it, read it in place, or are not
 * started here. */
bool plm_run_corpora_may_be_remote(const struct plm_config *config);
/* PLM_CONFIG: packers on this host would refuse a corpus, because it lies on a remote file system.
 * A corpus that is not here is not checked. */
plm_status plm_run_corpora_local(const struct plm_config *config, struct plm_error *error);

/* Prints a warning for each corpus of the configuration, of a list and of evaluator.sets too, that
 * is not on this host. PLM_CONFIG: the only corpus was made for another tokenizer. Other errors: a
 * corpus that is here cannot be read. */
plm_status plm_run_corpora_present(const struct plm_config *config, struct plm_error *error);

/* Adds what is wrong with the corpora of a list to the loader's problems, as far as they are there;
 * they may be made later, or be on other hosts. For plm_config_load_with. */
void plm_run_corpora_check(struct plm_loader *loader);

#endif
