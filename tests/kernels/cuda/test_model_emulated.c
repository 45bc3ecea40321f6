/* The whole model on the CUDA backend, emulated or on a GPU (device_case.h). In fp32, the loss and
 * the gradient of every parameter at perturbed weights are compared with the reference in double
 * precision, in bf16 with the CPU's bf16. Any order of threads gives the same bits. Hidden states
 * and logits of inference agree with the CPU. The host never touches device memory, which would be
 * a fault under the emulation. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/architecture.h"
#include "common/model/model_config.h"
#include "common/ops/device.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/operators/device_case.h"

static const uint32_t lengths[] = {9, 5, 16, 3, 7, 2, 0};
enum { LENGTH = 16 };

static struct plm_model_config configuration(enum plm_architecture architecture)
{
  struct plm_model_config config =
      case_config(architecture, architecture == PLM_TRANSFORMER ? 2 : 4, LENGTH);
  case_alternate(&config, PLM_ATTENTION_LOCAL);
  config.window_end = 4;
  return config;
}

static void place(struct case_batch *placed, const struct plm_model_config *config)
{
  static struct case_documents documents;
  case_documents_draw(&documents, lengths, config->vocab_size, 11);
  case_batch_place(placed, &documents, config->max_length, 4, false);
}

/* The gradients on a backend; the caller frees them. */
static float *gradients_on(struct plm_ops *ops, const struct plm_model_config *config,
                           const struct case_batch *placed, double *loss)
{
  const struct plm_model_options options = {.max_chunks = placed->batch.chunks, .training = true};
  struct model_case c;
  model_case_open_on(&c, ops, config, &options, 13);
  float *gradients = model_case_gradients_of(&c, placed, loss);
  model_case_close(&c);
  return gradients;
}

struct table {
  struct plm_parameter *parameters;
  size_t count, elements;
};

static struct table table_of(const struct plm_model_config *config)
{
  struct table table;
  assert_int_equal(
      plm_model_parameters(config, &table.parameters, &table.count, &table.elements, NULL), PLM_OK);
  return table;
}

static void fp32_agrees_with_double_precision(void **state)
{
  (void)state;
  for (int architecture = PLM_TRANSFORMER; architecture < PLM_ARCHITECTURES; architecture++) {
    const struct plm_model_config config = configuration((enum plm_architecture)architecture);
    struct case_batch placed;
    struct model_case c;
    double loss, expected_loss;
    place(&placed, &config);
    const struct plm_model_options options = {.max_chunks = placed.batch.chunks, .training = true};
    model_case_open_on(&c, device_case_open(PLM_PRECISION_FP32, 1), &config, &options, 13);
    float *gradients = model_case_gradients_of(&c, &placed, &loss);
    double *expected =
        model_case_reference(&c, &placed, 1.0, REFERENCE_NO_FAULT, &expected_loss, NULL, NULL);
    const struct table table = table_of(&config);
    assert_true(fabs(loss - expected_loss) <= 1e-5 * fabs(expected_loss));
    for (size_t i = 0; i < table.count; i++) {
      const double relative = case_relative(&table.parameters[i], gradients, expected);
      if (!(relative <= 3e-5))
        fail_msg("architecture %d, %s: relative difference %.3g", architecture,
                 table.parameters[i].name, relative);
    }
    free(table.parameters);
    free(gradients);
    free(expected);
    model_case_close(&c);
    case_batch_free(&placed);
  }
}

/* Adapters of every product, which the reference does not have: the CPU's are compared with PEFT's
 * by tests/golden/test_lora.py. */
static void adapters_agree_with_the_cpu(void **state)
{
  (void)state;
  for (int architecture = PLM_TRANSFORMER; architecture < PLM_ARCHITECTURES; architecture++) {
    struct plm_model_config config = configuration((enum plm_architecture)architecture);
    struct case_batch placed;
    struct plm_ops *cpu;
    double loss[2];
    const uint32_t all = (1U << PLM_LORA_TARGETS) - 1;
    config.lora = (struct plm_lora_config){
        .rank = 3,
        .alpha = 4,
        .targets = architecture == PLM_ESMC ? all : all & ~(1U << PLM_LORA_GATE)};
    place(&placed, &config);
    assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &cpu, NULL), PLM_OK);
    float *expected = gradients_on(cpu, &config, &placed, &loss[0]);
    float *got = gradients_on(device_case_open(PLM_PRECISION_FP32, 1), &config, &placed, &loss[1]);
    const struct table table = table_of(&config);
    size_t adapters = 0;
    assert_true(fabs(loss[1] - loss[0]) <= 1e-5 * fabs(loss[0]));
    for (size_t i = 0; i < table.count; i++) {
      const double relative = case_relative_float(&table.parameters[i], got, expected);
      adapters += table.parameters[i].adapter != 0;
      if (!(relative <= 1e-4))
        fail_msg("architecture %d, %s: relative difference %.3g", architecture,
                 table.parameters[i].name, relative);
    }
    assert_true(adapters >= 24);
    free(table.parameters);
    free(expected);
    free(got);
    case_batch_free(&placed);
  }
}

/* Both round at the same places, so they are much closer to each other than to exact results.
 * Without bf16 instructions, attention on the CPU rounds at fewer places. The gradients of the two
 * factors of a mix are sums of which nearly everything cancels, so there they are left out. */
