/* Writes FASTA to a temporary file that is renamed, or to stdout. */
#include "evaluator/generate/fasta_writer.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"

struct plm_fasta_writer {
  char path[PLM_PATH_SIZE], temporary[PLM_PATH_SIZE + 32];
  FILE *file;
  uint64_t blanks;
};

static plm_status failed(const struct plm_fasta_writer *writer, struct plm_error *error)
{
  return plm_error_errno(error, "cannot write %s", writer->path);
}

plm_status plm_fasta_writer_open(const char *path, struct plm_fasta_writer **writer,
                                 struct plm_error *error)
{
  struct plm_fasta_writer *opened = calloc(1, sizeof *opened);
  if (opened == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  const int length = snprintf(opened->path, sizeof opened->path, "%s", path);
  snprintf(opened->temporary, sizeof opened->temporary, "%s.tmp-%d", opened->path, (int)getpid());
  plm_status status = PLM_OK;
  if (length < 0 || (size_t)length >= sizeof opened->path)
    status = plm_error_set(error, PLM_LIMIT, "the path of the output is too long");
  else if (strcmp(path, "-") == 0)
    opened->file = stdout;
  else if ((opened->file = fopen(opened->temporary, "we")) == NULL)
    status = failed(opened, error);
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
  fprintf(writer->file, ">%s\n", name);
  for (size_t i = 0; i < size; i++) {
    const bool line_end = residues[i] == '\n' || residues[i] == '\r';
    putc_unlocked(line_end ? ' ' : residues[i], writer->file);
    writer->blanks += line_end;
  }
  putc_unlocked('\n', writer->file);
  return ferror(writer->file) ? failed(writer, error) : PLM_OK;
}

uint64_t plm_fasta_writer_blanks(const struct plm_fasta_writer *writer)
{
  return writer->blanks;
}

plm_status plm_fasta_writer_finish(struct plm_fasta_writer *writer, struct plm_error *error)
{
  FILE *file = writer->file;
  if (file == stdout) return fflush(file) == 0 ? PLM_OK : failed(writer, error);
  const bool written = fflush(file) == 0 && fsync(fileno(file)) == 0;
  if (!written) return failed(writer, error);
  writer->file = NULL;
  if (fclose(file) != 0 || rename(writer->temporary, writer->path) != 0) {
    failed(writer, error);
    unlink(writer->temporary);
    return error != NULL ? error->status : PLM_IO;
  }
  return PLM_OK;
}

void plm_fasta_writer_close(struct plm_fasta_writer *writer)
{
  if (writer == NULL) return;
  if (writer->file != NULL && writer->file != stdout) {
    fclose(writer->file);
    unlink(writer->temporary);
  }
  free(writer);
}
