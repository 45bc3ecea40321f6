/* trainer/memory_plan: what fits into a device's memory, and what is said if it does not. The bytes
 * of each row are compared by test_dry_run.sh. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "trainer/memory_estimate.h"

static const char yaml[] =
    "data: {max_length: 128}\n"
    "model: {architecture: transformer, hidden_size: 64, num_attention_heads: 2, "
    "num_hidden_layers: 2}\n"
    "trainer: {batch_tokens: 1536, micro_batch_tokens: 256}\n";

static uint64_t free_bytes, total_bytes;

static void memory_size(struct plm_ops *ops, uint64_t *free_now, uint64_t *total)
{
  (void)ops;
  *free_now = free_bytes;
  *total = total_bytes;
}

static size_t scratch(const struct plm_ops *ops, const struct plm_muon_matrix *matrices,
                      size_t count)
{
  (void)ops;
  (void)matrices;
  (void)count;
  return 1000;
}

static size_t multiply_adds(const struct plm_ops *ops, int64_t N, int64_t I, int64_t O)
{
  (void)ops;
  return (size_t)(N * I * O);
}

static struct plm_ops ops_called(const char *name)
{
  return (struct plm_ops){
      .name = name, .act_bytes = 4, .memory_size = memory_size, .muon_scratch = scratch};
}

static void open_config(struct plm_config *config)
{
  assert_int_equal(plm_config_load_text(yaml, strlen(yaml), config, NULL), PLM_OK);
}

static struct plm_memory_estimate estimate_of(const struct plm_config *config,
                                              const struct plm_ops *ops, uint32_t shares,
                                              uint32_t chunks)
{
  struct plm_memory_estimate estimate;
  assert_int_equal(plm_memory_estimate(config, ops, shares, chunks, &estimate, NULL), PLM_OK);
  return estimate;
}

static uint64_t needed(const struct plm_config *config, const struct plm_ops *ops, uint32_t shares,
                       uint32_t chunks)
{
  const struct plm_memory_estimate estimate = estimate_of(config, ops, shares, chunks);
  return plm_memory_needed(&estimate, ops);
}

static uint64_t row_called(const struct plm_memory_estimate *estimate, const char *name)
{
  for (size_t i = 0; i < estimate->count; i++)
    if (strcmp(estimate->rows[i].name, name) == 0) return estimate->rows[i].bytes;
  fail_msg("there is no row %s", name);
  return 0;
}

/* Operands that a backend widens are counted for the largest product: here that of the MLP in a
 * transformer, and that of query, key and value on the deeper level of a patch_unet, which has half
 * as many rows. */
static void the_largest_product_is_counted(void **state)
{
  (void)state;
  static const struct {
    const char *model;
    uint64_t multiply_adds;
  } cases[] = {
      {"{architecture: transformer, hidden_size: 64, num_attention_heads: 2, num_hidden_layers: 2}",
       256 * 64 * 256},
      {"{architecture: patch_unet, hidden_size: 64, num_attention_heads: 2, num_unet_layers: 4}",
       128 * 128 * 384},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_ops ops = ops_called("cpu");
    struct plm_config config;
    char text[300];
    snprintf(text, sizeof text,
             "data: {max_length: 128}\nmodel: %s\n"
             "trainer: {batch_tokens: 1536, micro_batch_tokens: 256}\n",
             cases[i].model);
    assert_int_equal(plm_config_load_text(text, strlen(text), &config, NULL), PLM_OK);
    const struct plm_memory_estimate without = estimate_of(&config, &ops, 1, 2);
    ops.linear_scratch = multiply_adds;
    const struct plm_memory_estimate with = estimate_of(&config, &ops, 1, 2);
    assert_int_equal(row_called(&with, "workspace") - row_called(&without, "workspace"),
                     cases[i].multiply_adds);
    assert_int_equal(with.device_bytes - without.device_bytes, cases[i].multiply_adds);
    plm_config_deinit(&config);
  }
}

