/* The dropout of adapters in a step, of tokens and of labels: each micro-batch has the keys of its
 * own chunks, so that it is the same step however it is cut. What is computed again drops the same.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/ops/label_operands.h"
#include "tests/support/cases/label_schemas.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "trainer/step/step.h"
#include "trainer/trainer_options.h"

enum { CHUNKS = 4, L = 32, DOCUMENTS = 6, RECORD = 64, NUMBER = 3 };

static const uint32_t lengths[DOCUMENTS + 1] = {30, 20, 9, 32, 25, 6, 0};

/* How the step is cut and what its dropout draws. */
struct drawn {
  bool labels;
  uint32_t micro_chunks;
  double dropout;
  uint64_t seed;
  enum plm_recompute recompute;
};

/* A number for each document. */
struct labelled {
  struct plm_label_schema schema;
  const struct plm_label_schema *schemas[1];
  struct plm_label_choice choice;
  struct plm_label_source source;
  uint8_t records[RECORD]; /* of all documents: the number comes first */
  uint64_t at[DOCUMENTS];
};

static void label_batch(struct labelled *of, struct plm_batch *batch)
{
  struct plm_error error = {0};
  *of = (struct labelled){.schemas = {&of->schema}};
  label_schema_make(&of->schema);
  plm_label_put_number(of->records, 1.5);
  must_work(plm_label_choose(PLM_TASK_REGRESSION, (const char *[]){"stability"}, 1, of->schemas,
                             (const char *[]){"corpus"}, 1, &of->choice, &error),
            &error);
  of->source = (struct plm_label_source){.choice = &of->choice, .schemas = of->schemas};
  batch->labels = of->records;
  batch->label_at = of->at;
}

static void open_model(const struct drawn *drawn, struct plm_config *config,
                       struct model_case *model)
{
  static const char yaml[] =
      "model: {architecture: transformer, hidden_size: 32, num_attention_heads: 2, "
      "num_hidden_layers: 2}\ndata: {max_length: 32}\n"
      "trainer: {batch_tokens: 128, steps: 100, precision: fp32, threads: 1}\n";
  const struct plm_model_options options = {
      .max_chunks = CHUNKS, .training = true, .recompute = drawn->recompute};
  struct plm_error error = {0};
  must_work(plm_config_load_text(yaml, strlen(yaml), config, &error), &error);
  config->model.lora = (struct plm_lora_config){
      .rank = 4, .alpha = 64, .targets = 3, .dropout = (float)drawn->dropout};
  if (drawn->labels)
    config->model.head = (struct plm_head_config){.kind = PLM_PREDICTS_SEQUENCES,
                                                  .loss = PLM_LOSS_SQUARES,
                                                  .outputs = 1,
                                                  .dropout = drawn->dropout};
  model_case_open(model, &config->model, &options, PLM_PRECISION_FP32, 4);
}

/* Runs step NUMBER and returns its loss and the norm of its gradients. */
static double run(const struct plm_step_parts *parts, const struct plm_batch *batch, double *norm)
{
  struct plm_error error = {0};
  struct plm_step *step;
  struct plm_step_input input;
  struct plm_step_result result;
  must_work(plm_step_open(parts, &step, &error), &error);
  const struct plm_step_shape shape = plm_step_shape(step);
  void *block = must(calloc(1, plm_step_input_bytes(&shape)));
  plm_step_input_init(&input, &shape, block);
  must_work(plm_step_input_fill(&input, &shape, NUMBER, batch, &error), &error);
  must_work(plm_step_launch(step, &input, NULL, NULL, &error), &error);
  must_work(plm_step_finish(step, &input, &result, &error), &error);
  plm_step_input_deinit(&input);
  plm_step_close(step);
  free(block);
  *norm = result.grad_norm;
  return result.loss;
}

/* keys (micro_chunks, L), or NULL: those of its last micro-batch. norm receives that of the
 * gradients. */
