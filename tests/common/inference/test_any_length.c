/* A model takes longer sequences than max_length, and gives what a model with a larger max_length
 * gives. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "common/inference/sequence_batch.h"
#include "common/model/architecture.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/harness/must.h"

enum { SHORT = 32, LONG = 128 };

static void make_room(struct inference_case *c, uint32_t tokens)
{
  struct plm_error error = {0};
  if (plm_inference_make_room(&c->inference, tokens, &error) != PLM_OK) fail_msg("%s", error.what);
  c->c.masks = c->inference.masks; /* there may be new ones */
}

/* The logits (V) at a token of a sequence of `count` tokens, packed behind another sequence. */
static void logits_at(struct inference_case *c, const int32_t *tokens, uint32_t count, uint32_t at,
                      float *logits)
{
  struct plm_sequence_batch *batch;
  const struct plm_inference *inference = &c->inference;
  assert_int_equal(plm_sequence_batch_open(&inference->config, inference->tokenizer->pad,
                                           inference->max_chunks, &batch, NULL),
                   PLM_OK);
  assert_true(plm_sequence_batch_add(batch, tokens, count));
  plm_sequence_batch_add(batch, tokens, 5);
  const struct plm_batch *chunks = plm_sequence_batch_finish(batch);
  const int32_t row = (int32_t)(plm_sequence_batch_row(batch, 0) + at);
  assert_int_equal(plm_inference_run(&c->inference, chunks, plm_sequence_batch_inputs(batch), &row,
                                     1, NULL, logits, NULL),
                   PLM_OK);
  plm_sequence_batch_close(batch);
}

static void longer_sequences_are_as_in_a_longer_model(void **state)
{
  (void)state;
  static const uint32_t counts[] = {SHORT + 1, 50, 47, 97, SHORT, 12};
  for (int a = 0; a < PLM_ARCHITECTURES; a++) {
    if (plm_architecture_rules((enum plm_architecture)a)->published) continue;
    struct inference_case small, large;
    float ours[64], theirs[64];
    int32_t tokens[LONG] = {0};
    for (uint32_t t = 1; t < LONG; t++) tokens[t] = 4 + (int32_t)(plm_philox(3, t, 0, 0).w[0] % 20);
    const enum plm_architecture architecture = (enum plm_architecture)a;
    inference_case_open(&small, architecture, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, SHORT, 3);
    inference_case_open(&large, architecture, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, LONG, 1);
    const uint32_t V = small.inference.config.vocab_size;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
      const uint32_t count = counts[i];
      tokens[count - 1] = small.inference.tokenizer->eos;
      make_room(&small, count);
      assert_true(small.inference.config.max_length >= count);
      for (uint32_t at = 0; at < count; at += count / 3) {
        logits_at(&small, tokens, count, at, ours);
        logits_at(&large, tokens, count, at, theirs);
        for (uint32_t v = 0; v < V; v++)
          if (!(fabsf(ours[v] - theirs[v]) <= 1e-4F))
            fail_msg("architecture %d, token %u of %u: %g is not %g", a, at, count, (double)ours[v],
                     (double)theirs[v]);
      }
      tokens[count - 1] = 4;
    }
    assert_int_equal(small.inference.trained_length, SHORT);
    assert_true(small.inference.warned && !large.inference.warned);
    inference_case_close(&small);
    inference_case_close(&large);
  }
}

/* As many chunks as the tokens of a batch allow, but at least one. */
static void longer_chunks_are_fewer(void **state)
{
  (void)state;
  struct inference_case c;
  inference_case_open(&c, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, SHORT, 4);
  make_room(&c, SHORT);
  assert_int_equal(c.inference.config.max_length, SHORT);
  assert_int_equal(c.inference.max_chunks, 4);
  assert_false(c.inference.warned);
  make_room(&c, 60);
  assert_int_equal(c.inference.config.max_length, 60);
  assert_int_equal(c.inference.max_chunks, 2);
  make_room(&c, 200);
  assert_int_equal(c.inference.config.max_length, 200);
  assert_int_equal(c.inference.max_chunks, 1);
  make_room(&c, 40); /* it does not shrink */
  assert_int_equal(c.inference.config.max_length, 200);
  inference_case_close(&c);
}

static void the_limit_is_the_users_or_the_models(void **state)
{
  (void)state;
  struct plm_inference inference = {.config = case_config(PLM_UNET, 6, SHORT)};
  struct plm_error error = {0};
  assert_int_equal(plm_inference_most(&inference), SHORT);
  assert_int_equal(plm_inference_set_limit(&inference, 0, &error), PLM_OK);
  assert_int_equal(plm_inference_most(&inference), SHORT);
  assert_int_equal(plm_inference_set_limit(&inference, 20, &error), PLM_OK);
  assert_int_equal(plm_inference_most(&inference), 20);
  assert_int_equal(plm_inference_slice(&inference), 20);
  assert_int_equal(plm_inference_set_limit(&inference, PLM_MODEL_MAX_LENGTH, &error), PLM_OK);
  assert_int_equal(plm_inference_most(&inference), PLM_MODEL_MAX_LENGTH);
  assert_int_equal(plm_inference_slice(&inference), SHORT);
  assert_int_equal(plm_inference_set_limit(&inference, PLM_MODEL_MAX_LENGTH + 1, &error),
                   PLM_USAGE);
  assert_string_equal(error.what,
                      "--max-length 1048577: this model takes sequences of 3 to 1048576 tokens");
  assert_int_equal(plm_inference_set_limit(&inference, 2, &error), PLM_USAGE);
  /* published weights take every length, as they do elsewhere */
  inference.config.architecture = PLM_ESM2;
  assert_int_equal(plm_inference_set_limit(&inference, 0, &error), PLM_OK);
  assert_int_equal(plm_inference_most(&inference), PLM_MODEL_MAX_LENGTH);
  assert_int_equal(plm_inference_set_limit(&inference, 20, &error), PLM_OK);
  assert_int_equal(plm_inference_most(&inference), 20);
}

/* A patch_unet whose levels end at one position has other blocks with another max_length. */
static void levels_that_follow_from_max_length_limit_it(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct plm_inference inference = {.config = case_config(PLM_PATCH_UNET, 6, SHORT)};
  inference.config.num_unet_layers = 10; /* n = 5 = log2(32): all blocks have their level */
  assert_int_equal(plm_inference_set_limit(&inference, 100, &error), PLM_OK);
  inference.config.num_unet_layers = 12;
  assert_int_equal(plm_architecture_longest(&inference.config), SHORT);
  assert_int_equal(plm_inference_set_limit(&inference, SHORT, &error), PLM_OK);
  assert_int_equal(plm_inference_set_limit(&inference, SHORT + 1, &error), PLM_USAGE);
  assert_string_equal(error.what, "--max-length 33: this model takes sequences of 3 to 32 tokens");
  assert_string_equal(error.hint, "the levels of this patch_unet follow from its max_length");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(longer_sequences_are_as_in_a_longer_model),
      cmocka_unit_test(longer_chunks_are_fewer),
      cmocka_unit_test(the_limit_is_the_users_or_the_models),
      cmocka_unit_test(levels_that_follow_from_max_length_limit_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
