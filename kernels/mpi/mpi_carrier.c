/* The thread that makes all MPI calls (MPI_THREAD_FUNNELED). MPI moves bytes only while one of its
 * functions runs, so the carrier asks again and again: without a pause right after something
 * happened, and ever less often when nothing does. */
#include <sched.h>
#include <time.h>

#include "common/base/clock.h"
#include "kernels/mpi/mpi_engine.h"

enum {
  PART_BYTES = 64 << 20, /* of one message */
  BUSY_NS = 1000000,     /* ask without a pause for this long after an event */
  EAGER_NS = 100000000,  /* then with short pauses for this long */
  SHORT_PAUSE_NS = 20000,
  LONG_PAUSE_NS = 1000000,
  IDLE_MS = 50, /* between two looks at the notices if no transfer is active */
};

static MPI_Comm comm_of(const struct plm_mpi *mpi, const struct plm_transfer *transfer)
{
  if (transfer->scope == PLM_SCOPE_GROUP) return mpi->group;
  return transfer->scope == PLM_SCOPE_RAIL ? mpi->rail : mpi->all[transfer->lane];
}

/* Passes the next part to MPI: the whole transfer, except that SEND, RECEIVE and BROADCAST of much
 * memory are cut. */
static int begin_part(struct plm_mpi *mpi, struct plm_transfer *transfer)
{
  const MPI_Comm comm = comm_of(mpi, transfer);
  PLM_ASSERT(transfer->moved <= transfer->bytes && !transfer->done);
  const size_t left = transfer->bytes - transfer->moved;
  const int part = (int)(left < PART_BYTES ? left : PART_BYTES);
  char *to = transfer->to != NULL ? (char *)transfer->to + transfer->moved : NULL;
  const char *from = transfer->from != NULL ? (const char *)transfer->from + transfer->moved : NULL;
  MPI_Request *request = (MPI_Request *)&transfer->request;
  const int peer = (int)transfer->peer, units = (int)(transfer->bytes / PLM_SLICE_UNIT);
  const bool whole_units = transfer->bytes % PLM_SLICE_UNIT == 0;
  _Static_assert(sizeof(MPI_Request) <= sizeof transfer->request, "a request fits");
  switch (transfer->kind) {
  case PLM_ALL_TO_ALL:
    PLM_ASSERT(whole_units);
    transfer->moved = transfer->bytes;
    return MPI_Ialltoall(from, units, mpi->unit, to, units, mpi->unit, comm, request);
  case PLM_ALL_GATHER:
    transfer->moved = transfer->bytes;
    if (whole_units)
      return MPI_Iallgather(from, units, mpi->unit, to, units, mpi->unit, comm, request);
    PLM_ASSERT(left <= PART_BYTES);
    return MPI_Iallgather(from, part, MPI_BYTE, to, part, MPI_BYTE, comm, request);
  case PLM_BROADCAST:
    transfer->moved += (size_t)part;
    return MPI_Ibcast(to, part, MPI_BYTE, 0, comm, request);
  case PLM_SEND:
    transfer->moved += (size_t)part;
    return MPI_Isend(from, part, MPI_BYTE, peer, 0, comm, request);
  case PLM_RECEIVE:
    transfer->moved += (size_t)part;
    return MPI_Irecv(to, part, MPI_BYTE, peer, 0, comm, request);
  }
  return MPI_ERR_OTHER;
}

/* Fails the engine if an MPI call has not succeeded. */
static bool succeeded(struct plm_mpi *mpi, int code)
{
  struct plm_error error = {0};
  if (plm_mpi_check(code, "exchange data", &error) == PLM_OK) return true;
  plm_mpi_set_failing(mpi, mpi->base.place.rank, &error);
  return false;
}

static void mpi_carrier_begin(struct plm_mpi *mpi, struct plm_transfer *transfer)
{
  transfer->next = mpi->active;
  mpi->active = transfer;
  (void)succeeded(mpi, begin_part(mpi, transfer));
}

/* Whether the transfer has ended. */
static bool mpi_carrier_ended(struct plm_mpi *mpi, struct plm_transfer *transfer)
{
  int done = 0;
  const int code = MPI_Test((MPI_Request *)&transfer->request, &done, MPI_STATUS_IGNORE);
  if (!succeeded(mpi, code) || done == 0) return false;
  mpi->last_event_ns = plm_clock_ns();
  if (transfer->moved == transfer->bytes) return true;
  (void)succeeded(mpi, begin_part(mpi, transfer));
  return false;
}

