/* What must not change a model's result. Micro-batches give the same gradients except for rounding;
 * recomputation and repetition give the same bits; inference agrees with the reference; shorter
 * chunks are accepted; bad batches are errors. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/architecture.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"

static const uint32_t lengths[] = {13, 7, 20, 5, 3, 31, 9, 2, 30, 0};

static struct plm_model_config configuration(int architecture)
{
  struct plm_model_config config = case_config((enum plm_architecture)architecture, 6, 32);
  case_alternate(&config, PLM_ATTENTION_CAUSAL);
  return config;
}

static void place(struct case_batch *placed, const struct plm_model_config *config)
{
  static struct case_documents documents;
  case_documents_draw(&documents, lengths, config->vocab_size, 31);
  case_batch_place(placed, &documents, config->max_length, 4, false);
}

/* A batch of documents of `lengths`, and a model that takes it as one. */
struct scene {
  struct case_batch placed;
  struct model_case c;
};

static void open_scene(struct scene *scene, int architecture, bool training, int precision,
                       uint64_t seed)
{
  const struct plm_model_config config = configuration(architecture);
  place(&scene->placed, &config);
  const struct plm_model_options options = {.max_chunks = scene->placed.batch.chunks,
                                            .training = training};
  model_case_open(&scene->c, &config, &options, precision, seed);
}

static void close_scene(struct scene *scene)
{
  model_case_close(&scene->c);
  case_batch_free(&scene->placed);
}

static float *gradients_with(const struct plm_model_config *config, const struct case_batch *placed,
                             enum plm_recompute recompute, int precision, double *loss)
{
  struct model_case c;
  const struct plm_model_options options = {
      .max_chunks = placed->batch.chunks, .training = true, .recompute = recompute};
  model_case_open(&c, config, &options, precision, 37);
  float *gradients = model_case_gradients_of(&c, placed, loss);
  model_case_close(&c);
  return gradients;
}

/* Takes ownership of the batch. */
static void all_recomputations_agree(const struct plm_model_config *config,
                                     struct case_batch *placed, int precision)
{
  enum { MODES = PLM_RECOMPUTE_BLOCK + 1 };
  double loss[MODES];
  float *gradients[MODES];
  struct plm_parameter *table;
  size_t count, elements;
  assert_int_equal(plm_model_parameters(config, &table, &count, &elements, NULL), PLM_OK);
  for (int i = PLM_RECOMPUTE_NONE; i < MODES; i++)
    gradients[i] = gradients_with(config, placed, (enum plm_recompute)i, precision, &loss[i]);
  for (int i = PLM_RECOMPUTE_MLP; i < MODES; i++) {
    assert_true(loss[i] == loss[0]);
    assert_memory_equal(gradients[i], gradients[0], elements * sizeof(float));
    free(gradients[i]);
  }
  free(gradients[0]);
  free(table);
  case_batch_free(placed);
}

static void recomputation_gives_the_same_bits_in(int precision)
{
  for (int architecture = PLM_TRANSFORMER; architecture < PLM_ARCHITECTURES; architecture++) {
    const struct plm_model_config config = configuration(architecture);
    struct case_batch placed;
    place(&placed, &config);
    all_recomputations_agree(&config, &placed, precision);
  }
}

static void recomputation_gives_the_same_bits(void **state)
{
  (void)state;
  recomputation_gives_the_same_bits_in(PLM_PRECISION_FP32);
}

static void recomputation_gives_the_same_bits_in_bf16(void **state)
{
  (void)state;
  recomputation_gives_the_same_bits_in(PLM_PRECISION_BF16);
}

/* Recomputation handles bottlenecks separately. */
static void recomputation_of_bottlenecks(void **state)
{
  (void)state;
  const struct plm_model_config config = case_config(PLM_PATCH_UNET, 10, 8);
  static struct case_documents documents;
  struct case_batch placed;
  case_documents_draw(&documents, (const uint32_t[]){8, 5, 7, 0}, config.vocab_size, 31);
  case_batch_place(&placed, &documents, 8, 8, false);
  all_recomputations_agree(&config, &placed, PLM_PRECISION_FP32);
}

