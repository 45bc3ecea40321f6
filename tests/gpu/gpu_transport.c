/* NCCL with one rank, on a machine without MPI: opens the transport, moves slices of several sizes,
 * checks what arrives, and closes it.
 *
 *   gpu_transport [ROUNDS]
 *
 * Prints "NCCL moved N slices" if all of them are right. Exit 77: NCCL cannot be used here; the
 * output says why. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log/log.h"
#include "common/collective/transport.h"
#include "common/ops/open.h"

enum { FLOATS = 1 << 18, IN_FLIGHT = 3, SKIPPED = 77 };

/* ---- a collective of one rank, whose transfers are copies ---- */

static void copy_now(struct plm_collective *collective, struct plm_transfer *transfer)
{
  (void)collective;
  if (transfer->kind == PLM_ALL_TO_ALL || transfer->kind == PLM_ALL_GATHER)
    memcpy(transfer->to, transfer->from, transfer->bytes);
}

static plm_status already_done(struct plm_collective *collective, struct plm_transfer *transfer,
                               struct plm_error *error)
{
  (void)collective;
  (void)transfer;
  (void)error;
  return PLM_OK;
}

static void nothing(struct plm_collective *collective)
{
  (void)collective;
}

static void say(struct plm_collective *collective, const struct plm_error *error)
{
  (void)collective;
  plm_error_print("gpu_transport", error);
}

static int32_t nobody(struct plm_collective *collective)
{
  (void)collective;
  return -1;
}

static struct plm_collective single = {
    .name = "single",
    .place = {.rank = 0, .ranks = 1, .group_size = 1, .on_this_host = 1, .host = "this host"},
    .start = copy_now,
    .wait = already_done,
    .began_elsewhere = nothing,
    .ended_elsewhere = nothing,
    .fail = say,
    .speaker = nobody,
};

/* ---- the transport --------------------------------------------------------------------------- */

struct buffers {
  float *from[IN_FLIGHT], *to[IN_FLIGHT]; /* device */
  float host[FLOATS], back[FLOATS];
};

static plm_status run_round(struct plm_ops *ops, struct plm_transport *transport,
                            struct buffers *buffers, int round, struct plm_error *error)
{
  struct plm_transfer transfers[IN_FLIGHT];
  for (int k = 0; k < IN_FLIGHT; k++) {
    const size_t bytes = sizeof(float) * (size_t)(FLOATS >> k);
    for (int i = 0; i < FLOATS; i++) buffers->host[i] = (float)(i + 7 * round + 13 * k);
    ops->upload(ops, buffers->to[k], buffers->host, bytes);
    ops->copy(ops, buffers->from[k], buffers->to[k], bytes);
    ops->zero(ops, buffers->to[k], bytes);
    transfers[k] = (struct plm_transfer){.kind = (round + k) % 2 ? PLM_ALL_GATHER : PLM_ALL_TO_ALL,
                                         .scope = k == 1 ? PLM_SCOPE_RAIL : PLM_SCOPE_GROUP,
                                         .to = buffers->to[k],
                                         .from = buffers->from[k],
                                         .bytes = bytes};
    transport->start(transport, &transfers[k]);
  }
  for (int k = 0; k < IN_FLIGHT; k++) {
    PLM_TRY(transport->wait(transport, &transfers[k], error));
    ops->download(ops, buffers->back, buffers->to[k], transfers[k].bytes);
    PLM_TRY(ops->synchronize(ops, error));
    for (int i = 0; i < FLOATS >> k; i++)
      if (buffers->back[i] != (float)(i + 7 * round + 13 * k))
        return plm_error_set(error, PLM_CORRUPT, "round %d, transfer %d: element %d is wrong",
                             round, k, i);
  }
  return PLM_OK;
}

static plm_status run(struct plm_ops *ops, struct plm_transport *transport, int rounds,
                      struct plm_error *error)
{
  static struct buffers buffers;
  for (int k = 0; k < IN_FLIGHT; k++) {
    PLM_TRY(ops->allocate(ops, sizeof buffers.host, (void **)&buffers.from[k], error));
    PLM_TRY(ops->allocate(ops, sizeof buffers.host, (void **)&buffers.to[k], error));
  }
  for (int round = 0; round < rounds; round++)
    PLM_TRY(run_round(ops, transport, &buffers, round, error));
  printf("NCCL moved %d slices\n", rounds * IN_FLIGHT);
  for (int k = 0; k < IN_FLIGHT; k++) {
    ops->release(ops, buffers.from[k]);
    ops->release(ops, buffers.to[k]);
  }
  return PLM_OK;
}

int main(int argc, char **argv)
{
  const struct plm_ops_request request = {.device = PLM_DEVICE_CUDA,
                                          .precision = PLM_PRECISION_FP32};
  struct plm_error error = {0};
  struct plm_ops *ops;
  struct plm_transport *transport;
  plm_status status = plm_ops_open(&request, &ops, &error);
  if (status != PLM_OK) {
    plm_error_print("gpu_transport", &error);
    return plm_status_exit_code(status);
  }
  status = plm_transport_open(&single, ops, &transport, &error);
  if (status == PLM_OK) {
    status = run(ops, transport, argc > 1 ? atoi(argv[1]) : 20, &error);
    transport->close(transport);
  }
  ops->close(ops);
  if (status == PLM_OK) return 0;
  plm_error_print("gpu_transport", &error);
  return status == PLM_CONFIG ? SKIPPED : plm_status_exit_code(status);
}
