/* The file of embeddings while it is written: FILE.partial with all its room taken at once, rows
 * put at their places in any order, and FILE.journal beside it; FILE by rename once it is whole.
 * One process at a time. */
#ifndef PLM_EVALUATOR_EMBED_EMBED_OUTPUT_H
#define PLM_EVALUATOR_EMBED_EMBED_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "evaluator/embed/embed_journal.h"
#include "evaluator/embed/embed_layout.h"

struct plm_embed_output;

/* Begins the file, or goes on with one that was begun with the same journal->input, checkpoint,
 * config, options and bytes: then journal's counts say how far it is, else they are 0. With `fresh`
 * whatever was begun is thrown away.
 *
 * PLM_EXISTS: another one was begun there. PLM_BUSY: another process writes it. PLM_NO_SPACE: there
 * is no room for the whole; nothing is left behind. layout is borrowed. */
plm_status plm_embed_output_open(const char *path, const struct plm_embed_layout *layout,
                                 struct plm_sequence_spool *spool, bool fresh,
                                 struct plm_embed_journal *journal,
                                 struct plm_embed_output **output, struct plm_error *error);
/* Leaves what is not finished on disk, as far as the last journal says. NULL is fine. */
void plm_embed_output_close(struct plm_embed_output *output);

/* Rows of layout->width floats from `row` on. */
plm_status plm_embed_output_put(struct plm_embed_output *output, uint64_t row, const float *values,
                                uint64_t rows, struct plm_error *error);
/* Rows, then the journal, safely on disk. With `due` alone when it is time: in all it takes a
 * fiftieth of the time at most. */
plm_status plm_embed_output_save(struct plm_embed_output *output,
                                 const struct plm_embed_journal *journal, bool due,
                                 struct plm_error *error);
/* All rows were put: FILE (for npy FILE.names.json too) is there, the others are gone. */
plm_status plm_embed_output_finish(struct plm_embed_output *output,
                                   struct plm_sequence_spool *spool, struct plm_error *error);

#endif