static void a_step_twice_gives_the_same_bits(void **state)
{
  (void)state;
  for (int architecture = PLM_TRANSFORMER; architecture < PLM_ARCHITECTURES; architecture++) {
    struct scene scene;
    double loss[2];
    open_scene(&scene, architecture, true, PLM_PRECISION_FP32, 41);
    float *first = model_case_gradients_of(&scene.c, &scene.placed, &loss[0]);
    float *second = model_case_gradients_of(&scene.c, &scene.placed, &loss[1]);
    assert_true(loss[0] == loss[1]);
    assert_memory_equal(first, second, plm_model_arena_elements(scene.c.model) * sizeof(float));
    free(first);
    free(second);
    close_scene(&scene);
  }
}

static void assert_close(const struct plm_model *model, const float *a, const float *b)
{
  size_t count;
  const struct plm_parameter *table = plm_model_table(model, &count);
  for (size_t i = 0; i < count; i++) {
    const double relative = case_relative_float(&table[i], a, b);
    if (!(relative <= 3e-5)) fail_msg("%s differs by %.3g", table[i].name, relative);
  }
}

/* Compares the accumulated gradients and losses with those of the whole batch. */
static void assert_sums_to(struct scene *scene, double loss, double sum, const float *whole)
{
  float *summed = model_case_gradients(&scene->c);
  assert_true(fabs(sum - loss) <= 1e-5 * loss);
  assert_close(scene->c.model, summed, whole);
  free(summed);
}

static void micro_batches_sum_to_the_batch(void **state)
{
  (void)state;
  for (int architecture = PLM_TRANSFORMER; architecture < PLM_ARCHITECTURES; architecture++) {
    struct scene scene;
    struct case_batch part;
    double loss;
    open_scene(&scene, architecture, true, PLM_PRECISION_FP32, 43);
    const uint32_t chunks = scene.placed.batch.chunks;
    assert_true(chunks >= 4);
    float *whole = model_case_gradients_of(&scene.c, &scene.placed, &loss);
    for (uint32_t size = 1; size < chunks; size++) {
      double sum = 0.0;
      plm_model_zero_gradients(scene.c.model);
      for (uint32_t first = 0; first < chunks; first += size) {
        case_batch_part(&part, &scene.placed, first, chunks - first < size ? chunks - first : size);
        sum += model_case_step(&scene.c, &part, 1.0f);
        case_batch_free(&part);
      }
      assert_sums_to(&scene, loss, sum, whole);
    }
    free(whole);
    close_scene(&scene);
  }
}

static void the_loss_scale_scales_gradients_alone(void **state)
{
  (void)state;
  struct scene scene;
  double loss;
  open_scene(&scene, PLM_UNET, true, PLM_PRECISION_FP32, 47);
  float *once = model_case_gradients_of(&scene.c, &scene.placed, &loss);
  plm_model_zero_gradients(scene.c.model);
  assert_true(model_case_step(&scene.c, &scene.placed, 0.25f) == loss);
  float *quarter = model_case_gradients(&scene.c);
  for (size_t e = 0; e < plm_model_arena_elements(scene.c.model); e++) quarter[e] *= 4.0f;
  assert_close(scene.c.model, quarter, once);
  free(once);
  free(quarter);
  close_scene(&scene);
}

/* A label at positions first, first + step, … of the batch. */
static void label(struct case_batch *placed, uint32_t first, uint32_t step)
{
  const uint32_t N = placed->batch.chunks * placed->batch.max_length;
  struct plm_targets *targets = &placed->targets;
  targets->rows = 0;
  for (uint32_t i = first; i < N; i += step) {
    const uint32_t row = targets->rows++;
    placed->positions[row] = (int32_t)i;
    placed->labels[row] = (int32_t)(i % 20 + 4);
    placed->weights[row] = 1.0f + 0.1f * (float)(i % 7);
  }
}

/* With labels at most positions, the last block computes all rows; with few, only theirs
 * (plm_model_pass_reads). The gradients of three thirds of the labels add up to those of all. */
static void few_labels_sum_to_many(void **state)
{
  (void)state;
  for (int architecture = PLM_TRANSFORMER; architecture < PLM_ARCHITECTURES; architecture++) {
    struct scene scene;
    double loss, sum = 0.0;
    open_scene(&scene, architecture, true, PLM_PRECISION_FP32, 79);
    label(&scene.placed, 0, 1);
    float *whole = model_case_gradients_of(&scene.c, &scene.placed, &loss);
    plm_model_zero_gradients(scene.c.model);
    for (uint32_t third = 0; third < 3; third++) {
      label(&scene.placed, third, 3);
      sum += model_case_step(&scene.c, &scene.placed, 1.0f);
    }
    assert_sums_to(&scene, loss, sum, whole);
    free(whole);
    close_scene(&scene);
  }
}

