/* MPI's processes as ranks: their order, their groups and their communicators. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "kernels/mpi/mpi_engine.h"

enum { GOODBYE_S = 5 };

plm_status plm_mpi_check(int code, const char *what, struct plm_error *error)
{
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (code == MPI_SUCCESS) return PLM_OK;
  MPI_Error_string(code, text, &length);
  plm_error_set(error, PLM_FAILURE, "the ranks cannot %s: %.*s", what, length, text);
  return plm_error_hint(error,
                        "Open MPI must be the same, and reach the other ranks, on all hosts");
}

/* The largest power of two that divides the number of ranks on every host. */
static plm_status size_groups(struct plm_rank_place *place, struct plm_error *error)
{
  const uint32_t bits = place->on_this_host & -place->on_this_host;
  const char *given = getenv("PLM_RANK_GROUP"); /* for tests: several groups on one host */
  const uint32_t wanted = given != NULL ? (uint32_t)strtoul(given, NULL, 10) : 0;
  PLM_TRY(plm_mpi_check(
      MPI_Allreduce(&bits, &place->group_size, 1, MPI_UINT32_T, MPI_MIN, MPI_COMM_WORLD),
      "form groups", error));
  if (wanted > 0 && place->group_size % wanted == 0) place->group_size = wanted;
  return PLM_OK;
}

/* Orders the ranks so that those of one host are neighbours. MPI's rank 0 stays the first one, as
 * hosts are ordered by their lowest rank. */
static plm_status order_ranks(struct plm_mpi *mpi, MPI_Comm *ordered, struct plm_error *error)
{
  struct plm_rank_place *place = &mpi->base.place;
  MPI_Comm host;
  int world, local, on_this_host, lowest, rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &world);
  PLM_TRY(plm_mpi_check(
      MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, world, MPI_INFO_NULL, &host),
      "find those of the same host", error));
  MPI_Comm_rank(host, &local);
  MPI_Comm_size(host, &on_this_host);
  lowest = world;
  PLM_TRY(
      plm_mpi_check(MPI_Bcast(&lowest, 1, MPI_INT, 0, host), "find those of the same host", error));
  MPI_Comm_free(&host);
  PLM_TRY(plm_mpi_check(
      MPI_Comm_split(MPI_COMM_WORLD, 0, lowest, ordered), /* equal keys keep MPI's order */
      "be ordered by host", error));
  MPI_Comm_rank(*ordered, &rank);
  MPI_Comm_size(*ordered, &ranks);
  place->rank = (uint32_t)rank;
  place->ranks = (uint32_t)ranks;
  place->local = (uint32_t)local;
  place->on_this_host = (uint32_t)on_this_host;
  return size_groups(place, error);
}

static plm_status open_lanes(struct plm_mpi *mpi, struct plm_error *error)
{
  const struct plm_rank_place *place = &mpi->base.place;
  const int rank = (int)place->rank, size = (int)place->group_size;
  for (int lane = 0; lane < PLM_LANE_COUNT; lane++)
    PLM_TRY(plm_mpi_check(MPI_Comm_dup(mpi->notices, &mpi->all[lane]), "open their lanes", error));
  PLM_TRY(plm_mpi_check(MPI_Comm_split(mpi->notices, rank / size, rank, &mpi->group), "form groups",
                        error));
  PLM_TRY(plm_mpi_check(MPI_Comm_split(mpi->notices, rank % size, rank, &mpi->rail), "form rails",
                        error));
  MPI_Type_contiguous(PLM_SLICE_UNIT, MPI_BYTE, &mpi->unit);
  return plm_mpi_check(MPI_Type_commit(&mpi->unit), "agree on slices", error);
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
  const plm_status status =
      plm_mpi_check(MPI_Allgather(place->host, PLM_HOST_NAME_SIZE, MPI_BYTE, names,
                                  PLM_HOST_NAME_SIZE, MPI_BYTE, mpi->notices),
                    "exchange the names of their hosts", error);
  for (uint32_t r = 0; r < place->ranks && status == PLM_OK; r++)
    memcpy(mpi->peers[r].host, names + (size_t)r * PLM_HOST_NAME_SIZE, PLM_HOST_NAME_SIZE - 1);
  free(names);
  return status;
}

/* Open MPI keeps shared memory in /dev/shm by default, and leaves it there if its processes are
 * killed. This is not an option of mpirun's, because other hosts do not have the folder. */
static void choose_folder(void)
{
  const char *folder = getenv(PLM_GANG_FOLDER);
  if (folder != NULL) setenv("OMPI_MCA_btl_vader_backing_directory", folder, 0);
}

/* Ranks of one host exchange through its memory. Without this, each of them would also listen on
 * all of the host's addresses, and whoever connects there without a word takes a descriptor. */
static void keep_to_this_host(void)
{
  const char *here = getenv("OMPI_COMM_WORLD_LOCAL_SIZE"), *all = getenv("OMPI_COMM_WORLD_SIZE");
  const char *nodes = getenv("SLURM_STEP_NUM_NODES"); /* srun sets only this */
  const bool one_host = here != NULL && all != NULL ? strcmp(here, all) == 0
                                                    : nodes != NULL && strcmp(nodes, "1") == 0;
  if (one_host) setenv("OMPI_MCA_btl", "self,vader", 0);
}

plm_status plm_mpi_world_open(struct plm_mpi *mpi, struct plm_error *error)
{
  int provided;
  choose_folder();
  keep_to_this_host();
  if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
    return plm_error_set(error, PLM_FAILURE, "MPI cannot be initialised");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  PLM_TRY(order_ranks(mpi, &mpi->notices, error));
  PLM_TRY(open_lanes(mpi, error));
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
