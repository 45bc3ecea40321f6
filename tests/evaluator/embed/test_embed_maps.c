/* The maps and contacts of the sequences of a packed batch: which block, head and sequence each
 * value belongs to, against the definition for each sequence by itself. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "common/inference/sequence_batch.h"
#include "evaluator/embed/embed_maps.h"
#include "tests/support/cases/inference_case.h"

enum { L = 32, COUNT = 4, HEADS = 2, BLOCKS = 6, D = 32, K = D / HEADS, MOST_MAPS = 8 };

static const uint32_t lengths[COUNT] = {L, 20, 7, 3};

static struct inference_case model;
static struct plm_sequence_batch *batch;

/* Of each sequence: the queries and keys of all blocks, and what was put. */
static float inner[COUNT][BLOCKS][L * 3 * D];
static float got[COUNT][MOST_MAPS * L * L];
static uint32_t filled[COUNT]; /* values that were put */

static int32_t token_of(uint32_t n, uint32_t t)
{
  const struct plm_tokenizer *words = model.inference.tokenizer;
  if (t == 0) return words->cls;
  if (t + 1 == lengths[n]) return words->eos;
  return plm_tokenizer_encode(words,
                              (uint8_t) "LAGVSERTIDPKQNFYMHWC"[plm_philox(7, t, n, 0).w[0] % 20]);
}

struct tap {
  float *room;
  uint32_t n;
};

static void keep(void *context, uint32_t block)
{
  const struct tap *tap = context;
  memcpy(inner[tap->n][block], tap->room, sizeof inner[0][0]);
}

/* What the attention of each block reads of sequence n by itself. */
static void run_alone(uint32_t n)
{
  static float room[L * 3 * D];
  int32_t padded[L];
  const uint32_t begin[2] = {0, 1};
  const struct plm_chunk_document document = {.tokens = lengths[n], .residues = lengths[n] - 2};
  const struct plm_batch alone = {
      .chunks = 1, .max_length = L, .document_begin = begin, .documents = &document};
  struct tap tap = {room, n};
  const struct plm_state_taps taps = {.room = room, .on_attention = keep, .context = &tap};
  for (uint32_t t = 0; t < L; t++)
    padded[t] = t < lengths[n] ? token_of(n, t) : model.inference.tokenizer->pad;
  assert_int_equal(plm_inference_run_states(&model.inference, &alone, padded, &taps, NULL), PLM_OK);
}

/* The map (tokens, tokens) of a head, in which each token sees the whole sequence. */
static void map_of(uint32_t n, uint32_t block, uint32_t head, double *map)
{
  const uint32_t tokens = lengths[n];
  for (uint32_t i = 0; i < tokens; i++) {
    const float *query = inner[n][block] + i * 3 * D + head * K;
    double sum = 0;
    for (uint32_t j = 0; j < tokens; j++) {
      const float *key = inner[n][block] + j * 3 * D + D + head * K;
      double product = 0;
      for (uint32_t k = 0; k < K; k++) product += (double)query[k] * (double)key[k];
      map[i * tokens + j] = exp(product / sqrt(K));
      sum += map[i * tokens + j];
    }
    for (uint32_t j = 0; j < tokens; j++) map[i * tokens + j] /= sum;
  }
}

static plm_status put(void *context, uint32_t k, uint64_t at, const float *values, uint64_t count,
                      struct plm_error *error)
{
  (void)context;
  (void)error;
  assert_true(k < COUNT && at + count <= sizeof got[0] / sizeof(float));
  memcpy(got[k] + at, values, count * sizeof *values);
  filled[k] += (uint32_t)count;
  return PLM_OK;
}

static void run_maps(const struct plm_map_choice *choice, const float *weights, float bias)
{
  const struct plm_maps_request request = {
      .inference = &model.inference, .choice = choice, .weights = weights, .bias = bias};
  struct plm_embed_maps *maps;
  memset(filled, 0, sizeof filled);
  assert_int_equal(plm_embed_maps_open(&request, &maps, NULL), PLM_OK);
  for (int again = 0; again < 2; again++) /* nothing is left from the first time */
    assert_int_equal(plm_embed_maps_run(maps, batch, lengths, put, NULL, NULL), PLM_OK);
  plm_embed_maps_close(maps);
}

static int begin(void **state)
{
  (void)state;
  static const float weights[BLOCKS * HEADS];
  int32_t tokens[L];
  inference_case_open(&model, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, L, 2);
  assert_int_equal(model.inference.config.hidden_size, D);
  for (uint32_t n = 0; n < COUNT; n++) run_alone(n);
  assert_int_equal(plm_sequence_batch_open(&model.inference.config, model.inference.tokenizer->pad,
                                           2, &batch, NULL),
                   PLM_OK);
  plm_sequence_batch_reset(batch);
  for (uint32_t n = 0; n < COUNT; n++) {
    for (uint32_t t = 0; t < lengths[n]; t++) tokens[t] = token_of(n, t);
    assert_true(plm_sequence_batch_add(batch, tokens, lengths[n]));
  }
  run_maps(NULL, weights, 0); /* the operators keep memory for each shape */
  return 0;
}

