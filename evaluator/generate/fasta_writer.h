/* Writes FASTA with one line for each sequence, to a file or a stream (common/cli/output_file.h).
 */
#ifndef PLM_EVALUATOR_GENERATE_FASTA_WRITER_H
#define PLM_EVALUATOR_GENERATE_FASTA_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

struct plm_fasta_writer;

/* The path is that of --output. */
plm_status plm_fasta_writer_open(const char *path, struct plm_fasta_writer **writer,
                                 struct plm_error *error);
/* Writes one sequence of `size` bytes. A line end in it, which FASTA cannot hold, is written as a
 * blank. */
plm_status plm_fasta_writer_add(struct plm_fasta_writer *writer, const char *name,
                                const uint8_t *residues, size_t size, struct plm_error *error);
/* How many line ends were written as blanks so far. */
uint64_t plm_fasta_writer_blanks(const struct plm_fasta_writer *writer);
/* Completes the output. */
plm_status plm_fasta_writer_finish(struct plm_fasta_writer *writer, struct plm_error *error);
/* Removes a file that was not finished. NULL is fine. */
void plm_fasta_writer_close(struct plm_fasta_writer *writer);

#endif
