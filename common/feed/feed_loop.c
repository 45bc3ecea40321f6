/* The I/O thread polls the ROUTER, its monitor and the user's wake-ups, and passes what it finds to
 * the state machine. It never blocks for long, so packers are answered whatever the user does. */
#include "common/feed/feed_loop.h"

#include <errno.h>

#include "common/base/clock.h"
#include "common/base/process/thread.h"
#include "common/feed/feed_fetch.h"
#include "common/feed/feed_lanes.h"

enum { MESSAGES_A_TURN = 64, TICK_MS = 20, IDLE_MS = 100, HANG_UP_MS = 1000 };

static void feed_loop_handle_message(struct plm_feed *feed, struct plm_message *message)
{
  struct feed_state *lane = feed_lane_of(feed, message);
  pthread_mutex_lock(&feed->mutex);
  feed_machine_handle(lane, message, plm_clock_ms());
  pthread_mutex_unlock(&feed->mutex);
  zmq_msg_close(&message->payload);
}

static void handle_finished_jobs(struct plm_feed *feed)
{
  struct feed_job *next;
  for (struct feed_job *job = feed_work_done(feed->work); job != NULL; job = next) {
    next = job->next;
    pthread_mutex_lock(&feed->mutex);
    feed_machine_done(job->feed, job, plm_clock_ms());
    pthread_mutex_unlock(&feed->mutex);
    feed_job_free(job);
  }
}

static void count_invalid(struct plm_feed *feed, const struct plm_message *message,
                          const struct plm_error *error)
{
  pthread_mutex_lock(&feed->mutex);
  if (error->status == PLM_UNSUPPORTED)
    feed_machine_other_version(&feed->lanes[0], message, error->what, plm_clock_ms());
  else
    feed_machine_invalid(feed_lane_of_peer(feed, message), message, error->what, plm_clock_ms());
  pthread_mutex_unlock(&feed->mutex);
}

static void handle_fetch(struct plm_feed *feed, struct plm_message *message)
{
  struct plm_error error;
  if (feed_fetch_handle(feed, message, &error) != PLM_OK) count_invalid(feed, message, &error);
  zmq_msg_close(&message->payload);
}

/* True: all messages that had arrived were taken. */
static bool feed_loop_handle_messages(struct plm_feed *feed)
{
  for (int i = 0; i < MESSAGES_A_TURN; i++) {
    struct plm_message message;
    struct plm_error error;
    const plm_status status = plm_message_receive(feed->router, true, &message, &error);
    if (status == PLM_AGAIN) return true;
    plm_limiter_heard(feed->limiter, message.connection, plm_clock_ms());
    if (status == PLM_OK && message.header.type == PLM_MESSAGE_FETCH) {
      handle_fetch(feed, &message);
    } else if (status == PLM_OK) {
      feed_loop_handle_message(feed, &message);
    } else if (status == PLM_PROTOCOL || status == PLM_UNSUPPORTED) {
      count_invalid(feed, &message, &error);
    } else {
      pthread_mutex_lock(&feed->mutex);
      feed_fail(&feed->lanes[0], &error);
      pthread_mutex_unlock(&feed->mutex);
      break;
    }
  }
  return false;
}

static void handle_refusal(struct plm_feed *feed, const char *reason, int64_t now)
{
  pthread_mutex_lock(&feed->mutex);
  feed->lanes[0].counters.refused++;
  pthread_mutex_unlock(&feed->mutex);
  if (now - feed->logged_refusal_ms < 1000) return;
  feed->logged_refusal_ms = now;
  plm_warning("refused a connection to the %s's feed: %s", feed->lanes[0].role, reason);
}

static void feed_loop_handle_events(struct plm_feed *feed)
{
  struct plm_link_report report;
  bool lost = false;
  while (plm_monitor_next(feed->monitor, &report)) {
    const int64_t now = plm_clock_ms();
    switch (report.event) {
    case PLM_LINK_ACCEPTED: plm_limiter_accepted(feed->limiter, report.descriptor, now); break;
    case PLM_LINK_LOST:
      plm_limiter_left(feed->limiter, report.descriptor);
      lost = true;
      break;
    case PLM_LINK_REFUSED: handle_refusal(feed, report.reason, now); break;
    default: break;
    }
  }
  if (!lost) return;
  pthread_mutex_lock(&feed->mutex);
  for (uint32_t k = 0; k < feed->lane_count; k++)
    feed_machine_lost(&feed->lanes[k], plm_clock_ms());
  pthread_mutex_unlock(&feed->mutex);
}

