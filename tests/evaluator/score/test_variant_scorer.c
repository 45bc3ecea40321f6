/* Compares variants that are scored together, in batches too small to hold them, with the
 * definition applied to each variant separately. */
#include "tests/support/harness/failing_memory.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/base/numbers/philox.h"
#include "common/run/stop.h"
#include "evaluator/score/variant_scorer.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/must.h"

enum { L = 32, CHUNKS = 2, VARIANTS = 150, V = 33, MOST = 80 };
static const char letters[] = "LAGVSERTIDPKQNFYMHWC";

/* The time of this program, in seconds; -1: the real one. */
static time_t own_s = -1;

/* Takes the place of libc's function in this program. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
  if (own_s < 0 || clock != CLOCK_MONOTONIC) return (int)syscall(SYS_clock_gettime, clock, now);
  *now = (struct timespec){.tv_sec = own_s};
  return 0;
}

static uint32_t draw(uint32_t *counter, uint32_t below)
{
  return plm_philox(99, (*counter)++, 0, 0).w[0] % below;
}

struct scene {
  struct model_case c;
  struct plm_inference inference;
  uint8_t residues[MOST];
  struct plm_wild_type wild_type;
  struct plm_variant variants[VARIANTS];
};

static void open_scene(struct scene *scene, enum plm_architecture architecture, bool causal,
                       uint32_t length)
{
  struct plm_model_config config = case_config(architecture, 6, L);
  const struct plm_model_options options = {.max_chunks = CHUNKS};
  uint32_t counter = length;
  config.vocab_size = V;
  config.pattern_count = 1;
  config.pattern[0] = PLM_ATTENTION_DOCUMENT | (causal ? PLM_ATTENTION_CAUSAL : 0);
  model_case_open(&scene->c, &config, &options, PLM_PRECISION_FP32, 5);
  scene->inference =
      (struct plm_inference){.config = config,
                             .objective = causal ? PLM_OBJECTIVE_CAUSAL : PLM_OBJECTIVE_MLM,
                             .tokenizer = plm_tokenizer_of(PLM_TOKENIZER_ESM),
                             .window = scene->c.window,
                             .batch_tokens = CHUNKS * L,
                             .max_chunks = CHUNKS,
                             .trained_length = L,
                             .ops = scene->c.ops,
                             .model = scene->c.model,
                             .masks = scene->c.masks};
  for (uint32_t i = 0; i < length; i++) scene->residues[i] = (uint8_t)letters[draw(&counter, 20)];
  scene->wild_type = (struct plm_wild_type){"wild", scene->residues, length, 1, PLM_TOKENIZER_ESM};
  for (uint32_t v = 0; v < VARIANTS; v++) {
    struct plm_variant *variant = &scene->variants[v];
    const uint32_t span = length < L - 1 ? length : L - 1,
                   begin = draw(&counter, length - span + 1);
    *variant = (struct plm_variant){must(calloc(4, sizeof *variant->items)), 0, 4};
    const uint32_t most = v % 28 == 0 ? 0 : 1 + v % 4;
    uint32_t place = begin + draw(&counter, span);
    for (uint32_t i = 0; i < most && place < begin + span; i++) {
      const uint8_t mutant = (uint8_t)letters[draw(&counter, 20)], wild = scene->residues[place];
      if (mutant != wild)
        variant->items[variant->count++] = (struct plm_substitution){place, wild, mutant};
      place += 1 + draw(&counter, 6);
    }
  }
}

static void close_scene(struct scene *scene)
{
  for (uint32_t v = 0; v < VARIANTS; v++) plm_variant_deinit(&scene->variants[v]);
  model_case_close(&scene->c);
}

/* log p (tokens, V) of a single sequence. */
static void infer(struct scene *scene, const int32_t *tokens, uint32_t count, double *log_p)
{
  static float logits[L * V];
  int32_t padded[L];
  const uint32_t begin[2] = {0, 1};
  const struct plm_chunk_document document = {.tokens = count, .residues = count};
  const struct plm_batch batch = {
      .chunks = 1, .max_length = L, .document_begin = begin, .documents = &document};
  for (uint32_t t = 0; t < L; t++) padded[t] = t < count ? tokens[t] : 1;
  assert_int_equal(
      plm_inference_run(&scene->inference, &batch, padded, NULL, 0, NULL, logits, NULL), PLM_OK);
  for (uint32_t t = 0; t < count; t++) {
    double sum = 0;
    for (uint32_t v = 0; v < V; v++) sum += exp((double)logits[t * V + v]);
    for (uint32_t v = 0; v < V; v++) log_p[t * V + v] = (double)logits[t * V + v] - log(sum);
  }
}

