/* Measures the tokens a second that one plm-packer process delivers from LMDB to a TCP consumer,
 * which checks, copies and discards them. Prints the machine and a table.
 *
 *   bench_packer [CORPUS]      PLM_BENCH_SECONDS=3
 *   bench_packer --rounds CORPUS MAX_LENGTH
 *
 * Without CORPUS, it makes a corpus of random sequences with the lengths of proteins. With
 * --rounds, it measures on demand (tests/support/bench_rounds.h), for as many seconds as the count
 * of the request says. */
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/feed/feed.h"
#include "tests/support/bench_rounds.h"
#include "tests/support/bench_scene.h"
#include "tests/support/packers.h"

enum { BATCH_TOKENS = 1 << 20 };

static double seconds_of(struct timeval t)
{
  return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

struct measured {
  double seconds;
  uint64_t tokens, padded;
  double consumer_cores;
};

/* Does not count the batches of the first warm_s seconds, which may have been made in advance. */
static plm_status consume(struct plm_feed *feed, uint32_t max_length, double warm_s, double seconds,
                          struct measured *measured, struct plm_error *error)
{
  const uint32_t chunks = BATCH_TOKENS / max_length;
  struct rusage before = {0}, after;
  int64_t begin = 0, now = plm_clock_ms();
  const int64_t warm_until = now + (int64_t)(1e3 * warm_s);
  *measured = (struct measured){0};
  while (begin == 0 || now - begin < (int64_t)(1e3 * seconds)) {
    struct plm_batch batch;
    PLM_TRY(plm_feed_next(feed, chunks, NULL, &batch, error));
    for (uint32_t i = 0; begin != 0 && i < batch.document_begin[chunks]; i++)
      measured->tokens += batch.documents[i].tokens;
    measured->padded += begin != 0 ? (uint64_t)chunks * max_length : 0;
    plm_feed_release(feed, &batch);
    now = plm_clock_ms();
    if (begin == 0 && now >= warm_until) {
      begin = now;
      getrusage(RUSAGE_SELF, &before);
    }
  }
  getrusage(RUSAGE_SELF, &after);
  measured->seconds = 1e-3 * (double)(now - begin);
  measured->consumer_cores = (seconds_of(after.ru_utime) + seconds_of(after.ru_stime) -
                              seconds_of(before.ru_utime) - seconds_of(before.ru_stime)) /
                             measured->seconds;
  return PLM_OK;
}

static struct plm_feed *open_feed(uint32_t max_length)
{
  struct plm_feed_options options = packers_keyed_options();
  struct plm_feed *feed;
  struct plm_error error = {0};
  options.plan.max_length = max_length;
  options.plan.alignment = 1;
  options.plan.window_groups = 64;
  options.credit_bytes = 64 << 20;
  if (plm_feed_open(&options, &feed, &error) == PLM_OK) return feed;
  plm_error_print("bench_packer", &error);
  return NULL;
}

static int measure(const char *corpus, uint32_t max_length, double seconds)
{
  enum { WARM_S = 1 };
  struct plm_error error = {0};
  struct measured m;
  struct rusage usage;
  int exit_status;
  struct plm_feed *feed = open_feed(max_length);
  if (feed == NULL) return 1;
  const pid_t pid = packers_start(corpus, plm_feed_bound(feed), NULL, NULL);
  const plm_status status = consume(feed, max_length, WARM_S, seconds, &m, &error);
  kill(pid, SIGTERM);
  wait4(pid, &exit_status, 0, &usage);
  plm_feed_close(feed);
  if (status != PLM_OK) {
    plm_error_print("bench_packer", &error);
    return 1;
  }
  const double packer = (seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime));
  printf("| %10u | %12.0f | %9.3f %% | %14.2f | %16.2f | %12ld |\n", max_length,
         (double)m.tokens / m.seconds / 1e6, 100.0 * (1.0 - (double)m.tokens / (double)m.padded),
         packer / (m.seconds + WARM_S), m.consumer_cores, usage.ru_maxrss / 1024);
  return 0;
}

static int rounds(const char *corpus, uint32_t max_length)
{
  struct plm_error error = {0};
  struct measured m;
  struct bench_request request;
  struct plm_feed *feed = open_feed(max_length);
  if (feed == NULL) return 1;
  const pid_t pid = packers_start(corpus, plm_feed_bound(feed), NULL, NULL);
  plm_status status = consume(feed, max_length, 0.2, 0.1, &m, &error);
  if (status == PLM_OK) printf("{\"max_length\": %u}\n", max_length);
  (void)fflush(stdout);
  while (status == PLM_OK && bench_request_read(&request)) {
    status = consume(feed, max_length, 0.3, request.count, &m, &error);
    const double tokens = (double)m.tokens, padded = (double)m.padded;
    bench_answer_values("seconds", &m.seconds, 1);
    bench_answer_values("tokens", &tokens, 1);
    bench_answer_values("places", &padded, 1);
    bench_answer_end();
  }
  (void)packers_stop(pid, SIGTERM);
  plm_feed_close(feed);
  if (status != PLM_OK) plm_error_print("bench_packer", &error);
  return plm_status_exit_code(status);
}

int main(int argc, char **argv)
{
  plm_log_init("bench_packer", PLM_LOG_ERROR);
  mallopt(M_MMAP_THRESHOLD, 1 << 30); /* otherwise, each message (1 MiB) would get new pages */
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  if (argc == 4 && strcmp(argv[1], "--rounds") == 0)
    return rounds(argv[2], (uint32_t)strtoul(argv[3], NULL, 10));
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
