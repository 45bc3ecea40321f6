/* trainer/step/replays: what runs, what is recorded and what is replayed, with a backend that
 * writes down the calls. */
#include "trainer/step/replays.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"

static char calls[4096]; /* "begin call(1,2,3,0) end=1 replay=1 release=1 " */
static int recordings;   /* made so far */
static bool begin_fails, end_fails;

static void note(const char *text)
{
  strncat(calls, text, sizeof calls - strlen(calls) - 1);
}

static plm_status record_begin(struct plm_ops *ops, struct plm_error *error)
{
  (void)ops;
  note("begin ");
  return begin_fails ? plm_error_set(error, PLM_FAILURE, "no graph") : PLM_OK;
}

static plm_status record_end(struct plm_ops *ops, struct plm_recording **recording,
                             struct plm_error *error)
{
  char text[32];
  (void)ops;
  if (end_fails) {
    note("end=none ");
    return plm_error_set(error, PLM_FAILURE, "no end");
  }
  *recording = (struct plm_recording *)(uintptr_t)++recordings;
  snprintf(text, sizeof text, "end=%d ", recordings);
  note(text);
  return PLM_OK;
}

static void note_recording(const char *what, const struct plm_recording *recording)
{
  char text[32];
  snprintf(text, sizeof text, "%s=%d ", what, (int)(uintptr_t)recording);
  note(text);
}

static void replay(struct plm_ops *ops, struct plm_recording *recording)
{
  (void)ops;
  note_recording("replay", recording);
}

static void release_recording(struct plm_ops *ops, struct plm_recording *recording)
{
  (void)ops;
  note_recording("release", recording);
}

static void call(void *context, struct plm_replay_key key, uint32_t segment)
{
  char text[64];
  assert_ptr_equal(context, calls);
  snprintf(text, sizeof text, "call(%u,%u,%u,%u) ", key.kind, key.chunks, key.rows, segment);
  note(text);
}

static struct plm_ops recording_ops(void)
{
  calls[0] = '\0';
  recordings = 0;
  begin_fails = end_fails = false;
  return (struct plm_ops){.record_begin = record_begin,
                          .record_end = record_end,
                          .replay = replay,
                          .release_recording = release_recording};
}

/* Runs all segments of an operation, and compares the calls. */
static void expect(struct plm_replays *replays, struct plm_replay_key key, uint32_t segments,
                   const char *wanted)
{
  calls[0] = '\0';
  for (uint32_t segment = 0; segment < segments; segment++)
    plm_replays_run(replays, key, segment, segments, call, calls);
  assert_string_equal(calls, wanted);
}

static void the_second_time_is_recorded(void **state)
{
  const struct plm_replay_key key = {1, 2, 3};
  struct plm_ops ops = recording_ops();
  (void)state;
  struct plm_replays *replays = plm_replays_open(&ops);
  expect(replays, key, 1, "call(1,2,3,0) ");
  expect(replays, key, 1, "begin call(1,2,3,0) end=1 replay=1 ");
  expect(replays, key, 1, "replay=1 ");
  /* another key is another operation */
  expect(replays, (struct plm_replay_key){2, 2, 3}, 1, "call(2,2,3,0) ");
  expect(replays, (struct plm_replay_key){1, 3, 3}, 1, "call(1,3,3,0) ");
  expect(replays, (struct plm_replay_key){1, 2, 4}, 1, "call(1,2,4,0) ");
  expect(replays, (struct plm_replay_key){1, 2, 4}, 1, "begin call(1,2,4,0) end=2 replay=2 ");
  expect(replays, key, 1, "replay=1 ");
  calls[0] = '\0';
  plm_replays_close(replays);
  assert_string_equal(calls, "release=1 release=2 ");
  plm_replays_close(NULL);
}

