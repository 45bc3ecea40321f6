/* What a report reads from a run's folder: its name, state, configuration, machine and metrics. */
#include "common/run/done.h"
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "common/run/run.h"
#include "common/run/run_failure.h"
#include "stages/views/report_facts.h"
#include "stages/views/run_state.h"
#include "tests/support/harness/scratch.h"

static void write_file(const char *run, const char *name, const char *text)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, run, name, NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
}

static void new_folder(const char *run, const char *name)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, run, name, NULL), PLM_OK);
  assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
}

static void make_run(const char *name, char run[PLM_PATH_SIZE])
{
  snprintf(run, PLM_PATH_SIZE, "%s", scratch_path(name));
  new_folder(run, "checkpoints/step_00000004");
  new_folder(run, "checkpoints/step_00000008");
  write_file(run, "pipeline.yaml", "version: 1\nseed: 7\n");
}

static void state_file(const char *run, const char *step, const char *text)
{
  char name[128];
  snprintf(name, sizeof name, "checkpoints/step_%s/trainer.json", step);
  write_file(run, name, text);
}

static void a_state_is_that_of_the_locks_and_of_done(void **state)
{
  (void)state;
  static const char *const holders[] = {"trainer", "supervisor"};
  char run[PLM_PATH_SIZE];
  struct plm_lock *lock;
  make_run("state", run);
  assert_true(plm_is_run(run));
  assert_false(plm_is_run(scratch_directory()));
  assert_string_equal(plm_run_state(run), "stopped");
  for (int i = 0; i < 2; i++) {
    assert_int_equal(plm_lock_acquire(run, holders[i], &lock, NULL), PLM_OK);
    assert_string_equal(plm_run_state(run), "running");
    plm_lock_release(lock);
    assert_string_equal(plm_run_state(run), "stopped");
  }
  assert_int_equal(plm_lock_acquire(run, "evaluator", &lock, NULL), PLM_OK);
  assert_string_equal(plm_run_state(run), "stopped"); /* it alone is not the run */
  plm_lock_release(lock);
  assert_int_equal(
      plm_done_write(run, &(struct plm_done){.step = 8, .identity = {.high = 1}}, NULL), PLM_OK);
  assert_string_equal(plm_run_state(run), "complete");
  const struct plm_run_failure failure = {.exit_code = 2};
  assert_int_equal(plm_run_failure_write(run, &failure, NULL), PLM_OK);
  assert_string_equal(plm_run_state(run), "failed"); /* also if only the evaluation is missing */
  assert_int_equal(plm_lock_acquire(run, "supervisor", &lock, NULL), PLM_OK);
  assert_string_equal(plm_run_state(run), "running");
  plm_lock_release(lock);
}

static void the_newest_checkpoint_tells_the_machine(void **state)
{
  (void)state;
  static struct plm_report_run run;
  char folder[PLM_PATH_SIZE], named[PLM_PATH_SIZE + 4];
  struct plm_error error = {0};
  make_run("machine", folder);
  state_file(folder, "00000004", "{\"resolved\":{\"device\":\"older\"}}");
  state_file(
      folder, "00000008",
      "{\"resolved\":{\"device\":\"cpu\",\"precision\":\"bf16\",\"threads\":3,\"ranks\":2,"
      "\"processor\":\"6, 143, A Processor, with a comma, 8\",\"level\":\"amx\",\"products\":"
      "\"oneDNN\",\"product_flops_per_second\":2.5e11,\"version\":\"9.8.7\",\"build\":\"b\"}}");
  snprintf(named, sizeof named, "%s///", folder);
  memset(&run, 'x', sizeof run); /* whatever it was before */
  assert_int_equal(plm_report_run_read(named, &run, &error), PLM_OK);
  assert_string_equal(run.folder, folder);
  assert_string_equal(run.name, "machine");
  assert_string_equal(run.state, "stopped");
  assert_int_equal(run.config.seed, 7);
  assert_true(run.machine.known);
  assert_string_equal(run.machine.processor, "A Processor, with a comma");
  assert_string_equal(run.machine.device, "cpu");
  assert_string_equal(run.machine.level, "amx");
  assert_string_equal(run.machine.precision, "bf16");
  assert_string_equal(run.machine.products, "oneDNN");
  assert_string_equal(run.machine.version, "9.8.7");
  assert_string_equal(run.machine.build, "b");
  assert_int_equal(run.machine.threads, 3);
  assert_int_equal(run.machine.ranks, 2);
  assert_true(run.machine.product_flops == 2.5e11);
  assert_int_equal(run.marks.count, 0);
  plm_report_run_deinit(&run);
  /* also if it is the only one */
  snprintf(named, sizeof named, "%s", scratch_path("machine/checkpoints/step_00000004"));
  assert_int_equal(plm_path_remove(named, NULL), PLM_OK);
  assert_int_equal(plm_report_run_read(folder, &run, &error), PLM_OK);
  assert_string_equal(run.machine.device, "cpu");
  plm_report_run_deinit(&run);
}

