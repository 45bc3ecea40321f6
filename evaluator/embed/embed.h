/* `embed`: hidden states, pooled or a token each, or logits of all sequences of a file, in its
 * order.
 *
 * The sequences are read once into a spool; windows of them are sorted by length and packed into
 * batches, whose rows go to their places in the file. Memory does not depend on their number. What
 * is computed in which batch is a function of the sequences, the model and the options, so a run
 * that was killed goes on at a batch and ends with the same bytes. */
#ifndef PLM_EVALUATOR_EMBED_EMBED_H
#define PLM_EVALUATOR_EMBED_EMBED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/ops/ops.h"
#include "evaluator/embed/embed_layout.h"
#include "evaluator/embed/pooling.h"

struct plm_embed_request {
  const char *checkpoint;
  const char *weights;       /* NULL, "model" or "ema" */
  const char *const *inputs; /* "-" is standard input */
  size_t input_count;
  const char *output; /* FILE.safetensors or FILE.npy; one that is there is replaced at the end */
  enum plm_embed_kind kind;
  struct plm_pooling pooling; /* of PLM_EMBED_POOLED */
  uint32_t batch_tokens;      /* of one forward pass, at least one chunk */
  bool strict;                /* bad records are errors */
  bool fresh;                 /* begin anew where a run was stopped */
  bool json;                  /* the summary as an object on one line, else for people */
};

/* Prints a summary to stdout. PLM_INTERRUPTED, PLM_TERMINATED: stopped by a signal, in a state from
 * which the same request goes on. */
plm_status plm_embed(const struct plm_embed_request *request, struct plm_ops *ops,
                     struct plm_error *error);

#endif
