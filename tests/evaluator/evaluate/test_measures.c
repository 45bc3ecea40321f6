/* What an evaluation measures, over documents in several batches, against the definitions applied
 * to each document by itself. */
#include "tests/support/harness/cmocka_all.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "evaluator/evaluate/each_batch.h"
#include "evaluator/evaluate/evaluate.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/corpora/packed_documents.h"
#include "tests/support/harness/scratch.h"

enum { L = 32, CHUNKS = 5, DOCUMENTS = 2 * CHUNKS, SECOND = 16, SEED = 5 };

struct scene {
  struct inference_case c;
  struct packed_documents packed;
  struct plm_chunk_stream stream;
  struct plm_evaluation *evaluation;
};

static void open_scene(struct scene *scene, enum plm_architecture architecture,
                       enum plm_objective objective, enum plm_tokenizer_kind tokenizer)
{
  const char *folder = scratch_path("model");
  inference_case_open(&scene->c, architecture, objective, tokenizer, L, 2);
  inference_case_save(&scene->c, folder);
  packed_documents_make(&scene->packed, tokenizer, CHUNKS, L, SECOND);
  scene->stream = packed_documents_stream(&scene->packed);
  assert_int_equal(plm_evaluation_open(folder, 0, scene->c.inference.ops, &scene->evaluation, NULL),
                   PLM_OK);
  assert_int_equal(plm_evaluation_load(scene->evaluation, folder, NULL, NULL), PLM_OK);
  assert_string_equal(plm_evaluation_weights(scene->evaluation), "model");
  assert_int_equal(plm_evaluation_model(scene->evaluation)->max_length, L);
}

static void close_scene(struct scene *scene)
{
  assert_int_equal(scene->packed.held, 0);
  plm_evaluation_close(scene->evaluation);
  packed_documents_free(&scene->packed);
  inference_case_close(&scene->c);
}

static void near(double got, double expected)
{
  if (!(fabs(got - expected) <= 1e-4 * fabs(expected))) fail_msg("%.9g is not %.9g", got, expected);
}

static void run(struct scene *scene, const struct plm_evaluation_options *options,
                struct plm_evaluation_result *result)
{
  struct plm_error error = {0};
  if (plm_evaluation_run(scene->evaluation, &scene->stream, PLM_SPLIT_VALID, options, NULL, NULL,
                         result, &error) != PLM_OK)
    fail_msg("%s", error.what);
  assert_true(result->seconds >= 0);
}

static int32_t most_likely(const struct scene *scene, const float *logits)
{
  int32_t best = 0;
  for (uint32_t v = 1; v < scene->c.inference.config.vocab_size; v++)
    if (logits[v] > logits[best]) best = (int32_t)v;
  return best;
}

/* ---- the loss ---------------------------------------------------------------------------------
 */

struct expected {
  double loss, bin_loss[PLM_LENGTH_BINS];
  uint64_t rows, hits, bin_rows[PLM_LENGTH_BINS];
};

static void count_row(const struct scene *scene, struct expected *expected, uint32_t n,
                      const float *logits, int32_t label)
{
  const uint32_t residues = scene->packed.documents[n].residues;
  const int bin = residues < 64 ? 0 : residues < 128 ? 1 : residues < 256 ? 2 : 3;
  const double loss = -inference_case_log_p(&scene->c, logits, label);
  assert_true(residues < 512);
  expected->loss += loss;
  expected->bin_loss[bin] += loss;
  expected->rows++;
  expected->bin_rows[bin]++;
  expected->hits += most_likely(scene, logits) == label;
}

static struct expected of_rate(struct scene *scene, double rate)
{
  struct expected expected = {0};
  const struct plm_tokenizer *words = scene->c.inference.tokenizer;
  const uint32_t V = scene->c.inference.config.vocab_size;
  for (uint32_t n = 0; n < DOCUMENTS; n++) {
    int32_t tokens[L], masked[L];
    const uint32_t count = packed_documents_tokens(&scene->packed, n, tokens);
    for (uint32_t t = 0; t < count; t++) {
      const bool chosen =
          plm_token_is_residue(words, tokens[t]) &&
          plm_philox(SEED, t, n, PLM_PURPOSE_EVALUATION_MASK).w[0] >> 8 < ceil(rate * 0x1p24);
      masked[t] = chosen ? words->mask : tokens[t];
    }
    const float *logits = inference_case_logits(&scene->c, masked, count);
    for (uint32_t t = 0; t < count; t++)
      if (masked[t] != tokens[t]) count_row(scene, &expected, n, logits + (size_t)t * V, tokens[t]);
  }
  return expected;
}

