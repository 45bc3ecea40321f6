/* What `up` finds in a run folder, what it refuses, and what it leaves there for the stages. */
#include "stages/supervisor/prepare/run_prepare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/checkpoint/checkpoint.h"
#include "common/run/done.h"
#include "common/run/run.h"
#include "common/run/run_failure.h"
#include "tests/support/cases/published_file.h"
#include "tests/support/cases/whole_checkpoint.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

static char run[PLM_PATH_SIZE];
static struct plm_hash weights; /* of every checkpoint here */

static const char *in(const char *folder, const char *name)
{
  static char paths[4][PLM_PATH_SIZE];
  static unsigned next;
  char *path = paths[next++ % 4];
  assert_int_equal(plm_path_join(path, folder, name, NULL), PLM_OK);
  return path;
}

static bool remote; /* everything seems to lie on NFS */

/* Takes the place of libc's function in this program. */
int statfs(const char *path, struct statfs *about)
{
  const int status = (int)syscall(SYS_statfs, path, about);
  if (remote) about->f_type = 0x6969;
  return status;
}

static void put(const char *name, const char *text)
{
  scratch_write(in(run, name), text, strlen(text));
}

static bool is_there(const char *name)
{
  return access(in(run, name), F_OK) == 0;
}

static struct plm_config configure(const char *more)
{
  char yaml[2 * PLM_PATH_SIZE];
  struct plm_config config;
  struct plm_error error = {0};
  snprintf(yaml, sizeof yaml, "run: %s\n%s", run, more);
  must_work(plm_config_load_text(yaml, strlen(yaml), &config, &error), &error);
  return config;
}

/* A run that was started with this configuration. */
static void begin(const char *before)
{
  char yaml[2 * PLM_PATH_SIZE];
  scratch_run(run);
  plm_log_init("t", PLM_LOG_INFO);
  snprintf(yaml, sizeof yaml, "run: %s\n%s", run, before);
  put(PLM_RUN_CONFIG, yaml);
}

static void put_checkpoint(const char *parent, uint64_t step)
{
  weights = whole_checkpoint_write(parent, step);
}

static void finds(const struct plm_prepared *prepared, bool resumes, bool complete, uint64_t step)
{
  assert_int_equal(prepared->resumes, resumes);
  assert_int_equal(prepared->complete, complete);
  assert_int_equal(prepared->step, step);
}

/* `up` only looks at the corpora, so they may be remote. */
static plm_status inspect(const char *now, enum plm_resume_mode mode, const char *path,
                          struct plm_prepared *prepared, struct plm_error *error)
{
  struct plm_config config = configure(now);
  *error = (struct plm_error){0};
  remote = true;
  const plm_status status = plm_run_inspect(&config, mode, path, true, prepared, error);
  remote = false;
  plm_config_deinit(&config);
  return status;
}

/* Without a checkpoint the run is fresh, whatever it was last started with. */
static void a_fresh_run_is_compared_with_nothing(void **state)
{
  (void)state;
  struct plm_prepared prepared;
  struct plm_error error;
  begin("seed: [");
  must_work(inspect("seed: 2\n", PLM_RESUME_AUTO, NULL, &prepared, &error), &error);
  finds(&prepared, false, false, 0);
  assert_int_equal(plm_directory_make(in(run, PLM_RUN_CHECKPOINTS), NULL), PLM_OK);
  must_work(inspect("seed: 2\n", PLM_RESUME_AUTO, NULL, &prepared, &error), &error);
  finds(&prepared, false, false, 0);
  static const char weights_gone[] = "trainer: {init_from: /nowhere/model}\n";
  for (int never = 0; never < 2; never++) {
    assert_int_equal(
        inspect(weights_gone, never ? PLM_RESUME_NEVER : PLM_RESUME_AUTO, NULL, &prepared, &error),
        PLM_CONFIG);
    assert_string_equal(error.where, "trainer.init_from: /nowhere/model");
  }
  put_checkpoint(in(run, PLM_RUN_CHECKPOINTS), 100); /* which has weights of its own */
  put(PLM_RUN_CONFIG, "seed: 1\ntrainer: {init_from: /nowhere/model}\n");
  must_work(inspect(weights_gone, PLM_RESUME_AUTO, NULL, &prepared, &error), &error);
  finds(&prepared, true, false, 100);
}

