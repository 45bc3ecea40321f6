/* The MPI engine of a collective (common/collective/collective.h), as its files see it.
 *
 *   mpi_library.c   the entry, opening, closing, and what other threads call
 *   mpi_world.c     MPI_Init, the order of ranks, and the communicators
 *   mpi_carrier.c   the thread that makes all MPI calls: transfers, and when they are done
 *   mpi_watch.c     what the ranks tell each other each second, and who is late
 */
#ifndef PLM_KERNELS_MPI_MPI_ENGINE_H
#define PLM_KERNELS_MPI_MPI_ENGINE_H

#include <mpi.h>
#include <pthread.h>
#include <stdint.h>

#include "common/collective/collective.h"

/* What a rank sends to every other one each second, or at once when it fails. */
struct plm_mpi_notice {
  uint64_t started; /* transfers of the lane of steps that this rank has started */
  uint64_t step;
  int32_t patient; /* the others wait for this rank without a limit */
  int32_t speaker; /* after a failure; else -1 */
  int32_t said;    /* what happened was said, by this rank or by another one */
  char phase[48];
  struct plm_error error; /* if one has failed */
};

/* Another rank, as this one knows it. */
struct plm_mpi_peer {
  struct plm_mpi_notice incoming, newest, outgoing;
  MPI_Request receive, send;
  uint64_t heard_ns;
  char host[PLM_HOST_NAME_SIZE];
};

enum plm_mpi_stage { PLM_MPI_STARTING, PLM_MPI_OPEN, PLM_MPI_CLOSING };

struct plm_mpi {
  struct plm_collective base;
  plm_collective_say say;
  pthread_t carrier;

  /* The carrier's own. */
  MPI_Comm all[PLM_LANE_COUNT], group, rail, notices;
  MPI_Datatype unit;           /* PLM_SLICE_UNIT bytes */
  struct plm_mpi_peer *peers;  /* (ranks) */
  struct plm_transfer *active; /* a list of what MPI is moving */
  uint64_t last_event_ns;      /* when a transfer last began or ended */
  uint64_t notices_sent_ns;
  bool said; /* this rank or another one has said what happened */
  int told;  /* what all others were told of a failure: 1 of itself, 2 that it was said */

  pthread_mutex_t mutex; /* guards everything below */
  pthread_cond_t changed;
  enum plm_mpi_stage stage;
  double timeout_s;
  struct plm_transfer *queue, **queue_end; /* started, but not yet known to MPI */
  uint64_t started;                        /* on the lane of steps, elsewhere too */
  uint64_t elsewhere;                      /* unfinished transfers of other engines */
  uint64_t waiting_since_ns; /* that some transfer there is unfinished; 0 if none is */
  const char *phase;
  uint64_t step;
  bool patient;
  int32_t speaker; /* after the first failure; else -1 */
  bool failed;     /* after it, once the carrier makes no more MPI calls */
  struct plm_error error;
};

/* ---- mpi_world.c: on the carrier ------------------------------------------------------------- */
/* Turns the code of an MPI call into "the ranks cannot WHAT: MPI's text". MPI_SUCCESS is PLM_OK. */
plm_status plm_mpi_check(int code, const char *what, struct plm_error *error);
/* Initialises MPI and fills place, peers and the communicators. */
plm_status plm_mpi_world_open(struct plm_mpi *mpi, struct plm_error *error);
/* Finalises MPI, unless not all ranks come here within a few seconds: then MPI could wait for ever.
 */
void plm_mpi_world_close(struct plm_mpi *mpi);

/* ---- mpi_carrier.c --------------------------------------------------------------------------- */
/* Makes all MPI calls from beginning to end. context: the engine. */
void *plm_mpi_carrier(void *context);

/* ---- mpi_watch.c: on the carrier --------------------------------------------------------------
 */
void plm_mpi_watch_begin(struct plm_mpi *mpi);
/* Receives and sends notices, and fails the engine if a rank failed, is silent or is late. */
void plm_mpi_watch(struct plm_mpi *mpi, uint64_t now_ns);
void plm_mpi_watch_end(struct plm_mpi *mpi);
/* Says what happened if that is for this rank to do. Then waits until all other ranks know of the
 * failure, and that it was said; if nobody says it within some seconds, this one does. Afterwards
 * every wait fails. Before, none does, because MPI may still read and write the memory of
 * transfers. */
void plm_mpi_farewell(struct plm_mpi *mpi);

/* ---- mpi_watch.c: on any thread -------------------------------------------------------------- */
/* Remembers the first failure. The carrier then tells the others. */
void plm_mpi_set_failing(struct plm_mpi *mpi, uint32_t speaker, const struct plm_error *error);
/* The rank that says what happened; -1 if nothing has failed. */
int32_t plm_mpi_speaker(struct plm_mpi *mpi);

#endif
