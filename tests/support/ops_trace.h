/* Where the time of a pass goes: times each operator of a backend between two waits for the device,
 * and adds the operations and the smallest number of bytes that its arguments require. */
#ifndef PLM_TESTS_SUPPORT_OPS_TRACE_H
#define PLM_TESTS_SUPPORT_OPS_TRACE_H

#include "common/ops/ops.h"

struct ops_trace_row {
  char name[96]; /* operator, and the shape for products and attention */
  unsigned calls;
  double seconds; /* without the waits */
  double bytes;   /* each input read once, each output written once; 0 if unknown */
  double flops;   /* for products and attention, otherwise 0 */
};

/* Starts timing what is called through ops. Only one trace at a time. What an operator calls itself
 * is part of its time. */
void ops_trace_begin(struct plm_ops *ops);
/* Stops timing. The rows, longest time first, are valid until the next begin. */
const struct ops_trace_row *ops_trace_end(struct plm_ops *ops, unsigned *count);

#endif
