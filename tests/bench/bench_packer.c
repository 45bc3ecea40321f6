/* Packer tokens/s: one plm-packer process, from LMDB to a TCP consumer that checks, copies and
 * throws away. Prints a table and the machine; the bar is in performance.md.
 *
 *   bench_packer [CORPUS]      PLM_BENCH_SECONDS=3, PLM_BENCH_THREADS=2
 *
 * Without a corpus it makes one of random sequences with the lengths of proteins. */
#include <malloc.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/philox.h"
#include "common/wire/feed.h"
#include "tests/support/packers.h"
#include "tests/support/scratch.h"

enum { DOCUMENTS = 200000, MEDIAN = 300, BATCH_TOKENS = 1 << 20 };

/* Log-normal lengths, median 300, and the composition of UniProt. */
static const char *make_corpus(void)
{
  static const char residues[] = "LLLLLLLLLLAAAAAAAAAGGGGGGGVVVVVVVSSSSSSSEEEEEEERRRRRRTTTTTTIIIIII"
                                 "DDDDDDPPPPPKKKKKKQQQQNNNNFFFFYYYMMHHWC";
  const char *path = scratch_path("bench.corpus"), *fasta = scratch_path("bench.fasta");
  FILE *file = fopen(fasta, "w");
  if (file == NULL) return NULL;
  char line[8192];
  for (uint32_t i = 0; i < DOCUMENTS; i++) {
    const struct plm_philox_words w = plm_philox(1, 0, i, 100);
    const double normal =
        sqrt(-2 * log(1 - plm_philox_unit(w.w[0]))) * cos(6.283185307 * plm_philox_unit(w.w[1]));
    double length = MEDIAN * exp(0.75 * normal);
    if (length < 30) length = 30;
    if (length > 8000) length = 8000;
    const uint32_t count = (uint32_t)length;
    for (uint32_t j = 0; j < count; j += 4) {
      const struct plm_philox_words draw = plm_philox(1, j + 1, i, 100);
      for (uint32_t k = 0; k < 4; k++)
        line[j + k] = residues[((uint64_t)draw.w[k] * (sizeof residues - 1)) >> 32];
    }
    fprintf(file, ">s%u\n%.*s\n", i, (int)count, line);
  }
  fclose(file);
  const char *const argv[] = {
      packers_program("plm-pipeline"), "ingest", fasta, "--corpus", path, "--quiet", NULL};
  return packers_run(argv, NULL) == 0 ? path : NULL;
}

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

static void print_machine(void)
{
  char line[256], model[256] = "unknown processor\n";
  FILE *file = fopen("/proc/cpuinfo", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if (strncmp(line, "model name", 10) == 0) {
      snprintf(model, sizeof model, "%s", strchr(line, ':') + 2);
      break;
    }
  if (file != NULL) fclose(file);
  double load = 0;
  if (getloadavg(&load, 1) != 1) load = -1;
  model[strcspn(model, "\n")] = '\0';
  printf("%s, %ld cores, load %.1f; one plm-packer, TCP on loopback\n\n", model,
         sysconf(_SC_NPROCESSORS_ONLN), load);
}

int main(int argc, char **argv)
{
  plm_log_init("bench_packer", PLM_LOG_ERROR);
  mallopt(M_MMAP_THRESHOLD, 1 << 30); /* messages of a MiB: no new pages for each */
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  const char *corpus = argc > 1 ? argv[1] : make_corpus();
  const char *text = getenv("PLM_BENCH_SECONDS");
  const double seconds = text != NULL ? strtod(text, NULL) : 3;
  if (corpus == NULL) return 1;
  print_machine();
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
