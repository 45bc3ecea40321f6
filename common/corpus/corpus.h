/* The corpus: LMDB, written once by `plm-pipeline ingest`, immutable. Reader and format.
 *
 * A corpus is a folder: `data.mdb` (one LMDB environment) and `corpus.json`. For each split there
 * are named databases `SPLIT.groups`, `SPLIT.lengths`, `SPLIT.names`; `meta` is one for all.
 *   groups   uint64 big-endian group index -> one zstd frame (content size and checksum on) of the
 *            residues of 256 documents, one after another
 *   lengths  uint64 big-endian block index -> uint32 little-endian lengths in residues, 65,536 a
 *            block; all that planning needs
 *   names    as groups; identifiers joined by '\n'
 *   checks   uint64 big-endian block index -> for each of 8,192 groups XXH3-64 of its frame in
 *            `groups` and of that in `names`: another record under a key is found, too
 *   meta     format version, counts, alphabet, histogram, composition, sources, fingerprint
 * A document's number is its place in its split, from 0, in the order of ingest. Residues are
 * stored as upper-case letters (esm) or bytes as they are (byte).
 *
 * The fingerprint (XXH3-128) covers, split by split in the order train, valid, test: group size
 * and each document's length and residues; not names, not compressed bytes. corpus_format.h has
 * its bytes and those of corpus.json.
 *
 * Threads: one handle may be read by many threads at once; each uses its own plm_corpus_cursor.
 * An environment is opened once in a process and never used across fork.
 */
#ifndef PLM_COMMON_CORPUS_CORPUS_H
#define PLM_COMMON_CORPUS_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/config/config.h"

enum plm_split { PLM_SPLIT_TRAIN, PLM_SPLIT_VALID, PLM_SPLIT_TEST, PLM_SPLIT_COUNT };
enum {
  PLM_GROUP_DOCUMENTS = 256,
  PLM_DOCUMENT_LIMIT = 1 << 28, /* residues of a document */
  PLM_NAME_LIMIT = 4096,        /* bytes of a document's name */
  PLM_CORPUS_FORMAT = 1,
  PLM_HISTOGRAM_BINS = 32, /* bin b counts lengths in [2^b, 2^(b+1)) */
};

const char *plm_split_name(enum plm_split split);
plm_status plm_split_parse(const char *name, enum plm_split *split, struct plm_error *error);

struct plm_corpus_split {
  uint64_t documents;
  uint64_t residues;
  uint64_t length_min, length_max;
  uint64_t histogram[PLM_HISTOGRAM_BINS];
  uint64_t composition[512]; /* counts by token id */
};

struct plm_corpus_info {
  uint32_t format;
  enum plm_tokenizer_kind tokenizer;
  struct plm_corpus_split splits[PLM_SPLIT_COUNT];
  double entropy; /* nats, of the residues' composition over all splits */
  bool clustered; /* false: "random split: homologues shared" */
  struct plm_hash fingerprint;
};

/* Entropy in nats of counts[0..count). 0 for an empty table. */
double plm_composition_entropy(const uint64_t *counts, size_t count);

struct plm_corpus;

struct plm_corpus_options {
  bool allow_remote;     /* read over a network file system */
  const char *cache_dir; /* copy once to local disk, verified, shared by this host; or NULL */
};

/* Checks corpus.json, file sizes, first and last MiB before opening, the hash of `lengths` after.
 * Installs the handler that ends the process with
 * "corpus file changed or unreadable: PATH" when the file changes under the map. */
plm_status plm_corpus_open(const char *directory, const struct plm_corpus_options *options,
                           struct plm_corpus **corpus, struct plm_error *error);
void plm_corpus_close(struct plm_corpus *corpus);

const struct plm_corpus_info *plm_corpus_info(const struct plm_corpus *corpus);
const char *plm_corpus_path(const struct plm_corpus *corpus);
/* Lengths in residues of all documents of a split; owned by the corpus. */
const uint32_t *plm_corpus_lengths(const struct plm_corpus *corpus, enum plm_split split);

/* A cursor decompresses groups; one a thread. */
struct plm_corpus_cursor;
plm_status plm_corpus_cursor_open(struct plm_corpus *corpus, struct plm_corpus_cursor **cursor,
                                  struct plm_error *error);
void plm_corpus_cursor_close(struct plm_corpus_cursor *cursor);

/* The residues of group `group`: documents one after another, boundaries from the lengths. Valid
 * until the next call on this cursor. PLM_CORRUPT names the record. */
plm_status plm_corpus_group(struct plm_corpus_cursor *cursor, enum plm_split split, uint64_t group,
                            const uint8_t **residues, size_t *size, struct plm_error *error);
/* Asks the kernel for groups that will be read soon. */
void plm_corpus_prefetch(struct plm_corpus *corpus, enum plm_split split, uint64_t group,
                         uint64_t count);

/* One document: its residues (own decompression unless the cursor holds its group already). */
plm_status plm_corpus_document(struct plm_corpus_cursor *cursor, enum plm_split split,
                               uint64_t number, const uint8_t **residues, size_t *size,
                               struct plm_error *error);
/* Its name, NUL-terminated, valid until the next call. */
plm_status plm_corpus_name(struct plm_corpus_cursor *cursor, enum plm_split split, uint64_t number,
                           const char **name, struct plm_error *error);

/* Reads and hashes everything: file hashes, every record, fingerprint. progress may be NULL. */
plm_status plm_corpus_verify(const char *directory,
                             void (*progress)(void *context, uint64_t done, uint64_t total),
                             void *context, struct plm_error *error);

#endif
