/* The watching evaluator on a run that a trainer in this process has made: each checkpoint has a
 * line for each held-out set, with the numbers of `evaluate` on that checkpoint. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/base/files/descriptors.h"
#include "common/base/files/file.h"
#include "common/run/run.h"
#include "common/run/stop.h"
#include "evaluator/evaluate/evaluate_once.h"
#include "evaluator/watch/watch.h"
#include "tests/support/cases/run_files.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/open_call.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/packers.h"
#include "tests/support/peers/trainer_scene.h"

enum { STEPS = 4, EVERY = 2, SETS = 2, LINES = SETS * (STEPS / EVERY + 1) };

static struct trainer_scene scene;
static char signs[1 << 14]; /* of life: what each says to be done, once, however often it is said */
/* The last sign, now and when weights were opened. */
static char last_sign[1 << 12], sign_at_weights[1 << 12];
static char away[PLM_PATH_SIZE], done[PLM_PATH_SIZE]; /* DONE, until a task of step 2 begins */

/* Takes the place of libc's function in this program. */
int rename(const char *from, const char *to)
{
  if (strstr(to, "/pulse.evaluator.json") != NULL) {
    char *text;
    size_t size;
    assert_int_equal(plm_file_read(from, 1 << 12, &text, &size, NULL), PLM_OK);
    char *behind = strstr(text, ",\"waits\":");
    assert_non_null(behind);
    *behind = '\0'; /* the time of the sign */
    snprintf(last_sign, sizeof last_sign, "%s", text);
    if (strstr(signs, text) == NULL) {
      assert_true(strlen(signs) + strlen(text) < sizeof signs);
      strcat(signs, text);
    }
    if (strstr(text, "step 2 (stability)") != NULL) (void)link(away, done);
    free(text);
  }
  return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static int kept_at_weights; /* descriptors in reserve when weights were opened */

/* Descriptors of /dev/null, of which the reserve consists. */
static int null_descriptors(void)
{
  enum { MOST = 1024 };
  int count = 0;
  for (int descriptor = 0; descriptor < MOST; descriptor++) {
    struct stat found;
    if (fstat(descriptor, &found) != 0 || !S_ISCHR(found.st_mode)) continue;
    count += found.st_rdev == makedev(1, 3);
  }
  return count;
}

static bool unreadable; /* the next opening of the weights of step 0 fails */

int open(const char *path, int flags, ...)
{
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = open_call_mode(flags, arguments);
  va_end(arguments);
  if (strstr(path, "/model.safetensors") != NULL) {
    strcpy(sign_at_weights, last_sign);
    kept_at_weights = null_descriptors();
  }
  if (unreadable && strstr(path, "/step_00000000/model.safetensors") != NULL) {
    unreadable = false;
    errno = EIO;
    return -1;
  }
  return open_call_run(path, flags, mode);
}

/* Watches until everything is reported. Returns what it says. */
static const char *watch(bool labelled)
{
  struct plm_error error = {0};
  struct plm_ops *ops;
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  const pid_t packer = trainer_scene_pack(&scene, trainer_scene_corpus(labelled),
                                          scene.config.network.evaluation_feed);
  plm_stop_requested = 0;
  signs[0] = '\0';
  static bool lent;
  if (!lent) plm_descriptors_lend(); /* what the trainer reserved */
  const int without = null_descriptors();
  plm_descriptors_reclaim();
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_watch(&scene.config, ops, &error);
  const char *said = captured_end();
  const int at_the_end = null_descriptors();
  plm_descriptors_lend(); /* closes those in reserve */
  lent = true;
  packers_stop(packer, SIGKILL);
  ops->close(ops);
  if (status != PLM_OK) fail_msg("%s", error.what);
  assert_int_equal(at_the_end, without + PLM_DESCRIPTORS_RESERVED);
  assert_int_equal(kept_at_weights, without); /* lent while files are opened */
  assert_int_equal(null_descriptors(), without);
  return said;
}

static cJSON *read_lines(void)
{
  return run_files_metrics(scene.run, PLM_RUN_EVALUATOR_METRICS);
}

/* What `evaluate --json` prints of a checkpoint on a corpus. */
static cJSON *evaluate(int step, bool labelled, const char *labels)
{
  char checkpoint[PLM_PATH_SIZE];
  struct plm_error error = {0};
  struct plm_ops *ops;
  snprintf(checkpoint, sizeof checkpoint, "%.4000s/checkpoints/step_%08d", scene.run, step);
  const struct plm_evaluate_request request = {.checkpoint = checkpoint,
                                               .corpus = trainer_scene_corpus(labelled),
                                               .split = "valid",
                                               .labels = labels,
                                               .mask_rate = 0.25,
                                               .seed = 3,
                                               .elbo_rates = 2,
                                               .json = true};
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  captured_begin(STDERR_FILENO);
  captured_begin(STDOUT_FILENO);
  const plm_status status = plm_evaluate_once(&request, ops, &error);
  fflush(stdout);
  cJSON *line = cJSON_Parse(captured_end());
  const char *said = captured_end();
  ops->close(ops);
  assert_int_equal(captured_times(said, plm_corpus_split_words(false)), status == PLM_OK);
  if (status != PLM_OK && labels == NULL) fail_msg("%s", error.what);
  assert_int_equal(line != NULL, status == PLM_OK);
  return line;
}

static void same(const cJSON *line, const cJSON *other, const char *name)
{
  const cJSON *a = cJSON_GetObjectItemCaseSensitive(line, name),
              *b = cJSON_GetObjectItemCaseSensitive(other, name);
  if (a == NULL || !cJSON_Compare(a, b, true))
    fail_msg("%s: %s, but %s", name, cJSON_PrintUnformatted(line), cJSON_PrintUnformatted(other));
}

static void each_checkpoint_is_evaluated(void **state)
{
  (void)state;
  static const char *const names[] = {"step",
                                      "identity",
                                      "split",
                                      "weights",
                                      "loss",
                                      "perplexity",
                                      "accuracy",
                                      "f1",
                                      "mcc",
                                      "tokens",
                                      "elbo",
                                      "baseline_entropy",
                                      "loss_by_length",
                                      "compute_dtype",
                                      "cut"};
  watch(false);
  /* only what is long and gives no further sign is patient */
  assert_non_null(strstr(signs, "\"doing\":\"verifying step 2\",\"patient\":true"));
  assert_non_null(strstr(signs, "\"doing\":\"loading step 2\",\"patient\":true"));
  assert_non_null(strstr(signs, "\"doing\":\"evaluating step 2 (valid)\",\"patient\":false"));
  assert_non_null(strstr(signs, "\"doing\":\"evaluating step 2 (other)\",\"patient\":false"));
  cJSON *lines = read_lines();
  assert_int_equal(cJSON_GetArraySize(lines), LINES);
  for (int i = 0; i < LINES; i++) {
    const cJSON *line = cJSON_GetArrayItem(lines, i);
    const int step = i / SETS * EVERY;
    const bool other = i % SETS == 1;
    assert_string_equal(cJSON_GetObjectItem(line, "set")->valuestring, other ? "other" : "corpus");
    assert_true(trainer_scene_number(line, "step") == step);
    assert_true(trainer_scene_number(line, "lag_steps") == STEPS - step);
    assert_true(trainer_scene_number(line, "seconds") > 0);
    cJSON *expected = evaluate(step, other, NULL);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) same(line, expected, names[k]);
    const cJSON *rates = cJSON_GetObjectItem(line, "loss_by_mask_rate");
    assert_int_equal(cJSON_GetArraySize(rates), 2);
    assert_true(cJSON_HasObjectItem(rates, "0.25") && cJSON_HasObjectItem(rates, "0.5"));
    cJSON_Delete(expected);
  }
  cJSON_Delete(lines);
}

