/* What opening a run finds and changes in its folder: a new run, one that continues at its newest
 * checkpoint, and one whose DONE holds or does not; and the end by trainer.stop_when. */
#include "tests/support/harness/cmocka_all.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/checkpoint/checkpoint.h"
#include "common/config/config.h"
#include "common/plan/plan.h"
#include "tests/support/cases/checkpoint_case.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/fake_collective.h"
#include "trainer/checkpoint/stop_when.h"
#include "trainer/open/open_state.h"

enum { STEP = 12 };

struct scene {
  struct checkpoint_case *folder;
  struct plm_config config;
  struct plm_ranks ranks;
  struct plm_trainer trainer;
  struct plm_fingerprints fingerprints;
  char directory[PLM_PATH_SIZE], said[4096];
  bool resumed;
};

static const char *in_run(const struct scene *s, const char *name)
{
  static char paths[4][PLM_PATH_SIZE];
  static int next;
  char *path = paths[next++ % 4];
  assert_int_equal(plm_path_join(path, s->folder->run, name, NULL), PLM_OK);
  return path;
}

/* A run folder of a model of one layer, with a number of steps to train, and other settings. */
static void begin(struct scene *s, uint64_t steps, const char *more)
{
  char yaml[PLM_PATH_SIZE + 1024];
  struct plm_error error = {0};
  *s = (struct scene){.folder = checkpoint_case_open(), .ranks = plm_ranks_single()};
  plm_lock_release(s->folder->lock); /* the trainer takes it */
  s->folder->lock = s->folder->context.lock = NULL;
  snprintf(yaml, sizeof yaml,
           "run: %s\nmodel: {architecture: transformer, hidden_size: 64, num_attention_heads: 2, "
           "num_hidden_layers: 1}\ntrainer: {steps: %llu, ema: 0.9, "
           "schedule: {warmup_steps: 1, cooldown_steps: 1}%s}\n",
           s->folder->run, (unsigned long long)steps, more);
  must_work(plm_config_load_text(yaml, strlen(yaml), &s->config, &error), &error);
  plm_log_init("t", PLM_LOG_INFO);
}

static void end(struct scene *s)
{
  checkpoint_case_close(s->folder);
  plm_config_deinit(&s->config);
}

static void fill_state(const struct scene *s, uint64_t step, struct plm_trainer_state *state)
{
  const struct plm_plan_parameters plan = plm_config_training_plan(&s->config);
  *state = (struct plm_trainer_state){.step = step,
                                      .updates = step,
                                      .tokens = 99,
                                      .exact = true,
                                      .resolved = {.device = "cpu",
                                                   .precision = "fp32",
                                                   .isa = "avx2",
                                                   .threads = 1,
                                                   .ranks = 1,
                                                   .step_chunks = 8,
                                                   .micro_chunks = 8,
                                                   .shares = 1}};
  plm_data_cursor_init(&state->cursor, plm_plan_hash(&plan), s->config.seed);
}

/* Publishes a checkpoint whose corpus has this fingerprint. Returns the identity of its weights. */
static struct plm_hash publish(struct scene *s, uint64_t step, struct plm_hash fingerprint)
{
  struct plm_trainer_state state;
  struct plm_hash identity, manifest;
  struct plm_error error = {0};
  fill_state(s, step, &state);
  state.cursor.sources[0].fingerprint = fingerprint;
  s->folder->snapshot.step = step;
  s->folder->snapshot.trainer_json =
      plm_trainer_state_print(&state, &s->config, (struct plm_hash){3, 4});
  struct plm_lock **lock = &s->folder->context.lock;
  must_work(plm_lock_acquire(s->folder->run, "trainer", lock, &error), &error);
  must_work(plm_checkpoint_folder_publish(&s->folder->context, &s->folder->snapshot, &identity,
                                          &manifest, &error),
            &error);
  plm_lock_release(*lock);
  *lock = NULL;
  free(s->folder->snapshot.trainer_json);
  plm_trainer_state_deinit(&state);
  return identity;
}

