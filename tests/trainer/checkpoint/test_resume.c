/* What a resume takes from a checkpoint, and what it says if something differs. */
#include "trainer/checkpoint/resume.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "trainer/trainer_options.h"

static const char yaml[] = "run: /tmp/r\nseed: 3\ncorpus: /tmp/c\n"
                           "data: {max_length: 64}\n"
                           "trainer: {steps: 50, batch_tokens: 1024}\n"; /* 16 chunks */

static struct plm_config config;

static int load_config(void **state)
{
  (void)state;
  plm_log_init("test", PLM_LOG_INFO);
  assert_int_equal(plm_config_load_text(yaml, strlen(yaml), &config, NULL), PLM_OK);
  return 0;
}

static int unload_config(void **state)
{
  (void)state;
  plm_config_deinit(&config);
  return 0;
}

static const struct plm_resolved saved = {.device = "cpu",
                                          .precision = "bf16",
                                          .isa = "avx512",
                                          .level = "amx",
                                          .threads = 8,
                                          .ranks = 2,
                                          .step_chunks = 16,
                                          .micro_chunks = 2,
                                          .shares = 8,
                                          .processor = "One",
                                          .version = "0.1.0",
                                          .build = "abc",
                                          .products = "oneDNN 3.1",
                                          .bf16_products = "fp32",
                                          .kernels = "attention sm90"};

/* Compares the saved choices with today's. Returns what is said; *exact as it is afterwards. */
static const char *compared(const struct plm_resolved *before, const struct plm_resolved *today,
                            bool *exact)
{
  struct plm_trainer_state state = {.exact = true, .resolved = *before};
  captured_begin(STDERR_FILENO);
  const struct plm_resume_options options = plm_resume_options_of(&config);
  plm_resume_compare(&state, &options, today);
  *exact = state.exact;
  return captured_end();
}

/* What one difference says, and nothing else. */
static void says(const struct plm_resolved *today, const char *difference)
{
  char expected[300] = "";
  bool exact;
  if (difference != NULL)
    snprintf(expected, sizeof expected,
             "test: warning: the resume is not bit-exact: %s (data and masks are the same, results "
             "are equal up to rounding)\n",
             difference);
  assert_string_equal(compared(&saved, today, &exact), expected);
  assert_int_equal(exact, difference == NULL);
}

static void each_difference_is_named(void **state)
{
  (void)state;
  static const struct {
    size_t offset;
    const char *text; /* NULL: a number */
    uint32_t number;
    const char *says;
  } changes[] = {
      {offsetof(struct plm_resolved, precision), "fp32", 0, "precision was bf16, is fp32"},
      {offsetof(struct plm_resolved, isa), "avx2", 0, "instruction set was avx512, is avx2"},
      {offsetof(struct plm_resolved, level), "avx512", 0,
       "level of instructions (PLM_CPU_ISA) was amx, is avx512"},
      {offsetof(struct plm_resolved, threads), NULL, 7, "threads was 8, is 7"},
      {offsetof(struct plm_resolved, ranks), NULL, 3, "ranks was 2, is 3"},
      {offsetof(struct plm_resolved, ranks), NULL, 4, NULL}, /* adds the shares in the same order */
      {offsetof(struct plm_resolved, step_chunks), NULL, 8, NULL},
      {offsetof(struct plm_resolved, micro_chunks), NULL, 1, "chunks of a micro-batch was 2, is 1"},
      {offsetof(struct plm_resolved, shares), NULL, 4, "shares of a step was 8, is 4"},
      {offsetof(struct plm_resolved, processor), "Two", 0, "processor was One, is Two"},
      {offsetof(struct plm_resolved, version), "0.2.0", 0, "plm-trainer was 0.1.0, is 0.2.0"},
      {offsetof(struct plm_resolved, build), "abd", 0, "plm-trainer's build was abc, is abd"},
      {offsetof(struct plm_resolved, products), "oneDNN 3.2", 0,
       "product library was oneDNN 3.1, is oneDNN 3.2"},
      {offsetof(struct plm_resolved, bf16_products), "native", 0,
       "bf16 products was fp32, is native"},
      {offsetof(struct plm_resolved, bf16_products), "", 0, NULL},
      {offsetof(struct plm_resolved, kernels), "attention mma", 0,
       "CUDA kernels was attention sm90, is attention mma"},
      {offsetof(struct plm_resolved, fallback), "no card", 0, NULL},
  };
  says(&saved, NULL);
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    struct plm_resolved today = saved;
    char *field = (char *)&today + changes[i].offset;
    if (changes[i].text != NULL)
      strcpy(field, changes[i].text);
    else
      memcpy(field, &changes[i].number, sizeof changes[i].number);
    says(&today, changes[i].says);
  }
}

