/* The progress of `embed` over the batches of a window, also if an earlier run has done some of
 * them: what is shown as done, the rate, and the time left. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/text/text.h"
#include "common/run/stop.h"
#include "evaluator/embed/embed.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/harness/shown_progress.h"

/* Two sequences never fit into one batch of L tokens. */
enum { L = 512, SEQUENCES = 6, LONGEST = 500, STEP = 20, BEFORE = 3 };

static struct inference_case model;
static char folder[200], in[200], out[200];

/* Of the n-th longest. */
static uint32_t tokens_of(uint32_t n)
{
  return LONGEST - STEP * n;
}

static void write_input(void)
{
  static const uint32_t order[SEQUENCES] = {3, 0, 5, 1, 4, 2};
  struct plm_text text = {0};
  for (uint32_t i = 0; i < SEQUENCES; i++) {
    plm_text_printf(&text, ">s%u\n", i);
    for (uint32_t t = 2; t < tokens_of(order[i]); t++) plm_text_puts(&text, "A");
    plm_text_puts(&text, "\n");
  }
  scratch_write(in, text.data, text.length);
  plm_text_deinit(&text);
}

static void (*norm_forward)(struct plm_ops *ops, act *to, const act *x, int64_t N, int64_t D);

/* A signal comes while the model computes. */
static void stop_and_norm(struct plm_ops *ops, act *to, const act *x, int64_t N, int64_t D)
{
  plm_stop_requested = SIGTERM;
  norm_forward(ops, to, x, N, D);
}

/* Embeds, or only the next batch if `stops`. Returns what it says. */
static const char *embed(bool stops)
{
  static const char *const inputs[] = {in};
  const struct plm_embed_request request = {.of.checkpoint = folder,
                                            .of.inputs = inputs,
                                            .of.input_count = 1,
                                            .of.output = out,
                                            .of.batch_tokens = L,
                                            .pooling = {.kinds = {PLM_POOL_MEAN}, .count = 1}};
  struct plm_ops *ops = model.inference.ops;
  struct plm_error error = {0};
  norm_forward = ops->norm_forward;
  if (stops) ops->norm_forward = stop_and_norm;
  captured_begin(STDOUT_FILENO);
  shown_progress_begin();
  const plm_status status = plm_embed(&request, ops, &error);
  shown_each_s = 0;
  static char said[1 << 14];
  snprintf(said, sizeof said, "%s", captured_end());
  captured_end();
  ops->norm_forward = norm_forward;
  plm_stop_requested = 0;
  if (status != (stops ? PLM_TERMINATED : PLM_OK)) fail_msg("%d: %s", (int)status, error.what);
  return said;
}

/* A line for each sequence from the one behind `before` on. The rate counts only what this run
 * does, so at this rate the time left is that for the tokens that are left. */
static void shows(const char *said, uint32_t before)
{
  uint32_t all = 0, done = 0;
  for (uint32_t n = 0; n < SEQUENCES; n++) all += tokens_of(n);
  for (uint32_t n = 0; n < before; n++) done += tokens_of(n);
  for (uint32_t n = before; n < SEQUENCES; n++) {
    unsigned percent, sequences, rate, minutes, seconds;
    done += tokens_of(n);
    said = strstr(said, "embed ");
    if (said == NULL) fail_msg("no line for sequence %u", n);
    if (sscanf(said, "embed %u %%  %u sequence%*[s,] %u tokens/s, %u:%u left", &percent, &sequences,
               &rate, &minutes, &seconds) != 5)
      fail_msg("%s", said);
    said++;
    assert_int_equal(percent, lround(100.0 * done / all));
    assert_int_equal(sequences, n + 1);
    const double left = rate * (60.0 * minutes + seconds), expected = all - done;
    if (!(fabs(left - expected) <= 0.25 * expected + rate)) fail_msg("%g, not %g", left, expected);
  }
  assert_null(strstr(said, "embed "));
}

static void each_batch_is_shown(void **state)
{
  (void)state;
  shows(embed(false), 0);
}

static void what_was_done_before_is_not_counted_in_the_rate(void **state)
{
  (void)state;
  for (uint32_t i = 0; i <= BEFORE; i++) {
    char expected[80];
    const char *said = embed(i < BEFORE);
    snprintf(expected, sizeof expected, "out.safetensors: continuing after %u of 6 sequences\n", i);
    assert_int_equal(strstr(said, "continuing") != NULL, i > 0);
    assert_int_equal(strstr(said, expected) != NULL, i > 0);
    if (i == BEFORE) shows(said, BEFORE);
  }
}

static int begin(void **state)
{
  (void)state;
  snprintf(folder, sizeof folder, "%.199s", scratch_path("model"));
  snprintf(in, sizeof in, "%.199s", scratch_path("in.fasta"));
  snprintf(out, sizeof out, "%.199s", scratch_path("out.safetensors"));
  inference_case_open(&model, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, L, 1);
  inference_case_save(&model, folder);
  write_input();
  return 0;
}

static int end(void **state)
{
  (void)state;
  inference_case_close(&model);
  return 0;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
      TEST(each_batch_is_shown),
      TEST(what_was_done_before_is_not_counted_in_the_rate),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
