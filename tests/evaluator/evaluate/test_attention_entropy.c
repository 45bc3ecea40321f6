/* The entropy of attention against its definition, from the queries and keys of each block. */
#include "tests/support/harness/failing_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/architecture.h"
#include "common/model/masks.h"
#include "evaluator/evaluate/attention_entropy.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/corpora/packed_documents.h"
#include "tests/support/harness/must.h"

/* The means of all blocks of a batch. */
struct expected {
  struct inference_case *c;
  const struct plm_batch *batch;
  float *room;
  double means[16];
  uint32_t count;
};

static double one_entropy(const float *query, const float *keys, int32_t count, int64_t stride,
                          int32_t K)
{
  double logits[PACKED_MOST_LENGTH], sum = 0, entropy = 0;
  for (int32_t i = 0; i < count; i++) {
    logits[i] = 0;
    for (int32_t k = 0; k < K; k++) logits[i] += (double)query[k] * (double)keys[i * stride + k];
    sum += exp(logits[i] / sqrt(K));
  }
  for (int32_t i = 0; i < count; i++) {
    const double p = exp(logits[i] / sqrt(K)) / sum;
    if (p > 0) entropy -= p * log(p);
  }
  return entropy;
}

static void expected_on_block(void *context, uint32_t block)
{
  struct expected *expected = context;
  const struct plm_model_config *config = &expected->c->inference.config;
  struct plm_block_shape shape;
  struct plm_interval_mask mask;
  plm_architecture_block(config, block, &shape);
  int32_t *values = must(calloc(
      plm_mask_values((int32_t)expected->batch->chunks, (int32_t)expected->batch->max_length),
      sizeof *values));
  plm_mask_build(expected->batch, shape.level, config->pattern[shape.entry],
                 expected->c->inference.window, config->block, values, values, &mask);
  const int32_t H = (int32_t)config->num_attention_heads, K = (int32_t)shape.width / H;
  const int64_t stride = 3 * (int64_t)H * K;
  int64_t *real = must(calloc((size_t)mask.B * (size_t)mask.L, sizeof *real)), count = 0;
  double sum = 0;
  for (int64_t row = 0; row < (int64_t)mask.B * mask.L; row++)
    if (mask.key_begin[row] < mask.key_end[row]) real[count++] = row;
  const int64_t queries = count < 128 ? count : 128;
  for (int64_t i = 0; i < queries; i++) {
    const int64_t row = real[i * count / queries];
    const int64_t first = row - row % mask.L + mask.key_begin[row];
    for (int32_t h = 0; h < H; h++)
      sum += one_entropy(expected->room + row * stride + h * K,
                         expected->room + first * stride + (int64_t)H * K + h * K,
                         mask.key_end[row] - mask.key_begin[row], stride, K);
  }
  expected->means[expected->count++] = queries > 0 ? sum / (double)(queries * H) : (double)NAN;
  free(real);
  free(values);
}

static void widen(const struct packed_documents *packed, int32_t *inputs)
{
  for (uint32_t i = 0; i < packed->chunks * packed->max_length; i++) inputs[i] = packed->tokens[i];
}

static uint32_t trimmed; /* the batch's documents end after so many tokens; 0: where they end */

static void trim(struct packed_documents *packed)
{
  uint32_t left = trimmed;
  for (uint32_t n = 0; n < 2 * packed->chunks && trimmed > 0; n++) {
    struct plm_chunk_document *document = &packed->documents[n];
    if (document->tokens > left) document->tokens = left;
    left -= document->tokens;
  }
  assert_int_equal(left, 0);
}

/* Measures a batch of all chunks, of which the first `measured` count. */
static void measures(enum plm_architecture architecture, uint32_t chunks, uint32_t L,
                     uint32_t measured, uint32_t max_chunks)
{
  static struct packed_documents packed;
  struct inference_case c;
  struct plm_attention_entropy *entropy;
  struct plm_batch batch;
  uint32_t count;
  packed_documents_make(&packed, PLM_TOKENIZER_ESM, chunks, L, L / 2);
  trim(&packed);
  const struct plm_chunk_stream stream = packed_documents_stream(&packed);
  inference_case_open(&c, architecture, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, L, max_chunks);
  c.inference.window = 6; /* of the blocks with local attention, if there are any */
  int32_t *inputs = must(calloc((size_t)chunks * L, sizeof *inputs));
  widen(&packed, inputs);
  assert_int_equal(stream.next(stream.context, chunks, &batch, NULL), PLM_OK);
  assert_int_equal(plm_attention_entropy_open(&c.inference, &entropy, NULL), PLM_OK);
  assert_int_equal(plm_attention_entropy_measure(entropy, &batch, inputs, NULL), PLM_OK);
  assert_int_equal(batch.chunks, chunks);
  const struct plm_layer_entropy *got = plm_attention_entropies(entropy, &count);
  struct plm_batch part = batch;
  part.chunks = measured;
  struct expected expected = {.c = &c, .batch = &part};
  expected.room =
      must(calloc((size_t)3 * measured * L * c.inference.config.hidden_size, sizeof(float)));
  const struct plm_state_taps taps = {
      .room = expected.room, .on_attention = expected_on_block, .context = &expected};
  assert_int_equal(plm_inference_run_states(&c.inference, &part, inputs, &taps, NULL), PLM_OK);
  assert_int_equal(count, expected.count);
  for (uint32_t i = 0; i < count; i++)
    if (!(fabs(got[i].entropy - expected.means[i]) <= 1e-4))
      fail_msg("%s: %.7g is not %.7g", got[i].layer, got[i].entropy, expected.means[i]);
  if (architecture == PLM_TRANSFORMER) {
    assert_string_equal(got[0].layer, "layers.0");
    assert_string_equal(got[count - 1].layer, "layers.5");
  } else if (architecture == PLM_UNET) {
    assert_string_equal(got[0].layer, "encoder.0");
    assert_string_equal(got[count - 1].layer, "decoder.2");
  } else if (architecture == PLM_ESM2) {
    assert_string_equal(got[0].layer, "esm.encoder.layer.0");
    assert_string_equal(got[count - 1].layer, "esm.encoder.layer.5");
  } else {
    assert_string_equal(got[count - 1].layer,
                        architecture == PLM_ESMC ? "esmc.layers.5" : "layers.0");
  }
  stream.release(stream.context, &batch);
  plm_attention_entropy_close(entropy);
  inference_case_close(&c);
  packed_documents_free(&packed);
  free(expected.room);
  free(inputs);
}

