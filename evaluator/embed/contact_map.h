/* Contacts of residues from the attention maps of all heads (Rao et al., "Transformer protein
 * language models are unsupervised structure learners", ICLR 2021). With A_h the map of head h over
 * the n residues, without <cls> and <eos>,
 *
 *   S_h  = A_h + transpose of A_h
 *   F_h  = S_h - r r^T / t         average product correction; r: sums of the rows of S_h, t: of
 * all contact_ij = sigmoid(bias + sum over h of w_h F_h,ij)
 *
 * F_h is linear in A_h except for r and t, so only sum over h of w_h F_h is kept, as an (n, n)
 * matrix C whose sum with its transpose is that: C += w_h A_h - w_h / (2 t) r r^T. */
#ifndef PLM_EVALUATOR_EMBED_CONTACT_MAP_H
#define PLM_EVALUATOR_EMBED_CONTACT_MAP_H

#include "evaluator/embed/attention_map.h"

/* The sum of one sequence so far. */
struct plm_contact_sum {
  float *values; /* (residues, residues) C */
  int32_t residues;
};
plm_status plm_contact_sum_init(struct plm_contact_sum *sum, int32_t residues,
                                struct plm_error *error);
void plm_contact_sum_deinit(struct plm_contact_sum *sum);

/* Adds all heads of one block. source is that of the whole sequence, <cls> residues <eos>; weights
 * (H). PLM_NO_MEMORY. */
plm_status plm_contact_sum_add(struct plm_contact_sum *sum, struct plm_attention_map *map,
                               const struct plm_map_source *source, const float *weights,
                               struct plm_error *error);
/* Replaces C by the probabilities. */
void plm_contact_sum_finish(struct plm_contact_sum *sum, float bias);

#endif
