/* Chunks from a corpus that this process opens itself: what `evaluate` reads when there is no run,
 * and therefore no packer. */
#ifndef PLM_EVALUATOR_EVALUATE_CORPUS_STREAM_H
#define PLM_EVALUATOR_EVALUATE_CORPUS_STREAM_H

#include "common/corpus/corpus.h"
#include "common/plan/plan.h"
#include "evaluator/evaluate/evaluate.h"

struct plm_corpus_stream;

/* Plans, packs and reads windows one at a time, in the plan's order. corpus is borrowed. A batch
 * has at most max_chunks chunks. PLM_NO_MEMORY, or what opening a cursor on the corpus returns. */
plm_status plm_corpus_stream_open(struct plm_corpus *corpus,
                                  const struct plm_plan_parameters *parameters, uint32_t max_chunks,
                                  struct plm_corpus_stream **stream, struct plm_error *error);
void plm_corpus_stream_close(struct plm_corpus_stream *stream); /* NULL is fine */

/* The interface that an evaluation reads; it borrows `stream`. */
struct plm_chunk_stream plm_stream_of_corpus(struct plm_corpus_stream *stream);

#endif
