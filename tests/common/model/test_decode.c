/* Incremental decoding gives the logits of the full pass at every position, for both architectures
 * and with windows and blocks, whatever the portions of rows and the sequences beside them. The
 * same comparison detects a stale cache and a position that is off by one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/decode.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_memory.h"
#include "tests/support/operators/device_case.h"

enum { LENGTH = 32, SLOTS = 3, SEQUENCES = 8, ROWS = 48 };
static const uint32_t lengths[] = {13, 7, 32, 5, 3, 31, 9, 2, 0};

static struct plm_model_config configuration(enum plm_architecture architecture)
{
  struct plm_model_config config = case_config(architecture, 6, LENGTH);
  const unsigned base = PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_CAUSAL;
  config.pattern[0] = (uint8_t)base;
  config.pattern[1] = (uint8_t)(base | PLM_ATTENTION_LOCAL);
  config.pattern[2] = (uint8_t)(base | PLM_ATTENTION_BLOCK);
  config.pattern[3] = (uint8_t)(base | PLM_ATTENTION_LOCAL | PLM_ATTENTION_BLOCK);
  config.pattern_count = 4;
  config.window_start = config.window_end = 5;
  config.block = 12;
  return config;
}

/* ---- a model, its sequences, and the logits of the full pass ---- */
struct scene {
  struct model_case c;
  struct case_documents documents;
  float *expected, *logits; /* (tokens of all sequences, V) */
};

static uint32_t vocabulary(const struct scene *scene)
{
  return scene->c.config.vocab_size;
}

static void full_pass(struct scene *scene)
{
  const uint32_t V = vocabulary(scene);
  struct case_batch placed;
  struct plm_error error = {0};
  case_batch_place(&placed, &scene->documents, LENGTH, 1, true);
  float *all = malloc((size_t)SEQUENCES * LENGTH * V * sizeof *all);
  plm_model_attention_masks(scene->c.model, &placed.batch, scene->c.window, scene->c.masks);
  assert_int_equal(plm_model_infer(scene->c.model,
                                   &(struct plm_masked_batch){&placed.batch, scene->c.masks},
                                   placed.inputs, NULL, 0, NULL, all, &error),
                   PLM_OK);
  for (uint32_t i = 0; i < SEQUENCES; i++)
    memcpy(scene->expected + (size_t)scene->documents.begin[i] * V, all + (size_t)i * LENGTH * V,
           (size_t)lengths[i] * V * sizeof *all);
  free(all);
  case_batch_free(&placed);
}

static void open_scene(struct scene *scene, const struct plm_model_config *config, int precision)
{
  const struct plm_model_options options = {.max_chunks = SEQUENCES};
  case_documents_draw(&scene->documents, lengths, config->vocab_size, 31);
  model_case_open(&scene->c, config, &options, precision, 83);
  const size_t size = (size_t)scene->documents.begin[SEQUENCES] * vocabulary(scene);
  scene->expected = malloc(size * sizeof(float));
  scene->logits = malloc(size * sizeof(float));
  full_pass(scene);
}

static void close_scene(struct scene *scene)
{
  free(scene->expected);
  free(scene->logits);
  model_case_close(&scene->c);
}

static struct plm_decode *open_decode(struct scene *scene)
{
  const struct plm_decode_options options = {
      .slots = SLOTS, .capacity = LENGTH, .rows = ROWS, .window = scene->c.window};
  struct plm_decode *decode;
  struct plm_error error = {0};
  assert_int_equal(plm_decode_open(scene->c.model, &options, &decode, &error), PLM_OK);
  return decode;
}

/* ---- feeding ---- */
struct feeder { /* feeds the sequences of one slot */
  uint32_t sequence, position;
  bool live;
};

/* Runs all sequences through the slots. Each call takes up to `portion(turn)` tokens of each slot's
 * sequence; a slot whose sequence has ended takes the next one. */