static int end(void **state)
{
  (void)state;
  plm_sequence_batch_close(batch);
  inference_case_close(&model);
  return 0;
}

static void near(float value, double expected)
{
  if (!(fabs((double)value - expected) <= 1e-4 * (1 + fabs(expected))))
    fail_msg("%g is not %g", (double)value, expected);
}

static void chosen_maps_have_their_places(void **state)
{
  (void)state;
  static const uint32_t expected[][2] = {{5, 0}, {5, 1}, {0, 1}, {2, 0}}; /* block and head */
  static double map[L * L];
  struct plm_map_choice choice;
  assert_int_equal(plm_map_choice_parse("6,1:2,3:1", &model.inference.config, &choice, NULL),
                   PLM_OK);
  run_maps(&choice, NULL, 0);
  for (uint32_t n = 0; n < COUNT; n++) {
    const uint32_t cells = lengths[n] * lengths[n];
    assert_int_equal(filled[n], 2 * 4 * cells);
    for (uint32_t m = 0; m < 4; m++) {
      map_of(n, expected[m][0], expected[m][1], map);
      for (uint32_t i = 0; i < cells; i++) near(got[n][m * cells + i], map[i]);
    }
  }
}

static void contacts_add_up_all_heads(void **state)
{
  (void)state;
  static double map[L * L], sum[L * L], rows[L];
  float weights[BLOCKS * HEADS];
  for (uint32_t i = 0; i < BLOCKS * HEADS; i++) weights[i] = (float)(i + 1) * (i % 3 == 0 ? 3 : -1);
  run_maps(NULL, weights, -0.75F);
  for (uint32_t n = 0; n < COUNT; n++) {
    const uint32_t tokens = lengths[n], r = tokens - 2;
    memset(sum, 0, sizeof sum);
    assert_int_equal(filled[n], 2 * r * r);
    for (uint32_t h = 0; h < BLOCKS * HEADS; h++) {
      double total = 0;
      map_of(n, h / HEADS, h % HEADS, map);
      for (uint32_t i = 0; i < r; i++) {
        rows[i] = 0;
        for (uint32_t j = 0; j < r; j++)
          rows[i] += map[(i + 1) * tokens + j + 1] + map[(j + 1) * tokens + i + 1];
        total += rows[i];
      }
      for (uint32_t i = 0; i < r; i++)
        for (uint32_t j = 0; j < r; j++)
          sum[i * r + j] +=
              (double)weights[h] * (map[(i + 1) * tokens + j + 1] + map[(j + 1) * tokens + i + 1] -
                                    rows[i] * rows[j] / total);
    }
    for (uint32_t i = 0; i < r * r; i++) near(got[n][i], 1 / (1 + exp(0.75 - sum[i])));
  }
}

/* What a visitor or a receiver says ends the run, and is not lost. */
static plm_status refuse(void *context, uint32_t k, uint64_t at, const float *values,
                         uint64_t count, struct plm_error *error)
{
  uint32_t *calls = context;
  (void)at, (void)values, (void)count;
  return ++*calls == 3 ? plm_error_set(error, PLM_NO_SPACE, "sequence %u does not fit", k) : PLM_OK;
}

static plm_status refuse_block(void *context, uint32_t block, uint32_t k,
                               const struct plm_map_source *source, struct plm_attention_map *map,
                               struct plm_error *error)
{
  uint32_t *calls = context;
  (void)map;
  assert_int_equal(source->tokens, lengths[k]);
  assert_int_equal(source->H, HEADS);
  ++*calls;
  return block == 1 && k == 2 ? plm_error_set(error, PLM_LIMIT, "no more") : PLM_OK;
}

static void refusals_are_told(void **state)
{
  (void)state;
  struct plm_map_choice choice;
  struct plm_embed_maps *maps;
  struct plm_error error = {0};
  uint32_t calls = 0;
  assert_int_equal(plm_map_choice_parse("2", &model.inference.config, &choice, NULL), PLM_OK);
  struct plm_maps_request request = {.inference = &model.inference, .choice = &choice};
  assert_int_equal(plm_embed_maps_open(&request, &maps, NULL), PLM_OK);
  assert_int_equal(plm_embed_maps_run(maps, batch, lengths, refuse, &calls, &error), PLM_NO_SPACE);
  assert_string_equal(error.what, "sequence 1 does not fit");
  assert_int_equal(calls, 3);
  plm_embed_maps_close(maps);
  calls = 0;
  request = (struct plm_maps_request){.inference = &model.inference, .visit = refuse_block};
  assert_int_equal(plm_embed_maps_open(&request, &maps, NULL), PLM_OK);
  assert_int_equal(plm_embed_maps_run(maps, batch, lengths, NULL, &calls, &error), PLM_LIMIT);
  assert_string_equal(error.what, "no more");
  assert_int_equal(calls, COUNT + 3);
  plm_embed_maps_close(maps);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chosen_maps_have_their_places),
      cmocka_unit_test(contacts_add_up_all_heads),
      cmocka_unit_test(refusals_are_told),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
