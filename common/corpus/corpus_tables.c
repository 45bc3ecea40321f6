/* The tables that are read once when a corpus is opened: checks, clusters and roots. */
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/corpus/corpus_handle.h"

/* Is given the entries of a record, of which the first is number `begin`. */
typedef void take_entries(void *context, uint64_t begin, const void *entries, uint64_t count);

/* Goes through all records of a table of a split, `count` entries. */
static plm_status visit_table(const struct plm_corpus *corpus, enum plm_split split,
                              enum plm_record_kind kind, uint64_t count, take_entries *take,
                              void *context, struct plm_error *error)
{
  const struct plm_corpus_table *table = &plm_corpus_tables[kind];
  plm_status status = PLM_OK;
  const uint64_t block = table->block;
  PLM_ASSERT(block > 0);
  for (uint64_t begin = 0; status == PLM_OK && begin < count; begin += block) {
    const uint64_t entries = count - begin < block ? count - begin : block;
    const uint64_t index = begin / block;
    MDB_val value, next;
    status =
        plm_corpus_record(corpus, corpus->prefetch_transaction, split, kind, index, &value, error);
    if (begin + entries < count && plm_corpus_record(corpus, corpus->prefetch_transaction, split,
                                                     kind, index + 1, &next, NULL) == PLM_OK)
      plm_corpus_will_need(&next);
    if (status == PLM_OK && value.mv_size != entries * table->entry_bytes)
      status = plm_corpus_record_error(corpus, split, kind, index, "has a wrong size", error);
    if (status == PLM_OK) take(context, begin, value.mv_data, entries);
    plm_advance_by(corpus->opening, entries * table->entry_bytes);
  }
  return status;
}

struct copied {
  uint8_t *bytes;
  size_t entry_bytes;
};

static void table_copy(void *context, uint64_t begin, const void *entries, uint64_t count)
{
  const struct copied *copied = context;
  memcpy(copied->bytes + begin * copied->entry_bytes, entries, count * copied->entry_bytes);
}

/* Reads a table into memory that the caller frees. */
static plm_status read_table(const struct plm_corpus *corpus, enum plm_split split,
                             enum plm_record_kind kind, uint64_t count, void **out,
                             struct plm_error *error)
{
  struct copied copied = {.entry_bytes = plm_corpus_tables[kind].entry_bytes};
  *out = copied.bytes = calloc(count + 1, copied.entry_bytes);
  if (copied.bytes == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for the tables of %s",
                         corpus->directory);
  return visit_table(corpus, split, kind, count, table_copy, &copied, error);
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
  PLM_TRY(status);
  if (memcmp(plm_proof_tree_root(*tree)->hash, sums ? of->cluster_root : of->root,
             PLM_PROOF_HASH_BYTES) == 0)
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

/* What is known of the sizes of clusters so far. */
struct clusters {
  uint32_t *sizes;              /* those of a record, aligned */
  struct plm_proof_node *nodes; /* (groups); NULL: they are not proven */
  uint64_t documents;
  bool empty; /* one has no document */
};

static void add_sizes(void *context, uint64_t begin, const void *entries, uint64_t count)
{
  struct clusters *clusters = context;
  PLM_ASSERT(begin % PLM_PROOF_GROUP == 0);
  memcpy(clusters->sizes, entries, count * sizeof *clusters->sizes);
  for (uint64_t c = 0; c < count; c++) {
    clusters->documents += clusters->sizes[c];
    clusters->empty |= clusters->sizes[c] == 0;
  }
  if (clusters->nodes != NULL)
    plm_proof_cluster_nodes(clusters->sizes, count, clusters->nodes + begin / PLM_PROOF_GROUP);
}

/* Looks at the sizes of the clusters of a split, which must add up to its documents, and keeps the
 * tree over them. */
static plm_status check_clusters(struct plm_corpus *corpus, enum plm_split s,
                                 struct plm_error *error)
{
  const struct plm_corpus_split *split = &corpus->description.info.splits[s];
  const bool proven = plm_corpus_has_proof(&corpus->description.info) && split->clusters != 0;
  const uint64_t groups = plm_corpus_group_count(split->clusters);
  struct clusters clusters = {0};
  if (split->clusters > split->documents)
    return not_as_written(corpus, s, "", " has more clusters than documents", error);
  if (proven) PLM_TRY(make_nodes(corpus, groups, &clusters.nodes, error));
  clusters.sizes =
      plm_alloc_zeroed(plm_corpus_tables[PLM_RECORD_CLUSTERS].block, sizeof *clusters.sizes);
  plm_status status =
      visit_table(corpus, s, PLM_RECORD_CLUSTERS, split->clusters, add_sizes, &clusters, error);
  free(clusters.sizes);
  if (status == PLM_OK && (clusters.empty || clusters.documents != split->documents))
    status = not_as_written(corpus, s, "the sizes of the clusters of ",
                            " do not add up to its documents", error);
  if (status == PLM_OK && proven)
    return open_tree(corpus, s, PLM_PROOF_SUMS, clusters.nodes, groups, &corpus->cluster_groups[s],
                     error);
  free(clusters.nodes);
  if (status != PLM_OK || !plm_corpus_has_proof(&corpus->description.info)) return status;
  return check_no_tree(corpus, s, split->cluster_root, "the clusters of ", error);
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
  if (plm_corpus_keeps_clusters(info)) PLM_TRY(check_clusters(corpus, s, error));
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