/* What follows from another device or instruction set is not said as well. */
static void consequences_are_left_out(void **state)
{
  (void)state;
  struct plm_resolved today = saved;
  strcpy(today.device, "cuda");
  strcpy(today.isa, "sm_90");
  strcpy(today.products, "");
  strcpy(today.processor, "Card");
  strcpy(today.level, "");
  today.threads = 1;
  says(&today, "device was cpu, is cuda");
  today = saved;
  strcpy(today.isa, "avx2");
  strcpy(today.level, "avx2");
  strcpy(today.kernels, "");
  says(&today, "instruction set was avx512, is avx2");
}

/* Checkpoints of earlier builds name no level, and those of the CPU no kernels. */
static void what_was_not_saved_is_not_compared(void **state)
{
  (void)state;
  struct plm_resolved before = saved;
  bool exact;
  before.level[0] = before.kernels[0] = '\0';
  assert_string_equal(compared(&before, &saved, &exact), "");
  assert_true(exact);
  struct plm_resolved today = before;
  before.shares = today.shares = 0; /* no build has written that */
  today.ranks = 4;
  assert_int_equal(captured_times(compared(&before, &today, &exact), "ranks was 2, is 4"), 1);
  assert_false(exact);
}

/* The order in which shares are added changes with the ranks unless each has a power of two. With
 * compression, what is rounded depends on the ranks. */
static void the_number_of_shares_is_kept(void **state)
{
  (void)state;
  static const struct {
    uint32_t shares, before, now, wanted; /* wanted 0: as a new run */
    bool compress;
  } cases[] = {{8, 2, 2, 8, false}, {8, 2, 4, 8, false},  {8, 4, 1, 8, false}, {8, 2, 3, 0, false},
               {8, 0, 2, 0, false}, {8, 2, 2, 8, true},   {8, 2, 4, 0, true},  {0, 2, 2, 0, false},
               {3, 1, 1, 0, false}, {32, 2, 2, 0, false}, {12, 4, 2, 0, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_resolved before = {.shares = cases[i].shares, .ranks = cases[i].before};
    config.trainer.ranks = cases[i].now;
    config.trainer.compress = cases[i].compress ? PLM_COMPRESS_BF16 : PLM_COMPRESS_NONE;
    struct plm_resume_options options = plm_resume_options_of(&config);
    const uint32_t wanted = cases[i].wanted ? cases[i].wanted : cases[i].now;
    assert_int_equal(plm_resume_new_shares(&options), cases[i].now);
    assert_int_equal(plm_resume_shares(&before, &options), wanted);
    options.shares = 16; /* said by the user */
    assert_int_equal(plm_resume_shares(&before, &options), 16);
  }
  static const struct {
    uint32_t shares, before, now;
    bool kept;
  } whole[] = {{12, 3, 6, true},  {24, 8, 12, false},           {12, 12, 4, false},
               {12, 5, 6, false}, {PLM_MAX_SHARES, 1, 1, true}, {2 * PLM_MAX_SHARES, 1, 1, false}};
  for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) { /* of a step that they divide */
    const struct plm_resolved before = {.shares = whole[i].shares, .ranks = whole[i].before};
    const struct plm_resume_options options = {.ranks = whole[i].now,
                                               .step_chunks = whole[i].shares};
    assert_int_equal(plm_resume_shares(&before, &options),
                     whole[i].kept ? whole[i].shares : whole[i].now);
  }
  config.trainer.ranks = 1;
  config.trainer.compress = PLM_COMPRESS_NONE;
}

/* What the configuration leaves open is as it was. */
static void the_request_is_as_it_was(void **state)
{
  (void)state;
  static const char isa[] = "now";
  struct plm_resolved before = saved;
  config.trainer.ranks = before.ranks;
  for (int cuda = 0; cuda < 2; cuda++)
    for (int open = 0; open < 2; open++) {
      strcpy(before.device, cuda ? "cuda" : "cpu");
      strcpy(before.precision, cuda ? "fp32" : "bf16");
      config.trainer.precision = open ? PLM_PRECISION_AUTO : PLM_PRECISION_FP32;
      config.trainer.threads = open ? 0 : 3;
      struct plm_ops_request request = {.device = open ? PLM_DEVICE_AUTO : PLM_DEVICE_CUDA,
                                        .precision = PLM_PRECISION_FP32,
                                        .threads = 3,
                                        .isa = isa};
      const struct plm_resume_options options = plm_resume_options_of(&config);
      plm_resume_request(&before, &options, &request);
      assert_int_equal(request.device, !open  ? PLM_DEVICE_CUDA
                                       : cuda ? PLM_DEVICE_AUTO
                                              : PLM_DEVICE_CPU);
      assert_int_equal(request.precision, open && !cuda ? PLM_PRECISION_BF16 : PLM_PRECISION_FP32);
      assert_int_equal(request.threads, open && !cuda ? 8 : 3);
      assert_ptr_equal(request.isa, cuda ? isa : before.isa);
      assert_int_equal(request.bf16, cuda ? PLM_BF16_AUTO : PLM_BF16_BY_FP32);
    }
}

