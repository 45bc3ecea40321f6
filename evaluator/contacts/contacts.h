/* How well the attention maps of a model know which residues are in contact (Rao et al.,
 * "Transformer protein language models are unsupervised structure learners", ICLR 2021): a logistic
 * regression on the symmetric, average-product-corrected maps of all heads (contact_map.h) is
 * fitted to few proteins, and its predictions for the others are ranked.
 *
 * The rows of the regression are the pairs of residues of the training proteins that are at least 6
 * apart; it has an L1 penalty and C = 0.15 (sparse_logistic.h). In each other protein of L
 * residues, the L, L/2 and L/5 most probable of the pairs that are at least 24 apart are predicted,
 * and the precision is the share of these that are contacts. L/2 and L/5 are rounded down, and are
 * at least
 * 1. As in Rao et al., the divisor stays L, L/2 or L/5 if there are fewer such pairs. */
#ifndef PLM_EVALUATOR_CONTACTS_CONTACTS_H
#define PLM_EVALUATOR_CONTACTS_CONTACTS_H

#include "common/inference/inference.h"
#include "evaluator/contacts/protein_folder.h"

enum { PLM_CONTACT_TRAINING = 20, PLM_CONTACT_BATCH_TOKENS = 2048 };
enum plm_contact_measure { PLM_CONTACTS_L, PLM_CONTACTS_L2, PLM_CONTACTS_L5, PLM_CONTACT_MEASURES };
extern const char *const plm_contact_measure_names[]; /* "precision_l", …, NULL */

struct plm_contacts_request {
  uint32_t training;   /* proteins that the regression is fitted to: the first ones */
  uint32_t max_length; /* as plm_inference_limit takes it; 0: the model's */
  /* Called before each protein and each step of the fit; NULL: looks for a stop signal. */
  plm_status (*check)(void *context, struct plm_error *error);
  void *context;
};

struct plm_contacts_results {
  uint32_t trained, tested;               /* proteins; those without pairs 24 apart are left out */
  uint32_t heads, used;                   /* used: those whose weight is not 0 */
  double precision[PLM_CONTACT_MEASURES]; /* mean over the tested proteins */
  double chance;                          /* the share of contacts among the pairs, mean */
  uint64_t cut;                           /* proteins of which the model sees only the beginning */
};

/* Warns of proteins of the test that have no contacts at least 24 apart. PLM_FORMAT: a folder has
 * too few proteins to learn from `training` and to test one. option: added to this number in the
 * error, " (--train)". */
plm_status plm_contacts_check(const struct plm_protein_folder *folder, uint32_t training,
                              const char *option, struct plm_error *error);

/* The folder has passed plm_contacts_check. PLM_FORMAT: no protein to test, or no contacts to learn
 * from. PLM_UNSUPPORTED: no
 * block of the model has attention between single residues. PLM_NOT_FINITE, PLM_NO_MEMORY, and the
 * errors of the parts. */
plm_status plm_contacts_run(const struct plm_contacts_request *request,
                            const struct plm_protein_folder *folder,
                            struct plm_inference *inference, struct plm_contacts_results *results,
                            struct plm_error *error);

#endif
