/* The algorithms of products, kept outside runs: what one run has measured, the next one takes.
 * Runs of one configuration on one card thus give the same bits, and later ones start without
 * measuring.
 *
 * There is one file for each library, version, card and precision. It lies in the folder that the
 * environment variable PLM_ALGORITHM_CACHE names (if it is empty, nothing is kept), else in
 * plm-pipeline/ under $XDG_CACHE_HOME or ~/.cache. If a file cannot be read, taken or written, a
 * warning is logged and the products are tuned; the run continues. */
#ifndef PLM_TRAINER_ALGORITHM_FILE_H
#define PLM_TRAINER_ALGORITHM_FILE_H

#include "common/ops/ops.h"

/* Imports the file's algorithms, if there is a file. */
void plm_algorithm_file_take(struct plm_ops *ops);
/* Replaces the file by all tuned algorithms that the backend has. */
void plm_algorithm_file_keep(struct plm_ops *ops);

#endif
