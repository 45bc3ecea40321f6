/* corpus.json: what is known about a corpus without opening its data.mdb.
 *
 * It holds the facts of struct plm_corpus_info, the schema of the labels if there are any, and the
 * files that were ingested. About data.mdb
 * it states the size and five XXH3-128 hashes: of its first MiB, its last MiB, the whole file, all
 * `lengths` and all `checks` (train, valid, test, as stored). Each split states the roots of its
 * documents and clusters, from which the fingerprint follows. It ends with the XXH3-128 of its own
 * text without the 32 digits of that hash. In the name of an ingested file, a byte that is not
 * UTF-8 is written as the four characters \xHH, so that the file is valid JSON. A reader compares
 * the file byte for byte with what plm_corpus_description_print prints from the same facts. */
#ifndef PLM_COMMON_CORPUS_CORPUS_DESCRIPTION_H
#define PLM_COMMON_CORPUS_CORPUS_DESCRIPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/base/status.h"
#include "common/base/text/text.h"
#include "common/corpus/corpus.h"

#define PLM_CORPUS_DATA "data.mdb"
#define PLM_CORPUS_DESCRIPTION "corpus.json"

struct plm_ingested_file {
  char *name;         /* of the file, as it was given to ingest; read back, it is UTF-8 */
  uint64_t bytes;     /* size of its text, decompressed */
  uint64_t documents; /* number of the corpus's documents that came from it */
};

struct plm_corpus_files {
  uint64_t size_bytes;
  struct plm_hash first, last, whole, lengths, checks;
  struct plm_hash clusters; /* only in PLM_CORPUS_FORMAT_CLUSTERS */
};

struct plm_corpus_description {
  struct plm_corpus_info info;
  struct plm_ingested_file *ingested; /* owned */
  size_t ingested_count;
  struct plm_corpus_files files;
  struct plm_label_schema labels; /* owned; without columns: the corpus has no labels */
};

void plm_corpus_description_deinit(struct plm_corpus_description *description);

/* Appends the text of corpus.json to text. Without `files`, it appends the text of the record in
 * `meta` instead, which omits what is known only once data.mdb is complete. */
void plm_corpus_description_print(const struct plm_corpus_description *description, bool files,
                                  struct plm_text *text);
/* Reads and checks DIRECTORY/corpus.json. On success the caller deinits. PLM_NOT_FOUND: there is no
 * corpus. PLM_CORRUPT. PLM_UNSUPPORTED: another format, with the command that upgrades an old one.
 */
plm_status plm_corpus_description_read(const char *directory,
                                       struct plm_corpus_description *description,
                                       struct plm_error *error);

/* The same, but formats 1 and 2 are read too. */
plm_status plm_corpus_description_read_old(const char *directory,
                                           struct plm_corpus_description *description,
                                           struct plm_error *error);

/* The same for the text of a corpus.json in PLM_CORPUS_FORMAT; path is used in messages. */
plm_status plm_corpus_description_parse(const char *bytes, size_t size, const char *path,
                                        struct plm_corpus_description *description,
                                        struct plm_error *error);

/* Compares the size and the first and last MiB of the data.mdb at path with what corpus.json
 * states. PLM_CORRUPT: they differ. */
plm_status plm_corpus_check_edges(const char *path, const struct plm_corpus_files *stated,
                                  struct plm_error *error);

#endif
