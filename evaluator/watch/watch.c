/* The loop of the watching evaluator: scan for checkpoints, verify, evaluate, report, and wait. */
#include "evaluator/watch/watch.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/files/descriptors.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/process/thread.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/history.h"
#include "common/feed/feed_run.h"
#include "common/run/run.h"
#include "common/run/run_pulse.h"
#include "common/run/stop.h"
#include "common/wire/announce.h"
#include "evaluator/evaluate/evaluate.h"
#include "evaluator/watch/checkpoints_seen.h"
#include "evaluator/watch/feed_stream.h"
#include "evaluator/watch/held_out.h"
#include "evaluator/watch/missing_steps.h"
#include "evaluator/watch/watch_journal.h"
#include "evaluator/watch/watch_report.h"
#include "evaluator/watch/watch_tasks.h"
#include "evaluator/watch/watched_corpus.h"

enum { POLL_MS = 200 };

struct watch {
  const struct plm_config *config;
  struct plm_ops *ops;
  struct plm_held_out_list held_out; /* what to evaluate on */
  struct plm_watch_tasks tasks;
  char checkpoints[PLM_PATH_SIZE], trainer_path[PLM_PATH_SIZE];
  char keys[PLM_PATH_SIZE]; /* the folder of CURVE keys */
  struct plm_run_pulse pulse;
  char doing[PLM_PULSE_DOING]; /* while it evaluates */
  struct plm_watch_journal journal;
  struct plm_tensorboard *board; /* NULL if it is off */
  char board_path[PLM_PATH_SIZE];
  struct plm_feed *feed;
  bool knows_corpus; /* the feed accepts only the run's, or the one that it accepted is that */
  struct plm_feed_run *feed_run;
  struct plm_announcement_listener *listener; /* NULL: only polling */
  struct plm_evaluation *evaluation;          /* NULL until the first checkpoint */
  struct plm_seen_list seen;
  struct plm_seen listing; /* attempts to list the folder; not a checkpoint */
  double baseline_entropy;
  pthread_t watchdog;
  bool watchdog_runs;
  int closing;          /* atomic; ends the watchdog */
  volatile int give_up; /* set atomically by the watchdog; polled while the feed waits */
};

/* Called by the thread that evaluates, while it waits for the feed. */
static void watch_tell_waiting(void *context, uint32_t packers)
{
  struct watch *watch = context;
  plm_run_pulse_wait(&watch->pulse, packers == 0 ? "waiting for packers" : "waiting for chunks");
}

static plm_status open_feed(struct watch *watch, struct plm_error *error)
{
  const struct plm_config *config = watch->config;
  struct plm_feed_options options = {
      .endpoint = config->network.evaluation_feed,
      .keys = watch->keys,
      .role = "evaluator",
      .plan = plm_config_evaluation_plan(config),
      .split = PLM_SPLIT_VALID,
      .one_of_several = config->source_count > 1,
      .credit_bytes = plm_feed_stream_credit(config),
      .wait_packers_s = config->network.wait_packers_s,
      .waiting = watch_tell_waiting,
      .waiting_context = watch,
  };
  struct plm_run_corpus corpus;
  PLM_TRY(plm_watched_corpus_find(config, &corpus, error));
  options.fingerprint = corpus.fingerprint;
  options.root = corpus.root;
  watch->knows_corpus = !plm_hash_equal(options.fingerprint, (struct plm_hash){0});
  PLM_TRY(plm_run_keys(config->run, config->network.keys, watch->keys, error));
  PLM_TRY(plm_run_id(config->run, &options.run_id, error));
  PLM_TRY(plm_feed_open(&options, &watch->feed, error));
  const struct plm_feed_run_options telling = {
      .run = config->run,
      .role = options.role,
      .feed = watch->feed,
      .other_key = "feed",
      .other_bind = config->network.feed,
      .other_address = config->network.feed_address,
  };
  PLM_TRY(plm_feed_run_open(&telling, &watch->feed_run, error));
  return plm_endpoint_write(config->run, "evaluation_feed", plm_feed_bound(watch->feed), error);
}

