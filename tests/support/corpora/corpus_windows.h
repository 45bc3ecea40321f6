/* Lengths and windows of a corpus, read with a cursor of their own. Any error ends the test. */
#ifndef PLM_TESTS_SUPPORT_CORPORA_CORPUS_WINDOWS_H
#define PLM_TESTS_SUPPORT_CORPORA_CORPUS_WINDOWS_H

#include "common/corpus/corpus.h"
#include "common/plan/plan.h"

/* The lengths of all documents of a split. The caller frees them. */
uint32_t *corpus_lengths(struct plm_corpus *corpus, enum plm_split split);
/* The sizes of all clusters of a split. The caller frees them. NULL: the corpus keeps none. */
uint32_t *corpus_clusters(struct plm_corpus *corpus, enum plm_split split);
/* A window of a plan of the split, and the number of chunks that the plan counts in it. */
void corpus_window(struct plm_corpus *corpus, enum plm_split split, const struct plm_plan *plan,
                   uint64_t epoch, uint64_t index, struct plm_window *window);
uint32_t corpus_window_chunks(struct plm_corpus *corpus, enum plm_split split,
                              const struct plm_plan *plan, uint64_t epoch, uint64_t index);

#endif
