/* Opens a corpus: what does not belong to a single group of documents is read and checked once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/corpus/corpus_guard.h"
#include "common/corpus/corpus_handle.h"
#include "common/corpus/label_frames.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tables are copied as they are stored");

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

/* LMDB checks the numbers of a page, but not the offsets within it. So the map goes on behind the
 * end of the file: what a damaged page points to there raises SIGBUS, which the guard tells, and
 * is no memory of somebody else. It takes no memory. */
enum { MAP_BEHIND_END = 64 << 20 };

/* Opens the environment and its databases. */
static int open_environment(struct plm_corpus *corpus)
{
  MDB_txn *transaction = NULL;
  int code = mdb_env_create(&corpus->environment);
  if (code != 0) return code;
  mdb_env_set_userctx(corpus->environment, corpus->data_path);
  mdb_env_set_assert(corpus->environment, assertion_failed);
  code = mdb_env_set_maxdbs(corpus->environment, PLM_CORPUS_DATABASES);
  if (code == 0)
    code = mdb_env_set_mapsize(corpus->environment,
                               corpus->description.files.size_bytes + MAP_BEHIND_END);
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

/* The record in `meta` repeats corpus.json, so it shows whether the two files belong together. */
static plm_status check_meta(const struct plm_corpus *corpus, struct plm_error *error)
{
  struct plm_text text = {0};
  MDB_val key = {sizeof PLM_CORPUS_META_KEY - 1, PLM_CORPUS_META_KEY}, value;
  plm_corpus_description_print(&corpus->description, false, &text);
  const int code = mdb_get(corpus->prefetch_transaction, corpus->meta, &key, &value);
  const bool same = code == 0 && value.mv_size == text.length &&
                    memcmp(value.mv_data, text.data, text.length) == 0;
  plm_text_deinit(&text);
  if (same) return PLM_OK;
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

/* Maps the file, and reads all that does not belong to a group. */
static plm_status read_map(struct plm_corpus *corpus, struct plm_error *error)
{
  const int code = open_environment(corpus);
  if (code != 0) return plm_corpus_lmdb_error(code, corpus->data_path, "cannot open", error);
  PLM_TRY(check_meta(corpus, error));
  return plm_corpus_load_tables(corpus, error);
}

static plm_status open_checked(struct plm_corpus *corpus, bool allow_old, struct plm_error *error)
{
  PLM_TRY(plm_path_join(corpus->data_path, corpus->directory, PLM_CORPUS_DATA, error));
  PLM_TRY((allow_old ? plm_corpus_description_read_old : plm_corpus_description_read)(
      corpus->directory, &corpus->description, error));
  PLM_TRY(plm_corpus_check_edges(corpus->data_path, &corpus->description.files, error));
  plm_corpus_guard_install();
  plm_corpus_guard_enter(corpus->data_path);
  const plm_status status = read_map(corpus, error);
  plm_corpus_guard_leave();
  return status;
}

plm_status plm_corpus_open(const char *directory, const struct plm_corpus_options *options,
                           struct plm_corpus **corpus, struct plm_error *error)
{
  *corpus = NULL;
  struct plm_corpus *opened = calloc(1, sizeof *opened);
  if (opened == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  pthread_mutex_init(&opened->prefetch_lock, NULL);
  opened->cache_lock = -1;
  if (options != NULL) opened->opening = options->advance;
  plm_status status =
      resolve_directory(directory, options, opened->directory, &opened->cache_lock, error);
  if (status == PLM_OK) status = open_checked(opened, options != NULL && options->allow_old, error);
  opened->opening = NULL;
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
    free(corpus->checks[s]);
    plm_proof_tree_close(corpus->groups[s]);
    plm_proof_tree_close(corpus->cluster_groups[s]);
  }
  label_frames_close(corpus->label_frames);
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

const struct plm_label_schema *plm_corpus_schema(const struct plm_corpus *corpus)
{
  return &corpus->description.labels;
}

const struct plm_proof_tree *plm_corpus_group_tree(const struct plm_corpus *corpus,
                                                   enum plm_split split)
{
  PLM_ASSERT((unsigned)split < PLM_SPLIT_COUNT);
  return corpus->groups[split];
}

const struct plm_proof_tree *plm_corpus_cluster_tree(const struct plm_corpus *corpus,
                                                     enum plm_split split)
{
  PLM_ASSERT((unsigned)split < PLM_SPLIT_COUNT);
  return corpus->cluster_groups[split];
}