/* Opens and closes the state. What it says is kept. */
static plm_status open_state(struct scene *s, struct plm_error *error)
{
  *error = (struct plm_error){0};
  s->trainer =
      (struct plm_trainer){.config = &s->config, .ranks = &s->ranks, .run = s->folder->run};
  captured_begin(STDERR_FILENO);
  const plm_status status =
      plm_open_state(&s->trainer, &s->fingerprints, s->directory, &s->resumed, error);
  snprintf(s->said, sizeof s->said, "%s", captured_end());
  plm_early_stop_deinit(&s->trainer.reports);
  return status;
}

static void opens(struct scene *s)
{
  struct plm_error error;
  if (open_state(s, &error) != PLM_OK) fail_msg("%s", error.what);
  plm_close_state(&s->trainer);
}

static void says(const struct scene *s, const char *text)
{
  if (strstr(s->said, text) == NULL) fail_msg("\"%s\" instead of \"%s\"", s->said, text);
}

/* ---- the folder ------------------------------------------------------------------------------ */

static void a_new_run(void **state)
{
  (void)state;
  struct scene s, other;
  struct plm_error error;
  char *text, *expected;
  size_t size;
  begin(&s, 50, "");
  expected = plm_config_print(&s.config);
  assert_int_equal(open_state(&s, &error), PLM_OK);
  assert_true(!s.resumed && !s.trainer.complete && !s.trainer.saved && s.trainer.state.exact);
  assert_true(s.trainer.state.step == 0 && s.trainer.saved_step == 0);
  assert_int_equal(plm_file_read(in_run(&s, PLM_RUN_CONFIG), 1 << 20, &text, &size, NULL), PLM_OK);
  assert_string_equal(text, expected);
  assert_true(!plm_file_exists(in_run(&s, PLM_RUN_DONE)) && plm_file_exists(s.trainer.keys));
  other = s; /* the run is locked */
  assert_int_equal(open_state(&other, &error), PLM_BUSY);
  plm_close_state(&s.trainer);
  free(text);
  scratch_write(in_run(&s, PLM_RUN_CONFIG), "mine", 4); /* `up` has written it */
  const struct plm_hash id = s.trainer.run_id;
  opens(&s);
  assert_true(plm_hash_equal(s.trainer.run_id, id)); /* the same run */
  assert_int_equal(plm_file_read(in_run(&s, PLM_RUN_CONFIG), 1 << 20, &text, &size, NULL), PLM_OK);
  assert_string_equal(text, "mine");
  free(text);
  free(expected);
  end(&s);
}

/* ---- resuming -------------------------------------------------------------------------------- */

static void expect_latest(const struct scene *s, const char *name)
{
  char path[PLM_PATH_SIZE], target[64] = "";
  assert_int_equal(plm_path_join(path, s->folder->checkpoints, "latest", NULL), PLM_OK);
  assert_true(readlink(path, target, sizeof target - 1) > 0);
  assert_string_equal(target, name);
}

/* The newest checkpoint counts, `latest` is made to name it, and the corpus is pinned. */
static void the_newest_checkpoint_counts(void **state)
{
  (void)state;
  struct scene s;
  struct plm_run_corpus pinned;
  const struct plm_hash fingerprint = {5, 6}, root = {7, 8};
  begin(&s, 50, "");
  publish(&s, 8, fingerprint);
  publish(&s, STEP, fingerprint);
  const char *path = in_run(&s, "checkpoints/latest");
  assert_true(unlink(path) == 0 && symlink("step_00000008", path) == 0);
  const struct plm_run_corpus before = {fingerprint, root};
  assert_int_equal(plm_run_corpus_write(s.folder->run, &before, NULL), PLM_OK);
  opens(&s);
  assert_true(s.resumed && s.trainer.saved && !s.trainer.complete);
  assert_int_equal(s.trainer.saved_step, STEP);
  assert_non_null(strstr(s.directory, "/step_00000012"));
  expect_latest(&s, "step_00000012");
  assert_int_equal(plm_run_corpus_read(s.folder->run, &pinned, NULL), PLM_OK);
  assert_true(plm_hash_equal(pinned.fingerprint, fingerprint));
  assert_true(plm_hash_equal(pinned.root, root)); /* what packers prove is known again */
  assert_true(plm_hash_equal(s.trainer.roots[0], root));
  end(&s);
}

