/* The packer's store of windows: plans come and go with the runs that a packer serves. */
#include "packer/window_store.h"

#include <poll.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/plan/assemble.h"
#include "common/wire/data.h"
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

/* The state of window 0 of a plan, which workers make if it is absent. Waits until they are done.
 */
static enum window_state settled(struct window_store *store, struct store_plan *plan,
                                 struct packed_window **packed)
{
  enum window_state state;
  while ((state = window_store_get(store, plan, 0, 0, true, packed, NULL)) == WINDOW_MAKING)
    wait_for_worker(store);
  return state;
}

/* The state without asking for it. */
static enum window_state look(struct window_store *store, struct store_plan *plan)
{
  struct packed_window *packed;
  return window_store_get(store, plan, 0, 0, false, &packed, NULL);
}

/* Of four windows, three have a place. The one that was requested longest ago goes, and none that
 * was requested in the same pass. */
static void what_was_requested_last_stays(void **state)
{
  (void)state;
  const struct opened opened = open_store();
  struct window_store *store = opened.store;
  struct store_plan *plans[5];
  struct packed_window *packed;
  for (uint64_t i = 0; i < 5; i++) plans[i] = plan_of(store, i);
  window_store_pass(store);
  assert_int_equal(look(store, plans[0]), WINDOW_ABSENT);
  for (int i = 0; i < 3; i++) assert_int_equal(settled(store, plans[i], &packed), WINDOW_READY);
  assert_int_equal(settled(store, plans[3], &packed), WINDOW_ABSENT);
  window_store_pass(store);
  assert_int_equal(settled(store, plans[0], &packed), WINDOW_READY);
  assert_int_equal(look(store, plans[1]), WINDOW_READY); /* which is no request */
  assert_int_equal(settled(store, plans[3], &packed), WINDOW_READY);
  assert_int_equal(look(store, plans[0]), WINDOW_READY);
  assert_int_equal(look(store, plans[1]), WINDOW_ABSENT);
  assert_int_equal(look(store, plans[2]), WINDOW_READY);
  window_store_pass(store);
  assert_int_equal(settled(store, plans[4], &packed), WINDOW_READY); /* 2 is the oldest */
  assert_int_equal(look(store, plans[2]), WINDOW_ABSENT);
  assert_int_equal(look(store, plans[0]), WINDOW_READY);
  assert_int_equal(look(store, plans[3]), WINDOW_READY);
  close_store(&opened);
}

/* What was never sent is standing by. */
static void parts_that_were_sent_are_noted(void **state)
{
  (void)state;
  const struct opened opened = open_store();
  struct window_store *store = opened.store;
  struct packed_window *packed[2];
  window_store_pass(store);
  assert_int_equal(window_store_standby(store), 0);
  for (uint64_t i = 0; i < 2; i++) {
    assert_int_equal(settled(store, plan_of(store, i), &packed[i]), WINDOW_READY);
    assert_int_equal(window_store_standby(store), i + 1);
  }
  assert_ptr_not_equal(packed[0], packed[1]);
  assert_true(window_store_served(store, packed[1]));
  assert_int_equal(window_store_standby(store), 1);
  assert_false(window_store_served(store, packed[1]));
  assert_true(window_store_served(store, packed[0]));
  assert_int_equal(window_store_standby(store), 0);
  close_store(&opened);
}

/* A window that cannot be made is not tried again in the same pass. */
static void a_failure_is_kept(void **state)
{
  (void)state;
  const struct opened opened = open_store();
  struct window_store *store = opened.store;
  struct store_plan *plan = plan_of(store, 1);
  struct packed_window *packed;
  struct plm_error error = {0};
  enum window_state now;
  window_store_pass(store);
  while ((now = window_store_get(store, plan, 0, 2, true, &packed, &error)) == WINDOW_MAKING)
    wait_for_worker(store);
  assert_int_equal(now, WINDOW_FAILED);
  assert_int_equal(error.status, PLM_NOT_FOUND);
  assert_string_equal(error.what, "window 2 does not exist: an epoch has 2");
  assert_int_equal(window_store_get(store, plan, 0, 2, true, &packed, NULL), WINDOW_FAILED);
  assert_int_equal(window_store_standby(store), 0);
  assert_int_equal(window_store_get(store, plan, 1, 2, false, &packed, NULL), WINDOW_ABSENT);
  close_store(&opened);
}

