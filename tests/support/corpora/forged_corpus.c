/* Changes records of a corpus and makes its description agree. */
#include "tests/support/corpora/forged_corpus.h"

#include <fcntl.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Replaces the first record of a database by what `change` makes of a copy of it. */
static void change_record(const char *directory, const char *database,
                          void (*change)(const void *context, MDB_val *copy), const void *context)
{
  MDB_env *environment;
  MDB_txn *transaction;
  MDB_dbi opened;
  MDB_val value, key = {8, (uint8_t[8]){0}};
  PLM_ASSERT(mdb_env_create(&environment) == 0);
  PLM_ASSERT(mdb_env_set_maxdbs(environment, PLM_CORPUS_DATABASES) == 0);
  PLM_ASSERT(mdb_env_set_mapsize(environment, 64 << 20) == 0);
  PLM_ASSERT(mdb_env_open(environment, directory, MDB_NOLOCK, 0600) == 0);
  PLM_ASSERT(mdb_txn_begin(environment, NULL, 0, &transaction) == 0);
  PLM_ASSERT(mdb_dbi_open(transaction, database, 0, &opened) == 0);
  PLM_ASSERT(mdb_get(transaction, opened, &key, &value) == 0);
  void *copy = must(malloc(value.mv_size));
  memcpy(copy, value.mv_data, value.mv_size);
  value.mv_data = copy;
  change(context, &value);
  PLM_ASSERT(mdb_put(transaction, opened, &key, &value, 0) == 0);
  PLM_ASSERT(mdb_txn_commit(transaction) == 0);
  mdb_env_close(environment);
  free(copy);
}

static void cut(const void *bytes, MDB_val *copy)
{
  const size_t kept = *(const size_t *)bytes;
  PLM_ASSERT(kept < copy->mv_size);
  copy->mv_size = kept != 0 ? kept : copy->mv_size / 2;
}

/* Keeps the first `bytes` of a database's first record; 0: half of them. */
static void cut_record(const char *directory, const char *database, size_t bytes)
{
  change_record(directory, database, cut, &bytes);
}

static void move_boundary(const void *document, MDB_val *copy)
{
  const uint32_t first = *(const uint32_t *)document;
  uint32_t *lengths = copy->mv_data;
  PLM_ASSERT((first + 2) * sizeof *lengths <= copy->mv_size && lengths[first + 1] > 1);
  lengths[first]++;
  lengths[first + 1]--;
}

void forged_corpus_move_boundary(const char *directory, enum plm_split split, uint32_t document)
{
  struct plm_corpus_description description;
  char database[32];
  PLM_ASSERT(document % PLM_GROUP_DOCUMENTS != PLM_GROUP_DOCUMENTS - 1);
  PLM_ASSERT(plm_corpus_description_read(directory, &description, NULL) == PLM_OK);
  snprintf(database, sizeof database, "%s.lengths", plm_split_name(split));
  change_record(directory, database, move_boundary, &document);
  forged_corpus_describe(directory, &description);
  plm_corpus_description_deinit(&description);
}

void forged_corpus_cut_digests(const char *directory, uint32_t documents)
{
  struct plm_corpus_description description;
  PLM_ASSERT(plm_corpus_description_read(directory, &description, NULL) == PLM_OK);
  cut_record(directory, "train.digests", documents * sizeof(struct plm_proof_digest));
  forged_corpus_describe(directory, &description);
  plm_corpus_description_deinit(&description);
}

void forged_corpus_cut_names(const char *directory)
{
  struct plm_corpus_description description;
  PLM_ASSERT(plm_corpus_description_read(directory, &description, NULL) == PLM_OK);
  cut_record(directory, "train.names", 0);
  forged_corpus_describe(directory, &description);
  plm_corpus_description_deinit(&description);
}
