/* How a run ends otherwise than after its last step: a step that is given up, steps that are
 * skipped, checkpoints that cannot be written, and trainer.stop_when. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/run/done.h"
#include "common/run/run.h"
#include "common/run/stop.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/trainer_scene.h"

static const char settings[] = "steps: 4, ema: 0.9, checkpoint: {every: 2, keep_last: 9}%s";
static struct trainer_scene whole; /* a run to the end, with which others are compared */

static void make(struct trainer_scene *scene, const char *more)
{
  char trainer[300];
  snprintf(trainer, sizeof trainer, settings, more);
  trainer_scene_make(scene, trainer, "");
}

/* Fails unless a run ends with the weights of the whole one. */
static void ends_the_same(const struct trainer_scene *scene)
{
  for (uint64_t step = 2; step <= 4; step += 2) {
    const struct plm_hash one = trainer_scene_identity(&whole, step),
                          other = trainer_scene_identity(scene, step);
    assert_true(plm_hash_equal(one, other));
  }
}

static const struct plm_run_pulse *pulse; /* what it says in the first step is looked for */
static bool says_first;
static bool stops_in_micro_batch;
static void (*true_zero)(struct plm_ops *ops, void *x, size_t bytes);

/* A stop signal comes with the first memory that is set to zero in the second step. */
static void zero(struct plm_ops *ops, void *x, size_t bytes)
{
  if (pulse != NULL && trainer_scene_hook.decisions == 0)
    says_first |= strstr(pulse->doing, "computing the first step (1 of 4 micro-batches)") != NULL;
  if (stops_in_micro_batch && trainer_scene_hook.decisions == 1) plm_stop_requested = SIGTERM;
  true_zero(ops, x, bytes);
}

static bool follows;
static void (*true_download)(struct plm_ops *ops, void *host, const void *device, size_t bytes);

static void follow(struct plm_ops *ops)
{
  (void)ops;
  follows = true;
}

static void download_beside(struct plm_ops *ops, void *host, const void *device, size_t bytes)
{
  assert_true(follows);
  true_download(ops, host, device, bytes);
}

/* The copies of a checkpoint are told to wait for what was computed before. */
static void copies_follow_the_computation(void **state)
{
  (void)state;
  struct trainer_scene scene;
  struct plm_error error;
  make(&scene, "");
  assert_int_equal(trainer_scene_open(&scene, 1, &error), PLM_OK);
  true_download = scene.trainer.ops->download_beside;
  scene.trainer.ops->download_beside = download_beside;
  scene.trainer.ops->copies_follow = follow;
  assert_int_equal(trainer_scene_run(&scene, &error), PLM_OK);
  assert_true(follows);
  trainer_scene_close(&scene);
  plm_config_deinit(&scene.config);
}

/* The first step may take long, so it is told how far it is. */
static void the_first_step_is_told(void **state)
{
  (void)state;
  struct trainer_scene scene;
  struct plm_error error;
  make(&scene, "");
  assert_int_equal(trainer_scene_open(&scene, 1, &error), PLM_OK);
  true_zero = scene.trainer.ops->zero;
  scene.trainer.ops->zero = zero;
  pulse = &scene.trainer.pulse;
  assert_int_equal(trainer_scene_run(&scene, &error), PLM_OK);
  pulse = NULL;
  assert_true(says_first);
  trainer_scene_close(&scene);
  plm_config_deinit(&scene.config);
}

/* Without any time left, a step is given up and repeated after the resume. */
static void a_step_is_abandoned(void **state)
{
  (void)state;
  struct trainer_scene scene;
  struct plm_error error;
  make(&scene, ", stop_timeout_s: 0");
  assert_int_equal(trainer_scene_open(&scene, 0, &error), PLM_OK);
  true_zero = scene.trainer.ops->zero;
  scene.trainer.ops->zero = zero;
  stops_in_micro_batch = true;
  assert_int_equal(trainer_scene_run(&scene, &error), PLM_OK);
  stops_in_micro_batch = false;
  assert_true(scene.trainer.state.step == 1 && !plm_trainer_is_complete(&scene.trainer));
  trainer_scene_close(&scene);
  trainer_scene_says(&scene, "step 2 is abandoned after ");
  trainer_scene_says(&scene, " of 4 micro-batches: trainer.stop_timeout_s is 0\n");
  trainer_scene_says(&scene, "stopped after step 1; the run resumes from there\n");
  trainer_scene_checkpoints(&scene, "0 1 ");
  trainer_scene_trains(&scene, 0, true);
  ends_the_same(&scene);
  plm_config_deinit(&scene.config);
}

