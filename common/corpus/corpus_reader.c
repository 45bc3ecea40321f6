/* Opens a corpus: everything that planning needs is read and checked once. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/corpus/corpus_guard.h"
#include "common/corpus/corpus_handle.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tables are copied as they are stored");

uint64_t plm_corpus_group_count(uint64_t documents)
{
  return (documents + PLM_GROUP_DOCUMENTS - 1) / PLM_GROUP_DOCUMENTS;
}

uint32_t plm_corpus_group_documents(uint64_t documents, uint64_t group)
{
  const uint64_t left = documents - group * PLM_GROUP_DOCUMENTS;
  return left < PLM_GROUP_DOCUMENTS ? (uint32_t)left : PLM_GROUP_DOCUMENTS;
}

plm_status plm_corpus_lmdb_error(int code, const char *path, const char *what,
                                 struct plm_error *error)
{
  if (code == ENOMEM)
    return plm_error_set(error, PLM_NO_MEMORY, "%s %s: out of memory", what, path);
  if (code == ENOSPC || code == EDQUOT)
    return plm_error_set(error, PLM_NO_SPACE, "%s %s: no space left on the device", what, path);
  const plm_status status = code > 0 ? PLM_IO : PLM_CORRUPT;
  return plm_error_set(error, status, "%s %s: %s", what, path, mdb_strerror(code));
}

plm_status plm_corpus_record_error(const struct plm_corpus *corpus, enum plm_split split,
                                   enum plm_record_kind kind, uint64_t index, const char *what,
                                   struct plm_error *error)
{
  char name[PLM_DATABASE_NAME_SIZE];
  plm_corpus_database_name(split, kind, name);
  plm_error_set(error, PLM_CORRUPT, "record %llu of %s %s", (unsigned long long)index, name, what);
  plm_error_hint(error, "copy the corpus again or ingest its sources again");
  return plm_error_where(error, "%s", corpus->data_path);
}

plm_status plm_corpus_record(const struct plm_corpus *corpus, MDB_txn *transaction,
                             enum plm_split split, enum plm_record_kind kind, uint64_t index,
                             MDB_val *value, struct plm_error *error)
{
  uint8_t bytes[8];
  plm_corpus_key(index, bytes);
  MDB_val key = {sizeof bytes, bytes};
  const int code = mdb_get(transaction, corpus->databases[split][kind], &key, value);
  if (code == 0) return PLM_OK;
  return plm_corpus_record_error(corpus, split, kind, index,
                                 code == MDB_NOTFOUND ? "is missing" : mdb_strerror(code), error);
}

plm_status plm_corpus_check_edges(const char *path, const struct plm_corpus_files *stated,
                                  struct plm_error *error)
{
  struct plm_corpus_files found;
  const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return plm_error_errno(error, "cannot open %s", path);
  plm_status status = plm_corpus_edges(descriptor, path, &found, error);
  close(descriptor);
  PLM_TRY(status);
  if (found.size_bytes != stated->size_bytes)
    plm_error_set(error, PLM_CORRUPT, "%s has %llu bytes instead of %llu", path,
                  (unsigned long long)found.size_bytes, (unsigned long long)stated->size_bytes);
  else if (!plm_hash_equal(found.first, stated->first) || !plm_hash_equal(found.last, stated->last))
    plm_error_set(error, PLM_CORRUPT, "%s is not the file that ingest wrote", path);
  else
    return PLM_OK;
  return plm_error_hint(error, "copy the corpus again or ingest its sources again");
}

static void assertion_failed(MDB_env *environment, const char *message)
{
  (void)message;
  plm_corpus_guard_die(mdb_env_get_userctx(environment));
}

static int open_databases(struct plm_corpus *corpus, MDB_txn *transaction)
{
  int code = mdb_dbi_open(transaction, PLM_CORPUS_META, 0, &corpus->meta);
  for (int s = 0; code == 0 && s < PLM_SPLIT_COUNT; s++) {
    const int kinds = plm_corpus_record_kinds(corpus->description.info.format);
    for (int kind = 0; code == 0 && kind < kinds; kind++) {
      char name[PLM_DATABASE_NAME_SIZE];
      MDB_dbi *database = &corpus->databases[s][kind];
      unsigned flags;
      plm_corpus_database_name((enum plm_split)s, (enum plm_record_kind)kind, name);
      code = mdb_dbi_open(transaction, name, 0, database);
      /* Our databases have no flags. A flag means that a page is damaged, and could change how keys
       * are compared. */
      if (code == 0) code = mdb_dbi_flags(transaction, *database, &flags);
      if (code == 0 && flags != 0) code = MDB_INCOMPATIBLE;
    }
  }
  return code;
}