/* With other settings than the weights had, a run trains another model. */
static void what_differs_from_first_weights_is_said(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE], yaml[2 * PLM_PATH_SIZE];
  struct published_file file = published_file_of(PLM_ESM2);
  struct plm_prepared prepared;
  struct plm_error error = {0};
  published_folder_write(&file, folder);
  published_file_free(&file);
  begin("seed: 1\n");
  snprintf(
      yaml, sizeof yaml,
      "model: {architecture: esm2, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: "
      "4, intermediate_size: 128, token_dropout: false}\ntrainer: {init_from: %s}\n",
      folder);
  captured_begin(STDERR_FILENO);
  const plm_status status = inspect(yaml, PLM_RESUME_NEVER, NULL, &prepared, &error);
  const char *said = captured_end();
  must_work(status, &error);
  assert_non_null(
      strstr(said, "trainer.init_from: the weights were trained with other settings:\n"));
  assert_non_null(strstr(said, "token_dropout was true, is false\n"));
  captured_begin(STDERR_FILENO); /* without first weights, it is only unusual */
  (void)inspect("model: {architecture: esm2, token_dropout: false}\n", 0, NULL, &prepared, &error);
  assert_non_null(strstr(captured_end(), "model.token_dropout: false, so this esm2 trains"));
}

static void a_resumed_run_must_be_the_same(void **state)
{
  (void)state;
  struct plm_prepared prepared;
  struct plm_error error;
  begin("seed: 1\n");
  put_checkpoint(in(run, PLM_RUN_CHECKPOINTS), 100);
  put_checkpoint(in(run, PLM_RUN_CHECKPOINTS), 200);
  must_work(inspect("seed: 1\n", PLM_RESUME_AUTO, NULL, &prepared, &error), &error);
  finds(&prepared, true, false, 200);
  assert_int_equal(inspect("seed: 2\n", PLM_RESUME_AUTO, NULL, &prepared, &error), PLM_CONFIG);
  assert_non_null(strstr(error.what, "seed"));
  must_work(inspect("seed: 2\n", PLM_RESUME_NEVER, NULL, &prepared, &error), &error);
  finds(&prepared, false, false, 0);
  assert_int_equal(unlink(in(run, PLM_RUN_CONFIG)), 0); /* then there is nothing to compare with */
  must_work(inspect("seed: 2\n", PLM_RESUME_AUTO, NULL, &prepared, &error), &error);
  finds(&prepared, true, false, 200);
}

/* What cannot be read must not pass for what has not changed. */
static void an_old_configuration_that_is_damaged_is_an_error(void **state)
{
  (void)state;
  struct plm_prepared prepared;
  struct plm_error error;
  begin("seed: [");
  put_checkpoint(in(run, PLM_RUN_CHECKPOINTS), 100);
  assert_int_equal(inspect("seed: 1\n", PLM_RESUME_AUTO, NULL, &prepared, &error), PLM_CONFIG);
  assert_string_equal(error.where, in(run, PLM_RUN_CONFIG));
  assert_int_equal(unlink(in(run, PLM_RUN_CONFIG)), 0);
  assert_int_equal(plm_directory_make(in(run, PLM_RUN_CONFIG), NULL), PLM_OK);
  assert_int_not_equal(inspect("seed: 1\n", PLM_RESUME_AUTO, NULL, &prepared, &error), PLM_OK);
}

