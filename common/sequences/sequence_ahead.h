/* Reads several files of sequences side by side, in threads, and hands out their records in the
 * order of the files. What is read ahead of the file whose turn it is waits in memory. */
#ifndef PLM_COMMON_SEQUENCES_SEQUENCE_AHEAD_H
#define PLM_COMMON_SEQUENCES_SEQUENCE_AHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/sequences/sequence_reader.h"

struct plm_sequence_ahead;

struct plm_sequence_ahead_options {
  const char *const *paths; /* (path_count), borrowed */
  size_t path_count;
  unsigned jobs; /* threads, at least 1; each reads one file at a time */
  enum plm_tokenizer_kind tokenizer;
  uint64_t max_residues; /* as plm_sequence_reader_open takes it */
  bool keep_heads;       /* as plm_sequence_reader_keep_heads */
  struct plm_sequence_choices choices;
  const char *stop_consequence; /* as plm_stop_check takes it */
  size_t limit_bytes;           /* of the records that wait; 0: plm_sequence_ahead_limit(jobs) */
};

/* The default limit: 8 MiB for the file whose turn it is, and 128 MiB for each further job. The
 * records that a thread is just reading, about 1 MiB, are not counted, and a record beyond the
 * limit is read when its file's turn comes. */
size_t plm_sequence_ahead_limit(unsigned jobs);

plm_status plm_sequence_ahead_open(const struct plm_sequence_ahead_options *options,
                                   struct plm_sequence_ahead **ahead, struct plm_error *error);
void plm_sequence_ahead_close(struct plm_sequence_ahead *ahead); /* NULL is fine */

/* Whether paths[file] is read ahead. Standard input and pipes are not: the caller reads them
 * itself, because a signal ends the wait for bytes only in its thread. */
bool plm_sequence_ahead_reads(const struct plm_sequence_ahead *ahead, size_t file);

/* The next record of paths[file]; as plm_sequence_reader_next_unless_stopped. Files must be taken
 * in ascending order, each up to PLM_SEQUENCE_END. Of the bad records of a file only the first 20
 * have an error that says what is wrong; the others' is empty. error must not be NULL. */
enum plm_sequence_result plm_sequence_ahead_next(struct plm_sequence_ahead *ahead, size_t file,
                                                 struct plm_sequence *sequence,
                                                 struct plm_error *error);

/* How far the file whose turn it is was handed out: bytes on disk, and decompressed bytes. */
struct plm_sequence_position {
  uint64_t consumed, produced;
};
struct plm_sequence_position plm_sequence_ahead_position(const struct plm_sequence_ahead *ahead);

#endif
