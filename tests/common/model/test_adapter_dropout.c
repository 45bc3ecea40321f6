/* With dropout of adapters, the gradient of each parameter is the slope of the loss, so what
 * adapters drop is the same in the forward and the backward pass, and flows back to what they read.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/architecture.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"

static const uint64_t seed = 77;

struct dropout_scene {
  struct model_case model;
  struct case_batch placed;
  double *loss_sum; /* device */
};

static void upload(struct plm_ops *ops, void *to, const void *from, size_t bytes)
{
  ops->upload(ops, to, from, bytes);
}

/* The keys of dropout, those from `begin` to `end` others than usual. */
static void upload_keys(struct dropout_scene *s, size_t begin, size_t end)
{
  const struct plm_batch *batch = &s->placed.batch;
  const size_t count = plm_model_adapter_keys(&s->model.config, batch->chunks, batch->max_length);
  uint64_t *keys = must(calloc(count, sizeof *keys));
  assert_true(end <= count);
  plm_model_adapter_keys_fill(&s->model.config, batch, keys);
  for (size_t i = begin; i < end; i++) keys[i] += UINT64_C(1) << 40;
  upload(s->model.ops, plm_model_device_adapter_keys(s->model.model), keys, count * sizeof *keys);
  free(keys);
}

static void open_scene(struct dropout_scene *s, const struct plm_model_config *config)
{
  static const uint32_t lengths[] = {13, 7, 20, 31, 0};
  static struct case_documents documents;
  case_documents_draw(&documents, lengths, config->vocab_size, 31);
  case_batch_place(&s->placed, &documents, config->max_length, 4, false);
  const struct plm_batch *batch = &s->placed.batch;
  const struct plm_targets *targets = &s->placed.targets;
  const struct plm_model_options options = {.max_chunks = batch->chunks, .training = true};
  model_case_open(&s->model, config, &options, PLM_PRECISION_FP32, 37);
  struct plm_ops *ops = s->model.ops;
  assert_int_equal(ops->allocate(ops, sizeof *s->loss_sum, (void **)&s->loss_sum, NULL), PLM_OK);
  const struct plm_device_targets to = plm_model_device_targets(s->model.model);
  upload_keys(s, 0, 0);
  upload(ops, to.inputs, targets->inputs,
         (size_t)batch->chunks * batch->max_length * sizeof(int32_t));
  upload(ops, to.positions, targets->positions, targets->rows * sizeof(int32_t));
  upload(ops, to.labels, targets->labels, targets->rows * sizeof(int32_t));
  upload(ops, to.weights, targets->weights, targets->rows * sizeof(float));
  plm_model_attention_masks(s->model.model, batch, s->model.window, s->model.masks);
}

static void close_scene(struct dropout_scene *s)
{
  s->model.ops->release(s->model.ops, s->loss_sum);
  model_case_close(&s->model);
  case_batch_free(&s->placed);
}

/* The summed loss; the gradients are those of this pass. */
static double train(struct dropout_scene *s, const uint64_t *dropout_seed)
{
  struct plm_ops *ops = s->model.ops;
  double loss;
  const struct plm_train_pass pass = {.chunks = s->placed.batch.chunks,
                                      .length = s->placed.batch.max_length,
                                      .rows = s->placed.targets.rows,
                                      .masks = s->model.masks,
                                      .loss = &s->model.loss,
                                      .dropout_seed = dropout_seed,
                                      .loss_sum = s->loss_sum};
  ops->zero(ops, s->loss_sum, sizeof *s->loss_sum);
  plm_model_zero_gradients(s->model.model);
  plm_model_train(s->model.model, &pass, plm_model_whole_pass(s->model.model));
  ops->download(ops, &loss, s->loss_sum, sizeof loss);
  assert_int_equal(ops->synchronize(ops, NULL), PLM_OK);
  return loss;
}

/* The loss after `parameter` has moved by `distance` along its gradient. */
static double moved(struct dropout_scene *s, const struct plm_parameter *parameter,
                    const float *gradient, double distance)
{
  float *w = s->model.weights + parameter->offset;
  float *before = must(malloc(parameter->count * sizeof *before));
  memcpy(before, w, parameter->count * sizeof *before);
  for (size_t e = 0; e < parameter->count; e++) w[e] += (float)(distance * (double)gradient[e]);
  plm_model_load(s->model.model, s->model.weights);
  const double loss = train(s, &seed);
  memcpy(w, before, parameter->count * sizeof *before);
  free(before);
  return loss;
}

/* Adapters of each level read the keys of that level. */
static void check_keys(struct dropout_scene *s, double loss)
{
  size_t begin = 0;
  for (int level = 0; level < plm_architecture_levels(&s->model.config); level++) {
    const size_t rows = s->placed.batch.chunks * (size_t)(s->placed.batch.max_length >> level);
    upload_keys(s, begin, begin + rows);
    if (train(s, &seed) == loss) fail_msg("the keys of level %d have no effect", level);
    begin += rows;
  }
  upload_keys(s, 0, 0);
  assert_true(train(s, &seed) == loss);
}

static void check(enum plm_architecture architecture, struct plm_model_config config)
{
  enum { RANK = 3 };
  const bool gated = architecture == PLM_ESMC;
  config.lora = (struct plm_lora_config){.rank = RANK,
                                         .alpha = 8 * RANK,
                                         .dropout = 0.25,
                                         .targets = gated ? 0x7f : 0x7f ^ 1U << PLM_LORA_GATE};
  struct dropout_scene s;
  size_t count;
  open_scene(&s, &config);
  const struct plm_parameter *table = plm_model_table(s.model.model, &count);
  const double loss = train(&s, &seed);
  float *gradients = model_case_gradients(&s.model);
  assert_true(fabs(train(&s, NULL) - loss) > 1e-3 * loss); /* something is dropped */
  check_keys(&s, loss);
  for (size_t i = 0; i < count; i++) {
    const float *gradient = gradients + table[i].offset;
    double squares = 0;
    for (size_t e = 0; e < table[i].count; e++) squares += (double)gradient[e] * gradient[e];
    assert_true(squares > 0);
    const double distance = fmin(2e-4 * loss / squares, 2e-2 / sqrt(squares));
    const double slope =
        (moved(&s, &table[i], gradient, distance) - moved(&s, &table[i], gradient, -distance)) /
        (2 * distance);
    if (!(fabs(slope - squares) <= 0.02 * squares))
      fail_msg("architecture %d, %s: slope %g, gradient %g", architecture, table[i].name, slope,
               squares);
  }
  free(gradients);
  close_scene(&s);
}

static void gradients_are_slopes_of_the_loss(void **state)
{
  (void)state;
  static const enum plm_architecture architectures[] = {PLM_TRANSFORMER, PLM_PATCH_UNET, PLM_ESM2,
                                                        PLM_ESMC};
  for (size_t a = 0; a < sizeof architectures / sizeof *architectures; a++)
    check(architectures[a],
          case_config(architectures[a], architectures[a] == PLM_PATCH_UNET ? 4 : 1, 32));
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_slopes_of_the_loss)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