/* Opens the environment and its databases, with a map of exactly the file's size. */
static int open_environment(struct plm_corpus *corpus)
{
  MDB_txn *transaction = NULL;
  int code = mdb_env_create(&corpus->environment);
  if (code != 0) return code;
  mdb_env_set_userctx(corpus->environment, corpus->data_path);
  mdb_env_set_assert(corpus->environment, assertion_failed);
  code = mdb_env_set_maxdbs(corpus->environment, PLM_CORPUS_DATABASES);
  if (code == 0)
    code = mdb_env_set_mapsize(corpus->environment, corpus->description.files.size_bytes);
  if (code == 0)
    code = mdb_env_open(corpus->environment, corpus->directory,
                        MDB_RDONLY | MDB_NOLOCK | MDB_NOTLS | MDB_NORDAHEAD, 0);
  if (code == 0) code = mdb_txn_begin(corpus->environment, NULL, MDB_RDONLY, &transaction);
  if (code != 0) return code;
  code = open_databases(corpus, transaction);
  if (code != 0) {
    mdb_txn_abort(transaction);
    return code;
  }
  code = mdb_txn_commit(transaction); /* keeps the handles */
  if (code == 0)
    code = mdb_txn_begin(corpus->environment, NULL, MDB_RDONLY, &corpus->prefetch_transaction);
  return code;
}

/* Reads all records of `lengths`, `checks` or `clusters` of a split: `count` entries, `block` of
 * them in each record. */
static plm_status read_table(const struct plm_corpus *corpus, enum plm_split split,
                             enum plm_record_kind kind, size_t entry_bytes, uint64_t block,
                             uint64_t count, uint8_t *out, struct plm_error *error)
{
  plm_status status = PLM_OK;
  for (uint64_t begin = 0; status == PLM_OK && begin < count; begin += block) {
    const uint64_t entries = count - begin < block ? count - begin : block;
    MDB_val value;
    plm_corpus_guard_enter(corpus->data_path);
    status = plm_corpus_record(corpus, corpus->prefetch_transaction, split, kind, begin / block,
                               &value, error);
    if (status == PLM_OK && value.mv_size != entries * entry_bytes)
      status =
          plm_corpus_record_error(corpus, split, kind, begin / block, "has a wrong size", error);
    if (status == PLM_OK) memcpy(out + begin * entry_bytes, value.mv_data, value.mv_size);
    plm_corpus_guard_leave();
  }
  return status;
}

/* Reads the sizes of the clusters of a split. They must add up to its documents. */
static plm_status read_clusters(struct plm_corpus *corpus, enum plm_split s,
                                struct plm_hasher *hasher, struct plm_error *error)
{
  const struct plm_corpus_split *split = &corpus->description.info.splits[s];
  uint64_t total = 0;
  bool empty = false;
  if (split->clusters > split->documents)
    return plm_error_set(error, PLM_CORRUPT, "%s: %s has more clusters than documents",
                         corpus->data_path, plm_split_name(s));
  corpus->clusters[s] = calloc(split->clusters + 1, sizeof *corpus->clusters[s]);
  if (corpus->clusters[s] == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for the clusters of %s",
                         corpus->directory);
  PLM_TRY(read_table(corpus, s, PLM_RECORD_CLUSTERS, sizeof(uint32_t), PLM_CLUSTERS_BLOCK,
                     split->clusters, (uint8_t *)corpus->clusters[s], error));
  for (uint64_t c = 0; c < split->clusters; c++) {
    total += corpus->clusters[s][c];
    empty = empty || corpus->clusters[s][c] == 0;
  }
  plm_hasher_update(hasher, corpus->clusters[s], split->clusters * sizeof(uint32_t));
  if (empty || total != split->documents)
    return plm_error_set(error, PLM_CORRUPT,
                         "%s: the sizes of the clusters of %s do not add up to its documents",
                         corpus->data_path, plm_split_name(s));
  return PLM_OK;
}

/* Reads the sizes of all clusters, if the corpus keeps them, and compares their hash. */
static plm_status load_clusters(struct plm_corpus *corpus, struct plm_error *error)
{
  if (corpus->description.info.format != PLM_CORPUS_FORMAT_CLUSTERS) return PLM_OK;
  struct plm_hasher *hasher = plm_hasher_open();
  plm_status status =
      hasher == NULL ? plm_error_set(error, PLM_NO_MEMORY, "out of memory") : PLM_OK;
  for (int s = 0; status == PLM_OK && s < PLM_SPLIT_COUNT; s++)
    status = read_clusters(corpus, (enum plm_split)s, hasher, error);
  if (status == PLM_OK &&
      !plm_hash_equal(plm_hasher_digest(hasher), corpus->description.files.clusters))
    status = plm_error_set(error, PLM_CORRUPT, "%s: `clusters` is not what ingest wrote",
                           corpus->data_path);
  if (status == PLM_CORRUPT)
    plm_error_hint(error, "copy the corpus again or ingest its sources again");
  plm_hasher_close(hasher);
  return status;
}

