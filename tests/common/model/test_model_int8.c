/* A model opened for int8: what it keeps of its parameters, how much memory it takes, that its
 * states are close to those of fp32 and do not depend on the batch, and what is refused. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"

static const uint32_t lengths[] = {13, 7, 20, 5, 3, 31, 9, 2, 30, 0};

static plm_status (*allocate)(struct plm_ops *ops, size_t bytes, void **buffer,
                              struct plm_error *error);
static uint64_t taken;

static plm_status count_allocation(struct plm_ops *ops, size_t bytes, void **buffer,
                                   struct plm_error *error)
{
  taken += bytes;
  return allocate(ops, bytes, buffer, error);
}

static struct plm_ops *open_ops(enum plm_precision precision)
{
  struct plm_ops *ops;
  assert_int_equal(plm_ops_cpu_open(precision, 2, NULL, &ops, NULL), PLM_OK);
  return ops;
}

/* With every kind of layer, and with adapters on half of the products if `adapted`. */
static struct plm_model_config config_of(int architecture, bool adapted)
{
  struct plm_model_config config = case_config((enum plm_architecture)architecture, 6, 32);
  case_alternate(&config, PLM_ATTENTION_CAUSAL);
  if (adapted)
    config.lora = (struct plm_lora_config){
        .rank = 3, .alpha = 4, .targets = 1u << PLM_LORA_Q | 1u << PLM_LORA_UP};
  return config;
}

/* Whether a block multiplies by it: its name says so. */
static bool is_of_blocks(const struct plm_parameter *parameter)
{
  return parameter->ndim == 2 && parameter->group == PLM_GROUP_HIDDEN && parameter->adapter == 0;
}

/* ---- what is kept ---- */
static void expect_kept(struct plm_model *model, const float *weights)
{
  size_t count, kept = 0, left = 0;
  const struct plm_parameter *table = plm_model_table(model, &count);
  for (size_t i = 0; i < count; i++) {
    const float *value = plm_model_parameter(model, i);
    if (is_of_blocks(&table[i])) {
      assert_null(value);
      left++;
    } else {
      assert_non_null(value);
      assert_memory_equal(value, weights + table[i].offset, table[i].count * sizeof *value);
      kept++;
    }
  }
  assert_true(kept > 3 && left > 6);
  assert_false(plm_model_keeps_all(model));
}

/* The bytes of int8 are a little more than a quarter of those of fp32. */
static void expect_bytes(const struct plm_model_config *config, uint64_t allocated)
{
  const struct plm_model_options options = {.max_chunks = 2, .int8 = true},
                                 plain = {.max_chunks = 2};
  struct plm_model_memory memory, fp32;
  assert_int_equal(plm_model_memory(config, 4, &options, &memory, NULL), PLM_OK);
  assert_int_equal(plm_model_memory(config, 4, &plain, &fp32, NULL), PLM_OK);
  assert_int_equal(allocated,
                   memory.parameters + memory.weights + memory.activations + memory.workspace);
  assert_int_equal(memory.activations, fp32.activations);
  assert_int_equal(memory.workspace, fp32.workspace);
  const double quantised = (double)(fp32.parameters - memory.parameters) / 4;
  assert_true((double)memory.weights >= quantised && (double)memory.weights < 1.5 * quantised);
}

static void only_other_parameters_are_kept(void **state)
{
  (void)state;
  for (int architecture = PLM_TRANSFORMER; architecture < PLM_ARCHITECTURES; architecture++)
    for (int adapted = 0; adapted < 2; adapted++) {
      const struct plm_model_config config = config_of(architecture, adapted != 0);
      const struct plm_model_options options = {.max_chunks = 2};
      struct plm_ops *ops = open_ops(PLM_PRECISION_INT8);
      struct model_case c;
      struct plm_model *again;
      model_case_open_on(&c, ops, &config, &options, 3);
      expect_kept(c.model, c.weights);
      allocate = ops->allocate;
      ops->allocate = count_allocation;
      taken = 0;
      assert_int_equal(plm_model_open(&config, ops, &options, &again, NULL), PLM_OK);
      expect_bytes(&config, taken);
      ops->allocate = allocate;
      plm_model_close(again);
      model_case_close(&c);
    }
}

/* ---- what is computed ---- */

