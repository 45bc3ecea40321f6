/* The run's position in the data plan: what training has consumed, not what was received.
 *
 * A resume needs nothing else to continue with the next chunk. A rolling hash over everything
 * consumed tells whether two runs saw the same data. See doc/training.md#the-cursor.
 */
#ifndef PLM_TRAINER_DATA_CURSOR_H
#define PLM_TRAINER_DATA_CURSOR_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/feed/feed.h"
#include "common/plan/chunk.h"
#include "common/plan/mixture.h"

struct plm_data_cursor {
  struct plm_hash fingerprint; /* of the corpus; zero before the first packer */
  struct plm_hash plan;        /* plm_plan_hash of the data plan */
  uint64_t seed;
  uint64_t chunks;       /* g: consumed by the whole run */
  struct plm_hash chain; /* over everything consumed: common/plan/chain.h */
  /* Which chunk comes next. After a resume, how many windows and chunks there are is not known
   * until the first step. The place may then be beyond the chunks of its window: older checkpoints
   * count from the beginning of the epoch. */
  struct plm_feed_position next;
  struct plm_hasher *hasher;
  /* In a mixture: the position of each source, with its own fingerprint, plan, chunks and next
   * chunk (`next` above is then unused), and the mixture over time. The fingerprint above is that
   * of source 0, and the plan is plm_data_cursor_mixed_plan. */
  struct plm_data_cursor *sources; /* (source_count) */
  uint32_t source_count;           /* 0: one corpus */
  struct plm_mixture_history mixture;
};

/* At the start of a run. plan is the hash of the data plan. */
plm_status plm_data_cursor_init(struct plm_data_cursor *cursor, struct plm_hash plan, uint64_t seed,
                                struct plm_error *error);
void plm_data_cursor_deinit(struct plm_data_cursor *cursor);

/* Epochs of the corpus that were consumed; of a mixture, those of its first source. The last one
 * counts in part: by its windows, and the last of these by its chunks. All windows but the last of
 * an epoch have the same number of groups. NAN if the number of windows, or of chunks in the
 * cursor's window, is needed and not known yet, as between a resume and the first step. */
double plm_data_cursor_epochs(const struct plm_data_cursor *cursor);

/* Makes the cursor one of a mixture, or adds sources to one: it then has `count` sources, which is
 * at least as many as before. The corpus of a run without a mixture becomes source 0, and keeps its
 * position. plans and fingerprints are those of all sources; only new ones are taken. */
plm_status plm_data_cursor_add_sources(struct plm_data_cursor *cursor, uint32_t count,
                                       const struct plm_hash *plans,
                                       const struct plm_hash *fingerprints,
                                       struct plm_error *error);
/* Hash of the sources' plans and fingerprints and of the mixture's last part. */
struct plm_hash plm_data_cursor_mixed_plan(const struct plm_data_cursor *cursor);

/* Moves the cursor past a batch, which says the source of each chunk if there is a mixture. next
 * (PLM_MAX_SOURCES): the position after the batch of each source that it has chunks of; the other
 * elements are not read. */
void plm_data_cursor_consume(struct plm_data_cursor *cursor, const struct plm_batch *batch,
                             const struct plm_feed_position *next);

struct cJSON;
struct cJSON *plm_data_cursor_to_json(const struct plm_data_cursor *cursor);
/* Reads into an initialised cursor and replaces its data plan. PLM_FORMAT names a defect. */
plm_status plm_data_cursor_from_json(struct plm_data_cursor *cursor, const struct cJSON *json,
                                     struct plm_error *error);
/* PLM_CONFIG if the cursor belongs to another data plan than this one. */
plm_status plm_data_cursor_check_plan(const struct plm_data_cursor *cursor, struct plm_hash plan,
                                      struct plm_error *error);

#endif