static plm_status open_outputs(struct watch *watch, struct plm_error *error)
{
  const char *run = watch->config->run;
  char *board = watch->board_path;
  PLM_TRY(plm_path_join(watch->checkpoints, run, PLM_RUN_CHECKPOINTS, error));
  PLM_TRY(plm_path_join(watch->trainer_path, run, PLM_RUN_TRAINER_METRICS, error));
  PLM_TRY(plm_path_join(board, run, PLM_RUN_TENSORBOARD "/evaluator", error));
  PLM_TRY(plm_lock_acquire(run, "evaluator", &watch->journal.lock, error));
  plm_run_pulse_begin(&watch->pulse, run, "evaluator");
  plm_run_pulse(&watch->pulse, true, "starting");
  PLM_TRY(plm_watch_journal_open(&watch->journal, watch->config, error));
  if (!watch->config->tensorboard) return PLM_OK;
  const struct plm_history *history = &watch->journal.history;
  const int64_t last = history->count > 0 ? (int64_t)history->entries[history->count - 1].step : -1;
  PLM_TRY(plm_tensorboard_open(board, last, &watch->board, error));
  plm_watch_report_settings(watch->config, &watch->held_out, board);
  return PLM_OK;
}

/* After a stop signal, the evaluation may be finished within the grace period, unless it waits for
 * packers and all of them are gone: they may have got the signal as well. */
static void *watch_for_stop(void *context)
{
  struct watch *watch = context;
  const int64_t grace_ms = (int64_t)(1000 * watch->config->trainer.stop_timeout_s);
  int64_t give_up_at_ms = 0;
  while (!__atomic_load_n(&watch->closing, __ATOMIC_ACQUIRE)) {
    const struct timespec pause = {.tv_nsec = 50 * 1000000L};
    nanosleep(&pause, NULL);
    if (__atomic_load_n(&plm_stop_requested, __ATOMIC_ACQUIRE) == 0) continue;
    if (give_up_at_ms == 0) {
      give_up_at_ms = plm_clock_ms() + grace_ms;
      plm_feed_hurry(watch->feed);
    }
    if (plm_clock_ms() >= give_up_at_ms) __atomic_store_n(&watch->give_up, 1, __ATOMIC_RELEASE);
  }
  return NULL;
}

static plm_status open_watch(struct watch *watch, struct plm_error *error)
{
  PLM_TRY(plm_held_out_open(watch->config, &watch->held_out, error));
  PLM_TRY(plm_watch_tasks_open(watch->config, &watch->tasks, error));
  PLM_TRY(plm_run_check_moved(watch->config->run, error));
  PLM_TRY(plm_directory_make(watch->config->run, error));
  PLM_TRY(open_outputs(watch, error));
  PLM_TRY(open_feed(watch, error));
  PLM_TRY(plm_thread_start(&watch->watchdog, "watchdog", watch_for_stop, watch, error));
  watch->watchdog_runs = true;
  return PLM_OK;
}

static void close_watch(struct watch *watch)
{
  __atomic_store_n(&watch->closing, 1, __ATOMIC_RELEASE);
  if (watch->watchdog_runs) pthread_join(watch->watchdog, NULL);
  plm_evaluation_close(watch->evaluation);
  plm_listener_close(watch->listener);
  plm_feed_run_close(watch->feed_run);
  if (watch->feed != NULL) plm_endpoint_remove(watch->config->run, "evaluation_feed");
  plm_feed_close(watch->feed);
  plm_tensorboard_close(watch->board);
  plm_watch_journal_close(&watch->journal);
  plm_run_pulse_end(&watch->pulse);
  plm_lock_release(watch->journal.lock);
  plm_held_out_close(&watch->held_out);
  plm_watch_tasks_close(&watch->tasks);
  plm_seen_deinit(&watch->seen);
}

