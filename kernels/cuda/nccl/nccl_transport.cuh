/* NCCL as the transport between ranks (common/collective/transport.h), as its files see it.
 *
 *   nccl_library.cu     loads libnccl.so.2
 *   nccl_open.cu        compares the ranks, and makes and ends the communicators
 *   nccl_transport.cu   transfers, and the thread that watches them
 *
 * All communicators share one stream beside the computation's. NCCL is called on the thread that
 * starts transfers; the watch asks for errors and, after a failure, aborts the communicators. */
#ifndef PLM_KERNELS_CUDA_NCCL_NCCL_TRANSPORT_CUH
#define PLM_KERNELS_CUDA_NCCL_NCCL_TRANSPORT_CUH

#include "kernels/cuda/nccl/nccl_library.cuh"

#include <pthread.h>

#include "kernels/cuda/device/cuda_ops.cuh"

extern "C" {
#include "common/collective/transport.h"
}

#if PLM_HAS_NCCL

enum { PLM_NCCL_SLOTS = 64 }; /* transfers between their start and their wait */

/* The device's time at both ends of a pause of the computation. */
struct plm_nccl_pause {
  cudaEvent_t from, to;
};

struct plm_nccl {
  struct plm_transport base; /* must be first */
  struct plm_cuda *cuda;
  struct plm_collective *collective;
  const struct plm_nccl_functions *functions;
  cudaStream_t stream;
  cudaEvent_t ready;      /* how far the computation was when a transfer was started */
  cudaEvent_t begun, now; /* PLM_COMPUTE_BEGINS; the moment that computed is asked */
  struct plm_nccl_pause pauses[PLM_NCCL_SLOTS]; /* the last ones */
  uint64_t paused;                              /* pauses since `begun` */
  double pauses_ms;                             /* of those before the last ones */
  pthread_t watch;
  bool watched; /* the thread runs */

  pthread_mutex_t mutex; /* guards everything below, and calls of NCCL */
  pthread_cond_t changed;
  ncclComm_t group, rail;           /* NULL: of one rank, or aborted */
  cudaEvent_t done[PLM_NCCL_SLOTS]; /* transfer i has ended: done[i % PLM_NCCL_SLOTS] */
  uint64_t started, ended;          /* transfers */
  bool closing;
  bool failed;            /* the communicators are aborted, or will be */
  struct plm_error error; /* what failed here; its status is PLM_OK if another rank failed */
};

/* ---- nccl_open.cu ---- */
/* Waits until a communicator has done what it was told, or until the exchange fails. Called without
 * the mutex. */
plm_status plm_nccl_settle(struct plm_nccl *nccl, ncclComm_t comm, ncclResult_t code,
                           const char *what, struct plm_error *error);
/* Fills error with what NCCL says. */
plm_status plm_nccl_error(struct plm_nccl *nccl, ncclComm_t comm, ncclResult_t code,
                          const char *what, struct plm_error *error);
/* Fills error with that of the exchange, which has failed here or on another rank. */
plm_status plm_nccl_reason(struct plm_nccl *nccl, struct plm_error *error);
/* Ends the communicators together with the other ranks, or aborts them after a few seconds. */
void plm_nccl_end(struct plm_nccl *nccl);
/* Aborts the communicators; the mutex is locked. */
void plm_nccl_abort(struct plm_nccl *nccl);

/* ---- nccl_transport.cu ---- */
/* Fills the table of functions, makes the stream and starts the watch. */
plm_status plm_nccl_begin(struct plm_nccl *nccl, struct plm_error *error);
/* Frees everything, also after a failed opening. */
void plm_nccl_free(struct plm_nccl *nccl);

#endif

/* Sets ops->open_nccl. */
void plm_cuda_nccl_register(struct plm_cuda *cuda);

#endif
