/* Fuzzes the records of a corpus: data.mdb is a sound LMDB environment whose records are the input,
 * and all hashes are correct, so that inputs get behind these checks. Reading either gives residues
 * and names that are as long as the lengths say, or an error that says what is wrong.
 *
 * An input is a byte of flags, the number of documents less one, the length of each document, the
 * size of the group's record (2 bytes), that record, and the record of the names. A flag says that
 * a record is the text to be compressed, not the frame. */
#include "tests/support/harness/fuzz_seed.h"

#include <fcntl.h>
#include <lmdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/corpus/corpus_format.h"
#include "tests/support/harness/scratch.h"

enum { COMPRESS_GROUP = 1, COMPRESS_NAMES = 2, LENGTHS_TIMES_4096 = 4, MAP_BYTES = 1 << 20 };

static const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("\x03\x01\x03\x02\x05\0MKVLAP1\nP2"),
    FUZZ_TEXT("\x03\0\x04\x04\0MKVL\0"),
    FUZZ_TEXT("\x07\0\x01\x08\0MKVLMKVLname"),
    FUZZ_TEXT("\0\0\x04\x0d\0\x28\xb5\x2f\xfd\x24\x04\x21\0\0MKVL\x28\xb5\x2f\xfd\x20\0\x01\0\0"),
    {0}};

struct records {
  uint32_t lengths[PLM_GROUP_DOCUMENTS];
  struct plm_group_check check;
  struct plm_proof_digest digests[PLM_GROUP_DOCUMENTS];
  struct plm_proof_node root;
  MDB_val group, names; /* owned */
};

static MDB_val record_of(const uint8_t *bytes, size_t size, bool compress)
{
  MDB_val value = {.mv_size = compress ? ZSTD_compressBound(size) : size};
  value.mv_data = malloc(value.mv_size + 1);
  PLM_ASSERT(value.mv_data != NULL);
  if (compress) {
    value.mv_size = ZSTD_compress(value.mv_data, value.mv_size, bytes, size, 1);
    PLM_ASSERT(!ZSTD_isError(value.mv_size));
  } else {
    memcpy(value.mv_data, bytes, size);
  }
  return value;
}

/* False if the input is too short. */
static bool parse(const uint8_t *bytes, size_t size, struct records *records,
                  struct plm_corpus_split *split)
{
  if (size < 2 || size < (size_t)bytes[1] + 5) return false;
  const uint8_t flags = bytes[0], *rest = bytes + 2;
  const size_t documents = (size_t)bytes[1] + 1;
  for (size_t i = 0; i < documents; i++) {
    records->lengths[i] = rest[i] * ((flags & LENGTHS_TIMES_4096) != 0 ? 4096u : 1u);
    if (records->lengths[i] == 0) return false;
    plm_corpus_count_length(split, records->lengths[i]);
  }
  rest += documents;
  size_t group = rest[0] + 256u * rest[1];
  rest += 2;
  const size_t left = size - (size_t)(rest - bytes);
  if (group > left) group = left;
  records->group = record_of(rest, group, (flags & COMPRESS_GROUP) != 0);
  records->names = record_of(rest + group, left - group, (flags & COMPRESS_NAMES) != 0);
  records->check =
      (struct plm_group_check){plm_hash64_bytes(records->group.mv_data, records->group.mv_size),
                               plm_hash64_bytes(records->names.mv_data, records->names.mv_size)};
  /* the input's bytes are the hashes of sequences, right or wrong */
  memset(records->digests, 0, sizeof records->digests);
  memcpy(records->digests, bytes, size < sizeof records->digests ? size : sizeof records->digests);
  records->root = plm_proof_group(records->lengths, records->digests, NULL, (uint32_t)documents);
  memcpy(split->root, records->root.hash, sizeof split->root); /* of the only group */
  return true;
}

static void put(MDB_txn *transaction, const char *database, MDB_val key, MDB_val value)
{
  MDB_dbi handle;
  PLM_ASSERT(mdb_dbi_open(transaction, database, MDB_CREATE, &handle) == 0);
  if (value.mv_size > 0 || key.mv_size > 0)
    PLM_ASSERT(mdb_put(transaction, handle, &key, &value, 0) == 0);
}

/* Record 0 of a database of the split `train`; the other splits have no documents. */
static void put_first(MDB_txn *transaction, enum plm_record_kind kind, const void *data,
                      size_t size)
{
  uint8_t bytes[8];
  plm_corpus_key(0, bytes);
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    char name[PLM_DATABASE_NAME_SIZE];
    plm_corpus_database_name((enum plm_split)s, kind, name);
    put(transaction, name, s == PLM_SPLIT_TRAIN ? (MDB_val){sizeof bytes, bytes} : (MDB_val){0},
        s == PLM_SPLIT_TRAIN ? (MDB_val){size, (void *)data} : (MDB_val){0});
  }
}

