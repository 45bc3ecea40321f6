/* The loop over files and their records: see sequence_files.h. */
#include "common/sequences/sequence_files.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/log.h"

enum {
  RECORDS_BETWEEN_UPDATES = 64, /* of the progress line, which reads the clock */
  BAD_RECORDS_SHOWN = 20,
};

struct loop {
  const struct plm_sequence_files *files;
  struct plm_sequence_file_counts *counts;
  uint64_t consumed; /* bytes on disk of the files before this one */
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

static void show_progress(const struct loop *loop, const struct plm_byte_stream *stream)
{
  plm_progress_update(loop->files->progress, loop->consumed + plm_byte_stream_consumed(stream),
                      loop->files->total_bytes,
                      loop->counts->bytes + plm_byte_stream_produced(stream), loop->counts->records,
                      "sequence");
}

static plm_status read_records(const struct loop *loop, size_t file,
                               struct plm_sequence_reader *reader, uint64_t *good,
                               struct plm_error *error)
{
  const struct plm_sequence_files *files = loop->files;
  for (;;) {
    struct plm_sequence sequence;
    struct plm_error local = {0}; /* error may be NULL, and a bad record need not be a failure */
    plm_status status = PLM_OK;
    switch (plm_sequence_reader_next_unless_stopped(reader, files->stop_consequence, &sequence,
                                                    &local)) {
    case PLM_SEQUENCE_READ:
      ++*good;
      status = files->take(files->context, file, &sequence, &local);
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
    if (++loop->counts->records % RECORDS_BETWEEN_UPDATES == 0)
      show_progress(loop, plm_sequence_reader_stream(reader));
  }
}

static plm_status no_good_record(const char *name, uint64_t bytes, uint64_t bad,
                                 struct plm_error *error)
{
  if (bytes == 0)
    plm_error_set(error, PLM_FORMAT, "%s is empty", name);
  else
    plm_error_set(error, PLM_FORMAT, "%s has no good record, %" PRIu64 " bad", name, bad);
  plm_error_hint(error, "formats: .fasta .fa .faa .fas, .jsonl, .txt, each also .gz or .zst");
  return PLM_FORMAT;
}

static plm_status read_file(struct loop *loop, size_t file, uint64_t *file_bytes,
                            struct plm_error *error)
{
  const struct plm_sequence_files *files = loop->files;
  const uint64_t bad_before = loop->counts->bad;
  uint64_t good = 0;
  struct plm_byte_stream *stream;
  struct plm_sequence_reader *reader;
  PLM_TRY(plm_byte_stream_open(files->paths[file], &stream, error));
  PLM_TRY(plm_sequence_reader_open(stream, files->tokenizer, files->max_residues, &reader, error));
  if (files->keep_heads) plm_sequence_reader_keep_heads(reader);
  plm_status status = read_records(loop, file, reader, &good, error);
  const uint64_t bytes = plm_byte_stream_produced(stream);
  if (file_bytes != NULL) file_bytes[file] = bytes;
  loop->counts->bytes += bytes;
  loop->consumed += plm_byte_stream_consumed(stream);
  if (status == PLM_OK && good == 0)
    status =
        no_good_record(plm_byte_stream_name(stream), bytes, loop->counts->bad - bad_before, error);
  plm_sequence_reader_close(reader);
  return status;
}

plm_status plm_sequence_files_read(const struct plm_sequence_files *files,
                                   struct plm_sequence_file_counts *counts, uint64_t *file_bytes,
                                   struct plm_error *error)
{
  struct loop loop = {.files = files, .counts = counts};
  *counts = (struct plm_sequence_file_counts){0};
  for (size_t i = 0; i < files->path_count; i++) PLM_TRY(read_file(&loop, i, file_bytes, error));
  return PLM_OK;
}
