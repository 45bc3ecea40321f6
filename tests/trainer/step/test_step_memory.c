/* What a step, its optimizer and its objective take when they are opened: each of their blocks may
 * be missing, and then they say so and keep nothing. */
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_memory.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/cases/model_case.h"
#include "tests/support/harness/must.h"
#include "tests/support/peers/fake_collective.h"
#include "trainer/step/chunk_losses.h"
#include "trainer/step/layer_norms.h"
#include "trainer/step/step.h"
#include "trainer/trainer_options.h"

enum { CHUNKS = 4, L = 32 };

static struct plm_config config;
static struct model_case opened;
static uint32_t *owners;

static int setup(void **state)
{
  static const char yaml[] =
      "model: {architecture: transformer, hidden_size: 32, num_attention_heads: 2, "
      "num_hidden_layers: 2}\ndata: {max_length: 32}\n"
      "trainer: {batch_tokens: 128, steps: 100, precision: fp32, threads: 1}\n";
  const struct plm_model_options options = {.max_chunks = CHUNKS, .training = true};
  struct plm_error error = {0};
  size_t count;
  (void)state;
  must_work(plm_config_load_text(yaml, strlen(yaml), &config, &error), &error);
  model_case_open(&opened, &config.model, &options, PLM_PRECISION_FP32, 4);
  plm_model_table(opened.model, &count);
  owners = must(calloc(count, sizeof *owners));
  return 0;
}

static int teardown(void **state)
{
  (void)state;
  free(owners);
  model_case_close(&opened);
  plm_config_deinit(&config);
  return 0;
}

static plm_status open_objective(void *context, struct plm_error *error)
{
  const struct plm_objective_options options = plm_objective_options_of(&config);
  struct plm_objective_state objective = {0};
  (void)context;
  const plm_status status = plm_objective_init(&objective, &options, CHUNKS, CHUNKS, error);
  if (status == PLM_OK) plm_objective_deinit(&objective);
  return status;
}

static plm_status open_optimizer(void *context, struct plm_error *error)
{
  struct plm_optimizer *optimizer;
  (void)context;
  PLM_TRY(plm_optimizer_open(&config.trainer, opened.model, NULL, &optimizer, error));
  plm_optimizer_close(optimizer);
  return PLM_OK;
}

static plm_status open_step(void *context, struct plm_error *error)
{
  struct plm_ranks alone = plm_ranks_single();
  struct plm_objective_state objective = {0};
  struct plm_clip clip = {0};
  const struct plm_step_parts parts = {.trainer = &config.trainer,
                                       .model = opened.model,
                                       .masks = opened.masks,
                                       .objective = &objective,
                                       .optimizer = context,
                                       .clip = &clip,
                                       .loss = opened.loss,
                                       .step_chunks = CHUNKS,
                                       .micro_chunks = 2,
                                       .max_length = L,
                                       .shares = 1,
                                       .ranks = &alone,
                                       .owners = owners,
                                       .norms_every = 1,
                                       .chunk_losses = true};
  struct plm_step *step;
  PLM_TRY(plm_step_open(&parts, &step, error));
  plm_step_close(step);
  return PLM_OK;
}

/* What only several ranks take: the numbers of the others. */
static plm_status open_ranks(void *context, struct plm_error *error)
{
  struct plm_ranks ranks = {.collective = context, .rank = 1, .ranks = 3};
  struct plm_chunk_losses *losses;
  struct plm_layer_norms *norms;
  PLM_TRY(plm_chunk_losses_open(opened.ops, &ranks, CHUNKS, 2, &losses, error));
  const plm_status status = plm_layer_norms_open(opened.model, &ranks, owners, &norms, error);
  if (status == PLM_OK) plm_layer_norms_close(norms);
  plm_chunk_losses_close(losses);
  return status;
}

static void blocks_may_be_missing(void **state)
{
  struct plm_optimizer *optimizer;
  struct fake_collective fake;
  (void)state;
  failing_memory_try(open_objective, NULL, 7);
  failing_memory_try(open_optimizer, NULL, 8);
  assert_int_equal(plm_optimizer_open(&config.trainer, opened.model, NULL, &optimizer, NULL),
                   PLM_OK);
  failing_memory_try(open_step, optimizer, 26);
  plm_optimizer_close(optimizer);
  fake_collective_init(&fake, 1, 3);
  failing_memory_try(open_ranks, &fake.base, 16);
  fake_collective_deinit(&fake);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(blocks_may_be_missing, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
