/* The feed against packers that are late, lie or refuse. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/process/thread.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/fake_packer.h"
#include "tests/support/peers/packers.h"

/* The feed is asked for a chunk by its number in an epoch, and reports windows. */
static void crosses_windows_and_epochs(void **state)
{
  (void)state;
  struct fake_meeting meeting;
  struct plm_error error = {0};
  struct plm_feed_position position;
  fake_meet(&meeting, 1, 0);
  struct small_corpus *corpus = fake_corpus();
  struct plm_plan_place place = {.epoch = 4, .chunk = small_corpus_epoch_chunks(corpus, 4) - 3};
  plm_feed_seek(meeting.feed, 0, PLM_SPLIT_TRAIN, &place);
  for (int i = 0; i < 400; i++) {
    assert_int_equal(fake_take(meeting.feed, 7, &error), PLM_OK);
    plm_feed_position(meeting.feed, 0, &position);
    place.chunk += 7;
    small_corpus_settle(corpus, &place);
    assert_memory_equal(&position.place, &place, sizeof place);
    assert_int_equal(position.windows, 40);
    if (place.chunk > 0)
      assert_int_equal(position.window_chunks,
                       small_corpus_window(corpus, place.epoch, place.window)->window.chunks);
  }
  assert_true(place.epoch >= 5);
  fake_part(&meeting);
}

/* plm_feed_next_of_epoch ends with the epoch, and then goes on with the next one. */
static void an_epoch_ends(void **state)
{
  (void)state;
  struct fake_meeting meeting;
  struct plm_error error = {0};
  fake_meet(&meeting, 1, 0);
  const uint64_t chunks = small_corpus_epoch_chunks(fake_corpus(), 0);
  struct plm_plan_place place = {0};
  struct plm_batch batch, held;
  for (uint64_t left = chunks; left > 0;) {
    assert_int_equal(plm_feed_next_of_epoch(meeting.feed, 100, NULL, &batch, &error), PLM_OK);
    assert_int_equal(batch.chunks, left < 100 ? left : 100);
    assert_true(fake_batch_right(&batch, &place));
    place.chunk += batch.chunks;
    left -= batch.chunks;
    if (left > 0) plm_feed_release(meeting.feed, &batch);
  }
  held = batch; /* so that the empty batch uses memory of its own */
  assert_int_equal(plm_feed_next_of_epoch(meeting.feed, 100, NULL, &batch, &error), PLM_OK);
  assert_int_equal(batch.chunks, 0);
  assert_ptr_not_equal(batch.tokens, held.tokens);
  plm_feed_release(meeting.feed, &held);
  held = (struct plm_batch){.tokens = &held}; /* one of nobody */
  plm_feed_release(meeting.feed, &held);
  plm_feed_release(meeting.feed, &batch);
  assert_int_equal(plm_feed_next_of_epoch(meeting.feed, 100, NULL, &batch, &error), PLM_OK);
  assert_int_equal(batch.chunks, 100);
  assert_true(fake_batch_right(&batch, &(struct plm_plan_place){.epoch = 1}));
  plm_feed_release(meeting.feed, &batch);
  fake_part(&meeting);
}

/* The chunks of the first packer that wait to be used. */
static int ahead(const struct fake_meeting *meeting)
{
  char *peers = plm_feed_peers_json(meeting->feed);
  const char *found = strstr(peers, "\"ahead\":");
  const int chunks = found != NULL ? atoi(found + strlen("\"ahead\":")) : -1;
  free(peers);
  return chunks;
}

static void chunks_that_wait_are_counted(void **state)
{
  (void)state;
  struct fake_meeting meeting;
  struct plm_error error = {0};
  fake_meet(&meeting, 1, 0);
  assert_int_equal(ahead(&meeting), 0); /* nothing was requested yet */
  assert_int_equal(fake_take(meeting.feed, 1, &error), PLM_OK);
  const int64_t begin = plm_clock_ms();
  while (ahead(&meeting) < 8) {
    if (plm_clock_ms() - begin > 60000) fail_msg("only %d chunks are ahead", ahead(&meeting));
    usleep(1000);
  }
  fake_part(&meeting);
}

