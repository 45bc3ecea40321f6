/* Watching the operators of a backend: who wants to know which operators run, in which order and
 * for how long (a profile of a step, benchmarks) observes the table.
 *
 * Observing replaces the entries of struct plm_ops by ones that tell the observer before and after
 * each call. Everybody calls operators through that table, so none is missed; and while nobody
 * observes it, the table is as the backend has filled it, so that observing costs nothing then. */
#ifndef PLM_COMMON_OPS_OBSERVED_H
#define PLM_COMMON_OPS_OBSERVED_H

#include "common/ops/ops.h"

enum plm_op_kind {
  PLM_OP_COMPUTES, /* computes on the device */
  PLM_OP_COPIES,   /* upload and download, for which the host waits, and zero and copy */
  PLM_OP_BESIDE,   /* a copy on the second queue */
  PLM_OP_WAITS,    /* synchronize and wait_copies */
};

enum { PLM_OP_SIZES = 3 };

struct plm_op_call {
  const char *name; /* of the entry in struct plm_ops */
  enum plm_op_kind kind;
  /* The sizes that name the call: N, I and O of a product, L, H and K of attention, N and D of
   * rows, n of vectors. Those that it does not have are 0. */
  int64_t sizes[PLM_OP_SIZES];
  double bytes; /* the least traffic: each input is read once, each output written once */
  double flops; /* of its matrix products, a multiply-add as two; 0 if it has none or unknown */
};

/* All are called by the thread that observes. An operator that another one calls is part of it and
 * is not told, and neither is one that the observer calls. */
struct plm_ops_observer {
  void (*begins)(void *context, struct plm_ops *ops, const struct plm_op_call *call);
  void (*ended)(void *context, struct plm_ops *ops, const struct plm_op_call *call);
  /* The query-key pairs that a mask allows, from which attention's flops follow. NULL: unknown. */
  double (*pairs)(void *context, const struct plm_interval_mask *mask);
  void *context;
};

/* From here on the observer is told about every call that this thread makes, until
 * plm_ops_unobserve. There is one observer at a time. PLM_NO_MEMORY. */
plm_status plm_ops_observe(struct plm_ops *ops, const struct plm_ops_observer *observer,
                           struct plm_error *error);
/* Gives the backend its entries back. Does nothing if nobody observes. */
void plm_ops_unobserve(struct plm_ops *ops);

/* The name with the sizes, if it has some: "linear_forward 4096 x 384 x 1152", "add". */
enum { PLM_OP_NAME_SIZE = 96 };
void plm_op_call_name(const struct plm_op_call *call, char name[PLM_OP_NAME_SIZE]);

#endif
