/* What `up --dry-run` says about the length of a run. */
#include "stages/supervisor/prepare/run_length.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/plan/shuffle.h"
#include "tests/support/corpora/known_split.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

static bool remote; /* everything seems to lie on NFS */

/* Takes the place of libc's function in this program. */
int statfs(const char *path, struct statfs *about)
{
  const int status = (int)syscall(SYS_statfs, path, about);
  if (remote) about->f_type = 0x6969;
  return status;
}

static void the_advice_depends_on_epochs_and_size(void **state)
{
  static const struct {
    double epochs, tokens, parameters;
    const char *wanted;
  } rows[] = {
      {4, 1000, 0,
       "up to 4 epochs, repeated data is nearly as good as new (Muennighoff et al., 2023): 4 "
       "epochs "
       "are 1,000 steps"},
      {4.01, 1000, 200.5,
       "beyond 4 epochs, repeated data teaches less and less (Muennighoff et al., 2023): 4 epochs "
       "are 997 steps"},
      {0.5, 1000, 50,
       "up to 4 epochs, repeated data is nearly as good as new (Muennighoff et al., 2023): 4 "
       "epochs "
       "are 8,000 steps\n                10 tokens a parameter; 20 (Hoffmann et al., 2022) would "
       "be "
       "25 parameters"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[PLM_ADVICE_SIZE];
    plm_run_length_advice(rows[i].epochs, rows[i].tokens, rows[i].parameters, 1000, text);
    assert_string_equal(text, rows[i].wanted);
  }
}

/* Up to a million documents are counted. Of more, some windows say what the others hold. */
static void chunks_are_counted_or_estimated(void **state)
{
  static const struct {
    uint64_t documents;
    uint32_t window_groups;
    bool estimated;
  } rows[] = {{5000, 64, false},    {1000000, 64, false},  {3000000, 64, true},
              {3000000, 999, true}, {1500000, 5000, true}, {2000000, 7813, false}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const struct plm_plan_parameters parameters = {.seed = 3,
                                                   .max_length = 512,
                                                   .alignment = 1,
                                                   .window_groups = rows[i].window_groups,
                                                   .shuffle = true};
    uint32_t *lengths = must(malloc(rows[i].documents * sizeof *lengths));
    struct plm_draws draws = plm_draws_begin(5, 0, 100);
    for (uint64_t d = 0; d < rows[i].documents; d++) lengths[d] = 30 + plm_draws_below(&draws, 600);
    const struct known_split split = {.lengths = lengths, .documents = rows[i].documents};
    struct plm_plan *plan = known_split_plan(&split, &parameters);
    struct known_reading reading = known_reading_open(&split, plan);
    const uint64_t windows = plm_plan_windows(plan);
    uint32_t *counts = must(malloc(windows * sizeof *counts));
    uint64_t exact = 0, chunks;
    bool estimated;
    assert_int_equal(known_split_chunks(&split, plan, 0, 0, windows, counts, NULL), PLM_OK);
    for (uint64_t w = 0; w < windows; w++) exact += counts[w];
    assert_int_equal(
        plm_run_length_chunks(plan, known_reading_group, &reading, &chunks, &estimated, NULL),
        PLM_OK);
    assert_int_equal(estimated, rows[i].estimated);
    if (!estimated) assert_int_equal(chunks, exact);
    assert_true(fabs((double)chunks / (double)exact - 1.0) < 0.005);
    known_reading_close(&reading);
    plm_plan_close(plan);
    free(counts);
    free(lengths);
  }
}

/* ---- what is said ------------------------------------------------------------------------------
 */

/* What is said of a run with these settings, of which `%s` are the paths of both corpora. */
static const char *said(const char *yaml, const char *metrics, double parameters)
{
  char run[PLM_PATH_SIZE], path[PLM_PATH_SIZE], text[4 * PLM_PATH_SIZE], first[PLM_PATH_SIZE];
  struct plm_config config;
  struct plm_error error = {0};
  scratch_run(run);
  snprintf(first, sizeof first, "%s", scratch_path("first"));
  snprintf(text, sizeof text, yaml, first, scratch_path("second"));
  snprintf(text + strlen(text), PLM_PATH_SIZE + 16, "run: %s\n", run);
  must_work(plm_config_load_text(text, strlen(text), &config, &error), &error);
  must_work(plm_path_join(path, run, "trainer.jsonl", NULL), NULL);
  if (metrics != NULL) scratch_write(path, metrics, strlen(metrics));
  remote = true;
  captured_begin(STDOUT_FILENO);
  plm_run_length_say(&config, parameters);
  const char *out = captured_end();
  remote = false;
  plm_config_deinit(&config);
  return out;
}

/* Two corpora whose documents fill a chunk each: 300 and 1,200 of them, in clusters of 3. */
static void write_corpora(void)
{
  static const struct written_corpus of[] = {
      {.documents = {300, 7, 9}, .longest = 1, .cluster_documents = 3},
      {.documents = {1200, 0, 0}, .longest = 1, .cluster_documents = 3}};
  plm_corpus_close(written_corpus_open("first", &of[0]));
  plm_corpus_close(written_corpus_open("second", &of[1]));
}

#define ADVICE                                                                              \
  "  advice        up to 4 epochs, repeated data is nearly as good as new (Muennighoff et " \
  "al., 2023): 4 epochs are "

/* A chunk of 4 tokens has one document of a residue, <cls> and <eos>. */
static void the_length_is_that_of_the_first_corpus(void **state)
{
  (void)state;
  static const char data[] = "data: {max_length: 4}\n";
  char yaml[400];
  write_corpora();
  snprintf(yaml, sizeof yaml,
           "corpus: %%s # %%s\n%strainer: {steps: 150, batch_tokens: 8, micro_batch_tokens: 4}\n",
           data);
  assert_string_equal(said(yaml, NULL, 0),
                      "length\n  150 steps are 1 epochs of 300 sequences\n" ADVICE "600 steps\n");
  /* the same in time, by the last line */
  assert_string_equal(
      said(yaml, "{\"step\":1,\"step_ms\":9}\n{\"step\":2,\"step_ms\":400}\n", 0),
      "length\n  150 steps are 1 epochs of 300 sequences, about 1:00 at the pace of the run's last "
      "step\n" ADVICE "600 steps\n");
  assert_string_equal(said(yaml, "{\"step\":1}\n", 0),
                      "length\n  150 steps are 1 epochs of 300 sequences\n" ADVICE "600 steps\n");
  /* 900 tokens are those of the training split only */
  assert_string_equal(said(yaml, NULL, 45),
                      "length\n  150 steps are 1 epochs of 300 sequences\n" ADVICE "600 steps\n");
  assert_string_equal(
      said(yaml, NULL, 50),
      "length\n  150 steps are 1 epochs of 300 sequences\n" ADVICE
      "600 steps\n                18 tokens a parameter; 20 (Hoffmann et al., 2022) "
      "would be 45 parameters\n");
  /* a mixture takes a part of its chunks from the first corpus, by the weights of the first step */
  snprintf(yaml, sizeof yaml,
           "corpus: [{path: %%s, weight: 1, final_weight: 7}, {path: %%s, weight: 3}]\n"
           "data: {max_length: 4, mixture_steps: 5}\n"
           "trainer: {steps: 150, batch_tokens: 8, micro_batch_tokens: 4}\n");
  assert_string_equal(said(yaml, NULL, 0),
                      "length\n  150 steps are 0.25 epochs of 300 sequences of the first "
                      "corpus\n" ADVICE "2,400 steps\n");
}

static void labels_need_no_advice(void **state)
{
  (void)state;
  static const char yaml[] =
      "corpus: %s # %s\ndata: {max_length: 4}\n"
      "trainer: {steps: 75, batch_tokens: 8, micro_batch_tokens: 4, objective: classification, "
      "labels: family}\n";
  assert_string_equal(said(yaml, NULL, 0), "length\n  75 steps are 0.5 epochs of 300 sequences\n");
}

static void nothing_is_said_of_what_is_not_here(void **state)
{
  (void)state;
  assert_string_equal(said("corpus: null # %s %s\n", NULL, 0), "");
  assert_string_equal(said("corpus: /nowhere # %s %s\n", NULL, 0), "");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_advice_depends_on_epochs_and_size),
      cmocka_unit_test(chunks_are_counted_or_estimated),
      cmocka_unit_test(the_length_is_that_of_the_first_corpus),
      cmocka_unit_test(labels_need_no_advice),
      cmocka_unit_test(nothing_is_said_of_what_is_not_here),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
