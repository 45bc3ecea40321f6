/* Which reports of evaluator.jsonl count for early stopping, and which checkpoint is the best. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/checkpoint/early_stop.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_memory.h"
#include "tests/support/harness/scratch.h"

#define LINE(step, split, loss) \
  "{\"step\": " step ", \"split\": \"" split "\", \"loss\": " loss "}\n"

static struct plm_early_stop read_on(const char *text, const struct plm_early_stop_rule *rule,
                                     uint64_t until, struct plm_early_stop_reports *reports)
{
  char path[PLM_PATH_SIZE];
  struct plm_early_stop found;
  assert_int_equal(plm_path_join(path, scratch_directory(), "evaluator.jsonl", NULL), PLM_OK);
  assert_int_equal(plm_file_write(path, text, strlen(text), 0644, NULL), PLM_OK);
  assert_int_equal(plm_early_stop_read(path, rule, until, reports, &found, NULL), PLM_OK);
  return found;
}

static void the_best_is_found(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    uint64_t until;
    bool higher;
    uint32_t reported, since;
    uint64_t best_step;
    double best;
  } rows[] = {
      {"", 9, false, 0, 0, 0, NAN},
      {LINE("1", "valid", "3") LINE("2", "valid", "2") LINE("3", "valid", "2.5")
           LINE("4", "valid", "2"),
       9, false, 4, 2, 2, 2},
      {LINE("1", "valid", "3") LINE("2", "valid", "2") LINE("3", "valid", "2.5"), 9, true, 3, 2, 1,
       3},
      /* later steps, other splits, sets, null and what is no JSON do not count */
      {LINE("1", "valid", "3") LINE("2", "test", "1")
           LINE("3", "valid", "null") "nonsense\n" LINE("5", "valid", "1"),
       4, false, 1, 0, 1, 3},
      {LINE("1", "valid",
            "3") "{\"step\": 2, \"split\": \"valid\", \"set\": \"other\", \"loss\": 1}\n",
       9, false, 1, 0, 1, 3},
      /* the last line about a step counts, and lines may come in any order */
      {LINE("3", "valid", "1") LINE("1", "valid", "2") LINE("3", "valid", "4"), 9, false, 2, 1, 1,
       2},
      /* an unfinished line is not there yet */
      {LINE("1", "valid", "2") "{\"step\": 2, \"split\": \"valid\", \"loss\": 1}", 9, false, 1, 0,
       1, 2},
      /* a step is a whole number up to 2^53 */
      {LINE("1", "valid", "3") LINE("1e300", "valid", "2") LINE("1.5", "valid", "1")
           LINE("-1", "valid", "1") LINE("9007199254740994", "valid", "1"),
       UINT64_MAX, false, 1, 0, 1, 3},
      {LINE("9007199254740992", "valid", "1"), UINT64_MAX, false, 1, 0, UINT64_C(1) << 53, 1},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const struct plm_early_stop_rule rule = {
        .split = "valid", .metric = "loss", .higher = rows[i].higher};
    struct plm_early_stop_reports reports = {0};
    const struct plm_early_stop found = read_on(rows[i].text, &rule, rows[i].until, &reports);
    plm_early_stop_deinit(&reports);
    if (found.reported != rows[i].reported || found.since != rows[i].since ||
        found.best_step != rows[i].best_step ||
        !(found.best == rows[i].best || (isnan(found.best) && isnan(rows[i].best))))
      fail_msg("row %zu: %u reported, %u since step %llu with %g", i, found.reported, found.since,
               (unsigned long long)found.best_step, found.best);
  }
}

static void a_missing_file_reports_nothing(void **state)
{
  (void)state;
  struct plm_early_stop found;
  struct plm_early_stop_reports reports = {0};
  const struct plm_early_stop_rule rule = {.split = "valid", .metric = "loss"};
  assert_int_equal(plm_early_stop_read("no/such/file", &rule, 9, &reports, &found, NULL), PLM_OK);
  assert_int_equal(found.reported, 0);
  plm_early_stop_deinit(&reports);
}

