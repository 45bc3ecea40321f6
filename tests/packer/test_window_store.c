/* The packer's store of windows: plans come and go with the runs that a packer serves. */
#include "packer/window_store.h"

#include <poll.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/packers.h"

struct opened {
  struct plm_corpus *corpus;
  struct window_store *store;
};

static struct opened open_store(void)
{
  const struct plm_corpus_options opening = {0};
  struct plm_error error = {0};
  struct opened opened;
  assert_int_equal(
      plm_corpus_open(packers_corpus("corpus", 600, 3), &opening, &opened.corpus, &error), PLM_OK);
  assert_int_equal(window_store_open(opened.corpus, 2, &opened.store, &error), PLM_OK);
  return opened;
}

static void close_store(const struct opened *opened)
{
  window_store_close(opened->store);
  plm_corpus_close(opened->corpus);
}

static void wait_for_worker(struct window_store *store)
{
  struct pollfd item = {.fd = window_store_wake(store), .events = POLLIN};
  assert_int_equal(poll(&item, 1, 20000), 1);
  window_store_woken(store);
}

static struct store_plan *plan_of(struct window_store *store, uint64_t seed)
{
  struct plm_plan_parameters parameters = packers_options().plan;
  parameters.seed = seed;
  return window_store_plan(store, PLM_SPLIT_TRAIN, &parameters, plm_plan_hash(&parameters));
}

static uint32_t chunks_of_window_0(struct window_store *store, struct store_plan *plan)
{
  const struct store_sizes ask = {.plan = plan, .count = 1};
  struct store_sizes done;
  assert_true(window_store_ask_sizes(store, &ask));
  while (!window_store_take_sizes(store, &done)) wait_for_worker(store);
  assert_int_equal(done.error.status, PLM_OK);
  assert_int_equal(done.count, 1);
  const uint32_t chunks = done.counts[0];
  free(done.counts);
  return chunks;
}

static const struct packed_window *window_0(struct window_store *store, struct store_plan *plan)
{
  struct packed_window *packed = NULL;
  struct plm_error error = {0};
  enum window_state state;
  while ((state = window_store_get(store, plan, 0, 0, true, &packed, &error)) != WINDOW_READY) {
    assert_int_not_equal(state, WINDOW_FAILED);
    wait_for_worker(store);
    window_store_pass(store);
  }
  return packed;
}

/* A packer serves hundreds of runs, one after the other, each with its own plans. */
static void serves_any_number_of_plans(void **state)
{
  (void)state;
  const struct opened opened = open_store();
  struct store_plan *kept = plan_of(opened.store, 1000);
  const uint32_t kept_chunks = window_0(opened.store, kept)->chunks;
  for (uint64_t run = 0; run < 300; run++) {
    struct store_plan *plan = plan_of(opened.store, run);
    assert_non_null(plan);
    const struct packed_window *packed = window_0(opened.store, plan);
    assert_int_equal(packed->chunks, chunks_of_window_0(opened.store, plan));
    window_store_drop_plan(opened.store, plan);
    window_store_pass(opened.store);
  }
  /* The plan that was held all the time is still there. */
  assert_ptr_equal(plan_of(opened.store, 1000), kept);
  assert_int_equal(window_0(opened.store, kept)->chunks, kept_chunks);
  close_store(&opened);
}

/* A run may end while a worker still plans for it. */
static void a_plan_is_not_evicted_while_a_worker_uses_it(void **state)
{
  (void)state;
  const struct opened opened = open_store();
  struct packed_window *packed;
  uint32_t wanted = 0;
  for (uint64_t run = 0; run < 400; run++) {
    struct store_plan *plan = plan_of(opened.store, run);
    const struct store_sizes ask = {.plan = plan, .request = run, .count = 1};
    wanted += window_store_ask_sizes(opened.store, &ask);
    (void)window_store_get(opened.store, plan, 0, 0, true, &packed, NULL);
    window_store_drop_plan(opened.store, plan);
    window_store_pass(opened.store);
  }
  while (wanted > 0) {
    struct store_sizes done;
    if (!window_store_take_sizes(opened.store, &done)) {
      wait_for_worker(opened.store);
      continue;
    }
    assert_int_equal(done.error.status, PLM_OK);
    assert_int_equal(done.count, 1);
    free(done.counts);
    wanted--;
  }
  close_store(&opened);
}

int main(void)
{
  plm_log_init("test", PLM_LOG_WARNING);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(serves_any_number_of_plans),
      cmocka_unit_test(a_plan_is_not_evicted_while_a_worker_uses_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
