/* The records of data.mdb, for the code that writes a corpus and the code that reads it. Users of a
 * finished corpus include corpus.h, and corpus_description.h for corpus.json. */
#ifndef PLM_COMMON_CORPUS_CORPUS_FORMAT_H
#define PLM_COMMON_CORPUS_CORPUS_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/corpus/corpus.h"
#include "common/corpus/corpus_description.h"

#define PLM_CORPUS_META "meta"
#define PLM_CORPUS_META_KEY "description"

enum {
  PLM_LENGTHS_BLOCK = 65536,  /* lengths in a record of `lengths` */
  PLM_CHECKS_BLOCK = 8192,    /* groups in a record of `checks` */
  PLM_CLUSTERS_BLOCK = 65536, /* sizes in a record of `clusters` */
  PLM_CORPUS_DATABASES = 16,  /* 3 x 5 and meta */
};

enum plm_record_kind {
  PLM_RECORD_GROUPS,
  PLM_RECORD_LENGTHS,
  PLM_RECORD_NAMES,
  PLM_RECORD_CHECKS,
  PLM_RECORD_CLUSTERS, /* only in PLM_CORPUS_FORMAT_CLUSTERS */
};
enum { PLM_RECORD_KINDS = 5 };
/* The number of kinds that a corpus of this format has: the first ones of the enum. */
int plm_corpus_record_kinds(uint32_t format);

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

/* What the fingerprint covers of a split: the number of its documents, and the XXH3-128 of all its
 * groups in order, where each group is the lengths of its documents (u32 little-endian) followed by
 * their residues. The fingerprint is the XXH3-128 of four fields of each split: u32 group size, u64
 * documents, and the digest's low and high u64, all little-endian. With clusters, three more fields
 * follow those of each split: u64 clusters, and the low and high u64 of the XXH3-128 of the sizes
 * of its clusters (u32 little-endian). */
struct plm_split_digest {
  uint64_t documents;
  struct plm_hash digest;
  uint64_t clusters;
  struct plm_hash sizes;
};
struct plm_hash plm_corpus_fingerprint(uint32_t format,
                                       const struct plm_split_digest digests[PLM_SPLIT_COUNT]);

/* For the writer, which has just hashed data.mdb: opens what it wrote, reads every record, and
 * compares lengths and fingerprint with info. progress may be NULL. */
plm_status plm_corpus_verify_written(const char *directory, const struct plm_corpus_info *info,
                                     void (*progress)(void *context, uint64_t done, uint64_t total),
                                     void *context, struct plm_error *error);

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
