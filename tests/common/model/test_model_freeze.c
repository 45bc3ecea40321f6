/* A pass with frozen parameters gives the others the gradients that they would have without, bit
 * for bit; it computes no more of the backward pass, and keeps no more activations, than those
 * need. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/architecture.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"

enum { CHUNKS = 2 };

static const struct plm_freeze kinds[] = {
    {.embeddings = true}, {.blocks = 1},   {.embeddings = true, .blocks = 1},
    {.blocks = 100},      {.trunk = true}, {.embeddings = true, .blocks = 3},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const enum plm_architecture architectures[] = {PLM_TRANSFORMER, PLM_UNET, PLM_PATCH_UNET,
                                                      PLM_ESM2, PLM_ESMC};

static struct plm_model_config config_of(enum plm_architecture architecture)
{
  struct plm_model_config config = model_case_small(architecture);
  const struct plm_architecture_rules *rules = plm_architecture_rules(architecture);
  if (!rules->published) return config;
  config.soft_logit_cap = 0;
  config.expansion_ratio = 0;
  config.intermediate_size = 160;
  config.layer_norm_eps = rules->layer_norm_eps;
  config.tie_embeddings = rules->ties_embeddings;
  config.token_dropout = rules->token_dropout;
  config.vocab_size = rules->vocab_size != 0 ? rules->vocab_size : 33;
  config.max_positions = rules->max_positions;
  return config;
}

/* Places a batch of a few documents. */
static void place_batch(struct case_batch *placed, const struct plm_model_config *config)
{
  static const uint32_t lengths[] = {60, 30, 90, 20, 0};
  struct case_documents documents;
  case_documents_draw(&documents, lengths, config->vocab_size, 3);
  case_batch_place(placed, &documents, config->max_length, 1, false);
}

/* Opens a model, runs it forward and backward, and returns its gradients. */
static float *gradients_of(struct model_case *c, const struct plm_model_config *config,
                           const struct plm_freeze *freeze, enum plm_recompute recompute,
                           double *loss)
{
  const struct plm_model_options options = {
      .max_chunks = CHUNKS, .training = true, .recompute = recompute, .freeze = *freeze};
  struct case_batch placed;
  model_case_open(c, config, &options, PLM_PRECISION_FP32, 5);
  place_batch(&placed, config);
  float *gradients = model_case_gradients_of(c, &placed, loss);
  case_batch_free(&placed);
  return gradients;
}

static size_t compare(const struct model_case *all, const float *expected,
                      const struct model_case *some, const float *found)
{
  size_t count, frozen = 0, end = 0;
  const struct plm_parameter *a = plm_model_table(all->model, &count);
  const struct plm_parameter *b = plm_model_table(some->model, &count);
  for (size_t i = 0; i < count; i++) {
    assert_string_equal(a[i].name, b[i].name);
    frozen += b[i].frozen;
    if (b[i].frozen) {
      assert_true(b[i].offset >= plm_model_trained_elements(some->model));
      continue;
    }
    assert_int_equal(b[i].offset, end); /* in the table's order, from the beginning */
    end = (b[i].offset + b[i].count + 15) / 16 * 16;
    if (memcmp(expected + a[i].offset, found + b[i].offset, a[i].count * sizeof(float)) != 0)
      fail_msg("the gradient of %s differs", a[i].name);
  }
  assert_int_equal(end, plm_model_trained_elements(some->model));
  return frozen;
}

static void trained_gradients_are_the_same(void **state)
{
  (void)state;
  for (size_t a = 0; a < sizeof architectures / sizeof *architectures; a++) {
    const struct plm_model_config config = config_of(architectures[a]);
    for (int recompute = PLM_RECOMPUTE_NONE; recompute <= PLM_RECOMPUTE_BLOCK; recompute++) {
      struct model_case all;
      double loss, again;
      float *expected = gradients_of(&all, &config, &(struct plm_freeze){0},
                                     (enum plm_recompute)recompute, &loss);
      for (size_t kind = 0; kind < KINDS; kind++) {
        struct model_case some;
        float *found =
            gradients_of(&some, &config, &kinds[kind], (enum plm_recompute)recompute, &again);
        assert_true(again == loss);
        assert_true(compare(&all, expected, &some, found) > 0);
        free(found);
        model_case_close(&some);
      }
      free(expected);
      model_case_close(&all);
    }
  }
}

