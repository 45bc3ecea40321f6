/* The publisher: what it reports after successes and failures, what it announces and deletes. */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "tests/support/cases/checkpoint_case.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_starts.h"
#include "tests/support/harness/scratch.h"
#include "trainer/checkpoint/publish.h"

enum { ANNOUNCED_MS = 60000, TRY_MS = 20 };

/* ---- host memory, counted -------------------------------------------------------------------- */

static size_t allocated, allowed;

static plm_status allocate(struct plm_ops *ops, size_t bytes, void **memory,
                           struct plm_error *error)
{
  (void)ops;
  if (allocated == allowed) return plm_error_set(error, PLM_NO_MEMORY, "no more");
  *memory = calloc(1, bytes);
  assert_non_null(*memory);
  allocated++;
  return PLM_OK;
}

static void release(struct plm_ops *ops, void *memory)
{
  (void)ops;
  free(memory);
  allocated--;
}

static struct plm_ops memory = {.allocate_host = allocate, .release_host = release};

/* ---- the publisher --------------------------------------------------------------------------- */

static struct plm_publisher *open_publisher(struct checkpoint_case *c,
                                            struct plm_announcer *announcer)
{
  const struct plm_publisher_sizes sizes = {c->arena, c->arena, 6, 5};
  struct plm_publisher *publisher;
  allowed = 4;
  assert_int_equal(plm_publisher_open(&c->context, &memory, &sizes, announcer, &publisher, NULL),
                   PLM_OK);
  assert_int_equal(allocated, 4);
  return publisher;
}

/* A snapshot whose weights are all `step`. */
static struct plm_snapshot *fill(struct checkpoint_case *c, struct plm_publisher *publisher,
                                 uint64_t step)
{
  struct plm_snapshot *snapshot = plm_publisher_begin(publisher);
  snapshot->step = step;
  for (size_t i = 0; i < c->arena; i++) snapshot->weights[i] = (float)step;
  snapshot->trainer_json = strdup("{}");
  return snapshot;
}

static struct plm_publisher_outcome publish(struct checkpoint_case *c,
                                            struct plm_publisher *publisher, uint64_t step)
{
  fill(c, publisher, step);
  plm_publisher_submit(publisher);
  return plm_publisher_outcome(publisher, true);
}

/* No file may become larger than some bytes, so the write fails. */
static struct plm_publisher_outcome publish_in_vain(struct checkpoint_case *c,
                                                    struct plm_publisher *publisher, uint64_t step)
{
  struct rlimit limit, small;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  small = limit;
  small.rlim_cur = 1000;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  const struct plm_publisher_outcome outcome = publish(c, publisher, step);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  return outcome;
}

static void folder_of(const struct checkpoint_case *c, const char *name, char path[PLM_PATH_SIZE])
{
  assert_int_equal(plm_path_join(path, c->checkpoints, name, NULL), PLM_OK);
}

static bool holds(const struct checkpoint_case *c, const char *name)
{
  char path[PLM_PATH_SIZE];
  struct stat information;
  folder_of(c, name, path);
  return stat(path, &information) == 0;
}

