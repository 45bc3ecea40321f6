/* Goes through all chunks of a split, a batch at a time. */
#ifndef PLM_EVALUATOR_EVALUATE_EACH_BATCH_H
#define PLM_EVALUATOR_EVALUATE_EACH_BATCH_H

#include "evaluator/evaluate/evaluate.h"

struct plm_batch_walk {
  const struct plm_chunk_stream *stream;
  enum plm_split split;
  uint32_t most;             /* chunks in a batch */
  plm_evaluation_stop *stop; /* or NULL; polled before each batch is visited */
  void *stop_context;
  const char *progress;                 /* label of a bar that counts chunks; NULL: none */
  struct plm_document_lengths *lengths; /* to which the documents are added; NULL: nobody asks */
};

typedef plm_status plm_batch_visit(void *context, const struct plm_batch *batch,
                                   struct plm_error *error);
/* Calls visit with every batch. PLM_CONFIG: the split has no documents; what visit returns. */
plm_status plm_each_batch(const struct plm_batch_walk *walk, plm_batch_visit *visit, void *context,
                          struct plm_error *error);

#endif
