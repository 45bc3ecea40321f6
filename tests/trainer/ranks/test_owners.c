/* Owners of parameters, and the buckets in which they are exchanged. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"
#include "trainer/optimizer/optimizers.h"
#include "trainer/ranks/buckets.h"
#include "trainer/ranks/owners.h"

struct model {
  struct plm_config config;
  struct plm_parameter *table;
  size_t count, arena;
};

static void open_model(struct model *model, const char *yaml)
{
  struct plm_error error = {0};
  *model = (struct model){0};
  assert_int_equal(plm_config_load_text(yaml, strlen(yaml), &model->config, &error), PLM_OK);
  assert_int_equal(plm_model_parameters(&model->config.model, &model->table, &model->count,
                                        &model->arena, &error),
                   PLM_OK);
}

static void close_model(struct model *model)
{
  free(model->table);
  plm_config_deinit(&model->config);
}

static const char large[] = "model: {architecture: unet, hidden_size: 768, num_attention_heads: 6, "
                            "num_hidden_layers: 24, num_unet_layers: 24}\n";
static const char larger[] =
    "model: {architecture: transformer, hidden_size: 1280, num_attention_heads: 20, "
    "num_hidden_layers: 32}\n";

/* What the ranks have to compute is balanced to 5 % at 8 and at 32 ranks. */
static void owners_are_balanced(void **state)
{
  (void)state;
  const char *const models[] = {large, larger};
  const uint32_t ranks[] = {2, 8, 32};
  for (size_t m = 0; m < 2; m++) {
    struct model model;
    open_model(&model, models[m]);
    uint32_t *owners = calloc(model.count, sizeof *owners);
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
      double imbalance;
      plm_owners_assign(&model.config.trainer, model.table, model.count, ranks[i], owners);
      imbalance =
          plm_owners_imbalance(&model.config.trainer, model.table, model.count, ranks[i], owners);
      if (imbalance < 1 || imbalance > 1.05) fail_msg("%u ranks: %g", ranks[i], imbalance);
    }
    free(owners);
    close_model(&model);
  }
}

/* What is frozen belongs to nobody, with any number of ranks, and is in no bucket. */
static void frozen_parameters_belong_to_none(void **state)
{
  (void)state;
  struct model model;
  open_model(&model, large);
  const struct plm_freeze freeze = {.embeddings = true, .blocks = 20};
  const size_t trained = plm_parameters_freeze(model.table, model.count, &freeze);
  uint32_t *owners = calloc(model.count, sizeof *owners);
  for (uint32_t ranks = 1; ranks <= 4; ranks *= 2) {
    size_t listed = 0;
    plm_owners_assign(&model.config.trainer, model.table, model.count, ranks, owners);
    for (size_t i = 0; i < model.count; i++) {
      const struct plm_held held = {owners, 0};
      assert_int_equal(owners[i] == PLM_OWNED_BY_NONE, model.table[i].frozen);
      if (model.table[i].frozen) assert_false(plm_is_held(&held, i));
    }
    const struct plm_bucket_request request = {.table = model.table,
                                               .count = model.count,
                                               .owners = owners,
                                               .ranks = ranks,
                                               .act_bytes = 4};
    struct plm_buckets buckets;
    plm_buckets_init(&buckets, &request);
    for (size_t b = 0; b <= buckets.count; b++) {
      const struct plm_bucket *bucket = b < buckets.count ? &buckets.buckets[b] : &buckets.small;
      for (size_t i = 0; i < bucket->count; i++, listed++)
        assert_false(model.table[buckets.entries[bucket->first + i].parameter].frozen);
    }
    for (size_t i = 0; i < model.count; i++) listed += model.table[i].frozen;
    assert_int_equal(listed, model.count);
    plm_buckets_deinit(&buckets);
  }
  assert_true(trained < model.arena / 2);
  free(owners);
  close_model(&model);
}

