/* What a watching evaluator knows about checkpoints: their order, their weights, when it tries
 * again to read one, and why one never appeared. */
#include "tests/support/harness/failing_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <utime.h>

#include "common/base/files/file.h"
#include "common/checkpoint/checkpoint.h"
#include "evaluator/watch/checkpoints_seen.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

static void steps_are_in_order(void **state)
{
  (void)state;
  enum { STEPS = 200 };
  struct plm_seen_list list = {0};
  for (uint64_t i = 0; i < STEPS; i++) { /* 0, 7, 14 … modulo 200, which meets each once */
    struct plm_seen *seen = plm_seen_at(&list, 7 * i % STEPS);
    assert_non_null(seen);
    assert_int_equal(seen->step, 7 * i % STEPS);
    assert_int_equal(seen->attempts, 0);
    seen->attempts = (unsigned)seen->step + 1;
    assert_int_equal(list.count, i + 1);
  }
  for (uint64_t step = 0; step < STEPS; step++) {
    assert_int_equal(list.items[step].step, step);
    assert_ptr_equal(plm_seen_at(&list, step), &list.items[step]);
    assert_int_equal(list.items[step].attempts, step + 1);
  }
  assert_int_equal(list.count, STEPS);
  plm_seen_deinit(&list);
  assert_int_equal(list.count, 0);
  assert_null(list.items);
}

/* What is in the room that is not used yet has no effect. */
static void room_is_not_looked_at(void **state)
{
  (void)state;
  struct plm_seen_list list = {.capacity = 4};
  list.items = must(calloc(list.capacity, sizeof *list.items));
  for (uint64_t step = 1; step <= 3; step++) {
    assert_ptr_equal(plm_seen_at(&list, step), &list.items[step - 1]);
    assert_int_equal(list.count, step);
  }
  plm_seen_deinit(&list);
}

static void attempts_become_rarer_and_end(void **state)
{
  (void)state;
  static const unsigned waits[] = {1, 2, 4, 8, 16, 32, 60, 60, 60, 0};
  struct plm_seen seen = {0};
  for (size_t i = 0; i < 10; i++) {
    const int64_t before = seen.retry_at_ms, now = 1000000 * (int64_t)(i + 1);
    assert_int_equal(plm_seen_postpone(&seen, now), waits[i]);
    assert_int_equal(seen.attempts, i + 1);
    assert_int_equal(seen.retry_at_ms, waits[i] == 0 ? before : now + 1000 * (int64_t)waits[i]);
  }
}

static void errors_that_may_pass(void **state)
{
  (void)state;
  static const plm_status pass[] = {PLM_IO,   PLM_NO_SPACE, PLM_NO_MEMORY, PLM_NO_DESCRIPTORS,
                                    PLM_BUSY, PLM_TIMEOUT};
  static const plm_status stay[] = {PLM_OK, PLM_CORRUPT, PLM_FORMAT, PLM_NOT_FOUND, PLM_LIMIT};
  for (size_t i = 0; i < sizeof pass / sizeof *pass; i++) assert_true(plm_seen_may_pass(pass[i]));
  for (size_t i = 0; i < sizeof stay / sizeof *stay; i++) assert_false(plm_seen_may_pass(stay[i]));
}

static void errors_of_the_checkpoint_itself(void **state)
{
  (void)state;
  static const plm_status corrupt[] = {PLM_CORRUPT, PLM_FORMAT, PLM_NOT_FOUND, PLM_NOT_FINITE};
  static const plm_status unread[] = {PLM_OK,    PLM_IO,   PLM_NO_SPACE, PLM_NO_MEMORY,  PLM_CONFIG,
                                      PLM_LIMIT, PLM_BUSY, PLM_TIMEOUT,  PLM_UNSUPPORTED};
  for (size_t i = 0; i < sizeof corrupt / sizeof *corrupt; i++)
    assert_true(plm_seen_is_corrupt(corrupt[i]));
  for (size_t i = 0; i < sizeof unread / sizeof *unread; i++)
    assert_false(plm_seen_is_corrupt(unread[i]));
}

/* ---- the MANIFEST ------------------------------------------------------------------------------
 */

static void put_manifest(uint64_t step, uint64_t low)
{
  struct plm_manifest manifest = {
      .step = step,
      .count = 2,
      .files = {{.name = "config.json", .size = 3, .hash = {9, 9}},
                {.name = "model.safetensors", .size = 5, .hash = {low, 4}}}};
  char name[PLM_CHECKPOINT_NAME_SIZE], path[200];
  char *text = plm_manifest_print(&manifest);
  plm_checkpoint_name(step, name);
  snprintf(path, sizeof path, "%.150s/%s", scratch_path("checkpoints"), name);
  assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
  snprintf(path, sizeof path, "%.150s/%s/MANIFEST", scratch_path("checkpoints"), name);
  scratch_write(path, text, strlen(text));
  struct utimbuf times = {.actime = (time_t)low, .modtime = (time_t)(1000000 + low)};
  assert_int_equal(utime(path, &times), 0); /* each one is said to be of another time */
  free(text);
}

