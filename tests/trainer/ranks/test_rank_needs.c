/* Where the ranks are, and what each of them keeps and sends, before any is started. */
#include "trainer/ranks/rank_needs.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/size.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "trainer/optimizer/optimizers.h"
#include "trainer/ranks/gradient_exchange.h"

/* Matrices of 256 x 256 have an owner. */
static void load(struct plm_config *config, uint32_t ranks, const char *const *hosts,
                 uint32_t count)
{
  static const char yaml[] = "version: 1\nmodel: {hidden_size: 256, num_attention_heads: 4, "
                             "num_hidden_layers: 2}\ntrainer: {ema: 0.9}\n";
  assert_int_equal(plm_config_load_text(yaml, strlen(yaml), config, NULL), PLM_OK);
  config->trainer.ranks = ranks;
  for (uint32_t i = 0; i < count; i++) config->trainer.hosts[i] = (char *)(uintptr_t)hosts[i];
  config->trainer.host_count = count;
}

static void unload(struct plm_config *config)
{
  for (uint32_t i = 0; i < config->trainer.host_count; i++) config->trainer.hosts[i] = NULL;
  config->trainer.host_count = 0;
  plm_config_deinit(config);
}

/* mpirun fills one host after the other. A group lies on one host, and all have the same size. */
static void ranks_are_placed_as_mpirun_does(void **state)
{
  (void)state;
  static const struct {
    uint32_t ranks;
    const char *hosts[3];
    uint32_t here, used, group;
  } rows[] = {
      {1, {NULL}, 1, 1, 1},
      {6, {NULL}, 6, 1, 2},
      {8, {NULL}, 8, 1, 8},
      {8, {"a:4", "b:4"}, 4, 2, 4},
      {6, {"a:2", "b:4"}, 2, 2, 2},
      {6, {"a:4", "b:4"}, 4, 2, 2},
      {4, {"a:4", "b:4"}, 4, 1, 4},
      {5, {"a:4", "b:4"}, 4, 2, 1},
      {12, {"a:4", "b:2", "c:6"}, 4, 3, 2},
      {7, {"a:4", "b:2", "c:6"}, 4, 3, 1},
      {2, {"a:4", "b:2", "c:6"}, 2, 1, 2},
  };
  struct plm_ops *ops;
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_config config;
    struct plm_rank_needs needs;
    uint32_t count = 0;
    while (count < 3 && rows[i].hosts[count] != NULL) count++;
    load(&config, rows[i].ranks, rows[i].hosts, count);
    assert_int_equal(plm_rank_needs(&config, ops, &needs, NULL), PLM_OK);
    if (needs.ranks != rows[i].ranks || needs.on_first_host != rows[i].here ||
        needs.hosts != rows[i].used || needs.group_size != rows[i].group)
      fail_msg("row %zu: %u ranks, %u here, %u hosts, groups of %u", i, needs.ranks,
               needs.on_first_host, needs.hosts, needs.group_size);
    assert_int_equal(needs.sent_on_rail > 0, needs.ranks > needs.group_size);
    assert_int_equal(needs.sent_in_group > 0, needs.group_size > 1);
    unload(&config);
  }
  ops->close(ops);
}

/* What rank r has of a model; with one rank, that is everything. */
static void has(const struct plm_config *config, struct plm_ops *ops, const struct plm_held *held,
                const struct plm_parameter *table, size_t count, uint64_t numbers[4])
{
  struct plm_model_memory memory;
  bool *kept = calloc(count, sizeof *kept);
  numbers[3] = 0;
  for (size_t i = 0; i < count; i++) {
    kept[i] = plm_is_held(held, i);
    if (kept[i]) numbers[3] += plm_size_round_up(table[i].count, PLM_PARAMETER_ALIGNMENT);
  }
  const struct plm_model_options options = {
      .max_chunks = 1, .training = true, .kept = held != NULL ? kept : NULL};
  assert_int_equal(plm_model_memory(&config->model, ops->act_bytes, &options, &memory, NULL),
                   PLM_OK);
  numbers[0] = memory.parameters;
  assert_int_equal(plm_optimizer_memory(&config->trainer, &config->model, ops, held, &numbers[1],
                                        &numbers[2], NULL),
                   PLM_OK);
  free(kept);
}