/* Windows are asked of the packers in turn: their tables first, and then their chunks. */
static void windows_go_to_packers_in_turn(void **state)
{
  (void)state;
  enum { WINDOW_CHUNKS = 64 };
  for (int count = 1; count <= 2; count++) {
    struct fake_meeting meeting;
    struct plm_error error = {0};
    fake_meet(&meeting, count, 0);
    for (int i = 0; i < 8; i++)
      assert_int_equal(fake_take(meeting.feed, WINDOW_CHUNKS, &error), PLM_OK);
    const int64_t begin = plm_clock_ms();
    for (int i = 0; i < count; i++)
      while (meeting.packers[i].gets < 3 || meeting.packers[i].soon < 3) {
        if (plm_clock_ms() - begin > 60000)
          fail_msg("packer %d of %d has %d requests and prepares %d windows", i, count,
                   meeting.packers[i].gets, meeting.packers[i].soon);
        usleep(1000);
      }
    fake_part(&meeting);
  }
}

/* If one packer answers nothing, the other is asked. test_feed_simulated.c checks how soon. */
static void standby_is_asked_when_one_is_late(void **state)
{
  (void)state;
  struct fake_meeting meeting;
  struct plm_error error = {0};
  fake_meet(&meeting, 2, 0);
  meeting.packers[0].deaf = true;
  for (int i = 0; i < 60; i++) assert_int_equal(fake_take(meeting.feed, 16, &error), PLM_OK);
  struct plm_feed_counters counters;
  plm_feed_counters(meeting.feed, &counters);
  assert_true(meeting.packers[0].gets > 0); /* some ranges were asked of it first */
  assert_true(counters.retried > 0);
  fake_part(&meeting);
}

static void second_answers_are_dropped(void **state)
{
  (void)state;
  struct fake_meeting meeting;
  struct plm_error error = {0};
  fake_meet(&meeting, 2, 128 << 10);
  meeting.packers[0].delay_ms = 400;
  meeting.packers[1].delay_ms = 300;
  struct plm_feed_counters counters = {0};
  for (int i = 0; i < 100 && (counters.dropped == 0 || counters.retried == 0); i++) {
    assert_int_equal(fake_take(meeting.feed, 64, &error), PLM_OK);
    plm_feed_counters(meeting.feed, &counters);
  }
  assert_true(counters.dropped > 0 && counters.retried > 0);
  assert_int_equal(counters.invalid, 0);
  fake_part(&meeting);
}

/* A packer that lies is dropped for its first false answer; the other one serves what it was asked
 * for. */
static void a_liar_is_dropped(void **state)
{
  (void)state;
  struct fake_meeting meeting;
  struct plm_error error = {0};
  struct plm_feed_counters counters;
  fake_meet(&meeting, 2, 0);
  meeting.packers[0].lies = true;
  for (int i = 0; i < 20; i++) assert_int_equal(fake_take(meeting.feed, 64, &error), PLM_OK);
  plm_feed_counters(meeting.feed, &counters);
  assert_int_equal(counters.refused, 1);
  assert_int_equal(counters.peers, 1);
  char *peers = plm_feed_peers_json(meeting.feed);
  assert_null(strstr(peers, "\"fake:1\""));
  assert_non_null(strstr(peers, "\"fake:2\""));
  free(peers);
  fake_part(&meeting);
}

