/* Reads groups and names. A record that LMDB finds is trusted only if its hash matches its check.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define ZSTD_STATIC_LINKING_ONLY /* for ZSTD_d_forceIgnoreChecksum */
#include <zstd.h>

#include "common/corpus/corpus_cursor_state.h"
#include "common/corpus/corpus_guard.h"

plm_status plm_corpus_cursor_open(struct plm_corpus *corpus, struct plm_corpus_cursor **cursor,
                                  struct plm_error *error)
{
  *cursor = NULL;
  struct plm_corpus_cursor *opened = calloc(1, sizeof *opened);
  if (opened == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  opened->corpus = corpus;
  opened->context = ZSTD_createDCtx();
  plm_status status = PLM_OK;
  if (opened->context == NULL) {
    status = plm_error_set(error, PLM_NO_MEMORY, "out of memory to decompress");
  } else {
    plm_corpus_guard_enter(corpus->data_path);
    const int code = mdb_txn_begin(corpus->environment, NULL, MDB_RDONLY, &opened->transaction);
    plm_corpus_guard_leave();
    if (code != 0) status = plm_corpus_lmdb_error(code, corpus->data_path, "cannot read", error);
  }
  if (status != PLM_OK)
    plm_corpus_cursor_close(opened);
  else
    *cursor = opened;
  return status;
}

void plm_corpus_cursor_close(struct plm_corpus_cursor *cursor)
{
  if (cursor == NULL) return;
  if (cursor->transaction != NULL) mdb_txn_abort(cursor->transaction);
  ZSTD_freeDCtx(cursor->context);
  free(cursor->residues.bytes);
  free(cursor->names.bytes);
  plm_corpus_labels_deinit(cursor);
  free(cursor);
}

static plm_status corpus_cursor_make_room(struct held_group *held, size_t size,
                                          struct plm_error *error)
{
  if (size <= held->capacity) return PLM_OK;
  const size_t capacity = size + size / 8; /* the next group may be a little larger */
  free(held->bytes);
  held->bytes = malloc(capacity);
  held->capacity = held->bytes == NULL ? 0 : capacity;
  if (held->bytes == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for a group of %zu bytes", capacity);
  return PLM_OK;
}

/* Releases the pages of records that were read, all at once when they have become many, since each
 * release interrupts the other threads. They stay in the page cache, but a process that reads a
 * whole corpus does not keep all of it resident. */
static void let_go(struct read_records *read, const MDB_val *value)
{
  enum { MOST = 16 << 20 };
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)value->mv_data;
  const uintptr_t end = begin + value->mv_size;
  if (read->bytes == 0 || begin < read->begin) read->begin = begin;
  if (read->bytes == 0 || end > read->end) read->end = end;
  read->bytes += value->mv_size;
  if (read->bytes < MOST) return;
  const uintptr_t first = read->begin & ~(page - 1);
  (void)madvise((void *)first, read->end - first, MADV_DONTNEED);
  read->bytes = 0;
}

/* Decompresses a record of at most `limit` bytes into held. Its check is compared first, so that
 * neither a flipped bit nor a record under the wrong key reaches the decompressor. Labels have no
 * check; they are proven by the group's root. The caller holds the guard. */
static plm_status corpus_cursor_decompress(struct plm_corpus_cursor *cursor,
                                           enum plm_record_kind kind, size_t limit,
                                           struct held_group *held, struct plm_error *error)
{
  const struct plm_corpus *corpus = cursor->corpus;
  const struct plm_group_check *check = &corpus->checks[held->split][held->group];
  const char *damage = NULL;
  MDB_val value;
  PLM_TRY(plm_corpus_record(corpus, cursor->transaction, held->split, kind, held->group, &value,
                            error));
  const uint64_t expected = kind == PLM_RECORD_GROUPS ? check->group : check->names;
  const bool checked = kind != PLM_RECORD_LABELS;
  unsigned long long content = 0;
  if (value.mv_size > ZSTD_COMPRESSBOUND(limit) + 64 ||
      (checked && plm_hash64_bytes(value.mv_data, value.mv_size) != expected)) {
    damage = "is not what ingest wrote";
  } else {
    content = ZSTD_getFrameContentSize(value.mv_data, value.mv_size);
    if (content == ZSTD_CONTENTSIZE_UNKNOWN || content == ZSTD_CONTENTSIZE_ERROR || content > limit)
      damage = "states no content size, or a wrong one";
  }
  if (damage == NULL) {
    PLM_TRY(corpus_cursor_make_room(held, (size_t)content + 1, error));
    /* zstd's own checksum is needed only where the record has no check */
    (void)ZSTD_DCtx_setParameter(cursor->context, ZSTD_d_forceIgnoreChecksum,
                                 checked ? ZSTD_d_ignoreChecksum : ZSTD_d_validateChecksum);
    held->size = ZSTD_decompressDCtx(cursor->context, held->bytes, held->capacity, value.mv_data,
                                     value.mv_size);
    if (ZSTD_isError(held->size)) damage = ZSTD_getErrorName(held->size);
    /* Its check matched, so these pages are really in the map, like all between two of them. */
    if (checked) let_go(&cursor->read, &value);
  }
  if (damage != NULL)
    return plm_corpus_record_error(corpus, held->split, kind, held->group, damage, error);
  return PLM_OK;
}

plm_status plm_corpus_cursor_hold(struct plm_corpus_cursor *cursor, enum plm_record_kind kind,
                                  enum plm_split split, uint64_t group, size_t limit,
                                  struct held_group *held, struct plm_error *error)
{
  held->valid = false;
  held->split = split;
  held->group = group;
  plm_corpus_guard_enter(cursor->corpus->data_path);
  const plm_status status = corpus_cursor_decompress(cursor, kind, limit, held, error);
  plm_corpus_guard_leave();
  return status;
}

plm_status plm_corpus_check_number(const struct plm_corpus *corpus, enum plm_split split,
                                   uint64_t number, uint64_t count, const char *unit,
                                   struct plm_error *error)
{
  PLM_ASSERT((unsigned)split < PLM_SPLIT_COUNT);
  if (number < count) return PLM_OK;
  return plm_error_set(error, PLM_NOT_FOUND, "%s has no %s %llu in %s: it has %llu",
                       corpus->directory, unit, (unsigned long long)number, plm_split_name(split),
                       (unsigned long long)count);
}

/* Copies a group's part of a record of a table. The caller holds the guard. */
static plm_status copy_entries(struct plm_corpus_cursor *cursor, enum plm_record_kind kind,
                               enum plm_split split, uint64_t group, uint32_t count, void *entries,
                               struct plm_error *error)
{
  const struct plm_corpus *corpus = cursor->corpus;
  const struct plm_corpus_table *table = &plm_corpus_tables[kind];
  const uint64_t first = group * PLM_GROUP_DOCUMENTS, begin = first % table->block;
  MDB_val value;
  PLM_TRY(plm_corpus_record(corpus, cursor->transaction, split, kind, first / table->block, &value,
                            error));
  if (value.mv_size < (begin + count) * table->entry_bytes)
    return plm_corpus_record_error(corpus, split, kind, first / table->block, "is too short",
                                   error);
  memcpy(entries, (const uint8_t *)value.mv_data + begin * table->entry_bytes,
         count * table->entry_bytes);
  return PLM_OK;
}

/* Reads and proves the sizes of a group of clusters. */
static plm_status read_sizes(struct plm_corpus_cursor *cursor, enum plm_split split, uint64_t group,
                             struct held_numbers *held, struct plm_error *error)
{
  const struct plm_corpus *corpus = cursor->corpus;
  const struct plm_proof_tree *tree = corpus->cluster_groups[split];
  const uint32_t count =
      plm_corpus_group_documents(corpus->description.info.splits[split].clusters, group);
  held->valid = false;
  plm_corpus_guard_enter(corpus->data_path);
  const plm_status status =
      copy_entries(cursor, PLM_RECORD_CLUSTERS, split, group, count, held->numbers, error);
  plm_corpus_guard_leave();
  PLM_TRY(status);
  PLM_ASSERT((tree != NULL) == plm_corpus_has_proof(&corpus->description.info));
  if (tree != NULL) {
    const struct plm_proof_node node = plm_proof_clusters(held->numbers, count);
    if (memcmp(node.hash, plm_proof_tree_nodes(tree)[group].hash, sizeof node.hash) != 0)
      return plm_corpus_record_error(corpus, split, PLM_RECORD_CLUSTERS,
                                     group * PLM_GROUP_DOCUMENTS /
                                         plm_corpus_tables[PLM_RECORD_CLUSTERS].block,
                                     "is not what ingest wrote", error);
  }
  held->split = split;
  held->group = group;
  held->valid = true;
  return PLM_OK;
}

plm_status plm_corpus_cluster_sizes(struct plm_corpus_cursor *cursor, enum plm_split split,
                                    uint64_t group, const uint32_t **sizes, uint64_t *before,
                                    struct plm_error *error)
{
  const struct plm_corpus *corpus = cursor->corpus;
  const uint64_t clusters = corpus->description.info.splits[split].clusters;
  struct held_numbers *held = &cursor->sizes;
  PLM_TRY(plm_corpus_check_number(corpus, split, group, plm_corpus_group_count(clusters), "group",
                                  error));
  if (!held->valid || held->split != split || held->group != group)
    PLM_TRY(read_sizes(cursor, split, group, held, error));
  *sizes = held->numbers;
  if (before != NULL) *before = plm_proof_tree_before(corpus->cluster_groups[split], group);
  return PLM_OK;
}

static plm_status check_length(const struct plm_corpus *corpus, enum plm_split split,
                               uint64_t document, uint32_t length, struct plm_error *error)
{
  if (length != 0 && length <= PLM_DOCUMENT_LIMIT) return PLM_OK;
  return plm_error_set(error, PLM_CORRUPT, "%s: document %llu of %s has length %u",
                       corpus->data_path, (unsigned long long)document, plm_split_name(split),
                       length);
}

static plm_status read_lengths(struct plm_corpus_cursor *cursor, enum plm_split split,
                               uint64_t group, struct held_numbers *held, struct plm_error *error)
{
  const struct plm_corpus *corpus = cursor->corpus;
  const uint32_t count =
      plm_corpus_group_documents(corpus->description.info.splits[split].documents, group);
  held->valid = false;
  plm_corpus_guard_enter(corpus->data_path);
  const plm_status status =
      copy_entries(cursor, PLM_RECORD_LENGTHS, split, group, count, held->numbers, error);
  plm_corpus_guard_leave();
  PLM_TRY(status);
  for (uint32_t d = 0; d < count; d++)
    PLM_TRY(check_length(corpus, split, group * PLM_GROUP_DOCUMENTS + d, held->numbers[d], error));
  held->split = split;
  held->group = group;
  held->valid = true;
  return PLM_OK;
}

plm_status plm_corpus_group_lengths(struct plm_corpus_cursor *cursor, enum plm_split split,
                                    uint64_t group, const uint32_t **lengths,
                                    struct plm_error *error)
{
  const struct plm_corpus *corpus = cursor->corpus;
  const uint64_t documents = corpus->description.info.splits[split].documents;
  struct held_numbers *held = &cursor->lengths;
  PLM_TRY(plm_corpus_check_number(corpus, split, group, plm_corpus_group_count(documents), "group",
                                  error));
  *lengths = held->numbers;
  if (!held->valid || held->split != split || held->group != group)
    PLM_TRY(read_lengths(cursor, split, group, held, error));
  return PLM_OK;
}

plm_status plm_corpus_group(struct plm_corpus_cursor *cursor, enum plm_split split, uint64_t group,
                            const uint8_t **residues, size_t *size, struct plm_error *error)
{
  const struct plm_corpus *corpus = cursor->corpus;
  const uint64_t documents = corpus->description.info.splits[split].documents;
  struct held_group *held = &cursor->residues;
  PLM_TRY(plm_corpus_check_number(corpus, split, group, plm_corpus_group_count(documents), "group",
                                  error));
  if (!held->valid || held->split != split || held->group != group) {
    const uint32_t *lengths = NULL;
    const uint32_t count = plm_corpus_group_documents(documents, group);
    size_t expected = 0;
    PLM_TRY(plm_corpus_group_lengths(cursor, split, group, &lengths, error));
    for (uint32_t i = 0; i < count; i++) expected += lengths[i];
    PLM_TRY(plm_corpus_cursor_hold(cursor, PLM_RECORD_GROUPS, split, group, expected, held, error));
    if (held->size != expected)
      return plm_corpus_record_error(corpus, split, PLM_RECORD_GROUPS, group,
                                     "is not as long as its documents", error);
    held->valid = true;
  }
  *residues = held->bytes;
  *size = held->size;
  return PLM_OK;
}

plm_status plm_corpus_document(struct plm_corpus_cursor *cursor, enum plm_split split,
                               uint64_t number, const uint8_t **residues, size_t *size,
                               struct plm_error *error)
{
  const struct plm_corpus *corpus = cursor->corpus;
  PLM_TRY(plm_corpus_check_number(
      corpus, split, number, corpus->description.info.splits[split].documents, "document", error));
  const uint8_t *group = NULL;
  size_t group_size = 0;
  PLM_TRY(
      plm_corpus_group(cursor, split, number / PLM_GROUP_DOCUMENTS, &group, &group_size, error));
  const uint32_t *lengths = NULL;
  PLM_TRY(plm_corpus_group_lengths(cursor, split, number / PLM_GROUP_DOCUMENTS, &lengths, error));
  for (uint64_t d = 0; d < number % PLM_GROUP_DOCUMENTS; d++) group += lengths[d];
  *residues = group;
  *size = lengths[number % PLM_GROUP_DOCUMENTS];
  return PLM_OK;
}

plm_status plm_corpus_digests(struct plm_corpus_cursor *cursor, enum plm_split split,
                              uint64_t group, struct plm_proof_digest digests[PLM_GROUP_DOCUMENTS],
                              struct plm_error *error)
{
  const struct plm_corpus *corpus = cursor->corpus;
  const uint64_t documents = corpus->description.info.splits[split].documents;
  PLM_ASSERT(plm_corpus_has_proof(&corpus->description.info));
  PLM_TRY(plm_corpus_check_number(corpus, split, group, plm_corpus_group_count(documents), "group",
                                  error));
  const uint32_t count = plm_corpus_group_documents(documents, group);
  plm_corpus_guard_enter(corpus->data_path);
  const plm_status status =
      copy_entries(cursor, PLM_RECORD_DIGESTS, split, group, count, digests, error);
  plm_corpus_guard_leave();
  return status;
}

struct plm_corpus *plm_corpus_cursor_corpus(const struct plm_corpus_cursor *cursor)
{
  return cursor->corpus;
}

plm_status plm_corpus_check_leaves(const struct plm_corpus *corpus, enum plm_split split,
                                   uint64_t group, const uint32_t *lengths,
                                   const struct plm_proof_digest *digests,
                                   const struct plm_proof_digest *labels, struct plm_error *error)
{
  const uint32_t count =
      plm_corpus_group_documents(corpus->description.info.splits[split].documents, group);
  const struct plm_proof_node root = plm_proof_group(lengths, digests, labels, count);
  if (memcmp(root.hash, plm_proof_tree_nodes(corpus->groups[split])[group].hash,
             sizeof root.hash) == 0)
    return PLM_OK;
  if (labels != NULL)
    return plm_corpus_record_error(
        corpus, split, PLM_RECORD_LABELS, group,
        "or its record of `digests` or `lengths` is not what ingest wrote", error);
  return plm_corpus_record_error(corpus, split, PLM_RECORD_DIGESTS,
                                 group * PLM_GROUP_DOCUMENTS / PLM_DIGESTS_BLOCK,
                                 "or a length in `lengths` is not what ingest wrote", error);
}

/* Compares the hashes of a group's sequences and label records with the group's root. */
static plm_status check_digests(struct plm_corpus_cursor *cursor, enum plm_split split,
                                uint64_t group, const uint32_t *lengths,
                                const struct plm_proof_digest *digests, struct plm_error *error)
{
  const bool labelled = plm_corpus_has_labels(&cursor->corpus->description.info);
  struct plm_proof_digest labels[PLM_GROUP_DOCUMENTS];
  if (labelled) PLM_TRY(plm_corpus_label_digests(cursor, split, group, labels, error));
  return plm_corpus_check_leaves(cursor->corpus, split, group, lengths, digests,
                                 labelled ? labels : NULL, error);
}

plm_status plm_corpus_proven_lengths(struct plm_corpus_cursor *cursor, enum plm_split split,
                                     uint64_t group, const uint32_t **lengths,
                                     struct plm_error *error)
{
  struct plm_proof_digest digests[PLM_GROUP_DOCUMENTS];
  PLM_TRY(plm_corpus_digests(cursor, split, group, digests, error));
  PLM_TRY(plm_corpus_group_lengths(cursor, split, group, lengths, error));
  return check_digests(cursor, split, group, *lengths, digests, error);
}

plm_status plm_corpus_prove_group(struct plm_corpus_cursor *cursor, enum plm_split split,
                                  uint64_t group, struct plm_error *error)
{
  const struct plm_corpus *corpus = cursor->corpus;
  const struct plm_corpus_info *info = &corpus->description.info;
  const uint64_t first = group * PLM_GROUP_DOCUMENTS;
  struct plm_proof_digest stated[PLM_GROUP_DOCUMENTS], found[PLM_GROUP_DOCUMENTS];
  struct plm_translator translator;
  const uint8_t *residues = NULL;
  const uint32_t *lengths = NULL;
  size_t size = 0;
  PLM_TRY(plm_corpus_digests(cursor, split, group, stated, error));
  PLM_TRY(plm_corpus_group_lengths(cursor, split, group, &lengths, error));
  const uint32_t documents = plm_corpus_group_documents(info->splits[split].documents, group);
  PLM_TRY(check_digests(cursor, split, group, lengths, stated, error));
  PLM_TRY(plm_corpus_group(cursor, split, group, &residues, &size, error));
  plm_translator_init(&translator, info->tokenizer);
  plm_corpus_hash_sequences(&translator, lengths, documents, residues, found);
  for (uint32_t d = 0; d < documents; d++) {
    if (memcmp(&stated[d], &found[d], sizeof found[d]) == 0) continue;
    plm_error_set(error, PLM_CORRUPT, "document %llu of %s has another sequence than ingest hashed",
                  (unsigned long long)(first + d), plm_split_name(split));
    plm_error_hint(error, "copy the corpus again or ingest its sources again");
    return plm_error_where(error, "%s", corpus->data_path);
  }
  return PLM_OK;
}

/* Splits the names at their line ends. */
static plm_status index_names(struct plm_corpus_cursor *cursor, uint32_t count,
                              struct plm_error *error)
{
  struct held_group *held = &cursor->names;
  held->bytes[held->size] = '\n'; /* decompress left room for it */
  uint32_t found = 0;
  size_t begin = 0;
  while (found < count && begin <= held->size) {
    uint8_t *end = memchr(held->bytes + begin, '\n', held->size + 1 - begin);
    *end = '\0';
    cursor->name_begin[found++] = (uint32_t)begin;
    begin = (size_t)(end - held->bytes) + 1;
  }
  if (found != count || begin != held->size + 1)
    return plm_corpus_record_error(cursor->corpus, held->split, PLM_RECORD_NAMES, held->group,
                                   "has a wrong number of names", error);
  held->valid = true;
  return PLM_OK;
}

plm_status plm_corpus_name(struct plm_corpus_cursor *cursor, enum plm_split split, uint64_t number,
                           const char **name, struct plm_error *error)
{
  const struct plm_corpus *corpus = cursor->corpus;
  const uint64_t documents = corpus->description.info.splits[split].documents;
  const uint64_t group = number / PLM_GROUP_DOCUMENTS;
  struct held_group *held = &cursor->names;
  PLM_TRY(plm_corpus_check_number(corpus, split, number, documents, "document", error));
  if (!held->valid || held->split != split || held->group != group) {
    const uint32_t count = plm_corpus_group_documents(documents, group);
    PLM_TRY(plm_corpus_cursor_hold(cursor, PLM_RECORD_NAMES, split, group,
                                   (size_t)count * (PLM_NAME_LIMIT + 1), held, error));
    PLM_TRY(index_names(cursor, count, error));
  }
  *name = (const char *)held->bytes + cursor->name_begin[number % PLM_GROUP_DOCUMENTS];
  return PLM_OK;
}

void plm_corpus_prefetch(struct plm_corpus *corpus, enum plm_split split, uint64_t group,
                         uint64_t count)
{
  plm_corpus_prefetch_records(corpus, split, PLM_RECORD_GROUPS, group, count);
}
