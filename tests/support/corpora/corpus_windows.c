/* Lengths and windows of a corpus, read with a cursor of their own. */
#include "tests/support/corpora/corpus_windows.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/harness/must.h"

static struct plm_plan_corpus open_cursor(struct plm_corpus *corpus, enum plm_split split,
                                          const struct plm_plan *plan)
{
  struct plm_plan_corpus from = {.plan = plan, .split = split};
  PLM_ASSERT(plm_corpus_cursor_open(corpus, &from.cursor, NULL) == PLM_OK);
  return from;
}

uint32_t *corpus_lengths(struct plm_corpus *corpus, enum plm_split split)
{
  const struct plm_plan_corpus from = open_cursor(corpus, split, NULL);
  const uint64_t documents = plm_corpus_info(corpus)->splits[split].documents;
  uint32_t *all = must(malloc((documents + 1) * sizeof *all));
  for (uint64_t g = 0; g * PLM_GROUP_DOCUMENTS < documents; g++) {
    const uint32_t *lengths = NULL;
    PLM_ASSERT(plm_corpus_group_lengths(from.cursor, split, g, &lengths, NULL) == PLM_OK);
    memcpy(all + g * PLM_GROUP_DOCUMENTS, lengths,
           plm_corpus_group_documents(documents, g) * sizeof *all);
  }
  plm_corpus_cursor_close(from.cursor);
  return all;
}

uint32_t *corpus_clusters(struct plm_corpus *corpus, enum plm_split split)
{
  const uint64_t clusters = plm_corpus_info(corpus)->splits[split].clusters;
  if (clusters == 0) return NULL;
  const struct plm_plan_corpus from = open_cursor(corpus, split, NULL);
  uint32_t *all = must(malloc(clusters * sizeof *all));
  for (uint64_t g = 0; g * PLM_GROUP_DOCUMENTS < clusters; g++) {
    const uint32_t *sizes = NULL;
    PLM_ASSERT(plm_corpus_cluster_sizes(from.cursor, split, g, &sizes, NULL, NULL) == PLM_OK);
    memcpy(all + g * PLM_GROUP_DOCUMENTS, sizes,
           plm_corpus_group_documents(clusters, g) * sizeof *all);
  }
  plm_corpus_cursor_close(from.cursor);
  return all;
}

void corpus_window(struct plm_corpus *corpus, enum plm_split split, const struct plm_plan *plan,
                   uint64_t epoch, uint64_t index, struct plm_window *window)
{
  const struct plm_plan_corpus from = open_cursor(corpus, split, plan);
  PLM_ASSERT(plm_plan_window(plan, epoch, index, plm_plan_read_corpus, &from, window, NULL) ==
             PLM_OK);
  plm_corpus_cursor_close(from.cursor);
}

uint32_t corpus_window_chunks(struct plm_corpus *corpus, enum plm_split split,
                              const struct plm_plan *plan, uint64_t epoch, uint64_t index)
{
  const struct plm_plan_corpus from = open_cursor(corpus, split, plan);
  uint32_t chunks = 0;
  PLM_ASSERT(plm_plan_window_chunks(plan, epoch, index, 1, plm_plan_read_corpus, &from, &chunks,
                                    NULL) == PLM_OK);
  plm_corpus_cursor_close(from.cursor);
  return chunks;
}
