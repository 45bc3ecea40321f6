/* trainer/step/step on a small language model: its result against the model's loss and gradient of
 * the whole batch, however the step is cut; rehearsals, staging, steps that are abandoned or
 * skipped, and what is measured only in some steps. */
#include "trainer/step/step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "trainer/trainer_options.h"

enum { CHUNKS = 4, L = 32, MOST_CALLS = 32, FAR = 7 };

static const uint32_t lengths[] = {30, 20, 9, 32, 25, 6, 0};

struct scene {
  struct plm_config config;
  struct model_case model;
  struct case_batch placed;
  struct plm_objective_state objective;
  struct plm_optimizer *optimizer;
  struct plm_clip clip;
  struct plm_ranks ranks;
  uint32_t *owners;
  struct plm_step *step;
  struct plm_step_input input;
  void *block;
  float *before; /* the weights before anything */
  size_t elements;
};

/* What a step is cut into, and what it measures. */
struct cut {
  uint32_t micro_chunks, shares;
  double mask_rate, clip_norm;
  uint64_t norms_every;
  bool chunk_losses;
};
static const struct cut whole = {.micro_chunks = CHUNKS, .shares = 1, .mask_rate = 0.3};

/* The calls that choose the targets of a micro-batch, and the copies of inputs. */
static void (*choose_truly)(struct plm_ops *, const struct plm_target_rows *,
                            const struct plm_target_tokens *, const struct plm_masking *);
static void (*copy_truly)(struct plm_ops *, void *, const void *, size_t);
static uint32_t chosen[MOST_CALLS], chosen_count, beside_count, follow_count;

static void choose(struct plm_ops *ops, const struct plm_target_rows *to,
                   const struct plm_target_tokens *from, const struct plm_masking *masking)
{
  PLM_ASSERT(chosen_count < MOST_CALLS);
  chosen[chosen_count++] = (uint32_t)from->B;
  choose_truly(ops, to, from, masking);
}

static void copy_beside(struct plm_ops *ops, void *device, const void *host, size_t bytes)
{
  beside_count++;
  copy_truly(ops, device, host, bytes);
}

static void count_follow(struct plm_ops *ops)
{
  (void)ops;
  follow_count++;
}

static void open_config(struct scene *s, const struct cut *cut)
{
  char yaml[1024];
  struct plm_error error = {0};
  snprintf(yaml, sizeof yaml,
           "model: {architecture: transformer, hidden_size: 32, num_attention_heads: 2, "
           "num_hidden_layers: 2}\ndata: {max_length: %d}\n"
           "trainer: {batch_tokens: %d, steps: 100, precision: fp32, threads: 1, clip: {norm: %g}, "
           "masking: {mask_rate: %g, starting_mask_rate: %g}, "
           "schedule: {warmup_steps: 0, cooldown_steps: 0}}\n",
           L, CHUNKS * L, cut->clip_norm, cut->mask_rate, cut->mask_rate);
  must_work(plm_config_load_text(yaml, strlen(yaml), &s->config, &error), &error);
}

