/* The gradients of the reference model against finite differences of its own loss, for every
 * parameter of every architecture: a few elements, and one direction. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cases/case_batch.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/reference/reference_model.h"

struct oracle {
  struct plm_model_config config;
  struct plm_loss_options loss;
  struct plm_parameter *table;
  size_t count, elements;
  double *values, *gradients;
  struct reference_parameter *parameters;
  struct case_batch placed;
};

static void oracle_open(struct oracle *o, const struct plm_model_config *config)
{
  static struct case_documents documents;
  *o = (struct oracle){.config = *config,
                       .loss = {.soft_cap = (float)config->soft_logit_cap,
                                .label_smoothing = 0.1f,
                                .z_loss = 0.01f}};
  case_documents_draw(&documents, (const uint32_t[]){7, 5, 3, 0}, config->vocab_size, 3);
  case_batch_place(&o->placed, &documents, config->max_length, 1, false);
  assert_int_equal(plm_model_parameters(config, &o->table, &o->count, &o->elements, NULL), PLM_OK);
  float *weights = malloc(o->elements * sizeof *weights);
  o->values = malloc(o->elements * sizeof(double));
  o->gradients = calloc(o->elements, sizeof(double));
  o->parameters = calloc(o->count, sizeof *o->parameters);
  assert_true(weights != NULL && o->values != NULL && o->gradients != NULL);
  assert_non_null(o->parameters);
  case_weights(o->table, o->count, 5, weights);
  for (size_t e = 0; e < o->elements; e++) o->values[e] = weights[e];
  free(weights);
  for (size_t i = 0; i < o->count; i++)
    o->parameters[i] = (struct reference_parameter){.name = o->table[i].name,
                                                    .rows = o->table[i].rows,
                                                    .cols = o->table[i].cols,
                                                    .value = o->values + o->table[i].offset,
                                                    .gradient = o->gradients + o->table[i].offset};
}

static void oracle_close(struct oracle *o)
{
  case_batch_free(&o->placed);
  free(o->table);
  free(o->values);
  free(o->gradients);
  free(o->parameters);
}

static double loss_of(const struct oracle *o, double scale)
{
  return reference_model_loss(&(struct reference_request){.config = &o->config,
                                                          .parameters = o->parameters,
                                                          .parameter_count = o->count,
                                                          .batch = &o->placed.batch,
                                                          .window = 5,
                                                          .targets = &o->placed.targets,
                                                          .loss = &o->loss,
                                                          .loss_scale = scale});
}

/* The derivative along one direction of one parameter: sign(gradient) of every third element, so
 * that contributions do not cancel. */
static void check_parameter(struct oracle *o, const struct plm_parameter *p, size_t shift)
{
  const double step = 1e-5;
  double expected = 0.0, loss[2];
  for (size_t e = shift % p->count; e < p->count; e += 3)
    expected += fabs(o->gradients[p->offset + e]);
  double *saved = malloc(p->count * sizeof *saved);
  assert_non_null(saved);
  memcpy(saved, o->values + p->offset, p->count * sizeof *saved);
  const double length = sqrt((double)p->count);
  for (int side = 0; side < 2; side++) {
    for (size_t e = shift % p->count; e < p->count; e += 3)
      o->values[p->offset + e] =
          saved[e] + copysign(step / length, o->gradients[p->offset + e]) * (side == 0 ? 1 : -1);
    loss[side] = loss_of(o, 0.0);
  }
  memcpy(o->values + p->offset, saved, p->count * sizeof *saved);
  free(saved);
  const double measured = (loss[0] - loss[1]) / (2.0 * step / length);
  if (fabs(measured - expected) > 1e-5 * fabs(expected) + 1e-6)
    fail_msg("%s: measured %.10g, gradient %.10g", p->name, measured, expected);
}

static void check(const struct plm_model_config *config)
{
  struct oracle o;
  oracle_open(&o, config);
  (void)loss_of(&o, 1.0);
  for (size_t i = 0; i < o.count; i++) check_parameter(&o, &o.table[i], i);
  oracle_close(&o);
}

static void transformer_agrees_with_finite_differences(void **state)
{
  (void)state;
  struct plm_model_config config = case_config(PLM_TRANSFORMER, 1, 8);
  config.tie_embeddings = true;
  check(&config);
}

static void unet_agrees_with_finite_differences(void **state)
{
  (void)state;
  struct plm_model_config config = case_config(PLM_UNET, 2, 8);
  config.pattern[0] = PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_CAUSAL;
  config.token_dropout = true;
  check(&config);
}

static void patch_unet_agrees_with_finite_differences(void **state)
{
  (void)state;
  struct plm_model_config config = case_config(PLM_PATCH_UNET, 4, 8);
  config.soft_logit_cap = 0.0;
  check(&config);
}

static void esm2_agrees_with_finite_differences(void **state)
{
  (void)state;
  struct plm_model_config config = case_config(PLM_ESM2, 2, 8);
  config.emb_layer_norm_before = true;
  check(&config);
}

static void esmc_agrees_with_finite_differences(void **state)
{
  (void)state;
  const struct plm_model_config config = case_config(PLM_ESMC, 2, 8);
  check(&config);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(transformer_agrees_with_finite_differences),
      cmocka_unit_test(unet_agrees_with_finite_differences),
      cmocka_unit_test(patch_unet_agrees_with_finite_differences),
      cmocka_unit_test(esm2_agrees_with_finite_differences),
      cmocka_unit_test(esmc_agrees_with_finite_differences),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
