/* The file of embeddings while it is written. FILE.partial is allocated at once, and rows are
 * written to their places in any order; FILE.journal says which rows are written. Once all are,
 * FILE.partial is renamed to FILE. A lock lets only one process write at a time.
 *
 * If the output is a stream (common/cli/output_file.h), the rows go to an unnamed file, which is
 * copied to the stream at the end; there is no journal. */
#ifndef PLM_EVALUATOR_EMBED_EMBED_OUTPUT_H
#define PLM_EVALUATOR_EMBED_EMBED_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "evaluator/embed/embed_journal.h"
#include "evaluator/embed/embed_layout.h"

struct plm_embed_output;

/* Begins the file, or continues one that was begun with the same journal->input, checkpoint,
 * config, options and bytes. Sets the counts in *journal to what is already written (0 for a new
 * file). With `fresh`, whatever was begun is discarded. layout is borrowed.
 *
 * PLM_EXISTS: a different result was begun there. PLM_BUSY: another process is writing it.
 * PLM_NO_SPACE: there is no room for the whole file, and nothing is left behind. */
plm_status plm_embed_output_open(const char *path, const struct plm_embed_layout *layout,
                                 struct plm_sequence_spool *spool, bool fresh,
                                 struct plm_embed_journal *journal,
                                 struct plm_embed_output **output, struct plm_error *error);
/* If the file is not finished, it can be continued from the last save. NULL is fine. */
void plm_embed_output_close(struct plm_embed_output *output);

/* Writes `rows` rows of layout->width floats, the first of them as row `row`. */
plm_status plm_embed_output_put(struct plm_embed_output *output, uint64_t row, const float *values,
                                uint64_t rows, struct plm_error *error);
/* Reads rows back that were written. */
plm_status plm_embed_output_get(struct plm_embed_output *output, uint64_t row, float *values,
                                uint64_t rows, struct plm_error *error);
/* With PLM_EMBED_ROWS, instead of plm_embed_output_finish: removes the file and its journal,
 * because the result was made of them. */
void plm_embed_output_remove(struct plm_embed_output *output);
/* Syncs the rows, and then writes the journal. With `due`, saves only when a save is due; saving
 * takes at most 2 % of the run time. */
plm_status plm_embed_output_save(struct plm_embed_output *output,
                                 const struct plm_embed_journal *journal, bool due,
                                 struct plm_error *error);
/* After the last row: makes FILE (and for npy FILE.names.json), and removes the journal. */
plm_status plm_embed_output_finish(struct plm_embed_output *output,
                                   struct plm_sequence_spool *spool, struct plm_error *error);

#endif
