/* The start of several ranks: what rank 0 sends, and what is said if the ranks do not fit together.
 */
#include "trainer/ranks/rank_start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/plan/plan.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/fake_collective.h"

static void load(const char *yaml, struct plm_config *config)
{
  struct plm_error error = {0};
  if (plm_config_load_text(yaml, strlen(yaml), config, &error) != PLM_OK)
    fail_msg("%s", error.what);
}

static void open_ranks(struct plm_ranks *ranks, struct fake_collective *fake, uint32_t rank,
                       uint32_t count)
{
  fake_collective_init(fake, rank, count);
  *ranks = (struct plm_ranks){.collective = &fake->base, .rank = rank, .ranks = count};
}

static void a_process_alone_trains_one_rank(void **state)
{
  (void)state;
  struct plm_config config = {.trainer = {.ranks = 1}};
  struct plm_error error = {0};
  struct plm_ranks alone = plm_ranks_single();
  assert_int_equal(plm_rank_share_config(&alone, &config, &error), PLM_OK);
  config.trainer.ranks = 2;
  assert_int_equal(plm_rank_share_config(&alone, &config, &error), PLM_CONFIG);
  assert_string_equal(error.what, "trainer.ranks is 2, but 1 process was started");
  assert_string_equal(error.hint,
                      "`plm-pipeline up` starts the right number; by hand: mpirun -np 2 "
                      "plm-trainer ...");
}

/* Rank 0 of `count` sends its configuration; then rank 1 receives it. */
static void share_config(uint32_t count, plm_status expected, const char *what)
{
  static const char yaml[] = "version: 1\nseed: 77\ntrainer: {ranks: 2, rank_timeout_s: 42}\n";
  struct fake_collective fake;
  struct plm_ranks ranks;
  struct plm_config mine, received = {0};
  struct plm_error error = {0};
  char told[128];
  open_ranks(&ranks, &fake, 0, count);
  load(yaml, &mine);
  assert_int_equal(plm_rank_share_config(&ranks, &mine, &error), expected);
  assert_string_equal(error.what, what);
  assert_int_equal(ranks.agreed, expected != PLM_OK);
  const size_t size = fake.sent[1].bytes;
  snprintf(told, sizeof told, "broadcast of 8 on lane 0\nbroadcast of %zu on lane 0\ntimeout 42\n",
           size);
  assert_string_equal(fake_collective_told(&fake), told);
  assert_int_equal(strlen(fake.sent[1].data) + 1, size);

  fake.base.place.rank = ranks.rank = 1;
  ranks.agreed = ranks.silent = false;
  assert_int_equal(plm_rank_share_config(&ranks, &received, &error), expected);
  assert_string_equal(fake_collective_told(&fake), told);
  assert_int_equal(ranks.agreed && ranks.silent, expected != PLM_OK);
  assert_int_equal(received.seed, 77);
  assert_int_equal(received.trainer.ranks, 2);
  plm_config_deinit(&mine);
  plm_config_deinit(&received);
  fake_collective_deinit(&fake);
}

static void the_configuration_is_that_of_rank_0(void **state)
{
  (void)state;
  share_config(2, PLM_OK, "");
  share_config(3, PLM_CONFIG, "trainer.ranks is 2, but 3 processes were started");
}

static void init_state(struct plm_trainer_state *state, const struct plm_config *config)
{
  const struct plm_plan_parameters plan = plm_config_training_plan(config);
  *state = (struct plm_trainer_state){.exact = true,
                                      .resolved = {.device = "cpu",
                                                   .precision = "fp32",
                                                   .isa = "avx2",
                                                   .level = "avx2",
                                                   .threads = 2,
                                                   .ranks = 2,
                                                   .step_chunks = 8,
                                                   .micro_chunks = 4,
                                                   .shares = 2,
                                                   .processor = "P",
                                                   .version = "1",
                                                   .build = "another one",
                                                   .products = "cblas"}};
  plm_data_cursor_init(&state->cursor, plm_plan_hash(&plan), config->seed);
}

/* Rank 0 sends what it found; its state follows only if the run is resumed and not complete. */
static void the_state_is_that_of_rank_0(void **state)
{
  (void)state;
  static const struct plm_rank_found rows[] = {
      {false, false, 0, {false}},
      {true, true, 9, {false}},
      {true, false, 9, {false}},
      {false, true, 9, {.precision = true, .threads = true}}};
  struct plm_config config;
  load("version: 1\n", &config);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const bool follows = i == 3;
    struct fake_collective fake;
    struct plm_ranks ranks;
    struct plm_rank_found found = rows[i];
    struct plm_trainer_state mine, received;
    open_ranks(&ranks, &fake, 0, 2);
    init_state(&mine, &config);
    init_state(&received, &config);
    mine.step = 1234;
    snprintf(mine.resolved.build, sizeof mine.resolved.build, "of rank 0");
    assert_int_equal(plm_rank_share_state(&ranks, &config, &found, &mine, NULL), PLM_OK);
    assert_int_equal(fake.sent_count, follows ? 3 : 1);
    fake.base.place.rank = ranks.rank = 1;
    found = (struct plm_rank_found){0};
    assert_int_equal(plm_rank_share_state(&ranks, &config, &found, &received, NULL), PLM_OK);
    assert_int_equal(found.complete, rows[i].complete);
    assert_int_equal(found.resumed, rows[i].resumed);
    assert_int_equal(found.saved_step, rows[i].saved_step);
    assert_memory_equal(&found.anew, &rows[i].anew, sizeof found.anew);
    assert_int_equal(fake.received, fake.sent_count);
    assert_int_equal(received.step, follows ? 1234 : 0);
    assert_string_equal(received.resolved.build, follows ? "of rank 0" : "another one");
    plm_trainer_state_deinit(&mine);
    plm_trainer_state_deinit(&received);
    fake_collective_deinit(&fake);
  }
  plm_config_deinit(&config);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static const struct plm_resolved resolved = {.device = "gpu",
                                             .precision = "bf16",
                                             .isa = "avx2",
                                             .level = "avx512",
                                             .threads = 7,
                                             .processor = "P1",
                                             .build = "b1",
                                             .products = "cblas",
                                             .bf16_products = "native",
                                             .kernels = "k1"};

