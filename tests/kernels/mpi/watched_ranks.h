/* Three ranks in this process, which kernels/mpi/mpi_watch.c watches. The clock stands still until
 * a test advances it, and messages lie in a post office until their receiver asks for them. */
#ifndef PLM_TESTS_KERNELS_MPI_WATCHED_RANKS_H
#define PLM_TESTS_KERNELS_MPI_WATCHED_RANKS_H

#include "kernels/mpi/mpi_engine.h"
#include "tests/kernels/mpi/post_office.h"

#define WATCHED_SECOND_NS UINT64_C(1000000000)

extern struct plm_mpi watched_world[POST_RANKS];
extern struct plm_mpi_peer watched_peers[POST_RANKS][POST_RANKS]; /* of each rank */
extern int watched_said[POST_RANKS]; /* how often each said what happened */
extern struct plm_error watched_last_said;

/* The setup of a test: all ranks begin, and nothing was sent. */
int watched_begin(void **state);
void watched_pass(double seconds);
void watched_watch(int rank);
void watched_watch_all(void);
/* So many messages were sent to each rank. */
void watched_sent(int to_0, int to_1, int to_2);
/* The rank has heard this failure of the speaker; -1: of none. */
void watched_failed(int rank, int speaker, const char *what);

#endif