/* A GPU needs what is on the device; on the CPU, all ranks of a host share its memory. */
static void rows_add_up(void **state)
{
  static char first_host[] = "a:3", second_host[] = "b:1";
  const struct plm_ops cuda = ops_called("cuda"), cpu = ops_called("cpu");
  struct plm_config config;
  (void)state;
  open_config(&config);
  for (uint32_t ranks = 1; ranks <= 4; ranks += 3) {
    config.trainer.ranks = ranks;
    if (ranks == 4) {
      config.trainer.hosts[0] = first_host;
      config.trainer.hosts[1] = second_host;
      config.trainer.host_count = 2;
    }
    const uint64_t on_host = ranks == 4 ? 3 : 1;
    const struct plm_memory_estimate estimate = estimate_of(&config, &cpu, ranks, 1);
    uint64_t device = 0, host = 0, first = 0;
    for (size_t i = 0; i < estimate.count; i++) {
      if (estimate.rows[i].host) host += estimate.rows[i].bytes;
      if (!estimate.rows[i].host) device += estimate.rows[i].bytes;
      if (estimate.rows[i].first_rank) first += estimate.rows[i].bytes;
    }
    assert_int_equal(estimate.count, 17);
    assert_int_equal(estimate.device_bytes, device);
    assert_int_equal(estimate.host_bytes, host);
    assert_int_equal(estimate.first_rank_bytes, first);
    assert_int_equal(plm_memory_needed(&estimate, &cpu), on_host * (device + host - first) + first);
    assert_int_equal(plm_memory_needed(&estimate, &cuda), device);
  }
  config.trainer.hosts[0] = config.trainer.hosts[1] = NULL; /* not of the configuration */
  config.trainer.host_count = 0;
  plm_config_deinit(&config);
}

/* With ranks, it is the part of the rank that has most. */
static void the_optimizer_is_that_of_a_rank(void **state)
{
  struct plm_ops ops = ops_called("cpu");
  struct plm_config config;
  (void)state;
  for (uint32_t ranks = 1; ranks <= 2; ranks++) {
    open_config(&config);
    config.trainer.ranks = ranks;
    config.model.hidden_size = 256; /* matrices of this size have an owner */
    const struct plm_memory_estimate e = estimate_of(&config, &ops, ranks, 1);
    assert_int_equal(row_called(&e, "optimizer"), e.ranks.optimizer - e.ranks.optimizer_scratch);
    assert_int_equal(row_called(&e, "scratch"), e.ranks.optimizer_scratch);
    plm_config_deinit(&config);
  }
}

/* Which rows are in the host's memory, and which of them only rank 0 needs. */
static void rows_say_where_their_bytes_are(void **state)
{
  static const char *const on_host[] = {"inputs_host", "transfers", "snapshot", "credit"},
                           *const of_first[] = {"snapshot", "credit"};
  const struct plm_ops cuda = ops_called("cuda");
  struct plm_config config;
  (void)state;
  open_config(&config);
  const struct plm_memory_estimate estimate = estimate_of(&config, &cuda, 1, 1);
  for (size_t i = 0; i < estimate.count; i++) {
    const struct plm_memory_row *row = &estimate.rows[i];
    bool host = false, first = false;
    for (size_t k = 0; k < 4; k++) host |= strcmp(row->name, on_host[k]) == 0;
    for (size_t k = 0; k < 2; k++) first |= strcmp(row->name, of_first[k]) == 0;
    if (row->host != host || row->first_rank != first)
      fail_msg("%s: host %d, only rank 0 %d", row->name, row->host, row->first_rank);
  }
  plm_config_deinit(&config);
}

