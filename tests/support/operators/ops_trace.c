/* Times each operator of a backend between two waits for the device; see ops_trace.h. */
#include "tests/support/operators/ops_trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/ops/observed.h"
#include "tests/support/harness/must.h"

enum { MOST_ROWS = 256 };
static struct ops_trace_row rows[MOST_ROWS];
static unsigned row_count;
static uint64_t began_ns;
static double wait_s; /* shortest time of a small launch and the wait for it */
static struct plm_ops *traced;

static void trace_begins(void *context, struct plm_ops *ops, const struct plm_op_call *call)
{
  (void)context;
  (void)call;
  (void)ops->synchronize(ops, NULL);
  began_ns = plm_clock_ns();
}

static struct ops_trace_row *row_of(const char *name)
{
  for (unsigned i = 0; i < row_count; i++)
    if (strcmp(rows[i].name, name) == 0) return &rows[i];
  PLM_ASSERT(row_count < MOST_ROWS);
  struct ops_trace_row *row = &rows[row_count++];
  *row = (struct ops_trace_row){0};
  (void)snprintf(row->name, sizeof row->name, "%s", name);
  return row;
}

static bool is_named_by_shape(const char *name)
{
  return strncmp(name, "linear_", 7) == 0 || strncmp(name, "attention_", 10) == 0;
}

static void trace_ended(void *context, struct plm_ops *ops, const struct plm_op_call *call)
{
  char name[PLM_OP_NAME_SIZE];
  (void)context;
  (void)ops->synchronize(ops, NULL);
  const double took_s = 1e-9 * (double)(plm_clock_ns() - began_ns) - wait_s;
  if (call->kind == PLM_OP_WAITS || call->kind == PLM_OP_BESIDE) return;
  struct plm_op_call named = *call;
  if (!is_named_by_shape(call->name)) named.sizes[0] = 0;
  plm_op_call_name(&named, name);
  struct ops_trace_row *row = row_of(name);
  row->calls++;
  row->seconds += took_s > 0 ? took_s : 0;
  row->bytes += call->bytes;
  row->flops += call->flops;
}

/* The number of pairs that a mask in the device's memory allows. Remembers its last answer. */
static double trace_pairs(void *context, const struct plm_interval_mask *mask)
{
  static const int32_t *known;
  static double pairs;
  (void)context;
  if (known == mask->key_begin) return pairs;
  const size_t n = (size_t)mask->B * (size_t)mask->L;
  int32_t *ends = must(malloc(2 * n * sizeof *ends));
  traced->download(traced, ends, mask->key_begin, n * sizeof *ends);
  traced->download(traced, ends + n, mask->key_end, n * sizeof *ends);
  pairs = 0;
  for (size_t i = 0; i < n; i++) pairs += ends[n + i] - ends[i];
  free(ends);
  known = mask->key_begin;
  return pairs;
}

static void measure_waits(struct plm_ops *ops)
{
  enum { ROUNDS = 16 };
  void *buffer;
  wait_s = INFINITY;
  if (ops->allocate(ops, 256, &buffer, NULL) != PLM_OK) exit(1);
  for (int i = 0; i < ROUNDS; i++) {
    (void)ops->synchronize(ops, NULL);
    const uint64_t began = plm_clock_ns();
    ops->zero(ops, buffer, 256);
    (void)ops->synchronize(ops, NULL);
    wait_s = fmin(wait_s, 1e-9 * (double)(plm_clock_ns() - began));
  }
  ops->release(ops, buffer);
}

void ops_trace_begin(struct plm_ops *ops)
{
  struct plm_error error = {0};
  row_count = 0;
  measure_waits(ops);
  traced = ops;
  must_work(plm_ops_observe(ops,
                            &(struct plm_ops_observer){
                                .begins = trace_begins, .ended = trace_ended, .pairs = trace_pairs},
                            &error),
            &error);
}

static int longer(const void *a, const void *b)
{
  const struct ops_trace_row *x = a, *y = b;
  return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

const struct ops_trace_row *ops_trace_end(struct plm_ops *ops, unsigned *count)
{
  plm_ops_unobserve(ops);
  qsort(rows, row_count, sizeof *rows, longer);
  *count = row_count;
  return rows;
}
