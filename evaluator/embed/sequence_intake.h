/* Sequences of FASTA, JSONL or text files, as the model takes them, into a spool: `<cls> residues
 * <eos>`, a longer one cut as `head` (its first max_length tokens, no <eos>). Records are judged as
 * ingest judges them: bad ones are reported and skipped, a letter outside the alphabet is <unk>,
 * repeated names are kept. */
#ifndef PLM_EVALUATOR_EMBED_SEQUENCE_INTAKE_H
#define PLM_EVALUATOR_EMBED_SEQUENCE_INTAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/tokenizer.h"
#include "evaluator/embed/sequence_spool.h"

struct plm_intake_options {
  const char *const *inputs; /* paths, "-" is standard input */
  size_t input_count;
  const struct plm_tokenizer *tokenizer;
  uint32_t max_length; /* tokens, of the model */
  bool strict;         /* a bad record is an error */
};

struct plm_intake_counts {
  uint64_t bad;               /* records that were skipped */
  uint64_t cut;               /* sequences of more than max_length tokens */
  uint64_t unknown_residues;  /* that became <unk> */
  uint64_t unknown_sequences; /* that have such */
};

/* Reads all files; says on stderr what was skipped, cut or unknown. PLM_FORMAT: a file without a
 * good record, or a bad one with `strict`. PLM_INTERRUPTED, PLM_TERMINATED: a stop signal. */
plm_status plm_sequence_intake(const struct plm_intake_options *options,
                               struct plm_sequence_spool *spool, struct plm_intake_counts *counts,
                               struct plm_error *error);

#endif
