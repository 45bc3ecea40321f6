/* How much of a held-out set is also in a training set: exact duplicates, and near-duplicates by
 * shared words (kmer_sketch.h).
 *
 * The held-out documents are taken in blocks, and the training set is read once for each block.
 * Memory: about 2.6 kB for each document of a block, two bits for each training document, and
 * sixteen bytes for each held-out document. */
#ifndef PLM_STAGES_OVERLAP_OVERLAP_H
#define PLM_STAGES_OVERLAP_OVERLAP_H

#include <stdint.h>

#include "common/corpus/corpus.h"

enum { PLM_OVERLAP_BLOCK = 16384 }; /* held-out documents that are compared at a time */

struct plm_overlap_request {
  struct plm_corpus *training, *held_out; /* may be the same; the tokenizers are the same */
  enum plm_split training_split, held_out_split;
  double
      sequence_identity; /* from which two documents are near-duplicates, above 0 and at most 1 */
  uint32_t block;        /* PLM_OVERLAP_BLOCK, or fewer for a test */
};

/* The training document that is most similar to a held-out one. */
struct plm_overlap_match {
  uint64_t training;
  float sequence_identity; /* estimated, 1 for an exact duplicate; 0: there is none */
  bool exact;
};

struct plm_overlap {
  uint64_t training_documents, held_out_documents;
  /* documents with a duplicate on the other side; `near` leaves out those that count as `exact` */
  uint64_t held_out_exact, held_out_near, training_exact, training_near;
  struct plm_overlap_match *matches; /* (held_out_documents) */
};

/* The caller frees *overlap with _deinit. Progress goes to stderr. PLM_CONFIG: one of the splits is
 * empty. PLM_CORRUPT, PLM_NO_MEMORY. */
plm_status plm_overlap_find(const struct plm_overlap_request *request, struct plm_overlap *overlap,
                            struct plm_error *error);
void plm_overlap_deinit(struct plm_overlap *overlap);

#endif
