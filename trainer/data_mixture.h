/* The corpora of a run that trains on several: which ones, and what a resume changes about them. */
#ifndef PLM_TRAINER_DATA_MIXTURE_H
#define PLM_TRAINER_DATA_MIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/config/config.h"
#include "common/feed/feed.h"
#include "trainer/data_cursor.h"

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

/* Whether the run is a mixture: its configuration has a list, or had one. */
bool plm_is_mixture(const struct plm_config *config, const struct plm_data_cursor *cursor);

/* Makes the cursor of a mixture that of config's sources from step s (from 0) on. Fingerprints that
 * are not given are read from the corpora's folders, or are those of the cursor. PLM_CONFIG: a
 * source is another corpus than before, cannot be read, or is there twice. */
plm_status plm_data_mixture_begin(struct plm_data_cursor *cursor, const struct plm_config *config,
                                  const struct plm_fingerprints *given, uint64_t s,
                                  struct plm_error *error);

/* What the feed needs to know of the sources, into sources (cursor->source_count). roots: what
 * packers prove; zero: not known. The names are borrowed from config. */
void plm_data_mixture_feed(const struct plm_data_cursor *cursor, const struct plm_config *config,
                           const struct plm_hash *roots, struct plm_feed_source_options *sources);
/* Moves the feed to the cursor's position, or to that of each of its sources. */
void plm_data_cursor_seek(struct plm_feed *feed, const struct plm_data_cursor *cursor);

#endif
