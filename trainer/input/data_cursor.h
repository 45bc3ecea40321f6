/* The run's position in the data plan: what training has consumed, not what was received.
 *
 * A resume needs nothing else to continue with the next chunk. A rolling hash over everything
 * consumed tells whether two runs saw the same data. See doc/training.md#the-cursor.
 */
#ifndef PLM_TRAINER_INPUT_DATA_CURSOR_H
#define PLM_TRAINER_INPUT_DATA_CURSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/base/status.h"
#include "common/feed/feed.h"
#include "common/plan/chunk.h"
#include "common/plan/mixture.h"

/* Where a run is in one of its corpora. */
struct plm_data_source {
  struct plm_hash fingerprint; /* of the corpus; zero before the first packer */
  struct plm_hash plan;        /* plm_plan_hash of its data plan */
  uint64_t chunks;             /* consumed */
  /* Which chunk comes next. After a resume, how many windows and chunks there are is not known
   * until the first step. The place may then be beyond the chunks of its window: older checkpoints
   * count from the beginning of the epoch. */
  struct plm_feed_position next;
};

struct plm_data_cursor {
  uint64_t seed;
  uint64_t chunks;       /* g: consumed by the whole run */
  struct plm_hash chain; /* over everything consumed: common/plan/chain.h */
  struct plm_hasher *hasher;
  struct plm_data_source sources[PLM_MAX_SOURCES];
  uint32_t source_count; /* at least 1 */
  /* The configuration has a list of corpora, if only of one, or had one: chain and JSON name the
   * source of what was consumed. */
  bool mixed;
  struct plm_mixture_history mixture; /* of the sources, over time */
};

/* At the start of a run on one corpus. plan is the hash of its data plan. */
void plm_data_cursor_init(struct plm_data_cursor *cursor, struct plm_hash plan, uint64_t seed);
void plm_data_cursor_deinit(struct plm_data_cursor *cursor);

/* Epochs of the first source that were consumed. The last one counts in part: by its windows, and
 * the last of these by its chunks. All windows but the last of an epoch have the same number of
 * groups. NAN if the number of windows, or of chunks in the cursor's window, is needed and not
 * known yet, as between a resume and the first step. */
double plm_data_cursor_epochs(const struct plm_data_cursor *cursor);

/* The data plan of the run: that of its corpus or, if it is mixed, a hash of the plans and
 * fingerprints of its sources and of the mixture's last part. */
struct plm_hash plm_data_cursor_plan(const struct plm_data_cursor *cursor);

/* Moves the cursor past a batch, which says the source of each chunk. next (PLM_MAX_SOURCES): the
 * position after the batch of each source that it has chunks of; the other elements are not read.
 */
void plm_data_cursor_consume(struct plm_data_cursor *cursor, const struct plm_batch *batch,
                             const struct plm_feed_position *next);

struct cJSON;
struct cJSON *plm_data_cursor_to_json(const struct plm_data_cursor *cursor);
/* Reads into an initialised cursor and replaces its sources. PLM_FORMAT names a defect. */
plm_status plm_data_cursor_from_json(struct plm_data_cursor *cursor, const struct cJSON *json,
                                     struct plm_error *error);
/* PLM_CONFIG if the source has another data plan than this one. */
plm_status plm_data_source_check_plan(const struct plm_data_source *source, struct plm_hash plan,
                                      struct plm_error *error);

#endif
