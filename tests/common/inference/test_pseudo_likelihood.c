/* The pseudo-log-likelihood of a sequence is the sum of the log-probabilities of its residues, each
 * masked by itself, however the copies are cut into batches. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "common/inference/pseudo_likelihood.h"
#include "tests/support/cases/inference_case.h"

enum { LENGTH = 32, COUNT = 21 };

static void a_log_probability_reads_its_row_only(void **state)
{
  (void)state;
  static const float logits[] = {1, 3, 2, -1, 1000};
  const double all = log(exp(1) + exp(3) + exp(2) + exp(-1));
  for (int32_t token = 0; token < 4; token++)
    assert_true(fabs(plm_log_probability(logits, 4, token) - (logits[token] - all)) < 1e-14);
  assert_true(plm_log_probability(logits + 2, 1, 0) == 0);
  static const float large[] = {2000, 1000, 2000};
  assert_true(fabs(plm_log_probability(large, 3, 2) + log(2)) < 1e-14);
  assert_true(plm_log_probability(large, 3, 1) == -1000 - log(2));
}

static double masked_alone(struct inference_case *c, const int32_t *tokens, uint32_t at)
{
  int32_t copy[COUNT];
  memcpy(copy, tokens, sizeof copy);
  copy[at] = c->inference.tokenizer->mask;
  const float *logits = inference_case_logits(c, copy, COUNT);
  return inference_case_log_p(c, logits + at * c->inference.config.vocab_size, tokens[at]);
}

struct polls {
  uint32_t count, most; /* the one after `most` ends the work */
};

static plm_status poll_for_stop(void *context, struct plm_error *error)
{
  struct polls *polls = context;
  (void)error;
  return polls->count++ == polls->most ? PLM_INTERRUPTED : PLM_OK;
}

static plm_status lost(struct plm_ops *ops, struct plm_error *error)
{
  (void)ops;
  return plm_error_set(error, PLM_FAILURE, "the device is lost");
}

static void a_device_that_fails_is_an_error(void **state)
{
  (void)state;
  struct inference_case c;
  struct plm_pseudo_likelihood *likelihood;
  struct plm_error error = {0};
  int32_t tokens[COUNT];
  double sum;
  uint32_t terms;
  inference_case_open(&c, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, LENGTH, 3);
  for (int32_t t = 0; t < COUNT; t++) tokens[t] = 4 + t % 20;
  assert_int_equal(plm_pseudo_likelihood_open(&c.inference, &likelihood, NULL), PLM_OK);
  assert_int_equal(
      plm_pseudo_likelihood_run(likelihood, tokens, COUNT, NULL, NULL, &sum, &terms, NULL), PLM_OK);
  struct plm_ops *ops = c.inference.ops;
  plm_status (*synchronize)(struct plm_ops *, struct plm_error *) = ops->synchronize;
  ops->synchronize = lost;
  assert_int_equal(
      plm_pseudo_likelihood_run(likelihood, tokens, COUNT, NULL, NULL, &sum, &terms, &error),
      PLM_FAILURE);
  assert_string_equal(error.what, "the device is lost");
  ops->synchronize = synchronize;
  plm_pseudo_likelihood_close(likelihood);
  inference_case_close(&c);
}

static void every_residue_is_masked_once(void **state)
{
  (void)state;
  struct inference_case c;
  struct plm_pseudo_likelihood *likelihood;
  int32_t tokens[COUNT];
  double sum, expected = 0;
  uint32_t terms, residues = 0;
  inference_case_open(&c, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, LENGTH, 3);
  for (int32_t t = 0; t < COUNT; t++) tokens[t] = 4 + t * 7 % 20;
  tokens[0] = c.inference.tokenizer->cls;
  tokens[9] = c.inference.tokenizer->pad;
  tokens[COUNT - 1] = c.inference.tokenizer->eos;
  for (uint32_t at = 0; at < COUNT; at++) {
    if (at == 0 || at == 9 || at == COUNT - 1) continue;
    expected += masked_alone(&c, tokens, at);
    residues++;
  }
  assert_int_equal(plm_pseudo_likelihood_open(&c.inference, &likelihood, NULL), PLM_OK);
  struct polls polls = {.most = 1000};
  for (int again = 0; again < 2; again++) { /* nothing is left of the first time */
    assert_int_equal(plm_pseudo_likelihood_run(likelihood, tokens, COUNT, poll_for_stop, &polls,
                                               &sum, &terms, NULL),
                     PLM_OK);
    assert_int_equal(terms, residues);
    if (!(fabs(sum - expected) <= 1e-5 * fabs(expected))) fail_msg("%.9g, not %.9g", sum, expected);
  }
  assert_int_equal(polls.count, 2 * ((residues + 2) / 3 - 1)); /* three copies in a batch */
  polls = (struct polls){.most = 2};
  assert_int_equal(plm_pseudo_likelihood_run(likelihood, tokens, COUNT, poll_for_stop, &polls, &sum,
                                             &terms, NULL),
                   PLM_INTERRUPTED);
  assert_int_equal(polls.count, 3);
  assert_int_equal(plm_pseudo_likelihood_run(likelihood, tokens, 1, NULL, NULL, &sum, &terms, NULL),
                   PLM_OK);
  assert_true(sum == 0 && terms == 0);
  plm_pseudo_likelihood_close(likelihood);
  inference_case_close(&c);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_log_probability_reads_its_row_only),
      cmocka_unit_test(every_residue_is_masked_once),
      cmocka_unit_test(a_device_that_fails_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
