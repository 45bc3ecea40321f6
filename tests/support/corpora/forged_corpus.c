/* Changes records of a corpus and makes its description agree. */
#include "tests/support/corpora/forged_corpus.h"

#include <fcntl.h>
#include <lmdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "common/base/files/file.h"
#include "common/corpus/corpus_format.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

void forged_corpus_describe(const char *directory, const struct plm_corpus_description *original)
{
  char path[PLM_PATH_SIZE];
  struct plm_corpus_description forged = *original;
  struct plm_text text = {0};
  PLM_ASSERT(plm_path_join(path, directory, PLM_CORPUS_DATA, NULL) == PLM_OK);
  const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  PLM_ASSERT(plm_corpus_edges(descriptor, path, &forged.files, NULL) == PLM_OK);
  close(descriptor);
  plm_corpus_description_print(&forged, true, &text);
  PLM_ASSERT(plm_path_join(path, directory, PLM_CORPUS_DESCRIPTION, NULL) == PLM_OK);
  scratch_write(path, text.data, text.length);
  plm_text_deinit(&text);
}

/* Opens data.mdb to change it. */
static MDB_txn *begin_change(const char *directory, MDB_env **environment)
{
  MDB_txn *transaction;
  PLM_ASSERT(mdb_env_create(environment) == 0);
  PLM_ASSERT(mdb_env_set_maxdbs(*environment, PLM_CORPUS_DATABASES) == 0);
  PLM_ASSERT(mdb_env_set_mapsize(*environment, 64 << 20) == 0);
  PLM_ASSERT(mdb_env_open(*environment, directory, MDB_NOLOCK, 0600) == 0);
  PLM_ASSERT(mdb_txn_begin(*environment, NULL, 0, &transaction) == 0);
  return transaction;
}

static void end_change(MDB_env *environment, MDB_txn *transaction)
{
  PLM_ASSERT(mdb_txn_commit(transaction) == 0);
  mdb_env_close(environment);
}

void forged_corpus_restate(const char *directory, struct plm_corpus_description *description)
{
  MDB_env *environment;
  MDB_dbi meta;
  struct plm_text text = {0};
  MDB_txn *transaction = begin_change(directory, &environment);
  description->info.fingerprint = plm_corpus_fingerprint(&description->info);
  plm_corpus_description_print(description, false, &text);
  MDB_val key = {sizeof PLM_CORPUS_META_KEY - 1, PLM_CORPUS_META_KEY};
  MDB_val value = {text.length, text.data};
  PLM_ASSERT(mdb_dbi_open(transaction, PLM_CORPUS_META, 0, &meta) == 0);
  PLM_ASSERT(mdb_put(transaction, meta, &key, &value, 0) == 0);
  end_change(environment, transaction);
  plm_text_deinit(&text);
  forged_corpus_describe(directory, description);
}

static void replace_table(const char *directory, enum plm_record_kind kind, bool again,
                          unsigned flags)
{
  struct plm_corpus_description description;
  char database[PLM_DATABASE_NAME_SIZE];
  MDB_env *environment;
  MDB_dbi opened;
  PLM_ASSERT(plm_corpus_description_read(directory, &description, NULL) == PLM_OK);
  MDB_txn *transaction = begin_change(directory, &environment);
  plm_corpus_database_name(PLM_SPLIT_TRAIN, kind, database);
  PLM_ASSERT(mdb_dbi_open(transaction, database, 0, &opened) == 0);
  PLM_ASSERT(mdb_drop(transaction, opened, 1) == 0);
  PLM_ASSERT(!again || mdb_dbi_open(transaction, database, MDB_CREATE | flags, &opened) == 0);
  end_change(environment, transaction);
  forged_corpus_describe(directory, &description);
  plm_corpus_description_deinit(&description);
}

void forged_corpus_drop(const char *directory, enum plm_record_kind kind)
{
  replace_table(directory, kind, false, 0);
}

void forged_corpus_flag(const char *directory, enum plm_record_kind kind, unsigned flags)
{
  replace_table(directory, kind, true, flags);
}

/* Replaces the first record of a database. Returns the hash of what it is now. */
static struct plm_hash change_record(MDB_txn *transaction, enum plm_split split,
                                     enum plm_record_kind kind, forged_change *change,
                                     const void *context)
{
  char database[PLM_DATABASE_NAME_SIZE];
  MDB_dbi opened;
  MDB_val value, key = {8, (uint8_t[8]){0}};
  plm_corpus_database_name(split, kind, database);
  PLM_ASSERT(mdb_dbi_open(transaction, database, 0, &opened) == 0);
  PLM_ASSERT(mdb_get(transaction, opened, &key, &value) == 0);
  void *copy = must(malloc(value.mv_size + FORGED_ROOM));
  memcpy(copy, value.mv_data, value.mv_size);
  value.mv_data = copy;
  change(copy, &value.mv_size, context);
  const struct plm_hash hash = plm_hash_bytes(copy, value.mv_size);
  PLM_ASSERT(mdb_put(transaction, opened, &key, &value, 0) == 0);
  free(copy);
  return hash;
}