/* What is reported is not evaluated again, and a line that is missing is, also if its checkpoint
 * cannot be read at first. */
static void reports_count(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  watch(false);
  cJSON *lines = read_lines();
  assert_int_equal(cJSON_GetArraySize(lines), LINES);
  cJSON_Delete(lines);
  assert_false(run_files_has_endpoint(scene.run, "evaluation_feed"));
  assert_int_equal(plm_path_join(path, scene.run, PLM_RUN_EVALUATOR_METRICS, NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 20, &text, &size, NULL), PLM_OK);
  char *second = strchr(text, '\n') + 1, *third = strchr(second, '\n') + 1;
  memmove(second, third, strlen(third) + 1);
  assert_int_equal(plm_file_write(path, text, strlen(text), 0644, NULL), PLM_OK);
  free(text);
  unreadable = true;
  const char *said = watch(false);
  assert_non_null(strstr(said, "step 0 cannot be read; the next attempt is in 1 s: "));
  assert_non_null(strstr(said, "step 0 other valid: loss "));
  assert_null(strstr(said, "step 0 valid: loss "));
  assert_null(strstr(said, "step 2"));
  lines = read_lines();
  assert_int_equal(cJSON_GetArraySize(lines), LINES + 1);
  const cJSON *last = cJSON_GetArrayItem(lines, LINES); /* behind one about the wait */
  assert_true(trainer_scene_number(last, "step") == 0);
  assert_string_equal(cJSON_GetObjectItem(last, "set")->valuestring, "other");
  cJSON_Delete(lines);
}

