/* Reads a corpus: an LMDB environment that `plm-pipeline ingest` wrote once and that never changes.
 * doc/data.md#corpus
 *
 * A corpus is a folder with `data.mdb` (the LMDB environment) and `corpus.json`. Each split has the
 * named databases `SPLIT.groups`, `SPLIT.lengths`, `SPLIT.names`, `SPLIT.checks`,
 * `SPLIT.clusters`, `SPLIT.digests` and `SPLIT.roots`, in a corpus with labels also
 * `SPLIT.labels`; `meta` belongs to all splits. Keys are
 * uint64, big-endian.
 *   groups   group -> one zstd frame, with content size and checksum, of the residues of 256
 *            documents, one after another
 *   lengths  block -> 65,536 lengths in residues, uint32 little-endian; planning needs only these
 *   names    group -> one zstd frame of the names of 256 documents, joined by '\n'
 *   checks   block -> for each of 8,192 groups, the XXH3-64 of its frame in `groups` and of its
 *            frame in `names`; this also finds a valid frame under the wrong key
 *   clusters block -> the sizes of 65,536 clusters in documents, uint32 little-endian; empty
 *            without clusters
 *   digests  block -> the hashes of 16,384 sequences, 16 bytes each
 *   roots    block -> the roots of 8,192 groups, 32 bytes each
 *   labels   group -> one zstd frame, with content size and checksum, of the label records of 256
 *            documents, one after another (common/labels/label_record.h)
 *   meta     format version, counts, alphabet, histogram, composition, ingested files, fingerprint
 * A document's number is its position in its split, from 0, in the order of ingest. Residues are
 * upper-case letters (esm) or the unchanged bytes of the text (byte).
 *
 * With clusters, the documents of a cluster have consecutive numbers. Clusters are in the order in
 * which ingest met their first documents, and the documents of a cluster are in the order of
 * ingest. A cluster's number is its position in its split, from 0.
 *
 * The fingerprint is the root of a hash tree (common/proof/proof.h) over the token ids of each
 * document of train, valid and test, over its label record and the schema of the labels if there
 * are any, and over the sizes of the clusters if there are any. It covers neither names nor
 * compressed bytes.
 *
 * Formats 1 and 2 have no `digests` and no `roots`, and their fingerprint is computed differently.
 * Format 1 also has no `clusters`. They are read only to upgrade a corpus to format 3. A corpus
 * with labels has format 4, and is otherwise like one of format 3.
 *
 * Many threads may read one handle at once, each with its own plm_corpus_cursor. An environment is
 * opened once in a process and never used across fork.
 */
#ifndef PLM_COMMON_CORPUS_CORPUS_H
#define PLM_COMMON_CORPUS_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/files/advance.h"
#include "common/base/numbers/hash.h"
#include "common/base/status.h"
#include "common/corpus/tokenizer.h"
#include "common/labels/label_record.h"
#include "common/proof/proof.h"

enum plm_split { PLM_SPLIT_TRAIN, PLM_SPLIT_VALID, PLM_SPLIT_TEST, PLM_SPLIT_COUNT };
enum {
  PLM_GROUP_DOCUMENTS = 256,
  PLM_DOCUMENT_LIMIT = 1 << 28, /* residues of a document */
  PLM_NAME_LIMIT = 4096,        /* bytes of a document's name */
  PLM_CORPUS_FORMAT = 3,
  PLM_CORPUS_FORMAT_LABELS = 4,   /* the same with labels */
  PLM_CORPUS_FORMAT_PLAIN = 1,    /* the oldest format, without clusters */
  PLM_CORPUS_FORMAT_CLUSTERS = 2, /* the same with clusters */
  PLM_HISTOGRAM_BINS = 32,        /* bin b counts lengths in [2^b, 2^(b+1)) */
};

extern const char *const plm_split_names[]; /* NULL-terminated, in the order of the enum */
const char *plm_split_name(enum plm_split split);
plm_status plm_split_parse(const char *name, enum plm_split *split, struct plm_error *error);

struct plm_corpus_split {
  uint64_t documents;
  uint64_t clusters; /* 0 if the corpus does not keep them */
  uint64_t residues;
  uint64_t length_min, length_max;
  uint64_t histogram[PLM_HISTOGRAM_BINS];
  uint64_t composition[512];                                              /* counts by token id */
  uint8_t root[PLM_PROOF_HASH_BYTES], cluster_root[PLM_PROOF_HASH_BYTES]; /* zeros if empty */
};

