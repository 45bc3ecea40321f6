/* How a feed finds its place in windows that are planned, of states that the test makes. */
#include "common/feed/feed_windows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/feed/feed_machine.h"
#include "common/feed/feed_ranges.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"

enum { NOW = 100000, LATE = 1000, CHUNKS = 3, WINDOWS = 4 };

static struct feed_state *feed;
static struct feed_job *submitted; /* the last one */
static int changes;

static void submit(void *context, struct feed_job *job)
{
  (void)context;
  submitted = job;
}

static void change(void *context)
{
  (void)context;
  changes++;
}

/* Four groups of 256 documents, each of which is a window. */
static int begin(void **state)
{
  (void)state;
  feed = calloc(1, sizeof *feed);
  if (feed == NULL) return -1;
  feed->now_ms = NOW;
  feed->plan = (struct plm_plan_parameters){.max_length = 64, .alignment = 1, .window_groups = 1};
  feed->split = PLM_SPLIT_TRAIN;
  feed->splits[PLM_SPLIT_TRAIN] = (struct plm_proof_split){.documents = (uint64_t)WINDOWS * 256};
  feed->corpus_known = true;
  feed->peer_count = 1; /* whom the test does not let be found */
  feed->window_tail = &feed->windows;
  feed->tail = &feed->head;
  feed->network = (struct feed_network){.submit = submit, .changed = change};
  submitted = NULL;
  changes = 0;
  snprintf(feed->role, sizeof feed->role, "trainer");
  return plm_plan_open(&feed->plan, (uint64_t)WINDOWS * 256, 0, &feed->plans[PLM_SPLIT_TRAIN],
                       NULL) != PLM_OK;
}

static int end(void **state)
{
  (void)state;
  feed_windows_clear(feed);
  plm_plan_close(feed->plans[PLM_SPLIT_TRAIN]);
  free(feed);
  return 0;
}

/* Appends a planned window. */
static struct feed_planned *add(uint64_t index, uint32_t chunks, bool last)
{
  struct feed_window *window = calloc(1, sizeof *window);
  assert_non_null(window);
  const struct feed_planned of = {.index = index, .complete = true, .last = last};
  window->request.state = REQUEST_DONE;
  window->planned = feed_planned_open(&of);
  window->planned->window.chunks = chunks;
  window->planned->offset = calloc(chunks + 1, sizeof *window->planned->offset);
  assert_non_null(window->planned->offset);
  *feed->window_tail = window;
  feed->window_tail = &window->next;
  feed->next_window = last ? 0 : index + 1;
  return window->planned;
}

static void is_at(uint64_t epoch, uint64_t window, uint64_t before, uint64_t chunk)
{
  assert_int_equal(feed->place.epoch, epoch);
  assert_int_equal(feed->place.window, window);
  assert_int_equal(feed->place.before, before);
  assert_int_equal(feed->place.chunk, chunk);
}

/* The place is counted from the first window on, which is said every ten seconds. */
static void the_place_is_counted_to(void **state)
{
  static const struct {
    int64_t said_ms_ago;
    bool says;
  } rows[] = {{FEED_WAITING_MS, true}, {FEED_WAITING_MS - 1, false}, {NOW, true}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    add(0, CHUNKS, false);
    add(1, CHUNKS, false);
    feed->place = (struct plm_plan_place){.chunk = CHUNKS + 1};
    feed->seeking = true;
    feed->seek_said_ms = NOW - rows[i].said_ms_ago;
    captured_begin(STDERR_FILENO);
    feed_windows_tick(feed, LATE);
    const char *said = captured_end();
    if (rows[i].says)
      assert_non_null(strstr(
          said, "counting the chunks of epoch 0 up to the trainer's place: window 2 of 4\n"));
    else
      assert_string_equal(said, "");
    assert_int_equal(feed->seek_said_ms, rows[i].says ? NOW : NOW - rows[i].said_ms_ago);
    assert_false(feed->seeking);
    is_at(0, 1, CHUNKS, 1);
    assert_int_equal(feed->windows->planned->index, 1);
    assert_int_equal(feed->windows->requested, 1);
    assert_int_equal(feed->progress_ms, NOW);
    assert_int_equal(end(state) | begin(state), 0);
  }
}

