/* See refusals.h. */
#include "tests/support/peers/refusals.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"

static atomic_int left = -1; /* calls that succeed before one fails; -1: all do */
static int rest;             /* of them, when the work said that it has succeeded */
static char refused[40];     /* what the call that failed has said */
static struct plm_ops true_ops;
static plm_status (*wait_truly)(struct plm_collective *, struct plm_transfer *, struct plm_error *);

/* Counts a call of any thread. Whether it is the one that fails. */
static bool refuses(void)
{
  int at = left;
  while (at >= 0 && !atomic_compare_exchange_weak(&left, &at, at - 1)) continue;
  return at == 0;
}

static plm_status refuse(const char *what, struct plm_error *error)
{
  snprintf(refused, sizeof refused, "%s is refused", what);
  return plm_error_set(error, PLM_FAILURE, "%s", refused);
}

static plm_status allocate(struct plm_ops *ops, size_t bytes, void **buffer,
                           struct plm_error *error)
{
  *buffer = NULL;
  return refuses() ? refuse("memory", error) : true_ops.allocate(ops, bytes, buffer, error);
}

static plm_status allocate_host(struct plm_ops *ops, size_t bytes, void **buffer,
                                struct plm_error *error)
{
  *buffer = NULL;
  return refuses() ? refuse("pinned memory", error)
                   : true_ops.allocate_host(ops, bytes, buffer, error);
}

static plm_status synchronize(struct plm_ops *ops, struct plm_error *error)
{
  return refuses() ? refuse("a computation", error) : true_ops.synchronize(ops, error);
}

static plm_status wait_copies(struct plm_ops *ops, struct plm_error *error)
{
  return refuses() ? refuse("a copy", error) : true_ops.wait_copies(ops, error);
}

static plm_status export_algorithms(struct plm_ops *ops, char **text, struct plm_error *error)
{
  return refuses() ? refuse("a list of algorithms", error)
                   : true_ops.export_algorithms(ops, text, error);
}

void refusals_of_ops(struct plm_ops *ops)
{
  true_ops = *ops;
  ops->allocate = allocate;
  ops->allocate_host = allocate_host;
  ops->synchronize = synchronize;
  ops->wait_copies = wait_copies;
  if (ops->export_algorithms != NULL) ops->export_algorithms = export_algorithms;
}

static plm_status wait_for_ranks(struct plm_collective *collective, struct plm_transfer *transfer,
                                 struct plm_error *error)
{
  return refuses() ? refuse("an exchange", error) : wait_truly(collective, transfer, error);
}

void refusals_of_ranks(struct plm_collective *collective)
{
  wait_truly = collective->wait;
  collective->wait = wait_for_ranks;
}

int refusals_pause(void)
{
  return atomic_exchange(&left, -1);
}

void refusals_resume(int at)
{
  left = at;
}

void refusals_end(void)
{
  const int at = atomic_exchange(&left, -1);
  if (rest < 0) rest = at;
}

int refusals_try(refusals_work *work, void *context)
{
  for (int succeeded = 0;; succeeded++) {
    struct plm_error error = {0};
    refused[0] = '\0';
    rest = -1;
    left = succeeded;
    const plm_status status = work(context, &error);
    const int more = left >= 0 ? left : rest;
    left = -1;
    if (status == PLM_OK && more >= 0) return succeeded;
    if (status != PLM_FAILURE || more >= 0 || strcmp(error.what, refused) != 0)
      fail_msg("call %d, %s: status %d, \"%s\"", succeeded, refused, (int)status, error.what);
  }
}
