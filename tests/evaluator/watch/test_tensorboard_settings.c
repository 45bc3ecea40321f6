/* TensorBoard's HPARAMS tab reads the settings of runs and compares their metrics; after a resume,
 * the settings of the last start count. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/metrics/metrics.h"
#include "evaluator/watch/hparams.h"
#include "tests/support/harness/scratch.h"

static char python[4096];

static const char *const subjects[] = {"valid", "refseq/test"};

/* One start of an evaluator: the settings, then a loss and an accuracy at a step. */
static void write_start(const char *directory, int64_t resumed, const char *settings, int64_t step,
                        double loss, bool ends)
{
  struct plm_config config;
  struct plm_error error = {0};
  struct plm_tensorboard *board;
  if (plm_config_load_text(settings, strlen(settings), &config, &error) != PLM_OK)
    fail_msg("%s", error.what);
  const struct plm_hparams hparams = {.config = &config, .subjects = subjects, .subject_count = 2};
  assert_int_equal(plm_tensorboard_open(directory, resumed, &board, &error), PLM_OK);
  assert_int_equal(plm_hparams_write(directory, &hparams, &error), PLM_OK);
  assert_int_equal(plm_tensorboard_scalar(board, step, "valid/loss", loss, &error), PLM_OK);
  assert_int_equal(plm_tensorboard_scalar(board, step, "refseq/test/accuracy", 0.5, &error),
                   PLM_OK);
  plm_tensorboard_close(board);
  if (ends) assert_int_equal(plm_hparams_end(directory, &error), PLM_OK);
  plm_config_deinit(&config);
}

static void tensorboard_compares_runs(void **state)
{
  (void)state;
  static const char *const expected[] = {
      "settings STRING BOOL FLOAT64 STRING FLOAT64\n",
      "metrics valid/loss=valid loss valid/accuracy=valid accuracy "
      "valid/perplexity=valid perplexity refseq/test/loss=refseq/test loss "
      "refseq/test/accuracy=refseq/test accuracy refseq/test/perplexity=refseq/test perplexity\n",
      "a/evaluator STATUS_SUCCESS True null False 128.0 muon 0.003 ('valid/loss', '100:2.5') "
      "('refseq/test/accuracy', '100:0.5')\n",
      "b/evaluator STATUS_UNKNOWN True /c/d\xc3\xa9 True 64.0 adamw 0.5 "
      "('valid/loss', '300:1.5') ('refseq/test/accuracy', '300:0.5')\n",
  };
  char first[PLM_PATH_SIZE], second[PLM_PATH_SIZE], command[4 * 4096], line[512];
  snprintf(first, sizeof first, "%s", scratch_path("runs/a/evaluator"));
  snprintf(second, sizeof second, "%s", scratch_path("runs/b/evaluator"));
  write_start(first, -1, "corpus: null\ntrainer: {optimizer: {lr_hidden: 0.003}}\n", 100, 2.5,
              true);
  write_start(second, -1, "corpus: null\n", 200, 9, true); /* complete, then resumed */
  write_start(second, 200,
              "corpus: /c/d\xc3\xa9\nmodel: {hidden_size: 64, tie_embeddings: true}\n"
              "trainer: {optimizer: {name: adamw, lr_hidden: 0.5}}\n",
              300, 1.5, false);
  snprintf(command, sizeof command, "'%s' '%s/tests/evaluator/watch/read_hparams.py' '%s'", python,
           getenv("PLM_ROOT") != NULL ? getenv("PLM_ROOT") : ".", scratch_path("runs"));
  FILE *reader = popen(command, "r");
  assert_non_null(reader);
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    assert_non_null(fgets(line, sizeof line, reader));
    assert_string_equal(line, expected[i]);
  }
  assert_null(fgets(line, sizeof line, reader));
  assert_int_equal(pclose(reader), 0);
}

int main(void)
{
  const char *build = getenv("PLM_BUILD") != NULL ? getenv("PLM_BUILD") : "build";
  const char *venv = getenv("PLM_VENV");
  if (venv != NULL)
    snprintf(python, sizeof python, "%s/bin/python", venv);
  else
    snprintf(python, sizeof python, "%s/venv/bin/python", build);
  FILE *there = venv != NULL && venv[0] == '\0' ? NULL : fopen(python, "r");
  if (there == NULL) {
    printf("no Python environment: run `make venv`\n");
    return 77;
  }
  fclose(there);
  const struct CMUnitTest tests[] = {cmocka_unit_test(tensorboard_compares_runs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
