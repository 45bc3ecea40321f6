/* The packer's store of windows: plans come and go with the runs that a packer serves. */
#include "packer/window_store.h"

#include <poll.h>
#include <stdlib.h>

#include "common/base/log/log.h"
#include "common/wire/message.h"
#include "common/wire/tables.h"
#include "tests/support/corpora/corpus_windows.h"
#include "tests/support/corpora/forged_corpus.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/packers.h"

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
  assert_int_equal(window_store_open(opened.corpus, 2, 1 << 30, &opened.store, &error), PLM_OK);
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

/* The answer to a request for a proof, whose bytes the caller frees. */
static struct store_proof proof_of(struct window_store *store, const struct store_proof *ask)
{
  struct store_proof done;
  assert_true(window_store_ask_proof(store, ask));
  while (!window_store_pop_proof(store, &done)) wait_for_worker(store);
  assert_int_equal(done.owner, ask->owner);
  assert_int_equal(done.request, ask->request);
  assert_ptr_equal(done.plan, ask->plan);
  assert_int_equal(done.split, ask->split);
  assert_int_equal(done.epoch, ask->epoch);
  assert_int_equal(done.window, ask->window);
  assert_int_equal(done.first, ask->first);
  return done;
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

static uint32_t chunks_of_window_0(struct plm_corpus *corpus, uint64_t seed)
{
  struct plm_plan_parameters parameters = packers_options().plan;
  struct plm_plan *plan;
  parameters.seed = seed;
  assert_int_equal(plm_plan_open_corpus(&parameters, corpus, PLM_SPLIT_TRAIN, &plan, NULL), PLM_OK);
  const uint32_t chunks = corpus_window_chunks(corpus, PLM_SPLIT_TRAIN, plan, 0, 0);
  plm_plan_close(plan);
  return chunks;
}

/* A packer serves hundreds of runs, one after the other, each with its own plans. */
static void serves_any_number_of_plans(void **state)
{
  (void)state;
  const struct opened opened = open_store();
  struct store_plan *kept = plan_of(opened.store, 1000);
  const uint32_t kept_chunks = window_0(opened.store, kept)->chunks;
  assert_int_equal(kept_chunks, chunks_of_window_0(opened.corpus, 1000));
  for (uint64_t run = 0; run < 300; run++) {
    struct store_plan *plan = plan_of(opened.store, run);
    assert_non_null(plan);
    const struct packed_window *packed = window_0(opened.store, plan);
    assert_int_equal(packed->chunks, chunks_of_window_0(opened.corpus, run));
    const struct store_proof ask = {.plan = plan, .count = 2};
    const struct store_proof done = proof_of(opened.store, &ask);
    assert_int_equal(done.error.status, PLM_OK);
    free(done.bytes);
    window_store_drop_plan(opened.store, plan);
    window_store_pass(opened.store);
  }
  /* The plan that was held all the time is still there. */
  assert_ptr_equal(plan_of(opened.store, 1000), kept);
  assert_int_equal(window_0(opened.store, kept)->chunks, kept_chunks);
  close_store(&opened);
}

/* Of the plans that nobody holds, the one that was given up first makes room, and its window goes
 * with it. */
static void the_plan_that_was_given_up_last_stays(void **state)
{
  enum { OTHERS = STORE_PLANS_HELD + STORE_WINDOWS + STORE_PROOFS };
  const struct opened opened = open_store();
  struct store_plan *last = plan_of(opened.store, 1000), *first = plan_of(opened.store, 1001);
  struct packed_window *packed;
  bool met = false;
  (void)state;
  (void)window_0(opened.store, first);
  window_store_drop_plan(opened.store, first);
  window_store_drop_plan(opened.store, last);
  for (uint64_t run = 0; run < OTHERS; run++) {
    struct store_plan *plan = plan_of(opened.store, run);
    met |= plan == first;
    assert_int_equal(window_store_get(opened.store, plan, 0, 0, false, &packed, NULL),
                     WINDOW_ABSENT);
    window_store_drop_plan(opened.store, plan);
  }
  assert_true(met);
  assert_ptr_equal(plan_of(opened.store, 1000), last);
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
    const struct store_proof ask = {.plan = plan, .request = run, .count = 2};
    wanted += window_store_ask_proof(opened.store, &ask);
    (void)window_store_get(opened.store, plan, 0, 0, true, &packed, NULL);
    window_store_drop_plan(opened.store, plan);
    window_store_pass(opened.store);
  }
  while (wanted > 0) {
    struct store_proof done;
    if (!window_store_pop_proof(opened.store, &done)) {
      wait_for_worker(opened.store);
      continue;
    }
    assert_int_equal(done.error.status, PLM_OK);
    assert_int_equal(done.count, 2);
    free(done.bytes);
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

/* The state of window 0 of a plan that workers were told to make, once they are done. */
static enum window_state prepared(struct window_store *store, struct store_plan *plan)
{
  enum window_state state;
  while ((state = look(store, plan)) == WINDOW_MAKING) wait_for_worker(store);
  return state;
}

/* A window that will be requested takes the place of one that was sent from, but of none that is
 * requested in the same pass or is still to be sent. */
static void what_is_still_to_be_sent_stays(void **state)
{
  (void)state;
  const struct opened opened = open_store();
  struct window_store *store = opened.store;
  struct store_plan *plans[5];
  struct packed_window *packed[3], *again;
  for (uint64_t i = 0; i < 5; i++) plans[i] = plan_of(store, i);
  window_store_pass(store);
  for (int i = 0; i < 3; i++) assert_int_equal(settled(store, plans[i], &packed[i]), WINDOW_READY);
  window_store_pass(store);
  assert_false(window_store_prepare(store, plans[3], 0, 0));
  assert_true(window_store_prepare(store, plans[0], 0, 0)); /* it is there */
  assert_int_equal(window_store_standby(store), 3);
  assert_true(window_store_served(store, packed[1]));
  assert_int_equal(settled(store, plans[1], &again), WINDOW_READY); /* requested in this pass */
  assert_ptr_equal(again, packed[1]);
  assert_false(window_store_prepare(store, plans[3], 0, 0));
  window_store_pass(store);
  assert_true(window_store_prepare(store, plans[3], 0, 0));
  assert_int_equal(look(store, plans[1]), WINDOW_ABSENT);
  assert_int_equal(prepared(store, plans[3]), WINDOW_READY);
  assert_int_equal(window_store_standby(store), 3);
  window_store_pass(store);
  assert_false(window_store_prepare(store, plans[4], 0, 0)); /* nor is what was prepared replaced */
  assert_int_equal(look(store, plans[4]), WINDOW_ABSENT);
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

/* ---- proofs ------------------------------------------------------------------------------- */

/* An epoch has a window of two groups and one of one group, and the split `test` no document. */
static void proofs_end_with_the_window(void **state)
{
  (void)state;
  const struct opened opened = open_store();
  struct window_store *store = opened.store;
  const struct plm_plan_parameters parameters = packers_options().plan;
  struct store_plan *plan = plan_of(store, parameters.seed);
  struct store_plan *empty =
      window_store_plan(store, PLM_SPLIT_TEST, &parameters, plm_plan_hash(&parameters));
  assert_ptr_not_equal(plan, empty);
  for (uint64_t window = 0; window < 4; window++)
    for (uint32_t first = 0; first < 4; first++)
      for (uint32_t count = 0; count < 4; count++) {
        const struct store_proof ask = {.owner = 5,
                                        .request = 6,
                                        .plan = plan,
                                        .epoch = 3,
                                        .window = window,
                                        .first = first,
                                        .count = count};
        const struct store_proof done = proof_of(store, &ask);
        const uint32_t groups = window < 2 ? 2 - (uint32_t)window : 0;
        const bool exist = count > 0 && first + count <= groups;
        assert_int_equal(done.error.status, exist ? PLM_OK : PLM_NOT_FOUND);
        if (exist)
          assert_int_equal(done.count, count);
        else
          assert_null(done.bytes);
        free(done.bytes);
      }
  uint8_t kept[1]; /* bytes are only of the answer */
  const struct store_proof beyond = {
      .plan = plan, .window = 7, .first = UINT32_MAX, .count = 2, .bytes = kept};
  assert_string_equal(proof_of(store, &beyond).error.what,
                      "an epoch has no window 7 with 2 groups from 4294967295");
  const struct store_proof ask = {.plan = empty, .split = PLM_SPLIT_TEST, .count = 1};
  assert_int_equal(proof_of(store, &ask).error.status, PLM_NOT_FOUND);
  close_store(&opened);
}

/* Requests that were asked for, are worked on or are done count, until they are taken. */
static void requests_for_proofs_are_limited(void **state)
{
  (void)state;
  const struct opened opened = open_store();
  struct window_store *store = opened.store;
  struct store_proof ask = {.plan = plan_of(store, 1), .count = 1}, done;
  bool answered[STORE_PROOFS] = {false};
  for (ask.request = 0; ask.request < STORE_PROOFS; ask.request++)
    assert_true(window_store_ask_proof(store, &ask));
  for (int i = 0; i < 1000; i++) assert_false(window_store_ask_proof(store, &ask));
  for (int i = 0; i < STORE_PROOFS; i++) {
    while (!window_store_pop_proof(store, &done)) wait_for_worker(store);
    assert_true(done.request < STORE_PROOFS && !answered[done.request]);
    answered[done.request] = true;
    free(done.bytes);
  }
  assert_false(window_store_pop_proof(store, &done));
  assert_true(window_store_ask_proof(store, &ask));
  close_store(&opened);
}

/* Asks for the tables of a window, part after part, as a consumer does, and proves them. Returns
 * how many parts there were. */
static uint32_t collect_tables(const struct opened *opened, struct store_plan *plan,
                               const struct plm_tables_window *of, struct plm_tables *tables)
{
  const struct plm_proof_split split =
      plm_corpus_proof_split(plm_corpus_info(opened->corpus), PLM_SPLIT_TRAIN);
  const uint32_t groups = plm_plan_group_count(of->plan, of->window);
  uint32_t parts = 0;
  plm_tables_deinit(tables);
  while (tables->groups < groups) {
    const struct store_proof ask = {.plan = plan,
                                    .epoch = of->epoch,
                                    .window = of->window,
                                    .first = tables->groups,
                                    .count = groups - tables->groups};
    const struct store_proof done = proof_of(opened->store, &ask);
    struct plm_error error = {0};
    assert_int_equal(done.error.status, PLM_OK);
    assert_true(done.count > 0 && done.count <= ask.count && done.size <= PLM_WIRE_PROOF_LIMIT);
    if (plm_tables_read(of, &split, done.count, done.bytes, done.size, tables, &error) != PLM_OK)
      fail_msg("window %llu: %s", (unsigned long long)of->window, error.what);
    free(done.bytes);
    parts++;
  }
  return parts;
}

/* The windows that a consumer plans by proofs are the packer's. Returns the parts of the first. */
static uint32_t prove_windows(const struct opened *opened,
                              const struct plm_plan_parameters *parameters)
{
  const struct plm_corpus_split *info = &plm_corpus_info(opened->corpus)->splits[PLM_SPLIT_TRAIN];
  struct store_plan *plan =
      window_store_plan(opened->store, PLM_SPLIT_TRAIN, parameters, plm_plan_hash(parameters));
  struct plm_tables tables = {0};
  struct plm_window knows = {0}, proven = {0};
  struct plm_plan *known, *unread;
  uint32_t parts = 0;
  assert_int_equal(plm_plan_open_corpus(parameters, opened->corpus, PLM_SPLIT_TRAIN, &known, NULL),
                   PLM_OK);
  assert_int_equal(plm_plan_open(parameters, info->documents, info->clusters, &unread, NULL),
                   PLM_OK);
  for (uint64_t window = 0; window < plm_plan_windows(unread); window++) {
    const struct plm_tables_window of = {unread, 2, window, false};
    const uint32_t taken = collect_tables(opened, plan, &of, &tables);
    if (window == 0) parts = taken;
    if (parameters->token_limit != 0) continue; /* the consumer cuts the documents off */
    corpus_window(opened->corpus, PLM_SPLIT_TRAIN, known, 2, window, &knows);
    assert_int_equal(plm_plan_window(unread, 2, window, plm_tables_group, &tables, &proven, NULL),
                     PLM_OK);
    assert_int_equal(proven.chunks, knows.chunks);
    assert_int_equal(proven.document_count, knows.document_count);
    assert_memory_equal(proven.documents, knows.documents,
                        knows.document_count * sizeof *knows.documents);
  }
  plm_window_deinit(&knows);
  plm_window_deinit(&proven);
  plm_tables_deinit(&tables);
  plm_plan_close(known);
  plm_plan_close(unread);
  window_store_drop_plan(opened->store, plan);
  return parts;
}

/* A window whose tables do not fit into a message comes in parts. A plan with a token limit knows
 * the groups beyond it too, because a consumer does not know where it is. */
static void proofs_are_of_the_window(void **state)
{
  (void)state;
  static const struct written_corpus of = {PLM_TOKENIZER_ESM, {56000, 0, 0}, 5, 3, false};
  struct plm_plan_parameters parameters = packers_options().plan;
  struct opened opened = {.corpus = written_corpus_open("many", &of)};
  assert_int_equal(window_store_open(opened.corpus, 2, 1 << 30, &opened.store, NULL), PLM_OK);
  for (int clusters = 0; clusters < 2; clusters++) {
    parameters.sampling = clusters ? PLM_SAMPLING_CLUSTERS : PLM_SAMPLING_DOCUMENTS;
    parameters.window_groups = 40;
    assert_int_equal(prove_windows(&opened, &parameters), 1);
    parameters.window_groups = 300;
    assert_int_equal(prove_windows(&opened, &parameters), 2);
  }
  parameters.sampling = PLM_SAMPLING_DOCUMENTS;
  parameters.shuffle = false;
  parameters.token_limit = 60000;
  parameters.window_groups = 50;
  assert_int_equal(prove_windows(&opened, &parameters), 1);
  close_store(&opened);
}

/* What cannot be read names the record. Groups before it are proven. */
static void a_damaged_record_is_named(void **state)
{
  (void)state;
  static const struct written_corpus of = {PLM_TOKENIZER_ESM, {540, 0, 0}, 50, 0, false};
  struct opened opened = {.corpus = written_corpus_open("cut", &of)};
  plm_corpus_close(opened.corpus);
  forged_corpus_cut_digests(scratch_path("cut"), 512);
  assert_int_equal(plm_corpus_open(scratch_path("cut"), NULL, &opened.corpus, NULL), PLM_OK);
  assert_int_equal(window_store_open(opened.corpus, 1, 1 << 30, &opened.store, NULL), PLM_OK);
  struct plm_plan_parameters parameters = packers_options().plan;
  parameters.shuffle = false;
  struct store_plan *plan =
      window_store_plan(opened.store, PLM_SPLIT_TRAIN, &parameters, plm_plan_hash(&parameters));
  for (uint64_t window = 0; window < 2; window++) {
    const struct store_proof ask = {.plan = plan, .window = window, .count = 1};
    const struct store_proof done = proof_of(opened.store, &ask);
    assert_int_equal(done.error.status, window == 0 ? PLM_OK : PLM_CORRUPT);
    if (window == 1) assert_string_equal(done.error.what, "record 0 of train.digests is too short");
    if (window == 1) assert_null(done.bytes);
    free(done.bytes);
  }
  close_store(&opened);
}

int main(void)
{
  plm_log_init("test", PLM_LOG_WARNING);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(serves_any_number_of_plans),
      cmocka_unit_test(the_plan_that_was_given_up_last_stays),
      cmocka_unit_test(a_plan_is_not_evicted_while_a_worker_uses_it),
      cmocka_unit_test(what_was_requested_last_stays),
      cmocka_unit_test(what_is_still_to_be_sent_stays),
      cmocka_unit_test(parts_that_were_sent_are_noted),
      cmocka_unit_test(a_failure_is_kept),
      cmocka_unit_test(proofs_end_with_the_window),
      cmocka_unit_test(requests_for_proofs_are_limited),
      cmocka_unit_test(proofs_are_of_the_window),
      cmocka_unit_test(a_damaged_record_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