static void changes_are_printed(void **state)
{
  (void)state;
  begin("trainer: {steps: 300}\n");
  put_checkpoint(in(run, PLM_RUN_CHECKPOINTS), 100);
  struct plm_config config = configure("trainer: {steps: 400}\n");
  struct plm_prepared prepared;
  plm_status status[2];
  char text[2][1024];
  for (int trains = 0; trains < 2; trains++) {
    captured_begin(STDERR_FILENO);
    status[trains] = plm_run_inspect(&config, PLM_RESUME_AUTO, NULL, trains != 0, &prepared, NULL);
    snprintf(text[trains], sizeof text[trains], "%s", captured_end());
  }
  plm_config_deinit(&config);
  assert_true(status[0] == PLM_OK && status[1] == PLM_OK);
  for (int trains = 0; trains < 2; trains++) {
    if (strstr(text[trains], "trainer.steps: 300 -> 400\n") == NULL) fail_msg("%s", text[trains]);
    if (strstr(text[trains], trains ? "the resumed run differs from before" : "no step runs") ==
        NULL)
      fail_msg("%s", text[trains]);
  }
  config = configure("trainer: {steps: 300}\n");
  captured_begin(STDERR_FILENO);
  status[0] = plm_run_inspect(&config, PLM_RESUME_AUTO, NULL, true, &prepared, NULL);
  snprintf(text[0], sizeof text[0], "%s", captured_end());
  plm_config_deinit(&config);
  assert_int_equal(status[0], PLM_OK);
  assert_string_equal(text[0], "");
}

static void only_a_checkpoint_of_the_run_is_resumed(void **state)
{
  (void)state;
  struct plm_prepared prepared;
  struct plm_error error;
  char other[PLM_PATH_SIZE], own[PLM_PATH_SIZE];
  begin("seed: 1\n");
  scratch_run(other);
  put_checkpoint(in(run, PLM_RUN_CHECKPOINTS), 100);
  put_checkpoint(in(run, PLM_RUN_CHECKPOINTS), 200);
  put_checkpoint(other, 100);
  put_checkpoint(other, 300);
  snprintf(own, sizeof own, "%s/./step_00000100", in(run, PLM_RUN_CHECKPOINTS));
  must_work(inspect("seed: 1\n", PLM_RESUME_PATH, own, &prepared, &error), &error);
  finds(&prepared, true, false, 100);
  assert_int_equal(symlink("loop", in(run, "loop")), 0);
  assert_int_equal(inspect("seed: 1\n", PLM_RESUME_PATH, in(run, "loop"), &prepared, &error),
                   PLM_IO);
  assert_non_null(strstr(error.what, "/loop: Too many levels of symbolic links"));
  static const char *const wrong[] = {"step_00000100", "step_00000300", "step_00000400"};
  static const char *const what[] = {"is not a checkpoint of this run",
                                     "is not a checkpoint of this run",
                                     "--resume needs auto, never or a checkpoint folder"};
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(inspect("seed: 1\n", PLM_RESUME_PATH, in(other, wrong[i]), &prepared, &error),
                     PLM_USAGE);
    if (strstr(error.what, what[i]) == NULL) fail_msg("%s", error.what);
  }
  char aside[PLM_PATH_SIZE];
  snprintf(aside, sizeof aside, "%s", in(run, "aside"));
  assert_int_equal(rename(in(run, PLM_RUN_CHECKPOINTS), aside), 0);
  assert_int_equal(symlink(PLM_RUN_CHECKPOINTS, in(run, PLM_RUN_CHECKPOINTS)), 0);
  assert_int_equal(
      inspect("seed: 1\n", PLM_RESUME_PATH, in(other, "step_00000100"), &prepared, &error), PLM_IO);
  if (strstr(error.what, "Too many levels of symbolic links") == NULL) fail_msg("%s", error.what);
  assert_int_equal(unlink(in(run, PLM_RUN_CHECKPOINTS)), 0);
  assert_int_equal(rename(aside, in(run, PLM_RUN_CHECKPOINTS)), 0);
  scratch_write(in(own, "model.safetensors"), "Weights", 7);
  assert_int_equal(inspect("seed: 1\n", PLM_RESUME_PATH, own, &prepared, &error), PLM_CORRUPT);
}

