/* The thread between a consumer's feed and its run folder. The folder may be on a slow file system,
 * so nothing here holds the feed's mutex, and a failure is only a warning. */
#include "common/feed/feed_run.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "common/base/process/thread.h"
#include "common/run/run.h"

enum { ENDPOINT_SIZE = 512, EVERY_MS = 1000 };

struct plm_feed_run {
  struct plm_feed_run_options options;
  char other[ENDPOINT_SIZE]; /* the address last told to the packers; "": none yet */
  bool complained;
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool closing;
};

/* The configuration gives the other consumer's address, unless it lets the system choose the port.
 */
static void find_other(const struct plm_feed_run_options *options, char address[ENDPOINT_SIZE])
{
  const char *known = options->other_address;
  if (known == NULL && strchr(options->other_bind, '*') == NULL) known = options->other_bind;
  if (known != NULL && strlen(known) < ENDPOINT_SIZE)
    strcpy(address, known);
  else if (plm_endpoint_read(options->run, options->other_key, address, NULL) != PLM_OK)
    address[0] = '\0';
}

static void tell_packers_of_other(struct plm_feed_run *feed_run)
{
  char address[ENDPOINT_SIZE];
  const char *const others[] = {address};
  const char *const keys[] = {NULL}; /* the run's consumers share one key */
  find_other(&feed_run->options, address);
  if (address[0] == '\0' || strcmp(address, feed_run->other) == 0) return;
  strcpy(feed_run->other, address);
  plm_feed_others(feed_run->options.feed, others, keys, 1);
}

static void tell_of_packers(struct plm_feed_run *feed_run)
{
  const struct plm_feed_run_options *options = &feed_run->options;
  struct plm_error error = {0};
  char *json = plm_feed_peers_json(options->feed);
  const plm_status status = plm_peers_write(options->run, options->role, json, &error);
  if (status != PLM_OK && !feed_run->complained) plm_warning("%s", error.what);
  feed_run->complained = status != PLM_OK;
  free(json);
}

static void feed_run_tell(struct plm_feed_run *feed_run)
{
  const struct plm_feed_run_options *options = &feed_run->options;
  tell_packers_of_other(feed_run);
  plm_feed_packers_given_up(options->feed, plm_run_packers_given_up(options->run));
  tell_of_packers(feed_run);
}

/* Waits until the next round. True: plm_feed_run_close was called. */
static bool pause_until_next(struct plm_feed_run *feed_run)
{
  const struct timespec until = plm_clock_after_ms(EVERY_MS);
  pthread_mutex_lock(&feed_run->mutex);
  while (!feed_run->closing &&
         pthread_cond_timedwait(&feed_run->changed, &feed_run->mutex, &until) != ETIMEDOUT) {
  }
  const bool closing = feed_run->closing;
  pthread_mutex_unlock(&feed_run->mutex);
  return closing;
}

static void *run_thread(void *argument)
{
  struct plm_feed_run *feed_run = argument;
  while (!pause_until_next(feed_run)) feed_run_tell(feed_run);
  return NULL;
}

static void feed_run_release(struct plm_feed_run *feed_run)
{
  plm_peers_remove(feed_run->options.run, feed_run->options.role);
  pthread_mutex_destroy(&feed_run->mutex);
  pthread_cond_destroy(&feed_run->changed);
  free(feed_run);
}

plm_status plm_feed_run_open(const struct plm_feed_run_options *options,
                             struct plm_feed_run **feed_run, struct plm_error *error)
{
  struct plm_feed_run *made = plm_alloc_zeroed(1, sizeof *made);
  made->options = *options;
  plm_condition_init(&made->changed);
  pthread_mutex_init(&made->mutex, NULL);
  feed_run_tell(made);
  const plm_status status = plm_thread_start(&made->thread, "feed-run", run_thread, made, error);
  if (status != PLM_OK) {
    feed_run_release(made);
    return status;
  }
  *feed_run = made;
  return PLM_OK;
}

void plm_feed_run_close(struct plm_feed_run *feed_run)
{
  if (feed_run == NULL) return;
  pthread_mutex_lock(&feed_run->mutex);
  feed_run->closing = true;
  pthread_cond_signal(&feed_run->changed);
  pthread_mutex_unlock(&feed_run->mutex);
  pthread_join(feed_run->thread, NULL);
  feed_run_release(feed_run);
}