/* What a rank on `host` sends about itself; the caller frees it. */
static void *sent_by(const char *host, const struct plm_resolved *of, const char *driver,
                     size_t *bytes)
{
  struct fake_collective fake;
  struct plm_ranks ranks;
  struct plm_ops ops = {.driver = driver};
  open_ranks(&ranks, &fake, 1, 2);
  ranks.ops = &ops;
  snprintf(fake.base.place.host, sizeof fake.base.place.host, "%s", host);
  assert_int_equal(plm_rank_compare(&ranks, of, NULL), PLM_OK);
  void *sent = fake.sent[0].data;
  *bytes = fake.sent[0].bytes;
  fake.sent_count = 0;
  fake_collective_deinit(&fake);
  return sent;
}

/* Rank 0 of three hears of rank 1, which is as rank 0, and of rank 2. */
static void expect_difference(const struct plm_resolved *other, const char *driver,
                              const char *what, const char *hint)
{
  struct fake_collective fake;
  struct plm_ranks ranks;
  struct plm_ops ops = {.driver = "d1"};
  struct plm_error error = {0};
  size_t bytes;
  void *same = sent_by("first", &resolved, "d1", &bytes),
       *sent = sent_by("third", other, driver, &bytes);
  char *answers = calloc(3, bytes);
  memcpy(answers, same, bytes);
  memcpy(answers + bytes, same, bytes);
  memcpy(answers + 2 * bytes, sent, bytes);
  open_ranks(&ranks, &fake, 0, 3);
  ranks.ops = &ops;
  fake.answers = answers;
  assert_int_equal(plm_rank_compare(&ranks, &resolved, &error),
                   *what == '\0' ? PLM_OK : PLM_CONFIG);
  assert_string_equal(error.what, what);
  assert_string_equal(error.hint, hint);
  assert_int_equal(ranks.agreed && ranks.alike, *what != '\0');
  fake_collective_deinit(&fake);
  free(answers);
  free(same);
  free(sent);
}

static void each_trait_is_compared(void **state)
{
  (void)state;
  static const char machines[] = "all ranks need the same build, libraries and kind of machine";
  static const char kernels[] = "set PLM_CUDA_ATTENTION=mma and PLM_CUDA_RELU2=library for all "
                                "ranks; the log says which check failed";
  struct plm_resolved other = resolved;
  expect_difference(&other, "d1", "", "");
#define DIFFERS(field, value, text, hint)                                                          \
  do {                                                                                             \
    other = resolved;                                                                              \
    snprintf(other.field, sizeof other.field, "%s", value);                                        \
    expect_difference(&other, "d1", "rank 0 on here has " text ", but rank 2 on third has " value, \
                      hint);                                                                       \
  } while (0)
  DIFFERS(build, "b2", "build b1", machines);
  DIFFERS(device, "cpu", "device gpu", machines);
  DIFFERS(precision, "fp32", "precision bf16", machines);
  DIFFERS(kernels, "k2", "CUDA kernels k1", kernels);
  DIFFERS(isa, "avx", "instruction set avx2", machines);
  DIFFERS(level, "avx2", "level of instructions avx512", machines);
  DIFFERS(products, "", "product library cblas", machines);
  DIFFERS(bf16_products, "fp32", "bf16 products native", machines);
  DIFFERS(processor, "P12", "processor P1", machines);
  other = resolved;
  other.threads = 77;
  expect_difference(&other, "d1", "rank 0 on here has threads 7, but rank 2 on third has 77",
                    machines);
  expect_difference(&resolved, "d2", "rank 0 on here has driver d1, but rank 2 on third has d2",
                    machines);
  expect_difference(&resolved, NULL, "rank 0 on here has driver d1, but rank 2 on third has ",
                    machines);
  /* the first one that differs is told */
  snprintf(other.device, sizeof other.device, "cpu");
  expect_difference(&other, "d2", "rank 0 on here has device gpu, but rank 2 on third has cpu",
                    machines);
}

static void a_failed_comparison_is_no_difference(void **state)
{
  (void)state;
  struct fake_collective fake;
  struct plm_ranks ranks;
  struct plm_ops ops = {0};
  open_ranks(&ranks, &fake, 0, 2);
  ranks.ops = &ops;
  fake.wait_fails = PLM_FAILURE;
  assert_int_equal(plm_rank_compare(&ranks, &resolved, NULL), PLM_FAILURE);
  assert_false(ranks.agreed);
  fake_collective_deinit(&fake);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_process_alone_trains_one_rank),
      cmocka_unit_test(the_configuration_is_that_of_rank_0),
      cmocka_unit_test(the_state_is_that_of_rank_0),
      cmocka_unit_test(each_trait_is_compared),
      cmocka_unit_test(a_failed_comparison_is_no_difference),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