/* Changes one record, and describes the file as it is then. */
static void change_alone(const char *directory, enum plm_split split, enum plm_record_kind kind,
                         forged_change *change, const void *context)
{
  struct plm_corpus_description description;
  MDB_env *environment;
  PLM_ASSERT(plm_corpus_description_read(directory, &description, NULL) == PLM_OK);
  MDB_txn *transaction = begin_change(directory, &environment);
  change_record(transaction, split, kind, change, context);
  end_change(environment, transaction);
  forged_corpus_describe(directory, &description);
  plm_corpus_description_deinit(&description);
}

/* The check of a frame that a record of checks is to have. */
struct frame_check {
  enum plm_record_kind kind;
  uint64_t hash;
};

static void change_and_check(uint8_t *record, size_t *size, const void *context)
{
  const struct frame_check *of = context;
  struct plm_group_check check;
  PLM_ASSERT(*size >= sizeof check);
  memcpy(&check, record, sizeof check);
  if (of->kind == PLM_RECORD_GROUPS) check.group = of->hash;
  if (of->kind == PLM_RECORD_NAMES) check.names = of->hash;
  memcpy(record, &check, sizeof check);
}

/* A change, and the check of what it makes. */
struct checked_change {
  forged_change *change;
  const void *context;
  struct frame_check *check;
};

static void change_checked(uint8_t *record, size_t *size, const void *context)
{
  const struct checked_change *of = context;
  of->change(record, size, of->context);
  of->check->hash = plm_hash64_bytes(record, *size);
}

size_t forged_frame_unpack(const uint8_t *record, size_t size, uint8_t *content, size_t room)
{
  const size_t bytes = ZSTD_decompress(content, room, record, size);
  PLM_ASSERT(!ZSTD_isError(bytes));
  return bytes;
}

void forged_frame_pack(uint8_t *record, size_t *size, const uint8_t *content, size_t bytes)
{
  *size = ZSTD_compress(record, *size + FORGED_ROOM, content, bytes, 1);
  PLM_ASSERT(!ZSTD_isError(*size));
}

void forged_corpus_change(const char *directory, enum plm_record_kind kind, forged_change *change,
                          const void *context)
{
  struct plm_corpus_description description;
  struct frame_check check = {.kind = kind};
  const struct checked_change checked = {change, context, &check};
  MDB_env *environment;
  PLM_ASSERT(plm_corpus_description_read(directory, &description, NULL) == PLM_OK);
  MDB_txn *transaction = begin_change(directory, &environment);
  change_record(transaction, PLM_SPLIT_TRAIN, kind, change_checked, &checked);
  description.files.checks =
      change_record(transaction, PLM_SPLIT_TRAIN, PLM_RECORD_CHECKS, change_and_check, &check);
  end_change(environment, transaction);
  forged_corpus_describe(directory, &description);
  plm_corpus_description_deinit(&description);
}

/* Keeps the first bytes of a record; 0: half of them. */
static void cut(uint8_t *record, size_t *size, const void *bytes)
{
  const size_t kept = *(const size_t *)bytes;
  (void)record;
  PLM_ASSERT(kept < *size);
  *size = kept != 0 ? kept : *size / 2;
}

static void move_boundary(uint8_t *record, size_t *size, const void *document)
{
  const uint32_t first = *(const uint32_t *)document;
  uint32_t *lengths = (void *)record;
  PLM_ASSERT((first + 2) * sizeof *lengths <= *size && lengths[first + 1] > 1);
  lengths[first]++;
  lengths[first + 1]--;
}

void forged_corpus_move_boundary(const char *directory, enum plm_split split, uint32_t document)
{
  PLM_ASSERT(document % PLM_GROUP_DOCUMENTS != PLM_GROUP_DOCUMENTS - 1);
  change_alone(directory, split, PLM_RECORD_LENGTHS, move_boundary, &document);
}

void forged_corpus_cut_digests(const char *directory, uint32_t documents)
{
  const size_t bytes = documents * sizeof(struct plm_proof_digest);
  change_alone(directory, PLM_SPLIT_TRAIN, PLM_RECORD_DIGESTS, cut, &bytes);
}

void forged_corpus_cut_names(const char *directory)
{
  const size_t half = 0;
  change_alone(directory, PLM_SPLIT_TRAIN, PLM_RECORD_NAMES, cut, &half);
}