static plm_status give_sign(struct watch *watch, bool patient, struct plm_error *error)
{
  plm_run_pulse(&watch->pulse, patient, "%s", watch->doing);
  if (__atomic_load_n(&watch->give_up, __ATOMIC_ACQUIRE) == 0) return PLM_OK;
  return plm_error_set(error, PLM_INTERRUPTED, "the evaluation was given up");
}

/* Called before each batch. */
static plm_status check_give_up(void *context, struct plm_error *error)
{
  return give_sign(context, false, error);
}

/* The same in a task, where an assay or the fit of a probe is long and gives no sign of life. */
static plm_status check_task(void *context, struct plm_error *error)
{
  return give_sign(context, true, error);
}

/* The checkpoint that is being evaluated. */
struct subject {
  uint64_t step;
  struct plm_hash identity;
};

static plm_status watch_report(struct watch *watch, const struct subject *subject,
                               const struct plm_held_out *held_out,
                               const struct plm_evaluation_result *result, const char *skipped,
                               struct plm_error *error)
{
  const struct plm_watch_report told = {
      .step = subject->step,
      .identity = subject->identity,
      .weights = plm_evaluation_weights(watch->evaluation),
      .held_out = held_out,
      .baseline_entropy =
          held_out->corpus != NULL ? held_out->baseline_entropy : watch->baseline_entropy,
      .result = result,
      .skipped = skipped,
  };
  PLM_TRY(
      plm_watch_write(&watch->journal, plm_watch_report_line(&told, watch->trainer_path), error));
  plm_history_add(&watch->journal.history, subject->step, &subject->identity, held_out->bit);
  plm_watch_report_board(&told, watch->board);
  plm_watch_report_log(&told);
  return PLM_OK;
}

static void set_baseline_entropy(struct watch *watch, const struct plm_feed_corpus *corpus)
{
  if (watch->baseline_entropy > 0) return;
  watch->baseline_entropy = plm_watched_corpus_entropy(corpus);
  if (!corpus->clustered) plm_info("split %s", plm_corpus_split_words(false));
}

/* Asks the first packer about the corpus, until it is known to be the run's. */
static plm_status watch_learn_corpus(struct watch *watch, struct plm_error *error)
{
  if (watch->baseline_entropy > 0 && watch->knows_corpus) return PLM_OK;
  struct plm_feed_corpus *corpus = plm_alloc_zeroed(1, sizeof *corpus);
  plm_status status = plm_feed_corpus(watch->feed, &watch->give_up, corpus, error);
  if (status == PLM_OK && !watch->knows_corpus)
    status = plm_watched_corpus_check(watch->config->run, corpus->fingerprint, &watch->pulse,
                                      &watch->give_up, &watch->knows_corpus, error);
  if (status == PLM_OK) set_baseline_entropy(watch, corpus);
  free(corpus);
  return status;
}

static plm_status load_checkpoint(struct watch *watch, const char *directory,
                                  struct plm_error *error)
{
  if (watch->evaluation == NULL)
    PLM_TRY(plm_evaluation_open(directory, 0, watch->ops, &watch->evaluation, error));
  struct plm_advance advance = plm_run_pulse_reading(&watch->pulse);
  return plm_evaluation_load(watch->evaluation, directory, &advance, error);
}

/* What is to be reported of a checkpoint: bits as in history.h. */
static unsigned wanted_of(const struct watch *watch, uint64_t step)
{
  return watch->held_out.bits | plm_watch_tasks_due(&watch->tasks, step);
}

static unsigned reported_of(const struct watch *watch, const struct subject *subject)
{
  return plm_history_splits(&watch->journal.history, subject->step, &subject->identity);
}

