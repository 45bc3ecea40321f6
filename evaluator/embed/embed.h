/* `embed`: computes the hidden states of all sequences of the input, pooled or one for each token,
 * their logits, attention maps or contacts, in the order of the input.
 *
 * The sequences are read once into a spool. Windows of them are sorted by length and packed into
 * batches, and the rows of a batch go to their places in the file. Memory does not depend on the
 * number of sequences. Which batch computes what depends only on the sequences, the model and the
 * options, so a run that was killed continues with the next batch and ends with the same bytes. */
#ifndef PLM_EVALUATOR_EMBED_EMBED_H
#define PLM_EVALUATOR_EMBED_EMBED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/ops/ops.h"
#include "common/sequences/sequence_reader.h"
#include "evaluator/embed/embed_layout.h"
#include "evaluator/embed/pooling.h"

struct plm_embed_request {
  const char *checkpoint;
  const char *weights;       /* NULL, "model" or "ema" */
  const char *const *inputs; /* "-" is standard input */
  size_t input_count;
  const char *output; /* FILE.safetensors or FILE.npy, or a stream (common/cli/output_file.h) */
  enum plm_embed_kind kind;
  struct plm_pooling pooling; /* for PLM_EMBED_POOLED */
  const char *attention;      /* "3:5,4" (map_choice.h), for PLM_EMBED_ATTENTION */
  const char *layers;         /* "4,8,last" (layer_choice.h); NULL: the last hidden state */
  uint32_t max_length;        /* sequences are cut to so many tokens; 0: the model's max_length */
  uint32_t batch_tokens;      /* in one forward pass, which has at least one chunk */
  struct plm_sequence_choices choices;
  bool separate_chains; /* chains of a sequence do not see each other */
  bool strict;          /* a bad record is an error */
  bool fresh;           /* discard what an earlier run has done */
  bool json;            /* print the summary as one JSON object on one line */
};

/* Writes the file and prints a summary to stdout. PLM_INTERRUPTED, PLM_TERMINATED: a signal stopped
 * it, and the same request continues from there. */
plm_status plm_embed(const struct plm_embed_request *request, struct plm_ops *ops,
                     struct plm_error *error);

#endif
