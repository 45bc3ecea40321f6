/* Opening a run whose device, or whose exchange with other ranks, refuses something: at whatever
 * call, it ends with that call's error, and everything is released. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/refusals.h"
#include "tests/support/peers/trainer_scene.h"
#include "trainer/tuning/product_rate.h"

static struct trainer_scene whole; /* a run that has ended */
static struct plm_error told;      /* what the other ranks are told */

/* Takes the place of the product's, which measures for a while. The device has just been opened. */
double plm_product_rate(struct plm_ops *ops, uint64_t (*clock_ns)(void))
{
  (void)clock_ns;
  refusals_of_ops(ops);
  return 1e9;
}

static void tell(struct plm_collective *collective, const struct plm_error *error)
{
  (void)collective;
  told = *error;
}

/* Opens the run as a rank of its own, and closes it again. */
static plm_status open_run(void *context, struct plm_error *error)
{
  struct trainer_scene *scene = context;
  struct plm_collective collective = *plm_collective_single();
  const struct plm_fingerprints none = {0};
  refusals_of_ranks(&collective);
  collective.fail = tell;
  scene->ranks = (struct plm_ranks){.collective = &collective, .ranks = 1};
  captured_begin(STDERR_FILENO);
  const plm_status status =
      plm_trainer_open(&scene->trainer, &scene->config, &scene->ranks, &none, error);
  if (status == PLM_OK) {
    refusals_end();
    plm_trainer_close(&scene->trainer);
  }
  captured_end();
  if (status != PLM_OK) *error = told;
  return status;
}

/* With so many threads, the rate of products is measured again when the run is resumed. */
static void a_run(const char *run, const char *more, int least)
{
  struct trainer_scene scene;
  char trainer[300];
  snprintf(trainer, sizeof trainer, "steps: 4, ema: 0.9, profile: {steps: 4-4}%s", more);
  trainer_scene_make(&scene, trainer, "metrics: {norms: 1}\n");
  if (run != NULL) {
    free(scene.config.run);
    scene.config.run = strdup(run);
    scene.config.trainer.threads = 2;
  }
  const int calls = refusals_try(open_run, &scene);
  if (calls < least) fail_msg("only %d calls", calls);
  plm_config_deinit(&scene.config);
}

static void a_new_run(void **state)
{
  (void)state;
  a_run(NULL, "", 25);
}

static void a_run_that_is_resumed(void **state)
{
  (void)state;
  a_run(whole.run, "", 25);
}

static void a_run_with_given_weights(void **state)
{
  (void)state;
  char more[PLM_PATH_SIZE];
  snprintf(more, sizeof more, ", init_from: %.200s/checkpoints/step_00000002", whole.run);
  a_run(NULL, more, 25);
}

static int setup(void **state)
{
  (void)trainer_scene_corpora(state);
  trainer_scene_make(&whole, "steps: 2, ema: 0.9", "");
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
      cmocka_unit_test(a_new_run),
      cmocka_unit_test(a_run_that_is_resumed),
      cmocka_unit_test(a_run_with_given_weights),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
