/* A step whose device, or whose exchange with other ranks, refuses something: at whatever call, the
 * step ends with that call's error, and everything is released. */
#include <stdlib.h>
#include <string.h>

#include "common/collective/transport.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/peers/fake_collective.h"
#include "tests/support/peers/refusals.h"
#include "trainer/ranks/rank_tensors.h"
#include "trainer/step/step.h"
#include "trainer/trainer_options.h"

enum { CHUNKS = 4, L = 32 };

struct scene {
  struct plm_config config;
  struct model_case model;
  struct case_batch placed;
  uint32_t *owners;
  struct fake_collective fake;
  struct plm_ranks ranks;
  struct plm_clip clip;
  struct plm_objective_state objective;
};

static void open_scene(struct scene *s, bool single)
{
  static struct case_documents documents;
  static const uint32_t lengths[] = {30, 20, 9, 32, 25, 6, 0};
  static const char yaml[] =
      "model: {architecture: transformer, hidden_size: 32, num_attention_heads: 2, "
      "num_hidden_layers: 2}\ndata: {max_length: 32}\n"
      "trainer: {batch_tokens: 128, steps: 100, precision: fp32, threads: 1, ema: 0.9, "
      "schedule: {warmup_steps: 0, cooldown_steps: 0}}\n";
  const struct plm_model_options options = {.max_chunks = CHUNKS, .training = true};
  struct plm_error error = {0};
  size_t count;
  *s = (struct scene){.ranks = plm_ranks_single()};
  must_work(plm_config_load_text(yaml, strlen(yaml), &s->config, &error), &error);
  model_case_open(&s->model, &s->config.model, &options, PLM_PRECISION_FP32, 4);
  case_documents_draw(&documents, lengths, s->config.model.vocab_size, 3);
  case_batch_place(&s->placed, &documents, L, 1, false);
  const struct plm_objective_options objective = plm_objective_options_of(&s->config);
  must_work(plm_objective_init(&s->objective, &objective, CHUNKS, CHUNKS, &error), &error);
  plm_model_table(s->model.model, &count);
  s->owners = must(calloc(count, sizeof *s->owners));
  fake_collective_init(&s->fake, 0, 2);
  if (!single) {
    s->ranks = (struct plm_ranks){.collective = &s->fake.base, .ranks = 2, .ops = s->model.ops};
    must_work(plm_transport_open(&s->fake.base, s->model.ops, &s->ranks.transport, &error), &error);
  }
  refusals_of_ops(s->model.ops);
  refusals_of_ranks(&s->fake.base);
}

static void close_scene(struct scene *s)
{
  if (s->ranks.transport != NULL) s->ranks.transport->close(s->ranks.transport);
  fake_collective_deinit(&s->fake);
  plm_objective_deinit(&s->objective);
  case_batch_free(&s->placed);
  model_case_close(&s->model);
  plm_config_deinit(&s->config);
  free(s->owners);
}

static plm_status go_on(void *context, uint32_t done, uint32_t total, struct plm_error *error)
{
  struct scene *s = context;
  enum plm_rank_vote decision;
  PLM_ASSERT(done < total);
  return plm_ranks_decide(&s->ranks, PLM_RANK_GO, PLM_OK, &decision, error);
}

/* A rehearsal, a step and what a checkpoint needs of it. */
static plm_status run_step(struct scene *s, struct plm_step *step, struct plm_optimizer *optimizer,
                           struct plm_step_input *input, struct plm_error *error)
{
  struct plm_step_result result;
  const struct plm_step_shape shape = plm_step_shape(step);
  must_work(plm_step_input_fill(input, &shape, 0, &s->placed.batch, error), error);
  PLM_TRY(plm_step_rehearse(step, input, error));
  PLM_TRY(plm_step_launch(step, input, go_on, s, error));
  PLM_TRY(plm_step_finish(step, input, &result, error));
  assert_true(!result.skipped && result.norms != NULL && result.chunks != NULL);
  PLM_TRY(plm_rank_compare_weights(&s->ranks, s->owners, s->model.model, error));
  assert_int_equal(plm_optimizer_updates(optimizer), 1);
  return PLM_OK;
}

static plm_status open_and_step(struct scene *s, struct plm_error *error)
{
  struct plm_optimizer *optimizer;
  struct plm_step *step;
  struct plm_step_input input;
  PLM_TRY(plm_optimizer_open(&s->config.trainer, s->model.model, NULL, &optimizer, error));
  const struct plm_step_parts parts = {.trainer = &s->config.trainer,
                                       .model = s->model.model,
                                       .masks = s->model.masks,
                                       .objective = &s->objective,
                                       .optimizer = optimizer,
                                       .clip = &s->clip,
                                       .loss = s->model.loss,
                                       .step_chunks = CHUNKS,
                                       .micro_chunks = 2,
                                       .max_length = L,
                                       .shares = 2,
                                       .ranks = &s->ranks,
                                       .owners = s->owners,
                                       .norms_every = 1,
                                       .chunk_losses = true};
  plm_status status = plm_step_open(&parts, &step, error);
  if (status == PLM_OK) {
    const struct plm_step_shape shape = plm_step_shape(step);
    void *block = must(calloc(1, plm_step_input_bytes(&shape)));
    plm_step_input_init(&input, &shape, block);
    status = run_step(s, step, optimizer, &input, error);
    plm_step_input_deinit(&input);
    free(block);
    plm_step_close(step);
  }
  plm_optimizer_close(optimizer);
  return status;
}

/* The operators begin anew as well, because they keep their first error. */
static plm_status begin_anew(void *context, struct plm_error *error)
{
  struct scene s;
  open_scene(&s, *(bool *)context);
  const plm_status status = open_and_step(&s, error);
  close_scene(&s);
  return status;
}

static void whatever_is_refused_ends_a_step(void **state)
{
  (void)state;
  for (int i = 0; i < 2; i++) {
    bool single = i == 0;
    const int calls = refusals_try(begin_anew, &single);
    if (calls < (single ? 20 : 30)) fail_msg("only %d calls", calls);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(whatever_is_refused_ends_a_step)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
