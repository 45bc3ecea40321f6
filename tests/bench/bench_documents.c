/* Measures what grows with the documents of a corpus: how long a packer needs to open it and a
 * consumer until its first chunk, at the beginning of a run and at a place far into it, and the
 * memory of both. Prints the machine and a table.
 *
 *   bench_documents [DOCUMENTS…]      1e6 and 1e7 without arguments; 1e9 needs 5 GB of disk
 *
 * The corpora have all tables, but only the sequences that are needed
 * (tests/support/corpora/hollow_corpus.h). */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/feed/feed.h"
#include "tests/support/bench/bench_scene.h"
#include "tests/support/corpora/hollow_corpus.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/packers.h"

/* A consumer asks for tables of windows far ahead, so that many must be there. */
enum { WINDOWS = 64, LATER_EPOCH = 3, CHUNKS = 64 };

static struct plm_plan_parameters parameters_of(bool clusters)
{
  struct plm_plan_parameters parameters = packers_options().plan;
  parameters.max_length = 1024;
  parameters.alignment = 1;
  parameters.window_groups = 64;
  parameters.sampling = clusters ? PLM_SAMPLING_CLUSTERS : PLM_SAMPLING_DOCUMENTS;
  return parameters;
}

/* The memory of a process without pages of files, in MiB. */
static long own_mib(pid_t pid)
{
  char path[64], line[256];
  long kib = 0;
  snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
  FILE *file = fopen(path, "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    (void)sscanf(line, "RssAnon: %ld", &kib);
  if (file != NULL) fclose(file);
  return kib / 1024;
}

struct measured {
  double seconds; /* from the start of the packer to the first batch */
  long packer_mib, consumer_mib;
};

/* Takes the first batch at a place, in a process of its own. */
static int consume_at(const char *corpus, const struct plm_plan_parameters *parameters,
                      const struct plm_plan_place *place)
{
  struct plm_feed_options options = packers_keyed_options();
  struct plm_error error;
  struct plm_batch batch;
  struct measured measured;
  options.plan = *parameters;
  options.credit_bytes = 4 << 20;
  options.wait_packers_s = 60;
  const int64_t begin = plm_clock_ms();
  struct plm_feed *feed = packers_feed(&options);
  const pid_t pid = packers_start(corpus, plm_feed_bound(feed), NULL, "/dev/null");
  plm_feed_seek(feed, 0, PLM_SPLIT_TRAIN, place);
  const plm_status status = plm_feed_next(feed, NULL, CHUNKS, NULL, &batch, &error);
  measured =
      (struct measured){1e-3 * (double)(plm_clock_ms() - begin), own_mib(pid), own_mib(getpid())};
  if (status == PLM_OK) plm_feed_release(feed, &batch);
  const int stopped = packers_stop(pid, SIGTERM);
  plm_feed_close(feed);
  if (status != PLM_OK) {
    plm_error_print("bench_documents", &error);
    return 1;
  }
  if (stopped != 128 + SIGTERM) {
    fprintf(stderr, "bench_documents: the packer ended with %d\n", stopped);
    return 1;
  }
  printf(" %9.2f | %10ld | %12ld |", measured.seconds, measured.packer_mib, measured.consumer_mib);
  return fflush(stdout);
}

static int measure_at(const char *corpus, const struct plm_plan_parameters *parameters,
                      const struct plm_plan_place *place)
{
  int status;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) _exit(consume_at(corpus, parameters, place));
  if (child < 0 || waitpid(child, &status, 0) != child) return 1;
  return status != 0;
}

static int measure(uint64_t documents, bool clusters)
{
  const struct plm_plan_parameters parameters = parameters_of(clusters);
  const uint64_t taken = clusters ? documents / 2 : documents;
  const uint64_t windows = (plm_corpus_group_count(taken) - 1) / parameters.window_groups + 1;
  const uint64_t middle = windows / 2;
  const struct hollow_windows needed[] = {{0, 0, WINDOWS}, {LATER_EPOCH, middle, WINDOWS}};
  const struct plm_plan_place places[] = {
      {0}, {.epoch = LATER_EPOCH, .window = middle, .before = middle * 1000, .chunk = 100}};
  char directory[PLM_PATH_SIZE];
  snprintf(directory, sizeof directory, "%s", scratch_path("hollow"));
  hollow_corpus_write(directory, documents, &parameters, needed, 2);
  printf("| %10.0e | %-9s |", (double)documents, clusters ? "clusters" : "documents");
  int failed = 0;
  for (int i = 0; i < 2 && !failed; i++) failed = measure_at(directory, &parameters, &places[i]);
  printf("\n");
  (void)plm_path_remove(directory, NULL);
  return failed;
}

int main(int argc, char **argv)
{
  static char usual[2][8] = {"1e6", "1e7"};
  char *const defaults[] = {usual[0], usual[1]};
  char *const *list = argc > 1 ? argv + 1 : defaults;
  const int count = argc > 1 ? argc - 1 : 2;
  int failed = 0;
  plm_log_init("bench_documents", PLM_LOG_ERROR);
  bench_machine();
  packers_keys();
  printf(
      "from the start of plm-packer to the first chunks of a run, and of a resumed one\n\n"
      "| documents  | sampling  | first (s) | packer MiB | consumer MiB | later (s) | packer MiB "
      "| consumer MiB |\n"
      "|------------|-----------|-----------|------------|--------------|-----------|------------"
      "|--------------|\n");
  for (int i = 0; i < count && !failed; i++)
    for (int clusters = 0; clusters < 2 && !failed; clusters++)
      failed = measure((uint64_t)strtod(list[i], NULL), clusters != 0);
  return failed;
}