/* Micro-batches of 1, 2, 3 and 6 chunks divide a share of 6, and those of 1 and 3 one of 3. */
static void the_largest_that_fits_divides_a_share(void **state)
{
  struct plm_ops cuda = ops_called("cuda");
  struct plm_config config;
  uint64_t bytes[7] = {0};
  (void)state;
  open_config(&config);
  for (uint32_t chunks = 1; chunks <= 6; chunks++)
    bytes[chunks] = needed(&config, &cuda, 2, chunks);
  const struct {
    uint64_t bytes;
    uint32_t largest;
  } cases[] = {{bytes[1] - 1, 0}, {bytes[1], 1}, {bytes[2] - 1, 1}, {bytes[2], 2},
               {bytes[3], 3},     {bytes[5], 3}, {bytes[6] - 1, 3}, {bytes[6], 6},
               {UINT64_MAX, 6},   {0, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint32_t largest = 99;
    assert_int_equal(plm_memory_largest(&config, &cuda, 2, cases[i].bytes, &largest, NULL), PLM_OK);
    assert_int_equal(largest, cases[i].largest);
  }
  uint32_t largest = 99;
  assert_int_equal(plm_memory_largest(&config, &cuda, 4, UINT64_MAX, &largest, NULL), PLM_OK);
  assert_int_equal(largest, 3);
  plm_config_deinit(&config);
}

static void a_plan_beyond_the_address_space_is_refused(void **state)
{
  struct plm_ops cuda = ops_called("cuda");
  struct plm_config config;
  struct plm_memory_estimate estimate;
  struct plm_error error = {0};
  (void)state;
  open_config(&config);
  config.network.credit_bytes = 0;
  estimate = estimate_of(&config, &cuda, 1, 2);
  const uint64_t rest = SIZE_MAX - estimate.device_bytes - estimate.host_bytes;
  config.network.credit_bytes = rest - 1;
  estimate = estimate_of(&config, &cuda, 1, 2);
  assert_int_equal(estimate.device_bytes + estimate.host_bytes, SIZE_MAX - 1);
  config.network.credit_bytes = rest;
  assert_int_equal(plm_memory_estimate(&config, &cuda, 1, 2, &estimate, &error), PLM_LIMIT);
  assert_string_equal(error.what,
                      "the memory for micro-batches of 2 chunks is larger than the address space");
  plm_config_deinit(&config);
}

static void the_remedy_names_what_fits(void **state)
{
  static const struct {
    enum plm_recompute recompute;
    uint32_t largest;
    const char *text;
  } cases[] = {
      {PLM_RECOMPUTE_NONE, 3,
       "trainer.micro_batch_tokens: 384 fits; trainer.recompute: block takes less memory"},
      {PLM_RECOMPUTE_MLP, 1,
       "trainer.micro_batch_tokens: 128 fits; trainer.recompute: block takes less memory"},
      {PLM_RECOMPUTE_BLOCK, 3, "trainer.micro_batch_tokens: 384 fits"},
      {PLM_RECOMPUTE_NONE, 0, "no micro-batch fits; trainer.recompute: block takes less memory"},
      {PLM_RECOMPUTE_BLOCK, 0, "no micro-batch fits: the model is too large for this device"},
  };
  struct plm_config config;
  char text[256];
  (void)state;
  open_config(&config);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    config.trainer.recompute = cases[i].recompute;
    plm_memory_remedy(&config, cases[i].largest, text);
    assert_string_equal(text, cases[i].text);
  }
  plm_config_deinit(&config);
}

/* Bytes as the texts have them, in GB with two digits. */
static const char *gb(uint64_t bytes, char text[32])
{
  snprintf(text, 32, "%.2f", 1e-9 * (double)bytes);
  return text;
}