/* The last hidden states of a batch; the caller frees them. */
static float *states_of(struct model_case *c, const struct case_batch *placed)
{
  const size_t rows = (size_t)placed->batch.chunks * placed->batch.max_length;
  float *hidden = must(malloc(rows * c->config.hidden_size * sizeof *hidden));
  plm_model_attention_masks(c->model, &placed->batch, c->window, c->masks);
  assert_int_equal(plm_model_infer(c->model, &(struct plm_masked_batch){&placed->batch, c->masks},
                                   placed->targets.inputs, NULL, 0, hidden, NULL, NULL),
                   PLM_OK);
  return hidden;
}

static double cosine(const float *a, const float *b, size_t n)
{
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < n; i++) {
    ab += (double)a[i] * b[i];
    aa += (double)a[i] * a[i];
    bb += (double)b[i] * b[i];
  }
  return ab / sqrt(aa * bb);
}

static void compare_states(int architecture, bool adapted)
{
  static struct case_documents documents;
  const struct plm_model_config config = config_of(architecture, adapted);
  struct case_batch whole, first;
  case_documents_draw(&documents, lengths, config.vocab_size, 31);
  case_batch_place(&whole, &documents, config.max_length, 4, false);
  case_batch_part(&first, &whole, 0, 1);
  const struct plm_model_options options = {.max_chunks = whole.batch.chunks};
  const size_t chunk = (size_t)config.max_length * config.hidden_size;
  struct model_case fp32, int8;
  model_case_open_on(&fp32, open_ops(PLM_PRECISION_FP32), &config, &options, 41);
  model_case_open_on(&int8, open_ops(PLM_PRECISION_INT8), &config, &options, 41);
  float *exact = states_of(&fp32, &whole), *states = states_of(&int8, &whole);
  const double similar = cosine(exact, states, chunk * whole.batch.chunks);
  if (!(similar > 0.99 && similar < 1)) fail_msg("%d: cosine %.6f", architecture, similar);

  /* the same bits for a chunk by itself, with other buffers, and with weights loaded again */
  assert_int_equal(plm_model_make_room(int8.model, 2 * whole.batch.chunks, config.max_length, NULL),
                   PLM_OK);
  float *alone = states_of(&int8, &first);
  assert_memory_equal(alone, states, chunk * sizeof *alone);
  free(alone);
  plm_model_load(int8.model, int8.weights);
  alone = states_of(&int8, &first);
  assert_memory_equal(alone, states, chunk * sizeof *alone);
  free(alone);
  free(exact);
  free(states);
  model_case_close(&fp32);
  model_case_close(&int8);
  case_batch_free(&first);
  case_batch_free(&whole);
}

static void states_are_close_to_those_of_fp32(void **state)
{
  (void)state;
  for (int architecture = PLM_TRANSFORMER; architecture < PLM_ARCHITECTURES; architecture++)
    for (int adapted = 0; adapted < 2; adapted++) compare_states(architecture, adapted != 0);
}

/* ---- what is refused ---- */
static void training_is_refused(void **state)
{
  (void)state;
  const struct plm_model_config config = config_of(PLM_UNET, false);
  const struct plm_model_options options = {.max_chunks = 1, .training = true};
  struct plm_ops *ops = open_ops(PLM_PRECISION_INT8);
  struct plm_model *model;
  struct plm_error error = {0};
  assert_int_equal(plm_model_open(&config, ops, &options, &model, &error), PLM_UNSUPPORTED);
  assert_string_equal(error.what, "int8 is only for inference: a model is trained in fp32 or bf16");
  ops->close(ops);
}

static void layers_that_are_too_wide_are_refused(void **state)
{
  (void)state;
  struct plm_model_config config = config_of(PLM_ESM2, false);
  const struct plm_model_options options = {.max_chunks = 1, .int8 = true};
  struct plm_model_memory memory;
  struct plm_error error = {0};
  config.intermediate_size = 66000;
  assert_int_equal(plm_model_memory(&config, 4, &options, &memory, &error), PLM_OK);
  config.intermediate_size = 66016;
  assert_int_equal(plm_model_memory(&config, 4, &options, &memory, &error), PLM_UNSUPPORTED);
  assert_string_equal(error.what,
                      "int8 takes layers of at most 66000 inputs, and this model has one of 66016");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(only_other_parameters_are_kept),
      cmocka_unit_test(states_are_close_to_those_of_fp32),
      cmocka_unit_test(training_is_refused),
      cmocka_unit_test(layers_that_are_too_wide_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