static void failures_count_until_the_next_success(void **state)
{
  (void)state;
  struct checkpoint_case *c = checkpoint_case_open();
  struct plm_publisher *publisher = open_publisher(c, NULL);
  struct plm_publisher_outcome outcome = plm_publisher_outcome(publisher, true);
  assert_true(!outcome.any && outcome.status == PLM_OK && outcome.failures == 0);
  for (uint32_t i = 1; i <= 2; i++) {
    char said[96];
    captured_begin(STDERR_FILENO);
    outcome = publish_in_vain(c, publisher, 10 + i);
    const char *printed = captured_end();
    snprintf(said, sizeof said, "checkpoint %u FAILED (%u in a row); the previous one is intact",
             10 + i, i);
    assert_non_null(strstr(printed, said));
    assert_int_equal(outcome.status, PLM_LIMIT); /* EFBIG */
    assert_int_equal(outcome.error.status, PLM_LIMIT);
    assert_int_equal(outcome.failed_in_a_row, i);
    assert_int_equal(outcome.failures, i);
    assert_int_equal(outcome.failed_step, 10 + i);
    assert_false(outcome.any);
  }
  captured_begin(STDERR_FILENO);
  outcome = publish(c, publisher, 13);
  assert_null(strstr(captured_end(), "FAILED"));
  assert_int_equal(outcome.status, PLM_OK);
  assert_int_equal(outcome.error.status, PLM_OK);
  assert_int_equal(outcome.failed_in_a_row, 0);
  assert_int_equal(outcome.failures, 2);
  assert_true(outcome.any && outcome.step == 13 && outcome.seconds > 0);
  const struct plm_hash identity = outcome.identity;
  char path[PLM_PATH_SIZE];
  struct plm_hash found;
  folder_of(c, "step_00000013", path);
  assert_int_equal(plm_checkpoint_verify(path, NULL, &found, NULL, NULL), PLM_OK);
  assert_true(plm_hash_equal(identity, found));
  /* the next failure is the first in a row, and the newest checkpoint stays the one before it */
  outcome = publish_in_vain(c, publisher, 14);
  assert_int_equal(outcome.failed_in_a_row, 1);
  assert_int_equal(outcome.failures, 3);
  assert_int_equal(outcome.failed_step, 14);
  assert_true(outcome.any && outcome.step == 13);
  assert_true(plm_hash_equal(outcome.identity, identity));
  assert_false(holds(c, "step_00000014"));
  plm_publisher_close(publisher);
  assert_int_equal(allocated, 0);
  checkpoint_case_close(c);
}

/* The trainer counts a checkpoint that it cannot fill, and the snapshot is free again. Too few
 * descriptors say nothing about the disk. */
static void a_snapshot_that_cannot_be_filled_counts_as_well(void **state)
{
  (void)state;
  struct checkpoint_case *c = checkpoint_case_open();
  struct plm_publisher *publisher = open_publisher(c, NULL);
  static const struct {
    plm_status status;
    uint32_t in_a_row;
  } rows[] = {{PLM_IO, 1}, {PLM_NO_DESCRIPTORS, 1}, {PLM_NO_SPACE, 2}};
  for (uint64_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_error error = {0};
    plm_error_set(&error, rows[i].status, "the reason is %u", (unsigned)i);
    char expected[100];
    snprintf(expected, sizeof expected, "checkpoint %u FAILED (%u in a row)", 30 + (unsigned)i,
             rows[i].in_a_row);
    plm_publisher_begin(publisher)->step = 30 + i;
    captured_begin(STDERR_FILENO);
    plm_publisher_fail(publisher, &error);
    assert_int_equal(captured_times(captured_end(), expected), 1);
    const struct plm_publisher_outcome outcome = plm_publisher_outcome(publisher, false);
    assert_int_equal(outcome.status, rows[i].status);
    assert_string_equal(outcome.error.what, error.what);
    assert_int_equal(outcome.failed_in_a_row, rows[i].in_a_row);
    assert_int_equal(outcome.failures, i + 1);
    assert_int_equal(outcome.failed_step, 30 + i);
  }
  /* one that is only given back changes nothing */
  plm_publisher_begin(publisher)->step = 40;
  plm_publisher_cancel(publisher);
  assert_int_equal(plm_publisher_outcome(publisher, true).failures, 3);
  assert_int_equal(publish(c, publisher, 41).failed_in_a_row, 0);
  assert_false(holds(c, "step_00000040"));
  plm_publisher_close(publisher);
  checkpoint_case_close(c);
}

static void old_checkpoints_are_deleted_after_a_success(void **state)
{
  (void)state;
  struct checkpoint_case *c = checkpoint_case_open();
  struct plm_publisher *publisher = open_publisher(c, NULL);
  publish(c, publisher, 1);
  publish(c, publisher, 2);
  publish_in_vain(c, publisher, 3);
  assert_true(holds(c, "step_00000001") && holds(c, "step_00000002"));
  publish(c, publisher, 4);
  assert_false(holds(c, "step_00000001"));
  assert_true(holds(c, "step_00000002") && holds(c, "step_00000004"));
  plm_publisher_close(publisher);
  checkpoint_case_close(c);
}

/* A subscriber gets only what is sent after it has joined, so other announcements are sent until
 * one arrives. */
static void join(struct plm_announcer *announcer, struct plm_announcement_listener *listener)
{
  const struct plm_announcement nothing = {.path = "nothing"};
  struct plm_announcement message;
  for (int waited = 0; waited < ANNOUNCED_MS; waited += TRY_MS) {
    plm_announcer_send(announcer, &nothing);
    if (plm_listener_wait(listener, TRY_MS, &message, NULL) == PLM_OK) return;
  }
  fail_msg("no announcement within %d ms", ANNOUNCED_MS);
}