/* Waits until the packers, which were told BYE, have hung up. What they had sent before they read
 * BYE is received and dropped: if any of it were left when the socket closes, TCP would reset the
 * connection, and a packer could lose BYE. */
static void let_hang_up(struct plm_feed *feed)
{
  const int64_t until = plm_clock_ms() + HANG_UP_MS;
  while (plm_limiter_connections(feed->limiter) > 0 && plm_clock_ms() < until) {
    zmq_pollitem_t items[] = {{feed->router, 0, ZMQ_POLLIN, 0},
                              {plm_monitor_socket(feed->monitor), 0, ZMQ_POLLIN, 0}};
    struct plm_link_report report;
    struct plm_message message;
    plm_status status = PLM_OK;
    (void)zmq_poll(items, 2, TICK_MS); /* if it fails, the time limit ends the loop */
    while (plm_monitor_next(feed->monitor, &report))
      if (report.event == PLM_LINK_LOST) plm_limiter_left(feed->limiter, report.descriptor);
    for (int i = 0; i < MESSAGES_A_TURN && status != PLM_AGAIN; i++) {
      status = plm_message_receive(feed->router, true, &message, NULL);
      if (status == PLM_OK) zmq_msg_close(&message.payload);
    }
  }
}

static void *feed_loop_serve(void *argument)
{
  struct plm_feed *feed = argument;
  while (!atomic_load(&feed->closing)) {
    zmq_pollitem_t items[] = {{feed->router, 0, ZMQ_POLLIN, 0},
                              {plm_monitor_socket(feed->monitor), 0, ZMQ_POLLIN, 0},
                              {NULL, feed->wake, ZMQ_POLLIN, 0}};
    /* What a connection may send until the limiter notices depends on how often the limiter looks.
     */
    const bool busy = plm_limiter_connections(feed->limiter) > 0;
    if (zmq_poll(items, 3, busy ? TICK_MS : IDLE_MS) < 0 && zmq_errno() != EINTR) {
      struct plm_error error;
      (void)plm_error_set(&error, PLM_IO, "poll: %s", zmq_strerror(zmq_errno()));
      pthread_mutex_lock(&feed->mutex);
      feed_fail(&feed->lanes[0], &error);
      pthread_mutex_unlock(&feed->mutex);
      break;
    }
    if (items[2].revents != 0) plm_wake_clear(feed->wake);
    feed_loop_handle_events(feed);
    plm_limiter_look(feed->limiter);
    const bool drained = feed_loop_handle_messages(feed);
    handle_finished_jobs(feed);
    feed_fetch_answer(feed);
    plm_limiter_turn(feed->limiter, drained, plm_clock_ms());
    pthread_mutex_lock(&feed->mutex);
    for (uint32_t k = 0; k < feed->lane_count; k++)
      feed_machine_turn(&feed->lanes[k], plm_clock_ms());
    feed_lanes_watch(feed, plm_clock_ms());
    pthread_mutex_unlock(&feed->mutex);
  }
  pthread_mutex_lock(&feed->mutex);
  for (uint32_t k = 0; k < feed->lane_count; k++) feed_machine_bye(&feed->lanes[k]);
  pthread_mutex_unlock(&feed->mutex);
  let_hang_up(feed);
  return NULL;
}

plm_status feed_loop_start(struct plm_feed *feed, struct plm_error *error)
{
  plm_condition_init(&feed->changed);
  pthread_mutex_init(&feed->mutex, NULL);
  const plm_status status = plm_thread_start(&feed->thread, "feed", feed_loop_serve, feed, error);
  if (status == PLM_OK) return PLM_OK;
  pthread_mutex_destroy(&feed->mutex);
  pthread_cond_destroy(&feed->changed);
  return status;
}

void feed_loop_stop(struct plm_feed *feed)
{
  atomic_store(&feed->closing, true);
  plm_wake(feed->wake);
  pthread_join(feed->thread, NULL);
}
