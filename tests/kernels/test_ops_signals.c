/* A stop signal in the middle of a product must change neither its result nor the memory around it.
 * Child processes compute products until the signal arrives. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/ops/device.h"
#include "common/ops/ops.h"
#include "common/run/stop.h"
#include "tests/support/harness/cmocka_all.h"

enum { N = 256, I = 64, O = 192, CHILDREN = 40 };

static void fill(float *values, size_t count)
{
  for (size_t i = 0; i < count; i++) values[i] = (float)((i * 2654435761u >> 7) % 2001) / 1000 - 1;
}

/* Returns 0 if the signal ended the loop and all products had the same bits. */
static int compute_until_stopped(int ready)
{
  struct plm_error error = {0};
  struct plm_ops *ops;
  if (plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, &error) != PLM_OK) return 2;
  float *x = malloc(sizeof *x * N * I), *w = malloc(sizeof *w * O * I);
  float *y = malloc(sizeof *y * N * O), *dw = malloc(sizeof *dw * O * I);
  float *first = malloc(sizeof *y * N * O);
  fill(x, N * I);
  fill(w, O * I);
  plm_stop_signals_install();
  ops->linear_forward(ops, first, x, w, NULL, N, I, O);
  if (write(ready, "\n", 1) != 1) return 3;
  do {
    ops->linear_forward(ops, y, x, w, NULL, N, I, O);
    if (memcmp(y, first, sizeof *y * N * O) != 0) return 4;
    memset(dw, 0, sizeof *dw * O * I);
    ops->linear_backward_weight(ops, dw, y, x, N, I, O);
  } while (plm_stop_requested == 0);
  ops->close(ops);
  free(x);
  free(w);
  free(y);
  free(dw);
  free(first);
  return 0;
}

static void a_stop_signal_leaves_products_alone(void **state)
{
  (void)state;
  for (int i = 0; i < CHILDREN; i++) {
    int ends[2], status;
    char line;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) _exit(compute_until_stopped(ends[1]));
    close(ends[1]);
    assert_int_equal(read(ends[0], &line, 1), 1);
    close(ends[0]);
    const struct timespec pause = {.tv_nsec = 5000000L + 137000L * i};
    nanosleep(&pause, NULL);
    kill(child, SIGTERM);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_stop_signal_leaves_products_alone)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
