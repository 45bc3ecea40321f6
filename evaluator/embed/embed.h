/* `embed`: computes the hidden states of all sequences of the input, pooled or one for each token,
 * their logits, attention maps or contacts, in the order of the input, as sequence_run.h does it.
 */
#ifndef PLM_EVALUATOR_EMBED_EMBED_H
#define PLM_EVALUATOR_EMBED_EMBED_H

#include <stdbool.h>

#include "common/base/status.h"
#include "common/ops/ops.h"
#include "evaluator/embed/embed_layout.h"
#include "evaluator/embed/pooling.h"
#include "evaluator/embed/sequence_request.h"

struct plm_embed_request {
  struct plm_sequence_request of; /* its output: FILE.safetensors or FILE.npy, or a stream */
  enum plm_embed_kind kind;
  struct plm_pooling pooling; /* for PLM_EMBED_POOLED */
  const char *attention;      /* "3:5,4" (map_choice.h), for PLM_EMBED_ATTENTION */
  const char *layers;         /* "4,8,last" (layer_choice.h); NULL: the last hidden state */
  bool separate_chains;       /* chains of a sequence do not see each other */
};

/* Writes the file and prints a summary to stdout. PLM_INTERRUPTED, PLM_TERMINATED: a signal stopped
 * it, and the same request continues from there. */
plm_status plm_embed(const struct plm_embed_request *request, struct plm_ops *ops,
                     struct plm_error *error);

#endif
