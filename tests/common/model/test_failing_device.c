/* A device without memory, or one that is lost: whatever opens or runs a model says so and releases
 * what it holds. */
#include <stdlib.h>

#include "common/model/decode.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_memory.h"
#include "tests/support/harness/must.h"
#include "tests/support/operators/failing_device.h"

enum { LENGTH = 32, CHUNKS = 4 };
static const uint32_t lengths[] = {13, 7, 32, 5, 0};

/* What is tried with a model. */
struct trial {
  struct plm_model_config config;
  struct plm_model_options options;
  struct case_batch placed;
};

static struct trial trial_of(enum plm_architecture architecture, bool training)
{
  struct trial trial = {.config = case_config(architecture, 2, LENGTH),
                        .options = {.max_chunks = CHUNKS, .training = training}};
  struct case_documents documents;
  case_documents_draw(&documents, lengths, trial.config.vocab_size, 31);
  case_batch_place(&trial.placed, &documents, LENGTH, 1, true);
  return trial;
}

/* ---- opening --------------------------------------------------------------------------------- */

static plm_status open_model(struct plm_ops *ops, void *context, struct plm_error *error)
{
  const struct trial *trial = context;
  struct plm_model *model;
  PLM_TRY(plm_model_open(&trial->config, ops, &trial->options, &model, error));
  plm_status status = PLM_OK;
  if (!trial->options.training)
    status = plm_model_make_room(model, CHUNKS + 1, 2 * trial->config.max_length, error);
  plm_model_close(model);
  return status;
}

static plm_status open_masks(struct plm_ops *ops, void *context, struct plm_error *error)
{
  const struct trial *trial = context;
  struct plm_masks *masks;
  PLM_TRY(plm_masks_open(&trial->config, ops, CHUNKS, &masks, error));
  plm_masks_close(masks);
  return PLM_OK;
}

static void opening_says_what_is_missing(void **state)
{
  (void)state;
  struct trial training = trial_of(PLM_TRANSFORMER, true),
               infers = trial_of(PLM_TRANSFORMER, false);
  struct trial published = trial_of(PLM_ESM2, false);
  failing_device_try(PLM_PRECISION_FP32, open_model, &training, 5);
  failing_device_try(PLM_PRECISION_BF16, open_model, &training, 6);
  failing_device_try(PLM_PRECISION_FP32, open_model, &infers, 7);
  failing_device_try(PLM_PRECISION_BF16, open_model, &infers, 8);
  failing_device_try(PLM_PRECISION_INT8, open_model, &published, 8);
  failing_device_try(PLM_PRECISION_FP32, open_masks, &training, 1);
  case_batch_free(&training.placed);
  case_batch_free(&infers.placed);
  case_batch_free(&published.placed);
}

static plm_status open_on_cpu(void *context, struct plm_error *error)
{
  struct plm_ops *ops;
  PLM_TRY(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, error));
  const plm_status status = open_model(ops, context, error);
  ops->close(ops);
  return status;
}

/* The host's memory, for what is computed once and uploaded. */
static void opening_needs_memory(void **state)
{
  (void)state;
  struct trial published = trial_of(PLM_ESM2, false), adapted = trial_of(PLM_TRANSFORMER, true);
  adapted.config.lora = (struct plm_lora_config){.rank = 2, .alpha = 1, .targets = 1};
  published.options.max_chunks = 2 * CHUNKS; /* enough for rows of tokens */
  failing_memory_try(open_on_cpu, &published, 10);
  failing_memory_try(open_on_cpu, &adapted, 6);
  case_batch_free(&published.placed);
  case_batch_free(&adapted.placed);
}

static void there_are_not_too_many_positions(void **state)
{
  (void)state;
  struct trial trial = trial_of(PLM_TRANSFORMER, false);
  struct plm_ops *ops;
  struct plm_model *model;
  struct plm_error error = {0};
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  assert_int_equal(plm_model_open(&trial.config, ops, &trial.options, &model, NULL), PLM_OK);
  assert_int_equal(plm_model_make_room(model, (1u << 31) / LENGTH, LENGTH, &error), PLM_LIMIT);
  assert_string_equal(error.what,
                      "67108864 chunks of 32 tokens exceed the limit of 2147483647 tokens");
  plm_model_close(model);
  trial.options.max_chunks = (1u << 31) / LENGTH;
  assert_int_equal(plm_model_open(&trial.config, ops, &trial.options, &model, &error), PLM_LIMIT);
  ops->close(ops);
  case_batch_free(&trial.placed);
}

/* ---- passes ---------------------------------------------------------------------------------- */

enum pass { FORWARD, GRADIENTS, NO_ROWS, INFER, STATES, PASSES };