static plm_status read_tables(struct plm_corpus *corpus, struct plm_hasher *lengths_hasher,
                              struct plm_hasher *checks_hasher, struct plm_error *error)
{
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    const uint64_t documents = corpus->description.info.splits[s].documents;
    const uint64_t groups = plm_corpus_group_count(documents);
    /* Each group has a record, so an impossible number of documents is found before memory is
     * allocated for it. */
    if (groups > corpus->description.files.size_bytes)
      return plm_error_set(error, PLM_CORRUPT, "%s is too small for its %llu documents",
                           corpus->data_path, (unsigned long long)documents);
    corpus->lengths[s] = calloc(documents + 1, sizeof *corpus->lengths[s]);
    corpus->checks[s] = calloc(groups + 1, sizeof *corpus->checks[s]);
    if (corpus->lengths[s] == NULL || corpus->checks[s] == NULL)
      return plm_error_set(error, PLM_NO_MEMORY, "out of memory for the lengths of %s",
                           corpus->directory);
    PLM_TRY(read_table(corpus, (enum plm_split)s, PLM_RECORD_LENGTHS, sizeof(uint32_t),
                       PLM_LENGTHS_BLOCK, documents, (uint8_t *)corpus->lengths[s], error));
    PLM_TRY(read_table(corpus, (enum plm_split)s, PLM_RECORD_CHECKS, sizeof(struct plm_group_check),
                       PLM_CHECKS_BLOCK, groups, (uint8_t *)corpus->checks[s], error));
    plm_hasher_update(lengths_hasher, corpus->lengths[s], documents * sizeof(uint32_t));
    plm_hasher_update(checks_hasher, corpus->checks[s], groups * sizeof(struct plm_group_check));
  }
  return PLM_OK;
}

/* Reads `lengths` and `checks` and compares their hashes. After this, any other wrong record is
 * found by its check. */
static plm_status load_tables(struct plm_corpus *corpus, struct plm_error *error)
{
  struct plm_hasher *lengths = plm_hasher_open(), *checks = plm_hasher_open();
  plm_status status = PLM_OK;
  if (lengths == NULL || checks == NULL)
    status = plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  else
    status = read_tables(corpus, lengths, checks, error);
  if (status == PLM_OK) {
    const struct plm_corpus_files *files = &corpus->description.files;
    const bool same = plm_hash_equal(plm_hasher_digest(lengths), files->lengths);
    if (!same || !plm_hash_equal(plm_hasher_digest(checks), files->checks)) {
      status = plm_error_set(error, PLM_CORRUPT, "%s: `%s` is not what ingest wrote",
                             corpus->data_path, same ? "checks" : "lengths");
      plm_error_hint(error, "copy the corpus again or ingest its sources again");
    }
  }
  plm_hasher_close(lengths);
  plm_hasher_close(checks);
  return status;
}

/* Compares the sums of the lengths with the description, and finds the largest group, for which
 * cursors allocate memory. */
static plm_status check_lengths(struct plm_corpus *corpus, struct plm_error *error)
{
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    const struct plm_corpus_split *split = &corpus->description.info.splits[s];
    uint64_t total = 0, group = 0;
    for (uint64_t d = 0; d < split->documents; d++) {
      if (d % PLM_GROUP_DOCUMENTS == 0) group = 0;
      const uint32_t length = corpus->lengths[s][d];
      if (length == 0 || length > PLM_DOCUMENT_LIMIT)
        return plm_error_set(error, PLM_CORRUPT, "%s: document %llu of %s has length %u",
                             corpus->data_path, (unsigned long long)d,
                             plm_split_name((enum plm_split)s), length);
      total += length;
      group += length;
      if (group > corpus->largest_group_bytes) corpus->largest_group_bytes = group;
    }
    if (total != split->residues)
      return plm_error_set(error, PLM_CORRUPT,
                           "%s: the lengths of %s do not add up to its residues", corpus->data_path,
                           plm_split_name((enum plm_split)s));
  }
  return PLM_OK;
}

