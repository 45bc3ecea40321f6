/* `probe` with a model: the features of each sequence and each residue against the hidden states of
 * the sequence by itself, for the last state and for layers; and what a run chooses of them. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log/log.h"
#include "common/base/numbers/philox.h"
#include "evaluator/probe/probe.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/shown_progress.h"

enum { ROWS = 40, L = 32, D = 32, BLOCKS = 6, MOST = L + 3 };

static struct inference_case model;
static struct plm_labelled_row rows[ROWS];
static uint8_t residues[ROWS][MOST];
static int32_t labels[ROWS][MOST];
static char *classes[] = {"c", "h"};
static struct plm_labelled_table table;
static float states[ROWS][BLOCKS + 1][L * D]; /* of each sequence by itself */

/* Some sequences are longer than the model takes, and some residues have no label; of one sequence
 * none has. */
static void make_table(enum plm_label_kind kind)
{
  table = (struct plm_labelled_table){.path = "t.csv",
                                      .target_name = "y",
                                      .kind = kind,
                                      .rows = rows,
                                      .count = ROWS,
                                      .classes = kind == PLM_LABEL_RESIDUES ? classes : NULL,
                                      .class_count = kind == PLM_LABEL_RESIDUES ? 2 : 0};
  for (uint32_t i = 0; i < ROWS; i++) {
    rows[i] = (struct plm_labelled_row){.line = i + 2,
                                        .residues = residues[i],
                                        .length = i % 11 == 4 ? L - 2 + i % 3 : 3 + (7 * i) % 20,
                                        .part = i % 4 == 3 ? PLM_PART_TEST : PLM_PART_TRAIN};
    for (uint32_t t = 0; t < rows[i].length; t++) {
      residues[i][t] = (uint8_t) "LAGVSERTIDPKQNFYMHWC"[plm_philox(7, t, i, 0).w[0] % 20];
      labels[i][t] = t % 3 == 2 || i == 6 ? -1 : strchr("LAGVI", residues[i][t]) != NULL;
      rows[i].number += labels[i][t] == 1 ? 1.0 / rows[i].length : 0;
    }
    if (kind == PLM_LABEL_RESIDUES) rows[i].labels = labels[i];
    table.parts[rows[i].part]++;
  }
}

/* ---- each sequence by itself ----------------------------------------------------------------- */

struct tap {
  float room[L * D];
  uint32_t row;
};

static void keep(void *context, uint32_t state)
{
  const struct tap *tap = context;
  memcpy(states[tap->row][state], tap->room, sizeof tap->room);
}

static uint32_t seen_of(uint32_t i)
{
  return rows[i].length < L - 1 ? rows[i].length : L - 1;
}

static void run_alone(uint32_t i)
{
  static struct tap tap;
  const struct plm_tokenizer *words = model.inference.tokenizer;
  const uint32_t all[] = {0, 1, 2, 3, 4, 5, 6}, begin[2] = {0, 1}, seen = seen_of(i),
                 count = seen + 1 + (rows[i].length + 2 <= L);
  int32_t tokens[L];
  const struct plm_chunk_document document = {.tokens = count, .residues = seen};
  const struct plm_batch batch = {
      .chunks = 1, .max_length = L, .document_begin = begin, .documents = &document};
  const struct plm_state_taps taps = {
      .states = all, .count = BLOCKS + 1, .room = tap.room, .on_state = keep, .context = &tap};
  for (uint32_t t = 0; t < L; t++) tokens[t] = words->pad;
  tokens[0] = words->cls;
  for (uint32_t t = 0; t < seen; t++) tokens[t + 1] = plm_tokenizer_encode(words, residues[i][t]);
  if (count > seen + 1) tokens[count - 1] = words->eos;
  tap.row = i;
  assert_int_equal(plm_inference_run_states(&model.inference, &batch, tokens, &taps, NULL), PLM_OK);
}

static int begin(void **state)
{
  (void)state;
  plm_log_init("t", PLM_LOG_ERROR);
  inference_case_open(&model, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, L, 3);
  make_table(PLM_LABEL_NUMBER);
  for (uint32_t i = 0; i < ROWS; i++) run_alone(i);
  return 0;
}

static int end(void **state)
{
  (void)state;
  inference_case_close(&model);
  return 0;
}

/* The mean of a state's dimension over the residues, or its value for the first token. */
static double pooled(uint32_t i, uint32_t state, bool mean, uint32_t d)
{
  double sum = 0;
  if (!mean) return (double)states[i][state][d];
  for (uint32_t t = 1; t <= seen_of(i); t++) sum += (double)states[i][state][t * D + d];
  return sum / seen_of(i);
}

static void near(float got, double expected)
{
  if (!(fabs((double)got - expected) <= 2e-4 * (1 + fabs(expected))))
    fail_msg("%g is not %g", (double)got, expected);
}

/* ---- features -------------------------------------------------------------------------------- */

static struct plm_probe_items items_of(void)
{
  struct plm_probe_items items;
  assert_int_equal(plm_probe_items_init(&items, &table, L, NULL), PLM_OK);
  return items;
}

