/* A hash of each group's leaves; see proven_groups.h. */
#include "packer/proven_groups.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "common/base/alloc.h"

struct proven_groups {
  const struct plm_corpus *corpus;
  atomic_uint_fast64_t *hashes[PLM_SPLIT_COUNT]; /* (groups) 0: not compared yet */
};

plm_status proven_groups_open(const struct plm_corpus *corpus, struct proven_groups **proven,
                              struct plm_error *error)
{
  struct proven_groups *made = plm_alloc_zeroed(1, sizeof *made);
  made->corpus = corpus;
  for (int split = 0; split < PLM_SPLIT_COUNT; split++) {
    const uint64_t groups =
        plm_corpus_group_count(plm_corpus_info(corpus)->splits[split].documents);
    made->hashes[split] = calloc(groups + 1, sizeof *made->hashes[split]);
    if (made->hashes[split] != NULL) continue;
    proven_groups_close(made);
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the hashes of %llu groups",
                         (unsigned long long)groups);
  }
  *proven = made;
  return PLM_OK;
}

void proven_groups_close(struct proven_groups *proven)
{
  if (proven == NULL) return;
  for (int split = 0; split < PLM_SPLIT_COUNT; split++) free(proven->hashes[split]);
  free(proven);
}

/* Never 0. */
static uint64_t hash_leaves(const uint32_t *lengths, const struct plm_proof_digest *digests,
                            const struct plm_proof_digest *labels, uint32_t count)
{
  const uint64_t parts[] = {
      plm_hash64_bytes(lengths, count * sizeof *lengths),
      plm_hash64_bytes(digests, count * sizeof *digests),
      labels == NULL ? 0 : plm_hash64_bytes(labels, count * sizeof *labels),
  };
  const uint64_t hash = plm_hash64_bytes(parts, sizeof parts);
  return hash == 0 ? 1 : hash;
}

plm_status proven_groups_check(struct proven_groups *proven, enum plm_split split, uint64_t group,
                               const uint32_t *lengths, const struct plm_proof_digest *digests,
                               const struct plm_proof_digest *labels, struct plm_error *error)
{
  const uint64_t documents = plm_corpus_info(proven->corpus)->splits[split].documents;
  PLM_ASSERT(group < plm_corpus_group_count(documents));
  const uint64_t hash =
      hash_leaves(lengths, digests, labels, plm_corpus_group_documents(documents, group));
  atomic_uint_fast64_t *known = &proven->hashes[split][group];
  if (atomic_load_explicit(known, memory_order_relaxed) == hash) return PLM_OK;
  PLM_TRY(plm_corpus_check_leaves(proven->corpus, split, group, lengths, digests, labels, error));
  atomic_store_explicit(known, hash, memory_order_relaxed);
  return PLM_OK;
}