struct passing {
  struct trial trial;
  enum pass pass;
};

static void ignore_state(void *context, uint32_t number)
{
  (void)context, (void)number;
}

static plm_status run_pass(struct model_case *c, const struct passing *passing,
                           struct plm_error *error)
{
  const struct plm_masked_batch input = {&passing->trial.placed.batch, c->masks};
  struct plm_targets targets = passing->trial.placed.targets;
  const uint32_t D = c->config.hidden_size, states[] = {0, 2};
  struct plm_loss_result result;
  float *room = must(malloc((size_t)CHUNKS * LENGTH * (D + c->config.vocab_size) * sizeof *room));
  float *logits = room + (size_t)CHUNKS * LENGTH * D;
  const struct plm_state_taps taps = {
      .states = states, .count = 2, .room = room, .on_state = ignore_state};
  plm_status status = PLM_OK;
  plm_model_attention_masks(c->model, input.batch, c->window, c->masks);
  if (passing->pass == NO_ROWS) targets.rows = 0;
  switch (passing->pass) {
  case FORWARD:
  case NO_ROWS:
    status = plm_model_forward(c->model, &input, &targets, &c->loss, &result, NULL, error);
    break;
  case GRADIENTS:
    status = plm_model_gradients(c->model, &input, &targets, &c->loss, 1, &result, NULL, error);
    break;
  case INFER:
    status = plm_model_infer(c->model, &input, targets.inputs, NULL, 0, room, logits, error);
    break;
  case STATES:
    status = plm_model_infer_states(c->model, &input, targets.inputs, &taps, error);
    break;
  case PASSES: break;
  }
  free(room);
  return status;
}

static plm_status pass_model(struct plm_ops *ops, void *context, struct plm_error *error)
{
  const struct passing *passing = context;
  struct model_case c = {.config = passing->trial.config,
                         .window = passing->trial.config.window_end,
                         .loss = {.soft_cap = 16}};
  const long at = failing_device_pause();
  assert_int_equal(plm_model_open(&c.config, ops, &passing->trial.options, &c.model, NULL), PLM_OK);
  assert_int_equal(plm_masks_open(&c.config, ops, CHUNKS, &c.masks, NULL), PLM_OK);
  failing_device_resume(at);
  const plm_status status = run_pass(&c, passing, error);
  plm_masks_close(c.masks);
  plm_model_close(c.model);
  return status;
}

static void passes_say_that_the_device_is_lost(void **state)
{
  static const int calls[PASSES] = {
      [FORWARD] = 1, [GRADIENTS] = 1, [NO_ROWS] = 1, [INFER] = 1, [STATES] = 3};
  (void)state;
  struct passing passing = {.trial = trial_of(PLM_TRANSFORMER, true)};
  for (passing.pass = 0; passing.pass < PASSES; passing.pass++)
    failing_device_try(PLM_PRECISION_FP32, pass_model, &passing, calls[passing.pass]);
  case_batch_free(&passing.trial.placed);
}

static plm_status decode(struct plm_ops *ops, void *context, struct plm_error *error)
{
  const struct trial *trial = context;
  const struct plm_decode_options options = {
      .slots = 2, .capacity = LENGTH, .rows = 8, .window = trial->config.window_end};
  const struct plm_decode_row rows[] = {{0, 0, 1}, {0, 1, 5}, {1, 0, 1}};
  struct plm_model *model;
  struct plm_decode *opened;
  const long at = failing_device_pause();
  assert_int_equal(plm_model_open(&trial->config, ops, &trial->options, &model, NULL), PLM_OK);
  failing_device_resume(at);
  plm_status status = plm_decode_open(model, &options, &opened, error);
  assert_true((status != PLM_OK) == failing_device_failed()); /* at once, not in the first run */
  if (status == PLM_OK) {
    float *logits = must(malloc(3 * trial->config.vocab_size * sizeof *logits));
    status = plm_decode_run(opened, rows, 3, NULL, 0, logits, error);
    free(logits);
    plm_decode_close(opened);
  }
  plm_model_close(model);
  return status;
}

static void decoding_says_what_is_missing(void **state)
{
  (void)state;
  struct trial trial = trial_of(PLM_TRANSFORMER, false);
  trial.config.pattern[0] = PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_CAUSAL;
  trial.config.pattern_count = 1;
  failing_device_try(PLM_PRECISION_FP32, decode, &trial, 5);
  case_batch_free(&trial.placed);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(opening_says_what_is_missing),
      cmocka_unit_test(opening_needs_memory),
      cmocka_unit_test(there_are_not_too_many_positions),
      cmocka_unit_test(passes_say_that_the_device_is_lost),
      cmocka_unit_test(decoding_says_what_is_missing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
