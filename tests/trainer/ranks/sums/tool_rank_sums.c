/* Exchanges gradients between ranks as a step does, and compares each bit of the sums with the tree
 * over the ranks, which this program computes for itself. Started by mpirun
 * (tests/trainer/ranks/test_rank_sums.sh).
 *
 *   tool_rank_sums DEVICE COMPRESS
 *
 * DEVICE is cpu or cuda, COMPRESS is none or bf16. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log/log.h"
#include "common/ops/open.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/must.h"
#include "trainer/ranks/gradient_exchange.h"

enum { STEPS = 2, MOST_RANKS = 16 };

struct test {
  struct plm_ranks ranks;
  struct plm_ops *ops;
  struct plm_config config;
  struct plm_model *model;
  uint32_t *owners;
  struct plm_exchange *exchange;
  float *host;
  bool rounds;
};

/* A gradient of either sign and of any size between 2^-12 and 2^3. */
static float gradient(uint32_t rank, int step, size_t i)
{
  uint64_t x = ((uint64_t)rank << 40) + ((uint64_t)step << 32) + i;
  x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 32) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  const float mantissa = 1.0f + (float)(x & 0x7fffff) / 8388608.0f;
  const float size = (float)(1u << (x >> 24 & 15)) / 4096.0f;
  return (x >> 40 & 1) != 0 ? -mantissa * size : mantissa * size;
}

/* To the nearest bf16, with ties to even. */
static float rounded(float value)
{
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
  memcpy(&value, &bits, sizeof bits);
  return value;
}

/* Adds neighbours among the ranks, level by level. */
static float tree(const struct test *test, int step, size_t i)
{
  float level[MOST_RANKS] = {0};
  uint32_t count = test->ranks.ranks;
  for (uint32_t r = 0; r < count; r++) {
    level[r] = gradient(r, step, i);
    if (test->rounds) level[r] = rounded(level[r]);
  }
  for (; count > 1; count = count / 2 + count % 2) {
    for (uint32_t j = 0; j < count / 2; j++) level[j] = level[2 * j] + level[2 * j + 1];
    if (count % 2 != 0) level[count / 2] = level[count - 1];
  }
  return level[0];
}

static plm_status check(const struct test *test, int step, struct plm_error *error)
{
  size_t count;
  const struct plm_parameter *table = plm_model_table(test->model, &count);
  const struct plm_held held = {test->owners, test->ranks.rank};
  for (size_t p = 0; p < count; p++) {
    if (!plm_is_held(&held, p)) continue;
    for (size_t i = table[p].offset; i < table[p].offset + table[p].count; i++)
      if (test->host[i] != tree(test, step, i))
        return plm_error_set(error, PLM_CORRUPT, "step %d, %s, element %zu: %a instead of %a", step,
                             table[p].name, i - table[p].offset, (double)test->host[i],
                             (double)tree(test, step, i));
  }
  return PLM_OK;
}

static plm_status run_step(struct test *test, int step, struct plm_error *error)
{
  struct plm_ops *ops = test->ops;
  const size_t elements = plm_model_arena_elements(test->model);
  float *arena = plm_model_gradient_arena(test->model);
  for (size_t i = 0; i < elements; i++) test->host[i] = gradient(test->ranks.rank, step, i);
  ops->upload(ops, arena, test->host, elements * sizeof *arena);
  for (uint32_t part = 0; part < plm_exchange_backward_parts(test->exchange); part++)
    PLM_TRY(plm_exchange_gradients(test->exchange, part, error));
  PLM_TRY(plm_exchange_finish_gradients(test->exchange, error));
  ops->download(ops, test->host, arena, elements * sizeof *arena);
  PLM_TRY(ops->synchronize(ops, error));
  return check(test, step, error);
}

static void say(const struct plm_error *error)
{
  plm_error_print("tool_rank_sums", error);
}

static plm_status open_ranks(struct test *test, const char *device, struct plm_error *error)
{
  PLM_TRY(plm_ranks_open(&test->ranks, say, error));
  struct plm_collective *collective = test->ranks.collective;
  const struct plm_rank_place *place = &collective->place;
  collective->set_timeout(collective, 60);
  const bool cuda = strcmp(device, "cuda") == 0;
  const struct plm_ops_request request = {.device = cuda ? PLM_DEVICE_CUDA : PLM_DEVICE_CPU,
                                          .precision = PLM_PRECISION_FP32,
                                          .threads = 1,
                                          .ordinal = (int)place->local,
                                          .of_rank = true};
  PLM_TRY(plm_ops_open(&request, &test->ops, error));
  test->ranks.ops = test->ops;
  return plm_transport_open(collective, test->ops, &test->ranks.transport, error);
}

/* Matrices of 256 x 256 have an owner; vectors and the table of tokens do not. */
static plm_status open_exchange(struct test *test, struct plm_error *error)
{
  static const char yaml[] = "version: 1\ncorpus: corpus\n";
  struct plm_model_config config = model_case_small(PLM_PATCH_UNET);
  config.hidden_size = 256;
  config.num_unet_layers = 2;
  const struct plm_model_options options = {.max_chunks = 1, .training = true};
  size_t count;
  PLM_TRY(plm_config_load_text(yaml, strlen(yaml), &test->config, error));
  PLM_TRY(plm_model_open(&config, test->ops, &options, &test->model, error));
  const struct plm_parameter *table = plm_model_table(test->model, &count);
  test->owners = must(calloc(count, sizeof *test->owners));
  test->host = must(calloc(plm_model_arena_elements(test->model), sizeof *test->host));
  const struct plm_config_trainer *trainer = &test->config.trainer;
  plm_owners_assign(trainer, table, count, test->ranks.ranks, test->owners);
  return plm_exchange_open(&test->ranks, test->model, test->owners, 1,
                           test->rounds ? PLM_COMPRESS_BF16 : PLM_COMPRESS_NONE, NULL,
                           &test->exchange, error);
}

static plm_status run(struct test *test, const char *device, struct plm_error *error)
{
  PLM_TRY(open_ranks(test, device, error));
  PLM_TRY(open_exchange(test, error));
  for (int step = 0; step < STEPS; step++) PLM_TRY(run_step(test, step, error));
  if (test->ranks.rank == 0) printf("%d steps are right\n", STEPS);
  return PLM_OK;
}

static void finish(struct test *test, plm_status status, struct plm_error *error)
{
  struct plm_collective *collective = test->ranks.collective;
  if (status != PLM_OK && collective != NULL) plm_ranks_fail(&test->ranks, error);
  plm_exchange_close(test->exchange);
  plm_model_close(test->model);
  if (test->ranks.transport != NULL) test->ranks.transport->close(test->ranks.transport);
  if (test->ops != NULL) test->ops->close(test->ops);
  if (collective != NULL) collective->close(collective);
  plm_config_deinit(&test->config);
  free(test->owners);
  free(test->host);
}

int main(int argc, char **argv)
{
  struct test test = {0};
  struct plm_error error = {0};
  plm_log_init("tool_rank_sums", PLM_LOG_WARNING);
  if (argc != 3) {
    fprintf(stderr, "usage: tool_rank_sums DEVICE COMPRESS\n");
    return 2;
  }
  test.rounds = strcmp(argv[2], "bf16") == 0;
  const plm_status status = run(&test, argv[1], &error);
  if (status != PLM_OK && test.ranks.collective == NULL) say(&error);
  finish(&test, status, &error);
  return plm_status_exit_code(status);
}