static void it_is_that_of_the_definition(void **state)
{
  (void)state;
  for (int architecture = PLM_TRANSFORMER; architecture < PLM_ARCHITECTURES; architecture++) {
    measures((enum plm_architecture)architecture, 2, 32, 2, 3); /* fewer queries than 128 */
    measures((enum plm_architecture)architecture, 9, 32, 9, 9);
  }
  measures(PLM_TRANSFORMER, 66, 32, 64, 70); /* at most 2048 tokens */
  for (trimmed = 127; trimmed <= 129; trimmed++) measures(PLM_TRANSFORMER, 9, 32, 9, 9);
  trimmed = 0;
}

/* A chunk that is longer than 2048 tokens is measured by itself. */
static void one_long_chunk_is_measured(void **state)
{
  (void)state;
  measures(PLM_TRANSFORMER, 2, 4096, 1, 2);
}

/* Blocks in which one position is left attend to nothing: they are no layers here. */
static void a_bottleneck_has_no_entropy(void **state)
{
  enum { SHORT = 4 };
  static const char *const names[] = {"encoder.0", "encoder.1", "decoder.1", "decoder.2",
                                      "layers.0"};
  static const uint32_t begin[2] = {0, 1};
  static const struct plm_chunk_document document = {.tokens = SHORT, .residues = SHORT - 2};
  struct inference_case c;
  struct plm_attention_entropy *entropy;
  uint32_t count;
  (void)state;
  inference_case_open(&c, PLM_PATCH_UNET, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, SHORT, 1);
  assert_int_equal(plm_attention_entropy_open(&c.inference, &entropy, NULL), PLM_OK);
  const struct plm_batch batch = {
      .chunks = 1, .max_length = SHORT, .document_begin = begin, .documents = &document};
  const int32_t inputs[SHORT] = {c.inference.tokenizer->cls, 5, 9, c.inference.tokenizer->eos};
  assert_int_equal(plm_attention_entropy_measure(entropy, &batch, inputs, NULL), PLM_OK);
  const struct plm_layer_entropy *layers = plm_attention_entropies(entropy, &count);
  assert_int_equal(count, sizeof names / sizeof *names);
  for (uint32_t i = 0; i < count; i++) {
    const bool merged = i == 1 || i == 2; /* pairs of tokens */
    assert_string_equal(layers[i].layer, names[i]);
    assert_true(layers[i].entropy > 0 && layers[i].entropy <= log(merged ? 2 : SHORT) + 1e-6);
  }
  plm_attention_entropy_close(entropy);
  inference_case_close(&c);
}

static plm_status open_and_close(void *context, struct plm_error *error)
{
  struct plm_attention_entropy *entropy;
  PLM_TRY(plm_attention_entropy_open(context, &entropy, error));
  plm_attention_entropy_close(entropy);
  return PLM_OK;
}

static void a_lack_of_memory_is_said(void **state)
{
  struct inference_case c;
  (void)state;
  inference_case_open(&c, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, 32, 1);
  failing_memory_try(open_and_close, &c.inference, 4);
  inference_case_close(&c);
}

static void nothing_has_no_entropy(void **state)
{
  (void)state;
  uint32_t count = 1;
  assert_null(plm_attention_entropies(NULL, &count));
  assert_int_equal(count, 0);
  struct inference_case c;
  struct plm_attention_entropy *entropy;
  inference_case_open(&c, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, 32, 1);
  assert_int_equal(plm_attention_entropy_open(&c.inference, &entropy, NULL), PLM_OK);
  const uint32_t begin[2] = {0, 0};
  int32_t inputs[32];
  for (int i = 0; i < 32; i++) inputs[i] = c.inference.tokenizer->pad;
  const struct plm_batch batch = {.chunks = 1, .max_length = 32, .document_begin = begin};
  assert_int_equal(plm_attention_entropy_measure(entropy, &batch, inputs, NULL), PLM_OK);
  const struct plm_layer_entropy *layers = plm_attention_entropies(entropy, &count);
  assert_int_equal(count, 6);
  for (uint32_t i = 0; i < count; i++) assert_true(isnan(layers[i].entropy));
  plm_attention_entropy_close(entropy);
  plm_attention_entropy_close(NULL);
  inference_case_close(&c);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(it_is_that_of_the_definition), cmocka_unit_test(one_long_chunk_is_measured),
      cmocka_unit_test(a_bottleneck_has_no_entropy),  cmocka_unit_test(a_lack_of_memory_is_said),
      cmocka_unit_test(nothing_has_no_entropy),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