/* What a task needs before it begins may take long, so that is said first. */
static void a_task_is_named_before_it_begins(void **state)
{
  (void)state;
  struct plm_config_evaluator *options = &scene.config.evaluator;
  char name[] = "stability", target[] = "y", split[] = "part", table[PLM_PATH_SIZE];
  struct plm_text rows = {0};
  snprintf(table, sizeof table, "%s", scratch_path("table.csv"));
  plm_text_puts(&rows, "sequence,y,part\n");
  for (int i = 0; i < 30; i++)
    plm_text_printf(&rows, "%.8s,%d,%s\n", &"LAGVSERTIDPKQNFYMHWCLAGVSERTIDPKQNFYMHWC"[i], i % 7,
                    i % 3 == 0 ? "test" : "train");
  scratch_write(table, rows.data, rows.length);
  plm_text_deinit(&rows);
  options->tasks[options->task_count++] = (struct plm_config_task){.name = name,
                                                                   .path = table,
                                                                   .kind = PLM_TASK_PROBE,
                                                                   .every = 1,
                                                                   .target = target,
                                                                   .split = split};
  assert_int_equal(plm_path_join(done, scene.run, "DONE", NULL), PLM_OK);
  assert_int_equal(plm_path_join(away, scene.run, "away", NULL), PLM_OK);
  assert_int_equal(rename(done, away), 0);
  const char *said = watch(false);
  options->tasks[--options->task_count] = (struct plm_config_task){0};
  assert_non_null(strstr(said, "stability is skipped for step 0, because the checkpoint of step 4 "
                               "is newer\n")); /* while it is not known to be the last */
  assert_non_null(strstr(said, "step 4 stability: "));
  assert_non_null(strstr(sign_at_weights, "\"doing\":\"step 4 (stability)\",\"patient\":true"));
}

/* The event files of the evaluator say that the run is complete. */
static void the_board_says_that_it_is_complete(void **state)
{
  (void)state;
  static const char ended[] = "_hparams_/session_end_info";
  char folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE], *bytes;
  size_t size;
  int found = 0;
  assert_int_equal(plm_path_join(folder, scene.run, "tensorboard/evaluator", NULL), PLM_OK);
  DIR *directory = opendir(folder);
  assert_non_null(directory);
  for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
    if (entry->d_name[0] == '.') continue;
    assert_int_equal(plm_path_join(path, folder, entry->d_name, NULL), PLM_OK);
    assert_int_equal(plm_file_read(path, 1 << 20, &bytes, &size, NULL), PLM_OK);
    found += memmem(bytes, size, ended, strlen(ended)) != NULL;
    free(bytes);
  }
  closedir(directory);
  assert_true(found > 0);
}

/* The labels of a run are evaluated like those of `evaluate`. */
static void a_run_that_predicts_labels(void **state)
{
  (void)state;
  static const char *const names[] = {"step", "loss", "accuracy", "macro_f1", "labels"};
  const struct trainer_scene kept = scene;
  struct plm_error error;
  trainer_scene_open_labelled(&scene, "steps: 2, objective: classification, labels: [family], "
                                      "checkpoint: {every: 2}");
  assert_int_equal(trainer_scene_run(&scene, &error), PLM_OK);
  trainer_scene_close(&scene);
  trainer_scene_endpoint(&scene.config.network.evaluation_feed);
  watch(true);
  cJSON *lines = read_lines();
  assert_int_equal(cJSON_GetArraySize(lines), 2);
  for (int i = 0; i < 2; i++) {
    cJSON *expected = evaluate(2 * i, true, i == 0 ? NULL : "family");
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
      same(cJSON_GetArrayItem(lines, i), expected, names[k]);
    cJSON_Delete(expected);
  }
  cJSON_Delete(lines);
  assert_null(evaluate(2, true, "structure")); /* which it does not predict */
  plm_config_deinit(&scene.config);
  scene = kept;
}

static int setup(void **state)
{
  char more[PLM_PATH_SIZE + 200], trainer[100];
  (void)trainer_scene_corpora(state);
  snprintf(more, sizeof more,
           "evaluator: {sets: [{name: other, corpus: %s, split: valid}], mask_rate: 0.25, "
           "mask_rates: [0.5], elbo_rates: 2, seed: 3}\n",
           trainer_scene_corpus(true));
  snprintf(trainer, sizeof trainer, "steps: %d, ema: 0.9, checkpoint: {every: %d, keep_last: 9}",
           STEPS, EVERY);
  trainer_scene_make(&scene, trainer, more);
  trainer_scene_endpoint(&scene.config.network.evaluation_feed);
  trainer_scene_trains(&scene, 0, true);
  return 0;
}

static int teardown(void **state)
{
  (void)state;
  plm_config_deinit(&scene.config);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_checkpoint_is_evaluated),
      cmocka_unit_test(reports_count),
      cmocka_unit_test(a_task_is_named_before_it_begins),
      cmocka_unit_test(the_board_says_that_it_is_complete),
      cmocka_unit_test(a_run_that_predicts_labels),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
