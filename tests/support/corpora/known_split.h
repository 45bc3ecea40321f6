/* A split of which a test knows all lengths, and the windows of its plans. */
#ifndef PLM_TESTS_SUPPORT_CORPORA_KNOWN_SPLIT_H
#define PLM_TESTS_SUPPORT_CORPORA_KNOWN_SPLIT_H

#include "common/plan/plan.h"

/* The arrays are borrowed. */
struct known_split {
  const uint32_t *lengths; /* (documents) residues of each */
  uint64_t documents;
  const uint32_t *clusters; /* (cluster_count) documents of each, at least 1; or NULL */
  uint64_t cluster_count;
};

/* A plan of the documents of the split that are within token_limit, which has room for the first.
 * Any error ends the test. */
struct plm_plan *known_split_plan(const struct known_split *split,
                                  const struct plm_plan_parameters *parameters);

/* A plm_plan_read of the split, whose context is a struct known_reading. */
struct known_reading {
  const struct known_split *split;
  const struct plm_plan *plan;
  uint64_t *begin; /* of each group of clusters, in documents */
};
struct known_reading known_reading_open(const struct known_split *split,
                                        const struct plm_plan *plan);
void known_reading_close(struct known_reading *reading);
plm_status known_reading_group(const void *known_reading, uint64_t epoch, uint32_t index,
                               uint64_t group, struct plm_plan_group *out, struct plm_error *error);

/* Plans a window of the split, or counts chunks. Errors are those of the plan. */
plm_status known_split_window(const struct known_split *split, const struct plm_plan *plan,
                              uint64_t epoch, uint64_t index, struct plm_window *window,
                              struct plm_error *error);
plm_status known_split_chunks(const struct known_split *split, const struct plm_plan *plan,
                              uint64_t epoch, uint64_t first, uint64_t count, uint32_t *counts,
                              struct plm_error *error);

#endif
