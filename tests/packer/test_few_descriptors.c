/* Sockets that are opened while hardly any descriptors are left: an error, not an abort of libzmq.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/wire/announce.h"
#include "packer/packer_link.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/packers.h"

enum { FEW = 32, PLENTY = 200 };

static const char nowhere[] = "tcp://127.0.0.1:1";

/* Opens something in a process that may open only `more` descriptors more. */
typedef plm_status opener(int more, struct plm_error *error);

static void leave(int more)
{
  struct rlimit limit;
  const int next = dup(0); /* the lowest that is free */
  if (next < 0 || close(next) != 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(100);
  limit.rlim_cur = (rlim_t)next + (rlim_t)more;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(101);
}

static plm_status open_feed(int more, struct plm_error *error)
{
  const struct plm_feed_options options = packers_keyed_options();
  struct plm_feed *feed = NULL;
  leave(more);
  const plm_status status = plm_feed_open(&options, &feed, error);
  plm_feed_close(feed);
  return status;
}

static plm_status open_announcer(int more, struct plm_error *error)
{
  struct plm_announcer *announcer = NULL;
  leave(more);
  const plm_status status =
      plm_announcer_open("tcp://127.0.0.1:*", packers_keys(), &announcer, error);
  plm_announcer_close(announcer);
  return status;
}

static plm_status open_listener(int more, struct plm_error *error)
{
  struct plm_announcement_listener *listener = NULL;
  leave(more);
  const plm_status status = plm_listener_open(nowhere, packers_keys(), &listener, error);
  plm_listener_close(listener);
  return status;
}

static plm_status open_packer(int more, struct plm_error *error)
{
  void *context;
  leave(more);
  const plm_status status = plm_context_open(&context, error);
  if (status == PLM_OK) zmq_ctx_term(context);
  return status;
}

/* A link of a packer that runs: it must be opened later, when there are descriptors again. */
static plm_status open_link(int more, struct plm_error *error)
{
  static struct packer_link link = {.used = true};
  struct packer_context context = {.keys = packers_keys()};
  struct rlimit limit;
  memcpy(link.endpoint, nowhere, sizeof nowhere);
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(102);
  if (plm_context_open(&context.zmq, error) != PLM_OK) _exit(103);
  leave(more);
  packer_link_tick(&link, &context, 1000);
  const bool opened = link.state != LINK_CLOSED;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(104);
  packer_link_tick(&link, &context, 3000);
  if (link.state == LINK_CLOSED) _exit(105);
  packer_link_close(&link, false);
  zmq_ctx_term(context.zmq);
  return opened ? PLM_OK : PLM_NO_DESCRIPTORS;
}

static bool opens(opener *open, int more)
{
  int status;
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    struct plm_error error = {0};
    _exit(open(more, &error) == PLM_OK ? 0 : 1);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) > 1)
    fail_msg("with %d descriptors more, it ended with status 0x%x", more, (unsigned)status);
  return WEXITSTATUS(status) == 0;
}

static void it_fails_with_few(void **state)
{
  opener *open = *(opener **)*state;
  assert_false(opens(open, 0));
  for (int more = 1; more <= FEW; more++) (void)opens(open, more);
  assert_true(opens(open, PLENTY));
}

int main(void)
{
  static opener *openers[] = {open_feed, open_announcer, open_listener, open_packer, open_link};
  const struct CMUnitTest tests[] = {
      {"a_feed_fails_with_few", it_fails_with_few, NULL, NULL, &openers[0]},
      {"an_announcer_fails_with_few", it_fails_with_few, NULL, NULL, &openers[1]},
      {"a_listener_fails_with_few", it_fails_with_few, NULL, NULL, &openers[2]},
      {"a_packer_fails_with_few", it_fails_with_few, NULL, NULL, &openers[3]},
      {"a_link_is_opened_later", it_fails_with_few, NULL, NULL, &openers[4]},
  };
  (void)packers_keys(); /* made here once, for all processes */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