static void open_scene(struct scene *s, const struct cut *cut)
{
  static struct case_documents documents;
  struct plm_error error = {0};
  size_t count;
  *s = (struct scene){.ranks = plm_ranks_single()};
  open_config(s, cut);
  const struct plm_model_options options = {.max_chunks = CHUNKS, .training = true};
  model_case_open(&s->model, &s->config.model, &options, PLM_PRECISION_FP32, 4);
  struct plm_ops *ops = s->model.ops;
  case_documents_draw(&documents, lengths, s->config.model.vocab_size, 3);
  case_batch_place(&s->placed, &documents, L, 1, false);
  assert_int_equal(s->placed.batch.chunks, CHUNKS);
  const struct plm_objective_options objective = plm_objective_options_of(&s->config);
  must_work(plm_objective_init(&s->objective, &objective, CHUNKS, CHUNKS, &error), &error);
  must_work(plm_optimizer_open(&s->config.trainer, s->model.model, NULL, &s->optimizer, &error),
            &error);
  plm_model_table(s->model.model, &count);
  s->owners = must(calloc(count, sizeof *s->owners));
  choose_truly = ops->choose_targets;
  copy_truly = ops->upload_beside;
  ops->choose_targets = choose;
  ops->upload_beside = copy_beside;
  ops->compute_follows = count_follow;
  const struct plm_step_parts parts = {.trainer = &s->config.trainer,
                                       .model = s->model.model,
                                       .masks = s->model.masks,
                                       .objective = &s->objective,
                                       .optimizer = s->optimizer,
                                       .clip = &s->clip,
                                       .loss = s->model.loss,
                                       .step_chunks = CHUNKS,
                                       .micro_chunks = cut->micro_chunks,
                                       .max_length = L,
                                       .shares = cut->shares,
                                       .ranks = &s->ranks,
                                       .owners = s->owners,
                                       .norms_every = cut->norms_every,
                                       .chunk_losses = cut->chunk_losses};
  must_work(plm_step_open(&parts, &s->step, &error), &error);
  const struct plm_step_shape shape = plm_step_shape(s->step);
  s->block = must(calloc(1, plm_step_input_bytes(&shape)));
  plm_step_input_init(&s->input, &shape, s->block);
  s->elements = plm_model_arena_elements(s->model.model);
  s->before = must(malloc(s->elements * sizeof(float)));
  memcpy(s->before, s->model.weights, s->elements * sizeof(float));
  chosen_count = beside_count = follow_count = 0;
}

static void close_scene(struct scene *s)
{
  plm_step_close(s->step);
  plm_step_input_deinit(&s->input);
  plm_optimizer_close(s->optimizer);
  plm_objective_deinit(&s->objective);
  case_batch_free(&s->placed);
  model_case_close(&s->model);
  plm_config_deinit(&s->config);
  free(s->owners);
  free(s->block);
  free(s->before);
}

static void fill(struct scene *s, uint64_t number)
{
  const struct plm_step_shape shape = plm_step_shape(s->step);
  s->placed.batch.first_chunk = number * CHUNKS;
  assert_int_equal(plm_step_input_fill(&s->input, &shape, number, &s->placed.batch, NULL), PLM_OK);
}

static struct plm_step_result run(struct scene *s, uint64_t number)
{
  struct plm_step_result result;
  fill(s, number);
  assert_int_equal(plm_step_launch(s->step, &s->input, NULL, NULL, NULL), PLM_OK);
  assert_int_equal(plm_step_finish(s->step, &s->input, &result, NULL), PLM_OK);
  return result;
}

/* The weights now; the caller frees them. */
static float *weights_of(struct scene *s)
{
  float *now = must(malloc(s->elements * sizeof(float)));
  s->model.ops->download(s->model.ops, now, plm_model_parameter_arena(s->model.model),
                         s->elements * sizeof(float));
  return now;
}

static bool weights_are_as_before(struct scene *s)
{
  float *now = weights_of(s);
  const bool same = memcmp(now, s->before, s->elements * sizeof(float)) == 0;
  free(now);
  return same;
}

/* ---- what is expected ------------------------------------------------------------------------ */

static bool hits(const struct scene *s, const float *logits, int32_t label)
{
  for (uint32_t v = 0; v < s->config.model.vocab_size; v++)
    if (logits[v] > logits[label]) return false;
  return true;
}

