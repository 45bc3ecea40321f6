/* How memory of operators travels between ranks.
 *
 * A transport moves slices of memory that ops->allocate returned, beside the computation:
 *
 *   direct   the operators compute on the host, so a collective moves their memory itself
 *   nccl     kernels/cuda: NCCL moves the memory of devices
 *   staged   copies through pinned memory of the host, which a collective moves
 *
 * Start and wait are ordered with the computation that is queued when they are called, as if they
 * were operators. The staged transport makes the host wait for the computation in both; the others
 * do not. See doc/ranks.md#transports. */
#ifndef PLM_COMMON_COLLECTIVE_TRANSPORT_H
#define PLM_COMMON_COLLECTIVE_TRANSPORT_H

#include "common/base/status.h"
#include "common/collective/collective.h"
#include "common/collective/transport_clock.h"
#include "common/ops/ops.h"

struct plm_transport {
  const char *name;
  /* Starts a transfer after the computation that is queued so far. kind: PLM_ALL_TO_ALL or
   * PLM_ALL_GATHER; lane: PLM_LANE_STEP; scope: PLM_SCOPE_GROUP or PLM_SCOPE_RAIL; bytes: a
   * multiple of PLM_SLICE_UNIT; to and from do not overlap. Until wait, `from` must not be written,
   * nor `to` used; the struct stays untouched. Not while a recording is made. */
  void (*start)(struct plm_transport *transport, struct plm_transfer *transfer);
  /* Computation that is queued after this call finds the transfer done. Errors are those of the
   * collective's wait, and they end the exchange for good. PLM_OK does not mean that the transfer
   * has ended: if it fails later, the next transfer of the collective or the transport says so. */
  plm_status (*wait)(struct plm_transport *transport, struct plm_transfer *transfer,
                     struct plm_error *error);
  /* How long this rank computes without waiting for others, for a metric only. Marks are ordered
   * with the computation. Call computed when the computation has ended (ops->synchronize): it
   * returns the seconds since PLM_COMPUTE_BEGINS, without pauses and without waits for transfers,
   * or 0 if a device cannot tell. */
  void (*mark)(struct plm_transport *transport, enum plm_compute_mark mark);
  double (*computed)(struct plm_transport *transport);
  /* All ranks call it, before the operators and the collective are closed. After a failure, those
   * are told first (collective->fail). */
  void (*close)(struct plm_transport *transport);
};

/* Opens the transport for these operators; both arguments are borrowed. For operators on a device
 * it is nccl, unless the environment variable PLM_COLLECTIVE is "mpi": then it is staged. All ranks
 * call it. PLM_CONFIG is the same error on all ranks. */
plm_status plm_transport_open(struct plm_collective *collective, struct plm_ops *ops,
                              struct plm_transport **transport, struct plm_error *error);

/* The one of them that copies through the host. */
struct plm_transport *plm_transport_open_staged(struct plm_collective *collective,
                                                struct plm_ops *ops);

#endif
