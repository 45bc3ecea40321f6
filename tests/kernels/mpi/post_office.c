/* See post_office.h. */
#include "tests/kernels/mpi/post_office.h"

#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kernels/mpi/mpi_engine.h"
#include "tests/support/harness/cmocka_all.h"

enum { MOST = 64 /* requests at once */ };

/* ---- the clock ------------------------------------------------------------------------------- */

static const uint64_t second_ns = 1000000000;
uint64_t post_now_ns;
void (*post_on_pause)(void);

int clock_gettime(clockid_t clock, struct timespec *time)
{
  if (clock != CLOCK_MONOTONIC) return (int)syscall(SYS_clock_gettime, clock, time);
  *time = (struct timespec){(time_t)(post_now_ns / second_ns), (long)(post_now_ns % second_ns)};
  return 0;
}

int nanosleep(const struct timespec *wanted, struct timespec *left)
{
  (void)left;
  post_now_ns += (uint64_t)wanted->tv_sec * second_ns + (uint64_t)wanted->tv_nsec;
  if (post_on_pause != NULL) post_on_pause();
  return 0;
}

/* ---- the post office: the functions of MPI that mpi_watch.c calls -----------------------------
 */

struct ompi_request_t {
  bool used, receives, cancelled, done;
  void *bytes;
  int size, from, to;
  unsigned long number; /* in the order of the calls */
};
struct ompi_predefined_request_t {
  int unused;
};
struct ompi_predefined_datatype_t {
  int unused;
};
struct ompi_predefined_request_t ompi_request_null;
struct ompi_predefined_datatype_t ompi_mpi_byte;

static struct ompi_request_t requests[MOST];
static unsigned long posted;
static char comms[POST_RANKS];
int post_sent_to[POST_RANKS];
bool post_refuses;

MPI_Comm post_comm(uint32_t rank)
{
  return (MPI_Comm)(void *)&comms[rank];
}

static int rank_of(MPI_Comm comm)
{
  for (int r = 0; r < POST_RANKS; r++)
    if (comm == post_comm((uint32_t)r)) return r;
  fail_msg("an unknown communicator");
  return -1;
}

static int post(bool receives, void *bytes, int size, MPI_Datatype type, int peer, int tag,
                MPI_Comm comm, MPI_Request *made)
{
  const int own = rank_of(comm);
  assert_true(type == MPI_BYTE && tag == 0 && peer != own && peer >= 0 && peer < POST_RANKS);
  assert_int_equal(size, sizeof(struct plm_mpi_notice));
  for (int i = 0; i < MOST; i++) {
    if (requests[i].used) continue;
    requests[i] = (struct ompi_request_t){.used = true,
                                          .receives = receives,
                                          .bytes = bytes,
                                          .size = size,
                                          .from = receives ? peer : own,
                                          .to = receives ? own : peer,
                                          .number = ++posted};
    *made = &requests[i];
    return MPI_SUCCESS;
  }
  fail_msg("more requests than %d", MOST);
  return MPI_ERR_OTHER;
}

int MPI_Irecv(void *bytes, int size, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request *made)
{
  if (post_refuses) return MPI_ERR_OTHER;
  return post(true, bytes, size, type, from, tag, comm, made);
}

int MPI_Isend(const void *bytes, int size, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *made)
{
  post_sent_to[to]++;
  return post(false, (void *)(uintptr_t)bytes, size, type, to, tag, comm, made);
}

/* The oldest message for a receiver; NULL if there is none. */
static struct ompi_request_t *letter_for(const struct ompi_request_t *receiver)
{
  struct ompi_request_t *found = NULL;
  for (int i = 0; i < MOST; i++) {
    struct ompi_request_t *letter = &requests[i];
    if (!letter->used || letter->receives || letter->done || letter->from != receiver->from ||
        letter->to != receiver->to)
      continue;
    if (found == NULL || letter->number < found->number) found = letter;
  }
  return found;
}

static void forget(MPI_Request *request)
{
  (*request)->used = false;
  *request = MPI_REQUEST_NULL;
}

int MPI_Test(MPI_Request *request, int *done, MPI_Status *status)
{
  (void)status;
  *done = 1;
  if (*request == MPI_REQUEST_NULL) return MPI_SUCCESS;
  assert_true((*request)->used);
  struct ompi_request_t *letter = (*request)->receives ? letter_for(*request) : NULL;
  if (letter != NULL) {
    memcpy((*request)->bytes, letter->bytes, (size_t)letter->size);
    letter->done = (*request)->done = true;
  }
  *done = (*request)->done;
  if (*done) forget(request);
  return MPI_SUCCESS;
}

int MPI_Cancel(MPI_Request *request)
{
  assert_true(*request != MPI_REQUEST_NULL && (*request)->used);
  (*request)->cancelled = true;
  return MPI_SUCCESS;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
  (void)status;
  if (*request == MPI_REQUEST_NULL) return MPI_SUCCESS;
  if (!(*request)->done && !(*request)->cancelled) fail_msg("it would wait for ever");
  forget(request);
  return MPI_SUCCESS;
}

int post_open_requests(void)
{
  int count = 0;
  for (int i = 0; i < MOST; i++) count += requests[i].used;
  return count;
}

const void *post_bytes(MPI_Request request)
{
  return request->bytes;
}

void post_open(void)
{
  memset(requests, 0, sizeof requests);
  memset(post_sent_to, 0, sizeof post_sent_to);
  post_refuses = false;
  post_on_pause = NULL;
}
