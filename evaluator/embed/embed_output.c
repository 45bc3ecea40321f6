/* Writes FILE.partial and FILE.journal, and makes FILE of them; or a stream. */
#include "evaluator/embed/embed_output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/cli/output_file.h"

static const uint64_t least_interval_ns = 200000000u; /* between two saves */
enum { INTERVAL_PER_COST = 50 };                      /* so saving takes at most 2 % of the time */

struct plm_embed_output {
  char path[PLM_PATH_SIZE], partial[PLM_PATH_SIZE], journal[PLM_PATH_SIZE];
  char names[PLM_PATH_SIZE], names_partial[PLM_PATH_SIZE];
  const struct plm_embed_layout *layout;
  int descriptor;                 /* of FILE.partial, or of an unnamed file for a stream */
  struct plm_output_file *stream; /* receives the unnamed file at the end; NULL if it is a file */
  uint64_t last_save_ns, save_cost_ns;
};

static plm_status name_files(struct plm_embed_output *output, const char *path,
                             struct plm_error *error)
{
  const size_t longest = strlen(".names.json.partial");
  if (strlen(path) + longest >= PLM_PATH_SIZE)
    return plm_error_set(error, PLM_LIMIT, "path %.200s is too long", path);
  snprintf(output->path, PLM_PATH_SIZE, "%s", path);
  snprintf(output->partial, PLM_PATH_SIZE, "%s.partial", path);
  snprintf(output->journal, PLM_PATH_SIZE, "%s.journal", path);
  snprintf(output->names, PLM_PATH_SIZE, "%s.names.json", path);
  snprintf(output->names_partial, PLM_PATH_SIZE, "%s.names.json.partial", path);
  return PLM_OK;
}

/* Opens and locks FILE.partial. If its former owner renamed the file between our open and our lock,
 * this starts again. */