static void feed(struct scene *scene, uint32_t (*portion)(uint32_t turn))
{
  const uint32_t V = vocabulary(scene);
  struct plm_decode *decode = open_decode(scene);
  struct feeder feeders[SLOTS] = {{0}};
  struct plm_decode_row rows[ROWS];
  uint32_t places[ROWS], next = 0, turn = 0;
  static float logits[ROWS * 512];
  struct plm_error error = {0};
  memset(scene->logits, 0xff, (size_t)scene->documents.begin[SEQUENCES] * V * sizeof(float));
  for (;; turn++) {
    uint32_t count = 0;
    for (uint32_t s = 0; s < SLOTS; s++) {
      struct feeder *f = &feeders[s];
      if (!f->live && next < SEQUENCES) *f = (struct feeder){.sequence = next++, .live = true};
      for (uint32_t n = portion(turn + s); f->live && n > 0 && count < ROWS; n--) {
        const uint32_t place = scene->documents.begin[f->sequence] + f->position;
        rows[count] = (struct plm_decode_row){s, f->position, scene->documents.inputs[place]};
        places[count++] = place;
        f->live = ++f->position < lengths[f->sequence];
      }
    }
    if (count == 0) break;
    assert_int_equal(plm_decode_run(decode, rows, count, NULL, 0, logits, &error), PLM_OK);
    for (uint32_t n = 0; n < count; n++)
      memcpy(scene->logits + (size_t)places[n] * V, logits + (size_t)n * V, V * sizeof(float));
  }
  plm_decode_close(decode);
}

/* The largest difference from the full pass; NaN if a logit was not written. */
static double difference(const struct scene *scene)
{
  const size_t size = (size_t)scene->documents.begin[SEQUENCES] * vocabulary(scene);
  double worst = 0;
  for (size_t i = 0; i < size; i++) {
    const double d = fabs((double)scene->logits[i] - (double)scene->expected[i]);
    if (!(d <= worst)) worst = d;
  }
  return worst;
}

static uint32_t one(uint32_t turn)
{
  (void)turn;
  return 1;
}

static uint32_t all_at_once(uint32_t turn)
{
  (void)turn;
  return LENGTH;
}

static uint32_t varied(uint32_t turn)
{
  static const uint32_t portions[] = {4, 1, 1, 9, 2};
  return portions[turn % 5];
}

/* On CPUs the bits of a row do not depend on the rows beside it. */
static void check_portions(const struct plm_model_config *config, int precision, double limit)
{
  static uint32_t (*const portions[])(uint32_t) = {one, all_at_once, varied};
  struct scene scene;
  open_scene(&scene, config, precision);
  const size_t size = (size_t)scene.documents.begin[SEQUENCES] * config->vocab_size;
  const bool same_bits = strcmp(scene.c.ops->name, "cpu") == 0;
  float *first = malloc(size * sizeof *first);
  assert_non_null(first);
  for (size_t i = 0; i < sizeof portions / sizeof *portions; i++) {
    feed(&scene, portions[i]);
    const double d = difference(&scene);
    if (!(d <= limit)) fail_msg("portions %zu: logits differ by %.3g", i, d);
    if (i == 0) memcpy(first, scene.logits, size * sizeof *first);
    if (same_bits) assert_memory_equal(scene.logits, first, size * sizeof *first);
  }
  free(first);
  close_scene(&scene);
}

static void the_cache_gives_the_logits_of_the_full_pass(void **state)
{
  (void)state;
  for (int architecture = PLM_TRANSFORMER; architecture <= PLM_UNET; architecture++) {
    struct plm_model_config config = configuration((enum plm_architecture)architecture);
    check_portions(&config, PLM_PRECISION_FP32, 2e-5);
    config.pattern_count = 1;
    config.tie_embeddings = true;
    check_portions(&config, PLM_PRECISION_FP32, 2e-5);
  }
}

static void in_bf16_up_to_rounding(void **state)
{
  (void)state;
  for (int architecture = PLM_TRANSFORMER; architecture <= PLM_UNET; architecture++) {
    const struct plm_model_config config = configuration((enum plm_architecture)architecture);
    check_portions(&config, PLM_PRECISION_BF16, 0.08);
  }
}

/* ---- planted faults: operators that do one thing wrong ---- */
static struct plm_ops sound;
static enum { STALE_CACHE, EARLY_WINDOW, ROTARY_OFF_BY_ONE, WRONG_SLOT } fault;

