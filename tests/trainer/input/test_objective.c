/* trainer/input/objective against the reference's rules
 * (tests/support/reference/reference_training.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/harness/aborted.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/reference/reference_training.h"
#include "trainer/input/objective.h"
#include "trainer/trainer_options.h"

enum { LENGTH = 64, CHUNKS = 6, CLS = 0, PAD = 1, EOS = 2 };

/* A batch with documents of several lengths and padding between and after them. */
struct sample {
  uint8_t tokens[CHUNKS * LENGTH];
  uint32_t begin[CHUNKS + 1];
  struct plm_chunk_document documents[CHUNKS * 4];
  struct plm_batch batch;
};

static void make_sample(struct sample *sample, uint64_t first_chunk)
{
  static const uint32_t starts[] = {0, 12, 40, 56}, sizes[] = {12, 25, 9, 8};
  memset(sample, 0, sizeof *sample);
  memset(sample->tokens, PAD, sizeof sample->tokens);
  uint32_t count = 0;
  for (uint32_t c = 0; c < CHUNKS; c++) {
    for (uint32_t d = 0; d < 4; d++) {
      if ((c + d) % 5 == 4) continue; /* some chunks have fewer documents */
      uint8_t *at = sample->tokens + c * LENGTH + starts[d];
      for (uint32_t i = 0; i < sizes[d]; i++) at[i] = (uint8_t)(3 + (7 * c + 3 * d + 5 * i) % 26);
      at[0] = CLS;
      if (d != 2) at[sizes[d] - 1] = EOS; /* one document is cut */
      sample->documents[count++] = (struct plm_chunk_document){
          .number = count, .start = starts[d], .tokens = sizes[d], .residues = sizes[d] - 2};
    }
    sample->begin[c + 1] = count;
  }
  sample->batch = (struct plm_batch){.chunks = CHUNKS,
                                     .max_length = LENGTH,
                                     .token_bytes = 1,
                                     .tokens = sample->tokens,
                                     .document_begin = sample->begin,
                                     .documents = sample->documents,
                                     .first_chunk = first_chunk};
}

static void compare(const struct plm_config *config, uint64_t s, uint64_t first_chunk,
                    uint32_t first_in_step, uint32_t chunks_of_step)
{
  struct sample sample;
  struct reference_masks wanted;
  struct plm_objective_state objective;
  struct plm_targets targets;
  struct plm_error error = {0};
  uint64_t count;
  make_sample(&sample, first_chunk);
  reference_masks_open(&wanted, CHUNKS * LENGTH);
  const struct reference_rules rules = {.config = config};
  reference_masks_draw(&rules, &sample.batch, s, first_in_step, chunks_of_step, &wanted);
  const struct plm_objective_options options = plm_objective_options_of(config);
  assert_int_equal(plm_objective_init(&objective, &options, chunks_of_step, CHUNKS, &error),
                   PLM_OK);
  plm_objective_targets(&objective, s, first_in_step, &sample.batch, &targets, &count);
  assert_int_equal(targets.rows, wanted.rows);
  assert_int_equal(count, wanted.count);
  assert_memory_equal(targets.inputs, wanted.inputs, CHUNKS * LENGTH * sizeof(int32_t));
  assert_memory_equal(targets.positions, wanted.positions, wanted.rows * sizeof(int32_t));
  assert_memory_equal(targets.labels, wanted.labels, wanted.rows * sizeof(int32_t));
  for (uint32_t i = 0; i < wanted.rows; i++)
    assert_true(targets.weights[i] == (float)wanted.weights[i]);
  plm_objective_deinit(&objective);
  reference_masks_close(&wanted);
}

static struct plm_config base_config(enum plm_objective objective)
{
  return (struct plm_config){
      .seed = 0x123456789abcdef0u,
      .data = {.tokenizer = PLM_TOKENIZER_ESM, .max_length = LENGTH},
      .trainer = {.objective = objective,
                  .masking = {.mask_rate = 0.15, .starting_mask_rate = 0.15}},
  };
}

static void mlm_masks_as_the_page_says(void **state)
{
  (void)state;
  struct plm_config config = base_config(PLM_OBJECTIVE_MLM);
  for (uint64_t s = 0; s < 20; s++) compare(&config, s, s * CHUNKS, 0, CHUNKS);
  compare(&config, 5, 0x100000000u, 0, CHUNKS); /* g beyond 32 bits */
  config.trainer.masking.random_fraction = 0.1;
  config.trainer.masking.keep_fraction = 0.1;
  config.trainer.masking.mask_rate = 0.6;
  for (uint64_t s = 0; s < 20; s++) compare(&config, s, s * CHUNKS, 0, CHUNKS);
  config.trainer.masking.mask_rate_steps = 15;
  for (uint64_t s = 0; s < 20; s++) compare(&config, s, s * CHUNKS, 0, CHUNKS);
  config.trainer.masking.mask_rate = 1;
  compare(&config, 30, 0, 0, CHUNKS);
}