static plm_status lock_partial(struct plm_embed_output *output, struct plm_error *error)
{
  for (;;) {
    struct stat ours, named = {0};
    output->descriptor = open(output->partial, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (output->descriptor < 0) return plm_error_errno(error, "cannot create %s", output->partial);
    if (flock(output->descriptor, LOCK_EX | LOCK_NB) != 0)
      return plm_error_set(error, PLM_BUSY, "another process is writing %s", output->partial);
    if (fstat(output->descriptor, &ours) != 0 ||
        (stat(output->partial, &named) != 0 && errno != ENOENT))
      return plm_error_errno(error, "cannot stat %s", output->partial);
    if (ours.st_dev == named.st_dev && ours.st_ino == named.st_ino) return PLM_OK;
    close(output->descriptor);
  }
}

static void remove_begun(const struct plm_embed_output *output)
{
  unlink(output->partial);
  plm_embed_journal_remove(output->journal);
}

/* Allocates the whole file now, so that a full disk is not discovered after hours. */
static plm_status allocate_file(struct plm_embed_output *output, struct plm_error *error)
{
  const uint64_t bytes = output->layout->bytes;
  int result;
  if (ftruncate(output->descriptor, 0) != 0)
    return plm_error_errno(error, "cannot empty %s", output->partial);
  do result = fallocate(output->descriptor, 0, 0, (off_t)bytes);
  while (result != 0 && errno == EINTR);
  if (result != 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
    result = ftruncate(output->descriptor, (off_t)bytes); /* this file system cannot allocate */
  if (result == 0) return PLM_OK;
  const plm_status status = plm_error_errno(error, "cannot write %s", output->path);
  if (status == PLM_NO_SPACE)
    plm_error_hint(error, "the result needs %.1f MB; nothing was written", 1e-6 * (double)bytes);
  return status;
}

static plm_status embed_output_begin(struct plm_embed_output *output,
                                     struct plm_sequence_spool *spool,
                                     struct plm_embed_journal *journal, struct plm_error *error)
{
  journal->windows = 0;
  journal->batches = 0;
  journal->sequences = 0;
  plm_status status = allocate_file(output, error);
  if (status == PLM_OK)
    status = plm_embed_layout_write_header(output->layout, spool, output->descriptor,
                                           output->partial, error);
  if (status == PLM_OK) status = plm_embed_output_save(output, journal, false, error);
  if (status != PLM_OK) remove_begun(output);
  return status;
}

/* PLM_OK: FILE.partial can be continued from where *journal now is. PLM_NOT_FOUND: there is none.
 */
static plm_status look_for_begun(const struct plm_embed_output *output,
                                 struct plm_embed_journal *journal, struct plm_error *error)
{
  struct plm_embed_journal found;
  struct stat information;
  plm_status status = plm_embed_journal_read(&found, output->journal, error);
  if (status == PLM_NOT_FOUND) return status;
  if (fstat(output->descriptor, &information) != 0)
    return plm_error_errno(error, "cannot stat %s", output->partial);
  if (information.st_size == 0) return PLM_NOT_FOUND; /* the journal has lost its file */
  if (status == PLM_OK) status = plm_embed_journal_compare(&found, journal, error);
  if (status == PLM_OK && (uint64_t)information.st_size != journal->bytes)
    status = plm_error_set(error, PLM_EXISTS, "it has %" PRIu64 " bytes instead of %" PRIu64,
                           (uint64_t)information.st_size, journal->bytes);
  if (status != PLM_OK) {
    plm_error_where(error, "%s", output->partial);
    plm_error_hint(error, "finish it with the command that began it, discard it with --resume "
                          "never, or write to another file");
    return PLM_EXISTS;
  }
  *journal = found;
  return PLM_OK;
}

/* Rows are written in any order, which a stream cannot take, so they go to an unnamed file first.
 */
static plm_status begin_stream(struct plm_embed_output *output, const char *path,
                               struct plm_sequence_spool *spool, struct plm_embed_journal *journal,
                               struct plm_error *error)
{
  char folder[PLM_PATH_SIZE];
  if (output->layout->format != PLM_EMBED_ROWS)
    PLM_TRY(plm_output_open(path, &output->stream, error));
  PLM_TRY(plm_output_folder(path, folder, error));
  PLM_TRY(plm_file_open_unnamed(folder, &output->descriptor, error));
  snprintf(output->path, PLM_PATH_SIZE, "a temporary file in %.4000s", folder);
  snprintf(output->partial, PLM_PATH_SIZE, "%s", output->path);
  journal->windows = journal->batches = journal->sequences = 0;
  PLM_TRY(allocate_file(output, error));
  return plm_embed_layout_write_header(output->layout, spool, output->descriptor, output->partial,
                                       error);
}

static plm_status embed_output_open(struct plm_embed_output *output, const char *path,
                                    struct plm_sequence_spool *spool, bool fresh,
                                    struct plm_embed_journal *journal, struct plm_error *error)
{
  if (plm_output_is_stream(path)) return begin_stream(output, path, spool, journal, error);
  char target[PLM_PATH_SIZE];
  PLM_TRY(plm_output_target(path, target, error));
  PLM_TRY(name_files(output, target, error));
  if (output->layout->format == PLM_EMBED_NPY)
    PLM_TRY(plm_output_target(output->names, target, error)); /* only to refuse what is no file */
  PLM_TRY(lock_partial(output, error));
  const plm_status status = fresh ? PLM_NOT_FOUND : look_for_begun(output, journal, error);
  if (status != PLM_NOT_FOUND) return status;
  return embed_output_begin(output, spool, journal, error);
}

plm_status plm_embed_output_open(const char *path, const struct plm_embed_layout *layout,
                                 struct plm_sequence_spool *spool, bool fresh,
                                 struct plm_embed_journal *journal,
                                 struct plm_embed_output **output, struct plm_error *error)
{
  struct plm_embed_output *opened = plm_alloc_zeroed(1, sizeof *opened);
  opened->layout = layout;
  opened->descriptor = -1;
  const plm_status status = embed_output_open(opened, path, spool, fresh, journal, error);
  if (status != PLM_OK) {
    plm_embed_output_close(opened);
    return status;
  }
  *output = opened;
  return PLM_OK;
}

void plm_embed_output_close(struct plm_embed_output *output)
{
  if (output == NULL) return;
  if (output->descriptor >= 0) close(output->descriptor);
  plm_output_close(output->stream);
  free(output);
}

plm_status plm_embed_output_put(struct plm_embed_output *output, uint64_t row, const float *values,
                                uint64_t rows, struct plm_error *error)
{
  const char *next = (const char *)values;
  uint64_t left = rows * output->layout->width * sizeof *values;
  uint64_t at = plm_embed_layout_offset(output->layout, row);
  PLM_ASSERT(row + rows <= output->layout->rows);
  while (left > 0) {
    const ssize_t put = pwrite(output->descriptor, next, left, (off_t)at);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return plm_error_errno(error, "cannot write %s", output->partial);
    next += put;
    at += (uint64_t)put;
    left -= (uint64_t)put;
  }
  return PLM_OK;
}

plm_status plm_embed_output_get(struct plm_embed_output *output, uint64_t row, float *values,
                                uint64_t rows, struct plm_error *error)
{
  PLM_ASSERT(row + rows <= output->layout->rows);
  return plm_file_read_at(output->descriptor, values, rows * output->layout->width * sizeof *values,
                          plm_embed_layout_offset(output->layout, row), output->partial, error);
}

void plm_embed_output_remove(struct plm_embed_output *output)
{
  PLM_ASSERT(output->layout->format == PLM_EMBED_ROWS);
  if (output->journal[0] != '\0') remove_begun(output);
}

plm_status plm_embed_output_save(struct plm_embed_output *output,
                                 const struct plm_embed_journal *journal, bool due,
                                 struct plm_error *error)
{
  const uint64_t now = plm_clock_ns(), since = now - output->last_save_ns;
  if (output->journal[0] == '\0') return PLM_OK; /* a stream cannot be continued */
  if (due && (since < least_interval_ns || since < INTERVAL_PER_COST * output->save_cost_ns))
    return PLM_OK;
  if (fdatasync(output->descriptor) != 0)
    return plm_error_errno(error, "cannot sync %s", output->partial);
  PLM_TRY(plm_embed_journal_write(journal, output->journal, error));
  output->last_save_ns = plm_clock_ns();
  output->save_cost_ns = output->last_save_ns - now;
  return PLM_OK;
}

static plm_status finish_names(struct plm_embed_output *output, struct plm_sequence_spool *spool,
                               struct plm_error *error)
{
  const char *partial = output->names_partial;
  plm_status status = plm_embed_write_names(spool, partial, error);
  if (status == PLM_OK && rename(partial, output->names) != 0)
    status = plm_error_errno(error, "cannot rename %s to %s", partial, output->names);
  if (status != PLM_OK) unlink(partial);
  return status;
}

static plm_status copy_to_stream(struct plm_embed_output *output, struct plm_error *error)
{
  static char part[1 << 16];
  FILE *file = plm_output_stream(output->stream);
  for (uint64_t at = 0; at < output->layout->bytes;) {
    const uint64_t left = output->layout->bytes - at;
    const size_t size = left < sizeof part ? (size_t)left : sizeof part;
    PLM_TRY(plm_file_read_at(output->descriptor, part, size, at, output->partial, error));
    if (fwrite(part, 1, size, file) != size) return plm_output_failed(output->stream, error);
    at += size;
  }
  return plm_output_finish(output->stream, error);
}

plm_status plm_embed_output_finish(struct plm_embed_output *output,
                                   struct plm_sequence_spool *spool, struct plm_error *error)
{
  char folder[PLM_PATH_SIZE];
  if (output->stream != NULL) return copy_to_stream(output, error);
  if (fsync(output->descriptor) != 0)
    return plm_error_errno(error, "cannot sync %s", output->partial);
  if (output->layout->format == PLM_EMBED_NPY) PLM_TRY(finish_names(output, spool, error));
  if (rename(output->partial, output->path) != 0)
    return plm_error_errno(error, "cannot rename %s to %s", output->partial, output->path);
  plm_embed_journal_remove(output->journal);
  PLM_TRY(plm_path_parent(folder, output->path, error));
  return plm_directory_sync(folder, error);
}