/* Only what is new is read, and an unfinished line when it is whole. */
static void a_file_is_read_on(void **state)
{
  (void)state;
#define TWO LINE("1", "valid", "3") "{\"note\": \"%01200d\"}\n" LINE("2", "valid", "2")
  static const char third[] = LINE("3", "valid", "1");
  static const struct plm_early_stop_rule rule = {.split = "valid", .metric = "loss"};
  struct plm_early_stop_reports reports = {0};
  char text[2048];
  (void)snprintf(text, sizeof text, TWO, 0);
  assert_int_equal(read_on(text, &rule, 9, &reports).best_step, 2);
  (void)snprintf(text, sizeof text, TWO "%.20s", 0, third);
  assert_int_equal(read_on(text, &rule, 9, &reports).reported, 2);
  /* the first line is not read again, whatever it has by now */
  (void)snprintf(text, sizeof text, TWO "%s", 0, third);
  text[strlen(LINE("1", "valid", "")) - 2] = '0';
  assert_int_equal(read_on(text, &rule, 9, &reports).best_step, 3);
  assert_int_equal(read_on(text, &rule, 2, &reports).best_step, 2);
  /* another file is: one that is shorter, and one in which the last line was another */
  assert_int_equal(read_on(LINE("7", "valid", "5"), &rule, 9, &reports).best_step, 7);
  assert_int_equal(
      read_on(LINE("6", "valid", "5") LINE("8", "valid", "4"), &rule, 9, &reports).reported, 2);
  assert_int_equal(reports.count, 2);
  /* one whose end was cut: what its last line about the step had hidden counts again */
  assert_int_equal(
      read_on(LINE("6", "valid", "5") LINE("6", "valid", "7"), &rule, 9, &reports).best, 7);
  assert_int_equal(read_on(LINE("6", "valid", "5"), &rule, 9, &reports).best, 5);
  plm_early_stop_deinit(&reports);
#undef TWO
}

/* A file that disappears reports nothing any more. */
static void a_lost_file_is_forgotten(void **state)
{
  (void)state;
  static const struct plm_early_stop_rule rule = {.split = "valid", .metric = "loss"};
  struct plm_early_stop_reports reports = {0};
  struct plm_early_stop found;
  char path[PLM_PATH_SIZE];
  assert_int_equal(read_on(LINE("1", "valid", "3"), &rule, 9, &reports).reported, 1);
  assert_int_equal(plm_path_join(path, scratch_directory(), "evaluator.jsonl", NULL), PLM_OK);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(plm_early_stop_read(path, &rule, 9, &reports, &found, NULL), PLM_OK);
  assert_int_equal(found.reported, 0);
  assert_int_equal(read_on(LINE("2", "valid", "3"), &rule, 9, &reports).best_step, 2);
  plm_early_stop_deinit(&reports);
}

static const char three[] = LINE("1", "valid", "3") LINE("2", "valid", "1") LINE("3", "valid", "2");
static char growing[PLM_PATH_SIZE];

static plm_status read_twice(void *context, struct plm_error *error)
{
  static const struct plm_early_stop_rule rule = {.split = "valid", .metric = "loss"};
  struct plm_early_stop_reports reports = {0};
  struct plm_early_stop found;
  const size_t two = sizeof three - 1 - strlen(LINE("3", "valid", "2"));
  (void)context;
  long at = checked_memory_pause();
  assert_int_equal(plm_file_write(growing, three, two, 0644, NULL), PLM_OK);
  checked_memory_resume(at);
  plm_status status = plm_early_stop_read(growing, &rule, 9, &reports, &found, error);
  at = checked_memory_pause();
  assert_int_equal(plm_file_write(growing, three, sizeof three - 1, 0644, NULL), PLM_OK);
  checked_memory_resume(at);
  if (status == PLM_OK) status = plm_early_stop_read(growing, &rule, 9, &reports, &found, error);
  at = checked_memory_pause();
  /* what was lacking is read by the next call */
  if (status != PLM_OK)
    assert_int_equal(plm_early_stop_read(growing, &rule, 9, &reports, &found, NULL), PLM_OK);
  assert_int_equal(found.reported, 3);
  assert_int_equal(found.best_step, 2);
  assert_int_equal(found.since, 1);
  plm_early_stop_deinit(&reports);
  checked_memory_resume(at);
  return status;
}

static void a_lack_of_memory_is_said(void **state)
{
  (void)state;
  assert_int_equal(plm_path_join(growing, scratch_directory(), "growing", NULL), PLM_OK);
  plm_log_init("t", PLM_LOG_ERROR);
  failing_memory_try(read_twice, NULL, 20);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_best_is_found),        cmocka_unit_test(a_missing_file_reports_nothing),
      cmocka_unit_test(a_file_is_read_on),        cmocka_unit_test(a_lost_file_is_forgotten),
      cmocka_unit_test(a_lack_of_memory_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
