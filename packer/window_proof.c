/* Writes the tables of a window's groups. */
#include "packer/window_proof.h"

#include <stdlib.h>

#include "common/wire/message.h"
#include "common/wire/tables.h"

void window_trees_init(struct window_trees *trees, struct plm_corpus *corpus)
{
  *trees = (struct window_trees){.corpus = corpus};
  for (int split = 0; split < PLM_SPLIT_COUNT; split++)
    pthread_mutex_init(&trees->splits[split].lock, NULL);
}

void window_trees_deinit(struct window_trees *trees)
{
  for (int split = 0; split < PLM_SPLIT_COUNT; split++) {
    plm_proof_tree_close(trees->splits[split].groups);
    plm_proof_tree_close(trees->splits[split].clusters);
    pthread_mutex_destroy(&trees->splits[split].lock);
  }
}

static plm_status open_trees(struct window_trees *all, enum plm_split split, bool clusters,
                             struct plm_tables_input *source, struct plm_error *error)
{
  struct split_trees *trees = &all->splits[split];
  plm_status status = PLM_OK;
  pthread_mutex_lock(&trees->lock);
  if (trees->groups == NULL)
    status = plm_corpus_group_tree(all->corpus, split, &trees->groups, error);
  if (status == PLM_OK && clusters && trees->clusters == NULL)
    status = plm_corpus_cluster_tree(all->corpus, split, &trees->clusters, error);
  source->groups = trees->groups;
  source->clusters_tree = trees->clusters;
  pthread_mutex_unlock(&trees->lock);
  return status;
}

struct digests_of {
  struct plm_corpus_cursor *cursor;
  enum plm_split split;
};

static plm_status read_digests(void *context, uint64_t group,
                               struct plm_proof_digest digests[PLM_PROOF_GROUP],
                               struct plm_error *error)
{
  const struct digests_of *of = context;
  return plm_corpus_digests(of->cursor, of->split, group, digests, error);
}

static plm_status read_label_digests(void *context, uint64_t group,
                                     struct plm_proof_digest digests[PLM_PROOF_GROUP],
                                     struct plm_error *error)
{
  const struct digests_of *of = context;
  return plm_corpus_label_digests(of->cursor, of->split, group, digests, error);
}

/* Whether the window exists, and has the groups. */
static plm_status check_groups(const struct plm_plan *plan, const struct store_proof *proof,
                               struct plm_error *error)
{
  const uint32_t groups = plm_plan_group_count(plan, proof->window);
  if (proof->count > 0 && proof->first < groups && proof->count <= groups - proof->first)
    return PLM_OK;
  return plm_error_set(error, PLM_NOT_FOUND, "an epoch has no window %llu with %u groups from %u",
                       (unsigned long long)proof->window, proof->count, proof->first);
}

plm_status window_proof_write(struct window_trees *trees, struct plm_corpus_cursor *cursor,
                              const struct plm_plan *plan, struct store_proof *proof,
                              struct plm_error *error)
{
  struct plm_corpus *corpus = trees->corpus;
  const bool clusters = plm_plan_parameters(plan)->sampling == PLM_SAMPLING_CLUSTERS;
  const struct plm_corpus_split *info = &plm_corpus_info(corpus)->splits[proof->split];
  const bool labelled = plm_corpus_has_labels(plm_corpus_info(corpus));
  struct digests_of digests = {cursor, proof->split};
  struct plm_tables_input source = {.documents = info->documents,
                                    .lengths = plm_corpus_lengths(corpus, proof->split),
                                    .cluster_count = info->clusters,
                                    .clusters = plm_corpus_clusters(corpus, proof->split),
                                    .digests = read_digests,
                                    .labels = labelled ? read_label_digests : NULL,
                                    .context = &digests};
  PLM_TRY(check_groups(plan, proof, error));
  PLM_TRY(open_trees(trees, proof->split, clusters, &source, error));
  proof->bytes = malloc(PLM_WIRE_PROOF_LIMIT);
  if (proof->bytes == NULL) return plm_error_set(error, PLM_NO_MEMORY, "no memory for a proof");
  const struct plm_tables_window of = {plan, proof->epoch, proof->window, labelled};
  return plm_tables_write(&source, &of, proof->first, &proof->count, proof->bytes,
                          PLM_WIRE_PROOF_LIMIT, &proof->size, error);
}