struct plm_corpus_info {
  uint32_t format;
  enum plm_tokenizer_kind tokenizer;
  struct plm_corpus_split splits[PLM_SPLIT_COUNT];
  double entropy; /* in nats, of the composition of all residues */
  bool clustered; /* each cluster is in one split; if false, splits may share homologues */
  struct plm_hash fingerprint;
  struct plm_hash upgraded_from;  /* the fingerprint before an upgrade; zero: there was none */
  struct plm_proof_digest schema; /* of the labels; only in PLM_CORPUS_FORMAT_LABELS */
};
/* What the fingerprint says of a split. */
struct plm_proof_split plm_corpus_proof_split(const struct plm_corpus_info *info,
                                              enum plm_split split);
/* Whether the corpus has a hash tree, as all but the old formats do; whether it has labels. */
bool plm_corpus_has_proof(const struct plm_corpus_info *info);
bool plm_corpus_has_labels(const struct plm_corpus_info *info);
/* Whether the corpus keeps the sizes of its clusters. */
bool plm_corpus_keeps_clusters(const struct plm_corpus_info *info);
/* How sequences came into splits, after "split": by clusters, so that homologues are in one split;
 * or at random, by a column or by hand, where nobody saw to that. */
const char *plm_corpus_split_words(bool clustered);
/* Whether this is the corpus with a fingerprint, which may be one from before an upgrade. */
bool plm_corpus_is(const struct plm_corpus_info *info, struct plm_hash fingerprint);

/* The entropy in nats of counts[0..count), 0 if all are 0. */
double plm_composition_entropy(const uint64_t *counts, size_t count);

/* The number of groups that `documents` documents (or clusters) make, and the number of documents
 * in one of them. */
uint64_t plm_corpus_group_count(uint64_t documents);
uint32_t plm_corpus_group_documents(uint64_t documents, uint64_t group);

struct plm_corpus;

/* PLM_OK to go on, otherwise the status to stop with, and its message: plm_stop_check
 * (common/run/stop.h) is one. */
typedef plm_status plm_corpus_stop(const char *consequence, struct plm_error *error);

struct plm_corpus_options {
  bool allow_remote;     /* a network file system is not refused */
  bool allow_old;        /* formats 1 and 2 are accepted too */
  const char *cache_dir; /* local folder for a verified copy, which is then read; or NULL */
  plm_corpus_stop *stop; /* asked while a copy is made or waited for; NULL: nothing stops that */
  /* Told while a copy is made or waited for, and while the tables are read; NULL: nobody. */
  struct plm_advance *advance;
};

/* The name of the network or user-space file system that path is on; NULL for a local one. */
const char *plm_corpus_remote_kind(const char *path);
/* PLM_CONFIG, with what to do, if the folder lies on a remote file system. */
plm_status plm_corpus_check_local(const char *directory, struct plm_error *error);

/* Checks corpus.json and the size and the first and last MiB of data.mdb before opening it, and the
 * hashes of `checks`, `clusters` and `roots` afterwards. Lengths are read with their groups, so
 * that opening takes neither time nor memory for each document; sizes of clusters are looked at
 * when it is opened, and read again with their groups. Installs the handler that ends the
 * process with "corpus file changed or unreadable: PATH" if the file changes while it is mapped.
 * PLM_UNSUPPORTED: the format is not PLM_CORPUS_FORMAT, nor an older one that allow_old accepts. */
plm_status plm_corpus_open(const char *directory, const struct plm_corpus_options *options,
                           struct plm_corpus **corpus, struct plm_error *error);
void plm_corpus_close(struct plm_corpus *corpus);

const struct plm_corpus_info *plm_corpus_info(const struct plm_corpus *corpus);
const char *plm_corpus_path(const struct plm_corpus *corpus);
/* The trees over the roots of a split's groups, and over the groups of sizes of its clusters, for
 * paths; owned by the corpus. NULL if there are none, or in an old format. */
const struct plm_proof_tree *plm_corpus_group_tree(const struct plm_corpus *corpus,
                                                   enum plm_split split);
const struct plm_proof_tree *plm_corpus_cluster_tree(const struct plm_corpus *corpus,
                                                     enum plm_split split);

/* A cursor decompresses groups. Each thread needs its own. */
struct plm_corpus_cursor;
plm_status plm_corpus_cursor_open(struct plm_corpus *corpus, struct plm_corpus_cursor **cursor,
                                  struct plm_error *error);
void plm_corpus_cursor_close(struct plm_corpus_cursor *cursor);

/* The residues of a group, document after document; their boundaries follow from the lengths. Valid
 * until the next call on this cursor. PLM_CORRUPT names the record. */
plm_status plm_corpus_group(struct plm_corpus_cursor *cursor, enum plm_split split, uint64_t group,
                            const uint8_t **residues, size_t *size, struct plm_error *error);
/* The lengths in residues of a group's documents, valid until those of another group are read with
 * this cursor. A wrong one is found if it is impossible, or if the sum is not what the other
 * records of the group need. PLM_CORRUPT names the record or the document. */