/* With adapters, the rest is frozen, and theirs are the gradients that they would have if it were
 * not, whatever is computed again. */
static void adapters_have_the_same_gradients(void **state)
{
  (void)state;
  const struct plm_freeze base = {.base = true};
  for (size_t a = 0; a < sizeof architectures / sizeof *architectures; a++) {
    struct plm_model_config config = config_of(architectures[a]);
    const bool gated = architectures[a] == PLM_ESMC;
    config.lora = (struct plm_lora_config){
        .rank = 3, .alpha = 4, .targets = gated ? 0x7f : 0x7f ^ 1U << PLM_LORA_GATE};
    struct model_case all;
    double loss, again;
    float *expected =
        gradients_of(&all, &config, &(struct plm_freeze){0}, PLM_RECOMPUTE_NONE, &loss);
    for (int recompute = PLM_RECOMPUTE_NONE; recompute <= PLM_RECOMPUTE_BLOCK; recompute++) {
      struct model_case some;
      float *found = gradients_of(&some, &config, &base, (enum plm_recompute)recompute, &again);
      size_t count, trained = 0;
      const struct plm_parameter *table = plm_model_table(some.model, &count);
      for (size_t i = 0; i < count; i++) {
        const bool adapter = strstr(table[i].name, ".lora_") != NULL;
        assert_int_equal(table[i].frozen, !adapter);
        trained += adapter;
      }
      assert_true(again == loss);
      assert_int_equal(compare(&all, expected, &some, found), count - trained);
      free(found);
      model_case_close(&some);
    }
    free(expected);
    model_case_close(&all);
  }
}

/* Which parameters are frozen. */
static void names_of_frozen_parameters(void **state)
{
  (void)state;
  struct plm_model_config config = model_case_small(PLM_UNET);
  config.num_hidden_layers = 4;
  struct plm_parameter *table;
  size_t count, elements;
  assert_int_equal(plm_model_parameters(&config, &table, &count, &elements, NULL), PLM_OK);
  for (size_t kind = 0; kind < KINDS; kind++) {
    const struct plm_freeze *freeze = &kinds[kind];
    const size_t trained = plm_parameters_freeze(table, count, freeze);
    assert_true(trained > 0 && trained < elements);
    for (size_t i = 0; i < count; i++) {
      const char *name = table[i].name;
      bool expected = freeze->trunk;
      if (strncmp(name, "lm_head.", 8) == 0) expected = false;
      if (strstr(name, "embeddings") != NULL) expected = expected || freeze->embeddings;
      for (uint32_t block = 0; block < 4 && block < freeze->blocks; block++) {
        char prefix[32];
        (void)snprintf(prefix, sizeof prefix, "plm.%s.%u.", block < 2 ? "encoder" : "decoder",
                       block % 2);
        expected = expected || strncmp(name, prefix, strlen(prefix)) == 0;
      }
      if (table[i].frozen != expected) fail_msg("kind %zu: %s", kind, name);
    }
  }
  free(table);
}

static struct plm_model_memory memory_of(const struct plm_model_config *config, size_t act_bytes,
                                         struct plm_freeze freeze)
{
  struct plm_model_memory memory;
  const struct plm_model_options options = {
      .max_chunks = CHUNKS, .training = true, .freeze = freeze};
  assert_int_equal(plm_model_memory(config, act_bytes, &options, &memory, NULL), PLM_OK);
  return memory;
}

/* Blocks that no backward pass reaches keep no activations; frozen matrices have no gradient and,
 * in bf16, no fp32 values. */
static void memory_is_that_of_what_is_trained(void **state)
{
  (void)state;
  struct plm_model_config config = config_of(PLM_ESM2);
  config.num_hidden_layers = 16;
  const struct plm_model_memory all = memory_of(&config, 2, (struct plm_freeze){0});
  const struct plm_model_memory half =
      memory_of(&config, 2, (struct plm_freeze){.embeddings = true, .blocks = 8});
  const struct plm_model_memory none = memory_of(&config, 2, (struct plm_freeze){.trunk = true});
  const struct plm_model_memory through = memory_of(&config, 2, (struct plm_freeze){.blocks = 16});
  assert_true(half.activations < 7 * all.activations / 10);
  assert_true(none.activations < 3 * all.activations / 10);
  assert_int_equal(through.activations, all.activations); /* the embeddings are trained */
  assert_true(half.gradients < 6 * all.gradients / 10);
  assert_true(none.gradients < all.gradients / 10);
  assert_int_equal(half.weights, all.weights);
  assert_true(half.parameters < 6 * all.parameters / 10);
  const struct plm_model_memory fp32 = memory_of(&config, 4, (struct plm_freeze){.trunk = true});
  assert_int_equal(fp32.parameters, all.parameters);
}

