/* common/model/model_values: a model in bf16 that keeps the fp32 values of only some parameters has
 * the same weights as used as one that keeps all of them. */
#include "tests/support/harness/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/cases/model_case.h"
#include "tests/support/harness/must.h"

enum { CHUNKS = 2 };

struct pair {
  struct plm_ops *ops;
  struct plm_model *whole, *part;
  const struct plm_parameter *table;
  size_t count, elements;
  bool *kept;
  float *values;
};

/* Whether only products read the parameter. */
static bool is_of_products(const struct plm_parameter *parameter)
{
  return parameter->ndim == 2 && strstr(parameter->name, "embeddings") == NULL;
}

/* Opens both models; the second keeps every third of the parameters that only products read. */
static void open_pair(struct pair *pair, enum plm_precision precision)
{
  struct plm_model_config config = model_case_small(PLM_UNET);
  config.token_dropout = true;
  struct plm_model_options options = {.max_chunks = CHUNKS, .training = true};
  *pair = (struct pair){0};
  assert_int_equal(plm_ops_cpu_open(precision, 1, NULL, &pair->ops, NULL), PLM_OK);
  assert_int_equal(plm_model_open(&config, pair->ops, &options, &pair->whole, NULL), PLM_OK);
  pair->table = plm_model_table(pair->whole, &pair->count);
  pair->elements = plm_model_arena_elements(pair->whole);
  pair->kept = must(calloc(pair->count, sizeof *pair->kept));
  size_t matrices = 0;
  for (size_t i = 0; i < pair->count; i++)
    pair->kept[i] = is_of_products(&pair->table[i]) && matrices++ % 3 == 1;
  options.kept = pair->kept;
  assert_int_equal(plm_model_open(&config, pair->ops, &options, &pair->part, NULL), PLM_OK);
  pair->values = must(calloc(pair->elements, sizeof *pair->values));
  case_weights(pair->table, pair->count, 5, pair->values);
  plm_model_load(pair->whole, pair->values);
  plm_model_load(pair->part, pair->values);
}

static void close_pair(struct pair *pair)
{
  plm_model_close(pair->part);
  plm_model_close(pair->whole);
  pair->ops->close(pair->ops);
  free(pair->kept);
  free(pair->values);
}

/* Whether the fp32 values of a parameter are there. */
static bool is_kept(const struct pair *pair, size_t i)
{
  return pair->kept[i] || !is_of_products(&pair->table[i]);
}

static void check_used(const struct pair *pair)
{
  for (size_t i = 0; i < pair->count; i++) {
    const size_t bytes = plm_parameter_used_bytes(&pair->table[i], pair->ops->act_bytes);
    const size_t each = is_of_products(&pair->table[i]) ? pair->ops->act_bytes : 4;
    assert_int_equal(bytes, each * pair->table[i].count);
    assert_memory_equal(plm_model_used(pair->part, i), plm_model_used(pair->whole, i), bytes);
  }
}

/* The loss of a batch, which also the token vectors decide. */
static double loss_of(struct pair *pair, struct plm_model *model)
{
  static const uint32_t lengths[] = {60, 30, 90, 20, 0};
  const struct plm_model_config *config = plm_model_config(model);
  const struct plm_loss_options loss = {.soft_cap = 16};
  struct plm_loss_result result;
  struct case_documents documents;
  struct case_batch placed;
  struct plm_masks *masks;
  case_documents_draw(&documents, lengths, config->vocab_size, 3);
  case_batch_place(&placed, &documents, config->max_length, 1, false);
  assert_int_equal(plm_masks_open(config, pair->ops, CHUNKS, &masks, NULL), PLM_OK);
  plm_model_attention_masks(model, &placed.batch, 64, masks);
  const struct plm_masked_batch input = {&placed.batch, masks};
  assert_int_equal(plm_model_forward(model, &input, &placed.targets, &loss, &result, NULL, NULL),
                   PLM_OK);
  plm_masks_close(masks);
  case_batch_free(&placed);
  return result.loss;
}

static void what_is_not_kept_is_used_all_the_same(void **state)
{
  struct pair pair;
  size_t kept = 0, dropped = 0;
  (void)state;
  open_pair(&pair, PLM_PRECISION_BF16);
  assert_true(plm_model_keeps_all(pair.whole));
  assert_false(plm_model_keeps_all(pair.part));
  assert_ptr_equal(plm_model_trained_arena(pair.whole), plm_model_parameter_arena(pair.whole));
  assert_null(plm_model_trained_arena(pair.part));
  const float *next = plm_model_parameter(pair.part, 0);
  for (size_t i = 0; i < pair.count; i++) {
    const struct plm_parameter *parameter = &pair.table[i];
    const float *values = pair.values + parameter->offset;
    const float *here = plm_model_parameter(pair.part, i);
    assert_memory_equal(plm_model_parameter(pair.whole, i), values, 4 * parameter->count);
    kept += is_kept(&pair, i);
    dropped += !is_kept(&pair, i);
    if (!is_kept(&pair, i)) {
      assert_null(here);
      continue;
    }
    assert_ptr_equal(here, next); /* one after another */
    assert_memory_equal(here, values, 4 * parameter->count);
    next += (parameter->count + 15) / 16 * 16;
  }
  assert_true(kept > 10 && dropped > 5);
  check_used(&pair);
  assert_true(loss_of(&pair, pair.part) == loss_of(&pair, pair.whole));
  close_pair(&pair);
}

/* Then only what is kept changes. */
static void changed_values_are_rounded_again(void **state)
{
  struct pair pair;
  (void)state;
  open_pair(&pair, PLM_PRECISION_BF16);
  const double before = loss_of(&pair, pair.part);
  for (size_t i = 0; i < pair.count; i++) {
    const struct plm_parameter *parameter = &pair.table[i];
    if (!is_kept(&pair, i)) continue;
    for (size_t j = 0; j < parameter->count; j++) {
      float *value = &pair.values[parameter->offset + j];
      *value = 1.5f * *value + 0.01f;
      plm_model_parameter(pair.whole, i)[j] = *value;
      plm_model_parameter(pair.part, i)[j] = *value;
    }
  }
  plm_model_weights_changed(pair.whole);
  plm_model_weights_changed(pair.part);
  check_used(&pair);
  assert_true(loss_of(&pair, pair.part) == loss_of(&pair, pair.whole));
  assert_true(loss_of(&pair, pair.part) != before);
  close_pair(&pair);
}

/* In fp32, products read the values themselves. */
static void all_are_kept_in_fp32(void **state)
{
  struct pair pair;
  (void)state;
  open_pair(&pair, PLM_PRECISION_FP32);
  assert_true(plm_model_keeps_all(pair.part));
  for (size_t i = 0; i < pair.count; i++) {
    assert_ptr_equal(plm_model_parameter(pair.part, i),
                     plm_model_parameter_arena(pair.part) + pair.table[i].offset);
    assert_ptr_equal(plm_model_used(pair.part, i), plm_model_parameter(pair.part, i));
  }
  check_used(&pair);
  close_pair(&pair);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_not_kept_is_used_all_the_same),
      cmocka_unit_test(changed_values_are_rounded_again),
      cmocka_unit_test(all_are_kept_in_fp32),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
