/* What the writer and the reader of a corpus share: names and keys of the records, and
 * corpus.json. Not for users of a corpus; they include corpus.h.
 *
 * corpus.json describes the corpus and carries, for data.mdb, its size and the XXH3-128 of its
 * first and last MiB, of the whole file, of all `lengths` and of all `checks` (train, valid, test,
 * as stored); and the XXH3-128 of its own bytes without the 32 digits of that hash. It is compared
 * byte for byte with what plm_corpus_description_print would print. The record `description` of
 * `meta` is the same text without what is known of data.mdb alone.
 */
#ifndef PLM_COMMON_CORPUS_CORPUS_FORMAT_H
#define PLM_COMMON_CORPUS_CORPUS_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "common/corpus/corpus.h"

#define PLM_CORPUS_DATA "data.mdb"
#define PLM_CORPUS_DESCRIPTION "corpus.json"
#define PLM_CORPUS_META "meta"
#define PLM_CORPUS_META_KEY "description"

enum {
  PLM_LENGTHS_BLOCK = 65536, /* lengths a record of `lengths` */
  PLM_CHECKS_BLOCK = 8192,   /* groups a record of `checks` */
  PLM_CORPUS_DATABASES = 16, /* room for 3 x 4 and meta */
  PLM_CORPUS_EDGE = 1 << 20, /* bytes at either end that are hashed before opening */
  PLM_DOCUMENT_LIMIT = 1 << 28,
  PLM_NAME_LIMIT = 4096,                /* bytes of one identifier */
  PLM_DESCRIPTION_LIMIT = 32 * 1 << 20, /* bytes of corpus.json */
};

enum plm_record_kind { PLM_RECORD_GROUPS, PLM_RECORD_LENGTHS, PLM_RECORD_NAMES, PLM_RECORD_CHECKS };
enum { PLM_RECORD_KINDS = 4 };

/* "train.groups" */
#define PLM_DATABASE_NAME_SIZE 32
void plm_corpus_database_name(enum plm_split split, enum plm_record_kind kind,
                              char name[PLM_DATABASE_NAME_SIZE]);
/* Big-endian, so that LMDB's byte order is numeric order. */
void plm_corpus_key(uint64_t index, uint8_t key[8]);

/* One entry of `checks`: XXH3-64 of the compressed frames of a group and of its names. */
struct plm_group_check {
  uint64_t group, names;
};

/* What the fingerprint covers of a split: its documents' count and XXH3-128 of, for each group, the
 * lengths (u32 little-endian) and then the residues of its documents. The fingerprint is XXH3-128
 * of, for each split, u32 group size, u64 documents and the digest's u64 low and high, all
 * little-endian. */
struct plm_split_digest {
  uint64_t documents;
  struct plm_hash digest;
};
struct plm_hash plm_corpus_fingerprint(const struct plm_split_digest digests[PLM_SPLIT_COUNT]);

struct plm_corpus_source {
  char *name; /* as it was given to ingest */
  uint64_t bytes, documents;
};

struct plm_corpus_files {
  uint64_t size_bytes;
  struct plm_hash first, last, whole, lengths, checks;
};

struct plm_corpus_description {
  struct plm_corpus_info info;
  struct plm_corpus_source *sources; /* owned */
  size_t source_count;
  struct plm_corpus_files files;
};

void plm_corpus_description_deinit(struct plm_corpus_description *description);

/* Appends the text of corpus.json, or with files false that of the record in `meta`. */
void plm_corpus_description_print(const struct plm_corpus_description *description, bool files,
                                  struct plm_text *text);
/* Reads and checks DIRECTORY/corpus.json as above. PLM_NOT_FOUND: no corpus there; PLM_CORRUPT;
 * PLM_UNSUPPORTED: another format version. The caller deinits on success. */
plm_status plm_corpus_description_read(const char *directory,
                                       struct plm_corpus_description *description,
                                       struct plm_error *error);

/* For the writer, which has just hashed data.mdb: opens what it wrote, reads every record, compares
 * lengths and fingerprint with the description. */
plm_status plm_corpus_verify_written(const char *directory, const struct plm_corpus_info *info,
                                     void (*progress)(void *context, uint64_t done, uint64_t total),
                                     void *context, struct plm_error *error);

/* Size and edge hashes of an open data.mdb. */
plm_status plm_corpus_edges(int descriptor, const char *path, struct plm_corpus_files *files,
                            struct plm_error *error);

/* Whether the data.mdb at path still has the size and edges that corpus.json states. PLM_CORRUPT.
 */
plm_status plm_corpus_check_edges(const char *path, const struct plm_corpus_files *stated,
                                  struct plm_error *error);

/* Adds a document of this length to a split's counts, histogram and extremes. */
void plm_corpus_count_length(struct plm_corpus_split *split, uint64_t length);
/* Adds residues to a split's composition. */
void plm_corpus_count_residues(enum plm_tokenizer_kind tokenizer, const uint8_t *residues,
                               size_t size, uint64_t composition[512]);
/* Sets info->entropy from the splits' compositions. */
void plm_corpus_info_finish(struct plm_corpus_info *info);

#endif