/* The way of bf16 products is the saved one, whatever the table of this build says. fp32 has none.
 */
static void bf16_products_are_as_they_were(void **state)
{
  (void)state;
  static const struct {
    const char *saved;
    enum plm_bf16_products wanted;
  } cases[] = {{"native", PLM_BF16_NATIVE},
               {"fp32", PLM_BF16_BY_FP32},
               {"", PLM_BF16_AUTO},
               {"auto", PLM_BF16_AUTO},
               {"other", PLM_BF16_AUTO}};
  const struct plm_resume_options options = plm_resume_options_of(&config);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_resolved before = saved;
    struct plm_ops_request request = {.device = PLM_DEVICE_AUTO};
    strcpy(before.bf16_products, cases[i].saved);
    plm_resume_request(&before, &options, &request);
    assert_int_equal(request.bf16, cases[i].wanted);
    request = (struct plm_ops_request){.device = PLM_DEVICE_AUTO};
    before.anew.device = true; /* another device may be chosen */
    plm_resume_request(&before, &options, &request);
    assert_int_equal(request.bf16, PLM_BF16_AUTO);
  }
}

/* What the configuration left open only now, or for another number of ranks, is chosen anew. */
static void what_was_set_before_is_chosen_anew(void **state)
{
  (void)state;
  struct plm_resolved before = saved;
  strcpy(before.device, "cpu");
  strcpy(before.precision, "bf16");
  config.trainer.precision = PLM_PRECISION_AUTO;
  config.trainer.threads = 0;
  config.trainer.ranks = before.ranks;
  const struct plm_resume_options options = plm_resume_options_of(&config);
  for (int which = 0; which < 4; which++) {
    struct plm_ops_request request = {.device = PLM_DEVICE_AUTO, .precision = PLM_PRECISION_AUTO};
    before.anew = (struct plm_anew){which == 1, which == 2, which == 3};
    plm_resume_request(&before, &options, &request);
    assert_int_equal(request.device, which == 1 ? PLM_DEVICE_AUTO : PLM_DEVICE_CPU);
    assert_ptr_equal(request.isa, which == 1 ? NULL : before.isa);
    assert_int_equal(request.precision, which == 2 ? PLM_PRECISION_AUTO : PLM_PRECISION_BF16);
    assert_int_equal(request.threads, which == 3 ? 0 : 8);
  }
  struct plm_ops_request cpu = {.device = PLM_DEVICE_CPU};
  before.anew = (struct plm_anew){.device = true};
  plm_resume_request(&before, &options, &cpu); /* it is set now */
  assert_ptr_equal(cpu.isa, before.isa);
  for (int more = 0; more < 2; more++) {
    struct plm_ops_request request = {.device = PLM_DEVICE_CPU};
    before.anew = (struct plm_anew){0};
    before.ranks = options.ranks + (uint32_t)more;
    plm_resume_request(&before, &options, &request);
    assert_int_equal(request.threads, more ? 0 : 8);
  }
}

/* A run that fell back to the CPU keeps the reason, unless the device is set or is another one. */
static void a_run_stays_on_the_cpu(void **state)
{
  (void)state;
  static const struct {
    enum plm_device device;
    const char *today, *fallback;
    bool kept;
  } rows[] = {{PLM_DEVICE_AUTO, "cpu", "no card", true},
              {PLM_DEVICE_CPU, "cpu", "no card", false},
              {PLM_DEVICE_AUTO, "cuda", "no card", false},
              {PLM_DEVICE_AUTO, "cpu", "", false}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const struct plm_resume_options options = {.device = rows[i].device};
    struct plm_resolved before = saved, today = {.fallback = "today's"};
    strcpy(before.fallback, rows[i].fallback);
    strcpy(today.device, rows[i].today);
    plm_log_init("test", PLM_LOG_INFO);
    captured_begin(STDERR_FILENO);
    plm_resume_on_cpu(&before, &options, &today);
    const char *said = captured_end();
    plm_log_init("test", PLM_LOG_WARNING);
    assert_string_equal(today.fallback, rows[i].kept ? "no card" : "today's");
    assert_int_equal(captured_times(said, "stays there (no card)"), rows[i].kept);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_difference_is_named),
      cmocka_unit_test(consequences_are_left_out),
      cmocka_unit_test(what_was_not_saved_is_not_compared),
      cmocka_unit_test(the_number_of_shares_is_kept),
      cmocka_unit_test(the_request_is_as_it_was),
      cmocka_unit_test(bf16_products_are_as_they_were),
      cmocka_unit_test(what_was_set_before_is_chosen_anew),
      cmocka_unit_test(a_run_stays_on_the_cpu),
  };
  return cmocka_run_group_tests(tests, load_config, unload_config);
}