/* Skipped steps in a row end the run; its last checkpoint stays. */
static void too_many_steps_are_skipped(void **state)
{
  (void)state;
  struct trainer_scene scene;
  struct plm_error error;
  trainer_scene_make(&scene, "steps: 9, max_skipped_steps: 2, checkpoint: {every: 4, keep_last: 9}",
                     "");
  assert_int_equal(trainer_scene_open(&scene, 0, &error), PLM_OK);
  trainer_scene_hook.skips = 9;
  assert_int_equal(trainer_scene_run(&scene, &error), PLM_NOT_FINITE);
  assert_string_equal(error.what,
                      "2 steps in a row were skipped, 1 to 2: the loss or the gradient is not "
                      "finite, or no token was chosen");
  assert_non_null(strstr(error.hint, "`plm-pipeline trace --step 1`; then start again"));
  assert_true(scene.trainer.state.step == 2 && scene.trainer.state.skipped_in_a_row == 2);
  assert_true(scene.trainer.state.skipped_updates == 2 && scene.ranks.agreed);
  trainer_scene_close(&scene);
  trainer_scene_checkpoints(&scene, "0 ");
  cJSON *lines = trainer_scene_lines(&scene);
  assert_int_equal(cJSON_GetArraySize(lines), 1); /* none about the step that ended it */
  assert_true(trainer_scene_number(cJSON_GetArrayItem(lines, 0), "skipped_updates") == 1);
  cJSON_Delete(lines);
  plm_config_deinit(&scene.config);
}

/* A skipped step between others does not end a run; it is counted. */
static void a_step_is_skipped(void **state)
{
  (void)state;
  struct trainer_scene scene;
  struct plm_error error;
  make(&scene, ", max_skipped_steps: 2");
  assert_int_equal(trainer_scene_open(&scene, 0, &error), PLM_OK);
  trainer_scene_hook.skips = 1;
  assert_int_equal(trainer_scene_run(&scene, &error), PLM_OK);
  assert_true(scene.trainer.state.step == 4 && scene.trainer.state.updates == 3);
  assert_true(scene.trainer.state.skipped_updates == 1);
  assert_int_equal(scene.trainer.state.skipped_in_a_row, 0);
  trainer_scene_close(&scene);
  plm_config_deinit(&scene.config);
}

/* Without its folder, no checkpoint can be published. The run goes on while not too many have
 * failed, but cannot end without its last one. */
static void checkpoints_that_cannot_be_published(void **state)
{
  (void)state;
  struct trainer_scene scene;
  struct plm_error error;
  struct plm_done done;
  char folder[PLM_PATH_SIZE];
  trainer_scene_make(&scene, "steps: 3, checkpoint: {every: 1, max_failed_checkpoints: 9}", "");
  assert_int_equal(trainer_scene_open(&scene, 0, &error), PLM_OK);
  assert_int_equal(plm_path_join(folder, scene.run, PLM_RUN_CHECKPOINTS, NULL), PLM_OK);
  assert_int_equal(plm_path_remove(folder, NULL), PLM_OK);
  scratch_write(folder, "", 0); /* a file is there instead */
  assert_int_not_equal(trainer_scene_run(&scene, &error), PLM_OK);
  assert_non_null(strstr(error.what, "checkpoints in a row failed, the last one with: "));
  assert_int_equal(scene.trainer.state.step, 3);
  trainer_scene_close(&scene);
  assert_int_equal(plm_done_read(scene.run, &done, NULL), PLM_NOT_FOUND);
  plm_config_deinit(&scene.config);
}