static struct expected of_next_tokens(struct scene *scene)
{
  struct expected expected = {0};
  const uint32_t V = scene->c.inference.config.vocab_size;
  for (uint32_t n = 0; n < DOCUMENTS; n++) {
    int32_t tokens[L];
    const uint32_t count = packed_documents_tokens(&scene->packed, n, tokens);
    const float *logits = inference_case_logits(&scene->c, tokens, count);
    for (uint32_t t = 0; t + 1 < count; t++)
      count_row(scene, &expected, n, logits + (size_t)t * V, tokens[t + 1]);
  }
  return expected;
}

static void is_expected(const struct plm_evaluation_result *result, const struct expected *expected)
{
  const double loss = expected->loss / (double)expected->rows;
  assert_true(expected->rows > 20);
  assert_int_equal(result->tokens, expected->rows);
  near(result->loss, loss);
  near(result->perplexity, exp(loss));
  near(result->classification.accuracy, (double)expected->hits / (double)expected->rows);
  for (int bin = 0; bin < PLM_LENGTH_BINS; bin++) {
    assert_int_equal(result->bin_rows[bin], expected->bin_rows[bin]);
    if (expected->bin_rows[bin] == 0)
      assert_true(isnan(result->bin_loss[bin]));
    else
      near(result->bin_loss[bin], expected->bin_loss[bin] / (double)expected->bin_rows[bin]);
  }
}

static void losses_are_those_of_each_document(void **state)
{
  (void)state;
  static const double rates[] = {0.4, 0.15, 1};
  for (int architecture = PLM_TRANSFORMER; architecture < PLM_ARCHITECTURES; architecture++) {
    struct scene scene;
    struct plm_evaluation_result result;
    struct plm_evaluation_options options = {
        .mask_rate = rates[0], .more_rates = rates + 1, .more_rate_count = 2, .seed = SEED};
    const enum plm_tokenizer_kind tokenizer =
        architecture == PLM_UNET ? PLM_TOKENIZER_BYTE : PLM_TOKENIZER_ESM;
    open_scene(&scene, (enum plm_architecture)architecture, PLM_OBJECTIVE_MLM, tokenizer);
    for (int again = 0; again < 2; again++) { /* nothing is left of an evaluation before */
      const struct expected expected = of_rate(&scene, rates[0]);
      run(&scene, &options, &result);
      is_expected(&result, &expected);
      assert_int_equal(result.rate_count, 3);
      for (int i = 0; i < 3; i++) {
        const struct expected of_this = of_rate(&scene, rates[i]);
        assert_true(result.rates[i] == rates[i]);
        near(result.rate_loss[i], of_this.loss / (double)of_this.rows);
      }
      assert_true(isnan(result.elbo) && isnan(result.pseudo_perplexity));
      assert_true(isnan(result.pseudo_perplexity_fast));
    }
    assert_int_equal(scene.packed.begins, 6);
    options.more_rate_count = 0;
    run(&scene, &options, &result);
    assert_int_equal(result.rate_count, 1);
    close_scene(&scene);
  }
}

static void a_causal_model_predicts_the_next_tokens(void **state)
{
  (void)state;
  static const double more[] = {0.5};
  struct scene scene;
  struct plm_evaluation_result result;
  struct plm_evaluation_options options = {
      .mask_rate = 0.15, .more_rates = more, .more_rate_count = 1, .seed = SEED, .elbo_rates = 2};
  struct plm_error error = {0};
  open_scene(&scene, PLM_TRANSFORMER, PLM_OBJECTIVE_CAUSAL, PLM_TOKENIZER_ESM);
  const struct expected expected = of_next_tokens(&scene);
  run(&scene, &options, &result);
  is_expected(&result, &expected);
  assert_int_equal(result.rate_count, 0);
  assert_int_equal(scene.packed.begins, 1);
  assert_true(isnan(result.elbo) && isnan(result.pseudo_perplexity));
  for (int fast = 0; fast < 2; fast++) {
    options.pseudo_perplexity = !fast;
    options.pseudo_perplexity_fast = fast;
    assert_int_equal(plm_evaluation_run(scene.evaluation, &scene.stream, PLM_SPLIT_VALID, &options,
                                        NULL, NULL, &result, &error),
                     PLM_CONFIG);
    assert_string_equal(error.what,
                        "a causal model has no pseudo-perplexity; its perplexity is exact");
  }
  close_scene(&scene);
}

