/* Ingest: turns the sequences of any number of files into one new corpus. */
#ifndef PLM_STAGES_INGEST_INGEST_H
#define PLM_STAGES_INGEST_INGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/sequences/sequence_reader.h"
#include "stages/ingest/corpus_writer.h"
#include "stages/ingest/label_table.h"
#include "stages/ingest/split_rule.h"

struct plm_ingest_options {
  struct plm_corpus_writer_options writer;
  const char *const *inputs; /* paths; "-" is standard input */
  size_t input_count;
  struct plm_split_rule splits;
  const char *clusters;            /* path or NULL */
  struct plm_label_options labels; /* clusters exclude a column of splits */
  double unclustered; /* with clusters: the largest share of sequences that it may lack */
  bool deduplicate, strict;
  struct plm_sequence_choices choices;
  uint64_t min_length, max_residues;
  unsigned jobs; /* files that are read side by side, at least 1 */
};

struct plm_ingest_result {
  struct plm_corpus_info info;
  uint64_t bytes;   /* of input, uncompressed */
  uint64_t records; /* that were read, good or bad */
  uint64_t bad, too_short, too_long, duplicates;
  double seconds, cpu_seconds; /* in total; of all threads */
};

/* Reports on stderr. On an error no new corpus is left, and an existing one stays as it was.
 * PLM_USAGE, PLM_EXISTS, PLM_FORMAT, PLM_LIMIT, or the status of plm_stop_check after a signal. */
plm_status plm_ingest(const struct plm_ingest_options *options, struct plm_ingest_result *result,
                      struct plm_error *error);

#endif