static void a_device_that_is_too_small_is_refused(void **state)
{
  struct plm_ops cuda = ops_called("cuda");
  struct plm_config config;
  struct plm_error error = {0};
  char wanted[512], need[32], room[32], all[32];
  (void)state;
  open_config(&config);
  const uint64_t two = needed(&config, &cuda, 1, 2), one = needed(&config, &cuda, 1, 1);
  free_bytes = 0; /* unknown */
  assert_int_equal(plm_memory_check(&config, &cuda, 1, 2, &error), PLM_OK);
  total_bytes = 2 * two;
  free_bytes = two;
  assert_int_equal(plm_memory_check(&config, &cuda, 1, 2, &error), PLM_OK);
  free_bytes = two - 1;
  assert_int_equal(plm_memory_check(&config, &cuda, 1, 2, &error), PLM_NO_MEMORY);
  snprintf(wanted, sizeof wanted,
           "training takes %s GB of the device's memory (kept free for kernels and graphs: 1.00 "
           "GB), but only %s of %s GB are free",
           gb(two, need), gb(free_bytes, room), gb(total_bytes, all));
  assert_string_equal(error.what, wanted);
  snprintf(wanted, sizeof wanted,
           "%s GB are in use, most of it by other processes (nvidia-smi shows them); or "
           "trainer.micro_batch_tokens: 128 fits; trainer.recompute: block takes less memory; "
           "`plm-pipeline up --dry-run` shows the whole memory estimate",
           gb(total_bytes - free_bytes, need));
  assert_string_equal(error.hint, wanted);
  /* a tenth that is in use may be this process's own */
  free_bytes = one - 1;
  total_bytes = free_bytes + free_bytes / 9;
  assert_int_equal(total_bytes - free_bytes, total_bytes / 10);
  assert_int_equal(plm_memory_check(&config, &cuda, 1, 2, &error), PLM_NO_MEMORY);
  assert_string_equal(error.hint,
                      "no micro-batch fits; trainer.recompute: block takes less memory; "
                      "`plm-pipeline up --dry-run` shows the whole memory estimate");
  total_bytes += 1;
  assert_int_equal(plm_memory_check(&config, &cuda, 1, 2, &error), PLM_NO_MEMORY);
  assert_int_equal(strncmp(error.hint, "0.11 GB are in use", 18), 0);
  plm_config_deinit(&config);
}

/* The largest part is named, and not one that is in the host's memory. */
static void the_largest_part_is_named(void **state)
{
  struct plm_ops cuda = ops_called("cuda");
  struct plm_config config;
  struct plm_error error = {0};
  (void)state;
  open_config(&config);
  config.model.hidden_size = 2048;
  config.model.num_attention_heads = 32;
  config.model.num_hidden_layers = 8;
  config.network.credit_bytes = 1ull << 34;
  free_bytes = 1;
  total_bytes = 2;
  assert_int_equal(plm_memory_check(&config, &cuda, 1, 2, &error), PLM_NO_MEMORY);
  assert_non_null(strstr(error.what, "(moments and average: "));
  plm_config_deinit(&config);
}

static void a_host_that_is_too_small_is_warned_of(void **state)
{
  struct plm_ops cpu = ops_called("cpu");
  struct plm_config config;
  char wanted[512], need[32], room[32];
  (void)state;
  open_config(&config);
  const uint64_t two = needed(&config, &cpu, 1, 2);
  total_bytes = two;
  for (int missing = 0; missing <= 1; missing++) {
    free_bytes = two - (uint64_t)missing;
    captured_begin(STDERR_FILENO);
    const plm_status status = plm_memory_check(&config, &cpu, 1, 2, NULL);
    const char *said = captured_end();
    assert_int_equal(status, PLM_OK);
    snprintf(wanted, sizeof wanted,
             "test: warning: training takes %s GB, but only %s GB are free: the system may swap or "
             "kill it (trainer.micro_batch_tokens: 128 fits; trainer.recompute: block takes less "
             "memory)\n",
             gb(two, need), gb(free_bytes, room));
    assert_string_equal(said, missing ? wanted : "");
  }
  plm_config_deinit(&config);
}

int main(void)
{
  plm_log_init("test", PLM_LOG_WARNING);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_add_up),
      cmocka_unit_test(the_largest_product_is_counted),
      cmocka_unit_test(the_optimizer_is_that_of_a_rank),
      cmocka_unit_test(rows_say_where_their_bytes_are),
      cmocka_unit_test(the_largest_that_fits_divides_a_share),
      cmocka_unit_test(a_plan_beyond_the_address_space_is_refused),
      cmocka_unit_test(the_remedy_names_what_fits),
      cmocka_unit_test(a_device_that_is_too_small_is_refused),
      cmocka_unit_test(the_largest_part_is_named),
      cmocka_unit_test(a_host_that_is_too_small_is_warned_of),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