static void faulty_attention(struct plm_ops *ops, act *out, act *keys, act *values, const act *q,
                             const act *k, const act *v, const struct plm_cached_rows *rows)
{
  struct plm_cached_rows changed = *rows;
  int32_t numbers[ROWS];
  if (fault == EARLY_WINDOW) {
    for (int64_t n = 0; n < rows->rows; n++)
      numbers[n] = rows->key_begin[n] > 0 ? rows->key_begin[n] - 1 : 0;
    changed.key_begin = numbers;
  }
  if (fault == WRONG_SLOT) {
    for (int64_t n = 0; n < rows->rows; n++)
      numbers[n] = rows->positions[n] > 3 ? 0 : rows->slots[n];
    changed.slots = numbers;
  }
  sound.attention_cached(ops, out, keys, values, q, k, v, &changed);
  if (fault == STALE_CACHE) /* the key that was just stored is lost again */
    memset((float *)keys +
               (((int64_t)rows->slots[0] * rows->H) * rows->capacity + rows->positions[0]) *
                   rows->K,
           0, (size_t)rows->K * sizeof(float));
}

/* Every row after a prompt of four has the angle of the next position. */
static void faulty_prepare(struct plm_ops *ops, act *out, const struct plm_qkv *in)
{
  static float turned[2][ROWS * 64];
  struct plm_qkv changed = *in;
  const int64_t half = in->K / 2;
  const bool wrong = fault == ROTARY_OFF_BY_ONE && in->L <= SLOTS; /* single rows */
  for (int64_t n = 0; wrong && n < in->L; n++)
    for (int64_t i = 0; i < half; i++) {
      const double step = pow(10000.0, -2.0 * (double)i / (double)in->K);
      const double c = in->cosine[n * half + i], s = in->sine[n * half + i];
      turned[0][n * half + i] = (float)(c * cos(step) - s * sin(step));
      turned[1][n * half + i] = (float)(s * cos(step) + c * sin(step));
    }
  if (wrong) {
    changed.cosine = turned[0];
    changed.sine = turned[1];
  }
  sound.qkv_prepare_forward(ops, out, &changed);
}

/* A prompt of four tokens from each sequence, then single tokens. */
static uint32_t prompt_first(uint32_t turn)
{
  return turn < SLOTS ? 4 : 1;
}

static void a_fault_is_noticed(void **state)
{
  if (device_case_is_real()) skip("it tests the emulation"); /* the faults are made on the host */
  (void)state;
  for (int architecture = PLM_TRANSFORMER; architecture <= PLM_UNET; architecture++) {
    const struct plm_model_config config = configuration((enum plm_architecture)architecture);
    struct scene scene;
    open_scene(&scene, &config, PLM_PRECISION_FP32);
    feed(&scene, prompt_first);
    assert_true(difference(&scene) < 2e-5);
    sound = *scene.c.ops;
    for (int f = STALE_CACHE; f <= WRONG_SLOT; f++) {
      fault = f;
      scene.c.ops->attention_cached = faulty_attention;
      scene.c.ops->qkv_prepare_forward = faulty_prepare;
      feed(&scene, prompt_first);
      *scene.c.ops = sound;
      if (!(difference(&scene) > 1e-3)) fail_msg("fault %d of %d is not seen", f, architecture);
    }
    close_scene(&scene);
  }
}