static void the_last_state_is_pooled(void **state)
{
  (void)state;
  static float out[ROWS * 2 * D];
  struct plm_pooling pooling;
  float *const matrices[] = {out};
  make_table(PLM_LABEL_NUMBER);
  struct plm_probe_items items = items_of();
  assert_int_equal(plm_pooling_parse("mean,cls", &pooling, NULL), PLM_OK);
  const struct plm_probe_embedding embedding = {.items = &items, .pooling = &pooling};
  assert_int_equal(plm_probe_width(&embedding, D), 2 * D);
  shown_progress_begin();
  assert_int_equal(plm_probe_embed(&embedding, &model.inference, matrices, NULL), PLM_OK);
  shown_progress_end("probe 15 %  3 sequences, \nprobe 29 %  8 sequences, \n"
                     "probe 44 %  14 sequences, \nprobe 58 %  20 sequences, \n"
                     "probe 73 %  27 sequences, \nprobe 88 %  33 sequences, \n"
                     "probe 100 %  40 sequences, ");
  for (uint32_t i = 0; i < ROWS; i++)
    for (uint32_t d = 0; d < D; d++) {
      near(out[i * 2 * D + d], pooled(i, BLOCKS, true, d));
      near(out[i * 2 * D + D + d], pooled(i, BLOCKS, false, d));
    }
  plm_probe_items_deinit(&items);
}

/* Each layer has a matrix of its own, or all have one together. */
static void layers_apart_and_joined(void **state)
{
  (void)state;
  static float first[ROWS * 2 * D], second[ROWS * 2 * D], both[ROWS * 4 * D];
  static const uint32_t chosen[] = {4, 1};
  float *const apart[] = {first, second}, *const joined[] = {both};
  struct plm_pooling pooling;
  struct plm_layer_choice layers;
  make_table(PLM_LABEL_NUMBER);
  struct plm_probe_items items = items_of();
  assert_int_equal(plm_pooling_parse("cls,mean", &pooling, NULL), PLM_OK);
  assert_int_equal(plm_layer_choice_parse("4,1", &model.inference.config, &layers, NULL), PLM_OK);
  struct plm_probe_embedding embedding = {.items = &items, .pooling = &pooling, .layers = &layers};
  assert_int_equal(plm_probe_embed(&embedding, &model.inference, apart, NULL), PLM_OK);
  embedding.joined = true;
  assert_int_equal(plm_probe_embed(&embedding, &model.inference, joined, NULL), PLM_OK);
  for (uint32_t i = 0; i < ROWS; i++)
    for (uint32_t l = 0; l < 2; l++)
      for (uint32_t mean = 0; mean < 2; mean++)
        for (uint32_t d = 0; d < D; d++) {
          const double expected = pooled(i, chosen[l], mean, d);
          near(apart[l][i * 2 * D + mean * D + d], expected);
          near(both[i * 4 * D + mean * 2 * D + l * D + d], expected);
        }
  plm_probe_items_deinit(&items);
}

static void residues_have_their_states(void **state)
{
  (void)state;
  static float out[ROWS * L * D];
  float *const matrices[] = {out};
  make_table(PLM_LABEL_RESIDUES);
  struct plm_probe_items items = items_of();
  const struct plm_probe_embedding embedding = {.items = &items};
  assert_int_equal(plm_probe_width(&embedding, D), D);
  assert_int_equal(plm_probe_embed(&embedding, &model.inference, matrices, NULL), PLM_OK);
  assert_true(items.count > 2 * ROWS);
  for (uint32_t i = 0; i < items.count; i++)
    for (uint32_t d = 0; d < D; d++)
      near(out[i * D + d], (double)states[items.rows[i]][BLOCKS][(1 + items.positions[i]) * D + d]);
  plm_probe_items_deinit(&items);
}

static plm_status stop(void *context, struct plm_error *error)
{
  int *left = context;
  return (*left)-- > 0 ? PLM_OK : plm_error_set(error, PLM_INTERRUPTED, "enough");
}

