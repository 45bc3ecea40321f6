/* The model's loss and the gradient of every parameter against the reference in double precision,
 * for all architectures and their options. If any path of the reference's backward pass is
 * left out, the same comparison must fail. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/architecture.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"

/* The tolerance of a gradient in fp32, relative to its norm. Matrices and tables stay below 4e-6.
 * The gradients of a, b and s are sums over all rows of terms that cancel, because a norm follows,
 * so the effect of rounding depends on the weights. Those drawn here leave a factor of two or more
 * on every instruction set. */
static const double tolerance = 3e-5;

static const uint32_t several[] = {13, 7, 20, 5, 3, 31, 9, 2, 0};
static const uint32_t few[] = {8, 5, 3, 2, 7, 1, 0};

struct subject {
  struct model_case model;
  struct case_batch placed;
};

static void subject_open(struct subject *s, const struct plm_model_config *config,
                         uint32_t alignment)
{
  static struct case_documents documents;
  case_documents_draw(&documents, config->max_length < 32 ? few : several, config->vocab_size, 11);
  case_batch_place(&s->placed, &documents, config->max_length, alignment, false);
  const struct plm_model_options options = {.max_chunks = s->placed.batch.chunks, .training = true};
  model_case_open(&s->model, config, &options, PLM_PRECISION_FP32, 38);
}

static void subject_close(struct subject *s)
{
  model_case_close(&s->model);
  case_batch_free(&s->placed);
}

/* The largest relative difference over all parameters, and the name of that parameter. */
static double worst(const struct subject *s, const float *gradients, const double *expected,
                    const char **name)
{
  size_t count;
  const struct plm_parameter *table = plm_model_table(s->model.model, &count);
  double largest = -1.0;
  for (size_t i = 0; i < count; i++) {
    const double relative = case_relative(&table[i], gradients, expected);
    if (relative > largest || isnan(relative)) {
      largest = isnan(relative) ? INFINITY : relative;
      *name = table[i].name;
    }
  }
  return largest;
}

static void assert_nothing_is_blind(const struct subject *s, const double *expected)
{
  size_t count;
  const struct plm_parameter *table = plm_model_table(s->model.model, &count);
  for (size_t i = 0; i < count; i++) {
    double largest = 0.0;
    for (size_t e = 0; e < table[i].count; e++)
      largest = fmax(largest, fabs(expected[table[i].offset + e]));
    if (largest < 1e-6) fail_msg("%s: the reference's gradient is 0", table[i].name);
  }
}

static void compare(struct subject *s)
{
  double loss, expected_loss;
  const char *name = "";
  float *gradients = model_case_gradients_of(&s->model, &s->placed, &loss);
  double *expected = model_case_reference(&s->model, &s->placed, 1.0, REFERENCE_NO_FAULT,
                                          &expected_loss, NULL, NULL);
  assert_nothing_is_blind(s, expected);
  if (fabs(loss - expected_loss) > 1e-5 * fabs(expected_loss))
    fail_msg("loss %.9g, reference %.9g", loss, expected_loss);
  const double largest = worst(s, gradients, expected, &name);
  if (largest > tolerance) fail_msg("gradient of %s: relative difference %.3g", name, largest);
  print_message("    largest relative difference %.2g, %s\n", largest, name);
  free(gradients);
  free(expected);
}

static void check_aligned(const struct plm_model_config *config, uint32_t alignment)
{
  struct subject s;
  subject_open(&s, config, alignment);
  compare(&s);
  subject_close(&s);
}

static void check(const struct plm_model_config *config)
{
  check_aligned(config, 1);
}

static void transformer(void **state)
{
  (void)state;
  const struct plm_model_config config = case_config(PLM_TRANSFORMER, 3, 32);
  check(&config);
}

static void unet(void **state)
{
  (void)state;
  const struct plm_model_config config = case_config(PLM_UNET, 6, 32);
  check(&config);
}

static void patch_unet(void **state)
{
  (void)state;
  const struct plm_model_config config = case_config(PLM_PATCH_UNET, 6, 32);
  check(&config);
  check_aligned(&config, 4);
}

static void patch_unet_of_one_level(void **state)
{
  (void)state;
  const struct plm_model_config config = case_config(PLM_PATCH_UNET, 2, 32);
  check(&config);
}

/* Heads of the greatest width: no level is wider, so none projects the embeddings. */
static void patch_unet_of_one_width(void **state)
{
  (void)state;
  struct plm_model_config config = case_config(PLM_PATCH_UNET, 6, 32);
  config.hidden_size = 128;
  config.num_attention_heads = 1;
  check(&config);
}

/* v = 3: layers 3 and 4 of 5 are bottlenecks with one position. */
static void patch_unet_with_bottlenecks(void **state)
{
  (void)state;
  struct plm_model_config config = case_config(PLM_PATCH_UNET, 10, 8);
  config.pattern[1] = PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_CAUSAL;
  config.pattern_count = 2;
  check(&config);
  check_aligned(&config, 8);
}

static void esm2(void **state)
{
  (void)state;
  struct plm_model_config config = case_config(PLM_ESM2, 3, 32);
  check(&config);
  config.emb_layer_norm_before = true;
  check(&config);
  config.token_dropout = false;
  config.layer_norm_eps = 0.1;
  check(&config);
}

static void esmc(void **state)
{
  (void)state;
  const struct plm_model_config config = case_config(PLM_ESMC, 3, 32);
  check(&config);
}

