/* The product algorithms that runs have measured, kept outside of runs so that later runs use them.
 * Runs of one configuration on one card then give the same bits, and later ones start without
 * measuring.
 *
 * There is one file for each library, version, card and precision. It lies in the folder that the
 * environment variable PLM_ALGORITHM_CACHE names (if it is empty, nothing is kept), else in
 * plm-pipeline/ under $XDG_CACHE_HOME or ~/.cache. If a file cannot be read, imported or written, a
 * warning is logged and the run continues; products without an algorithm are tuned. */
#ifndef PLM_TRAINER_ALGORITHM_FILE_H
#define PLM_TRAINER_ALGORITHM_FILE_H

#include "common/ops/ops.h"

/* Imports the algorithms of the file, if it exists. */
void plm_algorithm_file_take(struct plm_ops *ops);
/* Replaces the file with all tuned algorithms that the backend has. */
void plm_algorithm_file_keep(struct plm_ops *ops);

#endif