/* ---- the measures ------------------------------------------------------------------------------
 */

static double elbo_of(struct scene *scene, uint32_t rates)
{
  const struct plm_tokenizer *words = scene->c.inference.tokenizer;
  const uint32_t V = scene->c.inference.config.vocab_size;
  const double u = plm_philox_unit(plm_philox(SEED, 0, 0, PLM_PURPOSE_ELBO_MASK).w[0]);
  double total = 0;
  uint64_t maskable = 0;
  for (uint32_t n = 0; n < DOCUMENTS; n++) {
    int32_t tokens[L], masked[L];
    double corput = 0;
    const uint32_t count = packed_documents_tokens(&scene->packed, n, tokens);
    for (int bit = 0; bit < 32; bit++) corput += (n >> bit & 1) * ldexp(1, -1 - bit);
    for (uint32_t k = 0; k < rates; k++) {
      const double rate = 1e-3 + 0.999 * fmod(u + corput + (double)k / rates, 1);
      for (uint32_t t = 0; t < count; t++) {
        const bool residue = plm_token_is_residue(words, tokens[t]);
        const bool chosen =
            residue && plm_philox(SEED, t + (k << 20), n, 10).w[0] >> 8 < ceil(rate * 0x1p24);
        masked[t] = chosen ? words->mask : tokens[t];
        maskable += residue;
      }
      const float *logits = inference_case_logits(&scene->c, masked, count);
      for (uint32_t t = 0; t < count; t++)
        if (masked[t] != tokens[t])
          total -= inference_case_log_p(&scene->c, logits + (size_t)t * V, tokens[t]) / rate;
    }
  }
  return total / (double)maskable;
}

/* exact: each residue masked by itself; else from one pass. */
static double pseudo_perplexity_of(struct scene *scene, bool exact, double a, double b)
{
  const struct plm_tokenizer *words = scene->c.inference.tokenizer;
  const uint32_t V = scene->c.inference.config.vocab_size;
  double total = 0;
  uint64_t terms = 0;
  for (uint32_t n = 0; n < DOCUMENTS; n++) {
    int32_t tokens[L];
    const uint32_t count = packed_documents_tokens(&scene->packed, n, tokens);
    for (uint32_t t = 0; t < count; t++) {
      const int32_t token = tokens[t];
      if (!plm_token_is_residue(words, token)) continue;
      if (exact) tokens[t] = words->mask;
      const float *logits = inference_case_logits(&scene->c, tokens, count);
      const double log_q = inference_case_log_p(&scene->c, logits + (size_t)t * V, token);
      const double q = exp(log_q);
      total -= exact ? log_q : log(q * a / (a + b * (1 - q)));
      tokens[t] = token;
      terms++;
    }
  }
  return exp(total / (double)terms);
}

static void measures_are_those_of_each_document(void **state)
{
  (void)state;
  for (int architecture = PLM_TRANSFORMER; architecture < PLM_ARCHITECTURES; architecture++) {
    struct scene scene;
    struct plm_evaluation_result result;
    struct plm_evaluation_options options = {.mask_rate = 0.5,
                                             .seed = SEED,
                                             .elbo_rates = 3,
                                             .pseudo_perplexity = true,
                                             .pseudo_perplexity_fast = true,
                                             .random_fraction = 0.05,
                                             .keep_fraction = 0.15};
    open_scene(&scene, (enum plm_architecture)architecture, PLM_OBJECTIVE_MASKED_DIFFUSION,
               PLM_TOKENIZER_ESM);
    run(&scene, &options, &result);
    near(result.elbo, elbo_of(&scene, 3));
    near(result.pseudo_perplexity, pseudo_perplexity_of(&scene, true, 0, 0));
    near(result.pseudo_perplexity_fast, pseudo_perplexity_of(&scene, false, 0.05 / 20, 0.15));
    options.elbo_rates = 1;
    options.pseudo_perplexity_fast = false;
    options.progress = true; /* which changes no number */
    run(&scene, &options, &result);
    near(result.elbo, elbo_of(&scene, 1));
    assert_true(isnan(result.pseudo_perplexity_fast));
    options.pseudo_perplexity = false;
    options.elbo_rates = 0;
    run(&scene, &options, &result);
    assert_true(isnan(result.elbo) && isnan(result.pseudo_perplexity));
    close_scene(&scene);
  }
}

