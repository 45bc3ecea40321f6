/* trainer/step/layer_norms: the names of layers, and norms of gradients, weights and updates
 * against sums in long double. */
#include "trainer/step/layer_norms.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"

enum { COUNT = 7 /* the divisor of the gradients */ };

static const char *const patch_unet[] = {"embeddings",
                                         "encoder_value_embeddings.0",
                                         "encoder_value_embeddings.1",
                                         "decoder_value_embeddings.0",
                                         "decoder_value_embeddings.1",
                                         "skip_weights",
                                         "merge.0",
                                         "expand.0",
                                         "encoder.0",
                                         "encoder.1",
                                         "decoder.0",
                                         "decoder.1",
                                         "layers.0",
                                         "lm_head",
                                         NULL};

/* Whether a parameter belongs to a layer. */
static bool is_of(const struct plm_parameter *parameter, const char *layer)
{
  const char *name =
      strncmp(parameter->name, "plm.", 4) == 0 ? parameter->name + 4 : parameter->name;
  const size_t length = strlen(layer);
  return strncmp(name, layer, length) == 0 && (name[length] == '.' || name[length] == '\0');
}

static void close_to(double got, long double wanted)
{
  if (fabs(got - (double)wanted) > 1e-12 * (double)wanted)
    fail_msg("%.17g instead of %.17Lg", got, wanted);
}

static void norms_are_those_of_each_layer(void **state)
{
  const struct plm_model_config config = model_case_small(PLM_PATCH_UNET);
  const struct plm_model_options options = {.max_chunks = 1, .training = true};
  struct model_case c;
  static const uint32_t owners[256]; /* rank 0 */
  struct plm_ranks alone = plm_ranks_single();
  struct plm_layer_norms *norms;
  size_t count, named = 0;
  (void)state;
  model_case_open(&c, &config, &options, PLM_PRECISION_FP32, 3);
  const struct plm_parameter *table = plm_model_table(c.model, &count);
  float *weights = plm_model_parameter_arena(c.model);
  float *gradients = plm_model_gradient_arena(c.model);
  for (size_t i = 0; i < plm_model_arena_elements(c.model); i++)
    gradients[i] = (float)(i % 17) - 3.5f;
  assert_int_equal(plm_layer_norms_open(c.model, &alone, owners, &norms, NULL), PLM_OK);
  const size_t layers = plm_layer_norms_count(norms);
  for (int round = 1; round <= 2; round++) { /* nothing of the first one is left in the second */
    plm_layer_norms_before(norms);
    for (size_t i = 0; i < count; i++)
      for (size_t j = 0; j < table[i].count; j++)
        weights[table[i].offset + j] += 0.25f * (float)round * (float)(i + 1);
    plm_layer_norms_after(norms);
    assert_int_equal(plm_layer_norms_finish(norms, COUNT, NULL), PLM_OK);
    for (size_t l = 0; l < layers; l++) {
      long double squares[PLM_MEASURED_NORMS] = {0};
      for (size_t i = 0; i < count; i++) {
        if (!is_of(&table[i], plm_layer_norms_name(norms, l))) continue;
        named += round == 1;
        for (size_t j = table[i].offset; j < table[i].offset + table[i].count; j++) {
          const float step = 0.25f * (float)round * (float)(i + 1);
          const float update = weights[j] - (weights[j] - step);
          squares[PLM_MEASURED_GRADIENT] += (long double)gradients[j] * gradients[j];
          squares[PLM_MEASURED_WEIGHT] += (long double)weights[j] * weights[j];
          squares[PLM_MEASURED_UPDATE] += (long double)update * update;
        }
      }
      close_to(plm_layer_norms_value(norms, PLM_MEASURED_GRADIENT, l),
               sqrtl(squares[PLM_MEASURED_GRADIENT]) / COUNT);
      close_to(plm_layer_norms_value(norms, PLM_MEASURED_WEIGHT, l),
               sqrtl(squares[PLM_MEASURED_WEIGHT]));
      /* the weights are rounded when the update is added */
      const double wanted = (double)sqrtl(squares[PLM_MEASURED_UPDATE]);
      assert_true(fabs(plm_layer_norms_value(norms, PLM_MEASURED_UPDATE, l) - wanted) <
                  1e-5 * wanted);
    }
  }
  assert_int_equal(named, count);
  plm_layer_norms_close(norms);
  plm_layer_norms_close(NULL);
  model_case_close(&c);
}

/* Each layer once, in the order in which the first of its parameters comes. */
static void layers_are_named_by_their_parameters(void **state)
{
  const struct plm_model_config config = model_case_small(PLM_PATCH_UNET);
  const struct plm_model_options options = {.max_chunks = 1, .training = true};
  struct model_case c;
  static const uint32_t owners[256]; /* rank 0 */
  struct plm_ranks alone = plm_ranks_single();
  struct plm_layer_norms *norms;
  size_t count, place = 0;
  (void)state;
  model_case_open(&c, &config, &options, PLM_PRECISION_FP32, 3);
  const struct plm_parameter *table = plm_model_table(c.model, &count);
  assert_int_equal(plm_layer_norms_open(c.model, &alone, owners, &norms, NULL), PLM_OK);
  size_t wanted = 0;
  while (patch_unet[wanted] != NULL) wanted++;
  assert_int_equal(plm_layer_norms_count(norms), wanted);
  for (size_t l = 0; l < wanted; l++) {
    const char *name = plm_layer_norms_name(norms, l);
    size_t known = 0, first = 0;
    while (patch_unet[known] != NULL && strcmp(patch_unet[known], name) != 0) known++;
    if (patch_unet[known] == NULL) fail_msg("there is no layer %s", name);
    while (!is_of(&table[first], name)) first++;
    assert_true(l == 0 || first > place);
    place = first;
  }
  plm_layer_norms_close(norms);
  model_case_close(&c);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layers_are_named_by_their_parameters),
      cmocka_unit_test(norms_are_those_of_each_layer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