/* Hidden states and logits of a model that is not open for training, whose buffers are laid out
 * differently. */
static void inference_agrees_with_the_reference(void **state)
{
  (void)state;
  for (int architecture = PLM_TRANSFORMER; architecture < PLM_ARCHITECTURES; architecture++) {
    struct scene scene;
    struct plm_error error = {0};
    double loss;
    open_scene(&scene, architecture, false, PLM_PRECISION_FP32, 53);
    const size_t N = (size_t)scene.placed.batch.chunks * scene.c.config.max_length,
                 D = scene.c.config.hidden_size;
    const size_t R = scene.placed.targets.rows, V = scene.c.config.vocab_size;
    double *expected_hidden = malloc(N * D * sizeof(double));
    double *expected_logits = malloc(R * V * sizeof(double));
    float *hidden = malloc(N * D * sizeof(float)), *logits = malloc(N * V * sizeof(float));
    free(model_case_reference(&scene.c, &scene.placed, 0.0, REFERENCE_NO_FAULT, &loss,
                              expected_hidden, expected_logits));
    const struct plm_masked_batch input = {&scene.placed.batch, scene.c.masks};
    plm_model_attention_masks(scene.c.model, &scene.placed.batch, scene.c.window, scene.c.masks);
    assert_int_equal(plm_model_infer(scene.c.model, &input, scene.placed.inputs,
                                     scene.placed.positions, (uint32_t)R, hidden, logits, &error),
                     PLM_OK);
    for (size_t i = 0; i < N * D; i++)
      assert_true(fabs((double)hidden[i] - expected_hidden[i]) < 1e-4);
    for (size_t i = 0; i < R * V; i++)
      assert_true(fabs((double)logits[i] - expected_logits[i]) < 1e-4);
    /* The logits of all positions have the same rows. */
    assert_int_equal(
        plm_model_infer(scene.c.model, &input, scene.placed.inputs, NULL, 0, NULL, logits, &error),
        PLM_OK);
    for (size_t i = 0; i < R * V; i++)
      assert_true(fabs((double)logits[(size_t)scene.placed.positions[i / V] * V + i % V] -
                       expected_logits[i]) < 1e-4);
    free(expected_hidden);
    free(expected_logits);
    free(hidden);
    free(logits);
    close_scene(&scene);
  }
}

/* One short sequence, padded to the alignment instead of max_length. */
static void a_shorter_chunk_gives_the_same_loss(void **state)
{
  (void)state;
  for (int architecture = PLM_TRANSFORMER; architecture < PLM_ARCHITECTURES; architecture++) {
    struct plm_model_config config = configuration(architecture);
    static struct case_documents documents;
    struct case_batch whole, brief;
    struct model_case c;
    double loss[2];
    case_documents_draw(&documents, (const uint32_t[]){11, 0}, config.vocab_size, 59);
    case_batch_place(&whole, &documents, 32, 4, true);
    case_batch_place(&brief, &documents, 12, 4, true);
    const struct plm_model_options options = {.max_chunks = 2, .training = true};
    model_case_open(&c, &config, &options, PLM_PRECISION_FP32, 61);
    float *first = model_case_gradients_of(&c, &whole, &loss[0]);
    float *second = model_case_gradients_of(&c, &brief, &loss[1]);
    assert_true(loss[0] > 0.0 && fabs(loss[0] - loss[1]) <= 1e-5 * loss[0]);
    assert_close(c.model, second, first);
    free(first);
    free(second);
    model_case_close(&c);
    case_batch_free(&whole);
    case_batch_free(&brief);
  }
}