static void a_success_is_announced(void **state)
{
  (void)state;
  struct checkpoint_case *c = checkpoint_case_open();
  struct plm_announcer *announcer;
  struct plm_announcement_listener *listener;
  struct plm_announcement message;
  char path[PLM_PATH_SIZE];
  struct plm_hash hash;
  assert_int_equal(plm_announcer_open("tcp://127.0.0.1:*", NULL, &announcer, NULL), PLM_OK);
  assert_int_equal(plm_listener_open(plm_announcer_bound(announcer), NULL, &listener, NULL),
                   PLM_OK);
  struct plm_publisher *publisher = open_publisher(c, announcer);
  join(announcer, listener);
  publish_in_vain(c, publisher, 50);
  publish(c, publisher, 51);
  do {
    assert_int_equal(plm_listener_wait(listener, ANNOUNCED_MS, &message, NULL), PLM_OK);
  } while (strcmp(message.path, "nothing") == 0);
  assert_int_equal(message.step, 51);
  assert_string_equal(message.path, "checkpoints/step_00000051");
  folder_of(c, "step_00000051/MANIFEST", path);
  assert_int_equal(plm_hash_file(path, &hash, NULL, NULL, NULL), PLM_OK);
  assert_true(plm_hash_equal(message.manifest, hash));
  plm_publisher_close(publisher);
  plm_listener_close(listener);
  plm_announcer_close(announcer);
  checkpoint_case_close(c);
}

static void closing_waits_for_the_checkpoint(void **state)
{
  (void)state;
  struct checkpoint_case *c = checkpoint_case_open();
  struct plm_publisher *publisher = open_publisher(c, NULL);
  fill(c, publisher, 60);
  plm_publisher_submit(publisher);
  plm_publisher_close(publisher);
  assert_true(holds(c, "step_00000060"));
  plm_publisher_close(NULL);
  checkpoint_case_close(c);
}

/* Lets the writer go on after some signs. It waits for somebody who writes into the FIFO. */
struct signs {
  char fifo[PLM_PATH_SIZE];
  int count;
};

