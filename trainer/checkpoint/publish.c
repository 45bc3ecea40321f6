/* The writer thread: one snapshot at a time, handed over under a mutex. */
#include "trainer/checkpoint/publish.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/files/descriptors.h"
#include "common/base/log/log.h"
#include "common/base/process/thread.h"
#include "trainer/checkpoint/retention_apply.h"

enum { DESCRIPTOR_TRIES = 40, DESCRIPTOR_WAIT_MS = 250, WAIT_MS = 100 };

enum owner { OWNER_NOBODY, OWNER_TRAINER, OWNER_WRITER };

struct plm_publisher {
  struct plm_checkpoint_context context;
  struct plm_announcer *announcer;
  struct plm_ops *ops;
  struct plm_snapshot snapshot;
  void (*waiting)(void *context); /* NULL: nobody wants to know */
  void *waiting_context;
  pthread_t thread;
  pthread_mutex_t mutex; /* guards everything below */
  pthread_cond_t changed;
  enum owner owner; /* of the snapshot */
  bool closing, ended;
  struct plm_publisher_outcome outcome;
};

static void publish_announce(struct plm_publisher *publisher, uint64_t step,
                             struct plm_hash manifest)
{
  char name[PLM_CHECKPOINT_NAME_SIZE];
  struct plm_announcement message = {.step = step, .manifest = manifest};
  plm_checkpoint_name(step, name);
  snprintf(message.path, sizeof message.path, "%s/%s", PLM_RUN_CHECKPOINTS, name);
  if (publisher->announcer != NULL) plm_announcer_send(publisher->announcer, &message);
}

/* A failure is only a warning: the checkpoint itself is published. */
static void apply_retention(const struct plm_checkpoint_context *context, uint64_t step)
{
  const struct plm_checkpoint_options *options = &context->options;
  struct plm_error error = {0};
  if (plm_retention_apply(context->run, options->rules, &options->judge, step, &error) != PLM_OK)
    plm_warning("old checkpoints could not be deleted: %s", error.what);
}

/* Too few descriptors say nothing about the disk, so they do not count towards the
 * failures in a row that end the run. */
static void count_failure(struct plm_publisher_outcome *outcome, plm_status status, uint64_t step)
{
  outcome->failed_in_a_row += status != PLM_NO_DESCRIPTORS;
  outcome->failures++;
  outcome->failed_step = step;
}

static void say_failed(const struct plm_error *error, uint64_t step, uint32_t in_a_row)
{
  plm_log_error(error);
  plm_warning("checkpoint %llu FAILED (%u in a row); the previous one is intact",
              (unsigned long long)step, in_a_row);
}

static bool is_closing(struct plm_publisher *publisher)
{
  pthread_mutex_lock(&publisher->mutex);
  const bool closing = publisher->closing;
  pthread_mutex_unlock(&publisher->mutex);
  return closing;
}

/* Publishes with the descriptors that are reserved for it. If even those do not suffice, the
 * connections that use them all are broken soon, so it is tried again. */
static plm_status publish_checkpoint(struct plm_publisher *publisher, struct plm_hash *identity,
                                     struct plm_hash *manifest, struct plm_error *error)
{
  const struct timespec pause = {.tv_nsec = DESCRIPTOR_WAIT_MS * 1000000L};
  plm_status status = PLM_NO_DESCRIPTORS;
  for (int i = 0; i < DESCRIPTOR_TRIES && status == PLM_NO_DESCRIPTORS; i++) {
    if (i == 1)
      plm_warning("checkpoint %llu is tried again: %s",
                  (unsigned long long)publisher->snapshot.step, error->what);
    if (i > 0 && !is_closing(publisher)) (void)nanosleep(&pause, NULL);
    plm_descriptors_lend();
    status = plm_checkpoint_folder_publish(&publisher->context, &publisher->snapshot, identity,
                                           manifest, error);
    plm_descriptors_reclaim();
  }
  return status;
}

static void write_snapshot(struct plm_publisher *publisher)
{
  const uint64_t step = publisher->snapshot.step, started = plm_clock_ns();
  struct plm_hash identity = {0}, manifest = {0};
  struct plm_error error = {0};
  const plm_status status = publish_checkpoint(publisher, &identity, &manifest, &error);
  if (status == PLM_OK) {
    publish_announce(publisher, step, manifest);
    apply_retention(&publisher->context, step);
    plm_debug("checkpoint %llu published", (unsigned long long)step);
  }
  pthread_mutex_lock(&publisher->mutex);
  struct plm_publisher_outcome *outcome = &publisher->outcome;
  outcome->written_step = step;
  outcome->began_ns = started;
  outcome->ended_ns = plm_clock_ns();
  outcome->seconds = 1e-9 * (double)(outcome->ended_ns - started);
  outcome->status = status;
  outcome->error = error;
  if (status == PLM_OK) {
    outcome->any = true;
    outcome->step = step;
    outcome->identity = identity;
    outcome->failed_in_a_row = 0;
  } else {
    count_failure(outcome, status, step);
  }
  const uint32_t failed = outcome->failed_in_a_row;
  pthread_mutex_unlock(&publisher->mutex);
  if (status != PLM_OK) say_failed(&error, step, failed);
}

static void *writer(void *argument)
{
  struct plm_publisher *publisher = argument;
  pthread_mutex_lock(&publisher->mutex);
  for (;;) {
    while (publisher->owner != OWNER_WRITER && !publisher->closing)
      pthread_cond_wait(&publisher->changed, &publisher->mutex);
    if (publisher->owner != OWNER_WRITER) break;
    pthread_mutex_unlock(&publisher->mutex);
    write_snapshot(publisher);
    pthread_mutex_lock(&publisher->mutex);
    free(publisher->snapshot.trainer_json);
    publisher->snapshot.trainer_json = NULL;
    publisher->owner = OWNER_NOBODY;
    pthread_cond_broadcast(&publisher->changed);
  }
  publisher->ended = true;
  pthread_cond_broadcast(&publisher->changed);
  pthread_mutex_unlock(&publisher->mutex);
  return NULL;
}

