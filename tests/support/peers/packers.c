/* Makes corpora and starts packers for tests. */
#include "tests/support/peers/packers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/numbers/philox.h"
#include "common/plan/assemble.h"
#include "common/wire/security.h"
#include "tests/support/corpora/corpus_windows.h"
#include "tests/support/harness/scratch.h"

static _Noreturn void fail(const char *what, const struct plm_error *error)
{
  fprintf(stderr, "tests: %s\n", what);
  if (error != NULL) plm_error_print("tests", error);
  abort();
}

const char *packers_program(const char *name)
{
  static char paths[4][PLM_PATH_SIZE];
  static int next;
  char *path = paths[next++ % 4];
  const char *folder = getenv("PLM_BIN");
  snprintf(path, PLM_PATH_SIZE, "%s/%s", folder != NULL ? folder : "build/bin", name);
  return path;
}

pid_t packers_spawn(const char *const *argv, const char *log)
{
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* so that a failed test leaves no process behind */
  if (log != NULL) {
    const int file = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(file, STDERR_FILENO);
    dup2(file, STDOUT_FILENO);
    close(file);
  }
  execv(argv[0], (char *const *)(uintptr_t)argv);
  _exit(127);
}

static int wait_for(pid_t pid)
{
  int status;
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) fail("waitpid", NULL);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int packers_run(const char *const *argv, const char *log)
{
  return wait_for(packers_spawn(argv, log));
}

/* Puts document i into one of documents / 3 clusters at random. */
static void write_clusters(const char *path, uint32_t documents, uint32_t seed)
{
  FILE *file = fopen(path, "w");
  if (file == NULL) fail("cannot write a table of clusters", NULL);
  for (uint32_t i = 0; i < documents; i++)
    fprintf(file, "s%u\ts%u\n", plm_philox(seed, 0, i, 101).w[0] % (documents / 3), i);
  fclose(file);
}

