/* What a feed draws, whom it asks about keys, and how many sources it has. */
#include "common/feed/feed_handle.h"

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/packers.h"

/* They come from the system's randomness: a clock, which counts from the start of the machine, does
 * not reach the uppermost byte. None is 0, which stands for no request. */
static void numbers_cannot_be_guessed(void **state)
{
  (void)state;
  enum { DRAWS = 16 };
  struct plm_feed feed = {0};
  const struct feed_network network = feed_handle_network(&feed);
  uint64_t drawn[DRAWS], together = 0;
  for (int i = 0; i < DRAWS; i++) {
    drawn[i] = network.draw(network.context);
    assert_true(drawn[i] % 2 == 1);
    for (int k = 0; k < i; k++) assert_true(drawn[k] != drawn[i]);
    together |= drawn[i];
  }
  assert_true(together >> 56 != 0);
}

/* Without keys, nobody is asked who may connect. */
static void only_a_gate_refuses(void **state)
{
  (void)state;
  struct plm_feed feed = {0};
  assert_true(feed_handle_network(&feed).allows == NULL);
  feed.gate = (struct plm_gate *)(void *)&feed;
  const struct feed_network network = feed_handle_network(&feed);
  assert_true(network.allows != NULL && network.context == &feed);
}

static void a_feed_may_have_16_sources(void **state)
{
  struct plm_feed_options options = packers_options();
  struct plm_feed_source_options sources[PLM_MAX_SOURCES];
  (void)state;
  for (int k = 0; k < PLM_MAX_SOURCES; k++)
    sources[k] = (struct plm_feed_source_options){.plan = options.plan};
  options.sources = sources;
  options.source_count = PLM_MAX_SOURCES;
  plm_feed_close(packers_feed(&options));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers_cannot_be_guessed),
      cmocka_unit_test(only_a_gate_refuses),
      cmocka_unit_test(a_feed_may_have_16_sources),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
