/* Batches, targets and positions that a model refuses, in every function that takes a batch, and
 * the last ones that it takes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/architecture.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"

enum { CHUNKS = 2, LENGTH = 8, VOCABULARY = 33 };

/* A model with room for two chunks, and documents that fill them. */
struct scene {
  struct model_case c;
  struct case_batch placed;
  float *outputs;
};

static void open_layers(struct scene *s, uint32_t layers)
{
  static struct case_documents documents;
  const struct plm_model_config config = case_config(PLM_PATCH_UNET, layers, LENGTH);
  const struct plm_model_options options = {.max_chunks = CHUNKS, .training = true};
  case_documents_draw(&documents, (const uint32_t[]){LENGTH, LENGTH, 0}, config.vocab_size, 3);
  case_batch_place(&s->placed, &documents, LENGTH, 1, false);
  assert_int_equal(s->placed.batch.chunks, CHUNKS);
  model_case_open(&s->c, &config, &options, PLM_PRECISION_FP32, 5);
  plm_model_attention_masks(s->c.model, &s->placed.batch, s->c.window, s->c.masks);
  s->outputs = must(malloc(sizeof(float) * CHUNKS * LENGTH *
                           (VOCABULARY > config.hidden_size ? VOCABULARY : config.hidden_size)));
}

static void open_scene(struct scene *s)
{
  open_layers(s, 4);
}

static void close_scene(struct scene *s)
{
  free(s->outputs);
  model_case_close(&s->c);
  case_batch_free(&s->placed);
}

static void ignore_state(void *context, uint32_t index)
{
  (void)context, (void)index;
}

/* Calls one of the functions with the scene's batch and targets. */
static plm_status call(struct scene *s, int function, struct plm_error *error)
{
  const struct plm_masked_batch input = {&s->placed.batch, s->c.masks};
  static const uint32_t none[] = {0};
  const struct plm_state_taps taps = {
      .states = none, .count = 1, .room = s->outputs, .on_state = ignore_state};
  struct plm_loss_result result;
  switch (function) {
  case 0:
    return plm_model_infer(s->c.model, &input, s->placed.inputs, NULL, 0, s->outputs, NULL, error);
  case 1: return plm_model_infer_states(s->c.model, &input, s->placed.inputs, &taps, error);
  case 2:
    return plm_model_forward(s->c.model, &input, &s->placed.targets, &s->c.loss, &result, NULL,
                             error);
  default:
    return plm_model_gradients(s->c.model, &input, &s->placed.targets, &s->c.loss, 1, &result, NULL,
                               error);
  }
}

/* Each function says the same. */
static void refused(struct scene *s, plm_status status, const char *what, int first)
{
  for (int function = first; function < 4; function++) {
    struct plm_error error = {0};
    assert_int_equal(call(s, function, &error), status);
    assert_string_equal(error.what, what);
  }
}

static void accepted(struct scene *s)
{
  for (int function = 0; function < 4; function++) {
    struct plm_error error = {0};
    if (call(s, function, &error) != PLM_OK) fail_msg("function %d: %s", function, error.what);
  }
}

static void batches_are_checked(void **state)
{
  struct scene s;
  (void)state;
  open_scene(&s);
  struct plm_batch *batch = &s.placed.batch;
  int32_t *inputs = s.placed.inputs;
  accepted(&s);
  batch->chunks = 0;
  refused(&s, PLM_LIMIT, "a batch of 0 chunks; the model takes 1 to 2", 0);
  batch->chunks = CHUNKS + 1;
  refused(&s, PLM_LIMIT, "a batch of 3 chunks; the model takes 1 to 2", 0);
  batch->chunks = CHUNKS;
  const uint32_t group = plm_architecture_group(&s.c.config);
  assert_int_equal(group, 2);
  batch->max_length = 0;
  refused(&s, PLM_LIMIT, "chunks of 0 tokens; the model takes multiples of 2 up to 8", 0);
  batch->max_length = LENGTH + group;
  refused(&s, PLM_LIMIT, "chunks of 10 tokens; the model takes multiples of 2 up to 8", 0);
  batch->max_length = LENGTH - 1;
  refused(&s, PLM_LIMIT, "chunks of 7 tokens; the model takes multiples of 2 up to 8", 0);
  batch->max_length = LENGTH;
  for (int i = 0; i < CHUNKS * LENGTH; i += CHUNKS * LENGTH - 1) { /* the first and the last */
    char what[80];
    const int32_t kept = inputs[i];
    inputs[i] = VOCABULARY - 1;
    accepted(&s);
    inputs[i] = VOCABULARY;
    snprintf(what, sizeof what, "token 33 at %d is outside the vocabulary of 33", i);
    refused(&s, PLM_CORRUPT, what, 0);
    inputs[i] = -1;
    snprintf(what, sizeof what, "token -1 at %d is outside the vocabulary of 33", i);
    refused(&s, PLM_CORRUPT, what, 0);
    inputs[i] = kept;
  }
  close_scene(&s);
}