static double loss_of(const struct drawn *drawn, uint64_t *keys, double *norm)
{
  static struct case_documents documents;
  static struct plm_config config;
  struct plm_error error = {0};
  struct model_case model;
  struct case_batch placed;
  struct labelled labelled;
  struct plm_objective_state objective;
  struct plm_optimizer *optimizer;
  size_t count;
  open_model(drawn, &config, &model);
  case_documents_draw(&documents, lengths, config.model.vocab_size, 3);
  case_batch_place(&placed, &documents, L, 1, false);
  assert_int_equal(placed.batch.chunks, CHUNKS);
  placed.batch.first_chunk = (uint64_t)NUMBER * CHUNKS;
  label_batch(&labelled, &placed.batch);
  const struct plm_objective_options options = plm_objective_options_of(&config);
  must_work(plm_objective_init(&objective, &options, CHUNKS, CHUNKS, &error), &error);
  must_work(plm_optimizer_open(&config.trainer, model.model, NULL, &optimizer, &error), &error);
  plm_model_table(model.model, &count);
  uint32_t *owners = must(calloc(count, sizeof *owners));
  struct plm_clip clip = {0};
  struct plm_ranks ranks = plm_ranks_single();
  const struct plm_step_parts parts = {.trainer = &config.trainer,
                                       .model = model.model,
                                       .masks = model.masks,
                                       .objective = &objective,
                                       .optimizer = optimizer,
                                       .clip = &clip,
                                       .loss = model.loss,
                                       .labels = drawn->labels ? &labelled.source : NULL,
                                       .seed = drawn->seed,
                                       .step_chunks = CHUNKS,
                                       .micro_chunks = drawn->micro_chunks,
                                       .max_length = L,
                                       .shares = 1,
                                       .ranks = &ranks,
                                       .owners = owners};
  const double loss = run(&parts, &placed.batch, norm);
  if (keys != NULL)
    model.ops->download(model.ops, keys, plm_model_device_adapter_keys(model.model),
                        (size_t)drawn->micro_chunks * L * sizeof *keys);
  plm_optimizer_close(optimizer);
  plm_objective_deinit(&objective);
  plm_label_choice_deinit(&labelled.choice);
  plm_label_schema_deinit(&labelled.schema);
  case_batch_free(&placed);
  model_case_close(&model);
  plm_config_deinit(&config);
  free(owners);
  return loss;
}

static bool is_near(double a, double b)
{
  return fabs(a - b) <= 1e-5 * fabs(b);
}

static void a_step_drops_by_its_chunks(void **state)
{
  (void)state;
  for (int labels = 0; labels < 2; labels++) {
    const struct drawn whole = {labels, CHUNKS, 0.5, 7, PLM_RECOMPUTE_NONE},
                       seeded = {labels, CHUNKS, 0.5, 8, PLM_RECOMPUTE_NONE},
                       without = {labels, CHUNKS, 0, 7, PLM_RECOMPUTE_NONE};
    double norm, again;
    const double loss = loss_of(&whole, NULL, &norm);
    assert_false(is_near(loss_of(&seeded, NULL, &again), loss));
    assert_false(is_near(loss_of(&without, NULL, &again), loss));
    for (uint32_t micro = 1; micro <= 2; micro++) {
      uint64_t keys[2 * L];
      const struct drawn cut = {labels, micro, 0.5, 7, PLM_RECOMPUTE_NONE};
      assert_true(is_near(loss_of(&cut, keys, &again), loss));
      for (uint32_t i = 0; i < micro * L; i++)
        assert_true(keys[i] == plm_dropout_key(NUMBER * CHUNKS + CHUNKS - micro + i / L, i % L));
    }
  }
}

/* The backward pass draws the masks of the forward pass again, in a head for labels too. */
static void recomputation_drops_the_same(void **state)
{
  (void)state;
  for (int labels = 0; labels < 2; labels++) {
    double norm, again;
    struct drawn drawn = {labels, 2, 0.5, 7, PLM_RECOMPUTE_NONE};
    const double loss = loss_of(&drawn, NULL, &norm);
    assert_true(norm > 0);
    for (int recompute = PLM_RECOMPUTE_MLP; recompute <= (int)PLM_RECOMPUTE_BLOCK; recompute++) {
      drawn.recompute = (enum plm_recompute)recompute;
      assert_true(loss_of(&drawn, NULL, &again) == loss);
      assert_true(again == norm);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_step_drops_by_its_chunks),
                                     cmocka_unit_test(recomputation_drops_the_same)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