/* If nobody else serves, the wait ends with an error that names the packer and the document. */
static void a_lone_liar_is_named(void **state)
{
  (void)state;
  struct fake_meeting meeting = {.options = packers_options()};
  struct plm_error error = {0};
  meeting.options.wait_packers_s = 0.5;
  meeting.feed = packers_feed(&meeting.options);
  fake_packer_start(&meeting.packers[0], &meeting.options, plm_feed_bound(meeting.feed), 1);
  meeting.packers[0].lies = true;
  meeting.count = 1;
  plm_status status = PLM_OK;
  while (status == PLM_OK) status = fake_take(meeting.feed, 16, &error);
  assert_int_equal(status, PLM_TIMEOUT);
  const struct small_window *window = small_corpus_window(fake_corpus(), 0, 0);
  char expected[64];
  snprintf(expected, sizeof expected, "document %llu ",
           (unsigned long long)window->window.documents[0].number);
  assert_non_null(strstr(error.what, "no packer served"));
  assert_non_null(strstr(error.hint, "packer fake:1 was dropped for false data"));
  assert_non_null(strstr(error.hint, expected));
  assert_non_null(strstr(error.hint, "corpus DIR --verify"));
  fake_part(&meeting);
}

/* Ids of requests differ in most of their bits: who sees one cannot guess the next. */
static void request_ids_cannot_be_guessed(void **state)
{
  (void)state;
  struct fake_meeting meeting;
  struct plm_error error = {0};
  uint64_t before = 0;
  fake_meet(&meeting, 1, 128 << 10);
  for (int i = 0; i < 4; i++) {
    const int gets = meeting.packers[0].gets;
    while (meeting.packers[0].gets == gets)
      assert_int_equal(fake_take(meeting.feed, 64, &error), PLM_OK);
    pthread_mutex_lock(&meeting.packers[0].mutex);
    const uint64_t request = meeting.packers[0].last_get.request;
    pthread_mutex_unlock(&meeting.packers[0].mutex);
    assert_true(__builtin_popcountll(request ^ before) > 8);
    before = request;
  }
  fake_part(&meeting);
}

static void credit_bounds_what_is_asked_for(void **state)
{
  (void)state;
  struct plm_feed_options options = packers_options();
  options.credit_bytes = 1 << 20;
  struct fake_packer packer;
  struct plm_feed *feed = packers_feed(&options);
  fake_packer_start(&packer, &options, plm_feed_bound(feed), 1);
  packer.deaf = true;
  plm_feed_seek(feed, 0, PLM_SPLIT_TRAIN, &(struct plm_plan_place){0});
  fake_wait_peers(feed, 1);
  for (int i = 0; i < 500 && packer.asked_bytes < options.credit_bytes / 2; i++) usleep(20000);
  usleep(200000); /* nothing more comes after that */
  assert_true(packer.gets > 1);
  assert_true(packer.asked_bytes <= options.credit_bytes);
  assert_true(packer.asked_bytes >= options.credit_bytes / 2);
  /* A batch larger than the credit also arrives. */
  struct plm_error error = {0};
  packer.deaf = false;
  fake_packer_stop(&packer);
  plm_feed_close(feed);
  feed = packers_feed(&options);
  fake_packer_start(&packer, &options, plm_feed_bound(feed), 1);
  assert_int_equal(fake_take(feed, 6 * 1024, &error), PLM_OK);
  fake_packer_stop(&packer);
  plm_feed_close(feed);
}

static void nacks_are_asked_elsewhere(void **state)
{
  (void)state;
  struct fake_meeting meeting;
  struct plm_error error = {0};
  fake_meet(&meeting, 2, 0);
  meeting.packers[0].nacks = true;
  for (int i = 0; i < 20; i++) assert_int_equal(fake_take(meeting.feed, 64, &error), PLM_OK);
  fake_part(&meeting);
}

static void *stop_soon(void *stop)
{
  usleep(200000);
  __atomic_store_n((volatile int *)stop, 15, __ATOMIC_RELAXED);
  return NULL;
}