static void a_machine_may_be_unknown_or_odd(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    bool known;
    const char *processor;
    unsigned threads;
  } cases[] = {
      {"no json", false, "", 0},
      {"{}", false, "", 0},
      {"{\"resolved\":[1]}", false, "", 0},
      {"{\"resolved\":{}}", true, "", 0},
      {"{\"resolved\":{\"processor\":\"plain\",\"threads\":-1}}", true, "plain", 0},
      {"{\"resolved\":{\"processor\":\"a, b\",\"threads\":0}}", true, "a, b", 0},
      {"{\"resolved\":{\"processor\":\"a, b, c\",\"threads\":1e9}}", true, "a, b, c", 0},
      {"{\"resolved\":{\"processor\":\"a, b, c, d\",\"threads\":999999999}}", true, "c", 999999999},
      {"{\"resolved\":{\"processor\":7,\"threads\":\"2\"}}", true, "", 0},
  };
  static struct plm_report_run run;
  char folder[PLM_PATH_SIZE];
  struct plm_error error = {0};
  make_run("odd", folder);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    state_file(folder, "00000008", cases[i].text);
    if (plm_report_run_read(folder, &run, &error) != PLM_OK) fail_msg("%s", error.what);
    assert_int_equal(run.machine.known, cases[i].known);
    assert_string_equal(run.machine.processor, cases[i].processor);
    assert_int_equal(run.machine.threads, cases[i].threads);
    plm_report_run_deinit(&run);
  }
}

/* A run that is stopped has been trained as its newest checkpoint says. One that is running is
 * trained as it was started last, and what that changed becomes marks. */
static void the_checkpoint_has_the_configuration(void **state)
{
  (void)state;
  static struct plm_report_run run;
  char folder[PLM_PATH_SIZE];
  struct plm_error error = {0};
  struct plm_lock *lock;
  make_run("kept", folder);
  write_file(folder, "pipeline.yaml", "seed: 7\ntrainer: {steps: 50, ema: 0.5}\n");
  state_file(folder, "00000008",
             "{\"step\":8,\"configuration\":\"seed: 7\\ntrainer: {steps: 20, ema: 0.25}\\n\"}");
  if (plm_report_run_read(folder, &run, &error) != PLM_OK) fail_msg("%s", error.what);
  assert_int_equal(run.config.trainer.steps, 20);
  assert_true(run.config.trainer.ema == 0.25);
  assert_int_equal(run.marks.count, 0);
  plm_report_run_deinit(&run);
  assert_int_equal(plm_lock_acquire(folder, "trainer", &lock, NULL), PLM_OK);
  const plm_status status = plm_report_run_read(folder, &run, &error);
  plm_lock_release(lock);
  assert_int_equal(status, PLM_OK);
  assert_int_equal(run.config.trainer.steps, 50);
  assert_true(run.config.trainer.ema == 0.5);
  assert_int_equal(run.marks.count, 4); /* warmup and cooldown are parts of the steps */
  for (size_t i = 0; i < 4; i++) assert_int_equal(run.marks.list[i].step, 8);
  assert_string_equal(run.marks.list[0].text, "trainer.steps: 20 -> 50");
  assert_string_equal(run.marks.list[3].text, "trainer.ema: 0.25 -> 0.5");
  plm_report_run_deinit(&run);
  state_file(folder, "00000008", "{\"step\":8,\"configuration\":\"seed: [\"}");
  if (plm_report_run_read(folder, &run, &error) != PLM_OK) fail_msg("%s", error.what);
  assert_int_equal(run.config.trainer.steps, 50); /* it cannot be read */
  plm_report_run_deinit(&run);
}

