/* The rate of a packer that serves windows with pauses between them. */
#include "common/feed/feed_rate.h"
#include "tests/support/harness/cmocka_all.h"

/* A window of 20,000 tokens every ten seconds; a report every second. */
static void pauses_do_not_show(void **state)
{
  (void)state;
  struct feed_rate rate = {0};
  for (uint64_t s = 5; s <= 300; s++) {
    feed_rate_add(&rate, (struct feed_rate_report){1000 * s, 20000 * (s / 10)});
    if (s == 5) assert_true(rate.tokens_per_second == 0);
    if (s < 35) continue;
    assert_true(rate.tokens_per_second > 1300);
    assert_true(rate.tokens_per_second < 2700);
  }
}

static void an_end_shows_within_twice_the_span(void **state)
{
  (void)state;
  struct feed_rate rate = {0};
  uint64_t tokens = 1000000; /* served to others before this connection */
  for (uint64_t s = 100; s <= 200; s++)
    feed_rate_add(&rate, (struct feed_rate_report){1000 * s, tokens += 500});
  assert_true(rate.tokens_per_second == 500);
  for (uint64_t s = 201; s <= 200 + 2 * FEED_RATE_SPAN_MS / 1000 + 1; s++)
    feed_rate_add(&rate, (struct feed_rate_report){1000 * s, tokens});
  assert_true(rate.tokens_per_second == 0);
}

static void a_report_that_goes_back_begins_anew(void **state)
{
  (void)state;
  struct feed_rate rate = {0};
  feed_rate_add(&rate, (struct feed_rate_report){50000, 900});
  feed_rate_add(&rate, (struct feed_rate_report){51000, 1000});
  assert_true(rate.tokens_per_second == 100);
  feed_rate_add(&rate, (struct feed_rate_report){10, 5});
  assert_true(rate.tokens_per_second == 0);
  feed_rate_add(&rate, (struct feed_rate_report){10, 7});
  assert_true(rate.tokens_per_second == 0);
  feed_rate_add(&rate, (struct feed_rate_report){1010, 57});
  assert_true(rate.tokens_per_second == 52);
  feed_rate_add(&rate, (struct feed_rate_report){2010, 1000});
  feed_rate_add(&rate, (struct feed_rate_report){2010 + FEED_RATE_SPAN_MS, 1000}); /* kept */
  feed_rate_add(&rate, (struct feed_rate_report){2011 + FEED_RATE_SPAN_MS, 999});
  assert_true(rate.tokens_per_second == 0); /* it has served less: it is another one */
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pauses_do_not_show),
      cmocka_unit_test(an_end_shows_within_twice_the_span),
      cmocka_unit_test(a_report_that_goes_back_begins_anew),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