/* The evaluator's reports end a run at a checkpoint. */
static void reports_end_a_run(void **state)
{
  (void)state;
  static const char reports[] = "{\"step\": 0, \"split\": \"valid\", \"loss\": 2}\n"
                                "{\"step\": 1, \"split\": \"valid\", \"loss\": 3}\n"
                                "{\"step\": 3, \"split\": \"valid\", \"loss\": 4}\n";
  struct trainer_scene scene;
  struct plm_error error;
  struct plm_done done;
  char path[PLM_PATH_SIZE];
  trainer_scene_make(
      &scene, "steps: 9, checkpoint: {every: 2, keep_last: 9}, stop_when: {patience: 1}", "");
  assert_int_equal(plm_path_join(path, scene.run, PLM_RUN_EVALUATOR_METRICS, NULL), PLM_OK);
  scratch_write(path, reports, sizeof reports - 1);
  assert_int_equal(trainer_scene_open(&scene, 0, &error), PLM_OK);
  assert_int_equal(trainer_scene_run(&scene, &error), PLM_OK);
  assert_true(plm_trainer_is_complete(&scene.trainer) && scene.trainer.stops_early);
  assert_int_equal(scene.trainer.state.step, 2);
  trainer_scene_close(&scene);
  trainer_scene_checkpoints(&scene, "0 2 ");
  assert_int_equal(plm_done_read(scene.run, &done, NULL), PLM_OK);
  assert_true(done.step == 2 && done.patience == 1);
  assert_string_equal(done.metric, "loss");
  plm_config_deinit(&scene.config);
}

static void a_device_that_is_not_there(void **state)
{
  (void)state;
  struct trainer_scene scene;
  struct plm_error error;
  make(&scene, "");
  scene.config.trainer.device = PLM_DEVICE_CUDA;
  assert_int_equal(setenv("PLM_CUDA_LIBRARY", scratch_path("none.so"), 1), 0);
  assert_int_not_equal(trainer_scene_open(&scene, 0, &error), PLM_OK);
  assert_non_null(strstr(error.what, "CUDA"));
  assert_null(scene.trainer.ops);
  plm_config_deinit(&scene.config);
}

/* ---- one process that was started as a rank -------------------------------------------------- */

/* It asks all ranks, which is itself, and ends with the same weights. */
static void a_gang_of_one(void **state)
{
  (void)state;
  struct trainer_scene scene;
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  int count = 0;
  make(&scene, ", profile: {steps: 2-2}");
  scene.ranks.single = false;
  trainer_scene_trains(&scene, 0, true);
  ends_the_same(&scene);
  assert_int_equal(plm_path_join(path, scene.run, PLM_RUN_PROFILE, NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 24, &text, &size, NULL), PLM_OK);
  for (const char *at = text; (at = strstr(at, "\"agree to go on\"")) != NULL; at++) count++;
  assert_int_equal(count, TRAINER_SCENE_CHUNKS - 1);
  free(text);
  plm_config_deinit(&scene.config);
}

/* What comes of the first exchange about the input of the second step in which this rank has it. */
static struct {
  bool due;
  plm_status status; /* PLM_OK: a rank still waits for its own */
} vote;
static plm_status (*wait_truly)(struct plm_collective *, struct plm_transfer *, struct plm_error *);

static void note_vote(struct plm_collective *collective, const char *phase, uint64_t step,
                      bool patient)
{
  (void)collective, (void)patient;
  if (step == 1 && strcmp(phase, "waiting for chunks") == 0) vote.due = true;
}

static plm_status wait_vote(struct plm_collective *collective, struct plm_transfer *transfer,
                            struct plm_error *error)
{
  const int64_t waits = PLM_RANK_WAIT, goes = PLM_RANK_GO;
  if (!vote.due || memcmp(transfer->from, &goes, sizeof goes) != 0)
    return wait_truly(collective, transfer, error);
  vote.due = false;
  if (vote.status != PLM_OK) return plm_error_set(error, vote.status, "a chunk is malformed");
  memcpy(transfer->to, &waits, sizeof waits);
  return PLM_OK;
}

static void vote_of(struct trainer_scene *scene, plm_status status)
{
  static struct plm_collective voting;
  voting = *plm_collective_single();
  wait_truly = voting.wait;
  voting.wait = wait_vote;
  voting.note = note_vote;
  vote.due = false, vote.status = status;
  scene->ranks.collective = &voting;
}