/* ---- the interface ---- */
static void a_sequence_can_go_back(void **state)
{
  (void)state;
  const struct plm_model_config config = configuration(PLM_UNET);
  const uint32_t V = config.vocab_size;
  struct plm_error error = {0};
  struct plm_decode_row rows[12];
  struct scene scene;
  open_scene(&scene, &config, PLM_PRECISION_FP32);
  struct plm_decode *decode = open_decode(&scene);
  const int32_t *tokens = scene.documents.inputs; /* those of sequence 0 come first */
  for (uint32_t i = 0; i < 12; i++)
    rows[i] = (struct plm_decode_row){1, i, i < 6 ? tokens[i] : (tokens[i] + 1) % (int32_t)V};
  assert_int_equal(plm_decode_run(decode, rows, 12, NULL, 0, scene.logits, &error), PLM_OK);
  for (uint32_t i = 6; i < 12; i++) rows[i].token = tokens[i];
  const int32_t wanted[] = {0, 5};
  assert_int_equal(plm_decode_run(decode, rows + 6, 6, wanted, 2, scene.logits, &error), PLM_OK);
  for (uint32_t v = 0; v < V; v++) {
    assert_true(fabsf(scene.logits[v] - scene.expected[6 * V + v]) < 2e-5f);
    assert_true(fabsf(scene.logits[V + v] - scene.expected[11 * V + v]) < 2e-5f);
  }
  rows[0].token = (int32_t)V;
  assert_int_equal(plm_decode_run(decode, rows, 1, NULL, 0, scene.logits, &error), PLM_CORRUPT);
  assert_non_null(strstr(error.what, "outside the vocabulary"));
  plm_decode_close(decode);
  close_scene(&scene);
}

static void only_causal_models_decode(void **state)
{
  (void)state;
  static const struct {
    enum plm_architecture architecture;
    bool causal, cached;
    const char *what;
  } rows[] = {
      {PLM_PATCH_UNET, true, true,
       "a patch_unet merges tokens with later ones, so it cannot generate token by token"},
      {PLM_ESM2, false, true,
       "every layer of esm2 sees the whole sequence, so it cannot generate token by token"},
      {PLM_TRANSFORMER, false, true, "document+local"},
      {PLM_TRANSFORMER, true, false, " backend has no cached attention"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_model_config config = configuration(rows[i].architecture);
    if (rows[i].architecture == PLM_ESM2) config = case_config(PLM_ESM2, 3, LENGTH);
    if (!rows[i].causal) config.pattern[config.pattern_count > 1] &= (uint8_t)~PLM_ATTENTION_CAUSAL;
    struct plm_error error = {0};
    struct model_case c;
    struct plm_decode *decode;
    model_case_open(&c, &config, &(struct plm_model_options){.max_chunks = 1}, PLM_PRECISION_FP32,
                    1);
    const struct plm_decode_options options = {.slots = 1, .capacity = 8, .rows = 8, .window = 5};
    if (!rows[i].cached) c.ops->attention_cached = NULL;
    assert_int_equal(plm_decode_open(c.model, &options, &decode, &error), PLM_UNSUPPORTED);
    if (strstr(error.what, rows[i].what) == NULL) fail_msg("%s", error.what);
    model_case_close(&c);
  }
}

static void memory_is_two_values_a_block_and_position(void **state)
{
  (void)state;
  struct plm_model_config config = case_config(PLM_UNET, 24, 1024);
  config.hidden_size = 768;
  const struct plm_decode_options options = {.slots = 4, .capacity = 1024, .rows = 64};
  assert_true(plm_decode_memory(&config, 2, &options) == UINT64_C(2) * 24 * 4 * 1024 * 768 * 2);
}

static plm_status open_and_close(void *context, struct plm_error *error)
{
  struct plm_model *model = context;
  const struct plm_decode_options options = {.slots = 1, .capacity = 8, .rows = 8, .window = 5};
  struct plm_decode *decode;
  PLM_TRY(plm_decode_open(model, &options, &decode, error));
  plm_decode_close(decode);
  return PLM_OK;
}

static void a_lack_of_memory_is_said(void **state)
{
  (void)state;
  const struct plm_model_config config = configuration(PLM_TRANSFORMER);
  struct model_case c;
  model_case_open(&c, &config, &(struct plm_model_options){.max_chunks = 1}, PLM_PRECISION_FP32, 1);
  failing_memory_try(open_and_close, c.model, 7);
  model_case_close(&c);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_cache_gives_the_logits_of_the_full_pass),
      cmocka_unit_test(in_bf16_up_to_rounding),
      cmocka_unit_test(a_fault_is_noticed),
      cmocka_unit_test(a_sequence_can_go_back),
      cmocka_unit_test(only_causal_models_decode),
      cmocka_unit_test(a_lack_of_memory_is_said),
      cmocka_unit_test(memory_is_two_values_a_block_and_position),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