static struct store_sizes sizes_of(struct window_store *store, const struct store_sizes *ask)
{
  struct store_sizes done;
  assert_true(window_store_ask_sizes(store, ask));
  while (!window_store_take_sizes(store, &done)) wait_for_worker(store);
  assert_int_equal(done.error.status, PLM_OK);
  assert_int_equal(done.owner, ask->owner);
  assert_int_equal(done.request, ask->request);
  assert_int_equal(done.first, ask->first);
  assert_int_equal(done.epoch, ask->epoch);
  return done;
}

/* An epoch has two windows, and the split `test` no document. */
static void sizes_end_with_the_epoch(void **state)
{
  (void)state;
  const struct opened opened = open_store();
  struct window_store *store = opened.store;
  const struct plm_plan_parameters parameters = packers_options().plan;
  struct store_plan *plan = plan_of(store, parameters.seed);
  struct store_plan *empty =
      window_store_plan(store, PLM_SPLIT_TEST, &parameters, plm_plan_hash(&parameters));
  struct plm_plan *wanted;
  uint32_t counts[2];
  assert_ptr_not_equal(plan, empty);
  assert_int_equal(plm_plan_open_corpus(&parameters, opened.corpus, PLM_SPLIT_TRAIN, &wanted, NULL),
                   PLM_OK);
  assert_int_equal(plm_plan_window_chunks(wanted, 3, 0, 2, counts, NULL), PLM_OK);
  for (uint64_t first = 0; first <= 3; first++)
    for (uint32_t count = 1; count <= 3; count++) {
      const struct store_sizes ask = {
          .owner = 5, .request = 6, .plan = plan, .epoch = 3, .first = first, .count = count};
      const struct store_sizes done = sizes_of(store, &ask);
      const uint32_t left = first < 2 ? 2 - (uint32_t)first : 0;
      assert_int_equal(done.count, count < left ? count : left);
      assert_memory_equal(done.counts, counts + first, done.count * sizeof *counts);
      free(done.counts);
    }
  const struct store_sizes ask = {.plan = empty, .count = 3};
  const struct store_sizes done = sizes_of(store, &ask);
  assert_int_equal(done.count, 0);
  free(done.counts);
  plm_plan_close(wanted);
  close_store(&opened);
}

/* Requests that were asked for, are worked on or are done count, until they are taken. */
static void requests_for_sizes_are_limited(void **state)
{
  (void)state;
  const struct opened opened = open_store();
  struct window_store *store = opened.store;
  struct store_sizes ask = {.plan = plan_of(store, 1), .count = 1}, done;
  bool answered[STORE_SIZES] = {false};
  for (ask.request = 0; ask.request < STORE_SIZES; ask.request++)
    assert_true(window_store_ask_sizes(store, &ask));
  for (int i = 0; i < 1000; i++) assert_false(window_store_ask_sizes(store, &ask));
  for (int i = 0; i < STORE_SIZES; i++) {
    while (!window_store_take_sizes(store, &done)) wait_for_worker(store);
    assert_true(done.request < STORE_SIZES && !answered[done.request]);
    answered[done.request] = true;
    free(done.counts);
  }
  assert_false(window_store_take_sizes(store, &done));
  assert_true(window_store_ask_sizes(store, &ask));
  close_store(&opened);
}

