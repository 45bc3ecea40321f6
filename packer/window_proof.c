/* Writes the tables of a window's groups. */
#include "packer/window_proof.h"

#include <stdlib.h>
#include <string.h>

#include "common/wire/message.h"
#include "common/wire/tables.h"

struct leaves_of {
  struct proven_groups *proven;
  struct plm_corpus_cursor *cursor;
  enum plm_split split;
  uint64_t documents;
};

/* What is told is compared with the group's root, so that a damaged corpus is an error here and not
 * a lie for the consumer. */
static plm_status read_leaves(void *context, uint64_t group, uint32_t lengths[PLM_PROOF_GROUP],
                              struct plm_proof_digest digests[PLM_PROOF_GROUP],
                              struct plm_proof_digest *labels, struct plm_error *error)
{
  const struct leaves_of *of = context;
  const uint32_t count = plm_corpus_group_documents(of->documents, group);
  const uint32_t *read;
  PLM_TRY(plm_corpus_group_lengths(of->cursor, of->split, group, &read, error));
  memcpy(lengths, read, count * sizeof *lengths);
  PLM_TRY(plm_corpus_digests(of->cursor, of->split, group, digests, error));
  if (labels != NULL)
    PLM_TRY(plm_corpus_label_digests(of->cursor, of->split, group, labels, error));
  return proven_groups_check(of->proven, of->split, group, lengths, digests, labels, error);
}

static plm_status read_sizes(void *context, uint64_t group, const uint32_t **sizes,
                             struct plm_error *error)
{
  const struct leaves_of *of = context;
  return plm_corpus_cluster_sizes(of->cursor, of->split, group, sizes, NULL, error);
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

plm_status window_proof_write(const struct plm_corpus *corpus, struct proven_groups *proven,
                              struct plm_corpus_cursor *cursor, const struct plm_plan *plan,
                              struct store_proof *proof, struct plm_error *error)
{
  const struct plm_corpus_split *info = &plm_corpus_info(corpus)->splits[proof->split];
  const bool labelled = plm_corpus_has_labels(plm_corpus_info(corpus));
  struct leaves_of leaves = {proven, cursor, proof->split, info->documents};
  const struct plm_tables_input source = {.documents = info->documents,
                                          .groups = plm_corpus_group_tree(corpus, proof->split),
                                          .cluster_count = info->clusters,
                                          .clusters_tree =
                                              plm_corpus_cluster_tree(corpus, proof->split),
                                          .labelled = labelled,
                                          .read = read_leaves,
                                          .sizes = read_sizes,
                                          .context = &leaves};
  PLM_TRY(check_groups(plan, proof, error));
  proof->bytes = malloc(PLM_WIRE_PROOF_LIMIT);
  if (proof->bytes == NULL) return plm_error_set(error, PLM_NO_MEMORY, "no memory for a proof");
  const struct plm_tables_window of = {plan, proof->epoch, proof->window, labelled};
  return plm_tables_write(&source, &of, proof->first, &proof->count, proof->bytes,
                          PLM_WIRE_PROOF_LIMIT, &proof->size, error);
}