/* Its eps cannot be chosen. It shows in the norms of small queries and keys. */
static void esmc_with_small_queries(void **state)
{
  (void)state;
  const struct plm_model_config config = case_config(PLM_ESMC, 2, 32);
  struct subject s;
  size_t count;
  subject_open(&s, &config, 1);
  const struct plm_parameter *table = plm_model_table(s.model.model, &count);
  for (size_t i = 0; i < count; i++)
    if (strstr(table[i].name, ".q_proj.weight") || strstr(table[i].name, ".k_proj.weight"))
      for (size_t e = 0; e < table[i].count; e++) s.model.weights[table[i].offset + e] *= 0.1f;
  plm_model_load(s.model.model, s.model.weights);
  compare(&s);
  subject_close(&s);
}

static void tied_embeddings(void **state)
{
  (void)state;
  struct plm_model_config config = case_config(PLM_UNET, 2, 32);
  config.tie_embeddings = true;
  check(&config);
}

static void token_dropout(void **state)
{
  (void)state;
  struct plm_model_config config = case_config(PLM_PATCH_UNET, 4, 32);
  config.token_dropout = true;
  check(&config);
  config = case_config(PLM_TRANSFORMER, 1, 32);
  config.token_dropout = true;
  config.tie_embeddings = true;
  check(&config);
}

static void no_soft_cap_and_a_tight_one(void **state)
{
  (void)state;
  struct plm_model_config config = case_config(PLM_UNET, 2, 32);
  config.soft_logit_cap = 0.0;
  check(&config);
  config.soft_logit_cap = 1.5;
  check(&config);
}

static void label_smoothing_and_z_loss(void **state)
{
  (void)state;
  const struct plm_model_config config = case_config(PLM_UNET, 2, 32);
  struct subject s;
  subject_open(&s, &config, 1);
  s.model.loss.label_smoothing = 0.1f;
  s.model.loss.z_loss = 0.01f;
  compare(&s);
  subject_close(&s);
}

/* Windows, causal, fixed blocks and conjunctions, cycling over the blocks. */
static void masks_of_every_kind(void **state)
{
  (void)state;
  for (int architecture = 0; architecture < PLM_ARCHITECTURES; architecture++) {
    if (plm_architecture_rules((enum plm_architecture)architecture)->published) continue;
    struct plm_model_config config = case_config((enum plm_architecture)architecture, 4, 32);
    const uint8_t pattern[] = {PLM_ATTENTION_LOCAL, PLM_ATTENTION_CAUSAL,
                               PLM_ATTENTION_CAUSAL | PLM_ATTENTION_LOCAL, PLM_ATTENTION_BLOCK,
                               PLM_ATTENTION_BLOCK | PLM_ATTENTION_CAUSAL};
    config.pattern_count = sizeof pattern;
    for (size_t i = 0; i < sizeof pattern; i++)
      config.pattern[i] = (uint8_t)(pattern[i] | PLM_ATTENTION_DOCUMENT);
    config.window_end = 3;
    config.block = 4;
    check(&config);
  }
}

static void odd_head_widths(void **state)
{
  (void)state;
  struct plm_model_config config = case_config(PLM_UNET, 2, 32);
  config.hidden_size = 120; /* K = 40 */
  config.num_attention_heads = 3;
  config.expansion_ratio = 8.0 / 3.0;
  check(&config);
}

/* Every fault must be detected in an architecture that has the path. */
static void a_fault_in_any_backward_path_is_seen(void **state)
{
  (void)state;
  struct subject s;
  const struct plm_model_config config = case_config(PLM_PATCH_UNET, 4, 32);
  subject_open(&s, &config, 2);
  double loss, expected_loss;
  float *gradients = model_case_gradients_of(&s.model, &s.placed, &loss);
  for (int fault = REFERENCE_NO_FAULT; fault < REFERENCE_FAULT_COUNT; fault++) {
    const char *name = "";
    double *expected = model_case_reference(&s.model, &s.placed, 1.0, (enum reference_fault)fault,
                                            &expected_loss, NULL, NULL);
    const double largest = worst(&s, gradients, expected, &name);
    if (fault == REFERENCE_NO_FAULT && largest > tolerance)
      fail_msg("%s differs by %.3g without a fault", name, largest);
    if (fault != REFERENCE_NO_FAULT && largest < 100.0 * tolerance)
      fail_msg("fault %d does not show: %.3g", fault, largest);
    free(expected);
  }
  free(gradients);
  subject_close(&s);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(transformer),
      cmocka_unit_test(unet),
      cmocka_unit_test(patch_unet),
      cmocka_unit_test(patch_unet_of_one_level),
      cmocka_unit_test(patch_unet_of_one_width),
      cmocka_unit_test(patch_unet_with_bottlenecks),
      cmocka_unit_test(esm2),
      cmocka_unit_test(esmc),
      cmocka_unit_test(esmc_with_small_queries),
      cmocka_unit_test(tied_embeddings),
      cmocka_unit_test(token_dropout),
      cmocka_unit_test(no_soft_cap_and_a_tight_one),
      cmocka_unit_test(label_smoothing_and_z_loss),
      cmocka_unit_test(masks_of_every_kind),
      cmocka_unit_test(odd_head_widths),
      cmocka_unit_test(a_fault_in_any_backward_path_is_seen),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