/* The record in `meta` repeats corpus.json, so it shows whether the two files belong together. */
static plm_status check_meta(const struct plm_corpus *corpus, struct plm_error *error)
{
  struct plm_text text = {0};
  MDB_val key = {sizeof PLM_CORPUS_META_KEY - 1, PLM_CORPUS_META_KEY}, value;
  plm_corpus_description_print(&corpus->description, false, &text);
  plm_corpus_guard_enter(corpus->data_path);
  const int code = mdb_get(corpus->prefetch_transaction, corpus->meta, &key, &value);
  const bool failed = text.failed;
  const bool same = code == 0 && !failed && value.mv_size == text.length &&
                    memcmp(value.mv_data, text.data, text.length) == 0;
  plm_corpus_guard_leave();
  plm_text_deinit(&text);
  if (same) return PLM_OK;
  if (failed)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory while checking %s",
                         corpus->data_path);
  return plm_error_set(error, PLM_CORRUPT, "%s and its %s do not belong together",
                       corpus->data_path, PLM_CORPUS_DESCRIPTION);
}

static plm_status resolve_directory(const char *directory, const struct plm_corpus_options *options,
                                    char resolved[PLM_PATH_SIZE], int *lock,
                                    struct plm_error *error)
{
  if (options != NULL && options->cache_dir != NULL)
    return plm_corpus_copy(directory, options, resolved, lock, error);
  if (options == NULL || !options->allow_remote) PLM_TRY(plm_corpus_check_local(directory, error));
  if (snprintf(resolved, PLM_PATH_SIZE, "%s", directory) >= PLM_PATH_SIZE)
    return plm_error_set(error, PLM_LIMIT, "path %.200s is too long", directory);
  return PLM_OK;
}

static plm_status open_checked(struct plm_corpus *corpus, struct plm_error *error)
{
  PLM_TRY(plm_path_join(corpus->data_path, corpus->directory, PLM_CORPUS_DATA, error));
  PLM_TRY(plm_corpus_description_read(corpus->directory, &corpus->description, error));
  PLM_TRY(plm_corpus_check_edges(corpus->data_path, &corpus->description.files, error));
  plm_corpus_guard_install();
  plm_corpus_guard_enter(corpus->data_path);
  const int code = open_environment(corpus);
  plm_corpus_guard_leave();
  if (code != 0) return plm_corpus_lmdb_error(code, corpus->data_path, "cannot open", error);
  PLM_TRY(check_meta(corpus, error));
  PLM_TRY(load_tables(corpus, error));
  PLM_TRY(load_clusters(corpus, error));
  return check_lengths(corpus, error);
}

plm_status plm_corpus_open(const char *directory, const struct plm_corpus_options *options,
                           struct plm_corpus **corpus, struct plm_error *error)
{
  *corpus = NULL;
  struct plm_corpus *opened = calloc(1, sizeof *opened);
  if (opened == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  pthread_mutex_init(&opened->prefetch_lock, NULL);
  opened->cache_lock = -1;
  plm_status status =
      resolve_directory(directory, options, opened->directory, &opened->cache_lock, error);
  if (status == PLM_OK) status = open_checked(opened, error);
  if (status != PLM_OK) {
    plm_corpus_close(opened);
    return status;
  }
  *corpus = opened;
  return PLM_OK;
}

void plm_corpus_close(struct plm_corpus *corpus)
{
  if (corpus == NULL) return;
  if (corpus->prefetch_transaction != NULL) mdb_txn_abort(corpus->prefetch_transaction);
  if (corpus->environment != NULL) mdb_env_close(corpus->environment);
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    free(corpus->lengths[s]);
    free(corpus->checks[s]);
    free(corpus->clusters[s]);
  }
  plm_corpus_description_deinit(&corpus->description);
  pthread_mutex_destroy(&corpus->prefetch_lock);
  if (corpus->cache_lock >= 0) close(corpus->cache_lock);
  free(corpus);
}

const struct plm_corpus_info *plm_corpus_info(const struct plm_corpus *corpus)
{
  return &corpus->description.info;
}

const char *plm_corpus_path(const struct plm_corpus *corpus)
{
  return corpus->directory;
}

const uint32_t *plm_corpus_lengths(const struct plm_corpus *corpus, enum plm_split split)
{
  PLM_ASSERT((unsigned)split < PLM_SPLIT_COUNT);
  return corpus->lengths[split];
}

const uint32_t *plm_corpus_clusters(const struct plm_corpus *corpus, enum plm_split split)
{
  PLM_ASSERT((unsigned)split < PLM_SPLIT_COUNT);
  return corpus->clusters[split];
}
