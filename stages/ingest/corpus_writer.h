/* Writes a corpus from documents: a finished folder, or nothing at all.
 *
 * Everything is first written to DIRECTORY.tmp-PID. Threads compress groups of documents, which are
 * appended to an LMDB environment. That is then compacted into data.mdb, described by corpus.json,
 * read back and compared, and the folder is renamed. Until then, this needs twice the corpus's size
 * on the disk. Memory holds at most 256 documents for each split and 64 MiB of residues in flight.
 * A writer must be used by one thread only. */
#ifndef PLM_STAGES_INGEST_CORPUS_WRITER_H
#define PLM_STAGES_INGEST_CORPUS_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/files/file.h"
#include "common/base/status.h"
#include "common/corpus/corpus_format.h"

struct plm_corpus_writer_options {
  const char *directory;
  enum plm_tokenizer_kind tokenizer;
  bool clustered;   /* keep the clusters: documents are added cluster by cluster */
  bool force;       /* replace an existing corpus once the new one is complete */
  unsigned threads; /* threads that compress; 0: plm_usable_cores */
  /* Names, kinds and classes of the labels; the writer computes the statistics. NULL: none. */
  const struct plm_label_schema *labels;
  /* Facts of the corpus in an older format of which this is the upgrade: its splits share no
   * cluster if they did not before, and its fingerprint is kept. Or NULL. */
  const struct plm_corpus_info *replaced;
};

struct plm_corpus_writer;

/* PLM_EXISTS if something is at directory that is not an empty folder or, with force, a corpus.
 * Removes what killed writers left beside it. */
plm_status plm_corpus_writer_open(const struct plm_corpus_writer_options *options,
                                  struct plm_corpus_writer **writer, struct plm_error *error);

/* Makes a folder for temporary files of the caller, inside the folder that _close removes or that
 * the next writer removes if this one is killed. The caller removes it before _finish. */
plm_status plm_corpus_writer_scratch(const struct plm_corpus_writer *writer,
                                     char path[PLM_PATH_SIZE], struct plm_error *error);

/* With clustered: the next documents of this split are a new cluster. PLM_LIMIT: the one before has
 * 2^32 documents or more. */
plm_status plm_corpus_writer_begin_cluster(struct plm_corpus_writer *writer, enum plm_split split,
                                           struct plm_error *error);

/* Adds one document, whose number is its position in its split. name has no '\n' and at most
 * PLM_NAME_LIMIT bytes; size is 1 to PLM_DOCUMENT_LIMIT. Name and residues are copied. */
plm_status plm_corpus_writer_add(struct plm_corpus_writer *writer, enum plm_split split,
                                 const char *name, size_t name_size, const uint8_t *residues,
                                 size_t size, struct plm_error *error);

/* With options->labels: the label record of the document that is added next, which must be called
 * for each. Borrowed until then. */
void plm_corpus_writer_labels(struct plm_corpus_writer *writer, const uint8_t *record);

/* The schema with the statistics of the documents so far. */
const struct plm_label_schema *plm_corpus_writer_schema(struct plm_corpus_writer *writer);

/* Compacts, describes, verifies and renames. ingested is copied. progress (may be NULL) is called
 * while verifying. A stop signal is noticed between the steps, while compacting and while
 * verifying. info (may be NULL) receives the description of what was written. */
plm_status plm_corpus_writer_finish(struct plm_corpus_writer *writer,
                                    const struct plm_ingested_file *ingested, size_t ingested_count,
                                    void (*progress)(void *, uint64_t done, uint64_t total),
                                    void *context, struct plm_corpus_info *info,
                                    struct plm_error *error);

/* Releases everything. Unless _finish succeeded, nothing is left on the disk. NULL is fine. */
void plm_corpus_writer_close(struct plm_corpus_writer *writer);

#endif
