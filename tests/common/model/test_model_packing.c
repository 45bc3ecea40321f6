/* Documents never mix: the summed loss and the gradients of documents packed into chunks equal
 * those of the same documents in separate chunks, for all three architectures, for document,
 * causal and local masks, and for their conjunctions. With alignment 1 a patch_unet mixes
 * documents, which the test detects. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/config/config.h"
#include "common/model/architecture.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"

static const uint32_t lengths[] = {13, 7, 20, 5, 3, 31, 9, 2, 11, 6, 17, 4, 0};

struct outcome {
  double loss;
  float *gradients;
  uint32_t chunks;
};

static struct outcome run(const struct plm_model_config *config,
                          const struct case_documents *documents, uint32_t alignment, bool separate)
{
  struct case_batch placed;
  struct model_case c;
  struct outcome outcome;
  case_batch_place(&placed, documents, config->max_length, alignment, separate);
  const struct plm_model_options options = {.max_chunks = placed.batch.chunks, .training = true};
  model_case_open(&c, config, &options, PLM_PRECISION_FP32, 27);
  outcome.gradients = model_case_gradients_of(&c, &placed, &outcome.loss);
  outcome.chunks = placed.batch.chunks;
  model_case_close(&c);
  case_batch_free(&placed);
  return outcome;
}

/* The largest relative difference of the loss or a gradient between packed and separate documents.
 */
static double difference(const struct plm_model_config *config, uint32_t alignment, char worst[96])
{
  static struct case_documents documents;
  case_documents_draw(&documents, lengths, config->vocab_size, 29);
  struct outcome packed = run(config, &documents, alignment, false);
  struct outcome separate = run(config, &documents, alignment, true);
  assert_true(2 * packed.chunks <= separate.chunks);
  struct plm_parameter *table;
  size_t count, elements;
  assert_int_equal(plm_model_parameters(config, &table, &count, &elements, NULL), PLM_OK);
  double largest = fabs(packed.loss - separate.loss) / fabs(separate.loss);
  strcpy(worst, "the loss");
  for (size_t i = 0; i < count; i++) {
    const double relative = case_relative_float(&table[i], packed.gradients, separate.gradients);
    if (relative > largest || isnan(relative)) {
      largest = isnan(relative) ? INFINITY : relative;
      strcpy(worst, table[i].name);
    }
  }
  free(table);
  free(packed.gradients);
  free(separate.gradients);
  return largest;
}

static struct plm_model_config with_pattern(enum plm_architecture architecture, unsigned kinds)
{
  struct plm_model_config config = case_config(architecture, 6, 32);
  config.pattern[0] = (uint8_t)(PLM_ATTENTION_DOCUMENT | kinds);
  if (kinds != 0) { /* and a second entry, so that layers differ */
    config.pattern[1] = PLM_ATTENTION_DOCUMENT;
    config.pattern_count = 2;
  }
  config.window_end = 4;
  return config;
}

static uint32_t automatic_alignment(const struct plm_model_config *config)
{
  const struct plm_config whole = {.model = *config, .data = {.max_length = config->max_length}};
  return plm_config_alignment(&whole);
}

static void packed_equals_separate(void **state)
{
  (void)state;
  const unsigned kinds[] = {0, PLM_ATTENTION_CAUSAL, PLM_ATTENTION_LOCAL,
                            PLM_ATTENTION_CAUSAL | PLM_ATTENTION_LOCAL};
  for (int a = 0; a < PLM_ARCHITECTURES; a++) {
    const enum plm_architecture architecture = (enum plm_architecture)a;
    const bool published = plm_architecture_rules(architecture)->published;
    for (size_t i = 0; i < (published ? 1 : sizeof kinds / sizeof *kinds); i++) {
      const struct plm_model_config config = with_pattern(architecture, kinds[i]);
      char worst[96];
      const double largest = difference(&config, automatic_alignment(&config), worst);
      if (largest > 3e-5)
        fail_msg("architecture %d, mask %u: %s differs by %.3g", architecture, kinds[i], worst,
                 largest);
    }
  }
}

static void alignment_one_leaks_in_patch_unet(void **state)
{
  (void)state;
  char worst[96];
  const struct plm_model_config config = with_pattern(PLM_PATCH_UNET, 0);
  const double leak = difference(&config, 1, worst);
  if (leak < 1e-2) fail_msg("alignment 1 shows no leak: %s differs by %.3g", worst, leak);
  const struct plm_model_config unet = with_pattern(PLM_UNET, 0);
  assert_true(difference(&unet, 1, worst) <= 3e-5);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(packed_equals_separate),
      cmocka_unit_test(alignment_one_leaks_in_patch_unet),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