/* The numbers are those of the rank that needs most. */
static void memory_is_that_of_the_largest_rank(struct plm_ops *ops, uint32_t ranks)
{
  struct plm_config config;
  struct plm_rank_needs needs;
  struct plm_parameter *table;
  size_t count, arena;
  uint64_t most[4] = {0}, numbers[4];
  load(&config, ranks, NULL, 0);
  assert_int_equal(plm_model_parameters(&config.model, &table, &count, &arena, NULL), PLM_OK);
  uint32_t *owners = calloc(count, sizeof *owners);
  plm_owners_assign(&config.trainer, table, count, ranks, owners);
  for (uint32_t r = 0; r < ranks; r++) {
    const struct plm_held held = {owners, r};
    has(&config, ops, ranks == 1 ? NULL : &held, table, count, numbers);
    if (numbers[0] + numbers[1] > most[0] + most[1]) memcpy(most, numbers, sizeof most);
  }
  assert_int_equal(plm_rank_needs(&config, ops, &needs, NULL), PLM_OK);
  assert_int_equal(needs.parameters, most[0]);
  assert_int_equal(needs.optimizer, most[1]);
  assert_int_equal(needs.optimizer_scratch, most[2]);
  assert_int_equal(needs.updated, most[3] * sizeof(float));
  const struct plm_bucket_request request = {.table = table,
                                             .count = count,
                                             .owners = owners,
                                             .ranks = ranks,
                                             .act_bytes = ops->act_bytes};
  struct plm_exchange_bytes bytes;
  double imbalance;
  plm_exchange_count(&request, needs.group_size, config.trainer.compress, &bytes);
  assert_int_equal(needs.exchange, bytes.device);
  assert_int_equal(needs.sent_in_group, bytes.sent_in_group);
  assert_int_equal(needs.sent_on_rail, bytes.sent_on_rail);
  imbalance = plm_owners_imbalance(&config.trainer, table, count, ranks, owners);
  assert_true(needs.imbalance == imbalance);
  free(owners);
  free(table);
  unload(&config);
}

static void memory_of_the_ranks(void **state)
{
  (void)state;
  for (int half = 0; half < 2; half++) {
    struct plm_ops *ops;
    assert_int_equal(
        plm_ops_cpu_open(half ? PLM_PRECISION_BF16 : PLM_PRECISION_FP32, 1, NULL, &ops, NULL),
        PLM_OK);
    for (uint32_t ranks = 1; ranks <= 5; ranks++) memory_is_that_of_the_largest_rank(ops, ranks);
    ops->close(ops);
  }
}

/* The largest load divided by the mean of all ranks. */
static void the_imbalance_is_that_of_the_costs(void **state)
{
  (void)state;
  const struct plm_config_trainer trainer = {.optimizer = {.name = PLM_OPTIMIZER_ADAMW}};
  const struct plm_parameter table[] = {
      {.count = 30}, {.count = 1000}, {.count = 20}, {.count = 70}};
  const uint32_t owners[] = {0, PLM_OWNED_BY_ALL, 2, 2};
  const uint32_t nobodys[] = {PLM_OWNED_BY_ALL, PLM_OWNED_BY_ALL, PLM_OWNED_BY_ALL,
                              PLM_OWNED_BY_ALL};
  double imbalance = 0;
  imbalance = plm_owners_imbalance(&trainer, table, 4, 3, owners);
  assert_true(imbalance == 90.0 * 3 / 120);
  imbalance = plm_owners_imbalance(&trainer, table, 4, 3, nobodys);
  assert_true(imbalance == 1);
}

/* The largest first, each to the rank with the least so far; equal ones in the table's order. */
static void parameters_go_to_the_rank_with_the_least(void **state)
{
  (void)state;
  enum { LEAST = PLM_OWNED_ELEMENTS };
  const struct plm_config_trainer trainer = {.optimizer = {.name = PLM_OPTIMIZER_ADAMW}};
  const struct plm_parameter table[] = {{.count = LEAST},     {.count = 3 * LEAST},
                                        {.count = LEAST - 1}, {.count = LEAST},
                                        {.count = 2 * LEAST}, {.count = LEAST}};
  static const uint32_t two[] = {1, 0, PLM_OWNED_BY_ALL, 0, 1, 1};
  static const uint32_t one[] = {0, 0, 0, 0, 0, 0};
  uint32_t owners[6];
  plm_owners_assign(&trainer, table, 6, 2, owners);
  assert_memory_equal(owners, two, sizeof two);
  plm_owners_assign(&trainer, table, 6, 1, owners);
  assert_memory_equal(owners, one, sizeof one);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_are_placed_as_mpirun_does),
      cmocka_unit_test(memory_of_the_ranks),
      cmocka_unit_test(the_imbalance_is_that_of_the_costs),
      cmocka_unit_test(parameters_go_to_the_rank_with_the_least),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
