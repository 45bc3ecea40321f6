/* The proofs and windows that a consumer asks a packer's link for: what it is sent, what it is
 * refused, and which windows are made before their chunks are asked for. */
#include <string.h>

#include "common/base/log/log.h"
#include "common/wire/tables.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/link_scene.h"

static void prove(struct link_scene *s, uint64_t window, uint32_t group, uint32_t count, bool soon)
{
  uint8_t payload[16];
  const struct plm_prove prove = {group, soon};
  struct plm_header header = link_header(s, PLM_MESSAGE_PROVE);
  header.request = ++s->requests;
  header.first = window;
  header.count = count;
  link_say(s, header, payload, plm_prove_encode(&prove, payload));
}

/* Takes the tables that were asked for, and proves them. */
static void proven(struct link_scene *s, uint64_t window, uint32_t count, struct plm_tables *tables)
{
  const struct plm_corpus_info *info = plm_corpus_info(s->corpus);
  const struct plm_proof_split split = plm_corpus_proof_split(info, PLM_SPLIT_TRAIN);
  struct plm_plan *plan;
  struct plm_message proof = link_await(s, PLM_MESSAGE_PROOF, true);
  assert_int_equal(proof.header.request, s->requests);
  assert_int_equal(proof.header.first, window);
  assert_int_equal(proof.header.count, count);
  assert_int_equal(proof.header.epoch, 0);
  assert_int_equal(proof.header.split, PLM_SPLIT_TRAIN);
  assert_int_equal(plm_plan_open(&s->parameters, split.documents, 0, &plan, NULL), PLM_OK);
  const struct plm_tables_window of = {plan, 0, window, false};
  assert_int_equal(plm_tables_read(&of, &split, count, zmq_msg_data(&proof.payload),
                                   zmq_msg_size(&proof.payload), tables, NULL),
                   PLM_OK);
  plm_plan_close(plan);
  zmq_msg_close(&proof.payload);
}

/* The groups of a window come at once or one after another, and none that it does not have. */
static void windows_are_proven(void **state)
{
  (void)state;
  static const struct {
    uint64_t window;
    uint32_t group, count;
  } beyond[] = {{0, 0, 3}, {0, 1, 2}, {0, 2, 1}, {0, 0, 0}, {1000, 0, 1}, {UINT64_MAX, 0, 1}};
  struct link_scene s;
  struct plm_tables whole = {0}, parts = {0};
  link_begin(&s);
  link_welcome(&s);
  prove(&s, 1, 0, 2, false);
  proven(&s, 1, 2, &whole);
  for (uint32_t group = 0; group < 2; group++) {
    prove(&s, 1, group, 1, false);
    proven(&s, 1, 1, &parts);
  }
  assert_int_equal(parts.begin[2], whole.begin[2]);
  assert_memory_equal(parts.numbers, whole.numbers, whole.begin[2] * sizeof *whole.numbers);
  for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
    prove(&s, beyond[i].window, beyond[i].group, beyond[i].count, false);
    link_nacked(&s, PLM_NACK_RANGE, "an epoch has no window", true);
  }
  s.parameters.seed++; /* of another plan */
  prove(&s, 0, 0, 1, false);
  link_nacked(&s, PLM_NACK_RANGE, "no such plan", true);
  assert_int_equal(s.packer.counters.invalid, 0);
  assert_int_equal(s.packer.counters.chunks, 0);
  plm_tables_deinit(&whole);
  plm_tables_deinit(&parts);
  link_end(&s);
}

/* A consumer is told why there is no proof. */
static void failures_are_told(void **state)
{
  (void)state;
  static const struct {
    plm_status status;
    enum plm_nack_reason reason;
  } failures[] = {{PLM_CORRUPT, PLM_NACK_CORRUPT},
                  {PLM_NOT_FOUND, PLM_NACK_RANGE},
                  {PLM_NO_MEMORY, PLM_NACK_FAILED}};
  struct link_scene s;
  link_begin(&s);
  link_welcome(&s);
  for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
    struct store_proof proof = {.request = ++s.requests};
    (void)plm_error_set(&proof.error, failures[i].status, "record 5 of train.digests");
    packer_link_proof(&s.link, &proof);
    link_nacked(&s, failures[i].reason, "record 5 of train.digests", false);
  }
  link_end(&s);
}

/* It says for which epoch it is. */
static void a_proof_has_its_place(void **state)
{
  (void)state;
  static uint8_t bytes[4];
  struct link_scene s;
  link_begin(&s);
  link_welcome(&s);
  const struct store_proof made = {.request = ++s.requests,
                                   .split = PLM_SPLIT_TEST,
                                   .epoch = 5,
                                   .window = 6,
                                   .count = 7,
                                   .bytes = bytes,
                                   .size = sizeof bytes};
  packer_link_proof(&s.link, &made);
  struct plm_message proof = link_await(&s, PLM_MESSAGE_PROOF, true);
  zmq_msg_close(&proof.payload);
  assert_int_equal(proof.header.request, made.request);
  assert_int_equal(proof.header.split, PLM_SPLIT_TEST);
  assert_int_equal(proof.header.epoch, 5);
  assert_int_equal(proof.header.first, 6);
  assert_int_equal(proof.header.count, 7);
  link_end(&s);
}

/* What is proven, and made because it is needed soon, is of the split and the epoch that were asked
 * for. */