/* Loss, norm and accuracy of the batch in one piece, at the weights of now. */
static struct plm_step_result in_one_piece(struct scene *s, uint64_t number)
{
  struct plm_targets targets;
  struct plm_loss_result loss;
  uint64_t count;
  double squares = 0, right = 0;
  const struct plm_batch *batch = &s->placed.batch;
  const struct plm_masked_batch input = {batch, s->model.masks};
  struct plm_model *model = s->model.model;
  s->placed.batch.first_chunk = number * CHUNKS;
  plm_model_attention_masks(model, batch, s->config.model.window_start, s->model.masks);
  plm_objective_targets(&s->objective, number, 0, batch, &targets, &count);
  plm_model_zero_gradients(model);
  assert_int_equal(
      plm_model_gradients(model, &input, &targets, &s->model.loss, 1, &loss, NULL, NULL), PLM_OK);
  float *gradients = model_case_gradients(&s->model);
  for (size_t i = 0; i < s->elements; i++) squares += (double)gradients[i] * (double)gradients[i];
  free(gradients);
  const uint32_t V = s->config.model.vocab_size;
  float *logits = must(malloc((size_t)targets.rows * V * sizeof *logits));
  assert_int_equal(plm_model_infer(model, &input, targets.inputs, targets.positions, targets.rows,
                                   NULL, logits, NULL),
                   PLM_OK);
  for (uint32_t r = 0; r < targets.rows; r++)
    right += hits(s, logits + (size_t)r * V, targets.labels[r]);
  free(logits);
  return (struct plm_step_result){.loss = loss.loss / (double)count,
                                  .grad_norm = sqrt(squares) / (double)count,
                                  .accuracy = right / (double)targets.rows,
                                  .totals = {.count = count, .rows = targets.rows}};
}

static void near(double got, double expected)
{
  if (!(fabs(got - expected) <= 1e-4 * fabs(expected))) fail_msg("%.9g is not %.9g", got, expected);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* However the step is cut, it has the loss, the norm and the accuracy of the batch in one piece,
 * and ends with the same weights up to rounding. */
static void any_cut_is_the_same_step(void **state)
{
  (void)state;
  static const uint32_t cuts[][2] = {{CHUNKS, 1}, {3, 1}, {1, 1}, {2, 2}, {1, 2}, {1, CHUNKS}};
  float *first = NULL;
  for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
    struct scene s;
    struct cut cut = whole;
    cut.micro_chunks = cuts[i][0];
    cut.shares = cuts[i][1];
    open_scene(&s, &cut);
    for (uint64_t number = 0; number < 2; number++) {
      const struct plm_step_result expected = in_one_piece(&s, number), got = run(&s, number);
      near(got.loss, expected.loss);
      near(got.grad_norm, expected.grad_norm);
      near(got.accuracy, expected.accuracy);
      assert_int_equal(got.totals.count, expected.totals.count);
      assert_int_equal(got.totals.rows, expected.totals.rows);
      assert_true(got.flops > 0 && !got.skipped && got.clip_norm == 0 && got.slowest_rank == -1);
      assert_true(got.norms == NULL && got.chunks == NULL);
      assert_int_equal(plm_optimizer_updates(s.optimizer), number + 1);
    }
    float *weights = weights_of(&s);
    if (first == NULL)
      first = must(malloc(s.elements * sizeof *first)),
      memcpy(first, weights, s.elements * sizeof *first);
    double apart = 0, moved = 0;
    for (size_t e = 0; e < s.elements; e++) {
      apart += pow((double)weights[e] - (double)first[e], 2);
      moved += pow((double)weights[e] - (double)s.before[e], 2);
    }
    assert_true(moved > 0 && sqrt(apart) < 1e-2 * sqrt(moved));
    free(weights);
    close_scene(&s);
  }
  free(first);
}

/* A rehearsal runs every micro-batch, so that the products of each shape are tuned, and leaves no
 * trace: the step after it has the same bits. */
static void rehearsals_leave_no_trace(void **state)
{
  (void)state;
  struct scene plain, rehearsed;
  struct cut cut = whole;
  cut.micro_chunks = 3; /* a second micro-batch of another shape */
  open_scene(&plain, &cut);
  const struct plm_step_result expected = run(&plain, 0);
  float *weights = weights_of(&plain);
  close_scene(&plain);
  open_scene(&rehearsed, &cut);
  fill(&rehearsed, 0);
  assert_int_equal(plm_step_rehearse(rehearsed.step, &rehearsed.input, NULL), PLM_OK);
  assert_int_equal(chosen_count, 2);
  assert_true(chosen[0] == 3 && chosen[1] == 1);
  assert_true(weights_are_as_before(&rehearsed));
  assert_int_equal(plm_optimizer_updates(rehearsed.optimizer), 0);
  const struct plm_step_result got = run(&rehearsed, 0);
  float *now = weights_of(&rehearsed);
  assert_true(got.loss == expected.loss && got.grad_norm == expected.grad_norm);
  assert_true(got.accuracy == expected.accuracy && got.flops == expected.flops);
  assert_memory_equal(now, weights, rehearsed.elements * sizeof *now);
  free(now);
  free(weights);
  close_scene(&rehearsed);
}

