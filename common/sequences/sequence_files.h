/* Reads the sequences of several files: the loop that `ingest` and `embed` share.
 *
 * A bad record is counted and skipped, and the first few are reported on stderr; with `strict` it
 * is an error. A file without a good record is an error. */
#ifndef PLM_COMMON_SEQUENCES_SEQUENCE_FILES_H
#define PLM_COMMON_SEQUENCES_SEQUENCE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/log/progress.h"
#include "common/base/status.h"
#include "common/sequences/sequence_reader.h"

struct plm_sequence_files {
  const char *const *paths; /* "-" is standard input */
  size_t path_count;
  enum plm_tokenizer_kind tokenizer;
  uint64_t max_residues; /* as plm_sequence_reader_open takes it */
  bool keep_heads;       /* as plm_sequence_reader_keep_heads */
  struct plm_sequence_choices choices;
  bool strict;
  unsigned jobs; /* files that are read side by side, in threads (sequence_ahead.h); 0: none */
  struct plm_progress *progress; /* shown while reading; begun and cleared by the caller */
  uint64_t total_bytes;          /* of all files, as plm_sequence_files_check says; 0: unknown */

  const char *stop_consequence; /* for the error after a stop signal, as plm_stop_check takes it */

  void *context; /* for take */
  /* Takes a good record of paths[file]; the sequence is valid during the call. */
  plm_status (*on_record)(void *context, size_t file, const struct plm_sequence *sequence,
                          struct plm_error *error);
};

struct plm_sequence_file_counts {
  uint64_t records; /* good and bad */
  uint64_t bad;     /* records that were skipped */
  uint64_t bytes;   /* read of all files, decompressed */
};

/* Opens and closes each file, so that a missing or unreadable one is reported before any work is
 * done; standard input and named pipes are not opened. total_bytes receives the sum of their sizes
 * on disk, 0 if one of them is unknown. */
plm_status plm_sequence_files_check(const char *const *paths, size_t path_count,
                                    uint64_t *total_bytes, struct plm_error *error);

/* Reads all files in order. counts is current during the calls of take, and after an error as well.
 * file_bytes (path_count, or NULL) receives the decompressed size of each file. PLM_FORMAT: a file
 * without a good record, or a bad record with `strict`. PLM_INTERRUPTED, PLM_TERMINATED: a stop
 * signal. */
plm_status plm_sequence_files_read(const struct plm_sequence_files *files,
                                   struct plm_sequence_file_counts *counts, uint64_t *file_bytes,
                                   struct plm_error *error);

#endif