/* bf16 runs through the same code. It must be near the reference, but not equal to it. */
static void bf16_is_near_the_reference(void **state)
{
  (void)state;
  for (int architecture = 0; architecture < PLM_ARCHITECTURES; architecture++) {
    if (plm_architecture_rules((enum plm_architecture)architecture)->published) continue;
    struct scene scene;
    double loss, expected_loss;
    size_t count;
    open_scene(&scene, architecture, true, PLM_PRECISION_BF16, 67);
    float *gradients = model_case_gradients_of(&scene.c, &scene.placed, &loss);
    double *expected = model_case_reference(&scene.c, &scene.placed, 1.0, REFERENCE_NO_FAULT,
                                            &expected_loss, NULL, NULL);
    const struct plm_parameter *table = plm_model_table(scene.c.model, &count);
    if (fabs(loss - expected_loss) > 2e-2 * expected_loss)
      fail_msg("loss %.6g, reference %.6g", loss, expected_loss);
    for (size_t i = 0; i < count; i++) {
      /* the terms of the gradients of a, b and s cancel */
      const double limit = table[i].group == PLM_GROUP_SCALAR ? 0.25 : 0.08;
      const double relative = case_relative(&table[i], gradients, expected);
      if (!(relative <= limit)) fail_msg("%s differs by %.3g", table[i].name, relative);
    }
    free(gradients);
    free(expected);
    close_scene(&scene);
  }
}

static void no_labels_no_loss_no_gradient(void **state)
{
  (void)state;
  struct scene scene;
  double loss;
  open_scene(&scene, PLM_UNET, true, PLM_PRECISION_FP32, 71);
  scene.placed.targets.rows = 0;
  float *gradients = model_case_gradients_of(&scene.c, &scene.placed, &loss);
  assert_true(loss == 0.0);
  for (size_t e = 0; e < plm_model_arena_elements(scene.c.model); e++)
    assert_true(gradients[e] == 0.0f);
  free(gradients);
  close_scene(&scene);
}

/* The fused head of training gives the bits of the evaluation's head, before and after it ran,
 * though it does not use the same buffers. */
static void training_has_the_loss_of_evaluation(void **state)
{
  (void)state;
  enum { MOST = 512 };
  static float rows[3][MOST];
  struct plm_loss_result results[3];
  struct plm_error error = {0};
  for (int precision = PLM_PRECISION_FP32; precision <= PLM_PRECISION_BF16; precision++) {
    struct scene scene;
    open_scene(&scene, PLM_UNET, true, precision, 77);
    const struct model_case *c = &scene.c;
    const struct case_batch *placed = &scene.placed;
    assert_true(placed->targets.rows <= MOST);
    plm_model_attention_masks(c->model, &placed->batch, c->window, c->masks);
    const struct plm_masked_batch input = {&placed->batch, c->masks};
    for (int i = 0; i < 3; i++)
      assert_int_equal(i == 1 ? plm_model_gradients(c->model, &input, &placed->targets, &c->loss,
                                                    0.5f, &results[i], rows[i], &error)
                              : plm_model_forward(c->model, &input, &placed->targets, &c->loss,
                                                  &results[i], rows[i], &error),
                       PLM_OK);
    for (int i = 1; i < 3; i++) {
      assert_true(results[i].loss == results[0].loss && results[i].rows == results[0].rows);
      assert_memory_equal(rows[i], rows[0], placed->targets.rows * sizeof(float));
    }
    close_scene(&scene);
  }
}

static void bad_batches_are_errors(void **state)
{
  (void)state;
  struct scene scene;
  struct plm_loss_result result;
  struct plm_error error = {0};
  open_scene(&scene, PLM_PATCH_UNET, true, PLM_PRECISION_FP32, 73);
  plm_model_attention_masks(scene.c.model, &scene.placed.batch, scene.c.window, scene.c.masks);
  struct plm_batch batch = scene.placed.batch;
  const struct plm_masked_batch input = {&batch, scene.c.masks};
#define FORWARD()                                                                               \
  plm_model_forward(scene.c.model, &input, &scene.placed.targets, &scene.c.loss, &result, NULL, \
                    &error)
  assert_int_equal(FORWARD(), PLM_OK);
  batch.chunks++;
  assert_int_equal(FORWARD(), PLM_LIMIT);
  batch = scene.placed.batch;
  batch.max_length = 30; /* not a multiple of 4 */
  assert_int_equal(FORWARD(), PLM_LIMIT);
  batch = scene.placed.batch;
  scene.placed.labels[1] = 33;
  assert_int_equal(FORWARD(), PLM_CORRUPT);
  scene.placed.labels[1] = -1;
  assert_int_equal(FORWARD(), PLM_CORRUPT);
  scene.placed.labels[1] = 5;
  const int32_t position = scene.placed.positions[1];
  scene.placed.positions[1] = scene.placed.positions[0];
  assert_int_equal(FORWARD(), PLM_CORRUPT);
  scene.placed.positions[1] = position;
  scene.placed.inputs[3] = 33;
  assert_int_equal(FORWARD(), PLM_CORRUPT);
  scene.placed.inputs[3] = 4;
  assert_int_equal(FORWARD(), PLM_OK);
#undef FORWARD
  close_scene(&scene);
}