/* The first time, all segments run before any of them is recorded. */
static void segments_are_recorded_one_by_one(void **state)
{
  const struct plm_replay_key key = {1, 2, 3};
  struct plm_ops ops = recording_ops();
  (void)state;
  struct plm_replays *replays = plm_replays_open(&ops);
  expect(replays, key, 3, "call(1,2,3,0) call(1,2,3,1) call(1,2,3,2) ");
  expect(replays, key, 3,
         "begin call(1,2,3,0) end=1 replay=1 begin call(1,2,3,1) end=2 replay=2 "
         "begin call(1,2,3,2) end=3 replay=3 ");
  expect(replays, key, 3, "replay=1 replay=2 replay=3 ");
  calls[0] = '\0';
  plm_replays_close(replays);
  assert_string_equal(calls, "release=1 release=2 release=3 ");
}

/* A pass that was given up in its middle has not run all segments. */
static void a_segment_that_never_ran_is_not_recorded(void **state)
{
  const struct plm_replay_key key = {1, 2, 3};
  struct plm_ops ops = recording_ops();
  (void)state;
  struct plm_replays *replays = plm_replays_open(&ops);
  plm_replays_run(replays, key, 0, 2, call, calls);
  expect(replays, key, 2, "call(1,2,3,0) call(1,2,3,1) ");
  expect(replays, key, 2, "begin call(1,2,3,0) end=1 replay=1 begin call(1,2,3,1) end=2 replay=2 ");
  plm_replays_close(replays);
}

/* It is said once; what was recorded before is still replayed. */
static void a_failure_makes_the_rest_run_directly(void **state)
{
  static const char said_by[] =
      "test: warning: the steps cannot be recorded as CUDA graphs, so they run without: %s (they "
      "are slower, and their results are the same)\n";
  const struct plm_replay_key first = {1, 2, 3}, second = {2, 2, 3}, third = {3, 2, 3};
  (void)state;
  for (int at_end = 0; at_end < 2; at_end++) {
    struct plm_ops ops = recording_ops();
    char wanted[512];
    struct plm_replays *replays = plm_replays_open(&ops);
    for (uint32_t kind = 1; kind <= 3; kind++) {
      calls[0] = '\0';
      const struct plm_replay_key key = {kind, 2, 3};
      plm_replays_run(replays, key, 0, 1, call, calls);
    }
    expect(replays, first, 1, "begin call(1,2,3,0) end=1 replay=1 ");
    begin_fails = !at_end;
    end_fails = at_end;
    captured_begin(STDERR_FILENO);
    expect(replays, second, 1,
           at_end ? "begin call(2,2,3,0) end=none call(2,2,3,0) " : "begin call(2,2,3,0) ");
    expect(replays, third, 1, "call(3,2,3,0) ");
    expect(replays, second, 1, "call(2,2,3,0) ");
    expect(replays, first, 1, "replay=1 ");
    const char *said = captured_end();
    snprintf(wanted, sizeof wanted, said_by, at_end ? "no end" : "no graph");
    assert_string_equal(said, wanted);
    plm_replays_close(replays);
  }
}

/* A backend that cannot record, and more operations than are kept. */
static void what_is_not_kept_runs_directly(void **state)
{
  struct plm_ops none = {0}, ops = recording_ops();
  (void)state;
  struct plm_replays *replays = plm_replays_open(&none);
  for (int i = 0; i < 3; i++)
    expect(replays, (struct plm_replay_key){1, 2, 3}, 2, "call(1,2,3,0) call(1,2,3,1) ");
  plm_replays_close(replays);
  replays = plm_replays_open(&ops);
  for (int round = 0; round < 2; round++)
    for (uint32_t rows = 0; rows < 66; rows++) {
      char wanted[128];
      if (round == 0 || rows >= 64)
        snprintf(wanted, sizeof wanted, "call(1,2,%u,0) ", rows);
      else
        snprintf(wanted, sizeof wanted, "begin call(1,2,%u,0) end=%u replay=%u ", rows, rows + 1,
                 rows + 1);
      expect(replays, (struct plm_replay_key){1, 2, rows}, 1, wanted);
    }
  plm_replays_close(replays);
}

int main(void)
{
  plm_log_init("test", PLM_LOG_WARNING);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_second_time_is_recorded),
      cmocka_unit_test(segments_are_recorded_one_by_one),
      cmocka_unit_test(a_segment_that_never_ran_is_not_recorded),
      cmocka_unit_test(a_failure_makes_the_rest_run_directly),
      cmocka_unit_test(what_is_not_kept_runs_directly),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
