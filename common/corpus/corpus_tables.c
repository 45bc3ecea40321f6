/* The tables that are read once when a corpus is opened: lengths, checks, clusters and roots. */
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
    MDB_val value;
    status =
        plm_corpus_record(corpus, corpus->prefetch_transaction, split, kind, index, &value, error);
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
  uint8_t root[PLM_PROOF_HASH_BYTES];
  struct plm_proof_builder builder;
  plm_proof_begin(&builder, PLM_PROOF_SUMS);
  plm_corpus_add_clusters(&builder, corpus->clusters[s], split->clusters);
  if (!plm_corpus_root(&builder, root) || memcmp(root, split->cluster_root, sizeof root) != 0)
    return not_as_written(corpus, s, "the clusters of ", " are not those that ingest wrote", error);
  return PLM_OK;
}

/* Reads the roots of the groups of a split, which prove its digests. */
static plm_status read_roots(struct plm_corpus *corpus, enum plm_split s, struct plm_error *error)
{
  const struct plm_corpus_split *split = &corpus->description.info.splits[s];
  const uint64_t groups = plm_corpus_group_count(split->documents);
  uint8_t root[PLM_PROOF_HASH_BYTES];
  struct plm_proof_builder builder;
  PLM_TRY(read_table(corpus, s, PLM_RECORD_ROOTS, groups, (void **)&corpus->roots[s], error));
  plm_proof_begin(&builder, PLM_PROOF_PLAIN);
  for (uint64_t g = 0; g < groups; g++) {
    struct plm_proof_node node = {.sum = 0};
    memcpy(node.hash, corpus->roots[s][g], sizeof node.hash);
    plm_proof_add(&builder, &node);
  }
  if (!plm_corpus_root(&builder, root) || memcmp(root, split->root, sizeof root) != 0)
    return not_as_written(corpus, s, "the roots of ", " are not those that ingest wrote", error);
  return PLM_OK;
}

/* Compares the sum of the lengths with the description, and finds the largest group, for which
 * cursors allocate memory. */
static plm_status check_lengths(struct plm_corpus *corpus, enum plm_split s,
                                struct plm_error *error)
{
  const struct plm_corpus_split *split = &corpus->description.info.splits[s];
  uint64_t total = 0, group = 0;
  for (uint64_t d = 0; d < split->documents; d++) {
    if (d % PLM_GROUP_DOCUMENTS == 0) group = 0;
    const uint32_t length = corpus->lengths[s][d];
    if (length == 0 || length > PLM_DOCUMENT_LIMIT)
      return plm_error_set(error, PLM_CORRUPT, "%s: document %llu of %s has length %u",
                           corpus->data_path, (unsigned long long)d, plm_split_name(s), length);
    total += length;
    group += length;
    if (group > corpus->largest_group_bytes) corpus->largest_group_bytes = group;
  }
  if (total != split->residues)
    return not_as_written(corpus, s, "the lengths of ", " do not add up to its residues", error);
  return PLM_OK;
}

/* Reads the tables of a split, and adds those without a root to the hashes in corpus.json. */
static plm_status read_split(struct plm_corpus *corpus, enum plm_split s,
                             struct plm_hasher *lengths, struct plm_hasher *checks,
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
  PLM_TRY(
      read_table(corpus, s, PLM_RECORD_LENGTHS, documents, (void **)&corpus->lengths[s], error));
  PLM_TRY(read_table(corpus, s, PLM_RECORD_CHECKS, groups, (void **)&corpus->checks[s], error));
  plm_hasher_update(lengths, corpus->lengths[s], documents * sizeof(uint32_t));
  plm_hasher_update(checks, corpus->checks[s], groups * sizeof(struct plm_group_check));
  if (plm_corpus_keeps_clusters(info)) PLM_TRY(read_clusters(corpus, s, error));
  if (plm_corpus_has_proof(info)) PLM_TRY(read_roots(corpus, s, error));
  return PLM_OK;
}

static plm_status read_splits(struct plm_corpus *corpus, struct plm_hasher *lengths,
                              struct plm_hasher *checks, struct plm_error *error)
{
  const struct plm_corpus_files *files = &corpus->description.files;
  for (int s = 0; s < PLM_SPLIT_COUNT; s++)
    PLM_TRY(read_split(corpus, (enum plm_split)s, lengths, checks, error));
  const bool same = plm_hash_equal(plm_hasher_digest(lengths), files->lengths);
  if (!same || !plm_hash_equal(plm_hasher_digest(checks), files->checks)) {
    plm_error_set(error, PLM_CORRUPT, "%s: `%s` is not what ingest wrote", corpus->data_path,
                  same ? "checks" : "lengths");
    return plm_error_hint(error, "copy the corpus again or ingest its sources again");
  }
  for (int s = 0; s < PLM_SPLIT_COUNT; s++)
    PLM_TRY(check_lengths(corpus, (enum plm_split)s, error));
  return PLM_OK;
}

/* What read_splits reads, in bytes. */
static uint64_t bytes_of_tables(const struct plm_corpus_info *info)
{
  uint64_t bytes = 0;
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    const uint64_t groups = plm_corpus_group_count(info->splits[s].documents);
    bytes += info->splits[s].documents * sizeof(uint32_t) + groups * sizeof(struct plm_group_check);
    if (plm_corpus_keeps_clusters(info)) bytes += info->splits[s].clusters * sizeof(uint32_t);
    if (plm_corpus_has_proof(info)) bytes += groups * PLM_PROOF_HASH_BYTES;
  }
  return bytes;
}

/* After this, any other wrong record is found by its check or its root. */
plm_status plm_corpus_load_tables(struct plm_corpus *corpus, struct plm_error *error)
{
  plm_advance_begin(corpus->opening, bytes_of_tables(&corpus->description.info));
  struct plm_hasher *lengths = plm_hasher_open(), *checks = plm_hasher_open();
  const plm_status status = lengths == NULL || checks == NULL
                                ? plm_error_set(error, PLM_NO_MEMORY, "out of memory")
                                : read_splits(corpus, lengths, checks, error);
  plm_hasher_close(lengths);
  plm_hasher_close(checks);
  return status;
}
