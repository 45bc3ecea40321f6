/* The corrected attention maps of proteins: as columns of features, or summed with weights. */
#ifndef PLM_EVALUATOR_CONTACTS_CONTACT_FEATURES_H
#define PLM_EVALUATOR_CONTACTS_CONTACT_FEATURES_H

#include "common/inference/inference.h"
#include "evaluator/contacts/protein_folder.h"
#include "evaluator/embed/contact_map.h"

enum { PLM_CONTACT_SEPARATION = 6 }; /* of the pairs that are rows */

struct plm_contact_features;
/* Uses inference, which is borrowed, for proteins of at most `residues` residues. PLM_UNSUPPORTED:
 * no block has attention at full length. PLM_NO_MEMORY. */
plm_status plm_contact_features_open(struct plm_inference *inference, uint32_t residues,
                                     struct plm_contact_features **features,
                                     struct plm_error *error);
void plm_contact_features_close(struct plm_contact_features *features); /* NULL is fine */

/* The heads of all blocks with attention at full length, in the order of the blocks. */
uint32_t plm_contact_features_heads(const struct plm_contact_features *features);
/* The number of pairs of n residues that are at least `separation` apart. */
size_t plm_contact_pairs(uint32_t n, uint32_t separation);

/* Writes the corrected maps of the first n residues of a protein: the value of a pair and a head
 * goes to columns[head * rows + first + the number of the pair]. Pairs (i, j) with
 * j - i >= PLM_CONTACT_SEPARATION are numbered by i, then by j. PLM_NOT_FINITE. */
plm_status plm_contact_features_write(struct plm_contact_features *features,
                                      const struct plm_contact_protein *protein, uint32_t n,
                                      float *columns, size_t rows, size_t first,
                                      struct plm_error *error);
/* Adds up weights (heads) times the maps; sum was made for n residues. */
plm_status plm_contact_features_sum(struct plm_contact_features *features,
                                    const struct plm_contact_protein *protein, uint32_t n,
                                    const float *weights, struct plm_contact_sum *sum,
                                    struct plm_error *error);

#endif