/* The tokens of the wild type, and where the window around two of them begins. */
static uint32_t window_of(const struct scene *scene, uint32_t a, uint32_t b, int32_t *tokens,
                          uint32_t *begin)
{
  const uint32_t T = scene->wild_type.length + 2, length = T < L ? T : L;
  int64_t first = (int64_t)(a + b + 1) / 2 - L / 2;
  if (first > (int64_t)T - length) first = (int64_t)T - length;
  if (first < 0) first = 0;
  for (uint32_t t = 0; t < length; t++) {
    const int64_t at = first + t;
    tokens[t] = at == 0 ? 0
                : at == T - 1
                    ? 2
                    : plm_tokenizer_encode(scene->inference.tokenizer, scene->residues[at - 1]);
  }
  *begin = (uint32_t)first;
  return length;
}

static int32_t id(const struct scene *scene, uint8_t letter)
{
  return plm_tokenizer_encode(scene->inference.tokenizer, letter);
}

/* The score of items [first, first + count) of a variant, masked together or not at all. */
static double marginal_score(struct scene *scene, const struct plm_substitution *items,
                             uint32_t count, bool mask)
{
  int32_t tokens[L];
  uint32_t begin;
  static double log_p[L * V];
  double score = 0;
  const uint32_t length =
      window_of(scene, items[0].place + 1, items[count - 1].place + 1, tokens, &begin);
  for (uint32_t i = 0; i < count && mask; i++) tokens[items[i].place + 1 - begin] = 32;
  infer(scene, tokens, length, log_p);
  for (uint32_t i = 0; i < count; i++) {
    const double *row = log_p + (items[i].place + 1 - begin) * V;
    score += row[id(scene, items[i].mutant)] - row[id(scene, items[i].wild_type)];
  }
  return score;
}

static double likelihood(struct scene *scene, const struct plm_variant *variant, bool mutant)
{
  int32_t tokens[L];
  uint32_t begin;
  static double log_p[L * V];
  double sum = 0;
  const struct plm_substitution *items = variant->items;
  const uint32_t length =
      window_of(scene, items[0].place + 1, items[variant->count - 1].place + 1, tokens, &begin);
  for (uint32_t i = 0; i < variant->count && mutant; i++)
    tokens[items[i].place + 1 - begin] = id(scene, items[i].mutant);
  infer(scene, tokens, length, log_p);
  for (uint32_t t = 0; t + 1 < length; t++) sum += log_p[t * V + (uint32_t)tokens[t + 1]];
  return sum;
}

static double alone(struct scene *scene, const struct plm_variant *variant,
                    enum plm_score_masking masking)
{
  double score = 0;
  if (variant->count == 0) return 0;
  if (scene->inference.objective == PLM_OBJECTIVE_CAUSAL)
    return likelihood(scene, variant, true) - likelihood(scene, variant, false);
  if (masking == PLM_SCORE_JOINT)
    return marginal_score(scene, variant->items, variant->count, true);
  for (uint32_t i = 0; i < variant->count; i++)
    score += marginal_score(scene, &variant->items[i], 1, masking != PLM_SCORE_UNMASKED);
  return score;
}