/* A root is not taken from CORPUS if it belongs to another corpus or the caller knows better. */
static void whose_root_counts(void **state)
{
  (void)state;
  struct scene s;
  const struct plm_hash fingerprint = {5, 6}, root = {7, 8}, none = {0};
  const struct plm_run_corpus other = {{1, 2}, root}, same = {fingerprint, root};
  begin(&s, 50, "");
  publish(&s, STEP, fingerprint);
  assert_int_equal(plm_run_corpus_write(s.folder->run, &other, NULL), PLM_OK);
  opens(&s);
  assert_true(plm_hash_equal(s.trainer.roots[0], none));
  assert_int_equal(plm_run_corpus_write(s.folder->run, &same, NULL), PLM_OK);
  s.fingerprints = (struct plm_fingerprints){.of = {fingerprint}, .count = 1};
  opens(&s);
  assert_true(plm_hash_equal(s.trainer.roots[0], fingerprint));
  scratch_write(in_run(&s, PLM_RUN_CORPUS), "{}", 2);
  assert_int_equal(open_state(&s, &(struct plm_error){0}), PLM_FORMAT);
  plm_close_state(&s.trainer);
  end(&s);
}

/* Another corpus is refused, and nothing is changed. */
static void another_corpus_is_refused(void **state)
{
  (void)state;
  struct scene s;
  struct plm_error error;
  char path[PLM_PATH_SIZE];
  begin(&s, STEP, "");
  publish(&s, STEP, (struct plm_hash){5, 6});
  assert_int_equal(plm_path_join(path, s.folder->checkpoints, "latest", NULL), PLM_OK);
  assert_int_equal(unlink(path), 0);
  s.fingerprints = (struct plm_fingerprints){.of = {{5, 7}}, .count = 1};
  assert_int_equal(open_state(&s, &error), PLM_CONFIG);
  plm_close_state(&s.trainer);
  struct stat information;
  assert_int_not_equal(lstat(path, &information), 0);
  assert_false(plm_file_exists(in_run(&s, PLM_RUN_DONE)));
  assert_false(plm_file_exists(in_run(&s, PLM_RUN_CORPUS)));
  end(&s);
}

/* What the configuration changes is reported and remembered; what it may not change is refused. */
static void changes_are_reported(void **state)
{
  (void)state;
  struct scene s;
  struct plm_error error;
  begin(&s, 50, "");
  publish(&s, STEP, (struct plm_hash){5, 6});
  assert_int_equal(open_state(&s, &error), PLM_OK);
  assert_int_equal(cJSON_GetArraySize(s.trainer.state.history), 0); /* nothing has changed */
  assert_null(strstr(s.said, "changed"));
  const struct plm_anew *anew = &s.trainer.state.resolved.anew;
  assert_false(anew->device || anew->precision || anew->threads);
  plm_close_state(&s.trainer);
  s.config.trainer.clip_norm = 2;
  assert_int_equal(open_state(&s, &error), PLM_OK);
  says(&s, "the configuration changed since step 12:\ntrainer.clip.norm: ");
  const cJSON *entry = cJSON_GetArrayItem(s.trainer.state.history, 0);
  assert_int_equal(cJSON_GetArraySize(s.trainer.state.history), 1);
  assert_true(cJSON_GetObjectItem(entry, "step")->valuedouble == STEP);
  plm_close_state(&s.trainer);
  s.config.seed++;
  assert_int_equal(open_state(&s, &error), PLM_CONFIG);
  assert_non_null(strstr(error.what, "seed"));
  plm_close_state(&s.trainer);
  end(&s);
}

static void what_was_set_may_be_left_open(void **state)
{
  (void)state;
  struct scene s;
  struct plm_error error;
  begin(&s, 50, ", device: cpu, threads: 1, precision: fp32");
  publish(&s, STEP, (struct plm_hash){5, 6});
  assert_int_equal(open_state(&s, &error), PLM_OK);
  const struct plm_anew *anew = &s.trainer.state.resolved.anew;
  assert_true(anew->device && anew->precision && anew->threads);
  plm_close_state(&s.trainer);
  end(&s);
}