/* An input is copied once: beside the computation if there was time, else when the step begins. The
 * input of the next step has a place of its own. */
static void inputs_are_copied_once(void **state)
{
  (void)state;
  struct scene s;
  struct plm_step_input next;
  struct plm_step_result result, alone[2];
  open_scene(&s, &whole);
  for (uint64_t number = 0; number < 2; number++) alone[number] = run(&s, number);
  assert_int_equal(beside_count, 0);
  close_scene(&s);
  open_scene(&s, &whole);
  const struct plm_step_shape shape = plm_step_shape(s.step);
  void *block = must(calloc(1, plm_step_input_bytes(&shape)));
  plm_step_input_init(&next, &shape, block);
  fill(&s, 0);
  plm_step_stage(s.step, &s.input);
  plm_step_stage(s.step, &s.input);
  assert_true(beside_count == 1 && follow_count == 1);
  s.placed.batch.first_chunk = CHUNKS;
  assert_int_equal(plm_step_input_fill(&next, &shape, 1, &s.placed.batch, NULL), PLM_OK);
  plm_step_stage(s.step, &next);
  assert_true(beside_count == 2 && follow_count == 2);
  assert_int_equal(plm_step_launch(s.step, &s.input, NULL, NULL, NULL), PLM_OK);
  assert_int_equal(plm_step_finish(s.step, &s.input, &result, NULL), PLM_OK);
  assert_true(result.loss == alone[0].loss && result.totals.count == alone[0].totals.count);
  assert_int_equal(plm_step_launch(s.step, &next, NULL, NULL, NULL), PLM_OK);
  assert_int_equal(plm_step_finish(s.step, &next, &result, NULL), PLM_OK);
  assert_true(result.loss == alone[1].loss && result.grad_norm == alone[1].grad_norm);
  assert_int_equal(beside_count, 2);
  plm_step_input_deinit(&next);
  free(block);
  close_scene(&s);
}

struct asked {
  uint32_t count, done[CHUNKS], total[CHUNKS];
  uint32_t stop_at; /* the answer is no when so many are done */
};

static plm_status ask(void *context, uint32_t done, uint32_t total, struct plm_error *error)
{
  struct asked *asked = context;
  PLM_ASSERT(asked->count < CHUNKS);
  asked->done[asked->count] = done;
  asked->total[asked->count++] = total;
  return done == asked->stop_at ? plm_error_set(error, PLM_INTERRUPTED, "no more") : PLM_OK;
}

static void steps_are_asked_and_abandoned(void **state)
{
  (void)state;
  struct scene s;
  struct cut cut = whole;
  struct asked asked = {.stop_at = FAR};
  struct plm_step_result result;
  struct plm_error error = {0};
  cut.micro_chunks = 1;
  open_scene(&s, &cut);
  fill(&s, 0);
  assert_int_equal(plm_step_launch(s.step, &s.input, ask, &asked, &error), PLM_OK);
  assert_int_equal(plm_step_finish(s.step, &s.input, &result, &error), PLM_OK);
  assert_int_equal(asked.count, CHUNKS - 1);
  for (uint32_t i = 0; i + 1 < CHUNKS; i++)
    assert_true(asked.done[i] == i + 1 && asked.total[i] == CHUNKS);
  close_scene(&s);

  open_scene(&s, &cut);
  asked = (struct asked){.stop_at = 2};
  fill(&s, 0);
  assert_int_equal(plm_step_launch(s.step, &s.input, ask, &asked, &error), PLM_INTERRUPTED);
  assert_string_equal(error.what, "no more");
  assert_int_equal(asked.count, 2);
  assert_int_equal(chosen_count, 2);
  assert_true(weights_are_as_before(&s));
  assert_int_equal(plm_optimizer_updates(s.optimizer), 0);
  close_scene(&s);
}

