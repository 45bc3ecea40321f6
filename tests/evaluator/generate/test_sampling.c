/* Checks the choice of tokens against its definition in another way, by counting. */
#include <math.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "evaluator/generate/sampling.h"
#include "tests/support/harness/cmocka_all.h"

static const struct plm_tokenizer *esm(void)
{
  return plm_tokenizer_of(PLM_TOKENIZER_ESM);
}

static struct plm_sampler sampler_of(double temperature, double top_p)
{
  struct plm_sampler sampler;
  plm_sampler_init(&sampler, esm(), false, temperature, top_p, 0, 17);
  return sampler;
}

static void who_takes_part(void **state)
{
  (void)state;
  struct plm_sampler sampler;
  const struct plm_tokenizer *bytes = plm_tokenizer_of(PLM_TOKENIZER_BYTE);
  plm_sampler_init(&sampler, esm(), false, 1, 1, 0, 0);
  assert_int_equal(sampler.count, 20);
  assert_int_equal(sampler.ids[0], 4);
  assert_int_equal(sampler.ids[19], 23);
  plm_sampler_init(&sampler, esm(), true, 1, 1, 0, 0);
  assert_int_equal(sampler.count, 21);
  assert_int_equal(sampler.ids[0], esm()->eos);
  plm_sampler_init(&sampler, bytes, false, 1, 1, 0, 0);
  assert_int_equal(sampler.count, 256);
  plm_sampler_init(&sampler, bytes, true, 1, 1, 0, 0);
  assert_int_equal(sampler.count, 257);
  assert_int_equal(sampler.ids[256], bytes->eos);
}

/* Logits in which tokens that may not be generated are by far the largest. */
static void fill(float logits[33])
{
  for (int i = 0; i < 33; i++) logits[i] = 30;
  for (int i = 4; i < 24; i++) logits[i] = 0.25f * (float)((i * 7) % 20) - 3;
  logits[9] = logits[21]; /* a tie */
}

static void temperature_zero_takes_the_largest(void **state)
{
  (void)state;
  float logits[33];
  fill(logits);
  logits[12] = logits[17] = 2.5f;
  const struct plm_sampler sampler = sampler_of(0, 0.5);
  double sum = 0;
  for (int i = 4; i < 24; i++) sum += exp((double)logits[i]);
  for (int u = 0; u < 3; u++) {
    const struct plm_sampled sampled = plm_sampler_choose_with(&sampler, logits, u / 3.0);
    assert_int_equal(sampled.token, 12); /* the lower of the two */
    assert_true(fabs(sampled.probability - exp(2.5) / sum) < 1e-12);
  }
}

/* Over a fine grid of draws, each token is taken as often as its probability says. With top_p, no
 * token outside the shortest prefix that reaches it is taken. */
static void draws_follow_the_probabilities(void **state)
{
  (void)state;
  enum { DRAWS = 1 << 16 };
  static const double cases[][2] = {{1, 1}, {0.5, 1}, {2, 1}, {1, 0.8}, {0.7, 0.3}, {1, 1e-9}};
  float logits[33];
  fill(logits);
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const double T = cases[c][0], top_p = cases[c][1];
    const struct plm_sampler sampler = sampler_of(T, top_p);
    double p[33] = {0}, sum = 0, kept_sum = 0;
    uint32_t counted[33] = {0};
    bool kept[33] = {false};
    for (int i = 4; i < 24; i++) sum += p[i] = exp((double)logits[i] / T);
    for (int i = 4; i < 24; i++) p[i] /= sum;
    while (kept_sum < top_p - 1e-12) { /* the next most probable */
      int best = -1;
      for (int i = 4; i < 24; i++)
        if (!kept[i] && (best < 0 || p[i] > p[best])) best = i;
      if (best < 0) break;
      kept[best] = true;
      kept_sum += p[best];
    }
    for (uint32_t n = 0; n < DRAWS; n++) {
      const struct plm_sampled sampled =
          plm_sampler_choose_with(&sampler, logits, (double)n / DRAWS);
      assert_true(kept[sampled.token]);
      assert_true(fabs(sampled.probability - p[sampled.token]) < 1e-12);
      counted[sampled.token]++;
    }
    for (int i = 4; i < 24; i++)
      if (kept[i]) assert_true(fabs(counted[i] - DRAWS * p[i] / kept_sum) < 2);
  }
}

static void draws_are_counters(void **state)
{
  (void)state;
  float logits[33];
  fill(logits);
  const struct plm_sampler sampler = sampler_of(1, 1);
  bool differs[3] = {false};
  for (uint32_t position = 0; position < 50; position++) {
    const uint64_t sequence = UINT64_C(0x123456789a);
    const double u = plm_philox_unit(plm_philox(17, position, sequence, 8 + 256 * 3).w[0]);
    const struct plm_sampled a = plm_sampler_choose(&sampler, logits, position, sequence, 3);
    assert_int_equal(a.token, plm_sampler_choose_with(&sampler, logits, u).token);
    differs[0] |= a.token != plm_sampler_choose(&sampler, logits, position + 1, sequence, 3).token;
    differs[1] |= a.token != plm_sampler_choose(&sampler, logits, position, sequence + 1, 3).token;
    differs[2] |= a.token != plm_sampler_choose(&sampler, logits, position, sequence, 4).token;
  }
  for (int i = 0; i < 3; i++) assert_true(differs[i]);
}

/* With top_k, the k most probable tokens are taken and no other, in the proportions that they had.
 */
static void the_most_probable_are_taken(void **state)
{
  (void)state;
  enum { DRAWS = 20000 };
  float logits[33];
  fill(logits);
  logits[9] = 4;
  logits[20] = 4.5f;
  struct plm_sampler sampler = sampler_of(1, 1);
  uint32_t counted[33] = {0};
  sampler.top_k = 2;
  for (uint32_t n = 0; n < DRAWS; n++)
    counted[plm_sampler_choose_with(&sampler, logits, (double)n / DRAWS).token]++;
  assert_int_equal(counted[9] + counted[20], DRAWS);
  assert_true(fabs(counted[20] - DRAWS / (1 + exp(-0.5))) < 2);
  sampler.top_k = 1;
  assert_int_equal(plm_sampler_choose_with(&sampler, logits, 1 - 0x1p-24).token, 20);
  const struct plm_sampler all = sampler_of(1, 1);
  sampler.top_k = 1000; /* more than there are */
  for (int n = 0; n < 100; n++)
    assert_int_equal(plm_sampler_choose_with(&sampler, logits, n / 100.0).token,
                     plm_sampler_choose_with(&all, logits, n / 100.0).token);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(who_takes_part),
      cmocka_unit_test(the_most_probable_are_taken),
      cmocka_unit_test(temperature_zero_takes_the_largest),
      cmocka_unit_test(draws_follow_the_probabilities),
      cmocka_unit_test(draws_are_counters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