static void proofs_are_of_the_split_and_the_epoch(void **state)
{
  (void)state;
  uint8_t payload[16];
  const struct plm_prove soon = {0, true};
  struct link_scene s;
  struct plm_tables tables = {0};
  struct packed_window *packed;
  struct plm_plan *plan;
  link_begin(&s);
  link_welcome(&s);
  const struct plm_proof_split split =
      plm_corpus_proof_split(plm_corpus_info(s.corpus), PLM_SPLIT_VALID);
  struct plm_header header = link_header(&s, PLM_MESSAGE_PROVE);
  header.request = ++s.requests;
  header.split = PLM_SPLIT_VALID;
  header.epoch = 3;
  header.count = 1;
  link_say(&s, header, payload, plm_prove_encode(&soon, payload));
  struct plm_message proof = link_await(&s, PLM_MESSAGE_PROOF, true);
  assert_int_equal(proof.header.split, PLM_SPLIT_VALID);
  assert_int_equal(proof.header.epoch, 3);
  assert_int_equal(plm_plan_open(&s.parameters, split.documents, 0, &plan, NULL), PLM_OK);
  const struct plm_tables_window of = {plan, 3, 0, false};
  assert_int_equal(plm_tables_read(&of, &split, 1, zmq_msg_data(&proof.payload),
                                   zmq_msg_size(&proof.payload), &tables, NULL),
                   PLM_OK);
  zmq_msg_close(&proof.payload);
  packer_link_serve(&s.link, &s.packer, s.now);
  assert_int_not_equal(
      window_store_get(s.packer.store, s.link.plans[PLM_SPLIT_VALID], 3, 0, false, &packed, NULL),
      WINDOW_ABSENT);
  plm_plan_close(plan);
  plm_tables_deinit(&tables);
  link_end(&s);
}

/* The state of a window that nobody gets. */
static enum window_state look(struct link_scene *s, uint64_t window)
{
  struct packed_window *packed;
  return window_store_get(s->packer.store, s->link.plans[PLM_SPLIT_TRAIN], 0, window, false,
                          &packed, NULL);
}

/* Until a window that was said to be needed soon is made. */
static void until_made(struct link_scene *s, uint64_t window)
{
  for (int waited = 0; waited < LINK_WAIT_MS && look(s, window) != WINDOW_READY;
       waited += LINK_TURN_MS) {
    zmq_pollitem_t item = {NULL, window_store_wake(s->packer.store), ZMQ_POLLIN, 0};
    window_store_pass(s->packer.store);
    packer_link_serve(&s->link, &s->packer, s->now);
    (void)zmq_poll(&item, 1, LINK_TURN_MS);
    if (item.revents != 0) window_store_woken(s->packer.store);
  }
  assert_int_equal(look(s, window), WINDOW_READY);
}

/* A window is made before its chunks are asked for if the consumer says that they will be. */
static void what_is_needed_soon_is_made(void **state)
{
  (void)state;
  struct link_scene s;
  struct plm_tables tables = {0};
  link_begin(&s);
  link_welcome(&s);
  prove(&s, 0, 0, 2, false);
  proven(&s, 0, 2, &tables);
  prove(&s, 1, 0, 1, true);
  plm_tables_deinit(&tables);
  proven(&s, 1, 1, &tables);
  until_made(&s, 1);
  assert_int_equal(look(&s, 0), WINDOW_ABSENT);
  assert_int_equal(window_store_standby(s.packer.store), 1);
  plm_tables_deinit(&tables);
  link_end(&s);
}

/* While the store is full of windows that are still to be sent, the link remembers the latest
 * LINK_PREPARE windows, and has them made in that order as others are sent. */
static void the_latest_that_are_needed_soon_are_remembered(void **state)
{
  (void)state;
  static const uint64_t later[LINK_PREPARE + 1] = {5, 3, 4, 0, 1};
  static const uint64_t made[] = {3, 4, 0}; /* in the places of 0, 1 and 2 */
  struct link_scene s;
  struct plm_tables tables = {0};
  link_begin(&s);
  link_welcome(&s);
  assert_int_equal(s.windows, 6);
  for (uint64_t i = 0; i < STORE_WINDOWS + LINK_PREPARE + 1; i++) {
    const uint64_t soon = i < STORE_WINDOWS ? i : later[i - STORE_WINDOWS];
    prove(&s, soon, 0, 1, true);
    plm_tables_deinit(&tables);
    proven(&s, soon, 1, &tables);
    if (i < STORE_WINDOWS) until_made(&s, soon);
  }
  for (uint32_t window = 0; window < STORE_WINDOWS; window++) {
    (void)link_served(&s, window, 0, 1);
    until_made(&s, made[window]);
    assert_int_equal(look(&s, window), WINDOW_ABSENT);
    assert_int_equal(look(&s, 5), WINDOW_ABSENT);
    assert_int_equal(window_store_standby(s.packer.store), STORE_WINDOWS);
  }
  plm_tables_deinit(&tables);
  link_end(&s);
}

/* As many proofs may be open as the store has places. Windows of those that are refused are not
 * made. */
static void too_many_proofs_are_refused(void **state)
{
  (void)state;
  struct link_scene s;
  link_begin(&s);
  link_welcome(&s);
  for (int i = 0; i < STORE_PROOFS; i++) prove(&s, 0, 0, 1, false);
  prove(&s, 1, 0, 1, true);
  link_nacked(&s, PLM_NACK_BUSY, "too many requests", false);
  for (int i = 0; i < LINK_PREPARE; i++) assert_false(s.link.prepare[i].wanted);
  link_end(&s);
}

int main(void)
{
  plm_log_init("test", PLM_LOG_ERROR);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(windows_are_proven),
      cmocka_unit_test(a_proof_has_its_place),
      cmocka_unit_test(proofs_are_of_the_split_and_the_epoch),
      cmocka_unit_test(failures_are_told),
      cmocka_unit_test(what_is_needed_soon_is_made),
      cmocka_unit_test(the_latest_that_are_needed_soon_are_remembered),
      cmocka_unit_test(too_many_proofs_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
