/* Writes FASTA, a line a sequence, to a file that appears whole or not at all. */
#ifndef PLM_EVALUATOR_GENERATE_FASTA_WRITER_H
#define PLM_EVALUATOR_GENERATE_FASTA_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

struct plm_fasta_writer;

/* "-" is standard output. The file is PATH.tmp-PID until it is finished. */
plm_status plm_fasta_writer_open(const char *path, struct plm_fasta_writer **writer,
                                 struct plm_error *error);
/* A line end inside a sequence, which FASTA cannot hold, is written as a blank. */
plm_status plm_fasta_writer_add(struct plm_fasta_writer *writer, const char *name,
                                const uint8_t *residues, size_t size, struct plm_error *error);
/* Line ends that became blanks so far. */
uint64_t plm_fasta_writer_blanks(const struct plm_fasta_writer *writer);
/* What was written becomes PATH. */
plm_status plm_fasta_writer_finish(struct plm_fasta_writer *writer, struct plm_error *error);
/* Without a finish before, nothing is left. NULL is fine. */
void plm_fasta_writer_close(struct plm_fasta_writer *writer);

#endif
