/* The tables that are read once when a corpus is opened: checks, clusters and roots. */
#include <stdlib.h>
#include <string.h>

#include "common/corpus/corpus_handle.h"

/* Reads all records of a table of a split, `count` entries, into memory that the caller frees. */
static plm_status read_table(const struct plm_corpus *corpus, enum plm_split split,
                             enum plm_record_kind kind, uint64_t count, void **out,
                             struct plm_error *error)
{
  const struct plm_corpus_table *table = &plm_corpus_tables[kind];
  uint8_t *bytes = calloc(count + 1, table->entry_bytes);
  plm_status status = PLM_OK;
  *out = bytes;
  if (bytes == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for the tables of %s",
                         corpus->directory);
  for (uint64_t begin = 0; status == PLM_OK && begin < count; begin += table->block) {
    const uint64_t entries = count - begin < table->block ? count - begin : table->block;
    const uint64_t index = begin / table->block;
    MDB_val value, next;
    status =
        plm_corpus_record(corpus, corpus->prefetch_transaction, split, kind, index, &value, error);
    if (begin + entries < count && plm_corpus_record(corpus, corpus->prefetch_transaction, split,
                                                     kind, index + 1, &next, NULL) == PLM_OK)
      plm_corpus_will_need(&next);
    if (status == PLM_OK && value.mv_size != entries * table->entry_bytes)
      status = plm_corpus_record_error(corpus, split, kind, index, "has a wrong size", error);
    if (status == PLM_OK) memcpy(bytes + begin * table->entry_bytes, value.mv_data, value.mv_size);
    plm_advance_by(corpus->opening, entries * table->entry_bytes);
  }
  return status;
}

/* A table or a count contradicts corpus.json; the message names the split between two texts. */
static plm_status not_as_written(const struct plm_corpus *corpus, enum plm_split split,
                                 const char *before, const char *after, struct plm_error *error)
{
  plm_error_set(error, PLM_CORRUPT, "%s: %s%s%s", corpus->data_path, before, plm_split_name(split),
                after);
  return plm_error_hint(error, "copy the corpus again or ingest its sources again");
}

/* Makes a tree over `count` nodes, which it frees, and compares its root with corpus.json. what:
 * the table, for the message. */
static plm_status open_tree(const struct plm_corpus *corpus, enum plm_split split,
                            enum plm_proof_kind kind, struct plm_proof_node *nodes, uint64_t count,
                            struct plm_proof_tree **tree, struct plm_error *error)
{
  const struct plm_corpus_split *of = &corpus->description.info.splits[split];
  const bool sums = kind == PLM_PROOF_SUMS;
  plm_status status = plm_proof_tree_open(kind, nodes, count, tree, error);
  free(nodes);
  if (status == PLM_NO_MEMORY) return status;
  if (status == PLM_OK && memcmp(plm_proof_tree_root(*tree)->hash,
                                 sums ? of->cluster_root : of->root, PLM_PROOF_HASH_BYTES) == 0)
    return PLM_OK;
  return not_as_written(corpus, split, sums ? "the clusters of " : "the roots of ",
                        " are not those that ingest wrote", error);
}

/* What corpus.json states of a tree without nodes. */
static plm_status check_no_tree(const struct plm_corpus *corpus, enum plm_split split,
                                const uint8_t root[PLM_PROOF_HASH_BYTES], const char *what,
                                struct plm_error *error)
{
  static const uint8_t zeros[PLM_PROOF_HASH_BYTES];
  if (memcmp(root, zeros, sizeof zeros) == 0) return PLM_OK;
  return not_as_written(corpus, split, what, " are not those that ingest wrote", error);
}

static plm_status make_nodes(const struct plm_corpus *corpus, uint64_t count,
                             struct plm_proof_node **nodes, struct plm_error *error)
{
  *nodes = malloc(count * sizeof **nodes);
  if (*nodes != NULL) return PLM_OK;
  return plm_error_set(error, PLM_NO_MEMORY, "no memory for a tree over %llu groups of %s",
                       (unsigned long long)count, corpus->directory);
}

