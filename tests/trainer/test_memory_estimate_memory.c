/* The estimate of memory takes some itself: each block of it may be missing. */
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_memory.h"

#include <string.h>

#include "common/base/log/log.h"
#include "tests/support/harness/must.h"
#include "trainer/memory_estimate.h"

static const char yaml[] =
    "data: {max_length: 64}\n"
    "model: {architecture: transformer, hidden_size: 64, num_attention_heads: 2, "
    "num_hidden_layers: 1}\n"
    "trainer: {batch_tokens: 256, micro_batch_tokens: 128, ranks: 2}\n";

static void memory_size(struct plm_ops *ops, uint64_t *free_now, uint64_t *total)
{
  (void)ops;
  *free_now = *total = 1ull << 40;
}

static size_t scratch(const struct plm_ops *ops, const struct plm_muon_matrix *matrices,
                      size_t count)
{
  (void)ops, (void)matrices;
  return count;
}

static struct plm_ops ops = {
    .name = "cuda", .act_bytes = 2, .memory_size = memory_size, .muon_scratch = scratch};

static plm_status estimate(void *context, struct plm_error *error)
{
  struct plm_memory_estimate estimate;
  PLM_TRY(plm_memory_estimate(context, &ops, 2, 2, &estimate, error));
  assert_true(estimate.parameters > 0 && estimate.ranks.parameters > 0);
  return plm_memory_check(context, &ops, 2, 2, error);
}

static void blocks_may_be_missing(void **state)
{
  (void)state;
  struct plm_config config;
  struct plm_error error = {0};
  plm_log_init("t", PLM_LOG_ERROR); /* without a warning for each */
  must_work(plm_config_load_text(yaml, strlen(yaml), &config, &error), &error);
  failing_memory_try(estimate, &config, 6);
  plm_config_deinit(&config);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(blocks_may_be_missing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