/* DONE counts if this configuration has no more steps and its checkpoint is whole. */
static void a_run_is_complete_while_done_holds(void **state)
{
  (void)state;
  static const char steps_300[] = "trainer: {steps: 300}\n";
  struct plm_prepared prepared;
  struct plm_error error;
  begin(steps_300);
  plm_log_init("t", PLM_LOG_ERROR);
  put_checkpoint(in(run, PLM_RUN_CHECKPOINTS), 200);
  put_checkpoint(in(run, PLM_RUN_CHECKPOINTS), 300);
  put_checkpoint(in(run, PLM_RUN_CHECKPOINTS), 400); /* which DONE does not name */
  struct plm_done done = {.step = 300, .identity = weights};
  must_work(plm_done_write(run, &done, &error), &error);
  must_work(inspect(steps_300, PLM_RESUME_AUTO, NULL, &prepared, &error), &error);
  finds(&prepared, true, true, 300);
  must_work(inspect("trainer: {steps: 301}\n", PLM_RESUME_AUTO, NULL, &prepared, &error), &error);
  finds(&prepared, true, false, 400);
  must_work(
      inspect(steps_300, PLM_RESUME_PATH, in(run, "checkpoints/step_00000200"), &prepared, &error),
      &error);
  finds(&prepared, true, false, 200); /* although DONE is still there */
  done.identity.low ^= 1;
  must_work(plm_done_write(run, &done, &error), &error);
  must_work(inspect(steps_300, PLM_RESUME_AUTO, NULL, &prepared, &error), &error);
  finds(&prepared, true, false, 400);
  done.identity.low ^= 1;
  must_work(plm_done_write(run, &done, &error), &error);
  put("checkpoints/step_00000300/model.safetensors", "Weights");
  must_work(inspect(steps_300, PLM_RESUME_AUTO, NULL, &prepared, &error), &error);
  finds(&prepared, true, false, 400);
}

/* Another path may hold the same documents. What is not there any more is left to the trainer. */
static void another_corpus_is_refused(void **state)
{
  (void)state;
  static const struct written_corpus small = {
      .tokenizer = PLM_TOKENIZER_ESM, .documents = {20, 2, 2}, .longest = 30};
  struct written_corpus large = small;
  large.documents[0] = 21;
  struct plm_corpus *corpora[] = {written_corpus_open("old", &small),
                                  written_corpus_open("copy", &small),
                                  written_corpus_open("other", &large)};
  const char *paths[] = {plm_corpus_path(corpora[0]), plm_corpus_path(corpora[1]),
                         plm_corpus_path(corpora[2]), "/nowhere", "null"};
  static const struct {
    int before, now;
    plm_status status;
  } rows[] = {{0, 0, PLM_OK}, {0, 1, PLM_OK}, {0, 2, PLM_CONFIG}, {2, 1, PLM_CONFIG},
              {3, 2, PLM_OK}, {0, 3, PLM_OK}, {2, 2, PLM_OK},     {4, 2, PLM_OK},
              {2, 4, PLM_OK}, {4, 4, PLM_OK}};
  char yaml[2 * PLM_PATH_SIZE];
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_prepared prepared;
    struct plm_error error;
    snprintf(yaml, sizeof yaml, "corpus: %s\n", paths[rows[i].before]);
    begin(yaml);
    plm_log_init("t", PLM_LOG_ERROR);
    put_checkpoint(in(run, PLM_RUN_CHECKPOINTS), 100);
    snprintf(yaml, sizeof yaml, "corpus: %s\n", paths[rows[i].now]);
    const plm_status status = inspect(yaml, PLM_RESUME_AUTO, NULL, &prepared, &error);
    if (status != rows[i].status) fail_msg("row %zu: status %d, %s", i, (int)status, error.what);
    if (status == PLM_OK) continue;
    assert_non_null(strstr(error.what, paths[rows[i].before]));
    assert_non_null(strstr(error.what, "which holds other documents"));
  }
  for (size_t i = 0; i < 3; i++) plm_corpus_close(corpora[i]);
}