static void bf16_agrees_with_the_cpu(void **state)
{
  (void)state;
  for (int architecture = 0; architecture < PLM_ARCHITECTURES; architecture++) {
    if (plm_architecture_rules((enum plm_architecture)architecture)->published) continue;
    const struct plm_model_config config = configuration((enum plm_architecture)architecture);
    struct case_batch placed;
    struct plm_ops *cpu;
    double loss[2];
    place(&placed, &config);
    assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_BF16, 1, NULL, &cpu, NULL), PLM_OK);
    const bool native = strcmp(cpu->bf16_products, "native") == 0;
    float *expected = gradients_on(cpu, &config, &placed, &loss[0]);
    float *got = gradients_on(device_case_open(PLM_PRECISION_BF16, 1), &config, &placed, &loss[1]);
    const struct table table = table_of(&config);
    assert_true(fabs(loss[1] - loss[0]) <= 2e-3 * fabs(loss[0]));
    for (size_t i = 0; i < table.count; i++) {
      const double relative = case_relative_float(&table.parameters[i], got, expected);
      if (!native && strstr(table.parameters[i].name, "_mix") != NULL) continue;
      if (!(relative <= 0.03))
        fail_msg("architecture %d, %s: relative difference %.3g", architecture,
                 table.parameters[i].name, relative);
    }
    free(table.parameters);
    free(expected);
    free(got);
    case_batch_free(&placed);
  }
}

/* Documents never mix: gradients are the same whether documents share chunks or not. */
static void packed_equals_separate(void **state)
{
  (void)state;
  static struct case_documents documents;
  for (int architecture = PLM_TRANSFORMER; architecture < PLM_ARCHITECTURES; architecture++) {
    const struct plm_model_config config = configuration((enum plm_architecture)architecture);
    const struct table table = table_of(&config);
    float *gradients[2];
    double loss[2];
    case_documents_draw(&documents, lengths, config.vocab_size, 11);
    for (int separate = 0; separate < 2; separate++) {
      struct case_batch placed;
      case_batch_place(&placed, &documents, config.max_length, 4, separate);
      gradients[separate] =
          gradients_on(device_case_open(PLM_PRECISION_FP32, 1), &config, &placed, &loss[separate]);
      assert_true(separate ? placed.batch.chunks == documents.count
                           : placed.batch.chunks < documents.count);
      case_batch_free(&placed);
    }
    assert_true(fabs(loss[1] - loss[0]) <= 1e-5 * fabs(loss[0]));
    for (size_t i = 0; i < table.count; i++) {
      const double relative = case_relative_float(&table.parameters[i], gradients[0], gradients[1]);
      if (!(relative <= 3e-5))
        fail_msg("architecture %d, %s: relative difference %.3g", architecture,
                 table.parameters[i].name, relative);
    }
    free(gradients[0]);
    free(gradients[1]);
    free(table.parameters);
  }
}

static void any_order_of_threads_gives_the_same_bits(void **state)
{
  (void)state;
  for (int architecture = PLM_TRANSFORMER; architecture < PLM_ARCHITECTURES; architecture++) {
    const struct plm_model_config config = configuration((enum plm_architecture)architecture);
    const struct table table = table_of(&config);
    struct case_batch placed;
    place(&placed, &config);
    for (int in_bf16 = 0; in_bf16 < 2; in_bf16++) {
      const int precision = in_bf16 ? PLM_PRECISION_BF16 : PLM_PRECISION_FP32;
      float *gradients[2];
      double loss[2];
      for (int i = 0; i < 2; i++)
        gradients[i] =
            gradients_on(device_case_open(precision, 2 + (uint64_t)i), &config, &placed, &loss[i]);
      assert_true(loss[0] == loss[1]);
      assert_memory_equal(gradients[0], gradients[1], table.elements * sizeof **gradients);
      free(gradients[0]);
      free(gradients[1]);
    }
    free(table.parameters);
    case_batch_free(&placed);
  }
}

static void inference_agrees_with_the_cpu(void **state)
{
  (void)state;
  const struct plm_model_config config = configuration(PLM_PATCH_UNET);
  struct case_batch placed;
  place(&placed, &config);
  const size_t rows = (size_t)placed.batch.chunks * LENGTH;
  const size_t hidden = rows * config.hidden_size, logits = rows * config.vocab_size;
  float *results[2];
  for (int i = 0; i < 2; i++) {
    struct plm_ops *ops;
    struct model_case c;
    const struct plm_model_options options = {.max_chunks = placed.batch.chunks};
    if (i == 0)
      assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
    else
      ops = device_case_open(PLM_PRECISION_FP32, 1);
    model_case_open_on(&c, ops, &config, &options, 13);
    results[i] = calloc(hidden + logits, sizeof(float));
    assert_non_null(results[i]);
    plm_model_attention_masks(c.model, &placed.batch, c.window, c.masks);
    assert_int_equal(plm_model_infer(c.model, &(struct plm_masked_batch){&placed.batch, c.masks},
                                     placed.inputs, NULL, 0, results[i], results[i] + hidden, NULL),
                     PLM_OK);
    model_case_close(&c);
  }
  for (size_t i = 0; i < hidden + logits; i++)
    if (!(fabsf(results[0][i] - results[1][i]) <= 1e-4f))
      fail_msg("element %zu: %g on the CPU, %g", i, (double)results[0][i], (double)results[1][i]);
  free(results[0]);
  free(results[1]);
  case_batch_free(&placed);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fp32_agrees_with_double_precision),
      cmocka_unit_test(adapters_agree_with_the_cpu),
      cmocka_unit_test(bf16_agrees_with_the_cpu),
      cmocka_unit_test(packed_equals_separate),
      cmocka_unit_test(any_order_of_threads_gives_the_same_bits),
      cmocka_unit_test(inference_agrees_with_the_cpu),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
