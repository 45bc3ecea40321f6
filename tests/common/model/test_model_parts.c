/* A training pass that runs in parts has the bits of the whole one, and after each part the
 * gradients that are said to be final are. The losses of the chunks are the sums of their rows'.
 * Adapters drop what their keys say, in both directions. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/architecture.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"

static const uint32_t lengths[] = {13, 7, 20, 5, 3, 31, 9, 2, 30, 0};

enum { MOST_CHUNKS = 16, MOST_KEYS = 1024 };

struct scene {
  struct model_case model;
  struct case_batch placed;
  double *loss_sum, *chunk_losses; /* device */
  uint64_t keys[MOST_KEYS];        /* of the dropout of adapters */
};

static void open_scene(struct scene *s, const struct plm_model_config *config)
{
  static struct case_documents documents;
  case_documents_draw(&documents, lengths, config->vocab_size, 31);
  case_batch_place(&s->placed, &documents, config->max_length, 4, false);
  const struct plm_model_options options = {.max_chunks = s->placed.batch.chunks, .training = true};
  model_case_open(&s->model, config, &options, PLM_PRECISION_FP32, 37);
  struct plm_ops *ops = s->model.ops;
  assert_int_equal(ops->allocate(ops, sizeof *s->loss_sum, (void **)&s->loss_sum, NULL), PLM_OK);
  assert_int_equal(
      ops->allocate(ops, MOST_CHUNKS * sizeof *s->chunk_losses, (void **)&s->chunk_losses, NULL),
      PLM_OK);
  assert_true(plm_model_adapter_keys(config, s->placed.batch.chunks, config->max_length) <=
              MOST_KEYS);
  plm_model_adapter_keys_fill(config, &s->placed.batch, s->keys);
}

static void close_scene(struct scene *s)
{
  s->model.ops->release(s->model.ops, s->loss_sum);
  s->model.ops->release(s->model.ops, s->chunk_losses);
  model_case_close(&s->model);
  case_batch_free(&s->placed);
}

/* Writes the batch's targets to the model's buffers on the device. */
static struct plm_train_pass prepare(struct scene *s)
{
  struct plm_ops *ops = s->model.ops;
  const struct plm_batch *batch = &s->placed.batch;
  const struct plm_targets *targets = &s->placed.targets;
  const struct plm_device_targets to = plm_model_device_targets(s->model.model);
  const size_t tokens = (size_t)batch->chunks * batch->max_length;
  ops->upload(ops, to.inputs, targets->inputs, tokens * sizeof(int32_t));
  ops->upload(ops, to.positions, targets->positions, targets->rows * sizeof(int32_t));
  ops->upload(ops, to.labels, targets->labels, targets->rows * sizeof(int32_t));
  ops->upload(ops, to.weights, targets->weights, targets->rows * sizeof(float));
  ops->zero(ops, s->loss_sum, sizeof *s->loss_sum);
  const size_t keys = plm_model_adapter_keys(&s->model.config, batch->chunks, batch->max_length);
  if (keys > 0)
    ops->upload(ops, plm_model_device_adapter_keys(s->model.model), s->keys,
                keys * sizeof *s->keys);
  plm_model_attention_masks(s->model.model, batch, s->model.window, s->model.masks);
  plm_model_zero_gradients(s->model.model);
  return (struct plm_train_pass){.chunks = batch->chunks,
                                 .length = batch->max_length,
                                 .rows = targets->rows,
                                 .masks = s->model.masks,
                                 .loss = &s->model.loss,
                                 .loss_sum = s->loss_sum,
                                 .chunk_losses = s->chunk_losses};
}

static double loss_of(const struct scene *s)
{
  double loss;
  s->model.ops->download(s->model.ops, &loss, s->loss_sum, sizeof loss);
  assert_int_equal(s->model.ops->synchronize(s->model.ops, NULL), PLM_OK);
  return loss;
}

/* The rows' losses of a pass without gradients, added up by chunk. */
static void check_chunks(struct scene *s, double whole_loss)
{
  const struct plm_batch *batch = &s->placed.batch;
  const struct plm_targets *targets = &s->placed.targets;
  const struct plm_masked_batch input = {batch, s->model.masks};
  struct plm_loss_result result;
  double got[MOST_CHUNKS], wanted[MOST_CHUNKS] = {0}, sum = 0;
  float *rows = test_malloc(targets->rows * sizeof *rows);
  assert_true(batch->chunks > 1 && batch->chunks <= MOST_CHUNKS);
  s->model.ops->download(s->model.ops, got, s->chunk_losses, batch->chunks * sizeof *got);
  assert_int_equal(
      plm_model_forward(s->model.model, &input, targets, &s->model.loss, &result, rows, NULL),
      PLM_OK);
  for (uint32_t i = 0; i < targets->rows; i++)
    wanted[(uint32_t)targets->positions[i] / batch->max_length] += (double)rows[i];
  for (uint32_t c = 0; c < batch->chunks; c++) {
    assert_true(fabs(got[c] - wanted[c]) <= 1e-12 * wanted[c]);
    sum += got[c];
  }
  assert_true(fabs(sum - whole_loss) <= 1e-12 * whole_loss);
  test_free(rows);
}