/* A window of the plan: each chunk is the number of its documents, their table and its tokens. */
static void check_packed(const struct packed_window *packed, const struct plm_plan *plan,
                         struct plm_corpus_cursor *cursor)
{
  struct plm_window window = {0};
  uint64_t offset = 0, tokens = 0;
  assert_int_equal(plm_plan_window(plan, 0, 0, &window, NULL), PLM_OK);
  const size_t chunk_bytes = plm_assemble_bytes(plan, &window) / window.chunks;
  uint8_t *wanted = malloc(plm_assemble_bytes(plan, &window));
  assert_int_equal(plm_assemble_window(cursor, PLM_SPLIT_TRAIN, plan, &window, wanted, NULL),
                   PLM_OK);
  assert_int_equal(packed->chunks, window.chunks);
  assert_int_equal(packed->max_length, 256);
  for (uint32_t c = 0; c < window.chunks; c++) {
    const uint32_t begin = window.chunk_begin[c], count = window.chunk_begin[c + 1] - begin;
    const uint8_t *at = packed->bytes + offset;
    uint8_t bytes[PLM_DATA_DOCUMENT_BYTES];
    assert_int_equal(packed->offset[c], offset);
    assert_int_equal(packed->tokens[c], tokens);
    assert_int_equal(packed->documents[c], begin);
    assert_int_equal(packed->chunk_at[c] * packed->token_bytes,
                     offset + 4 + (uint64_t)count * PLM_DATA_DOCUMENT_BYTES);
    plm_data_write_count(count, bytes);
    assert_memory_equal(at, bytes, 4);
    for (uint32_t d = 0; d < count; d++) {
      plm_data_write_document(&window.documents[begin + d], bytes);
      assert_memory_equal(at + 4 + d * PLM_DATA_DOCUMENT_BYTES, bytes, sizeof bytes);
      tokens += window.documents[begin + d].tokens;
    }
    at += 4 + (size_t)count * PLM_DATA_DOCUMENT_BYTES;
    assert_memory_equal(at, wanted + c * chunk_bytes, chunk_bytes);
    offset += plm_data_chunk_bytes(plm_tokenizer_of(PLM_TOKENIZER_ESM), 256, count);
  }
  assert_int_equal(packed->offset[window.chunks], offset);
  assert_int_equal(packed->tokens[window.chunks], tokens);
  assert_int_equal(packed->documents[window.chunks], window.document_count);
  assert_true(packed->capacity >= offset);
  free(wanted);
  plm_window_deinit(&window);
}

static void windows_are_those_of_the_plan(void **state)
{
  (void)state;
  const struct opened opened = open_store();
  struct plm_corpus_cursor *cursor;
  assert_int_equal(plm_corpus_cursor_open(opened.corpus, &cursor, NULL), PLM_OK);
  for (uint64_t seed = 0; seed < 8; seed++) { /* buffers are used again */
    struct plm_plan_parameters parameters = packers_options().plan;
    struct plm_plan *plan;
    parameters.seed = seed;
    assert_int_equal(plm_plan_open_corpus(&parameters, opened.corpus, PLM_SPLIT_TRAIN, &plan, NULL),
                     PLM_OK);
    check_packed(window_0(opened.store, plan_of(opened.store, seed)), plan, cursor);
    window_store_pass(opened.store);
    plm_plan_close(plan);
  }
  plm_corpus_cursor_close(cursor);
  close_store(&opened);
}

int main(void)
{
  plm_log_init("test", PLM_LOG_WARNING);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(serves_any_number_of_plans),
      cmocka_unit_test(a_plan_is_not_evicted_while_a_worker_uses_it),
      cmocka_unit_test(what_was_requested_last_stays),
      cmocka_unit_test(parts_that_were_sent_are_noted),
      cmocka_unit_test(a_failure_is_kept),
      cmocka_unit_test(sizes_end_with_the_epoch),
      cmocka_unit_test(requests_for_sizes_are_limited),
      cmocka_unit_test(windows_are_those_of_the_plan),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