static void write_data(const char *folder, const struct plm_corpus_description *description,
                       struct records *records)
{
  MDB_env *environment;
  MDB_txn *transaction;
  struct plm_text meta = {0};
  plm_corpus_description_print(description, false, &meta);
  PLM_ASSERT(mdb_env_create(&environment) == 0);
  PLM_ASSERT(mdb_env_set_maxdbs(environment, PLM_CORPUS_DATABASES) == 0);
  PLM_ASSERT(mdb_env_set_mapsize(environment, MAP_BYTES) == 0);
  PLM_ASSERT(mdb_env_open(environment, folder, MDB_NOSYNC | MDB_NOLOCK, 0600) == 0);
  PLM_ASSERT(mdb_txn_begin(environment, NULL, 0, &transaction) == 0);
  const size_t documents = description->info.splits[PLM_SPLIT_TRAIN].documents;
  put_first(transaction, PLM_RECORD_GROUPS, records->group.mv_data, records->group.mv_size);
  put_first(transaction, PLM_RECORD_LENGTHS, records->lengths, documents * sizeof(uint32_t));
  put_first(transaction, PLM_RECORD_NAMES, records->names.mv_data, records->names.mv_size);
  put_first(transaction, PLM_RECORD_CHECKS, &records->check, sizeof records->check);
  put_first(transaction, PLM_RECORD_CLUSTERS, NULL, 0);
  put_first(transaction, PLM_RECORD_DIGESTS, records->digests,
            documents * sizeof records->digests[0]);
  put_first(transaction, PLM_RECORD_ROOTS, records->root.hash, sizeof records->root.hash);
  put(transaction, PLM_CORPUS_META,
      (MDB_val){sizeof PLM_CORPUS_META_KEY - 1, (void *)PLM_CORPUS_META_KEY},
      (MDB_val){meta.length, meta.data});
  PLM_ASSERT(mdb_txn_commit(transaction) == 0);
  mdb_env_close(environment);
  plm_text_deinit(&meta);
}

static void write_description(const char *folder, struct plm_corpus_description *description,
                              const struct records *records)
{
  char path[PLM_PATH_SIZE];
  struct plm_text text = {0};
  const size_t documents = description->info.splits[PLM_SPLIT_TRAIN].documents;
  PLM_ASSERT(plm_path_join(path, folder, PLM_CORPUS_DATA, NULL) == PLM_OK);
  const int data = open(path, O_RDONLY | O_CLOEXEC);
  PLM_ASSERT(data >= 0 && plm_corpus_edges(data, path, &description->files, NULL) == PLM_OK);
  close(data);
  description->files.lengths = plm_hash_bytes(records->lengths, documents * sizeof(uint32_t));
  description->files.checks = plm_hash_bytes(&records->check, sizeof records->check);
  plm_corpus_description_print(description, true, &text);
  PLM_ASSERT(plm_path_join(path, folder, PLM_CORPUS_DESCRIPTION, NULL) == PLM_OK);
  scratch_write(path, text.data, text.length);
  plm_text_deinit(&text);
}

static void read_documents(struct plm_corpus *corpus, uint64_t documents)
{
  struct plm_corpus_cursor *cursor;
  PLM_ASSERT(plm_corpus_cursor_open(corpus, &cursor, NULL) == PLM_OK);
  for (uint64_t d = 0; d < documents; d++) {
    const uint8_t *residues;
    const char *name;
    size_t size;
    struct plm_error error = {0};
    if (plm_corpus_document(cursor, PLM_SPLIT_TRAIN, d, &residues, &size, &error) == PLM_OK) {
      const uint32_t *lengths;
      PLM_ASSERT(plm_corpus_group_lengths(cursor, PLM_SPLIT_TRAIN, d / PLM_GROUP_DOCUMENTS,
                                          &lengths, NULL) == PLM_OK);
      PLM_ASSERT(size == lengths[d % PLM_GROUP_DOCUMENTS]);
    } else {
      PLM_ASSERT(error.what[0] != '\0');
    }
    error.what[0] = '\0';
    if (plm_corpus_name(cursor, PLM_SPLIT_TRAIN, d, &name, &error) == PLM_OK)
      PLM_ASSERT(strlen(name) <= PLM_NAME_LIMIT);
    else
      PLM_ASSERT(error.what[0] != '\0');
  }
  plm_corpus_cursor_close(cursor);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  const char *folder = scratch_path("corpus");
  struct records records;
  struct plm_corpus_description description = {
      .info = {.format = PLM_CORPUS_FORMAT, .tokenizer = PLM_TOKENIZER_BYTE}};
  struct plm_corpus *corpus;
  struct plm_error error = {0};
  if (!parse(bytes, size, &records, &description.info.splits[PLM_SPLIT_TRAIN])) return 0;
  description.info.fingerprint = plm_corpus_fingerprint(&description.info);
  plm_corpus_info_finish(&description.info);
  PLM_ASSERT(plm_path_remove(folder, NULL) == PLM_OK);
  PLM_ASSERT(mkdir(folder, 0700) == 0);
  write_data(folder, &description, &records);
  write_description(folder, &description, &records);
  const struct plm_corpus_options anywhere = {.allow_remote = true};
  if (plm_corpus_open(folder, &anywhere, &corpus, &error) != PLM_OK) {
    plm_error_print("fuzz_corpus_records", &error); /* nothing that opening reads is the input's */
    abort();
  }
  read_documents(corpus, description.info.splits[PLM_SPLIT_TRAIN].documents);
  plm_corpus_close(corpus);
  if (plm_corpus_verify(folder, NULL, NULL, &error) != PLM_OK) PLM_ASSERT(error.what[0] != '\0');
  free(records.group.mv_data);
  free(records.names.mv_data);
  return 0;
}

#include "tests/support/harness/fuzz_main.h"