/* Returns how many parameters are final. */
static size_t check_final(struct scene *s, const float *whole, uint32_t first)
{
  size_t count, final = 0;
  const struct plm_parameter *table = plm_model_table(s->model.model, &count);
  float *now = model_case_gradients(&s->model);
  for (size_t i = 0; i < count; i++) {
    if (table[i].final_at < first) continue;
    final++;
    if (memcmp(now + table[i].offset, whole + table[i].offset, table[i].count * sizeof *now) != 0)
      fail_msg("%s is not final after block %u", table[i].name, first);
  }
  free(now);
  return final;
}

/* Without chunk_losses, nothing is computed for them. */
static void check_without_chunks(struct scene *s, double whole_loss)
{
  struct plm_train_pass pass = prepare(s);
  void (*const sum_chunks)(struct plm_ops *, double *, const float *, const int32_t *, int64_t,
                           int64_t, int64_t) = s->model.ops->sum_chunks;
  pass.chunk_losses = NULL;
  s->model.ops->sum_chunks = NULL;
  plm_model_train(s->model.model, &pass, plm_model_whole_pass(s->model.model));
  s->model.ops->sum_chunks = sum_chunks;
  assert_true(loss_of(s) == whole_loss);
}

static void check(struct plm_model_config config)
{
  struct scene s;
  size_t count;
  open_scene(&s, &config);
  const struct plm_train_pass pass = prepare(&s);
  const struct plm_backward_part all = plm_model_whole_pass(s.model.model);
  plm_model_train(s.model.model, &pass, all);
  const double whole_loss = loss_of(&s);
  float *whole = model_case_gradients(&s.model);
  check_chunks(&s, whole_loss);
  (void)plm_model_table(s.model.model, &count);
  for (uint32_t step = 1; step <= 3; step++) { /* blocks of a part */
    size_t before = 0;
    (void)prepare(&s);
    for (uint32_t end = all.end; end > 0;) {
      const uint32_t first = end > step ? end - step : 0;
      plm_model_train(s.model.model, &pass, (struct plm_backward_part){first, end});
      const size_t final = check_final(&s, whole, first);
      assert_true(final > before);
      before = final;
      end = first;
    }
    assert_int_equal(before, count);
    assert_true(loss_of(&s) == whole_loss);
    check_chunks(&s, whole_loss);
  }
  check_without_chunks(&s, whole_loss);
  free(whole);
  close_scene(&s);
}

static void transformer(void **state)
{
  (void)state;
  check(case_config(PLM_TRANSFORMER, 6, 32));
}

static void unet(void **state)
{
  (void)state;
  struct plm_model_config config = case_config(PLM_UNET, 6, 32);
  check(config);
  config.tie_embeddings = true;
  check(config);
}

static void patch_unet(void **state)
{
  (void)state;
  check(case_config(PLM_PATCH_UNET, 6, 32));
}

/* ---- dropout of adapters ---------------------------------------------------------------------
 */

static const uint64_t seeds[] = {1, 2};

static double dropping_loss(struct scene *s, const uint64_t *seed)
{
  struct plm_train_pass pass = prepare(s);
  pass.dropout_seed = seed;
  plm_model_train(s->model.model, &pass, plm_model_whole_pass(s->model.model));
  return loss_of(s);
}

/* The loss at weights + h * direction. */
static double moved_loss(struct scene *s, const double *direction, double h)
{
  const size_t elements = plm_model_arena_elements(s->model.model);
  float *moved = test_malloc(elements * sizeof *moved);
  for (size_t e = 0; e < elements; e++)
    moved[e] = (float)((double)s->model.weights[e] + h * direction[e]);
  plm_model_load(s->model.model, moved);
  test_free(moved);
  return dropping_loss(s, seeds);
}

/* The loss changes along the gradient of some parameters as that says. kind: what their names
 * have; NULL: of all but adapters. */
