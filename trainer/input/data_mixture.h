/* The corpora of a run, one or several: which ones, and what a resume changes about them. */
#ifndef PLM_TRAINER_INPUT_DATA_MIXTURE_H
#define PLM_TRAINER_INPUT_DATA_MIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/feed/feed.h"
#include "common/plan/mixture.h"
#include "common/plan/plan.h"
#include "trainer/input/data_cursor.h"

/* The fingerprints of a run's corpora, as far as they were given: none, or all of the list. A
 * corpus that was upgraded to a newer format also has that from before; zero: it was not. */
struct plm_fingerprints {
  struct plm_hash of[PLM_MAX_SOURCES], before[PLM_MAX_SOURCES];
  uint32_t count;
};
/* Reads "HEX,HEX"; after an upgrade a corpus is "HEX:HEX", with the fingerprint from before second.
 * PLM_USAGE. */
plm_status plm_fingerprints_parse(const char *text, struct plm_fingerprints *fingerprints,
                                  struct plm_error *error);

/* Sets *pinned to the fingerprint of corpus k by which the run knows it: that in the cursor, or,
 * for a corpus that is new to the run (*pinned is zero), that which was given. False: the run began
 * with another corpus. */
bool plm_fingerprints_pin(const struct plm_fingerprints *fingerprints, uint32_t k,
                          struct plm_hash *pinned);

/* What the configuration says about the corpora. */
struct plm_data_sources {
  uint32_t count;                     /* at least 1 */
  bool listed;                        /* in a list, if only of one */
  const char *paths[PLM_MAX_SOURCES]; /* borrowed; NULL: none */
  struct plm_plan_parameters plans[PLM_MAX_SOURCES];
  struct plm_mixture mixture;
  uint32_t step_chunks;
};

/* Makes the cursor that of these sources from step s (from 0) on. Fingerprints that are not given
 * are those of the cursor or, of a list, are read from the corpora's folders; a single corpus may
 * be unknown until the first packer. PLM_CONFIG: a source is another corpus or has another plan
 * than before, cannot be read, or is there twice. PLM_USAGE: other fingerprints are given than
 * there are sources. */
plm_status plm_data_mixture_begin(struct plm_data_cursor *cursor,
                                  const struct plm_data_sources *sources,
                                  const struct plm_fingerprints *given, uint64_t s,
                                  struct plm_error *error);

/* What the feed needs to know of the sources, into of_feed (count). roots: what packers prove;
 * zero: not known. The names are borrowed from sources. */
void plm_data_mixture_feed(const struct plm_data_cursor *cursor,
                           const struct plm_data_sources *sources, const struct plm_hash *roots,
                           struct plm_feed_source_options *of_feed);
/* Moves the feed to the position of each source. */
void plm_data_cursor_seek(struct plm_feed *feed, const struct plm_data_cursor *cursor);

#endif
