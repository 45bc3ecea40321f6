/* Where the time of a pass goes: the operators of a backend, each timed by itself between two waits
 * for the device, with the operations and the fewest bytes that its arguments ask for. */
#ifndef PLM_TESTS_SUPPORT_OPS_TRACE_H
#define PLM_TESTS_SUPPORT_OPS_TRACE_H

#include "common/ops/ops.h"

struct ops_trace_row {
  char name[96]; /* operator and, of products and attention, the shape */
  unsigned calls;
  double seconds; /* without what the waits take */
  double bytes;   /* each input read once, each output written once; 0: not counted */
  double flops;   /* of products and attention, else 0 */
};

/* From here on what is called through ops is timed, until ops_trace_end. One at a time; what an
 * operator calls inside counts as its own. */
void ops_trace_begin(struct plm_ops *ops);
/* Puts the operators back. The rows, the longest first, hold until the next begin. */
const struct ops_trace_row *ops_trace_end(struct plm_ops *ops, unsigned *count);

#endif
