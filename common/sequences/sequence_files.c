/* The loop over files and their records: see sequence_files.h. */
#include "common/sequences/sequence_files.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/log/log.h"
#include "common/sequences/sequence_ahead.h"

enum {
  RECORDS_BETWEEN_UPDATES = 64, /* of the progress line, which reads the clock */
  BAD_RECORDS_SHOWN = 20,
};

struct loop {
  const struct plm_sequence_files *files;
  struct plm_sequence_file_counts *counts;
  struct plm_sequence_ahead *ahead;   /* NULL: files are read here */
  struct plm_sequence_reader *reader; /* of the file; NULL: it is read ahead */
  uint64_t consumed;                  /* bytes on disk of the files before this one */
};

plm_status plm_sequence_files_check(const char *const *paths, size_t path_count,
                                    uint64_t *total_bytes, struct plm_error *error)
{
  bool known = true;
  *total_bytes = 0;
  for (size_t i = 0; i < path_count; i++) {
    struct stat information;
    const bool standard = strcmp(paths[i], "-") == 0;
    if (standard || (stat(paths[i], &information) == 0 && S_ISFIFO(information.st_mode))) {
      known = false; /* opening and closing a pipe would disconnect its writer */
      continue;
    }
    struct plm_byte_stream *stream;
    PLM_TRY(plm_byte_stream_open(paths[i], &stream, error));
    if (plm_byte_stream_total(stream) == 0) known = false;
    *total_bytes += plm_byte_stream_total(stream);
    plm_byte_stream_close(stream);
  }
  if (!known) *total_bytes = 0;
  return PLM_OK;
}

/* error holds what the reader said about the record. PLM_OK: the record was counted and is skipped.
 */
static plm_status skip_bad_record(const struct loop *loop, struct plm_error *error)
{
  if (loop->files->strict)
    return plm_error_hint(error, "correct it, or leave out --strict to count and skip bad records");
  const uint64_t bad = ++loop->counts->bad;
  if (bad > BAD_RECORDS_SHOWN) return PLM_OK;
  plm_progress_clear(loop->files->progress);
  plm_warning("%s: %s: skipped", error->where, error->what);
  if (bad == BAD_RECORDS_SHOWN) plm_warning("further bad records are counted, not shown");
  return PLM_OK;
}

/* How far the current file has been read. */
static struct plm_sequence_position position(const struct loop *loop)
{
  if (loop->reader == NULL) return plm_sequence_ahead_position(loop->ahead);
  const struct plm_byte_stream *stream = plm_sequence_reader_stream(loop->reader);
  return (struct plm_sequence_position){.consumed = plm_byte_stream_consumed(stream),
                                        .produced = plm_byte_stream_produced(stream)};
}

static void sequence_files_show_progress(const struct loop *loop)
{
  const struct plm_sequence_position at = position(loop);
  plm_progress_update(loop->files->progress, loop->consumed + at.consumed, loop->files->total_bytes,
                      loop->counts->bytes + at.produced, loop->counts->records, "sequence");
}

static enum plm_sequence_result next_record(const struct loop *loop, size_t file,
                                            struct plm_sequence *sequence, struct plm_error *error)
{
  if (loop->reader == NULL) return plm_sequence_ahead_next(loop->ahead, file, sequence, error);
  return plm_sequence_reader_next_unless_stopped(loop->reader, loop->files->stop_consequence,
                                                 sequence, error);
}

static plm_status read_records(const struct loop *loop, size_t file, uint64_t *good,
                               struct plm_error *error)
{
  const struct plm_sequence_files *files = loop->files;
  for (;;) {
    struct plm_sequence sequence;
    struct plm_error local = {0}; /* error may be NULL, and a bad record need not be a failure */
    plm_status status = PLM_OK;
    switch (next_record(loop, file, &sequence, &local)) {
    case PLM_SEQUENCE_READ:
      ++*good;
      status = files->on_record(files->context, file, &sequence, &local);
      break;
    case PLM_SEQUENCE_BAD: status = skip_bad_record(loop, &local); break;
    case PLM_SEQUENCE_AGAIN: /* never returned by _next_unless_stopped */
    case PLM_SEQUENCE_FAILED: status = local.status; break;
    case PLM_SEQUENCE_END: return PLM_OK;
    }
    if (status != PLM_OK) {
      if (error != NULL) *error = local;
      return status;
    }
    if (++loop->counts->records % RECORDS_BETWEEN_UPDATES == 0) sequence_files_show_progress(loop);
  }
}

static plm_status no_good_record(const char *name, uint64_t bytes, uint64_t bad,
                                 struct plm_error *error)
{
  if (bytes == 0)
    plm_error_set(error, PLM_FORMAT, "%s is empty", name);
  else
    plm_error_set(error, PLM_FORMAT, "%s has no good record, %" PRIu64 " bad", name, bad);
  plm_error_hint(error,
                 "formats: .fasta .fa .faa .fas, .jsonl, .csv .tsv, .txt, each also .gz or .zst");
  return PLM_FORMAT;
}

static plm_status sequence_files_open_file(struct loop *loop, size_t file, struct plm_error *error)
{
  const struct plm_sequence_files *files = loop->files;
  struct plm_byte_stream *stream;
  loop->reader = NULL;
  if (loop->ahead != NULL && plm_sequence_ahead_reads(loop->ahead, file)) return PLM_OK;
  PLM_TRY(plm_byte_stream_open(files->paths[file], &stream, error));
  loop->reader = plm_sequence_reader_open(stream, files->tokenizer, files->max_residues);
  if (files->keep_heads) plm_sequence_reader_keep_heads(loop->reader);
  plm_sequence_reader_choose(loop->reader, &files->choices);
  return PLM_OK;
}

static plm_status sequence_files_read_file(struct loop *loop, size_t file, uint64_t *file_bytes,
                                           struct plm_error *error)
{
  const struct plm_sequence_files *files = loop->files;
  const uint64_t bad_before = loop->counts->bad;
  uint64_t good = 0;
  PLM_TRY(sequence_files_open_file(loop, file, error));
  plm_status status = read_records(loop, file, &good, error);
  const struct plm_sequence_position end = position(loop);
  if (file_bytes != NULL) file_bytes[file] = end.produced;
  loop->counts->bytes += end.produced;
  loop->consumed += end.consumed;
  plm_sequence_reader_close(loop->reader);
  if (status == PLM_OK && good == 0)
    status = no_good_record(plm_byte_stream_label(files->paths[file]), end.produced,
                            loop->counts->bad - bad_before, error);
  return status;
}

plm_status plm_sequence_files_read(const struct plm_sequence_files *files,
                                   struct plm_sequence_file_counts *counts, uint64_t *file_bytes,
                                   struct plm_error *error)
{
  struct loop loop = {.files = files, .counts = counts};
  *counts = (struct plm_sequence_file_counts){0};
  const struct plm_sequence_ahead_options ahead = {
      .paths = files->paths,
      .path_count = files->path_count,
      .jobs = files->jobs,
      .tokenizer = files->tokenizer,
      .max_residues = files->max_residues,
      .keep_heads = files->keep_heads,
      .choices = files->choices,
      .stop_consequence = files->stop_consequence,
  };
  if (files->jobs != 0) PLM_TRY(plm_sequence_ahead_open(&ahead, &loop.ahead, error));
  plm_status status = PLM_OK;
  for (size_t i = 0; i < files->path_count && status == PLM_OK; i++)
    status = sequence_files_read_file(&loop, i, file_bytes, error);
  plm_sequence_ahead_close(loop.ahead);
  return status;
}