/* Documents of nothing but special tokens ask for nothing. */
static void nothing_has_no_measures(void **state)
{
  (void)state;
  struct scene scene;
  struct plm_evaluation_result result;
  const struct plm_evaluation_options options = {.mask_rate = 0.5,
                                                 .seed = SEED,
                                                 .elbo_rates = 2,
                                                 .pseudo_perplexity = true,
                                                 .pseudo_perplexity_fast = true,
                                                 .random_fraction = 0.05,
                                                 .keep_fraction = 0.15};
  open_scene(&scene, PLM_TRANSFORMER, PLM_OBJECTIVE_MASKED_DIFFUSION, PLM_TOKENIZER_ESM);
  memset(scene.packed.tokens, scene.c.inference.tokenizer->cls,
         (size_t)CHUNKS * L * scene.packed.token_bytes);
  run(&scene, &options, &result);
  assert_int_equal(result.tokens, 0);
  assert_true(isnan(result.loss) && isnan(result.elbo));
  assert_true(isnan(result.pseudo_perplexity) && isnan(result.pseudo_perplexity_fast));
  close_scene(&scene);
}

/* ---- what stops it -----------------------------------------------------------------------------
 */

static plm_status stop_at(void *context, struct plm_error *error)
{
  int *left = context;
  return (*left)-- > 0 ? PLM_OK : plm_error_set(error, PLM_TERMINATED, "stopped");
}

/* It is polled before each batch: all chunks fit into one, of which there is one for the loss and
 * for each rate of the ELBO. */
static void it_can_be_stopped_before_each_batch(void **state)
{
  (void)state;
  struct scene scene;
  struct plm_evaluation_result result;
  struct plm_evaluation_options options = {.mask_rate = 0.5, .seed = SEED, .elbo_rates = 2};
  open_scene(&scene, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM);
  for (int polls = 0; polls <= 3; polls++) {
    struct plm_error error = {0};
    int left = polls;
    const plm_status status = plm_evaluation_run(scene.evaluation, &scene.stream, PLM_SPLIT_VALID,
                                                 &options, stop_at, &left, &result, &error);
    assert_int_equal(status, polls < 3 ? PLM_TERMINATED : PLM_OK);
    assert_int_equal(left, polls < 3 ? -1 : 0);
    assert_int_equal(scene.packed.held, 0);
  }
  close_scene(&scene);
}

struct visits {
  uint32_t count, chunks[CHUNKS];
  plm_status last; /* of the second visit */
};

static plm_status visit(void *context, const struct plm_batch *batch, struct plm_error *error)
{
  struct visits *visits = context;
  (void)error;
  visits->chunks[visits->count++] = batch->chunks;
  return visits->count == 2 ? visits->last : PLM_OK;
}

static void batches_have_the_chunks_that_are_left(void **state)
{
  (void)state;
  static const uint32_t expected[][3] = {{2, 2, 1}, {5}, {4, 1}};
  static const uint32_t most[] = {2, 5, 4}, counts[] = {3, 1, 2};
  static struct packed_documents packed;
  packed_documents_make(&packed, PLM_TOKENIZER_ESM, CHUNKS, L, SECOND);
  const struct plm_chunk_stream stream = packed_documents_stream(&packed);
  for (int progress = 0; progress < 2; progress++)
    for (int i = 0; i < 3; i++) {
      const struct plm_batch_walk walk = {.stream = &stream,
                                          .split = PLM_SPLIT_VALID,
                                          .most = most[i],
                                          .progress = progress ? "walk" : NULL};
      struct visits visits = {.last = PLM_OK};
      assert_int_equal(plm_each_batch(&walk, visit, &visits, NULL), PLM_OK);
      assert_int_equal(visits.count, counts[i]);
      assert_memory_equal(visits.chunks, expected[i], counts[i] * sizeof(uint32_t));
      visits = (struct visits){.last = PLM_LIMIT};
      assert_int_equal(plm_each_batch(&walk, visit, &visits, NULL), i == 1 ? PLM_OK : PLM_LIMIT);
      assert_int_equal(visits.count, i == 1 ? 1 : 2);
      assert_int_equal(packed.held, 0);
    }
  packed_documents_free(&packed);
}

