/* The settings of a run and the metrics by which runs are compared, as TensorBoard's HPARAMS tab
 * reads them: a file of events with a fixed name in the folder of the metrics' own event files.
 *
 * TensorBoard keeps the first settings that it finds in a folder. The file is therefore replaced at
 * each start instead of being added to, so that the settings of the newest start count, and there
 * are never two of them. */
#ifndef PLM_EVALUATOR_WATCH_HPARAMS_H
#define PLM_EVALUATOR_WATCH_HPARAMS_H

#include <stddef.h>

#include "common/base/status.h"
#include "common/config/config.h"

/* Sorts before the other event files, so that TensorBoard reads it first. */
#define PLM_HPARAMS_FILE "events.out.tfevents.0000000000.hparams"

struct plm_hparams {
  const struct plm_config *config;
  const char *const *subjects; /* (subject_count) "valid", "refseq/test": the beginning of the tags
                                  SUBJECT/loss, SUBJECT/accuracy and SUBJECT/perplexity */
  size_t subject_count;
};

/* Replaces the file in the folder, which must exist; the session counts as running. PLM_LIMIT if
 * the settings do not fit into a record; errors of writing. */
plm_status plm_hparams_write(const char *directory, const struct plm_hparams *hparams,
                             struct plm_error *error);
/* Adds that the session has ended successfully. To be called once after plm_hparams_write. */
plm_status plm_hparams_end(const char *directory, struct plm_error *error);

#endif