/* A rank keeps the input that it has while another one waits for its own. */
static void a_rank_waits_with_its_input(void **state)
{
  (void)state;
  struct trainer_scene scene;
  make(&scene, "");
  vote_of(&scene, PLM_OK);
  trainer_scene_trains(&scene, 0, true);
  ends_the_same(&scene);
  plm_config_deinit(&scene.config);
}

/* Where packers are at fault, what was learnt so far is published; not after another failure. */
static void malformed_chunks_end_a_run(void **state)
{
  (void)state;
  static const struct {
    plm_status status;
    const char *checkpoints;
  } rows[] = {{PLM_CORRUPT, "0 1 "}, {PLM_FORMAT, "0 1 "}, {PLM_FAILURE, "0 "}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct trainer_scene scene;
    struct plm_error error;
    make(&scene, "");
    vote_of(&scene, rows[i].status);
    assert_int_equal(trainer_scene_open(&scene, 0, &error), PLM_OK);
    assert_int_equal(trainer_scene_run(&scene, &error), rows[i].status);
    assert_string_equal(error.what, "a chunk is malformed");
    trainer_scene_close(&scene);
    trainer_scene_checkpoints(&scene, rows[i].checkpoints);
    plm_config_deinit(&scene.config);
  }
}

static uint64_t tuned_after; /* how many updates */
static int tune_calls;

static void tune(struct plm_ops *ops, bool on, struct plm_ops_tuned *so_far)
{
  (void)ops;
  assert_false(on);
  tune_calls++;
  tuned_after = trainer_scene_hook.decisions;
  *so_far = (struct plm_ops_tuned){0};
}

static plm_status export_algorithms(struct plm_ops *ops, char **text, struct plm_error *error)
{
  (void)ops;
  (void)error;
  *text = strdup("the algorithms");
  return PLM_OK;
}

/* A single process tunes in its first step that is not skipped, and a rank before its first step.
 * In the end the state has the algorithms, and the weights are the same. */
static void tuning_ends(void **state)
{
  (void)state;
  for (int single = 0; single < 2; single++) {
    struct trainer_scene scene;
    struct plm_error error;
    make(&scene, "");
    trainer_scene_listen(&scene);
    scene.ranks.single = single;
    assert_int_equal(trainer_scene_open(&scene, 0, &error), PLM_OK);
    struct plm_trainer *trainer = &scene.trainer;
    trainer_scene_hook.skips = (uint64_t)single;
    trainer->tuning = true;
    trainer->ops->tune = tune;
    trainer->ops->export_algorithms = export_algorithms;
    tune_calls = 0;
    assert_int_equal(trainer_scene_run(&scene, &error), PLM_OK);
    assert_true(tune_calls == 1 && !trainer->tuning);
    assert_int_equal(tuned_after, single ? 2 : 1); /* a rank has rehearsed its first step */
    assert_int_equal(trainer_scene_hook.decisions, single ? 4 : 5);
    assert_string_equal(trainer->state.algorithms, "the algorithms");
    assert_int_equal(strstr(trainer_scene_told.data, "0 tuning products, patient\n0 computing\n") !=
                         NULL,
                     !single);
    trainer->ops->tune = NULL;
    trainer_scene_close(&scene);
    if (!single) ends_the_same(&scene);
    plm_config_deinit(&scene.config);
  }
}

static int setup(void **state)
{
  (void)trainer_scene_corpora(state);
  make(&whole, "");
  trainer_scene_trains(&whole, 0, true);
  return 0;
}

static int teardown(void **state)
{
  (void)state;
  plm_config_deinit(&whole.config);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_step_is_abandoned),
      cmocka_unit_test(too_many_steps_are_skipped),
      cmocka_unit_test(a_step_is_skipped),
      cmocka_unit_test(checkpoints_that_cannot_be_published),
      cmocka_unit_test(reports_end_a_run),
      cmocka_unit_test(a_device_that_is_not_there),
      cmocka_unit_test(a_gang_of_one),
      cmocka_unit_test(a_rank_waits_with_its_input),
      cmocka_unit_test(malformed_chunks_end_a_run),
      cmocka_unit_test(tuning_ends),
      cmocka_unit_test(copies_follow_the_computation),
      cmocka_unit_test(the_first_step_is_told),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
