/* Writes a corpus: documents in, a finished folder out, or nothing at all.
 *
 * Everything is written into DIRECTORY.tmp-PID beside it: groups are compressed on threads and
 * appended to an LMDB environment, which is then compacted into data.mdb, described by
 * corpus.json, read back and compared, and renamed. Twice the corpus's size is needed on the disk
 * meanwhile. Memory is bounded by 256 documents a split and 64 MiB in flight. One thread uses a
 * writer. */
#ifndef PLM_STAGES_INGEST_CORPUS_WRITER_H
#define PLM_STAGES_INGEST_CORPUS_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/corpus_format.h"

struct plm_corpus_writer_options {
  const char *directory;
  enum plm_tokenizer_kind tokenizer;
  bool clustered;
  bool force;       /* an existing corpus there is replaced when the new one is whole */
  unsigned threads; /* that compress; 0: as many as there are cores */
};

struct plm_corpus_writer;

/* PLM_EXISTS when something is there (or, with force, something that is no corpus). Removes what
 * killed writers left beside it. */
plm_status plm_corpus_writer_open(const struct plm_corpus_writer_options *options,
                                  struct plm_corpus_writer **writer, struct plm_error *error);

/* One document; its number is its place in its split. name has no '\n' and at most PLM_NAME_LIMIT
 * bytes, size is 1 to PLM_DOCUMENT_LIMIT; both are copied. */
plm_status plm_corpus_writer_add(struct plm_corpus_writer *writer, enum plm_split split,
                                 const char *name, size_t name_size, const uint8_t *residues,
                                 size_t size, struct plm_error *error);

/* Compacts, describes, verifies, renames. sources are copied. progress (may be NULL) is called
 * while verifying; stop (may be NULL) is looked at between the steps: PLM_INTERRUPTED or
 * PLM_TERMINATED when it holds a signal's number. info (may be NULL) receives what was written. */
plm_status plm_corpus_writer_finish(struct plm_corpus_writer *writer,
                                    const struct plm_corpus_source *sources, size_t source_count,
                                    void (*progress)(void *, uint64_t done, uint64_t total),
                                    void *context, const volatile int *stop,
                                    struct plm_corpus_info *info, struct plm_error *error);

/* Releases everything; without a successful _finish nothing is left on the disk. NULL is fine. */
void plm_corpus_writer_close(struct plm_corpus_writer *writer);

/* PLM_OK, or PLM_INTERRUPTED or PLM_TERMINATED for the signal in *stop. */
plm_status plm_ingest_stopped(const volatile int *stop, struct plm_error *error);

#endif