/* The tasks that are due and not yet reported. */
static plm_status run_tasks(struct watch *watch, const struct subject *subject,
                            const char *directory, struct plm_error *error)
{
  const struct plm_task_subject about = {.step = subject->step,
                                         .identity = subject->identity,
                                         .directory = directory,
                                         .checkpoints = watch->checkpoints,
                                         .trainer_path = watch->trainer_path,
                                         .ops = watch->ops,
                                         .check = check_task,
                                         .context = watch};
  const unsigned due = plm_watch_tasks_due(&watch->tasks, subject->step);
  for (uint32_t i = 0; i < watch->config->evaluator.task_count; i++) {
    if ((due & ~reported_of(watch, subject) & 1u << (PLM_HISTORY_TASK + i)) == 0) continue;
    snprintf(watch->doing, sizeof watch->doing, "step %" PRIu64 " (%s)", subject->step,
             watch->config->evaluator.tasks[i].name);
    plm_run_pulse(&watch->pulse, true, "%s", watch->doing);
    PLM_TRY(plm_watch_task_report(&watch->tasks, i, &about, &watch->journal, watch->board, error));
  }
  return PLM_OK;
}

/* Evaluates the splits and sets that are not yet reported, with the weights that are loaded. */
static plm_status evaluate_checkpoint(struct watch *watch, const struct subject *subject,
                                      struct plm_error *error)
{
  const struct plm_config_evaluator *options = &watch->config->evaluator;
  const struct plm_evaluation_options evaluation = {
      .mask_rate = options->mask_rate,
      .more_rates = options->mask_rates,
      .more_rate_count = options->mask_rate_count,
      .seed = options->seed,
      .elbo_rates = options->elbo_rates,
      .labels = (const char *const *)watch->config->trainer.labels,
      .label_count = watch->config->trainer.label_count,
      .labels_of_run = true,
  };
  struct plm_feed_stream state = {watch->feed, &watch->give_up};
  if ((reported_of(watch, subject) & watch->held_out.bits) == watch->held_out.bits) return PLM_OK;
  PLM_TRY(watch_learn_corpus(watch, error));
  for (uint32_t i = 0; i < watch->held_out.count; i++) {
    const struct plm_held_out *held_out = &watch->held_out.items[i];
    if (reported_of(watch, subject) & 1u << held_out->bit) continue;
    struct plm_evaluation_result result;
    snprintf(watch->doing, sizeof watch->doing, "evaluating step %" PRIu64 " (%s)", subject->step,
             held_out->corpus != NULL ? held_out->set : plm_split_name(held_out->split));
    const struct plm_chunk_stream stream = held_out->stream != NULL
                                               ? plm_stream_of_corpus(held_out->stream)
                                               : plm_stream_of_feed(&state);
    const plm_status status = plm_evaluation_run(watch->evaluation, &stream, held_out->split,
                                                 &evaluation, check_give_up, watch, &result, error);
    const bool unfit = status == PLM_CONFIG && held_out->corpus != NULL; /* others may fit */
    if (status != PLM_OK && !unfit) return status;
    PLM_TRY(watch_report(watch, subject, held_out, &result, unfit ? error->what : NULL, error));
  }
  return PLM_OK;
}

/* The checkpoint does not load, or its model computes NaN. What may pass is tried again later. */
static plm_status give_up_or_postpone(struct watch *watch, uint64_t step, plm_status status,
                                      const struct plm_error *why, struct plm_error *error)
{
  char text[700];
  struct plm_seen *seen = plm_seen_at(&watch->seen, step);
  if (plm_seen_may_pass(status)) {
    const unsigned wait_s = plm_seen_postpone(seen, plm_clock_ms());
    if (wait_s > 0) {
      plm_warning("step %" PRIu64 " cannot be read; the next attempt is in %u s: %s", step, wait_s,
                  why->what);
      snprintf(text, sizeof text, "cannot be read yet: %.600s", why->what);
      plm_watch_wait(&watch->journal, step, text);
      return PLM_OK;
    }
  }
  seen->failed = true;
  const struct plm_history_entry *entry = plm_history_find(&watch->journal.history, step);
  if (entry != NULL && entry->skipped) return PLM_OK; /* reported before a restart */
  snprintf(text, sizeof text, "%s: %.600s",
           status == PLM_NOT_FINITE ? "cannot be evaluated" : "does not verify or load", why->what);
  return plm_watch_skip(&watch->journal, step,
                        plm_seen_is_corrupt(status) ? PLM_SKIP_CORRUPT : PLM_SKIP_UNREAD, text,
                        error);
}

