/* What the ranks tell each other each second. From it follows who failed, who is silent and who
 * keeps the others waiting. */
#include <stdio.h>
#include <time.h>

#include "common/base/clock.h"
#include "kernels/mpi/mpi_engine.h"

enum {
  SILENCE_S = 30, /* at most; less if the timeout is shorter */
  QUIET_S = 2,    /* notices come each second */
  FAREWELL_S = 2, /* for the others to learn of a failure */
  SAY_S = 20,     /* for another rank to say what happened */
};
static const uint64_t period_ns = 1000000000;

static bool is_other(const struct plm_mpi *mpi, uint32_t rank)
{
  return rank != mpi->base.place.rank;
}

static void listen(struct plm_mpi *mpi, uint32_t rank)
{
  struct plm_mpi_peer *peer = &mpi->peers[rank];
  MPI_Irecv(&peer->incoming, sizeof peer->incoming, MPI_BYTE, (int)rank, 0, mpi->notices,
            &peer->receive);
}

void plm_mpi_watch_begin(struct plm_mpi *mpi)
{
  const uint64_t now = plm_clock_ns();
  for (uint32_t r = 0; r < mpi->base.place.ranks; r++) {
    mpi->peers[r].receive = mpi->peers[r].send = MPI_REQUEST_NULL;
    mpi->peers[r].heard_ns = now;
    mpi->peers[r].newest.speaker = -1;
    if (is_other(mpi, r)) listen(mpi, r);
  }
}

void plm_mpi_watch_end(struct plm_mpi *mpi)
{
  for (uint32_t r = 0; r < mpi->base.place.ranks; r++) {
    struct plm_mpi_peer *peer = &mpi->peers[r];
    MPI_Wait(&peer->send, MPI_STATUS_IGNORE);
    if (peer->receive == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&peer->receive);
    MPI_Wait(&peer->receive, MPI_STATUS_IGNORE);
  }
}

void plm_mpi_set_failing(struct plm_mpi *mpi, uint32_t speaker, const struct plm_error *error)
{
  pthread_mutex_lock(&mpi->mutex);
  if (mpi->speaker < 0) {
    mpi->speaker = (int32_t)speaker;
    mpi->error = *error;
  }
  pthread_cond_broadcast(&mpi->changed);
  pthread_mutex_unlock(&mpi->mutex);
}

int32_t plm_mpi_speaker(struct plm_mpi *mpi)
{
  pthread_mutex_lock(&mpi->mutex);
  const int32_t rank = mpi->speaker;
  pthread_mutex_unlock(&mpi->mutex);
  return rank;
}

static double timeout_of(struct plm_mpi *mpi)
{
  pthread_mutex_lock(&mpi->mutex);
  const double seconds = mpi->timeout_s;
  pthread_mutex_unlock(&mpi->mutex);
  return seconds;
}

/* A rank of another build may have sent anything: its texts must end, and its numbers be ranks. */
static void make_safe(const struct plm_mpi *mpi, struct plm_mpi_notice *notice)
{
  struct plm_error *error = &notice->error;
  notice->phase[sizeof notice->phase - 1] = '\0';
  error->what[sizeof error->what - 1] = '\0';
  error->where[sizeof error->where - 1] = '\0';
  error->hint[sizeof error->hint - 1] = '\0';
  if (notice->speaker < 0) notice->speaker = -1;
  if (notice->speaker >= (int32_t)mpi->base.place.ranks) notice->speaker = 0;
}