static void a_split_without_documents_is_refused(void **state)
{
  (void)state;
  struct scene scene;
  struct plm_evaluation_result result;
  const struct plm_evaluation_options options = {.mask_rate = 0.5, .seed = SEED};
  struct plm_error error = {0};
  open_scene(&scene, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM);
  assert_int_equal(plm_evaluation_run(scene.evaluation, &scene.stream, PLM_SPLIT_TRAIN, &options,
                                      NULL, NULL, &result, &error),
                   PLM_CONFIG);
  assert_string_equal(error.what, "the corpus has no documents in split train");
  close_scene(&scene);
}

/* ---- the line ----------------------------------------------------------------------------------
 */

static void reports(const struct plm_evaluation_result *result, const char *expected)
{
  cJSON *line = cJSON_CreateObject();
  plm_evaluation_report(result, "ema", 2.875, line);
  char *text = cJSON_PrintUnformatted(line);
  assert_string_equal(text, expected);
  cJSON_free(text);
  cJSON_Delete(line);
}

static void every_number_is_reported(void **state)
{
  (void)state;
  const struct plm_layer_entropy entropies[] = {{"layers.0", 1.5}, {"layers.1", 0.25}};
  struct plm_evaluation_result result = {
      .loss = 2.5,
      .perplexity = 12.25,
      .classification =
          {.accuracy = 0.5, .precision = 0.25, .recall = 0.125, .f1 = 0.75, .mcc = -0.5},
      .tokens = 77,
      .rates = {0.15, 0.5},
      .rate_loss = {2.5, 2.75},
      .rate_count = 2,
      .bin_loss = {[1] = 1.25, [3] = 3.5},
      .bin_rows = {[1] = 7, [3] = 1},
      .elbo = (double)NAN,
      .pseudo_perplexity = (double)NAN,
      .pseudo_perplexity_fast = (double)NAN,
      .entropies = entropies,
      .entropy_count = 2,
      .lengths = {.longest = 300, .cut = 5},
      .compute_dtype = "int8",
  };
#define BEGIN                                                                                    \
  "{\"weights\":\"ema\",\"compute_dtype\":\"int8\",\"cut\":5,\"loss\":2.5,\"perplexity\":12.25," \
  "\"accuracy\":0.5,"                                                                            \
  "\"precision\":0.25,\"recall\":0.125,\"f1\":0.75,\"mcc\":-0.5,\"tokens\":77,"                  \
  "\"baseline_entropy\":2.875,"
#define END                                                                    \
  "\"loss_by_mask_rate\":{\"0.15\":2.5,\"0.5\":2.75},\"loss_by_length\":"      \
  "{\"64-127\":1.25,\"256-511\":3.5},\"attention_entropy\":{\"layers.0\":1.5," \
  "\"layers.1\":0.25}}"
  reports(&result, BEGIN END);
  result.elbo = 3;
  result.pseudo_perplexity = 4;
  result.pseudo_perplexity_fast = 5;
  reports(&result, BEGIN "\"elbo\":3,\"pseudo_perplexity\":4,\"pseudo_perplexity_fast\":5," END);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(losses_are_those_of_each_document),
      cmocka_unit_test(a_causal_model_predicts_the_next_tokens),
      cmocka_unit_test(measures_are_those_of_each_document),
      cmocka_unit_test(nothing_has_no_measures),
      cmocka_unit_test(it_can_be_stopped_before_each_batch),
      cmocka_unit_test(batches_have_the_chunks_that_are_left),
      cmocka_unit_test(a_split_without_documents_is_refused),
      cmocka_unit_test(every_number_is_reported),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