/* In bf16, frozen matrices are read as rounded from what was loaded, and nothing else of them is
 * there. */
static void frozen_matrices_are_only_rounded(void **state)
{
  (void)state;
  if (!model_case_has_bf16()) skip("this processor has no bf16 products");
  const struct plm_model_config config = config_of(PLM_ESM2);
  const struct plm_model_options options = {
      .max_chunks = CHUNKS, .training = true, .freeze = {.trunk = true}};
  const struct plm_model_options every = {.max_chunks = CHUNKS, .training = true};
  struct model_case some, all;
  struct case_batch placed;
  double losses[2];
  model_case_open(&some, &config, &options, PLM_PRECISION_BF16, 5);
  model_case_open(&all, &config, &every, PLM_PRECISION_BF16, 5);
  place_batch(&placed, &config);
  float *found = model_case_gradients_of(&some, &placed, &losses[0]);
  float *expected = model_case_gradients_of(&all, &placed, &losses[1]);
  assert_true(losses[0] == losses[1]);
  assert_true(compare(&all, expected, &some, found) > 10);
  assert_false(plm_model_keeps_all(some.model));
  size_t count, dropped = 0;
  const struct plm_parameter *table = plm_model_table(some.model, &count);
  for (size_t i = 0; i < count; i++) dropped += plm_model_parameter(some.model, i) == NULL;
  assert_int_equal(dropped, 6 * config.num_hidden_layers);
  for (size_t i = 0; i < count; i++)
    if (!table[i].frozen)
      assert_ptr_equal(plm_model_parameter(some.model, i),
                       plm_model_trained_arena(some.model) + table[i].offset);
  free(found);
  free(expected);
  case_batch_free(&placed);
  model_case_close(&some);
  model_case_close(&all);
}

/* FLOPs: of a frozen block with a backward pass, a third is not computed; without one, two thirds.
 */
static void flops_count_what_is_computed(void **state)
{
  (void)state;
  const struct plm_model_config config = config_of(PLM_ESM2);
  const double D = config.hidden_size, F = config.intermediate_size;
  const double layers = config.num_hidden_layers, tokens = 10;
  const double block = 4 * D * D + 2 * D * F, head = D * D;
  const struct {
    struct plm_freeze freeze;
    double per_token;
    double pairs; /* multiples of D for each pair and layer */
  } rows[] = {
      {{0}, 6 * (layers * block + head), 12},
      {{.blocks = 100}, 4 * layers * block + 6 * head, 12},
      {{.trunk = true}, 2 * layers * block + 4 * head, 4},
      {{.embeddings = true, .blocks = 1},
       2 * block + 6 * (layers - 1) * block + 6 * head,
       (4 + 12 * (layers - 1)) / layers},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const struct plm_model_options options = {
        .max_chunks = CHUNKS, .training = true, .freeze = rows[i].freeze};
    struct model_case c;
    struct case_batch placed;
    model_case_open(&c, &config, &options, PLM_PRECISION_FP32, 5);
    place_batch(&placed, &config);
    plm_model_attention_masks(c.model, &placed.batch, c.window, c.masks);
    const double pairs = layers * D * (double)plm_masks_pairs(c.masks, 0, 0);
    const double expected = rows[i].per_token * tokens + rows[i].pairs * pairs;
    const double found = plm_model_flops(c.model, c.masks, (uint64_t)tokens);
    if (!(found > expected * 0.999999 && found < expected * 1.000001))
      fail_msg("row %zu: %g FLOPs, not %g", i, found, expected);
    case_batch_free(&placed);
    model_case_close(&c);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(trained_gradients_are_the_same),
      cmocka_unit_test(adapters_have_the_same_gradients),
      cmocka_unit_test(names_of_frozen_parameters),
      cmocka_unit_test(memory_is_that_of_what_is_trained),
      cmocka_unit_test(frozen_matrices_are_only_rounded),
      cmocka_unit_test(flops_count_what_is_computed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