static struct plm_seen *look(struct plm_seen_list *list, uint64_t step)
{
  struct plm_seen *seen = plm_seen_look(list, scratch_path("checkpoints"), step);
  assert_non_null(seen);
  assert_int_equal(seen->step, step);
  return seen;
}

static void weights_are_those_of_the_manifest(void **state)
{
  (void)state;
  struct plm_seen_list list = {0};
  struct plm_seen *seen = look(&list, 8);
  assert_null(plm_seen_identity(seen)); /* there is no checkpoint yet */
  put_manifest(8, 77);
  seen = look(&list, 8);
  assert_int_equal(plm_seen_identity(seen)->low, 77);
  assert_int_equal(plm_seen_identity(seen)->high, 4);
  seen->failed = true;
  seen->attempts = 3;
  seen->retry_at_ms = 99;
  seen = look(&list, 8); /* it is the same one */
  assert_true(seen->failed);
  assert_true(seen->attempts == 3 && seen->retry_at_ms == 99);
  put_manifest(8, 78); /* it is published again */
  seen = look(&list, 8);
  assert_int_equal(plm_seen_identity(seen)->low, 78);
  assert_false(seen->failed);
  assert_true(seen->attempts == 0 && seen->retry_at_ms == 0); /* it is looked at at once */
  char path[200];
  snprintf(path, sizeof path, "%.150s/step_00000008/MANIFEST", scratch_path("checkpoints"));
  seen->failed = true;
  scratch_write(path, "damaged", 7);
  seen = look(&list, 8); /* what is damaged says nothing: the weights are the last known ones */
  assert_false(seen->failed);
  assert_int_equal(plm_seen_identity(seen)->low, 78);
  put_manifest(12, 5);
  assert_int_equal(plm_seen_identity(look(&list, 12))->low, 5);
  assert_int_equal(plm_seen_identity(look(&list, 8))->low, 78);
  assert_int_equal(list.count, 2);
  plm_seen_deinit(&list);
}

/* ---- failures that the trainer recorded --------------------------------------------------------
 */

static void a_reason_is_found(void **state)
{
  (void)state;
  static const char json[] =
      "{\"history\":[{\"step\":4,\"failed\":\"no space\"},{\"step\":5},{\"step\":6,\"failed\":7},"
      "{\"step\":8,\"failed\":\"first\"},{\"step\":8,\"failed\":\"a reason that is long\"}]}";
  char why[64] = "";
  const char *folder = scratch_path("later");
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  assert_false(plm_seen_unpublished(folder, 4, why, sizeof why));
  scratch_write(scratch_path("later/trainer.json"), json, sizeof json - 1);
  assert_true(plm_seen_unpublished(folder, 4, why, sizeof why));
  assert_string_equal(why, "no space");
  assert_true(plm_seen_unpublished(folder, 8, why, 9));
  assert_string_equal(why, "a reason"); /* the last one, cut */
  for (uint64_t step = 5; step < 8; step++)
    assert_false(plm_seen_unpublished(folder, step, why, sizeof why));
  scratch_write(scratch_path("later/trainer.json"), "{}", 2);
  assert_false(plm_seen_unpublished(folder, 4, why, sizeof why));
}

/* ---- memory ------------------------------------------------------------------------------------
 */

static plm_status look_twice(void *context, struct plm_error *error)
{
  struct plm_seen_list list = {0};
  (void)context;
  const bool first = plm_seen_look(&list, scratch_path("checkpoints"), 8) != NULL;
  const bool second = first && plm_seen_look(&list, scratch_path("checkpoints"), 12) != NULL;
  const bool read = second && list.items[0].identified && list.items[1].identified;
  plm_seen_deinit(&list);
  return read ? PLM_OK : plm_error_set(error, PLM_NO_MEMORY, "out of memory");
}

static void a_lack_of_memory_is_said(void **state)
{
  (void)state;
  put_manifest(8, 77);
  put_manifest(12, 5);
  failing_memory_try(look_twice, NULL, 2);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(steps_are_in_order),
      cmocka_unit_test(room_is_not_looked_at),
      cmocka_unit_test(attempts_become_rarer_and_end),
      cmocka_unit_test(errors_that_may_pass),
      cmocka_unit_test(errors_of_the_checkpoint_itself),
      cmocka_unit_test(weights_are_those_of_the_manifest),
      cmocka_unit_test(a_reason_is_found),
      cmocka_unit_test(a_lack_of_memory_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
