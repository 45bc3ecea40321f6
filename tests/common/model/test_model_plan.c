/* The memory and the FLOPs that are planned for a model, counted from its matrices. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"

static void memory_and_flops_are_those_of_the_estimate(void **state)
{
  (void)state;
  static const uint32_t lengths[] = {13, 7, 20, 5, 3, 31, 9, 2, 30, 0};
  struct plm_model_config config = case_config(PLM_UNET, 24, 1024);
  config.hidden_size = 768;
  config.num_attention_heads = 6;
  config.expansion_ratio = 8.0 / 3.0;
  struct plm_model_memory memory[3];
  for (int recompute = 0; recompute < 3; recompute++) {
    const struct plm_model_options options = {
        .max_chunks = 4, .training = true, .recompute = (enum plm_recompute)recompute};
    assert_int_equal(plm_model_memory(&config, 2, &options, &memory[recompute], NULL), PLM_OK);
  }
  assert_true(memory[0].parameters >= 4 * UINT64_C(133065357));
  assert_true(memory[0].weights == memory[0].parameters / 2);
  assert_true(memory[0].gradients == memory[0].parameters);
  assert_true(memory[0].activations > memory[1].activations);
  assert_true(memory[1].activations > 2 * memory[2].activations);

  config = case_config(PLM_UNET, 6, 32);
  config.pattern[1] = PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_CAUSAL;
  config.pattern_count = 2;
  struct case_documents documents;
  struct case_batch placed;
  struct model_case c;
  case_documents_draw(&documents, lengths, config.vocab_size, 31);
  case_batch_place(&placed, &documents, config.max_length, 4, false);
  const struct plm_model_options options = {.max_chunks = placed.batch.chunks};
  double pairs = 0.0,
         tokens = 0.0; /* of six blocks, three see documents, and three are causal as well */
  for (size_t i = 0; lengths[i] != 0; i++) {
    pairs += 3.0 * lengths[i] * lengths[i] + 3.0 * lengths[i] * (lengths[i] + 1) / 2;
    tokens += lengths[i];
  }
  for (int kind = PLM_PREDICTS_TOKENS; kind <= PLM_PREDICTS_RESIDUES; kind++) {
    static const double heads[] = {
        [PLM_PREDICTS_TOKENS] = 32 * 32 + 33 * 32, [PLM_PREDICTS_RESIDUES] = 3 * 32};
    const double matrices = 6.0 * (4 * 32 * 32 + 2 * 32 * 256) + heads[kind];
    const double expected = 6.0 * matrices * tokens + 12.0 * 32 * pairs;
    if (kind != PLM_PREDICTS_TOKENS)
      config.head = (struct plm_head_config){
          .kind = (enum plm_head_kind)kind, .loss = PLM_LOSS_CLASS, .outputs = 3};
    model_case_open(&c, &config, &options, PLM_PRECISION_FP32, 79);
    plm_model_attention_masks(c.model, &placed.batch, c.window, c.masks);
    assert_true(fabs(plm_model_flops(c.model, c.masks, (uint64_t)tokens) - expected) < 1.0);
    model_case_close(&c);
  }
  case_batch_free(&placed);
}

/* The level whose rows a matrix of a patch_unet with 2 n blocks multiplies. The last level is
 * `most`. */
static int level_of(const char *name, int n, int most)
{
  int i, level = 0;
  if (sscanf(name, "plm.encoder.%d.", &i) == 1) level = i;
  if (sscanf(name, "plm.decoder.%d.", &i) == 1) level = n - 1 - i;
  if (sscanf(name, "plm.merge.%d.", &i) == 1 || sscanf(name, "plm.expand.%d.", &i) == 1)
    level = i + 1;
  return level < most ? level : most;
}

/* Counted over the shapes of all matrices but the embeddings. A chunk of 16 tokens has five levels,
 * so that the last two blocks of the encoder are bottlenecks. */
static void flops_of_patch_unet_are_those_of_its_matrices(void **state)
{
  (void)state;
  enum { N = 6, LEVELS = 5, TOKENS = 32 };
  static const uint32_t whole_rows[] = {16, 8, 8, 0}; /* rows of all levels but the last */
  for (int tied = 0; tied < 2; tied++) {
    struct plm_model_config config = case_config(PLM_PATCH_UNET, 2 * N, 16);
    config.num_extra_layers = 2;
    config.tie_embeddings = tied;
    struct case_documents documents;
    struct case_batch placed;
    struct model_case c;
    case_documents_draw(&documents, whole_rows, config.vocab_size, 31);
    case_batch_place(&placed, &documents, config.max_length, 8, false);
    const struct plm_model_options options = {.max_chunks = placed.batch.chunks};
    model_case_open(&c, &config, &options, PLM_PRECISION_FP32, 79);
    plm_model_attention_masks(c.model, &placed.batch, c.window, c.masks);
    struct plm_parameter *table;
    size_t count, elements;
    double expected = 0.0;
    assert_int_equal(plm_model_parameters(&config, &table, &count, &elements, NULL), PLM_OK);
    for (size_t i = 0; i < count; i++) {
      if (table[i].ndim != 2 || strstr(table[i].name, "embeddings") != NULL) continue;
      const int level = level_of(table[i].name, N, LEVELS - 1), rows = 1 << level;
      expected += 6.0 * (double)(table[i].rows * table[i].cols) * TOKENS / rows;
      if (strstr(table[i].name, "attention.query") != NULL)
        expected += 12.0 * (double)table[i].cols * (256.0 + 64.0 + 64.0) / (rows * rows);
    }
    assert_true(fabs(plm_model_flops(c.model, c.masks, TOKENS) - expected) < 1.0);
    free(table);
    model_case_close(&c);
    case_batch_free(&placed);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_and_flops_are_those_of_the_estimate),
      cmocka_unit_test(flops_of_patch_unet_are_those_of_its_matrices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