/* A window that is not planned yet is waited for. */
static void the_place_may_be_in_a_later_window(void **state)
{
  (void)state;
  add(0, CHUNKS, false);
  feed->place = (struct plm_plan_place){.chunk = CHUNKS};
  feed->seeking = true;
  feed_windows_tick(feed, LATE);
  assert_true(feed->seeking);
  is_at(0, 1, CHUNKS, 0);
  assert_int_equal(feed->windows->planned->index, 1);
  assert_int_equal(feed->windows->request.state, REQUEST_WANTED);
}

/* Also without a place to find, a window is left that the limit of tokens has left without chunks,
 * and the last one of an epoch leads to the next epoch. */
static void an_empty_window_is_left(void **state)
{
  (void)state;
  add(2, 0, true);
  add(0, CHUNKS, false);
  feed->place = (struct plm_plan_place){.window = 2, .before = 7};
  feed_windows_tick(feed, LATE);
  is_at(1, 0, 0, 0);
  assert_int_equal(feed->windows->planned->index, 0);
  assert_int_equal(feed->windows->requested, 0);
}

/* It counts as nothing that is ready, wherever it is in the list. */
static void an_empty_window_has_no_bytes(void **state)
{
  (void)state;
  add(0, CHUNKS, false);
  struct feed_planned *empty = add(1, 0, true);
  free(empty->offset); /* which an empty window does not have */
  empty->offset = NULL;
  feed->credit = FEED_CREDIT_START;
  feed_windows_tick(feed, LATE);
  is_at(0, 0, 0, 0);
  assert_int_equal(feed->failed.status, PLM_OK);
  assert_true(feed->unplanned > 0); /* more are asked for */
}

static void a_place_beyond_the_epoch_is_said(void **state)
{
  (void)state;
  feed->next_epoch = 6;
  feed->next_window = WINDOWS;
  feed_windows_tick(feed, LATE);
  assert_int_equal(feed->failed.status, PLM_FORMAT);
  assert_string_equal(feed->failed.what,
                      "the run's place is in window 4 of epoch 6, but an epoch has 4");
  assert_null(feed->windows);
  assert_int_equal(changes, 1);
  feed->failed.status = PLM_OK;
  feed->next_window = WINDOWS - 1;
  feed_windows_tick(feed, LATE);
  assert_int_equal(feed->failed.status, PLM_OK);
  assert_int_equal(feed->windows->planned->index, WINDOWS - 1);
}

/* A packer says how many groups of the window its answer has: at least one, and not more than are
 * still missing. */
static void proof_of_other_groups_is_a_lie(void **state)
{
  static const uint32_t counts[] = {0, 1, 2, 3};
  struct feed_peer peer = {.serial = 8, .packer_id = 9, .name = "h:1"};
  (void)state;
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    const bool fits = counts[i] == 1 || counts[i] == 2;
    struct plm_message message = {.header = {.request = 7, .count = counts[i]}};
    add(0, 0, false);
    struct feed_window *window = feed->windows;
    window->planned->groups = 5;
    window->planned->tables.groups = 3;
    window->request =
        (struct feed_request){.state = REQUEST_WANTED, .asks[0] = {.request = 7, .peer = 8}};
    feed->unplanned = 1;
    zmq_msg_init(&message.payload);
    assert_true(feed_windows_proof(feed, &peer, &message));
    assert_int_equal(submitted != NULL, fits);
    assert_int_equal(window->request.state, fits ? REQUEST_CHECKING : REQUEST_WANTED);
    assert_int_equal(feed->counters.invalid, !fits);
    if (fits) {
      assert_int_equal(submitted->count, counts[i]);
      feed_job_free(submitted);
    } else {
      char said[200];
      snprintf(
          said, sizeof said,
          "packer h:1 was dropped for false data: PROOF of %u groups, which were not asked for",
          counts[i]);
      assert_string_equal(feed->lie, said);
    }
    zmq_msg_close(&message.payload);
    assert_int_equal(end(state) | begin(state), 0);
  }
}