/* The file CORPUS of the run decides, also if the path is the same. */
static void the_corpus_is_the_one_that_was_pinned(void **state)
{
  (void)state;
  static const struct written_corpus small = {
      .tokenizer = PLM_TOKENIZER_ESM, .documents = {20, 2, 2}, .longest = 30};
  struct plm_corpus *corpus = written_corpus_open("pinned", &small);
  char yaml[2 * PLM_PATH_SIZE], hex[PLM_HASH_HEX_SIZE];
  struct plm_run_corpus pinned = {.fingerprint = plm_corpus_info(corpus)->fingerprint};
  snprintf(yaml, sizeof yaml, "corpus: %s\n", plm_corpus_path(corpus));
  begin(yaml);
  put_checkpoint(in(run, PLM_RUN_CHECKPOINTS), 100);
  for (int other = 0; other < 2; other++) {
    struct plm_prepared prepared;
    struct plm_error error = {0};
    pinned.fingerprint.high += (uint64_t)other;
    must_work(plm_run_corpus_write(run, &pinned, &error), &error);
    const plm_status status = inspect(yaml, PLM_RESUME_AUTO, NULL, &prepared, &error);
    if (status != (other ? PLM_CONFIG : PLM_OK)) fail_msg("%s", error.what);
    if (!other) continue;
    plm_hash_to_hex(pinned.fingerprint, hex);
    assert_non_null(strstr(error.what, "the run was trained on corpus "));
    assert_non_null(strstr(error.what, hex));
    assert_non_null(strstr(error.where, plm_corpus_path(corpus)));
    plm_hash_to_hex(plm_corpus_info(corpus)->fingerprint, hex);
    assert_non_null(strstr(error.what, hex));
    must_work(inspect("seed: 1\n", PLM_RESUME_NEVER, NULL, &prepared, &error), &error);
  }
  struct plm_prepared prepared;
  struct plm_error error;
  put(PLM_RUN_CORPUS, "damaged");
  assert_int_not_equal(inspect(yaml, PLM_RESUME_AUTO, NULL, &prepared, &error), PLM_OK);
  plm_corpus_close(corpus);
}

/* What the run's pipeline.yaml has. */
static void records(uint64_t seed, uint64_t steps, const char *prometheus)
{
  char *text;
  size_t size;
  struct plm_config recorded;
  struct plm_error error = {0};
  must_work(plm_file_read(in(run, PLM_RUN_CONFIG), 1 << 20, &text, &size, &error), &error);
  must_work(plm_config_load_text(text, size, &recorded, &error), &error);
  free(text);
  assert_int_equal(recorded.seed, seed);
  assert_int_equal(recorded.trainer.steps, steps);
  assert_string_equal(recorded.prometheus, prometheus);
  plm_config_deinit(&recorded);
}

static void prepare(const char *now, bool trains, struct plm_prepared *prepared)
{
  struct plm_error error = {0};
  struct plm_config config = configure(now);
  captured_begin(STDERR_FILENO); /* the changes */
  const plm_status status =
      plm_run_prepare(&config, PLM_RESUME_AUTO, NULL, trains, prepared, &error);
  (void)captured_end();
  must_work(status, &error);
  plm_config_deinit(&config);
}

/* What describes training is only recorded if a step will run. */
static void the_folder_is_prepared(void **state)
{
  (void)state;
  static const char old[] = "trainer: {steps: 300}\nmetrics: {prometheus: \"127.0.0.1:1\"}\n",
                    more[] = "trainer: {steps: 400}\nmetrics: {prometheus: \"127.0.0.1:2\"}\n",
                    less[] = "trainer: {steps: 250}\nmetrics: {prometheus: \"127.0.0.1:3\"}\n";
  struct plm_prepared prepared;
  struct plm_error error = {0};
  const struct plm_run_failure failure = {.exit_code = 1};
  begin(old);
  struct plm_config config = configure(old);
  assert_int_equal(mkdir(in(run, PLM_RUN_DONE), 0755), 0);
  assert_int_equal(plm_run_prepare(&config, PLM_RESUME_AUTO, NULL, true, &prepared, &error),
                   PLM_IO);
  assert_non_null(strstr(error.what, "/" PLM_RUN_DONE ": Is a directory"));
  assert_int_equal(rmdir(in(run, PLM_RUN_DONE)), 0);
  plm_config_deinit(&config);
  put(PLM_RUN_DONE, "not that of a complete run");
  must_work(plm_run_failure_write(run, &failure, &error), &error);
  prepare("seed: 5\ntrainer: {steps: 300}\nmetrics: {prometheus: \"127.0.0.1:1\"}\n", false,
          &prepared);
  finds(&prepared, false, false, 0);
  assert_false(is_there(PLM_RUN_DONE) || is_there(PLM_RUN_FAILED));
  assert_true(is_there(PLM_RUN_LOGS));
  records(5, 300, "127.0.0.1:1"); /* of a fresh run everything, even without a trainer */
  begin(old);
  put_checkpoint(in(run, PLM_RUN_CHECKPOINTS), 300);
  prepare(more, false, &prepared);
  finds(&prepared, true, false, 300);
  records(1, 300, "127.0.0.1:2");
  prepare(more, true, &prepared);
  finds(&prepared, true, false, 300);
  records(1, 400, "127.0.0.1:2");
  assert_false(is_there("previous-1"));
  const struct plm_done done = {.step = 300, .identity = weights};
  must_work(plm_done_write(run, &done, &error), &error);
  prepare(less, true, &prepared);
  finds(&prepared, true, true, 300);
  assert_true(is_there(PLM_RUN_DONE));
  records(1, 400, "127.0.0.1:3");
}

