/* Reads sequences of FASTA, JSONL, tables or text into a spool, encoded as the model takes them:
 * `<cls> residues <eos>`. A longer sequence is cut to its first max_length tokens, without <eos>,
 * as `truncate: head` does in training, or with <eos>, as tokenizers of transformers do. Records
 * are judged as ingest judges them: bad ones are reported and skipped, and a letter outside the
 * alphabet becomes <unk>. Repeated names are kept.
 */
#ifndef PLM_EVALUATOR_EMBED_SEQUENCE_INTAKE_H
#define PLM_EVALUATOR_EMBED_SEQUENCE_INTAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/tokenizer.h"
#include "common/sequences/sequence_reader.h"
#include "evaluator/embed/sequence_spool.h"

struct plm_intake_options {
  const char *const *inputs; /* paths, "-" is standard input */
  size_t input_count;
  const struct plm_tokenizer *tokenizer;
  uint32_t max_length;  /* of a sequence, in tokens */
  uint32_t trained;     /* tokens of the longest sequence in training; 0: unknown */
  bool keep_eos;        /* a longer sequence is cut to max_length - 1 tokens and <eos> */
  uint16_t chain_break; /* the token of PLM_SEQUENCE_CHAIN, if choices.chains */
  bool strict;          /* a bad record is an error */
  struct plm_sequence_choices choices;
};

struct plm_intake_counts {
  uint64_t bad;               /* records that were skipped */
  uint64_t cut;               /* sequences of more than max_length tokens */
  uint64_t longer;            /* sequences that are whole, but longer than in training */
  uint32_t longest;           /* tokens of the longest sequence, after cutting */
  uint64_t unknown_residues;  /* residues that became <unk> */
  uint64_t unknown_sequences; /* sequences with such residues */
  char *columns; /* with choices.columns: those of plm_sequence, the same in all files; NULL: no
                    table. Owned; the names in the spool have the fields behind a tab. */
};

/* Reads all files, and warns on stderr about what was skipped, cut or unknown. PLM_FORMAT: a file
 * has no good record, or with `strict` a bad one, or with choices.columns the files have
 * different columns. PLM_INTERRUPTED, PLM_TERMINATED: a stop signal. */
plm_status plm_sequence_intake(const struct plm_intake_options *options,
                               struct plm_sequence_spool *spool, struct plm_intake_counts *counts,
                               struct plm_error *error);

#endif