static void check_slope(struct scene *s, const float *gradients, const char *kind)
{
  enum { STEPS = 512 };
  size_t count;
  const struct plm_parameter *table = plm_model_table(s->model.model, &count);
  double *direction = test_calloc(plm_model_arena_elements(s->model.model), sizeof *direction);
  double norm = 0;
  for (size_t i = 0; i < count; i++) {
    if (kind == NULL ? table[i].adapter != 0 : strstr(table[i].name, kind) == NULL) continue;
    for (size_t e = table[i].offset; e < table[i].offset + table[i].count; e++) {
      direction[e] = (double)gradients[e];
      norm += direction[e] * direction[e];
    }
  }
  assert_true(norm > 0);
  const double h = 1.0 / STEPS / sqrt(norm);
  const double slope = (moved_loss(s, direction, h) - moved_loss(s, direction, -h)) / (2 * h);
  if (!(fabs(slope / norm - 1) < 0.005))
    fail_msg("%s: slope %g, not %g", kind == NULL ? "the others" : kind, slope, norm);
  plm_model_load(s->model.model, s->model.weights);
  test_free(direction);
}

/* Other keys of one chunk on one level change the loss of this chunk, and of no other one. */
static void check_keys(struct scene *s)
{
  const struct plm_batch *batch = &s->placed.batch;
  struct plm_ops *ops = s->model.ops;
  double before[MOST_CHUNKS], after[MOST_CHUNKS];
  uint64_t *keys = s->keys;
  (void)dropping_loss(s, seeds);
  ops->download(ops, before, s->chunk_losses, sizeof before);
  for (int level = 0; level < plm_architecture_levels(&s->model.config); level++)
    for (uint32_t c = 0; c < batch->chunks; c++) {
      const uint32_t rows = batch->max_length >> level;
      for (uint32_t x = 0; x < rows; x++) keys[x] += UINT64_C(1) << 40;
      (void)dropping_loss(s, seeds);
      for (uint32_t x = 0; x < rows; x++) keys[x] -= UINT64_C(1) << 40;
      keys += rows;
      ops->download(ops, after, s->chunk_losses, sizeof after);
      for (uint32_t k = 0; k < batch->chunks; k++)
        if ((after[k] == before[k]) != (k != c)) fail_msg("level %d, chunk %u: %u", level, c, k);
    }
}

/* With a large factor, so that much of what a gradient is comes through the adapters. */
static void adapters_drop_by_their_keys(void **state)
{
  static const enum plm_architecture architectures[] = {PLM_TRANSFORMER, PLM_PATCH_UNET, PLM_ESM2,
                                                        PLM_ESMC};
  (void)state;
  for (int a = 0; a < 4; a++) {
    struct plm_model_config config = case_config(architectures[a], a < 2 ? 6 : 1, 32);
    struct scene s;
    struct plm_loss_result result;
    config.lora = (struct plm_lora_config){
        .rank = 3,
        .alpha = 48,
        .targets = architectures[a] == PLM_ESMC ? 0x7f : 0x7f ^ 1U << PLM_LORA_GATE,
        .dropout = 0.25};
    open_scene(&s, &config);
    const double loss = dropping_loss(&s, seeds);
    float *gradients = model_case_gradients(&s.model);
    check_slope(&s, gradients, ".lora_A");
    check_slope(&s, gradients, ".lora_B");
    check_slope(&s, gradients, NULL);
    free(gradients);
    assert_true(dropping_loss(&s, &seeds[1]) != loss);
    assert_true(dropping_loss(&s, seeds) == loss);
    check_keys(&s);
    const double undropped = dropping_loss(&s, NULL);
    assert_int_equal(plm_model_forward(s.model.model,
                                       &(struct plm_masked_batch){&s.placed.batch, s.model.masks},
                                       &s.placed.targets, &s.model.loss, &result, NULL, NULL),
                     PLM_OK);
    assert_true(fabs(result.loss - undropped) <= 1e-12 * undropped && undropped != loss);
    close_scene(&s);
  }
}

/* Of the three products that one operator computes, only some have adapters. */
static void some_products_have_adapters(void **state)
{
  static const unsigned targets[] = {1U << PLM_LORA_V, 1U << PLM_LORA_Q | 1U << PLM_LORA_V,
                                     1U << PLM_LORA_K | 1U << PLM_LORA_UP};
  (void)state;
  for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
    struct plm_model_config config = case_config(PLM_TRANSFORMER, 1, 32);
    struct scene s;
    config.lora =
        (struct plm_lora_config){.rank = 3, .alpha = 48, .targets = targets[i], .dropout = 0.25};
    open_scene(&s, &config);
    (void)dropping_loss(&s, seeds);
    float *gradients = model_case_gradients(&s.model);
    check_slope(&s, gradients, ".lora_A");
    check_slope(&s, gradients, ".lora_B");
    free(gradients);
    close_scene(&s);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(transformer), cmocka_unit_test(unet), cmocka_unit_test(patch_unet),
      cmocka_unit_test(some_products_have_adapters), cmocka_unit_test(adapters_drop_by_their_keys)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