static void damaged_checkpoints_are_not_overwritten(void **state)
{
  (void)state;
  struct scene s;
  struct plm_error error;
  char path[PLM_PATH_SIZE];
  begin(&s, 50, "");
  publish(&s, STEP, (struct plm_hash){5, 6});
  assert_int_equal(
      plm_path_join(path, s.folder->checkpoints, "step_00000012/model.safetensors", NULL), PLM_OK);
  assert_int_equal(truncate(path, 100), 0);
  assert_int_equal(open_state(&s, &error), PLM_CORRUPT);
  assert_string_equal(error.what, "none of the run's 1 checkpoints verifies");
  assert_string_equal(error.where, s.folder->checkpoints);
  assert_non_null(strstr(error.hint, "--resume never"));
  plm_close_state(&s.trainer);
  end(&s);
}

/* What rank 0 has found, the other ranks are told; they do not touch the folder. */
static void other_ranks_are_told(void **state)
{
  (void)state;
  struct scene s;
  struct fake_collective fake;
  begin(&s, 50, ", device: cpu, precision: fp32, threads: 1");
  publish(&s, STEP, (struct plm_hash){5, 6});
  fake_collective_init(&fake, 0, 2);
  s.ranks = (struct plm_ranks){.collective = &fake.base, .ranks = 2};
  opens(&s);
  s.resumed = false;
  s.ranks.rank = fake.base.place.rank = 1;
  assert_int_equal(open_state(&s, &(struct plm_error){0}), PLM_OK);
  const struct plm_trainer_state *told = &s.trainer.state;
  assert_true(s.resumed && s.trainer.saved && !s.trainer.complete && s.trainer.lock == NULL);
  assert_true(s.trainer.saved_step == STEP && told->step == STEP && told->resolved.anew.device);
  plm_close_state(&s.trainer);
  fake_collective_deinit(&fake);
  end(&s);
}

/* ---- DONE ------------------------------------------------------------------------------------ */

static void all_steps_are_done(void **state)
{
  (void)state;
  struct scene s;
  struct plm_done done;
  begin(&s, STEP, ""); /* the trainer was killed before it wrote DONE */
  const struct plm_hash identity = publish(&s, STEP, (struct plm_hash){5, 6});
  opens(&s);
  assert_true(s.trainer.complete);
  says(&s, "complete at step 12");
  assert_int_equal(plm_done_read(s.folder->run, &done, NULL), PLM_OK);
  assert_true(done.step == STEP && done.patience == 0);
  assert_true(plm_hash_equal(done.identity, identity));
  opens(&s); /* now it holds */
  assert_true(s.trainer.complete);
  s.config.trainer.steps = STEP + 1;
  opens(&s);
  assert_false(s.trainer.complete);
  says(&s, "the run continues after step 12: trainer.steps was raised to 13");
  assert_false(plm_file_exists(in_run(&s, PLM_RUN_DONE)));
  opens(&s);
  assert_null(strstr(s.said, "continues")); /* only once */
  end(&s);
}

/* DONE about something else is removed, with the reason. */
static void done_about_something_else(void **state)
{
  (void)state;
  struct scene s;
  struct plm_done done = {.step = 8};
  begin(&s, 50, "");
  done.identity = publish(&s, STEP, (struct plm_hash){5, 6});
  assert_int_equal(plm_done_write(s.folder->run, &done, NULL), PLM_OK);
  opens(&s);
  says(&s, "the run continues after step 12: DONE is about another checkpoint, of step 8");
  assert_false(plm_file_exists(in_run(&s, PLM_RUN_DONE)));
  done.step = STEP;
  done.identity.low ^= 1; /* the right step, but other weights */
  assert_int_equal(plm_done_write(s.folder->run, &done, NULL), PLM_OK);
  opens(&s);
  says(&s, "DONE is about another checkpoint, of step 12");
  scratch_write(in_run(&s, PLM_RUN_DONE), "{", 1);
  opens(&s);
  says(&s, "the run continues after step 12: DONE cannot be read");
  assert_false(s.trainer.complete || plm_file_exists(in_run(&s, PLM_RUN_DONE)));
  end(&s);
}

/* ---- trainer.stop_when ----------------------------------------------------------------------- */

