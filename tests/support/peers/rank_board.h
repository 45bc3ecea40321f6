/* How ranks that are threads of one process move bytes: what one of them sends lies on a board
 * until the others take it. Only one board exists, of at most RANK_BOARD_RANKS ranks. */
#ifndef PLM_TESTS_SUPPORT_PEERS_RANK_BOARD_H
#define PLM_TESTS_SUPPORT_PEERS_RANK_BOARD_H

#include "common/collective/collective.h"

enum { RANK_BOARD_RANKS = 4 };

/* Starts a transfer: PLM_ALL_TO_ALL or PLM_ALL_GATHER on the lane of steps. The memory that it
 * fills is spoilt, because it may not be used meanwhile. */
void rank_board_post(const struct plm_rank_place *place, struct plm_transfer *transfer);
/* Waits until all ranks of the scope have started it, and takes what they sent. What this rank sent
 * must still be there. */
void rank_board_take(const struct plm_rank_place *place, struct plm_transfer *transfer);
/* The same as functions of a collective. */
void rank_board_start(struct plm_collective *collective, struct plm_transfer *transfer);
plm_status rank_board_wait(struct plm_collective *collective, struct plm_transfer *transfer,
                           struct plm_error *error);
/* Bytes that a rank has sent to others in a scope since the board was cleared. */
uint64_t rank_board_sent(uint32_t rank, enum plm_scope scope);
void rank_board_clear(void);

#endif
