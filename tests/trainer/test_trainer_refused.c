/* A run whose device, or whose exchange with other ranks, refuses something: at whatever call, it
 * ends with that call's error, and says it is not complete. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/run/done.h"
#include "common/run/run.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/refusals.h"
#include "tests/support/peers/trainer_scene.h"
#include "trainer/profile/copy_rate.h"
#include "trainer/tuning/product_rate.h"

/* These take the place of the product's, which measure for a while, or not at all. */
double plm_copy_rate(struct plm_ops *ops, size_t most, uint64_t (*clock_ns)(void))
{
  (void)ops, (void)most, (void)clock_ns;
  return 1e9;
}

double plm_product_rate(struct plm_ops *ops, uint64_t (*clock_ns)(void))
{
  (void)ops, (void)clock_ns;
  return 1e9;
}

static void tune(struct plm_ops *ops, bool on, struct plm_ops_tuned *so_far)
{
  (void)ops, (void)on;
  *so_far = (struct plm_ops_tuned){0};
}

static plm_status export_algorithms(struct plm_ops *ops, char **text, struct plm_error *error)
{
  (void)ops, (void)error;
  *text = strdup("the algorithms");
  return PLM_OK;
}

/* Opens the run as a rank that tunes before its first step, trains and closes it. What a copy for
 * a checkpoint refuses does not end a run at once, so it is left out. */
static plm_status train(void *context, struct plm_error *error)
{
  struct trainer_scene *scene = context;
  struct plm_collective collective = *plm_collective_single();
  struct plm_error opening;
  struct plm_done done;
  scene->ranks = (struct plm_ranks){.collective = &collective, .ranks = 1};
  assert_int_equal(plm_path_remove(scene->run, NULL), PLM_OK);
  assert_int_equal(plm_directory_make(scene->run, NULL), PLM_OK);
  const int left = refusals_pause();
  if (trainer_scene_open(scene, 0, &opening) != PLM_OK) fail_msg("%s", opening.what);
  struct plm_ops *ops = scene->trainer.ops;
  plm_status (*wait_copies)(struct plm_ops *, struct plm_error *) = ops->wait_copies;
  scene->trainer.tuning = true;
  ops->tune = tune;
  ops->export_algorithms = export_algorithms;
  refusals_of_ops(ops);
  ops->wait_copies = wait_copies;
  refusals_of_ranks(&collective);
  refusals_resume(left);
  const plm_status status = trainer_scene_run(scene, error);
  refusals_end();
  ops->tune = NULL;
  captured_begin(STDERR_FILENO);
  trainer_scene_close(scene);
  captured_end();
  assert_int_equal(plm_done_read(scene->run, &done, NULL) == PLM_OK, status == PLM_OK);
  return status;
}

static void whatever_is_refused_ends_a_run(void **state)
{
  (void)state;
  struct trainer_scene scene;
  trainer_scene_make(&scene, "steps: 1, ema: 0.9, checkpoint: {every: 1}, profile: {steps: 1-1}",
                     "metrics: {norms: 1}\n");
  const int calls = refusals_try(train, &scene);
  if (calls < 15) fail_msg("only %d calls", calls);
  plm_config_deinit(&scene.config);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(whatever_is_refused_ends_a_run)};
  return cmocka_run_group_tests(tests, trainer_scene_corpora, NULL);
}