static void hear(struct plm_mpi *mpi, uint32_t rank, uint64_t now_ns)
{
  struct plm_mpi_peer *peer = &mpi->peers[rank];
  int done = 0;
  while (peer->receive != MPI_REQUEST_NULL && /* it is, if MPI cannot receive any more */
         MPI_Test(&peer->receive, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0) {
    peer->newest = peer->incoming;
    make_safe(mpi, &peer->newest);
    peer->heard_ns = now_ns;
    mpi->said = mpi->said || peer->newest.said != 0;
    if (peer->newest.speaker >= 0)
      plm_mpi_set_failing(mpi, (uint32_t)peer->newest.speaker, &peer->newest.error);
    listen(mpi, rank);
  }
}

static struct plm_mpi_notice mpi_watch_compose(struct plm_mpi *mpi)
{
  struct plm_mpi_notice notice = {.speaker = -1, .said = mpi->said};
  pthread_mutex_lock(&mpi->mutex);
  notice.started = mpi->started;
  notice.step = mpi->step;
  notice.patient = mpi->patient;
  notice.speaker = mpi->speaker;
  snprintf(notice.phase, sizeof notice.phase, "%s", mpi->phase);
  if (mpi->speaker >= 0) notice.error = mpi->error;
  pthread_mutex_unlock(&mpi->mutex);
  return notice;
}

/* What there is to tell of a failure (plm_mpi.told). */
static int news_of(struct plm_mpi *mpi)
{
  return plm_mpi_speaker(mpi) < 0 ? 0 : mpi->said ? 2 : 1;
}

/* Each second, and at once after a failure and when it was said. A peer that has not taken the last
 * notice gets no further one. */
static void mpi_watch_tell(struct plm_mpi *mpi, uint64_t now_ns)
{
  const int news = news_of(mpi);
  const bool due = mpi->notices_sent_ns == 0 || now_ns - mpi->notices_sent_ns >= period_ns;
  bool all = true;
  if (!due && news <= mpi->told) return;
  const struct plm_mpi_notice notice = mpi_watch_compose(mpi);
  mpi->notices_sent_ns = now_ns;
  for (uint32_t r = 0; r < mpi->base.place.ranks; r++) {
    struct plm_mpi_peer *peer = &mpi->peers[r];
    int done = 0;
    if (!is_other(mpi, r)) continue;
    MPI_Test(&peer->send, &done, MPI_STATUS_IGNORE);
    if (done == 0) {
      all = false;
      continue;
    }
    peer->outgoing = notice;
    MPI_Isend(&peer->outgoing, sizeof peer->outgoing, MPI_BYTE, (int)r, 0, mpi->notices,
              &peer->send);
  }
  if (all) mpi->told = news;
}

static double seconds_between(uint64_t from_ns, uint64_t to_ns)
{
  return to_ns > from_ns ? 1e-9 * (double)(to_ns - from_ns) : 0;
}

/* Who says what happened if this rank is silent or late. */
static uint32_t lowest_but(uint32_t rank)
{
  return rank == 0 ? 1 : 0;
}

static void find_silent(struct plm_mpi *mpi, uint64_t now_ns)
{
  const double timeout = timeout_of(mpi), limit = timeout < SILENCE_S ? timeout : SILENCE_S;
  for (uint32_t r = 0; r < mpi->base.place.ranks; r++) {
    const struct plm_mpi_peer *peer = &mpi->peers[r];
    const double silent = seconds_between(peer->heard_ns, now_ns);
    struct plm_error error = {0};
    if (!is_other(mpi, r) || silent <= limit) continue;
    plm_error_set(
        &error, PLM_FAILURE, "rank %u on %s has been silent for %.0f s; it was in step %llu (%s)",
        r, peer->host, silent, (unsigned long long)peer->newest.step + 1, peer->newest.phase);
    plm_error_hint(&error, "the process is stopped, or its host or the network is lost; the run "
                           "resumes from its newest checkpoint");
    plm_mpi_set_failing(mpi, lowest_but(r), &error);
    return;
  }
}

/* The rank that the others wait for has started the fewest transfers. */
static void find_late(struct plm_mpi *mpi, uint64_t now_ns)
{
  const double timeout = timeout_of(mpi);
  pthread_mutex_lock(&mpi->mutex);
  const double waited =
      mpi->waiting_since_ns == 0 ? 0 : seconds_between(mpi->waiting_since_ns, now_ns);
  uint64_t fewest = mpi->started;
  pthread_mutex_unlock(&mpi->mutex);
  if (waited <= timeout) return;
  uint32_t late = mpi->base.place.rank;
  for (uint32_t r = 0; r < mpi->base.place.ranks; r++)
    if (is_other(mpi, r) && mpi->peers[r].newest.started < fewest) {
      late = r;
      fewest = mpi->peers[r].newest.started;
    }
  const bool none = late == mpi->base.place.rank;
  const struct plm_mpi_peer *peer = &mpi->peers[late];
  struct plm_error error = {0};
  /* If it also says nothing, find_silent will report that, a little later: the others may have
   * waited before its last notice. */
  if (!none && (peer->newest.patient != 0 || seconds_between(peer->heard_ns, now_ns) > QUIET_S))
    return;
  if (none)
    plm_error_set(&error, PLM_FAILURE, "an exchange between the ranks did not end within %.0f s",
                  waited);
  else
    plm_error_set(&error, PLM_FAILURE,
                  "rank %u on %s keeps the others waiting for %.0f s; it is in step %llu (%s)",
                  late, peer->host, waited, (unsigned long long)peer->newest.step + 1,
                  peer->newest.phase);
  plm_error_hint(&error, "trainer.rank_timeout_s is %g; the run resumes from its newest checkpoint",
                 timeout);
  /* If no rank is behind, all of them find that out, and rank 0 says it. */
  plm_mpi_set_failing(mpi, none ? 0 : lowest_but(late), &error);
}

void plm_mpi_watch(struct plm_mpi *mpi, uint64_t now_ns)
{
  for (uint32_t r = 0; r < mpi->base.place.ranks; r++)
    if (is_other(mpi, r)) hear(mpi, r, now_ns);
  find_silent(mpi, now_ns); /* the first failure counts */
  find_late(mpi, now_ns);
  mpi_watch_tell(mpi, now_ns);
}

static bool all_know(const struct plm_mpi *mpi)
{
  for (uint32_t r = 0; r < mpi->base.place.ranks; r++)
    if (is_other(mpi, r) && mpi->peers[r].newest.speaker < 0) return false;
  return true;
}

static void mpi_watch_say(struct plm_mpi *mpi)
{
  if (!mpi->said) mpi->say(&mpi->error); /* which no longer changes */
  mpi->said = true;
}

void plm_mpi_farewell(struct plm_mpi *mpi)
{
  const uint64_t begun_ns = plm_clock_ns();
  const struct timespec pause = {.tv_nsec = 1000000};
  double waited;
  bool wait;
  if (plm_mpi_speaker(mpi) == (int32_t)mpi->base.place.rank) mpi_watch_say(mpi);
  do {
    plm_mpi_watch(mpi, plm_clock_ns());
    waited = seconds_between(begun_ns, plm_clock_ns());
    /* the last notice waits for the one before it */
    const bool all_told = all_know(mpi) && (!mpi->said || mpi->told == 2);
    wait = (!all_told && waited < FAREWELL_S) || (!mpi->said && waited < SAY_S);
    if (wait) (void)nanosleep(&pause, NULL);
  } while (wait);
  mpi_watch_say(mpi);
  pthread_mutex_lock(&mpi->mutex);
  mpi->failed = true;
  pthread_cond_broadcast(&mpi->changed);
  pthread_mutex_unlock(&mpi->mutex);
}
