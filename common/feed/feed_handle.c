/* How the state machines reach the network. */
#include "common/feed/feed_handle.h"

#include "common/base/clock.h"
#include "common/base/numbers/random.h"

static plm_status send_message(void *context, const uint8_t *identity, size_t identity_bytes,
                               struct plm_header *header, const void *payload, size_t payload_bytes,
                               struct plm_error *error)
{
  const struct plm_feed *feed = context;
  return plm_message_send(feed->router, identity, identity_bytes, header, payload, payload_bytes,
                          error);
}

static void dismiss(void *context, int connection)
{
  const struct plm_feed *feed = context;
  plm_limiter_dismiss(feed->limiter, connection, plm_clock_ms());
}

static bool allows(void *context, const char *user)
{
  const struct plm_feed *feed = context;
  return plm_gate_allows(feed->gate, user);
}

static uint64_t feed_handle_draw(void *context)
{
  uint64_t number = 0;
  (void)context;
  /* Without randomness, a packer could guess the requests of another one. It would still have to
   * send true data. */
  if (plm_random_bytes(&number, sizeof number, NULL) != PLM_OK) number = (uint64_t)plm_clock_ns();
  return number | 1;
}

static void feed_handle_submit(void *context, struct feed_job *job)
{
  const struct plm_feed *feed = context;
  feed_work_submit(feed->work, job);
}

static void changed(void *context)
{
  struct plm_feed *feed = context;
  pthread_cond_broadcast(&feed->changed);
}

struct feed_network feed_handle_network(struct plm_feed *feed)
{
  return (struct feed_network){.context = feed,
                               .send = send_message,
                               .dismiss = dismiss,
                               .allows = feed->gate != NULL ? allows : NULL,
                               .draw = feed_handle_draw,
                               .submit = feed_handle_submit,
                               .changed = changed};
}
