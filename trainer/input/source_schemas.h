/* The schemas of the labels of a run's corpora, on every rank. */
#ifndef PLM_TRAINER_INPUT_SOURCE_SCHEMAS_H
#define PLM_TRAINER_INPUT_SOURCE_SCHEMAS_H

#include "common/feed/feed.h"
#include "common/labels/label_schema.h"
#include "common/plan/mixture.h"
#include "trainer/ranks/ranks.h"

/* Begins with {0}. */
struct plm_label_schemas {
  uint32_t count; /* of sources */
  /* (count); without columns: the source has no labels */
  struct plm_label_schema owned[PLM_MAX_SOURCES];
  /* (count) the same, borrowed; NULL: the source has no labels */
  const struct plm_label_schema *schemas[PLM_MAX_SOURCES];
};

/* Rank 0 learns the schema of each source from its first packer, for which it waits, and sends it
 * to the other ranks; their feed is NULL. All ranks call it at the same point. Errors of rank 0 are
 * those of plm_feed_labels. PLM_INTERRUPTED, once *stop is nonzero, is that of all ranks; after
 * other errors the others find that rank 0 has gone. The caller deinits. */
plm_status plm_label_schemas_receive(struct plm_feed *feed, struct plm_ranks *ranks,
                                     uint32_t source_count, const volatile int *stop,
                                     struct plm_label_schemas *out, struct plm_error *error);
void plm_label_schemas_deinit(struct plm_label_schemas *schemas);

#endif