/* What mode NEVER moves aside, and what a given checkpoint does. */
static void earlier_state_is_moved_aside(void **state)
{
  (void)state;
  struct plm_prepared prepared;
  struct plm_error error = {0};
  begin("seed: 1\n");
  put_checkpoint(in(run, PLM_RUN_CHECKPOINTS), 100);
  put_checkpoint(in(run, PLM_RUN_CHECKPOINTS), 200);
  struct plm_config config = configure("seed: 1\n");
  plm_log_init("t", PLM_LOG_ERROR);
  must_work(plm_run_prepare(&config, PLM_RESUME_PATH, in(run, "checkpoints/step_00000100"), true,
                            &prepared, &error),
            &error);
  finds(&prepared, true, false, 100);
  assert_true(is_there("checkpoints/step_00000100") && !is_there("checkpoints/step_00000200"));
  assert_true(is_there("previous-1/checkpoints/step_00000200"));
  must_work(plm_run_prepare(&config, PLM_RESUME_NEVER, NULL, true, &prepared, &error), &error);
  finds(&prepared, false, false, 0);
  assert_true(!is_there(PLM_RUN_CHECKPOINTS) && is_there(PLM_RUN_CONFIG));
  assert_true(is_there("previous-2/checkpoints/step_00000100"));
  plm_config_deinit(&config);
}

static void a_stage_apart_leaves_the_run_alone(void **state)
{
  (void)state;
  struct plm_error error = {0};
  char *text;
  size_t size;
  begin("seed: 1\n");
  struct plm_config config = configure("seed: 9\n");
  must_work(plm_run_prepare_apart(&config, &error), &error);
  must_work(plm_file_read(in(run, PLM_RUN_CONFIG_APART), 1 << 20, &text, &size, &error), &error);
  char *expected = plm_config_print(&config);
  assert_string_equal(text, expected);
  free(text);
  free(expected);
  plm_config_deinit(&config);
  must_work(plm_file_read(in(run, PLM_RUN_CONFIG), 1 << 20, &text, &size, &error), &error);
  assert_non_null(strstr(text, "seed: 1\n"));
  free(text);
  assert_true(is_there(PLM_RUN_LOGS));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_fresh_run_is_compared_with_nothing),
      cmocka_unit_test(what_differs_from_first_weights_is_said),
      cmocka_unit_test(a_resumed_run_must_be_the_same),
      cmocka_unit_test(an_old_configuration_that_is_damaged_is_an_error),
      cmocka_unit_test(changes_are_printed),
      cmocka_unit_test(only_a_checkpoint_of_the_run_is_resumed),
      cmocka_unit_test(a_run_is_complete_while_done_holds),
      cmocka_unit_test(another_corpus_is_refused),
      cmocka_unit_test(the_corpus_is_the_one_that_was_pinned),
      cmocka_unit_test(the_folder_is_prepared),
      cmocka_unit_test(earlier_state_is_moved_aside),
      cmocka_unit_test(a_stage_apart_leaves_the_run_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
