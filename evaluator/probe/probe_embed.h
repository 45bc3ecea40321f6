/* Features of items from a model: the pooled hidden states of each sequence or, for labels of
 * residues, the hidden state of each labelled residue, with the values that `embed` writes. And the
 * features of a model that knows nothing but composition. */
#ifndef PLM_EVALUATOR_PROBE_PROBE_EMBED_H
#define PLM_EVALUATOR_PROBE_PROBE_EMBED_H

#include "common/inference/inference.h"
#include "evaluator/embed/layer_choice.h"
#include "evaluator/embed/pooling.h"
#include "evaluator/probe/probe_items.h"

struct plm_probe_embedding {
  const struct plm_probe_items *items;
  const struct plm_pooling *pooling;     /* for items that are rows */
  const struct plm_layer_choice *layers; /* NULL: the last hidden state */
  bool joined;                           /* the layers side by side make one matrix */
  /* Called before each batch (may be NULL); anything but PLM_OK ends the work with it. */
  plm_status (*check)(void *context, struct plm_error *error);
  void *context;
};

/* Floats of each item from a state of `width` floats. */
uint32_t plm_probe_width(const struct plm_probe_embedding *embedding, uint32_t width);

/* out: a matrix (items, plm_probe_width of its state) for each layer of the choice, in its order,
 * or one for all layers that are joined, or for the last hidden state. Shows progress.
 * PLM_NOT_FINITE: the model computes NaN or infinity, with the line of the table. PLM_NO_MEMORY.
 * PLM_INTERRUPTED, PLM_TERMINATED: a stop signal. */
plm_status plm_probe_embed(const struct plm_probe_embedding *embedding,
                           struct plm_inference *inference, float *const *out,
                           struct plm_error *error);

/* Features of an item that know nothing but composition and length. */
uint32_t plm_probe_composition_width(const struct plm_probe_items *items,
                                     const struct plm_tokenizer *tokenizer);
/* out (items, that width): the shares of the tokens of the vocabulary among the residues of each
 * sequence that the model sees, and the natural logarithm of the number of all its residues; for
 * labels of residues, 1 for the token of the residue. */
void plm_probe_composition(const struct plm_probe_items *items,
                           const struct plm_tokenizer *tokenizer, float *out);

#endif