/* The rest of a window is asked for when a part of it was checked. */
static void a_window_may_be_proven_in_parts(void **state)
{
  (void)state;
  struct feed_planned *planned = add(0, CHUNKS, false);
  struct feed_job job = {.feed = feed, .planned = planned, .tables = true};
  for (int part = 0; part < 2; part++) {
    planned->complete = part == 1;
    feed->windows->request.state = REQUEST_CHECKING;
    feed->unplanned = 1;
    feed_machine_done(feed, &job, NOW + 3);
    assert_int_equal(feed->windows->request.state, part == 1 ? REQUEST_DONE : REQUEST_WANTED);
    assert_int_equal(feed->unplanned, part == 0);
    assert_int_equal(feed->progress_ms, NOW + 3);
  }
  assert_int_equal(feed->failed.status, PLM_OK);
}

/* What no packer is to blame for ends the feed, and a lie does not. */
static void a_job_that_fails_ends_the_feed(void **state)
{
  static const plm_status statuses[] = {PLM_CONFIG, PLM_NO_MEMORY, PLM_CORRUPT, PLM_PROTOCOL};
  for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
    const bool lie = i >= 2;
    struct feed_job job = {.feed = feed, .planned = add(0, CHUNKS, false), .tables = true};
    feed->windows->request.state = REQUEST_CHECKING;
    plm_error_set(&job.error, statuses[i], "no luck");
    feed_machine_done(feed, &job, NOW);
    assert_int_equal(feed->failed.status, lie ? PLM_OK : statuses[i]);
    assert_string_equal(feed->failed.what, lie ? "" : "no luck");
    assert_int_equal(feed->counters.invalid, lie);
    assert_int_equal(feed->windows->request.state, REQUEST_WANTED);
    feed->unplanned = 1;
    assert_int_equal(end(state) | begin(state), 0);
  }
}

/* A chunk that no message has room for is not asked for. */
static void a_chunk_too_large_ends_the_feed(void **state)
{
  (void)state;
  const uint64_t most = feed_data_most(&feed->plan);
  struct feed_planned *planned = add(0, 2, true);
  planned->plan = feed->plans[PLM_SPLIT_TRAIN];
  planned->offset[1] = most;
  planned->offset[2] = 2 * most + 1;
  feed->credit = 4 * most;
  planned->window.chunk_begin = (uint32_t[]){0, 0, 0};
  feed_ranges_tick(feed, LATE);
  assert_int_equal(feed->failed.status, PLM_LIMIT);
  assert_non_null(strstr(feed->failed.what, "chunk 1 of window 0 has "));
  assert_int_equal(feed->windows->requested, 1); /* the one before it is */
  assert_int_equal(feed->head->count, 1);
  assert_int_equal(feed->in_flight, most);
  feed_ranges_clear(feed);
}

/* What was checked is counted, and a false answer is not. */
static void true_answers_are_counted(void **state)
{
  (void)state;
  for (uint64_t n = 1; n <= 3; n++) {
    const bool truth = n < 3;
    struct feed_range range = {
        .request.state = REQUEST_CHECKING, .first = 4, .count = 2, .bytes = 10};
    struct feed_job job = {.first = 4, .count = 2, .real_tokens = 7, .packer_id = 9};
    zmq_msg_init(&job.payload);
    feed->head = &range;
    feed_ranges_checked(feed, &job, truth);
    feed->head = NULL;
    assert_int_equal(range.request.state, truth ? REQUEST_DONE : REQUEST_WANTED);
    assert_int_equal(range.packer_id, truth ? 9 : 0);
    assert_int_equal(feed->counters.chunks, 2 * (truth ? n : 2));
    assert_int_equal(feed->counters.real_tokens, 7 * (truth ? n : 2));
    assert_int_equal(feed->counters.bytes, 10 * (truth ? n : 2));
    zmq_msg_close(&job.payload);
    if (truth) zmq_msg_close(&range.payload);
  }
  feed_machine_lost(feed, NOW + 5);
  assert_int_equal(feed->now_ms, NOW + 5); /* each call says what time it is */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
  plm_log_init("t", PLM_LOG_INFO);
  const struct CMUnitTest tests[] = {
      TEST(the_place_is_counted_to),          TEST(the_place_may_be_in_a_later_window),
      TEST(an_empty_window_is_left),          TEST(an_empty_window_has_no_bytes),
      TEST(a_place_beyond_the_epoch_is_said), TEST(proof_of_other_groups_is_a_lie),
      TEST(a_window_may_be_proven_in_parts),  TEST(a_job_that_fails_ends_the_feed),
      TEST(a_chunk_too_large_ends_the_feed),  TEST(true_answers_are_counted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