static plm_status publish_allocate(struct plm_ops *ops, size_t elements, float **buffer,
                                   struct plm_error *error)
{
  return elements == 0
             ? PLM_OK
             : ops->allocate_host(ops, elements * sizeof **buffer, (void **)buffer, error);
}

static void publish_release(struct plm_publisher *publisher)
{
  const struct plm_snapshot *snapshot = &publisher->snapshot;
  float *const buffers[] = {snapshot->weights, snapshot->average, snapshot->first,
                            snapshot->second};
  for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
    if (buffers[i] != NULL) publisher->ops->release_host(publisher->ops, buffers[i]);
  free(publisher->snapshot.trainer_json);
  free(publisher);
}

static plm_status publish_allocate_snapshot(struct plm_publisher *publisher,
                                            const struct plm_publisher_sizes *sizes,
                                            struct plm_error *error)
{
  struct plm_snapshot *snapshot = &publisher->snapshot;
  PLM_TRY(publish_allocate(publisher->ops, sizes->weights, &snapshot->weights, error));
  PLM_TRY(publish_allocate(publisher->ops, sizes->average, &snapshot->average, error));
  PLM_TRY(publish_allocate(publisher->ops, sizes->first, &snapshot->first, error));
  return publish_allocate(publisher->ops, sizes->second, &snapshot->second, error);
}

plm_status plm_publisher_open(const struct plm_checkpoint_context *context, struct plm_ops *ops,
                              const struct plm_publisher_sizes *sizes,
                              struct plm_announcer *announcer, struct plm_publisher **out,
                              struct plm_error *error)
{
  struct plm_publisher *publisher = plm_alloc_zeroed(1, sizeof *publisher);
  publisher->context = *context;
  publisher->announcer = announcer;
  publisher->ops = ops;
  plm_status status = publish_allocate_snapshot(publisher, sizes, error);
  if (status != PLM_OK) {
    publish_release(publisher);
    return status;
  }
  plm_condition_init(&publisher->changed);
  pthread_mutex_init(&publisher->mutex, NULL);
  status = plm_thread_start(&publisher->thread, "publisher", writer, publisher, error);
  if (status != PLM_OK) {
    publish_release(publisher);
    return status;
  }
  *out = publisher;
  return PLM_OK;
}

void plm_publisher_waiting(struct plm_publisher *publisher, void (*waiting)(void *context),
                           void *context)
{
  publisher->waiting = waiting;
  publisher->waiting_context = context;
}

/* Waits a little for the writer. The mutex is held, but released while `waiting` is called. */
static void wait_a_little(struct plm_publisher *publisher)
{
  const struct timespec until = plm_clock_after_ms(WAIT_MS);
  pthread_cond_timedwait(&publisher->changed, &publisher->mutex, &until);
  if (publisher->waiting == NULL) return;
  pthread_mutex_unlock(&publisher->mutex);
  publisher->waiting(publisher->waiting_context);
  pthread_mutex_lock(&publisher->mutex);
}

void plm_publisher_close(struct plm_publisher *publisher)
{
  if (publisher == NULL) return;
  pthread_mutex_lock(&publisher->mutex);
  publisher->closing = true;
  pthread_cond_broadcast(&publisher->changed);
  while (!publisher->ended) wait_a_little(publisher);
  pthread_mutex_unlock(&publisher->mutex);
  pthread_join(publisher->thread, NULL);
  pthread_mutex_destroy(&publisher->mutex);
  pthread_cond_destroy(&publisher->changed);
  publish_release(publisher);
}

static void set_owner(struct plm_publisher *publisher, enum owner owner)
{
  pthread_mutex_lock(&publisher->mutex);
  PLM_ASSERT(publisher->owner == OWNER_TRAINER);
  publisher->owner = owner;
  pthread_cond_broadcast(&publisher->changed);
  pthread_mutex_unlock(&publisher->mutex);
}

struct plm_snapshot *plm_publisher_begin(struct plm_publisher *publisher)
{
  pthread_mutex_lock(&publisher->mutex);
  while (publisher->owner != OWNER_NOBODY) wait_a_little(publisher);
  publisher->owner = OWNER_TRAINER;
  pthread_mutex_unlock(&publisher->mutex);
  return &publisher->snapshot;
}

void plm_publisher_submit(struct plm_publisher *publisher)
{
  set_owner(publisher, OWNER_WRITER);
}

void plm_publisher_cancel(struct plm_publisher *publisher)
{
  set_owner(publisher, OWNER_NOBODY);
}

void plm_publisher_fail(struct plm_publisher *publisher, const struct plm_error *error)
{
  pthread_mutex_lock(&publisher->mutex);
  count_failure(&publisher->outcome, error->status, publisher->snapshot.step);
  publisher->outcome.status = error->status;
  publisher->outcome.error = *error;
  const uint32_t failed = publisher->outcome.failed_in_a_row;
  pthread_mutex_unlock(&publisher->mutex);
  say_failed(error, publisher->snapshot.step, failed);
  set_owner(publisher, OWNER_NOBODY);
}

struct plm_publisher_outcome plm_publisher_outcome(struct plm_publisher *publisher, bool wait)
{
  pthread_mutex_lock(&publisher->mutex);
  while (wait && publisher->owner == OWNER_WRITER) wait_a_little(publisher);
  const struct plm_publisher_outcome outcome = publisher->outcome;
  pthread_mutex_unlock(&publisher->mutex);
  return outcome;
}
