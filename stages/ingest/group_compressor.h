/* Compresses and hashes groups of documents on worker threads. The first group in is the first one
 * out.
 *
 * One thread submits and takes. A job's buffers grow as needed and are kept for the next job. The
 * bytes in flight are bounded, so that memory does not depend on the size of the corpus. */
#ifndef PLM_STAGES_INGEST_GROUP_COMPRESSOR_H
#define PLM_STAGES_INGEST_GROUP_COMPRESSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/base/status.h"
#include "common/corpus/corpus_format.h"

/* A growing byte array. */
struct plm_bytes {
  uint8_t *data;
  size_t size, capacity;
};
/* Makes room for size more bytes. PLM_NO_MEMORY. */
plm_status plm_bytes_reserve(struct plm_bytes *bytes, size_t size, struct plm_error *error);

struct plm_group_job {
  enum plm_split split;
  uint32_t documents;
  uint32_t lengths[PLM_GROUP_DOCUMENTS];
  struct plm_bytes residues; /* of all documents, one after the other */
  struct plm_bytes names;    /* joined by '\n' */
  struct plm_bytes labels;   /* records, one after the other; empty without labels */
  size_t label_sizes[PLM_GROUP_DOCUMENTS];
  /* filled by the worker */
  struct plm_bytes group_frame, names_frame, labels_frame;
  struct plm_group_check check;
  struct plm_proof_digest digests[PLM_GROUP_DOCUMENTS]; /* of the sequences */
  struct plm_proof_node root;                           /* of the group */
  uint64_t composition[512];
  plm_status status;
  struct plm_error error;
};

struct plm_group_compressor;
/* threads must be at least 1. */
plm_status plm_group_compressor_open(enum plm_tokenizer_kind tokenizer, unsigned threads,
                                     struct plm_group_compressor **compressor,
                                     struct plm_error *error);
void plm_group_compressor_close(struct plm_group_compressor *compressor); /* NULL is fine */

/* Whether another group of `bytes` bytes may be submitted now. If not, take one first. */
bool plm_group_compressor_has_room(const struct plm_group_compressor *compressor, size_t bytes);
/* Queues the caller's job and leaves an empty one in its place. There must be room. */
void plm_group_compressor_submit(struct plm_group_compressor *compressor,
                                 struct plm_group_job *job);
/* Waits for the oldest job and returns it, or NULL if there is none. It is valid until _release,
 * which must come before the next _take. */
struct plm_group_job *plm_group_compressor_pop(struct plm_group_compressor *compressor);
/* Like _take, but does not wait: returns NULL if the oldest job is not finished. */
struct plm_group_job *plm_group_compressor_poll(struct plm_group_compressor *compressor);
void plm_group_compressor_release(struct plm_group_compressor *compressor);

void plm_group_job_deinit(struct plm_group_job *job);

#endif