static void targets_are_checked(void **state)
{
  struct scene s;
  (void)state;
  open_scene(&s);
  int32_t positions[] = {0, 9, CHUNKS * LENGTH - 1}, labels[] = {0, 5, VOCABULARY - 1};
  const float weights[] = {1, 1, 1};
  s.placed.targets.rows = 3;
  s.placed.targets.positions = positions;
  s.placed.targets.labels = labels;
  s.placed.targets.weights = weights;
  accepted(&s);
  positions[2] = CHUNKS * LENGTH;
  refused(&s, PLM_CORRUPT, "labelled position 16 is out of order or range", 2);
  positions[2] = 9;
  refused(&s, PLM_CORRUPT, "labelled position 9 is out of order or range", 2);
  positions[2] = 10;
  accepted(&s);
  positions[0] = -1;
  refused(&s, PLM_CORRUPT, "labelled position -1 is out of order or range", 2);
  positions[0] = 0;
  labels[0] = -1;
  refused(&s, PLM_CORRUPT, "label -1 is outside the vocabulary of 33", 2);
  labels[0] = 0;
  labels[2] = VOCABULARY;
  refused(&s, PLM_CORRUPT, "label 33 is outside the vocabulary of 33", 2);
  s.placed.targets.rows = 2; /* the third one is not read */
  accepted(&s);
  s.placed.targets.rows = 0;
  accepted(&s);
  close_scene(&s);
}

static void positions_are_checked(void **state)
{
  static const struct {
    int32_t first, last;
    uint32_t rows;
    const char *what; /* NULL: they are taken */
  } rows[] = {
      {0, CHUNKS * LENGTH - 1, 2, NULL},
      {-1, 3, 2, "position -1 is outside the 16 positions of the batch"},
      {0, CHUNKS * LENGTH, 2, "position 16 is outside the 16 positions of the batch"},
      {0, CHUNKS * LENGTH, 1, NULL},
      {0, 1, CHUNKS * LENGTH, NULL},
      {0, 1, CHUNKS * LENGTH + 1, "logits of 17 positions were requested, but the batch has 16"},
  };
  struct scene s;
  (void)state;
  open_scene(&s);
  const struct plm_masked_batch input = {&s.placed.batch, s.c.masks};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    int32_t positions[CHUNKS * LENGTH + 1] = {rows[i].first, rows[i].last};
    struct plm_error error = {0};
    const plm_status status = plm_model_infer(s.c.model, &input, s.placed.inputs, positions,
                                              rows[i].rows, NULL, s.outputs, &error);
    if (rows[i].what == NULL) {
      assert_int_equal(status, PLM_OK);
      continue;
    }
    assert_int_equal(status, rows[i].rows > CHUNKS * LENGTH ? PLM_LIMIT : PLM_CORRUPT);
    assert_string_equal(error.what, rows[i].what);
  }
  close_scene(&s);
}

struct tapped {
  uint32_t blocks[16], count;
};

static void note_block(void *context, uint32_t block)
{
  struct tapped *tapped = context;
  assert_true(tapped->count < 16);
  tapped->blocks[tapped->count++] = block;
}

/* Each block with attention is handed out once; two of the ten have only one position. */
static void bottlenecks_have_no_attention(void **state)
{
  (void)state;
  struct scene s;
  struct tapped tapped = {.count = 0};
  struct plm_error error = {0};
  open_layers(&s, 10);
  const struct plm_model_config *config = &s.c.config;
  float *room = must(malloc(sizeof *room * 3 * CHUNKS * LENGTH * config->hidden_size));
  const struct plm_masked_batch input = {&s.placed.batch, s.c.masks};
  const struct plm_state_taps taps = {.room = room, .on_attention = note_block, .context = &tapped};
  must_work(plm_model_infer_states(s.c.model, &input, s.placed.inputs, &taps, &error), &error);
  uint32_t expected = 0;
  for (uint32_t block = 0; block < plm_architecture_blocks(config); block++) {
    struct plm_block_shape shape;
    plm_architecture_block(config, block, &shape);
    if (shape.kind == PLM_BLOCK_BOTTLENECK) continue;
    assert_true(expected < tapped.count);
    assert_int_equal(tapped.blocks[expected++], block);
  }
  assert_int_equal(tapped.count, expected);
  assert_true(expected > 0 && expected < plm_architecture_blocks(config));
  free(room);
  close_scene(&s);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(batches_are_checked),
      cmocka_unit_test(targets_are_checked),
      cmocka_unit_test(bottlenecks_have_no_attention),
      cmocka_unit_test(positions_are_checked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
