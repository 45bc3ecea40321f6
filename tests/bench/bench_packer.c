/* Packer tokens/s: one plm-packer process, from LMDB to a TCP consumer that checks, copies and
 * throws away. Prints a table and the machine; the bar is in performance.md.
 *
 *   bench_packer [CORPUS]      PLM_BENCH_SECONDS=3, PLM_BENCH_THREADS=2
 *
 * Without a corpus it makes one of random sequences with the lengths of proteins. */
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/feed.h"
#include "tests/support/bench_scene.h"
#include "tests/support/packers.h"

enum { BATCH_TOKENS = 1 << 20 };

static double seconds_of(struct timeval t)
{
  return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

static int measure(const char *corpus, uint32_t max_length, double seconds)
{
  struct plm_feed_options options = packers_options();
  struct plm_feed *feed;
  struct plm_error error = {0};
  struct rusage before, after, packer_usage;
  options.plan.max_length = max_length;
  options.plan.alignment = 1;
  options.plan.window_groups = 64;
  options.credit_bytes = 64 << 20;
  if (plm_feed_open(&options, &feed, &error) != PLM_OK) {
    plm_error_print("bench", &error);
    return 1;
  }
  const pid_t pid = packers_start(corpus, plm_feed_bound(feed), NULL, NULL);
  const uint32_t chunks = BATCH_TOKENS / max_length;
  uint64_t tokens = 0, padded = 0;
  int64_t begin = 0, now = plm_clock_ms();
  const int64_t warm_until = now + 1000;
  while (begin == 0 || now - begin < (int64_t)(1e3 * seconds)) {
    struct plm_batch batch;
    if (plm_feed_next(feed, chunks, NULL, &batch, &error) != PLM_OK) {
      plm_error_print("bench", &error);
      return 1;
    }
    for (uint32_t i = 0; begin != 0 && i < batch.document_begin[chunks]; i++)
      tokens += batch.documents[i].tokens;
    padded += begin != 0 ? (uint64_t)chunks * max_length : 0;
    plm_feed_release(feed, &batch);
    now = plm_clock_ms();
    if (begin == 0 && now >= warm_until) {
      begin = now;
      getrusage(RUSAGE_SELF, &before);
    }
  }
  const double took = 1e-3 * (double)(now - begin);
  getrusage(RUSAGE_SELF, &after);
  kill(pid, SIGTERM);
  int status;
  wait4(pid, &status, 0, &packer_usage);
  plm_feed_close(feed);
  const double consumer = seconds_of(after.ru_utime) + seconds_of(after.ru_stime) -
                          seconds_of(before.ru_utime) - seconds_of(before.ru_stime);
  const double packer =
      (seconds_of(packer_usage.ru_utime) + seconds_of(packer_usage.ru_stime)) * took / (took + 1);
  printf("| %10u | %12.0f | %9.3f %% | %14.2f | %16.2f | %12ld |\n", max_length,
         (double)tokens / took / 1e6, 100.0 * (1.0 - (double)tokens / (double)padded),
         packer / took, consumer / took, packer_usage.ru_maxrss / 1024);
  return 0;
}

int main(int argc, char **argv)
{
  plm_log_init("bench_packer", PLM_LOG_ERROR);
  mallopt(M_MMAP_THRESHOLD, 1 << 30); /* messages of a MiB: no new pages for each */
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  const char *corpus = argc > 1 ? argv[1] : bench_corpus();
  const char *text = getenv("PLM_BENCH_SECONDS");
  const double seconds = text != NULL ? strtod(text, NULL) : 3;
  if (corpus == NULL) return 1;
  bench_machine();
  printf("one plm-packer, TCP on loopback\n\n");
  printf("| max_length | Mtokens/s    | padding     | packer's cores | consumer's cores | packer "
         "MiB   |\n"
         "|------------|--------------|-------------|----------------|------------------|----------"
         "----|\n");
  int failed = 0;
  const uint32_t lengths[] = {512, 1024, 2048};
  for (int i = 0; i < 3 && !failed; i++) failed = measure(corpus, lengths[i], seconds);
  printf("\nMtokens/s: millions of real tokens a second; bar 700\n");
  return failed;
}
