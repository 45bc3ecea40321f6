/* Shows where the time of a pass goes. Times each operator of a backend between two waits for the
 * device, and counts the operations and the fewest bytes that its arguments require. */
#ifndef PLM_TESTS_SUPPORT_OPERATORS_OPS_TRACE_H
#define PLM_TESTS_SUPPORT_OPERATORS_OPS_TRACE_H

#include "common/ops/ops.h"

struct ops_trace_row {
  char name[96]; /* operator, and the shape for products and attention */
  unsigned calls;
  double seconds; /* without the time of a wait */
  double bytes;   /* each input read once, each output written once; 0 if unknown */
  double flops;   /* for products and attention, otherwise 0 */
};

/* Starts timing the operators called through ops. Only one trace can run at a time. Operators that
 * an operator calls count as part of it. */
void ops_trace_begin(struct plm_ops *ops);
/* Stops timing. The rows, longest time first, are valid until the next begin. */
const struct ops_trace_row *ops_trace_end(struct plm_ops *ops, unsigned *count);

#endif