/* Lines of evaluator.jsonl about steps 0, 2, ..., whose loss is the smallest at step 4. */
static void write_reports(const struct scene *s, uint64_t last)
{
  char text[1024] = "";
  for (uint64_t step = 0; step <= last; step += 2)
    snprintf(text + strlen(text), sizeof text - strlen(text),
             "{\"step\": %llu, \"split\": \"valid\", \"loss\": %g, \"accuracy\": %g}\n",
             (unsigned long long)step, step == 4 ? 1.25 : 2.0, step == 2 ? 0.5 : 0.25);
  scratch_write(in_run(s, PLM_RUN_EVALUATOR_METRICS), text, strlen(text));
}

static bool stops(struct scene *s, uint64_t step)
{
  struct plm_early_stop_reports reports = {0};
  captured_begin(STDERR_FILENO);
  const bool stopped = plm_stop_when(s->folder->run, &s->config, step, &reports);
  snprintf(s->said, sizeof s->said, "%s", captured_end());
  plm_early_stop_deinit(&reports);
  return stopped;
}

static void patience_counts_reports(void **state)
{
  (void)state;
  struct scene s;
  begin(&s, 50, ", stop_when: {patience: 3}");
  assert_false(stops(&s, STEP)); /* nothing is reported */
  write_reports(&s, STEP);
  assert_false(stops(&s, 9)); /* 6 and 8 are later than 4 */
  assert_string_equal(s.said, "");
  assert_true(stops(&s, 10));
  says(&s, "trainer.stop_when: none of the last 3 evaluated checkpoints has a better loss than "
           "1.25 (step 4)");
  assert_true(stops(&s, STEP));
  says(&s, "none of the last 4 evaluated");
  s.config.trainer.stop_when.patience = 0;
  assert_false(stops(&s, STEP));
  s.config.trainer.stop_when.patience = 5;
  assert_false(stops(&s, STEP));
  assert_int_equal(unlink(in_run(&s, PLM_RUN_EVALUATOR_METRICS)), 0);
  assert_int_equal(mkdir(in_run(&s, PLM_RUN_EVALUATOR_METRICS), 0777), 0);
  assert_false(stops(&s, STEP)); /* only a warning */
  says(&s, "trainer.stop_when: ");
  end(&s);
}

/* Of accuracies, the higher is the better; the metric and the patience are noted in DONE. */
static void the_metric_is_the_configured_one(void **state)
{
  (void)state;
  struct scene s;
  struct plm_done done = {0};
  begin(&s, 50, ", stop_when: {patience: 4, metric: accuracy}");
  write_reports(&s, STEP);
  assert_false(stops(&s, 9));
  assert_true(stops(&s, 10));
  says(&s, "none of the last 4 evaluated checkpoints has a better accuracy than 0.5 (step 2)");
  plm_stop_when_note(&s.config, &done);
  assert_string_equal(done.metric, "accuracy");
  assert_int_equal(done.patience, 4);
  end(&s);
}

/* A run that was killed after it decided to end is complete when it is opened again. */
static void reports_end_a_run(void **state)
{
  (void)state;
  struct scene s;
  struct plm_done done;
  begin(&s, 50, ", stop_when: {patience: 4}");
  const struct plm_hash identity = publish(&s, STEP, (struct plm_hash){5, 6});
  write_reports(&s, 10);
  opens(&s);
  assert_false(s.trainer.complete || plm_file_exists(in_run(&s, PLM_RUN_DONE)));
  write_reports(&s, STEP);
  opens(&s);
  assert_true(s.trainer.complete);
  assert_int_equal(plm_done_read(s.folder->run, &done, NULL), PLM_OK);
  assert_true(done.step == STEP && done.patience == 4);
  assert_string_equal(done.metric, "loss");
  assert_true(plm_hash_equal(done.identity, identity));
  end(&s);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_new_run),
      cmocka_unit_test(the_newest_checkpoint_counts),
      cmocka_unit_test(whose_root_counts),
      cmocka_unit_test(another_corpus_is_refused),
      cmocka_unit_test(changes_are_reported),
      cmocka_unit_test(what_was_set_may_be_left_open),
      cmocka_unit_test(damaged_checkpoints_are_not_overwritten),
      cmocka_unit_test(other_ranks_are_told),
      cmocka_unit_test(all_steps_are_done),
      cmocka_unit_test(done_about_something_else),
      cmocka_unit_test(patience_counts_reports),
      cmocka_unit_test(the_metric_is_the_configured_one),
      cmocka_unit_test(reports_end_a_run),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
