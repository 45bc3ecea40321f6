/* libplm_mpi.so: what other threads than the carrier call. */
#include <stdlib.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/process/thread.h"
#include "kernels/mpi/mpi_engine.h"

enum { DEFAULT_TIMEOUT_S = 300, GRACE_S = 2 };

static struct plm_mpi *mpi_of(struct plm_collective *collective)
{
  return (struct plm_mpi *)collective;
}

static void mpi_library_start(struct plm_collective *collective, struct plm_transfer *transfer)
{
  struct plm_mpi *mpi = mpi_of(collective);
  transfer->next = NULL;
  transfer->moved = 0;
  transfer->done = false;
  pthread_mutex_lock(&mpi->mutex);
  *mpi->queue_end = transfer;
  mpi->queue_end = &transfer->next;
  mpi->started += transfer->lane == PLM_LANE_STEP;
  pthread_cond_broadcast(&mpi->changed);
  pthread_mutex_unlock(&mpi->mutex);
}

static plm_status mpi_library_wait(struct plm_collective *collective, struct plm_transfer *transfer,
                                   struct plm_error *error)
{
  struct plm_mpi *mpi = mpi_of(collective);
  plm_status status = PLM_OK;
  pthread_mutex_lock(&mpi->mutex);
  while (!transfer->done && !mpi->failed) pthread_cond_wait(&mpi->changed, &mpi->mutex);
  if (!transfer->done) {
    status = mpi->error.status;
    if (error != NULL) *error = mpi->error;
  }
  pthread_mutex_unlock(&mpi->mutex);
  return status;
}

static void began_elsewhere(struct plm_collective *collective)
{
  struct plm_mpi *mpi = mpi_of(collective);
  pthread_mutex_lock(&mpi->mutex);
  mpi->started++;
  mpi->elsewhere++;
  pthread_mutex_unlock(&mpi->mutex);
}

static void ended_elsewhere(struct plm_collective *collective)
{
  struct plm_mpi *mpi = mpi_of(collective);
  pthread_mutex_lock(&mpi->mutex);
  PLM_ASSERT(mpi->elsewhere > 0);
  mpi->elsewhere--;
  mpi->waiting_since_ns = 0; /* something happened; the carrier looks whether anything is left */
  pthread_mutex_unlock(&mpi->mutex);
}

static void mpi_library_note(struct plm_collective *collective, const char *phase, uint64_t step,
                             bool patient)
{
  struct plm_mpi *mpi = mpi_of(collective);
  pthread_mutex_lock(&mpi->mutex);
  mpi->phase = phase;
  mpi->step = step;
  mpi->patient = patient;
  pthread_mutex_unlock(&mpi->mutex);
}

static void set_timeout(struct plm_collective *collective, double seconds)
{
  struct plm_mpi *mpi = mpi_of(collective);
  pthread_mutex_lock(&mpi->mutex);
  mpi->timeout_s = seconds;
  pthread_mutex_unlock(&mpi->mutex);
}

static void mpi_library_fail(struct plm_collective *collective, const struct plm_error *error)
{
  struct plm_mpi *mpi = mpi_of(collective);
  plm_mpi_set_failing(mpi, collective->place.rank, error);
  pthread_mutex_lock(&mpi->mutex);
  while (!mpi->failed) pthread_cond_wait(&mpi->changed, &mpi->mutex);
  pthread_mutex_unlock(&mpi->mutex);
}

static int32_t mpi_library_speaker(struct plm_collective *collective)
{
  return plm_mpi_speaker(mpi_of(collective));
}

/* The first rank that exits makes mpirun end the others. What happened was said before
 * (plm_mpi_farewell), but the rank that has said it should be that one, so that mpirun has time to
 * pass it on. */
static void let_the_speaker_exit_first(struct plm_mpi *mpi)
{
  const int32_t rank = plm_mpi_speaker(mpi);
  const struct timespec grace = {.tv_sec = GRACE_S};
  if (rank >= 0 && (uint32_t)rank != mpi->base.place.rank)
    (void)nanosleep(&grace, NULL); /* a signal ends it */
}

static void close_engine(struct plm_collective *collective)
{
  struct plm_mpi *mpi = mpi_of(collective);
  pthread_mutex_lock(&mpi->mutex);
  mpi->stage = PLM_MPI_CLOSING;
  pthread_cond_broadcast(&mpi->changed);
  pthread_mutex_unlock(&mpi->mutex);
  pthread_join(mpi->carrier, NULL);
  let_the_speaker_exit_first(mpi);
  /* After a failure MPI was not finalised, and other threads may still ask; so this memory is kept
   * until the process ends. */
  if (plm_mpi_speaker(mpi) >= 0) return;
  pthread_mutex_destroy(&mpi->mutex);
  pthread_cond_destroy(&mpi->changed);
  free(mpi->peers);
  free(mpi);
}

static struct plm_mpi *new_engine(plm_collective_say say)
{
  struct plm_mpi *mpi = calloc(1, sizeof *mpi);
  if (mpi == NULL) return NULL;
  *mpi = (struct plm_mpi){
      .base = {.name = "mpi",
               .start = mpi_library_start,
               .wait = mpi_library_wait,
               .began_elsewhere = began_elsewhere,
               .ended_elsewhere = ended_elsewhere,
               .note = mpi_library_note,
               .set_timeout = set_timeout,
               .fail = mpi_library_fail,
               .speaker = mpi_library_speaker,
               .close = close_engine},
      .say = say,
      .timeout_s = DEFAULT_TIMEOUT_S,
      .phase = "starting",
      .patient = true, /* rank 0 may verify a large checkpoint */
      .speaker = -1,
  };
  mpi->queue_end = &mpi->queue;
  pthread_mutex_init(&mpi->mutex, NULL);
  plm_condition_init(&mpi->changed);
  return mpi;
}

static plm_status open_engine(plm_collective_say say, struct plm_collective **collective,
                              struct plm_error *error)
{
  struct plm_mpi *mpi = new_engine(say);
  if (mpi == NULL) return plm_error_set(error, PLM_NO_MEMORY, "no memory for the MPI engine");
  const plm_status status = plm_thread_start(&mpi->carrier, "carrier", plm_mpi_carrier, mpi, error);
  if (status != PLM_OK) {
    free(mpi);
    return status;
  }
  pthread_mutex_lock(&mpi->mutex);
  while (mpi->stage == PLM_MPI_STARTING) pthread_cond_wait(&mpi->changed, &mpi->mutex);
  pthread_mutex_unlock(&mpi->mutex);
  if (mpi->speaker >= 0) {
    if (error != NULL) *error = mpi->error;
    const plm_status failed = mpi->error.status;
    close_engine(&mpi->base);
    return failed;
  }
  *collective = &mpi->base;
  return PLM_OK;
}

__attribute__((visibility("default"))) const struct plm_collective_library *
plm_collective_entry(void)
{
  static const struct plm_collective_library library = {
      .struct_bytes = sizeof library,
      .collective_bytes = sizeof(struct plm_collective),
      .version = PLM_VERSION,
      .open = open_engine,
  };
  return &library;
}
