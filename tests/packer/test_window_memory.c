/* How much memory of windows that were replaced may wait to be sent. */
#include "packer/window_store.h"

#include <poll.h>

#include "common/base/log/log.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/packers.h"

static struct plm_corpus *corpus;

static int begin(void **state)
{
  (void)state;
  return plm_corpus_open(packers_corpus("corpus", 600, 3), NULL, &corpus, NULL);
}

static int end(void **state)
{
  (void)state;
  plm_corpus_close(corpus);
  return 0;
}

/* The state of window 0 of the plan with this seed in a new pass, once no worker makes it. */
static enum window_state request(struct window_store *store, uint64_t seed,
                                 struct packed_window **packed)
{
  struct plm_plan_parameters parameters = packers_options().plan;
  struct pollfd wake = {.fd = window_store_wake(store), .events = POLLIN};
  enum window_state state;
  parameters.seed = seed;
  struct store_plan *plan =
      window_store_plan(store, PLM_SPLIT_TRAIN, &parameters, plm_plan_hash(&parameters));
  window_store_pass(store);
  while ((state = window_store_get(store, plan, 0, 0, true, packed, NULL)) == WINDOW_MAKING) {
    assert_int_equal(poll(&wake, 1, 20000), 1);
    window_store_woken(store);
  }
  return state;
}

/* Windows that are ready may be larger than the limit: they make room for the next one. */
static void windows_that_are_ready_do_not_count(void **state)
{
  (void)state;
  struct window_store *store;
  struct packed_window *packed;
  assert_int_equal(window_store_open(corpus, 2, 0, &store, NULL), PLM_OK);
  for (uint64_t seed = 0; seed < 2 * STORE_WINDOWS; seed++)
    assert_int_equal(request(store, seed, &packed), WINDOW_READY);
  window_store_close(store);
}

/* A window that was replaced counts as long as a message holds it. */
static void windows_that_wait_to_be_sent_count(void **state)
{
  (void)state;
  struct window_store *store;
  struct packed_window *sent, *packed;
  for (uint64_t above = 0; above < 2; above++) {
    assert_int_equal(window_store_open(corpus, 1, 0, &store, NULL), PLM_OK);
    assert_int_equal(request(store, 0, &sent), WINDOW_READY);
    const uint64_t bytes = sent->capacity;
    window_store_close(store);
    assert_int_equal(window_store_open(corpus, 1, bytes - above, &store, NULL), PLM_OK);
    assert_int_equal(request(store, 0, &sent), WINDOW_READY);
    assert_int_equal(sent->capacity, bytes);
    packed_window_hold(sent);
    for (uint64_t seed = 1; seed <= STORE_WINDOWS; seed++)
      assert_int_equal(request(store, seed, &packed), WINDOW_READY);
    const enum window_state full = above == 0 ? WINDOW_READY : WINDOW_ABSENT;
    assert_int_equal(request(store, STORE_WINDOWS + 1, &packed), full);
    packed_window_release(sent);
    assert_int_equal(request(store, STORE_WINDOWS + 1, &packed), WINDOW_READY);
    window_store_close(store);
  }
}

int main(void)
{
  plm_log_init("test", PLM_LOG_WARNING);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(windows_that_are_ready_do_not_count),
      cmocka_unit_test(windows_that_wait_to_be_sent_count),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