static void mpi_carrier_finish(struct plm_mpi *mpi, struct plm_transfer *transfer)
{
  PLM_ASSERT(transfer->moved == transfer->bytes);
  pthread_mutex_lock(&mpi->mutex);
  transfer->ended_ns = mpi->last_event_ns;
  transfer->done = true;
  if (transfer->lane == PLM_LANE_STEP) mpi->waiting_since_ns = 0;
  pthread_cond_broadcast(&mpi->changed);
  pthread_mutex_unlock(&mpi->mutex);
}

static void test_active(struct plm_mpi *mpi)
{
  bool waiting = false;
  for (struct plm_transfer **link = &mpi->active; *link != NULL;) {
    struct plm_transfer *transfer = *link;
    if (mpi_carrier_ended(mpi, transfer)) {
      *link = transfer->next;
      mpi_carrier_finish(mpi, transfer);
      continue;
    }
    if (transfer->lane == PLM_LANE_STEP) waiting = true;
    link = &transfer->next;
  }
  pthread_mutex_lock(&mpi->mutex);
  if (mpi->elsewhere > 0) waiting = true;
  if (waiting && mpi->waiting_since_ns == 0) mpi->waiting_since_ns = plm_clock_ns();
  pthread_mutex_unlock(&mpi->mutex);
}

/* Takes what other threads have started. Waits a little if there is nothing to do. */
static struct plm_transfer *pop_queue(struct plm_mpi *mpi, bool *closing)
{
  pthread_mutex_lock(&mpi->mutex);
  if (mpi->queue == NULL && mpi->active == NULL && mpi->stage != PLM_MPI_CLOSING) {
    const struct timespec until = plm_clock_after_ms(IDLE_MS);
    pthread_cond_timedwait(&mpi->changed, &mpi->mutex, &until);
  }
  struct plm_transfer *queue = mpi->queue;
  mpi->queue = NULL;
  mpi->queue_end = &mpi->queue;
  *closing = mpi->stage == PLM_MPI_CLOSING;
  pthread_mutex_unlock(&mpi->mutex);
  return queue;
}

static void pause_a_little(const struct plm_mpi *mpi, uint64_t now)
{
  const uint64_t quiet = now - mpi->last_event_ns;
  if (mpi->active == NULL) return; /* pop_queue waits */
  if (quiet < BUSY_NS) {
    sched_yield();
    return;
  }
  const struct timespec pause = {.tv_nsec = quiet < EAGER_NS ? SHORT_PAUSE_NS : LONG_PAUSE_NS};
  (void)nanosleep(&pause, NULL);
}

static void mpi_carrier_carry(struct plm_mpi *mpi)
{
  bool closing = false;
  while (plm_mpi_speaker(mpi) < 0 && (!closing || mpi->active != NULL)) {
    for (struct plm_transfer *next, *transfer = pop_queue(mpi, &closing); transfer != NULL;
         transfer = next) {
      next = transfer->next;
      mpi->last_event_ns = plm_clock_ns();
      mpi_carrier_begin(mpi, transfer);
    }
    test_active(mpi);
    const uint64_t now = plm_clock_ns();
    plm_mpi_watch(mpi, now);
    pause_a_little(mpi, now);
  }
}

static void set_stage(struct plm_mpi *mpi, enum plm_mpi_stage stage)
{
  pthread_mutex_lock(&mpi->mutex);
  mpi->stage = stage;
  pthread_cond_broadcast(&mpi->changed);
  pthread_mutex_unlock(&mpi->mutex);
}

void *plm_mpi_carrier(void *context)
{
  struct plm_mpi *mpi = context;
  struct plm_error error = {0};
  const plm_status status = plm_mpi_world_open(mpi, &error);
  if (status == PLM_OK)
    plm_mpi_watch_begin(mpi);
  else
    plm_mpi_set_failing(mpi, mpi->base.place.rank, &error);
  set_stage(mpi, PLM_MPI_OPEN);
  if (status != PLM_OK) return NULL;
  mpi_carrier_carry(mpi);
  if (plm_mpi_speaker(mpi) >= 0)
    plm_mpi_farewell(mpi);
  else
    plm_mpi_world_close(mpi);
  return NULL;
}
