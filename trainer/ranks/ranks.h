/* This process as one of the ranks of a training run. A process that trains without others is a
 * group of one. Only rank 0 opens the run folder and the feed. */
#ifndef PLM_TRAINER_RANKS_RANKS_H
#define PLM_TRAINER_RANKS_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/collective/collective.h"
#include "common/collective/transport.h"

enum { PLM_RANK_ROOM = 32 << 20 }; /* tensors travel through the host in slices of this size */

struct plm_ranks {
  struct plm_collective *collective;
  plm_collective_say say; /* prints an error of this program */
  uint32_t rank, ranks;
  bool single; /* this process was not started as a rank: it has no transport and tells nobody */
  struct plm_ops *ops; /* of this rank; NULL before they are opened */
  struct plm_transport
      *transport; /* of their memory, likewise; NULL if this rank is the only one */
  /* PLM_RANK_ROOM bytes of the host, if the operators' memory is a device's; else NULL */
  void *room;
  bool agreed; /* all ranks end with the same error, and know it */
  bool alike;  /* every rank has found that error itself */
  bool silent; /* another rank says what happened, or this one has said it */
};

static inline bool plm_ranks_first(const struct plm_ranks *ranks)
{
  return ranks->rank == 0;
}

/* How the ranks decide that all of them take the same way: each says its state, and the most urgent
 * one counts. */
enum plm_rank_vote { PLM_RANK_GO, PLM_RANK_WAIT, PLM_RANK_STOP, PLM_RANK_ERROR };

/* One round. mine: a vote; status: of PLM_RANK_ERROR. PLM_OK: *decision is GO, WAIT or STOP, for
 * every rank. Else a rank has an error; on that rank, `error` stays as it is, and its status is
 * returned everywhere. */
plm_status plm_ranks_decide(struct plm_ranks *ranks, enum plm_rank_vote mine, plm_status status,
                            enum plm_rank_vote *decision, struct plm_error *error);

/* A group of one. plm_ranks_close changes nothing about it. */
struct plm_ranks plm_ranks_single(void);
/* Meets the other ranks. say: plm_collective_open. */
plm_status plm_ranks_open(struct plm_ranks *ranks, plm_collective_say say, struct plm_error *error);

/* Says, if it is this rank that failed, what happened and on which host, and tells the other ranks
 * unless all of them have agreed. Called before anything is closed: closing may wait for threads
 * that wait for other ranks. Clears error->what, so that it is not printed again. A rank
 * that is the only one leaves all this to its caller. */
void plm_ranks_fail(struct plm_ranks *ranks, struct plm_error *error);

/* Ends the exchange, of which nothing is used any more; status is how this rank ends. All ranks
 * leave together, because mpirun ends those that are left after an error: none leaves before
 * everything is said. Returns how the process ends. */
plm_status plm_ranks_close(struct plm_ranks *ranks, plm_status status, struct plm_error *error);

/* Marks an error that every rank finds by itself at the same place; rank 0 says what happened. An
 * error of the exchange itself is none. */
void plm_ranks_agree(struct plm_ranks *ranks);

#endif
