/* The functions of MPI that kernels/mpi/mpi_watch.c calls, for ranks that are all in this process,
 * and a clock that a test sets: clock_gettime and nanosleep of the whole program. A message lies at
 * its sender, in the memory that was given, until its receiver asks for it. What MPI forbids, and a
 * wait that would never end, fails the test. */
#ifndef PLM_TESTS_KERNELS_MPI_POST_OFFICE_H
#define PLM_TESTS_KERNELS_MPI_POST_OFFICE_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

enum { POST_RANKS = 3 };

extern uint64_t post_now_ns;         /* the monotonic clock; each pause advances it */
extern void (*post_on_pause)(void);  /* what else happens during a pause; or NULL */
extern int post_sent_to[POST_RANKS]; /* messages to each rank so far */
extern bool post_refuses;            /* MPI_Irecv fails, and makes no request */

/* Forgets all messages, and what the variables above say except the time. */
void post_open(void);
/* The communicator of all ranks, as this one knows it. */
MPI_Comm post_comm(uint32_t rank);
/* Requests that have not ended. */
int post_open_requests(void);
/* Where the message of a request lies, or will lie. */
const void *post_bytes(MPI_Request request);

#endif