/* Verifies and evaluates one checkpoint. If the checkpoint itself is at fault, it is skipped; an
 * error in the evaluation is the evaluator's own failure. */
static plm_status handle_checkpoint(struct watch *watch, uint64_t step, struct plm_error *error)
{
  char name[PLM_CHECKPOINT_NAME_SIZE], directory[PLM_PATH_SIZE];
  struct subject subject = {.step = step};
  struct plm_error why = {0};
  plm_checkpoint_name(step, name);
  PLM_TRY(plm_path_join(directory, watch->checkpoints, name, error));
  plm_run_pulse(&watch->pulse, true, "verifying step %" PRIu64, step);
  struct plm_advance advance = plm_run_pulse_reading(&watch->pulse);
  plm_status status = plm_checkpoint_verify(directory, NULL, &subject.identity, &advance, &why);
  plm_run_pulse(&watch->pulse, true, "loading step %" PRIu64, step);
  if (status == PLM_OK) status = load_checkpoint(watch, directory, &why);
  if (status == PLM_OK) {
    status = evaluate_checkpoint(watch, &subject, error);
    if (status == PLM_OK) status = run_tasks(watch, &subject, directory, error);
    if (status == PLM_OK || status == PLM_INTERRUPTED) return status;
    /* Retention may delete it once its splits are reported, while its tasks still run. */
    if (status != PLM_NOT_FINITE && plm_file_exists(directory)) return status;
    why = *error;
  }
  if (!plm_file_exists(directory)) return PLM_OK; /* the next scan reports it as deleted */
  return give_up_or_postpone(watch, step, status, &why, error);
}

/* Lists the folder. If that fails for a reason that may pass, there is nothing to do until the next
 * attempt, and *steps stays NULL. */
static plm_status list_checkpoints(struct watch *watch, uint64_t **steps, size_t *count,
                                   struct plm_error *error)
{
  *steps = NULL;
  if (plm_clock_ms() < watch->listing.retry_at_ms) return PLM_OK;
  const plm_status status = plm_checkpoint_list(watch->checkpoints, steps, count, error);
  if (status == PLM_NOT_FOUND) return PLM_OK; /* nothing is published yet */
  if (status == PLM_OK) watch->listing.attempts = 0;
  if (!plm_seen_may_pass(status)) return status;
  const unsigned wait_s = plm_seen_postpone(&watch->listing, plm_clock_ms());
  if (wait_s == 0) return status;
  plm_warning("the next attempt is in %u s: %s", wait_s, error->what);
  return PLM_OK;
}

/* Looks at all checkpoints, oldest first. *again: something was reported, so look again at once. */
static plm_status scan(struct watch *watch, bool *again, struct plm_error *error)
{
  uint64_t *steps;
  size_t count;
  *again = false;
  PLM_TRY(list_checkpoints(watch, &steps, &count, error));
  if (steps == NULL) return PLM_OK;
  (void)plm_watch_tasks_look(&watch->tasks);
  const struct plm_published published = {.folder = watch->checkpoints,
                                          .every = watch->config->trainer.checkpoint.every,
                                          .steps = steps,
                                          .count = count};
  plm_status status =
      plm_missing_report(&watch->journal, &watch->seen, &published, watch->held_out.bits, error);
  for (size_t i = 0; i < count && status == PLM_OK && plm_stop_requested == 0; i++) {
    const struct plm_seen *seen = plm_seen_look(&watch->seen, watch->checkpoints, steps[i]);
    const unsigned reported =
        plm_history_splits(&watch->journal.history, steps[i], plm_seen_identity(seen));
    const unsigned wanted = wanted_of(watch, steps[i]);
    if (seen->failed || (reported & wanted) == wanted) continue;
    if (plm_clock_ms() < seen->retry_at_ms) continue;
    const uint64_t lines = watch->journal.lines;
    status = handle_checkpoint(watch, steps[i], error);
    if (watch->journal.lines != lines) {
      *again = true; /* the folder may have changed since; start again with the oldest */
      break;
    }
  }
  free(steps);
  return status;
}

