/* The peer of tests/bench/exchange: Open MPI's own MPI_Reduce_scatter_block with MPI_SUM, measured
 * in the same way. Arguments and output are the same. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static double measure(size_t megabytes, int rounds, int ranks)
{
  const size_t slice = (megabytes << 20) / sizeof(float) / (size_t)ranks / 16 * 16;
  const size_t n = slice * (size_t)ranks;
  float *from = malloc(n * sizeof(float)), *to = malloc(slice * sizeof(float));
  double best = 1e9;
  if (from == NULL || to == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  for (size_t i = 0; i < n; i++) from[i] = (float)(i % 1000);
  for (int round = 0; round < rounds + 1; round++) {
    double seconds, slowest;
    MPI_Barrier(MPI_COMM_WORLD);
    seconds = MPI_Wtime();
    MPI_Reduce_scatter_block(from, to, (int)slice, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    seconds = MPI_Wtime() - seconds;
    MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (round > 0 && slowest < best) best = slowest;
  }
  free(from);
  free(to);
  return best;
}

int main(int argc, char **argv)
{
  int rank, ranks;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int i = 2; i < argc; i++) {
    const size_t megabytes = strtoul(argv[i], NULL, 10);
    const double best = measure(megabytes, atoi(argv[1]), ranks);
    if (rank == 0) printf("%zu %.3f\n", megabytes, 1e3 * best);
  }
  MPI_Finalize();
  return 0;
}
