/* Sockets that fail while a feed serves: whoever waits for it is told, and it can be closed. */
#include "tests/support/harness/cmocka_all.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "common/base/log/log.h"
#include "tests/support/harness/must.h"
#include "tests/support/peers/packers.h"

static atomic_int polling, receiving; /* the errors with which these calls fail; 0: none */
static atomic_int failures;           /* calls that have failed */

static void *find(const char *name)
{
  return must(dlsym(RTLD_NEXT, name));
}

/* These take the place of libzmq's functions in this program. */
int zmq_poll(zmq_pollitem_t *items, int count, long timeout)
{
  int (*next)(zmq_pollitem_t *, int, long);
  void *found = find("zmq_poll");
  memcpy(&next, &found, sizeof found);
  if (polling == 0) return next(items, count, timeout < 0 || timeout > 10 ? 10 : timeout);
  failures++;
  errno = polling;
  return -1;
}

int zmq_recv(void *socket, void *buffer, size_t size, int flags)
{
  int (*next)(void *, void *, size_t, int);
  void *found = find("zmq_recv");
  memcpy(&next, &found, sizeof found);
  if (receiving == 0) return next(socket, buffer, size, flags);
  failures++;
  errno = receiving;
  return -1;
}

/* Waits until chunks come, which they do not, or a failure. */
static plm_status wait_for(atomic_int *call, int number, struct plm_error *error)
{
  struct plm_feed_options options = packers_options();
  struct plm_feed_corpus *corpus = must(malloc(sizeof *corpus));
  options.wait_packers_s = 0.3;
  struct plm_feed *feed = packers_feed(&options);
  *error = (struct plm_error){0};
  failures = 0;
  *call = number;
  const plm_status status = plm_feed_corpus(feed, NULL, corpus, error);
  *call = 0;
  plm_feed_close(feed);
  free(corpus);
  return status;
}

static void a_poll_that_fails_is_said(void **state)
{
  struct plm_error error;
  (void)state;
  assert_int_equal(wait_for(&polling, ENOTSOCK, &error), PLM_IO);
  assert_memory_equal(error.what, "poll: ", 6);
  assert_non_null(strstr(error.what, zmq_strerror(ENOTSOCK)));
  assert_int_equal(failures, 1);
}

/* A signal ends no feed. */
static void a_poll_that_is_interrupted_goes_on(void **state)
{
  struct plm_error error;
  (void)state;
  assert_int_equal(wait_for(&polling, EINTR, &error), PLM_TIMEOUT);
  assert_true(failures > 1);
}

static void messages_that_cannot_be_received_are_said(void **state)
{
  struct plm_error error;
  (void)state;
  assert_int_equal(wait_for(&receiving, EFAULT, &error), PLM_IO);
  assert_memory_equal(error.what, "receive: ", 9);
  assert_int_equal(wait_for(&receiving, EINTR, &error), PLM_TIMEOUT);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_poll_that_fails_is_said),
      cmocka_unit_test(a_poll_that_is_interrupted_goes_on),
      cmocka_unit_test(messages_that_cannot_be_received_are_said),
  };
  plm_log_init("test", PLM_LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
