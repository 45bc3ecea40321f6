/* The product algorithms that runs have measured, kept outside of runs so that later runs use them.
 * Runs of one configuration on one card then give the same bits, and later ones start without
 * measuring.
 *
 * There is one file for each library, version, card and precision, in the folder of
 * common/ops/measured_folder.h. If a file cannot be read, imported or written, a
 * warning is logged and the run continues; products without an algorithm are tuned. */
#ifndef PLM_TRAINER_TUNING_ALGORITHM_FILE_H
#define PLM_TRAINER_TUNING_ALGORITHM_FILE_H

#include "common/ops/ops.h"

/* Imports the algorithms of the file, if it exists. */
void plm_algorithm_file_load(struct plm_ops *ops);
/* Adds all tuned algorithms that the backend has to the file. For a shape that both have, those of
 * the backend win. Runs that tune side by side lose nothing of each other. The file keeps 512
 * lines, the newest first; beside it lies a file NAME.lock. */
void plm_algorithm_file_keep(struct plm_ops *ops);

#endif
