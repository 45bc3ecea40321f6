/* Makes random operands on a GPU and measures operators there; see device_bench.h. */
#include "tests/support/bench/device_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "common/base/numbers/philox.h"
#include "tests/support/harness/must.h"

enum { BLOCK = 1 << 21, MOST_ROUNDS = 64 };
static const double ROUND_S = 0.02; /* much longer than a wait for the device */

void *device_bench_buffer(struct plm_ops *ops, size_t bytes)
{
  void *buffer;
  struct plm_error error = {0};
  must_work(ops->allocate(ops, bytes, &buffer, &error), &error);
  return buffer;
}

void device_bench_wait(struct plm_ops *ops)
{
  struct plm_error error = {0};
  must_work(ops->synchronize(ops, &error), &error);
}

static void put(char *at, float value, size_t bytes)
{
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint16_t rounded = (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  if (bytes == 2)
    memcpy(at, &rounded, sizeof rounded);
  else
    memcpy(at, &value, sizeof value);
}

void *device_bench_random(struct plm_ops *ops, size_t count, size_t bytes, uint64_t seed)
{
  const size_t drawn = count < BLOCK ? (count + 1) & ~(size_t)1 : BLOCK;
  char *host = must(malloc(drawn * bytes));
  char *buffer = device_bench_buffer(ops, count * bytes);
  for (size_t i = 0; i < drawn; i += 2) { /* the Box-Muller transform */
    const struct plm_philox_words words = plm_philox(seed, (uint32_t)i, 0, 97);
    const double r = sqrt(-2 * log(plm_philox_unit(words.w[0]) + 0x1p-25));
    const double turn = 6.283185307179586 * plm_philox_unit(words.w[1]);
    put(host + i * bytes, (float)(r * cos(turn)), bytes);
    put(host + (i + 1) * bytes, (float)(r * sin(turn)), bytes);
  }
  ops->upload(ops, buffer, host, (count < drawn ? count : drawn) * bytes);
  for (size_t done = drawn; done < count;) { /* fills the rest with copies of the beginning */
    const size_t more = count - done < done ? count - done : done;
    ops->copy(ops, buffer + done * bytes, buffer, more * bytes);
    done += more;
  }
  device_bench_wait(ops);
  free(host);
  return buffer;
}

static double round_of(struct plm_ops *ops, void (*call)(void *context), void *context,
                       unsigned calls)
{
  const uint64_t began = plm_clock_ns();
  for (unsigned i = 0; i < calls; i++) call(context);
  device_bench_wait(ops);
  return 1e-9 * (double)(plm_clock_ns() - began) / calls;
}

static int by_size(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

struct device_bench_time device_bench_measure(struct plm_ops *ops, void (*call)(void *context),
                                              void *context, double seconds)
{
  double took[MOST_ROUNDS];
  struct device_bench_time time = {0};
  const uint64_t began = plm_clock_ns();
  if (getenv("PLM_TEST_ONCE") != NULL) { /* a rehearsal, whose figures mean nothing */
    const double once = round_of(ops, call, context, 1);
    return (struct device_bench_time){
        .rounds = 1, .calls = 1, .median_s = once, .least_s = once, .most_s = once};
  }
  (void)round_of(ops, call, context, 1);
  const double once = round_of(ops, call, context, 2);
  time.calls = once >= ROUND_S ? 1 : 1 + (unsigned)(ROUND_S / once);
  while (time.rounds < MOST_ROUNDS &&
         (time.rounds < 3 || 1e-9 * (double)(plm_clock_ns() - began) < seconds))
    took[time.rounds++] = round_of(ops, call, context, time.calls);
  qsort(took, time.rounds, sizeof *took, by_size);
  time.median_s = took[time.rounds / 2];
  time.least_s = took[0];
  time.most_s = took[time.rounds - 1];
  return time;
}
