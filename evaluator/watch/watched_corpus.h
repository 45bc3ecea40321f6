/* Which corpus a watching evaluator takes chunks of: the one that the run trains on. */
#ifndef PLM_EVALUATOR_WATCH_WATCHED_CORPUS_H
#define PLM_EVALUATOR_WATCH_WATCHED_CORPUS_H

#include "common/base/numbers/hash.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/feed/feed.h"
#include "common/run/run.h"
#include "common/run/run_pulse.h"

/* The corpus that the run folder names (plm_run_corpus_read), or else, of a mixture, its first
 * one. Zeros: not known yet. PLM_UNAVAILABLE: the corpus.json of a mixture's first
 * corpus cannot be read. */
plm_status plm_watched_corpus_find(const struct plm_config *config, struct plm_run_corpus *corpus,
                                   struct plm_error *error);

/* The entropy in nats of the composition of all splits of the corpus that is served. */
double plm_watched_corpus_entropy(const struct plm_feed_corpus *corpus);

/* Compares the corpus that is served with the run's, if that was not known before. As long as a
 * trainer runs that has not named the corpus yet, waits for it, with signs of life, until
 * *give_up is nonzero or the process is asked to stop: PLM_INTERRUPTED. *known: the run has named
 * its corpus, and it is the one served. PLM_UNAVAILABLE if it is another one; a new start of the
 * evaluator refuses its packers. */
plm_status plm_watched_corpus_check(const char *run, struct plm_hash served,
                                    struct plm_run_pulse *pulse, const volatile int *give_up,
                                    bool *known, struct plm_error *error);

#endif