/* Whether DONE exists and everything is reported. The folder is listed again, because DONE is
 * written after the last checkpoint, which the last scan may have missed. */
static bool watch_complete(struct watch *watch)
{
  const struct plm_history *history = &watch->journal.history;
  uint64_t *steps;
  size_t count;
  if (!plm_watch_tasks_look(&watch->tasks)) return false;
  if (!plm_history_settled(history, watch->tasks.last, NULL, watch->held_out.bits)) return false;
  bool all = plm_checkpoint_list(watch->checkpoints, &steps, &count, NULL) == PLM_OK;
  for (size_t i = 0; i < count && all; i++) {
    const struct plm_seen *seen = plm_seen_look(&watch->seen, watch->checkpoints, steps[i]);
    const unsigned wanted = wanted_of(watch, steps[i]);
    all = plm_history_settled(history, steps[i], plm_seen_identity(seen), wanted);
  }
  free(steps);
  return all;
}

/* Where the trainer announces checkpoints: the address in the configuration, or else the endpoint
 * that the trainer bound, if it has. */
static const char *find_announcements(const struct watch *watch, char bound[512])
{
  const char *address = watch->config->network.announcements_address;
  if (address != NULL) return address;
  const plm_status status = plm_endpoint_read(watch->config->run, "announcements", bound, NULL);
  return status == PLM_OK ? bound : NULL;
}

/* Waits for an announcement, or for the poll interval to pass. */
static void wait_for_news(struct watch *watch)
{
  struct plm_announcement message;
  char bound[512];
  const char *endpoint = watch->listener == NULL ? find_announcements(watch, bound) : NULL;
  if (endpoint != NULL &&
      plm_listener_open(endpoint, watch->keys, &watch->listener, NULL) != PLM_OK)
    watch->listener = NULL;
  if (watch->listener != NULL) {
    (void)plm_listener_wait(watch->listener, POLL_MS, &message, NULL);
    return;
  }
  nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
}

plm_status plm_watch(const struct plm_config *config, struct plm_ops *ops, struct plm_error *error)
{
  struct watch *watch = plm_alloc_zeroed(1, sizeof *watch);
  watch->config = config;
  watch->ops = ops;
  /* For reading checkpoints and writing reports; before connections can take them all. */
  plm_descriptors_reserve();
  plm_status status = open_watch(watch, error);
  if (status == PLM_OK) plm_ready();
  while (status == PLM_OK && plm_stop_requested == 0) {
    bool again;
    plm_run_pulse(&watch->pulse, false, "waiting for a checkpoint");
    plm_descriptors_lend();
    status = scan(watch, &again, error);
    plm_descriptors_reclaim();
    if (status != PLM_OK || again) continue;
    if (watch_complete(watch)) {
      if (watch->board != NULL) plm_watch_report_complete(watch->board_path);
      break;
    }
    wait_for_news(watch);
  }
  if (status == PLM_INTERRUPTED) { /* the checkpoint stays unreported */
    plm_info("stopped before the checkpoint was evaluated; it will be evaluated after the next "
             "start");
    status = PLM_OK;
  }
  if (status == PLM_OK && !watch_complete(watch)) status = plm_stop_drained(error);
  close_watch(watch);
  free(watch);
  return status;
}