static void metrics_of_both_stages_are_read(void **state)
{
  (void)state;
  static struct plm_report_run run;
  char folder[PLM_PATH_SIZE];
  struct plm_error error = {0};
  make_run("metrics", folder);
  assert_int_equal(plm_report_run_read(folder, &run, &error), PLM_OK);
  assert_null(plm_report_curve(&run, PLM_REPORT_TRAINER_loss));
  plm_report_run_deinit(&run);
  write_file(
      folder, "trainer.jsonl",
      "{\"step\":1,\"loss\":3,\"accuracy\":0.5}\n{\"step\":2,\"loss\":2}\n"
      "{\"step\":3,\"loss_by_source\":{\"a\":6,\"b\":7},\"tokens_by_source\":{\"a\":8,\"b\":9}}\n"
      "{\"step\":4,\"resumed\":3}\n");
  write_file(folder, "evaluator.jsonl",
             "{\"step\":2,\"split\":\"valid\",\"loss\":4,\"mcc\":0.25}\n");
  assert_int_equal(plm_report_run_read(folder, &run, &error), PLM_OK);
  assert_int_equal(plm_report_curve(&run, PLM_REPORT_TRAINER_loss)->count, 2);
  assert_true(plm_report_curve(&run, PLM_REPORT_TRAINER_loss)->y[1] == 2);
  assert_true(plm_report_curve(&run, PLM_REPORT_TRAINER_accuracy)->y[0] == 0.5);
  assert_null(plm_report_curve(&run, PLM_REPORT_TRAINER_mfu));
  assert_true(run.marks.count == 1 && run.marks.list[0].step == 3);
  for (size_t k = 0; k < 2; k++) {
    const struct plm_curve *loss = &run.trainer[PLM_REPORT_TRAINER_loss_by_source].list[k],
                           *tokens = &run.trainer[PLM_REPORT_TRAINER_tokens_by_source].list[k];
    assert_string_equal(loss->split, k == 0 ? "a" : "b");
    assert_true(loss->y[0] == 6 + (double)k && tokens->y[0] == 8 + (double)k);
  }
  assert_true(run.evaluator[PLM_REPORT_EVALUATOR_loss].list[0].y[0] == 4);
  assert_true(run.evaluator[PLM_REPORT_EVALUATOR_mcc].list[0].y[0] == 0.25);
  assert_int_equal(run.evaluator[PLM_REPORT_EVALUATOR_accuracy].count, 0);
  plm_report_run_deinit(&run);
}

static void what_is_no_run_is_refused(void **state)
{
  (void)state;
  static struct plm_report_run run;
  char folder[PLM_PATH_SIZE], wanted[PLM_PATH_SIZE + 64], where[PLM_PATH_SIZE + 16];
  struct plm_error error = {0};
  make_run("wrong", folder);
  snprintf(wanted, sizeof wanted, "%s is not a run folder: it has no pipeline.yaml",
           scratch_directory());
  assert_int_equal(plm_report_run_read(scratch_directory(), &run, &error), PLM_NOT_FOUND);
  assert_string_equal(error.what, wanted);
  write_file(folder, "pipeline.yaml", "seed: [\n");
  assert_int_not_equal(plm_report_run_read(folder, &run, &error), PLM_OK);
  snprintf(where, sizeof where, "%s/pipeline.yaml", folder);
  assert_string_equal(error.where, where);
  write_file(folder, "pipeline.yaml", "seed: 1\n");
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, folder, "trainer.jsonl", NULL), PLM_OK);
  assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
  assert_int_equal(plm_report_run_read(folder, &run, &error), PLM_IO);
  assert_int_equal(plm_report_run_read("/", &run, &error), PLM_NOT_FOUND);
  assert_string_equal(run.name, "/");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_state_is_that_of_the_locks_and_of_done),
      cmocka_unit_test(the_newest_checkpoint_tells_the_machine),
      cmocka_unit_test(a_machine_may_be_unknown_or_odd),
      cmocka_unit_test(the_checkpoint_has_the_configuration),
      cmocka_unit_test(metrics_of_both_stages_are_read),
      cmocka_unit_test(what_is_no_run_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