static void small_parameters_belong_to_all(void **state)
{
  (void)state;
  struct model model;
  open_model(&model, large);
  uint32_t *owners = calloc(model.count, sizeof *owners);
  size_t small = 0;
  plm_owners_assign(&model.config.trainer, model.table, model.count, 4, owners);
  for (size_t i = 0; i < model.count; i++) {
    assert_int_equal(owners[i] == PLM_OWNED_BY_ALL, model.table[i].count < PLM_OWNED_ELEMENTS);
    assert_true(owners[i] == PLM_OWNED_BY_ALL || owners[i] < 4);
    small += owners[i] == PLM_OWNED_BY_ALL;
    for (uint32_t rank = 0; rank < 4; rank++) {
      const struct plm_held held = {owners, rank};
      assert_int_equal(plm_is_held(&held, i), owners[i] == PLM_OWNED_BY_ALL || owners[i] == rank);
    }
    assert_true(plm_is_held(NULL, i));
  }
  assert_true(small > 0 && small < model.count);
  plm_owners_assign(&model.config.trainer, model.table, model.count, 1, owners);
  for (size_t i = 0; i < model.count; i++) assert_int_equal(owners[i], 0);
  free(owners);
  close_model(&model);
}

/* The cost of a matrix does not depend on which side is longer, and is the formula's. */
static void cost_is_that_of_muon(void **state)
{
  (void)state;
  struct plm_config_trainer trainer = {.optimizer = {.name = PLM_OPTIMIZER_MUON}};
  struct plm_parameter matrix = {
      .rows = 300, .cols = 500, .count = 150000, .ndim = 2, .group = PLM_GROUP_HIDDEN};
  const double expected = 20.0 * 300 * 300 * 500 + 10.0 * 300 * 300 * 300;
  assert_true(plm_update_cost(&trainer, &matrix) == expected);
  matrix.rows = 500;
  matrix.cols = 300;
  assert_true(plm_update_cost(&trainer, &matrix) == expected);
  matrix.group = PLM_GROUP_EMBED; /* Adam */
  assert_true(plm_update_cost(&trainer, &matrix) == 150000);
}