static const char *make_corpus(const char *name, uint32_t documents, uint32_t seed, bool clusters)
{
  static char path[PLM_PATH_SIZE];
  static const char letters[] = "LAGVSERTIDPKQNFYMHWC";
  char fasta[PLM_PATH_SIZE], table[PLM_PATH_SIZE], log[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s", scratch_path(name));
  if (plm_file_exists(path)) return path;
  snprintf(fasta, sizeof fasta, "%.4000s.fasta", path);
  snprintf(table, sizeof table, "%.4000s.tsv", path);
  snprintf(log, sizeof log, "%.4000s.log", path);
  FILE *file = fopen(fasta, "w");
  if (file == NULL) fail("cannot write a FASTA file", NULL);
  for (uint32_t i = 0; i < documents; i++) {
    const uint32_t length = 20 + plm_philox(seed, 0, i, 100).w[0] % 400;
    fprintf(file, ">s%u\n", i);
    for (uint32_t j = 0; j < length; j++)
      fputc(letters[plm_philox(seed, j + 1, i, 100).w[0] % 20], file);
    fputc('\n', file);
  }
  fclose(file);
  const char *const argv[] = {packers_program("plm-pipeline"),
                              "ingest",
                              fasta,
                              "--corpus",
                              path,
                              "--split",
                              "train=0.9,valid=0.1,test=0.0",
                              "--quiet",
                              clusters ? "--clusters" : NULL, /* or the end */
                              table,
                              NULL};
  if (clusters) write_clusters(table, documents, seed);
  if (packers_run(argv, log) != 0) fail("ingest failed; see its log in the temporary folder", NULL);
  return path;
}

const char *packers_corpus(const char *name, uint32_t documents, uint32_t seed)
{
  return make_corpus(name, documents, seed, false);
}

const char *packers_clusters(const char *name, uint32_t documents, uint32_t seed)
{
  return make_corpus(name, documents, seed, true);
}

const char *packers_keys(void)
{
  static char path[PLM_PATH_SIZE];
  struct plm_error error = {0};
  if (path[0] != '\0') return path;
  snprintf(path, sizeof path, "%s", scratch_path("packers-keys"));
  if (plm_keys_write(path, "packer", NULL, &error) != PLM_OK) fail("keys", &error);
  return path;
}

pid_t packers_start(const char *corpus, const char *endpoint, const char *keys, const char *log)
{
  const char *const argv[] = {
      packers_program("plm-packer"),        "--corpus", corpus, "--connect", endpoint, "--keys",
      keys != NULL ? keys : packers_keys(), NULL};
  return packers_spawn(argv, log);
}

int packers_stop(pid_t pid, int number)
{
  kill(pid, number);
  return wait_for(pid);
}

struct plm_feed_options packers_options(void)
{
  return (struct plm_feed_options){
      .endpoint = "tcp://127.0.0.1:*",
      .role = "trainer",
      .run_id = {1, 2},
      .plan = {.seed = 7,
               .max_length = 256,
               .alignment = 4,
               .window_groups = 2,
               .packing = PLM_PACKING_BEST_FIT,
               .truncate = PLM_TRUNCATE_HEAD,
               .tokenizer = PLM_TOKENIZER_ESM,
               .shuffle = true},
      .split = PLM_SPLIT_TRAIN,
      .credit_bytes = 8 << 20,
      .wait_packers_s = 30,
  };
}

struct plm_feed_options packers_keyed_options(void)
{
  struct plm_feed_options options = packers_options();
  options.keys = packers_keys();
  return options;
}

struct plm_feed *packers_feed(const struct plm_feed_options *options)
{
  struct plm_feed *feed;
  struct plm_error error = {0};
  if (plm_feed_open(options, &feed, &error) != PLM_OK) fail("feed_open", &error);
  return feed;
}

struct plm_hash packers_consume(struct plm_feed *feed, uint32_t batches, uint32_t chunks)
{
  struct plm_hasher *hasher = plm_hasher_open();
  for (uint32_t i = 0; i < batches; i++) {
    struct plm_batch batch;
    struct plm_error error = {0};
    if (plm_feed_next(feed, NULL, chunks, NULL, &batch, &error) != PLM_OK)
      fail("feed_next", &error);
    plm_hasher_update(hasher, batch.tokens,
                      (size_t)batch.chunks * batch.max_length * batch.token_bytes);
    plm_hasher_update(hasher, batch.document_begin, (chunks + 1) * sizeof *batch.document_begin);
    plm_hasher_update(hasher, batch.documents,
                      batch.document_begin[chunks] * sizeof *batch.documents);
    plm_feed_release(feed, &batch);
  }
  const struct plm_hash hash = plm_hasher_digest(hasher);
  plm_hasher_close(hasher);
  return hash;
}

struct plm_hash packers_expected(const struct plm_feed_options *options, const char *corpus_path,
                                 uint64_t skip, uint32_t batches, uint32_t chunks)
{
  const struct plm_corpus_options opening = {0};
  struct plm_error error = {0};
  struct plm_corpus *corpus;
  struct plm_corpus_cursor *cursor;
  struct plm_plan *plan;
  struct plm_window window = {0};
  const uint32_t length = options->plan.max_length;
  PLM_ASSERT(plm_corpus_open(corpus_path, &opening, &corpus, &error) == PLM_OK);
  PLM_ASSERT(plm_corpus_cursor_open(corpus, &cursor, &error) == PLM_OK);
  PLM_ASSERT(plm_plan_open_corpus(&options->plan, corpus, options->split, &plan, &error) == PLM_OK);
  struct plm_hasher *hasher = plm_hasher_open();
  uint8_t *batch = malloc((size_t)chunks * length);
  uint32_t *begin = malloc((chunks + 1) * sizeof *begin);
  struct plm_chunk_document *documents = malloc((size_t)chunks * length * sizeof *documents);
  uint8_t *tokens = NULL;
  uint64_t epoch = 0, index = 0;
  uint32_t chunk = 0, count = 0, in_batch = 0, done = 0;
  while (done < batches) {
    if (chunk == window.chunks) {
      if (index == plm_plan_windows(plan)) {
        epoch++;
        index = 0;
      }
      corpus_window(corpus, options->split, plan, epoch, index++, &window);
      tokens = realloc(tokens, plm_assemble_bytes(plan, &window));
      PLM_ASSERT(plm_assemble_window(cursor, options->split, plan, &window, tokens, &error) ==
                 PLM_OK);
      chunk = 0;
    }
    if (skip > 0) {
      skip--;
      chunk++;
      continue;
    }
    begin[in_batch] = count;
    for (uint32_t i = window.chunk_begin[chunk]; i < window.chunk_begin[chunk + 1]; i++)
      documents[count++] = window.documents[i];
    memcpy(batch + (size_t)in_batch * length, tokens + (size_t)chunk * length, length);
    chunk++;
    if (++in_batch < chunks) continue;
    begin[chunks] = count;
    plm_hasher_update(hasher, batch, (size_t)chunks * length);
    plm_hasher_update(hasher, begin, (chunks + 1) * sizeof *begin);
    plm_hasher_update(hasher, documents, count * sizeof *documents);
    count = in_batch = 0;
    done++;
  }
  const struct plm_hash hash = plm_hasher_digest(hasher);
  plm_hasher_close(hasher);
  free(batch);
  free(begin);
  free(documents);
  free(tokens);
  plm_window_deinit(&window);
  plm_plan_close(plan);
  plm_corpus_cursor_close(cursor);
  plm_corpus_close(corpus);
  return hash;
}