/* An interrupted call leaves the position where it was, so nothing is lost. */
static void interruption_loses_nothing(void **state)
{
  (void)state;
  struct fake_meeting meeting;
  struct plm_batch batch;
  struct plm_error error = {0};
  static volatile int stop;
  struct plm_feed_position position;
  pthread_t thread;
  fake_meet(&meeting, 1, 128 << 10);
  assert_int_equal(fake_take(meeting.feed, 16, &error), PLM_OK);
  meeting.packers[0].deaf = true; /* what was sent before still fills part of the batch */
  stop = 0;
  assert_int_equal(
      plm_thread_start(&thread, "stop soon", stop_soon, (void *)(uintptr_t)&stop, &error), PLM_OK);
  assert_int_equal(plm_feed_next(meeting.feed, NULL, 2000, &stop, &batch, &error), PLM_INTERRUPTED);
  pthread_join(thread, NULL);
  plm_feed_position(meeting.feed, 0, &position);
  assert_int_equal(position.place.epoch, 0);
  assert_int_equal(position.place.before + position.place.chunk, 16);
  meeting.packers[0].deaf = false;
  assert_int_equal(fake_take(meeting.feed, 2000, &error), PLM_OK);
  fake_part(&meeting);
}

/* A caller that wants to stop waits for packers that are connected, but not for one to come. */
static void a_hurried_caller_waits_for_no_other_packer(void **state)
{
  (void)state;
  struct fake_meeting meeting;
  struct plm_error error = {0};
  fake_meet(&meeting, 1, 128 << 10);
  plm_feed_hurry(meeting.feed);
  assert_int_equal(fake_take(meeting.feed, 2000, &error), PLM_OK);
  fake_packer_stop(&meeting.packers[0]);
  meeting.count = 0;
  fake_wait_peers(meeting.feed, 0);
  assert_int_equal(fake_take(meeting.feed, 2000, &error), PLM_INTERRUPTED);
  struct plm_feed_position position;
  plm_feed_position(meeting.feed, 0, &position);
  assert_int_equal(position.place.before + position.place.chunk, 2000);
  fake_part(&meeting);
}

static void a_port_in_use_names_its_owner(void **state)
{
  (void)state;
  struct plm_feed_options options = packers_options();
  struct plm_error error = {0};
  struct plm_feed *feed = packers_feed(&options), *second;
  char pid[32], ipc[128];
  snprintf(pid, sizeof pid, "pid %d (test_feed_peers", (int)getpid());
  options.endpoint = plm_feed_bound(feed);
  assert_int_equal(plm_feed_open(&options, &second, &error), PLM_BUSY);
  assert_non_null(strstr(error.what, "pid "));
  assert_non_null(strstr(error.hint, "network"));
  plm_feed_close(feed);
  snprintf(ipc, sizeof ipc, "ipc://%s/plm-test-%d.sock", plm_temporary_folder(), (int)getpid());
  options.endpoint = ipc;
  feed = packers_feed(&options);
  assert_int_equal(plm_feed_open(&options, &second, &error), PLM_BUSY);
  assert_non_null(strstr(error.what, "pid "));
  plm_feed_close(feed);
  options.endpoint = "tcp://0.0.0.0:*"; /* beyond loopback without keys */
  assert_int_equal(plm_feed_open(&options, &second, &error), PLM_CONFIG);
  assert_non_null(strstr(error.hint, "plm-pipeline keys"));
}

int main(void)
{
  plm_log_init("test", PLM_LOG_ERROR);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(crosses_windows_and_epochs),
      cmocka_unit_test(an_epoch_ends),
      cmocka_unit_test(chunks_that_wait_are_counted),
      cmocka_unit_test(windows_go_to_packers_in_turn),
      cmocka_unit_test(standby_is_asked_when_one_is_late),
      cmocka_unit_test(second_answers_are_dropped),
      cmocka_unit_test(a_liar_is_dropped),
      cmocka_unit_test(a_lone_liar_is_named),
      cmocka_unit_test(request_ids_cannot_be_guessed),
      cmocka_unit_test(credit_bounds_what_is_asked_for),
      cmocka_unit_test(nacks_are_asked_elsewhere),
      cmocka_unit_test(interruption_loses_nothing),
      cmocka_unit_test(a_hurried_caller_waits_for_no_other_packer),
      cmocka_unit_test(a_port_in_use_names_its_owner),
  };
  return cmocka_run_group_tests(tests, fake_corpus_open, NULL);
}
