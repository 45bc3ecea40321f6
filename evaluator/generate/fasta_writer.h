/* Writes FASTA with one line for each sequence. The file appears complete or not at all. */
#ifndef PLM_EVALUATOR_GENERATE_FASTA_WRITER_H
#define PLM_EVALUATOR_GENERATE_FASTA_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

struct plm_fasta_writer;

/* Path "-" is standard output. The file is called PATH.tmp-PID until it is finished. */
plm_status plm_fasta_writer_open(const char *path, struct plm_fasta_writer **writer,
                                 struct plm_error *error);
/* Writes one sequence of `size` bytes. A line end in it, which FASTA cannot hold, is written as a
 * blank. */
plm_status plm_fasta_writer_add(struct plm_fasta_writer *writer, const char *name,
                                const uint8_t *residues, size_t size, struct plm_error *error);
/* How many line ends were written as blanks so far. */
uint64_t plm_fasta_writer_blanks(const struct plm_fasta_writer *writer);
/* Syncs the file and renames it to PATH. */
plm_status plm_fasta_writer_finish(struct plm_fasta_writer *writer, struct plm_error *error);
/* Removes a file that was not finished. NULL is fine. */
void plm_fasta_writer_close(struct plm_fasta_writer *writer);

#endif
