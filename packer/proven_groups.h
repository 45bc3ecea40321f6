/* Groups whose leaves were compared with their roots before. A packer tells the tables of a group
 * once in an epoch, and an evaluator asks for the same ones again and again. Then it is enough that
 * the leaves are those of the first time, by a fast hash (XXH3): a packer looks for damage here,
 * and a consumer proves what it is told anyway. */
#ifndef PLM_PACKER_PROVEN_GROUPS_H
#define PLM_PACKER_PROVEN_GROUPS_H

#include "common/corpus/corpus.h"

struct proven_groups;
/* 8 bytes for each group of the corpus, which it borrows. PLM_NO_MEMORY. */
plm_status proven_groups_open(const struct plm_corpus *corpus, struct proven_groups **proven,
                              struct plm_error *error);
void proven_groups_close(struct proven_groups *proven); /* NULL is fine */

/* The same as plm_corpus_check_leaves. Any thread. */
plm_status proven_groups_check(struct proven_groups *proven, enum plm_split split, uint64_t group,
                               const uint32_t *lengths, const struct plm_proof_digest *digests,
                               const struct plm_proof_digest *labels, struct plm_error *error);

#endif