static void compare(enum plm_architecture architecture, bool causal, uint32_t length)
{
  static struct scene scene;
  static double scores[VARIANTS];
  open_scene(&scene, architecture, causal, length);
  const int most = causal ? PLM_SCORE_ADDITIVE : PLM_SCORE_UNMASKED;
  for (int masking = PLM_SCORE_ADDITIVE; masking <= most; masking++) {
    struct plm_variant_scorer *scorer;
    double largest = 0;
    assert_int_equal(plm_variant_scorer_open(&scene.inference, &scene.wild_type,
                                             (enum plm_score_masking)masking, &scorer, NULL),
                     PLM_OK);
    for (uint32_t v = 0; v < VARIANTS; v++)
      assert_int_equal(plm_variant_scorer_expect(scorer, &scene.variants[v], NULL), PLM_OK);
    /* two calls, as for two blocks */
    assert_int_equal(plm_variant_scorer_run(scorer, scene.variants, 100, scores, NULL), PLM_OK);
    assert_int_equal(
        plm_variant_scorer_run(scorer, scene.variants + 100, VARIANTS - 100, scores + 100, NULL),
        PLM_OK);
    for (uint32_t v = 0; v < VARIANTS; v++) {
      const double expected = alone(&scene, &scene.variants[v], (enum plm_score_masking)masking);
      if (!(fabs(scores[v] - expected) <= 2e-4))
        fail_msg("architecture %d, %u residues, masking %s, variant %u of %u: %.7g, alone %.7g",
                 architecture, length, plm_score_masking_names[masking], v, scene.variants[v].count,
                 scores[v], expected);
      if (scene.variants[v].count == 0) assert_true(scores[v] == 0);
      largest = fmax(largest, fabs(expected));
    }
    assert_true(largest > 0.1);
    plm_variant_scorer_close(scorer);
  }
  close_scene(&scene);
}

static void masked_scores_are_those_of_each_variant_alone(void **state)
{
  (void)state;
  for (int architecture = PLM_TRANSFORMER; architecture < PLM_ARCHITECTURES; architecture++) {
    compare((enum plm_architecture)architecture, false, 10);
    compare((enum plm_architecture)architecture, false, 75);
  }
  for (uint32_t length = L - 3; length <= L - 1; length++) compare(PLM_UNET, false, length);
}

static void likelihoods_are_those_of_each_variant_alone(void **state)
{
  (void)state;
  compare(PLM_TRANSFORMER, true, 10);
  compare(PLM_UNET, true, L - 2);
  compare(PLM_UNET, true, 75);
}

/* Which pairs of positions fit into a window. */
static void positions_too_far_apart_are_refused(void **state)
{
  (void)state;
  for (int causal = 0; causal <= 1; causal++) {
    static struct scene scene;
    struct plm_variant_scorer *scorer;
    struct plm_error error = {0};
    open_scene(&scene, PLM_UNET, causal, 75);
    assert_int_equal(
        plm_variant_scorer_open(&scene.inference, &scene.wild_type, PLM_SCORE_JOINT, &scorer, NULL),
        PLM_OK);
    for (uint32_t first = 0; first < 75; first++) {
      for (uint32_t last = first + 1; last < 75; last++) {
        struct plm_substitution items[] = {{first, 'A', 'L'}, {last, 'A', 'L'}};
        const struct plm_variant variant = {items, 2, 2};
        /* a causal model needs a token before the first position; for residue 1 that is <cls> */
        const bool fits = last - first < L - (uint32_t)causal;
        const plm_status status = plm_variant_scorer_expect(scorer, &variant, &error);
        if (status != (fits ? PLM_OK : PLM_LIMIT))
          fail_msg("causal %d, places %u and %u: status %d", causal, first, last, (int)status);
        if (!fits) assert_non_null(strstr(error.what, "too far apart"));
        assert_int_equal(plm_variant_scorer_expects(scorer, &variant), fits);
      }
    }
    plm_variant_scorer_close(scorer);
    close_scene(&scene);
  }
}

