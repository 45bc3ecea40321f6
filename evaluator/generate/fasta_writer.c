/* Writes FASTA to the output of `generate`. */
#include "evaluator/generate/fasta_writer.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/text/printable.h"
#include "common/cli/output_file.h"

struct plm_fasta_writer {
  struct plm_output_file *output;
  uint64_t blanks;
};

plm_status plm_fasta_writer_open(const char *path, struct plm_fasta_writer **writer,
                                 struct plm_error *error)
{
  struct plm_fasta_writer *opened = plm_alloc_zeroed(1, sizeof *opened);
  const plm_status status = plm_output_open(path, &opened->output, error);
  if (status != PLM_OK) {
    free(opened);
    return status;
  }
  *writer = opened;
  return PLM_OK;
}

plm_status plm_fasta_writer_add(struct plm_fasta_writer *writer, const char *name,
                                const uint8_t *residues, size_t size, struct plm_error *error)
{
  FILE *file = plm_output_stream(writer->output);
  putc('>', file);
  plm_print_data(file, name);
  putc('\n', file);
  for (size_t i = 0; i < size; i++) {
    const bool line_end = residues[i] == '\n' || residues[i] == '\r';
    putc_unlocked(line_end ? ' ' : residues[i], file);
    writer->blanks += line_end;
  }
  putc_unlocked('\n', file);
  return ferror(file) ? plm_output_failed(writer->output, error) : PLM_OK;
}

uint64_t plm_fasta_writer_blanks(const struct plm_fasta_writer *writer)
{
  return writer->blanks;
}

plm_status plm_fasta_writer_finish(struct plm_fasta_writer *writer, struct plm_error *error)
{
  return plm_output_finish(writer->output, error);
}

void plm_fasta_writer_close(struct plm_fasta_writer *writer)
{
  if (writer == NULL) return;
  plm_output_close(writer->output);
  free(writer);
}