/* The busiest rank's load relative to the mean; what belongs to all ranks does not count. */
static void imbalance_is_that_of_the_busiest_rank(void **state)
{
  (void)state;
  const struct plm_config_trainer trainer = {.optimizer = {.name = PLM_OPTIMIZER_ADAMW}};
  const struct plm_parameter table[] = {
      {.count = 1000}, {.count = 2000}, {.count = 5000}, {.count = 90}};
  const struct {
    uint32_t ranks, owners[4];
    double expected;
  } cases[] = {
      {3, {0, 1, 2, PLM_OWNED_BY_ALL}, 5000.0 * 3 / 8000},
      {3, {2, 2, 0, PLM_OWNED_BY_ALL}, 5000.0 * 3 / 8000},
      {2, {0, 1, 0, 1}, 6000.0 * 2 / 8090},
      {2, {1, 0, 1, PLM_OWNED_BY_ALL}, 6000.0 * 2 / 8000},
      {1, {0, 0, 0, 0}, 1},
      {2, {PLM_OWNED_BY_ALL, PLM_OWNED_BY_ALL, PLM_OWNED_BY_ALL, PLM_OWNED_BY_ALL}, 1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double imbalance = -1;
    imbalance = plm_owners_imbalance(&trainer, table, 4, cases[i].ranks, cases[i].owners);
    if (fabs(imbalance - cases[i].expected) > 1e-12) fail_msg("case %zu: %.17g", i, imbalance);
  }
}

/* Marks where the entry lies in its owner's slice; nobody else may lie there. */
static void claim(char *used, size_t slice, const struct plm_bucket_entry *entry, size_t count)
{
  const size_t owner = entry->owner == PLM_OWNED_BY_ALL ? 0 : entry->owner;
  assert_true(entry->offset + count <= slice);
  for (size_t e = 0; e < count; e++) {
    assert_int_equal(used[owner * slice + entry->offset + e], 0);
    used[owner * slice + entry->offset + e] = 1;
  }
}

/* Entries of one owner follow each other in the message of weights, each in its own place. */
static void check_weights(const struct plm_buckets *buckets, const struct plm_bucket *bucket,
                          const struct model *model, uint32_t ranks, size_t act_bytes)
{
  size_t *end = calloc(ranks, sizeof *end);
  assert_int_equal(bucket->used_slice % 64, 0);
  assert_true(bucket->used_slice <= bucket->slice * sizeof(float));
  for (size_t i = bucket->first; i < bucket->first + bucket->count; i++) {
    const struct plm_bucket_entry *entry = &buckets->entries[i];
    const struct plm_parameter *parameter = &model->table[entry->parameter];
    const size_t bytes = plm_parameter_used_bytes(parameter, act_bytes);
    assert_int_equal(bytes,
                     parameter->count * (parameter->group == PLM_GROUP_EMBED ? 4 : act_bytes));
    assert_int_equal(entry->used_offset % 64, 0);
    assert_true(entry->used_offset >= end[entry->owner]);
    end[entry->owner] = entry->used_offset + bytes;
    assert_true(end[entry->owner] <= bucket->used_slice);
  }
  free(end);
}

static void check_bucket(const struct plm_buckets *buckets, const struct plm_bucket *bucket,
                         const struct model *model, uint32_t ranks, char *seen)
{
  assert_int_equal(bucket->slice * sizeof(float) % 64, 0);
  char *used = calloc(ranks, bucket->slice);
  for (size_t i = bucket->first; i < bucket->first + bucket->count; i++) {
    const struct plm_bucket_entry *entry = &buckets->entries[i];
    claim(used, bucket->slice, entry, model->table[entry->parameter].count);
    assert_int_equal(seen[entry->parameter], 0);
    seen[entry->parameter] = 1;
  }
  free(used);
}

/* Every parameter is in one bucket, in a place of its own, in the order of the backward pass. */
static void buckets_contain_everything_once(void **state)
{
  (void)state;
  const uint32_t ranks[] = {2, 3, 8};
  struct model model;
  open_model(&model, large);
  uint32_t *owners = calloc(model.count, sizeof *owners);
  for (size_t n = 0; n < sizeof ranks / sizeof *ranks; n++) {
    struct plm_buckets buckets;
    char *seen = calloc(model.count, 1);
    plm_owners_assign(&model.config.trainer, model.table, model.count, ranks[n], owners);
    const size_t act_bytes = n % 2 == 0 ? 2 : 4;
    const struct plm_bucket_request request = {.table = model.table,
                                               .count = model.count,
                                               .owners = owners,
                                               .ranks = ranks[n],
                                               .act_bytes = act_bytes};
    plm_buckets_init(&buckets, &request);
    assert_true(buckets.count > 1);
    size_t next = model.count;
    for (size_t b = 0; b < buckets.count; b++) {
      const struct plm_bucket *bucket = &buckets.buckets[b];
      check_bucket(&buckets, bucket, &model, ranks[n], seen);
      check_weights(&buckets, bucket, &model, ranks[n], act_bytes);
      for (size_t i = bucket->first; i < bucket->first + bucket->count; i++) {
        assert_true(buckets.entries[i].parameter < next);
        next = buckets.entries[i].parameter;
      }
      assert_true(bucket->slice <= buckets.largest_slice);
    }
    check_bucket(&buckets, &buckets.small, &model, ranks[n], seen);
    for (size_t i = 0; i < model.count; i++) assert_int_equal(seen[i], 1);
    plm_buckets_deinit(&buckets);
    free(seen);
  }
  free(owners);
  close_model(&model);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(owners_are_balanced),
      cmocka_unit_test(frozen_parameters_belong_to_none),
      cmocka_unit_test(small_parameters_belong_to_all),
      cmocka_unit_test(cost_is_that_of_muon),
      cmocka_unit_test(imbalance_is_that_of_the_busiest_rank),
      cmocka_unit_test(buckets_contain_everything_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