static void count_sign(void *context)
{
  struct signs *signs = context;
  if (++signs->count < 3) return;
  const int file = open(signs->fifo, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (file >= 0) close(file); /* the writer has not come so far, or continues */
}

/* Whoever waits for the writer gives signs of life meanwhile. */
static void waiting_for_the_writer_is_told(void **state)
{
  (void)state;
  enum { BEGINS, ASKS, CLOSES, WAYS };
  struct checkpoint_case *c = checkpoint_case_open();
  for (uint64_t way = 0; way < WAYS; way++) {
    char folder[PLM_PATH_SIZE], name[PLM_CHECKPOINT_NAME_SIZE];
    struct signs signs = {0};
    struct plm_publisher *publisher = open_publisher(c, NULL);
    plm_checkpoint_name(70 + way, name);
    folder_of(c, name, folder); /* what stands there is read before it is moved aside */
    assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
    assert_int_equal(plm_path_join(signs.fifo, folder, "MANIFEST", NULL), PLM_OK);
    assert_int_equal(mkfifo(signs.fifo, 0600), 0);
    plm_publisher_waiting(publisher, count_sign, &signs);
    fill(c, publisher, 70 + way);
    assert_int_equal(signs.count, 0);
    plm_publisher_submit(publisher);
    if (way == BEGINS) {
      plm_publisher_begin(publisher);
      plm_publisher_cancel(publisher);
    } else if (way == ASKS) {
      assert_int_equal(plm_publisher_outcome(publisher, true).step, 70 + way);
    }
    plm_publisher_close(publisher);
    if (signs.count < 3) fail_msg("%d signs in way %d", signs.count, (int)way);
    assert_int_equal(plm_checkpoint_verify(folder, NULL, NULL, NULL, NULL), PLM_OK);
  }
  checkpoint_case_close(c);
}

/* Either there is a publisher, or it has left nothing. */
static plm_status open_and_close(void *context, struct plm_error *error)
{
  struct checkpoint_case *c = context;
  const struct plm_publisher_sizes sizes = {c->arena, c->arena, 6, 5};
  struct plm_publisher *publisher;
  allowed = 4;
  const plm_status status =
      plm_publisher_open(&c->context, &memory, &sizes, NULL, &publisher, error);
  if (status == PLM_OK) plm_publisher_close(publisher);
  assert_int_equal(allocated, 0);
  return status;
}

static void its_thread_may_not_start(void **state)
{
  (void)state;
  struct checkpoint_case *c = checkpoint_case_open();
  assert_int_equal(failing_starts_try(open_and_close, c), 1);
  checkpoint_case_close(c);
}

static void memory_that_is_missing_is_an_error(void **state)
{
  (void)state;
  struct checkpoint_case *c = checkpoint_case_open();
  const struct plm_publisher_sizes sizes = {3, 0, 6, 5}; /* no average, so three buffers */
  struct plm_publisher *publisher;
  for (allowed = 0; allowed < 3; allowed++) {
    assert_int_equal(plm_publisher_open(&c->context, &memory, &sizes, NULL, &publisher, NULL),
                     PLM_NO_MEMORY);
    assert_int_equal(allocated, 0);
  }
  assert_int_equal(plm_publisher_open(&c->context, &memory, &sizes, NULL, &publisher, NULL),
                   PLM_OK);
  const struct plm_snapshot *snapshot = plm_publisher_begin(publisher);
  assert_true(snapshot->weights != NULL && snapshot->average == NULL);
  plm_publisher_cancel(publisher);
  plm_publisher_close(publisher);
  assert_int_equal(allocated, 0);
  checkpoint_case_close(c);
}

static atomic_int pauses;

/* Takes the place of libc's function in this program. */
int nanosleep(const struct timespec *wanted, struct timespec *left)
{
  pauses++;
  return (int)syscall(SYS_nanosleep, wanted, left);
}

/* No file can be opened for the checkpoint. A trainer that ends does not wait for descriptors. */
static void too_few_descriptors_are_told(void **state)
{
  (void)state;
  struct checkpoint_case *c = checkpoint_case_open();
  struct plm_publisher *publisher = open_publisher(c, NULL);
  struct rlimit limit, none;
  captured_begin(STDERR_FILENO);
  fill(c, publisher, 60);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
  none = limit;
  none.rlim_cur = 0;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  pauses = 0;
  plm_publisher_submit(publisher);
  plm_publisher_close(publisher);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
  const char *said = captured_end();
  assert_int_equal(captured_times(said, "checkpoint 60 is tried again: "), 1);
  assert_int_equal(captured_times(said, "checkpoint 60 FAILED (0 in a row)"), 1);
  assert_true(pauses < 39); /* all of them, if it did */
  assert_false(holds(c, "step_00000060"));
  checkpoint_case_close(c);
}

/* The checkpoint is there, though old ones cannot be deleted. */
static void old_checkpoints_that_stay_are_told(void **state)
{
  (void)state;
  struct checkpoint_case *c = checkpoint_case_open();
  struct plm_publisher *publisher = open_publisher(c, NULL);
  char reports[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(reports, c->run, PLM_RUN_EVALUATOR_METRICS, NULL), PLM_OK);
  assert_int_equal(symlink(reports, reports), 0); /* a loop */
  for (uint64_t step = 1; step <= 3; step++) publish(c, publisher, step);
  captured_begin(STDERR_FILENO);
  const struct plm_publisher_outcome outcome = publish(c, publisher, 4);
  assert_int_equal(captured_times(captured_end(), "old checkpoints could not be deleted: "), 1);
  assert_true(outcome.status == PLM_OK && outcome.step == 4);
  assert_true(holds(c, "step_00000001") && holds(c, "step_00000004"));
  plm_publisher_close(publisher);
  checkpoint_case_close(c);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(failures_count_until_the_next_success),
      cmocka_unit_test(a_snapshot_that_cannot_be_filled_counts_as_well),
      cmocka_unit_test(old_checkpoints_are_deleted_after_a_success),
      cmocka_unit_test(a_success_is_announced),
      cmocka_unit_test(closing_waits_for_the_checkpoint),
      cmocka_unit_test(waiting_for_the_writer_is_told),
      cmocka_unit_test(memory_that_is_missing_is_an_error),
      cmocka_unit_test(its_thread_may_not_start),
      cmocka_unit_test(too_few_descriptors_are_told),
      cmocka_unit_test(old_checkpoints_that_stay_are_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
