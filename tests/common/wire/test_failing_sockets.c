/* Sockets that cannot be set up: each failure is said, and nothing of the rest is left. */
#include "tests/support/peers/failing_sockets.h"

#include <stdio.h>

#include "common/base/files/file.h"
#include "common/wire/announce.h"
#include "common/wire/connection_limiter.h"
#include "common/wire/security.h"
#include "common/wire/socket.h"
#include "tests/support/harness/failing_memory.h"
#include "tests/support/harness/scratch.h"

static char keys[PLM_PATH_SIZE];
static void *context;

static plm_status announcer(void **opened, struct plm_error *error)
{
  return plm_announcer_open("tcp://127.0.0.1:*", NULL, (struct plm_announcer **)opened, error);
}
static plm_status guarded_announcer(void **opened, struct plm_error *error)
{
  return plm_announcer_open("tcp://127.0.0.1:*", keys, (struct plm_announcer **)opened, error);
}
static void close_announcer(void *opened)
{
  plm_announcer_close(opened);
}

static plm_status listener(void **opened, struct plm_error *error)
{
  return plm_listener_open("tcp://127.0.0.1:9", NULL, (struct plm_announcement_listener **)opened,
                           error);
}
static plm_status listener_with_keys(void **opened, struct plm_error *error)
{
  return plm_listener_open("tcp://127.0.0.1:9", keys, (struct plm_announcement_listener **)opened,
                           error);
}
static void close_listener(void *opened)
{
  plm_listener_close(opened);
}

static plm_status gate(void **opened, struct plm_error *error)
{
  return plm_gate_open(context, keys, (struct plm_gate **)opened, error);
}
static void close_gate(void *opened)
{
  plm_gate_close(opened);
}

static void what_cannot_be_set_up_is_said(void **state)
{
  struct plm_error error = {0};
  (void)state;
  snprintf(keys, sizeof keys, "%s", scratch_path("keys"));
  assert_int_equal(plm_keys_write(keys, "client", NULL, &error), PLM_OK);
  failing_sockets_try(announcer, close_announcer, 18);
  failing_sockets_try(guarded_announcer, close_announcer, 24);
  failing_sockets_try(listener, close_listener, 14);
  failing_sockets_try(listener_with_keys, close_listener, 17);
  assert_int_equal(plm_context_open(&context, &error), PLM_OK);
  failing_sockets_try(gate, close_gate, 3);
  zmq_ctx_term(context);
}

static plm_status open_all(void *unused, struct plm_error *error)
{
  static const struct plm_limiter_limits limits = {.connections = 8, .unidentified = 4};
  void *opened;
  struct plm_limiter *limiter;
  (void)unused;
  PLM_TRY(plm_context_open(&context, error));
  const plm_status status = gate(&opened, error);
  if (status == PLM_OK) plm_gate_close(opened);
  zmq_ctx_term(context);
  PLM_TRY(status);
  PLM_TRY(plm_limiter_open("tcp://127.0.0.1:9", &limits, &limiter, error));
  plm_limiter_close(limiter);
  return PLM_OK;
}

static void a_lack_of_memory_is_said(void **state)
{
  (void)state;
  failing_memory_try(open_all, NULL, 3);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_cannot_be_set_up_is_said),
                                     cmocka_unit_test(a_lack_of_memory_is_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
