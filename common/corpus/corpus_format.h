/* The records of data.mdb, for the code that writes a corpus and the code that reads it. Users of a
 * finished corpus include corpus.h, and corpus_description.h for corpus.json. */
#ifndef PLM_COMMON_CORPUS_CORPUS_FORMAT_H
#define PLM_COMMON_CORPUS_CORPUS_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/base/status.h"
#include "common/corpus/corpus.h"
#include "common/corpus/corpus_description.h"
#include "common/corpus/translate.h"

#define PLM_CORPUS_META "meta"
#define PLM_CORPUS_META_KEY "description"

enum {
  PLM_LENGTHS_BLOCK = 65536,  /* lengths in a record of `lengths` */
  PLM_CHECKS_BLOCK = 8192,    /* groups in a record of `checks` */
  PLM_CLUSTERS_BLOCK = 65536, /* sizes in a record of `clusters` */
  PLM_DIGESTS_BLOCK = 16384,  /* documents in a record of `digests`, of 64 whole groups */
  PLM_ROOTS_BLOCK = 8192,     /* groups in a record of `roots` */
  PLM_CORPUS_DATABASES = 25,  /* 3 x 8 and meta */
};

enum plm_record_kind {
  PLM_RECORD_GROUPS,
  PLM_RECORD_LENGTHS,
  PLM_RECORD_NAMES,
  PLM_RECORD_CHECKS,
  PLM_RECORD_CLUSTERS, /* not in format 1 */
  PLM_RECORD_DIGESTS,  /* not in formats 1 and 2 */
  PLM_RECORD_ROOTS,    /* not in formats 1 and 2 */
  PLM_RECORD_LABELS,   /* only in PLM_CORPUS_FORMAT_LABELS */
};
enum { PLM_RECORD_KINDS = 8 };
/* The number of kinds that a corpus of this format has: the first ones of the enum. */
int plm_corpus_record_kinds(uint32_t format);

/* The kinds of records that are tables: `block` entries in a record, in order. The block is 0 for
 * other kinds. */
struct plm_corpus_table {
  size_t entry_bytes;
  uint32_t block;
};
extern const struct plm_corpus_table plm_corpus_tables[PLM_RECORD_KINDS];

/* "train.groups" */
#define PLM_DATABASE_NAME_SIZE 32
void plm_corpus_database_name(enum plm_split split, enum plm_record_kind kind,
                              char name[PLM_DATABASE_NAME_SIZE]);
/* Big-endian, so that LMDB's byte order is the numeric order. */
void plm_corpus_key(uint64_t index, uint8_t key[8]);

/* One entry of `checks`: the XXH3-64 of a group's compressed frame, and of its names' frame. */
struct plm_group_check {
  uint64_t group, names;
};

/* The fingerprint that follows from the counts and roots of the splits. */
struct plm_hash plm_corpus_fingerprint(const struct plm_corpus_info *info);
/* The hashes of the sequences of a group of 1 to 256 documents, whose residues lie one after
 * another. */
void plm_corpus_hash_sequences(const struct plm_translator *translator, const uint32_t *lengths,
                               uint32_t documents, const uint8_t *residues,
                               struct plm_proof_digest digests[PLM_GROUP_DOCUMENTS]);
/* Adds `count` sizes of clusters to a tree with sums. They follow a multiple of 256 sizes, and only
 * the last call may add a number that is none. */
void plm_corpus_add_clusters(struct plm_proof_builder *builder, const uint32_t *sizes,
                             uint64_t count);
/* Copies the root of a tree's builder; zeros if nothing was added. False: a sum does not fit into
 * 64 bits. */
bool plm_corpus_root(struct plm_proof_builder *builder, uint8_t root[PLM_PROOF_HASH_BYTES]);

/* For the writer, which has just hashed data.mdb: opens what it wrote, reads every record, and
 * compares statistics and hashes with those of info. progress may be NULL. check, which
 * is called after each group and may be NULL too, ends it by an error, as a stop signal does. */
plm_status plm_corpus_verify_written(const char *directory, const struct plm_corpus_info *info,
                                     void (*progress)(void *context, uint64_t done, uint64_t total),
                                     void *context, plm_status (*check)(struct plm_error *error),
                                     struct plm_error *error);

/* The size and the edge hashes of an open data.mdb. */
plm_status plm_corpus_edges(int descriptor, const char *path, struct plm_corpus_files *files,
                            struct plm_error *error);

/* Adds a document of this length to a split's counts, histogram and extremes. */
void plm_corpus_count_length(struct plm_corpus_split *split, uint64_t length);
/* Adds residues to a split's composition. */
void plm_corpus_count_residues(enum plm_tokenizer_kind tokenizer, const uint8_t *residues,
                               size_t size, uint64_t composition[512]);
/* The same in one of the ways to count. False: this processor, or the tokenizer, does not allow it,
 * and nothing is added. plm_corpus_count_residues takes the last one that is allowed. */
enum plm_count_form { PLM_COUNT_ANY, PLM_COUNT_AVX2, PLM_COUNT_BIT_PLANES, PLM_COUNT_FORMS };
bool plm_corpus_count_residues_form(enum plm_tokenizer_kind tokenizer, enum plm_count_form form,
                                    const uint8_t *residues, size_t size,
                                    uint64_t composition[512]);
/* Sets info->entropy from the compositions of the splits. */
void plm_corpus_info_finish(struct plm_corpus_info *info);

#endif