static void diffusion_rates_are_stratified(void **state)
{
  (void)state;
  struct plm_config config = base_config(PLM_OBJECTIVE_MASKED_DIFFUSION);
  for (uint64_t s = 0; s < 20; s++) compare(&config, s, s * 18, 6, 18);
  config.trainer.masking.mlm_warmup_steps = 3;
  for (uint64_t s = 0; s < 6; s++) compare(&config, s, s * 18, 12, 18);
  config.trainer.masking.rate_scope = PLM_RATE_BATCH;
  for (uint64_t s = 0; s < 6; s++) compare(&config, s, s * 18, 0, 18);

  config = base_config(PLM_OBJECTIVE_MASKED_DIFFUSION);
  struct plm_objective_state objective;
  const struct plm_objective_options options = plm_objective_options_of(&config);
  assert_int_equal(plm_objective_init(&objective, &options, 10, 1, NULL), PLM_OK);
  unsigned strata = 0; /* each tenth of (0.001, 1) has exactly one chunk */
  for (uint32_t i = 0; i < 10; i++)
    strata |= 1u << (unsigned)((plm_objective_rate(&objective, 4, i) - 1e-3) / 0.0999);
  assert_int_equal(strata, 0x3ff);
  assert_true(fabs(plm_objective_mean_rate(&objective, 4) - 0.5) < 0.06);
  plm_objective_deinit(&objective);
}

static void its_memory_is_that_of_the_largest_batch(void **state)
{
  (void)state;
  const struct plm_config config = base_config(PLM_OBJECTIVE_MLM);
  struct plm_objective_state objective;
  struct plm_error error = {0};
  struct plm_objective_options options = plm_objective_options_of(&config);
  options.max_length = 1 << 20;
  assert_int_equal(plm_objective_init(&objective, &options, 1, UINT32_MAX, &error), PLM_NO_MEMORY);
  assert_string_equal(error.what, "no memory for the targets of 4294967295 chunks");
}

static void micro_batches_do_not_change_the_masks(void **state)
{
  (void)state;
  const struct plm_config config = base_config(PLM_OBJECTIVE_MASKED_DIFFUSION);
  struct sample sample;
  struct plm_objective_state objective;
  struct plm_targets targets;
  uint64_t whole_count, count, counts = 0;
  make_sample(&sample, 77);
  const struct plm_objective_options options = plm_objective_options_of(&config);
  assert_int_equal(plm_objective_init(&objective, &options, CHUNKS, CHUNKS, NULL), PLM_OK);
  plm_objective_targets(&objective, 3, 0, &sample.batch, &targets, &whole_count);
  const uint32_t whole_rows = targets.rows;
  int32_t whole[CHUNKS * LENGTH];
  memcpy(whole, targets.inputs, sizeof whole);
  uint32_t rows = 0;
  for (uint32_t c = 0; c < CHUNKS; c += 2) {
    struct plm_batch part = sample.batch;
    part.chunks = 2;
    part.tokens = sample.tokens + c * LENGTH;
    part.document_begin += c;
    part.first_chunk += c;
    plm_objective_targets(&objective, 3, c, &part, &targets, &count);
    assert_memory_equal(targets.inputs, whole + c * LENGTH, 2 * LENGTH * sizeof(int32_t));
    rows += targets.rows;
    counts += count;
  }
  assert_int_equal(rows, whole_rows);
  assert_int_equal(counts, whole_count);
  plm_objective_deinit(&objective);
}

static void causal_predicts_within_documents(void **state)
{
  (void)state;
  struct plm_config config = base_config(PLM_OBJECTIVE_CAUSAL);
  config.model.pattern[0] = PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_CAUSAL;
  config.model.pattern_count = 1;
  compare(&config, 0, 0, 0, CHUNKS);
  compare(&config, 7, 7 * CHUNKS, 0, CHUNKS);
}

struct described {
  struct plm_objective_state *objective;
  const struct sample *sample;
};

static void describe(const void *context)
{
  const struct described *described = context;
  struct plm_targets targets;
  uint64_t count;
  plm_objective_targets(described->objective, 0, 0, &described->sample->batch, &targets, &count);
}

/* The feed lets no such batch through. */
static void bad_batches_abort(void **state)
{
  (void)state;
  const struct plm_config config = base_config(PLM_OBJECTIVE_MLM);
  struct plm_objective_state objective;
  struct sample sample;
  const struct plm_objective_options options = plm_objective_options_of(&config);
  assert_int_equal(plm_objective_init(&objective, &options, CHUNKS, CHUNKS, NULL), PLM_OK);
  const struct described described = {.objective = &objective, .sample = &sample};
  make_sample(&sample, 0);
  sample.tokens[100] = 33;
  aborted(describe, &described);
  make_sample(&sample, 0);
  sample.documents[1].tokens = LENGTH;
  aborted(describe, &described);
  make_sample(&sample, 0);
  sample.documents[1].start = 3;
  aborted(describe, &described);
  plm_objective_deinit(&objective);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(mlm_masks_as_the_page_says),
      cmocka_unit_test(diffusion_rates_are_stratified),
      cmocka_unit_test(its_memory_is_that_of_the_largest_batch),
      cmocka_unit_test(micro_batches_do_not_change_the_masks),
      cmocka_unit_test(causal_predicts_within_documents),
      cmocka_unit_test(bad_batches_abort),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
