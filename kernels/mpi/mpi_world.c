/* MPI's processes as ranks: their order, their groups and their communicators. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "kernels/mpi/mpi_engine.h"

enum { GOODBYE_S = 5 };

/* The largest power of two that divides the number of ranks on every host. */
static uint32_t size_of_groups(uint32_t on_this_host)
{
  uint32_t bits = on_this_host & -on_this_host, smallest = bits;
  MPI_Allreduce(&bits, &smallest, 1, MPI_UINT32_T, MPI_MIN, MPI_COMM_WORLD);
  return smallest;
}

/* Orders the ranks so that those of one host are neighbours. MPI's rank 0 stays the first one, as
 * hosts are ordered by their lowest rank. */
static void order_ranks(struct plm_mpi *mpi, MPI_Comm *ordered)
{
  struct plm_rank_place *place = &mpi->base.place;
  MPI_Comm host;
  int world, local, on_this_host, lowest, rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &world);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, world, MPI_INFO_NULL, &host);
  MPI_Comm_rank(host, &local);
  MPI_Comm_size(host, &on_this_host);
  lowest = world;
  MPI_Bcast(&lowest, 1, MPI_INT, 0, host);
  MPI_Comm_free(&host);
  MPI_Comm_split(MPI_COMM_WORLD, 0, lowest, ordered); /* equal keys keep MPI's order */
  MPI_Comm_rank(*ordered, &rank);
  MPI_Comm_size(*ordered, &ranks);
  place->rank = (uint32_t)rank;
  place->ranks = (uint32_t)ranks;
  place->local = (uint32_t)local;
  place->on_this_host = (uint32_t)on_this_host;
  place->group_size = size_of_groups((uint32_t)on_this_host);
  const char *given = getenv("PLM_RANK_GROUP"); /* for tests: several groups on one host */
  const uint32_t size = given != NULL ? (uint32_t)strtoul(given, NULL, 10) : 0;
  if (size > 0 && place->group_size % size == 0) place->group_size = size;
}

static plm_status exchange_names(struct plm_mpi *mpi, struct plm_error *error)
{
  struct plm_rank_place *place = &mpi->base.place;
  if (gethostname(place->host, sizeof place->host - 1) != 0)
    snprintf(place->host, sizeof place->host, "unknown");
  char *names = calloc(place->ranks, PLM_HOST_NAME_SIZE);
  mpi->peers = calloc(place->ranks, sizeof *mpi->peers);
  if (names == NULL || mpi->peers == NULL) {
    free(names);
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for %u ranks", place->ranks);
  }
  MPI_Allgather(place->host, PLM_HOST_NAME_SIZE, MPI_BYTE, names, PLM_HOST_NAME_SIZE, MPI_BYTE,
                mpi->notices);
  for (uint32_t r = 0; r < place->ranks; r++)
    memcpy(mpi->peers[r].host, names + (size_t)r * PLM_HOST_NAME_SIZE, PLM_HOST_NAME_SIZE - 1);
  free(names);
  return PLM_OK;
}

plm_status plm_mpi_world_open(struct plm_mpi *mpi, struct plm_error *error)
{
  int provided = 0;
  MPI_Comm ordered;
  if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
    return plm_error_set(error, PLM_FAILURE, "MPI cannot be initialised");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  order_ranks(mpi, &ordered);
  const struct plm_rank_place *place = &mpi->base.place;
  const int rank = (int)place->rank, size = (int)place->group_size;
  for (int lane = 0; lane < PLM_LANE_COUNT; lane++) MPI_Comm_dup(ordered, &mpi->all[lane]);
  MPI_Comm_split(ordered, rank / size, rank, &mpi->group);
  MPI_Comm_split(ordered, rank % size, rank, &mpi->rail);
  mpi->notices = ordered;
  MPI_Type_contiguous(PLM_PIECE_UNIT, MPI_BYTE, &mpi->unit);
  MPI_Type_commit(&mpi->unit);
  return exchange_names(mpi, error);
}

/* Whether all ranks have come here; waits for a few seconds. */
static bool goodbye(struct plm_mpi *mpi)
{
  const uint64_t until = plm_clock_ns() + GOODBYE_S * 1000000000ull;
  const struct timespec pause = {.tv_nsec = 1000000};
  MPI_Request request;
  int done = 0;
  if (MPI_Ibarrier(mpi->notices, &request) != MPI_SUCCESS) return false;
  while (done == 0 && plm_clock_ns() < until) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done == 0) (void)nanosleep(&pause, NULL);
  }
  return done != 0;
}

void plm_mpi_world_close(struct plm_mpi *mpi)
{
  if (!goodbye(mpi)) return;
  plm_mpi_watch_end(mpi);
  MPI_Type_free(&mpi->unit);
  for (int lane = 0; lane < PLM_LANE_COUNT; lane++) MPI_Comm_free(&mpi->all[lane]);
  MPI_Comm_free(&mpi->group);
  MPI_Comm_free(&mpi->rail);
  MPI_Comm_free(&mpi->notices);
  MPI_Finalize();
}