plm_status plm_corpus_group_lengths(struct plm_corpus_cursor *cursor, enum plm_split split,
                                    uint64_t group, const uint32_t **lengths,
                                    struct plm_error *error);
/* The same, after they and the hashes of the group were compared with its root, which takes some
 * microseconds. Not for old formats. */
plm_status plm_corpus_proven_lengths(struct plm_corpus_cursor *cursor, enum plm_split split,
                                     uint64_t group, const uint32_t **lengths,
                                     struct plm_error *error);
/* Reads the lengths of all documents and compares them with their hash in corpus.json. advance (may
 * be NULL) is told now and then that the reader is alive (plm_advance_by with 0). */
plm_status plm_corpus_check_lengths(struct plm_corpus_cursor *cursor, struct plm_advance *advance,
                                    struct plm_error *error);
/* Asks the kernel to read groups ahead that will be needed soon. */
void plm_corpus_prefetch(struct plm_corpus *corpus, enum plm_split split, uint64_t group,
                         uint64_t count);

/* The sizes in documents, at least 1 each, of a group's 256 clusters (the last group may have
 * fewer), valid until those of another group are read with this cursor, and the number of documents
 * of the clusters before them. Only for a corpus that keeps its clusters. In old formats, sizes are
 * not proven, and `before` is to be NULL. PLM_CORRUPT names the record. */
plm_status plm_corpus_cluster_sizes(struct plm_corpus_cursor *cursor, enum plm_split split,
                                    uint64_t group, const uint32_t **sizes, uint64_t *before,
                                    struct plm_error *error);

/* The residues of one document. Its group is decompressed unless the cursor already holds it. */
plm_status plm_corpus_document(struct plm_corpus_cursor *cursor, enum plm_split split,
                               uint64_t number, const uint8_t **residues, size_t *size,
                               struct plm_error *error);
/* Reads the hashes of a group's sequences, one for each document, without comparing them with the
 * group's root. Not for old formats. PLM_CORRUPT: the record is missing or too short. */
plm_status plm_corpus_digests(struct plm_corpus_cursor *cursor, enum plm_split split,
                              uint64_t group, struct plm_proof_digest digests[PLM_GROUP_DOCUMENTS],
                              struct plm_error *error);
/* What labels the documents have; owned by the corpus. Without columns: none. */
const struct plm_label_schema *plm_corpus_schema(const struct plm_corpus *corpus);
/* The same of the cursor's corpus; NULL: it has no labels. */
const struct plm_label_schema *plm_corpus_cursor_schema(const struct plm_corpus_cursor *cursor);
/* The label records of a group, document after document, with the offset of each (one more than
 * there are documents). Valid until the next call for labels on this cursor. PLM_CORRUPT names the
 * record. Only for a corpus with labels. */
plm_status plm_corpus_labels(struct plm_corpus_cursor *cursor, enum plm_split split, uint64_t group,
                             const uint8_t **records, const size_t **offsets,
                             struct plm_error *error);
/* From now on, the cursors of a corpus with labels share the groups that plm_corpus_labels
 * decompresses: those of the last calls, up to so many bytes. So each is decompressed once where
 * several cursors soon need it. Before other threads use the corpus. */
void plm_corpus_share_labels(struct plm_corpus *corpus, size_t bytes);
/* The hashes of a group's label records, without comparing them with the group's root. */
plm_status plm_corpus_label_digests(struct plm_corpus_cursor *cursor, enum plm_split split,
                                    uint64_t group,
                                    struct plm_proof_digest digests[PLM_GROUP_DOCUMENTS],
                                    struct plm_error *error);
/* The name of a document, NUL-terminated, valid until the next call. */
plm_status plm_corpus_name(struct plm_corpus_cursor *cursor, enum plm_split split, uint64_t number,
                           const char **name, struct plm_error *error);

/* Compares the lengths, the hashes of sequences and those of label records (labels; NULL without
 * them) of a group, as they were read, with its root. PLM_CORRUPT names the record. */
plm_status plm_corpus_check_leaves(const struct plm_corpus *corpus, enum plm_split split,
                                   uint64_t group, const uint32_t *lengths,
                                   const struct plm_proof_digest *digests,
                                   const struct plm_proof_digest *labels, struct plm_error *error);
/* Reads a group and compares each of its sequences with its hash, which the fingerprint proves, as
 * it does the label records. Not for old formats. PLM_CORRUPT names the record or the document. */
plm_status plm_corpus_prove_group(struct plm_corpus_cursor *cursor, enum plm_split split,
                                  uint64_t group, struct plm_error *error);

/* Reads everything, and checks the hashes of the files, every record and the fingerprint. progress
 * may be NULL. */
plm_status plm_corpus_verify(const char *directory,
                             void (*progress)(void *context, uint64_t done, uint64_t total),
                             void *context, struct plm_error *error);

#endif