static void it_stops_and_names_what_is_not_finite(void **state)
{
  (void)state;
  static float out[ROWS * D];
  float *const matrices[] = {out};
  struct inference_case broken;
  struct plm_pooling pooling = {.kinds = {PLM_POOL_MEAN}, .count = 1};
  struct plm_error error = {0};
  int left = 1;
  make_table(PLM_LABEL_NUMBER);
  struct plm_probe_items items = items_of();
  struct plm_probe_embedding embedding = {
      .items = &items, .pooling = &pooling, .check = stop, .context = &left};
  assert_int_equal(plm_probe_embed(&embedding, &model.inference, matrices, &error),
                   PLM_INTERRUPTED);
  assert_string_equal(error.what, "enough");
  assert_int_equal(left, -1);
  embedding.check = NULL;
  for (uint32_t i = 0; i < ROWS; i++)
    for (uint32_t t = 0; t < rows[i].length; t++)
      if (residues[i][t] == 'W') residues[i][t] = 'A';
  residues[17][1] = 'W';
  inference_case_open(&broken, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, L, 3);
  inference_case_overflow(&broken, 'W');
  assert_int_equal(plm_probe_embed(&embedding, &broken.inference, matrices, &error),
                   PLM_NOT_FINITE);
  assert_non_null(strstr(error.what, "for line 19 of t.csv"));
  residues[17][1] = 'A';
  residues[15][1] = 'W'; /* of the first batch */
  assert_int_equal(plm_probe_embed(&embedding, &broken.inference, matrices, &error),
                   PLM_NOT_FINITE);
  assert_non_null(strstr(error.what, "for line 17 of t.csv"));
  inference_case_close(&broken);
  plm_probe_items_deinit(&items);
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* The fit of a run is that of features which are computed here. */
static void same_fit(const struct plm_probe_items *items, const float *x, uint32_t width,
                     double alpha, const struct plm_probe_fit *fit)
{
  struct plm_pool *pool;
  struct plm_probe_fit expected;
  const struct plm_features features = {x, width};
  assert_int_equal(plm_pool_open(1, &pool, NULL), PLM_OK);
  assert_int_equal(plm_probe_fit_run(items, &features, alpha, pool, &expected, NULL), PLM_OK);
  plm_pool_close(pool);
  assert_int_equal(fit->count, expected.count);
  assert_true(fit->alphas[0] == expected.alphas[0]);
  for (uint32_t i = 0; i < fit->count; i++)
    assert_true(fabs(fit->predicted[i] - expected.predicted[i]) < 1e-3);
  plm_probe_fit_deinit(&expected);
}

static void runs_fit_what_they_are_asked_for(void **state)
{
  (void)state;
  static float x[ROWS * 2 * D], composition[ROWS * 40];
  static const struct {
    const char *layers, *name;
    uint32_t states[2], count;
  } cases[] = {{NULL, "last", {BLOCKS}, 1}, {"2", "2", {2}, 1}, {"5,0", "5,0", {5, 0}, 2}};
  make_table(PLM_LABEL_NUMBER);
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    struct plm_probe_results results;
    const struct plm_probe_request request = {
        .layers = cases[c].layers, .pooling = {.kinds = {PLM_POOL_MEAN}, .count = 1}, .alpha = 2};
    assert_int_equal(plm_probe_run(&request, &table, &model.inference, &results, NULL), PLM_OK);
    assert_true(results.count == 1 && results.best == 0);
    assert_string_equal(results.layers[0].layer, cases[c].name);
    const uint32_t width = cases[c].count * D;
    for (uint32_t i = 0; i < ROWS; i++)
      for (uint32_t d = 0; d < width; d++)
        x[i * width + d] = (float)pooled(i, cases[c].states[d / D], true, d % D);
    same_fit(&results.items, x, width, 2, &results.layers[0].fit);
    plm_probe_composition(&results.items, model.inference.tokenizer, composition);
    same_fit(&results.items, composition,
             plm_probe_composition_width(&results.items, model.inference.tokenizer), 2,
             &results.baseline);
    plm_probe_results_deinit(&results);
  }
}

/* With all layers, the one with the smallest loss where alpha was chosen is the best, and with a
 * given alpha the last one. */
static void all_layers_are_compared(void **state)
{
  (void)state;
  struct plm_probe_results results;
  struct plm_probe_request request = {.layers = "all",
                                      .pooling = {.kinds = {PLM_POOL_MEAN}, .count = 1}};
  make_table(PLM_LABEL_NUMBER);
  assert_int_equal(plm_probe_run(&request, &table, &model.inference, &results, NULL), PLM_OK);
  assert_int_equal(results.count, BLOCKS + 1);
  for (uint32_t i = 0; i <= BLOCKS; i++) {
    const char name[] = {(char)('0' + i), '\0'};
    assert_string_equal(results.layers[i].layer, name);
    assert_true(results.layers[results.best].fit.loss <= results.layers[i].fit.loss);
  }
  assert_true(results.best < BLOCKS); /* the composition is best seen at the beginning */
  plm_probe_results_deinit(&results);
  request.alpha = 3;
  assert_int_equal(plm_probe_run(&request, &table, &model.inference, &results, NULL), PLM_OK);
  assert_int_equal(results.best, BLOCKS);
  plm_probe_results_deinit(&results);
  struct plm_error error = {0};
  int left = 1;
  request.check = stop;
  request.context = &left;
  assert_int_equal(plm_probe_run(&request, &table, &model.inference, &results, &error),
                   PLM_INTERRUPTED);
  assert_int_equal(left, -1); /* it is not asked again */
  request.check = NULL;
  request.layers = "7";
  assert_int_equal(plm_probe_run(&request, &table, &model.inference, &results, &error), PLM_USAGE);
  assert_non_null(strstr(error.what, "the model has no layer 7"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(the_last_state_is_pooled, begin, end),
      cmocka_unit_test_setup_teardown(layers_apart_and_joined, begin, end),
      cmocka_unit_test_setup_teardown(residues_have_their_states, begin, end),
      cmocka_unit_test_setup_teardown(it_stops_and_names_what_is_not_finite, begin, end),
      cmocka_unit_test_setup_teardown(runs_fit_what_they_are_asked_for, begin, end),
      cmocka_unit_test_setup_teardown(all_layers_are_compared, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