/* ---- states of inner blocks -------------------------------------------------------------------
 */

struct tapped {
  uint32_t count, order[2];
  float *room, *values[2]; /* (N, D) */
  size_t elements;
};

static void take_state(void *context, uint32_t state)
{
  struct tapped *tapped = context;
  assert_true(tapped->count < 2);
  memcpy(tapped->values[tapped->count], tapped->room, tapped->elements * sizeof(float));
  tapped->order[tapped->count++] = state;
}

/* ESM-C's stream holds a multiple of the states, which depends on the number of layers. State 0 is
 * the embeddings themselves, and the last one what inference returns. */
static void states_are_without_their_scale(void **state)
{
  (void)state;
  static struct scene scene;
  struct plm_error error = {0};
  struct tapped tapped = {0};
  open_scene(&scene, PLM_ESMC, false, PLM_PRECISION_FP32, 53);
  const size_t D = scene.c.config.hidden_size,
               N = (size_t)scene.placed.batch.chunks * scene.c.config.max_length;
  float *values = must(malloc(4 * N * D * sizeof(float))), *hidden = values + 3 * N * D;
  tapped.room = values;
  tapped.elements = N * D;
  for (size_t i = 0; i < 2; i++) tapped.values[i] = values + (i + 1) * N * D;
  const uint32_t wanted[] = {scene.c.config.num_hidden_layers, 0};
  const struct plm_state_taps taps = {.states = wanted,
                                      .count = 2,
                                      .room = tapped.room,
                                      .on_state = take_state,
                                      .context = &tapped};
  const struct plm_masked_batch input = {&scene.placed.batch, scene.c.masks};
  plm_model_attention_masks(scene.c.model, &scene.placed.batch, scene.c.window, scene.c.masks);
  must_work(plm_model_infer_states(scene.c.model, &input, scene.placed.inputs, &taps, &error),
            &error);
  must_work(
      plm_model_infer(scene.c.model, &input, scene.placed.inputs, NULL, 0, hidden, NULL, &error),
      &error);
  assert_int_equal(tapped.count, 2);
  assert_true(tapped.order[0] == 0 && tapped.order[1] == wanted[0]);
  size_t count;
  const struct plm_parameter *embedding = plm_model_table(scene.c.model, &count);
  assert_string_equal(embedding->name, "esmc.embed_tokens.weight");
  double largest = 0;
  for (size_t i = 0; i < N * D; i++) {
    const int32_t token = scene.placed.inputs[i / D];
    const double expected = (double)scene.c.weights[embedding->offset + (size_t)token * D + i % D];
    assert_true(fabs((double)tapped.values[0][i] - expected) <= 1e-5 * fabs(expected));
    largest = fmax(largest, fabs(expected));
    assert_true(fabs((double)tapped.values[1][i] - (double)hidden[i]) <= 1e-5);
  }
  assert_true(largest > 0.01);
  free(values);
  close_scene(&scene);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(recomputation_gives_the_same_bits),
      cmocka_unit_test(recomputation_gives_the_same_bits_in_bf16),
      cmocka_unit_test(recomputation_of_bottlenecks),
      cmocka_unit_test(a_step_twice_gives_the_same_bits),
      cmocka_unit_test(micro_batches_sum_to_the_batch),
      cmocka_unit_test(few_labels_sum_to_many),
      cmocka_unit_test(the_loss_scale_scales_gradients_alone),
      cmocka_unit_test(inference_agrees_with_the_reference),
      cmocka_unit_test(a_shorter_chunk_gives_the_same_loss),
      cmocka_unit_test(bf16_is_near_the_reference),
      cmocka_unit_test(no_labels_no_loss_no_gradient),
      cmocka_unit_test(training_has_the_loss_of_evaluation),
      cmocka_unit_test(bad_batches_are_errors),
      cmocka_unit_test(states_are_without_their_scale),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
