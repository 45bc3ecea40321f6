/* Which packer is asked next, of states that the test makes. */
#include "common/feed/feed_requests.h"

#include <stdlib.h>

#include "tests/support/harness/cmocka_all.h"

enum { NOW = 100000, LATE = 1000, DRAWN = 99 };

static struct feed_state *feed;

static uint64_t draw(void *context)
{
  (void)context;
  return DRAWN;
}

static plm_status take(void *context, const uint8_t *routing_id, size_t routing_id_bytes,
                       struct plm_header *header, const void *payload, size_t payload_bytes,
                       struct plm_error *error)
{
  (void)context, (void)routing_id, (void)routing_id_bytes, (void)payload, (void)error;
  assert_int_equal(header->request, DRAWN);
  assert_int_equal(header->first, 5);
  assert_int_equal(payload_bytes, 0);
  return PLM_OK;
}

/* Packers with the serials 1, 2, …, each of a process of its own. */
static void begin(int packers)
{
  feed = calloc(1, sizeof *feed);
  assert_non_null(feed);
  feed->now_ms = NOW;
  feed->tokenizer = plm_tokenizer_of(PLM_TOKENIZER_ESM);
  feed->network = (struct feed_network){.draw = draw, .send = take};
  for (int i = 0; i < packers; i++)
    feed->peers[i] =
        (struct feed_peer){.used = true, .serial = (uint64_t)i + 1, .packer_id = (uint64_t)i + 101};
}

static struct feed_ask ask_of(uint64_t serial, int64_t age_ms)
{
  return (struct feed_ask){
      .request = 7, .peer = serial, .packer_id = serial + 100, .sent_ms = NOW - age_ms};
}

/* The serial of the packer that is asked, and the slot of the question, which is forgotten; 0 and
 * -1: none. */
static uint64_t due(struct feed_request *request, int *slot)
{
  const struct plm_header header = {.type = PLM_MESSAGE_GET, .first = 5};
  const uint64_t serial = feed_request_ask(feed, request, LATE, &header, NULL, 0);
  *slot = -1;
  for (int i = 0; i < FEED_ASKS; i++) {
    if (request->asks[i].request != DRAWN) continue;
    assert_int_equal(request->asks[i].peer, serial);
    assert_int_equal(request->asks[i].sent_ms, NOW);
    request->asks[i] = (struct feed_ask){0};
    *slot = i;
  }
  return serial;
}

/* Each slot is used, the first one last. */
static void the_last_free_slot_is_taken(void **state)
{
  (void)state;
  struct feed_request request = {.home = 2};
  int slot;
  begin(FEED_ASKS + 1);
  assert_int_equal(due(&request, &slot), 2); /* its home */
  assert_int_equal(slot, FEED_ASKS - 1);
  for (int i = FEED_ASKS - 1; i > 0; i--) {
    request.asks[i] = ask_of((uint64_t)i, LATE + 1);
    const uint64_t serial = due(&request, &slot);
    assert_int_equal(slot, i - 1);
    assert_int_not_equal(serial, 0);
    for (int k = i; k < FEED_ASKS; k++) assert_int_not_equal(serial, request.asks[k].peer);
  }
  assert_int_equal(feed->counters.retried, FEED_ASKS - 1);
  request.asks[0] = ask_of(FEED_ASKS + 1, LATE + 1);
  assert_int_equal(due(&request, &slot), 0);
  assert_int_equal(slot, -1);
  assert_int_equal(feed->counters.retried, FEED_ASKS - 1);
  free(feed);
}

/* Another one is asked if all that were asked are late, which progress delays. */
static void only_after_all_are_late_another_is_asked(void **state)
{
  (void)state;
  struct feed_request request = {.asks = {ask_of(1, LATE + 1), ask_of(2, LATE)}};
  int slot;
  begin(3);
  assert_int_equal(due(&request, &slot), 0);
  request.asks[1].sent_ms--;
  assert_int_equal(due(&request, &slot), 3);
  feed->peers[0].progress_ms = NOW - LATE;
  assert_int_equal(due(&request, &slot), 0);
  feed->peers[0].progress_ms--;
  request.asks[0].sent_ms = NOW - LATE; /* a millisecond after the progress */
  assert_int_equal(due(&request, &slot), 0);
  request.asks[0].sent_ms--;
  request.retry_ms = NOW + 1;
  assert_int_equal(due(&request, &slot), 0);
  request.retry_ms = NOW;
  assert_int_equal(due(&request, &slot), 3);
  feed->peers[2].packer_id = feed->peers[1].packer_id; /* the same process */
  assert_int_equal(due(&request, &slot), 0);
  free(feed);
}

/* The packer that serves the next window, unless it was asked. */
static void the_next_window_decides(void **state)
{
  (void)state;
  struct feed_request request = {.asks = {ask_of(1, LATE + 1)}};
  int slot;
  begin(4);
  for (uint64_t prepared = 2; prepared <= 4; prepared++) {
    feed->prepared = prepared;
    assert_int_equal(due(&request, &slot), prepared);
  }
  feed->prepared = 1;
  assert_int_not_equal(due(&request, &slot), 1);
  free(feed);
}

/* An ask ends with its peer, and a second after the deadline. */
static void an_old_ask_is_forgotten(void **state)
{
  (void)state;
  struct feed_request request = {.asks = {ask_of(1, FEED_DEADLINE_MS + 1000), ask_of(9, 0)}};
  int slot;
  begin(1);
  feed->peers[0].progress_ms = NOW;
  assert_int_equal(due(&request, &slot), 0);
  assert_int_equal(request.asks[0].request, 7);
  assert_int_equal(request.asks[1].request, 0);
  request.asks[0].sent_ms--;
  assert_int_equal(due(&request, &slot), 1);
  assert_int_equal(request.asks[0].request, 0);
  assert_int_equal(request.home, 1);
  request.state = REQUEST_CHECKING; /* an answer has come */
  assert_int_equal(due(&request, &slot), 0);
  free(feed);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_last_free_slot_is_taken),
      cmocka_unit_test(only_after_all_are_late_another_is_asked),
      cmocka_unit_test(the_next_window_decides),
      cmocka_unit_test(an_old_ask_is_forgotten),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