static void a_stop_signal_ends_the_scoring(void **state)
{
  (void)state;
  static struct scene scene;
  for (int causal = 0; causal <= 1; causal++) {
    struct plm_variant_scorer *scorer;
    struct plm_error error = {0};
    double scores[2];
    open_scene(&scene, PLM_TRANSFORMER, causal, 10);
    assert_int_equal(plm_variant_scorer_open(&scene.inference, &scene.wild_type, PLM_SCORE_ADDITIVE,
                                             &scorer, NULL),
                     PLM_OK);
    for (uint32_t v = 1; v < 3; v++)
      assert_int_equal(plm_variant_scorer_expect(scorer, &scene.variants[v], NULL), PLM_OK);
    plm_stop_requested = SIGTERM;
    const plm_status status = plm_variant_scorer_run(scorer, scene.variants + 1, 2, scores, &error);
    plm_stop_requested = 0;
    assert_int_equal(status, PLM_TERMINATED);
    plm_variant_scorer_close(scorer);
    close_scene(&scene);
  }
}

/* Three variants at the same two places are masked in one pass. */
static void the_progress_counts_passes(void **state)
{
  (void)state;
  static struct scene scene;
  struct plm_variant_scorer *scorer;
  struct plm_variant variants[3];
  struct plm_substitution items[3][2];
  double scores[3];
  open_scene(&scene, PLM_TRANSFORMER, false, 10);
  own_s = 1000;
  assert_int_equal(
      plm_variant_scorer_open(&scene.inference, &scene.wild_type, PLM_SCORE_JOINT, &scorer, NULL),
      PLM_OK);
  for (uint32_t v = 0; v < 3; v++) {
    for (uint32_t i = 0; i < 2; i++)
      items[v][i] = (struct plm_substitution){i, scene.residues[i], (uint8_t)letters[v]};
    variants[v] = (struct plm_variant){items[v], 2, 2};
    assert_int_equal(plm_variant_scorer_expect(scorer, &variants[v], NULL), PLM_OK);
  }
  own_s += 10;
  plm_log_init("test", PLM_LOG_INFO);
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_variant_scorer_run(scorer, variants, 3, scores, NULL);
  assert_string_equal(captured_end(), "test: score 100 %  1 pass, 1 tokens/s, 0:00 left\n");
  own_s = -1;
  assert_int_equal(status, PLM_OK);
  plm_variant_scorer_close(scorer);
  close_scene(&scene);
}

static plm_status open_and_close(void *context, struct plm_error *error)
{
  struct scene *scene = context;
  struct plm_variant_scorer *scorer;
  PLM_TRY(plm_variant_scorer_open(&scene->inference, &scene->wild_type, PLM_SCORE_ADDITIVE, &scorer,
                                  error));
  const long at = checked_memory_pause();
  struct plm_substitution item = {0, scene->residues[0], scene->residues[0] == 'A' ? 'V' : 'A'};
  const struct plm_variant variant = {&item, 1, 1};
  double score = NAN;
  assert_int_equal(plm_variant_scorer_expect(scorer, &variant, NULL), PLM_OK);
  assert_int_equal(plm_variant_scorer_run(scorer, &variant, 1, &score, NULL), PLM_OK);
  assert_true(isfinite(score)); /* what is open can be used */
  plm_variant_scorer_close(scorer);
  checked_memory_resume(at);
  return PLM_OK;
}

static void a_lack_of_memory_is_said(void **state)
{
  (void)state;
  for (int causal = 0; causal < 2; causal++) {
    struct scene *scene = must(calloc(1, sizeof *scene));
    open_scene(scene, PLM_TRANSFORMER, causal, 9);
    failing_memory_try(open_and_close, scene, 13);
    close_scene(scene);
    free(scene);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_stop_signal_ends_the_scoring),
      cmocka_unit_test(masked_scores_are_those_of_each_variant_alone),
      cmocka_unit_test(likelihoods_are_those_of_each_variant_alone),
      cmocka_unit_test(positions_too_far_apart_are_refused),
      cmocka_unit_test(the_progress_counts_passes),
      cmocka_unit_test(a_lack_of_memory_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