/* Reads the sizes of the clusters of a split. They must add up to its documents. */
static plm_status read_clusters(struct plm_corpus *corpus, enum plm_split s,
                                struct plm_error *error)
{
  const struct plm_corpus_split *split = &corpus->description.info.splits[s];
  uint64_t total = 0;
  bool empty = false;
  if (split->clusters > split->documents)
    return not_as_written(corpus, s, "", " has more clusters than documents", error);
  PLM_TRY(read_table(corpus, s, PLM_RECORD_CLUSTERS, split->clusters, (void **)&corpus->clusters[s],
                     error));
  for (uint64_t c = 0; c < split->clusters; c++) {
    total += corpus->clusters[s][c];
    empty = empty || corpus->clusters[s][c] == 0;
  }
  if (empty || total != split->documents)
    return not_as_written(corpus, s, "the sizes of the clusters of ",
                          " do not add up to its documents", error);
  if (!plm_corpus_has_proof(&corpus->description.info)) return PLM_OK;
  if (split->clusters == 0)
    return check_no_tree(corpus, s, split->cluster_root, "the clusters of ", error);
  const uint64_t groups = plm_corpus_group_count(split->clusters);
  struct plm_proof_node *nodes;
  PLM_TRY(make_nodes(corpus, groups, &nodes, error));
  for (uint64_t g = 0; g < groups; g++)
    nodes[g] = plm_proof_clusters(corpus->clusters[s] + g * PLM_PROOF_GROUP,
                                  plm_corpus_group_documents(split->clusters, g));
  return open_tree(corpus, s, PLM_PROOF_SUMS, nodes, groups, &corpus->cluster_groups[s], error);
}

/* Reads the roots of the groups of a split, which prove its digests. */
static plm_status read_roots(struct plm_corpus *corpus, enum plm_split s, struct plm_error *error)
{
  const struct plm_corpus_split *split = &corpus->description.info.splits[s];
  const uint64_t groups = plm_corpus_group_count(split->documents);
  uint8_t(*roots)[PLM_PROOF_HASH_BYTES] = NULL;
  struct plm_proof_node *nodes = NULL;
  if (groups == 0) return check_no_tree(corpus, s, split->root, "the roots of ", error);
  plm_status status = read_table(corpus, s, PLM_RECORD_ROOTS, groups, (void **)&roots, error);
  if (status == PLM_OK) status = make_nodes(corpus, groups, &nodes, error);
  for (uint64_t g = 0; g < groups && status == PLM_OK; g++) {
    memcpy(nodes[g].hash, roots[g], sizeof nodes[g].hash);
    nodes[g].sum = 0;
  }
  free(roots);
  if (status != PLM_OK) return status;
  return open_tree(corpus, s, PLM_PROOF_PLAIN, nodes, groups, &corpus->groups[s], error);
}

/* Reads the tables of a split, and adds the checks to their hash in corpus.json. */
static plm_status read_split(struct plm_corpus *corpus, enum plm_split s, struct plm_hasher *checks,
                             struct plm_error *error)
{
  const struct plm_corpus_info *info = &corpus->description.info;
  const uint64_t documents = info->splits[s].documents;
  const uint64_t groups = plm_corpus_group_count(documents);
  /* Each group has a record, so an impossible number of documents is found before memory is
   * allocated for it. */
  if (groups > corpus->description.files.size_bytes)
    return plm_error_set(error, PLM_CORRUPT, "%s is too small for its %llu documents",
                         corpus->data_path, (unsigned long long)documents);
  PLM_TRY(read_table(corpus, s, PLM_RECORD_CHECKS, groups, (void **)&corpus->checks[s], error));
  plm_hasher_update(checks, corpus->checks[s], groups * sizeof(struct plm_group_check));
  if (plm_corpus_keeps_clusters(info)) PLM_TRY(read_clusters(corpus, s, error));
  if (plm_corpus_has_proof(info)) PLM_TRY(read_roots(corpus, s, error));
  return PLM_OK;
}

static plm_status read_splits(struct plm_corpus *corpus, struct plm_hasher *checks,
                              struct plm_error *error)
{
  for (int s = 0; s < PLM_SPLIT_COUNT; s++)
    PLM_TRY(read_split(corpus, (enum plm_split)s, checks, error));
  if (plm_hash_equal(plm_hasher_digest(checks), corpus->description.files.checks)) return PLM_OK;
  return plm_corpus_table_error(corpus, "checks", error);
}

/* What read_splits reads, in bytes. */
static uint64_t bytes_of_tables(const struct plm_corpus *corpus)
{
  const struct plm_corpus_info *info = &corpus->description.info;
  uint64_t bytes = 0;
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    const uint64_t groups = plm_corpus_group_count(info->splits[s].documents);
    bytes += groups * sizeof(struct plm_group_check);
    if (plm_corpus_keeps_clusters(info)) bytes += info->splits[s].clusters * sizeof(uint32_t);
    if (plm_corpus_has_proof(info)) bytes += groups * PLM_PROOF_HASH_BYTES;
  }
  return bytes;
}

/* After this, any other wrong record is found by its check or its root. */
plm_status plm_corpus_load_tables(struct plm_corpus *corpus, struct plm_error *error)
{
  plm_advance_begin(corpus->opening, bytes_of_tables(corpus));
  struct plm_hasher *checks = plm_hasher_open();
  const plm_status status = read_splits(corpus, checks, error);
  plm_hasher_close(checks);
  return status;
}
