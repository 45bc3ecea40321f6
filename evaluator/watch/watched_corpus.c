/* The corpus of the run that is watched. */
#include "evaluator/watch/watched_corpus.h"

#include <time.h>

#include "common/corpus/corpus_description.h"
#include "common/run/run.h"
#include "common/run/stop.h"

enum { POLL_MS = 50 };

static const struct plm_hash unknown;

/* Of a mixture, the splits of the first corpus are evaluated, whichever packer comes first. */
static plm_status read_fingerprint(const char *corpus, struct plm_hash *fingerprint,
                                   struct plm_error *error)
{
  struct plm_corpus_description description;
  const plm_status status = plm_corpus_description_read(corpus, &description, error);
  if (status != PLM_OK) {
    (void)plm_error_where(error, "corpus: source 0, %s", corpus);
    if (status == PLM_NOT_FOUND) error->status = PLM_UNAVAILABLE; /* not mounted now? */
    return plm_error_hint(error, "the evaluator of a mixture must be able to read the corpus.json "
                                 "of its first corpus");
  }
  *fingerprint = description.info.fingerprint;
  plm_corpus_description_deinit(&description);
  return PLM_OK;
}

plm_status plm_watched_corpus_find(const struct plm_config *config, struct plm_run_corpus *corpus,
                                   struct plm_error *error)
{
  PLM_TRY(plm_run_corpus_read(config->run, corpus, error));
  if (config->source_count <= 1 || !plm_hash_equal(corpus->fingerprint, unknown)) return PLM_OK;
  PLM_TRY(read_fingerprint(config->corpus, &corpus->fingerprint, error));
  corpus->root = corpus->fingerprint;
  return PLM_OK;
}

static bool watched_corpus_stopping(const volatile int *give_up)
{
  return __atomic_load_n(give_up, __ATOMIC_ACQUIRE) != 0 ||
         __atomic_load_n(&plm_stop_requested, __ATOMIC_ACQUIRE) != 0;
}

/* *named: zero if no trainer runs that could name it. */
static plm_status await_name(const char *run, struct plm_run_pulse *pulse,
                             const volatile int *give_up, struct plm_hash *named,
                             struct plm_error *error)
{
  for (;;) {
    struct plm_lock_holder holder;
    const bool trains = plm_lock_holder(run, "trainer", &holder, NULL) == PLM_OK;
    struct plm_run_corpus corpus;
    PLM_TRY(plm_run_corpus_read(run, &corpus, error)); /* after the look at the lock */
    *named = plm_hash_equal(corpus.root, unknown) ? corpus.fingerprint : corpus.root;
    if (!trains || !plm_hash_equal(*named, unknown)) return PLM_OK;
    if (watched_corpus_stopping(give_up))
      return plm_error_set(error, PLM_INTERRUPTED, "the trainer has not named its corpus yet");
    plm_run_pulse_wait(pulse, "waiting for the trainer's corpus");
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    nanosleep(&pause, NULL);
  }
}

plm_status plm_watched_corpus_check(const char *run, struct plm_hash served,
                                    struct plm_run_pulse *pulse, const volatile int *give_up,
                                    bool *known, struct plm_error *error)
{
  struct plm_hash named;
  char hex[2][PLM_HASH_HEX_SIZE];
  PLM_TRY(await_name(run, pulse, give_up, &named, error));
  *known = !plm_hash_equal(named, unknown);
  if (!*known || plm_hash_equal(named, served)) return PLM_OK;
  *known = false;
  plm_hash_to_hex(named, hex[0]);
  plm_hash_to_hex(served, hex[1]);
  plm_error_set(error, PLM_UNAVAILABLE,
                "the run trains on corpus %s, but the evaluator's first packer serves %s", hex[0],
                hex[1]);
  return plm_error_hint(error, "start the evaluator again: it then accepts only packers of the "
                               "run's corpus");
}

double plm_watched_corpus_entropy(const struct plm_feed_corpus *corpus)
{
  uint64_t counts[512] = {0};
  for (int split = 0; split < PLM_SPLIT_COUNT; split++)
    for (int id = 0; id < 512; id++) counts[id] += corpus->composition[split][id];
  return plm_composition_entropy(counts, 512);
}