/* Nothing is masked: no micro-batch runs, and nothing changes. */
static void steps_without_labels_are_skipped(void **state)
{
  (void)state;
  struct scene s;
  struct cut cut = whole;
  cut.micro_chunks = 2;
  cut.mask_rate = 1e-9;
  cut.clip_norm = 1;
  cut.chunk_losses = true;
  open_scene(&s, &cut);
  const struct plm_step_result got = run(&s, 0);
  assert_true(isnan(got.loss) && isnan(got.grad_norm) && isnan(got.accuracy));
  assert_true(got.skipped && got.clip_norm == 0);
  assert_int_equal(got.totals.rows, 0);
  assert_int_equal(chosen_count, 0);
  for (uint32_t c = 0; c < CHUNKS; c++) assert_true(got.chunks[c].loss == 0);
  assert_true(weights_are_as_before(&s));
  assert_int_equal(plm_optimizer_updates(s.optimizer), 0);
  close_scene(&s);
}

static void clipping_is_reported(void **state)
{
  (void)state;
  struct scene s;
  struct cut cut = whole;
  cut.clip_norm = 1e-3;
  open_scene(&s, &cut);
  const struct plm_step_result expected = in_one_piece(&s, 0), got = run(&s, 0);
  assert_true(got.clip_norm == 1e-3);
  near(got.grad_norm, expected.grad_norm); /* before clipping */
  assert_true(got.grad_norm > 1e-3);
  close_scene(&s);
}

static void norms_are_measured_every_few_steps(void **state)
{
  (void)state;
  struct scene s;
  struct cut cut = whole;
  cut.norms_every = 3;
  open_scene(&s, &cut);
  for (uint64_t number = 0; number < 6; number++) {
    double squares = 0;
    const struct plm_step_result got = run(&s, number);
    assert_int_equal(got.norms != NULL, number % 3 == 2);
    if (got.norms == NULL) continue;
    for (size_t i = 0; i < plm_layer_norms_count(got.norms); i++) {
      squares += pow(plm_layer_norms_value(got.norms, PLM_MEASURED_GRADIENT, i), 2);
      assert_true(plm_layer_norms_value(got.norms, PLM_MEASURED_UPDATE, i) > 0);
    }
    near(sqrt(squares), got.grad_norm);
  }
  close_scene(&s);
}

/* The losses of the chunks add up to that of the step, in any micro-batches. */
static void chunks_have_their_losses(void **state)
{
  (void)state;
  double alone[CHUNKS] = {0};
  for (uint32_t micro = CHUNKS; micro > 0; micro--) {
    struct scene s;
    struct cut cut = whole;
    double sum = 0;
    uint64_t rows = 0, count = 0;
    cut.micro_chunks = micro;
    cut.chunk_losses = true;
    open_scene(&s, &cut);
    const struct plm_step_result got = run(&s, 0);
    for (uint32_t c = 0; c < CHUNKS; c++) {
      if (micro == CHUNKS) alone[c] = got.chunks[c].loss;
      assert_true(got.chunks[c].loss > 0);
      near(got.chunks[c].loss, alone[c]);
      sum += got.chunks[c].loss;
      rows += got.chunks[c].totals.rows;
      count += got.chunks[c].totals.count;
    }
    near(sum / (double)got.totals.count, got.loss);
    assert_true(rows == got.totals.rows && count == got.totals.count);
    close_scene(&s);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_cut_is_the_same_step),
      cmocka_unit_test(rehearsals_leave_no_trace),
      cmocka_unit_test(inputs_are_copied_once),
      cmocka_unit_test(steps_are_asked_and_abandoned),
      cmocka_unit_test(steps_without_labels_are_skipped),
      cmocka_unit_test(clipping_is_reported),
      cmocka_unit_test(norms_are_measured_every_few_steps),
      cmocka_unit_test(chunks_have_their_losses),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
