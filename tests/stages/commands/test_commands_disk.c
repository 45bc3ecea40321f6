/* Commands that read while each call to the disk fails in turn: they name the file and end with an
 * error, or do without what is only for information. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/config/config.h"
#include "common/run/run.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/cases/published_file.h"
#include "tests/support/cases/whole_checkpoint.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_entries.h"
#include "tests/support/harness/failing_lmdb.h"
#include "tests/support/harness/scratch.h"

enum { WORDS = 12 };

static char run[PLM_PATH_SIZE], corpus[PLM_PATH_SIZE], model[PLM_PATH_SIZE], yaml[PLM_PATH_SIZE],
    out[PLM_PATH_SIZE], keys[PLM_PATH_SIZE], runs[PLM_PATH_SIZE], profiled[PLM_PATH_SIZE];

struct row {
  const char *words[WORDS], *unnoticed[8];
  bool less; /* without what is only for information, the output is another one */
};

static char expected[1 << 14]; /* the output when nothing fails */

/* The exit code and what is said on standard error, as a status and an error. */
static plm_status call(void *context, struct plm_error *error)
{
  const struct row *row = context;
  const int code = command_case(row->words);
  snprintf(error->what, sizeof error->what, "%s", command_err);
  if (code == 0 && !row->less) assert_string_equal(command_out, expected);
  return code == 0 ? PLM_OK : PLM_FAILURE;
}

/* A run that has only a profile. */
static void write_profile(void)
{
  static const char text[] =
      "{\"otherData\":{\"format\":\"plm-profile\",\"first_step\":1,\"last_step\":1,\"ranks\":1},"
      "\"traceEvents\":[\n{\"ph\":\"X\",\"name\":\"step 1\",\"cat\":\"step\",\"pid\":0,\"tid\":0,"
      "\"ts\":0,\"dur\":5},\n]}\n";
  char path[PLM_PATH_SIZE];
  scratch_run(profiled);
  assert_int_equal(plm_path_join(path, profiled, PLM_RUN_PROFILE, NULL), PLM_OK);
  scratch_write(path, text, sizeof text - 1);
}

static void put(const char *name, const char *text)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, run, name, NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
}

static int setup(void **state)
{
  static const struct written_corpus small = {
      .tokenizer = PLM_TOKENIZER_ESM, .documents = {20, 2, 2}, .longest = 30};
  struct published_file file = published_file_of(PLM_ESM2);
  char text[3 * PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  (void)state;
  published_folder_write(&file, model);
  published_file_free(&file);
  struct plm_corpus *opened = written_corpus_open("corpus", &small);
  snprintf(corpus, sizeof corpus, "%s", plm_corpus_path(opened));
  plm_corpus_close(opened);
  snprintf(run, sizeof run, "%s", scratch_path("runs/one"));
  snprintf(runs, sizeof runs, "%s", scratch_path("runs"));
  snprintf(out, sizeof out, "%s", scratch_path("out"));
  snprintf(keys, sizeof keys, "%s", scratch_path("keys"));
  snprintf(yaml, sizeof yaml, "%s", scratch_path("its.yaml"));
  assert_int_equal(plm_path_join(path, run, PLM_RUN_LOGS, NULL), PLM_OK);
  assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
  snprintf(text, sizeof text, "run: %s\ncorpus: %s\n", run, corpus);
  scratch_write(yaml, text, strlen(text));
  put(PLM_RUN_CONFIG, text);
  put(PLM_RUN_TRAINER_METRICS, "{\"v\":1,\"step\":1,\"loss\":3}\n");
  put(PLM_RUN_EVALUATOR_METRICS, "{\"v\":1,\"step\":100,\"split\":\"valid\",\"loss\":2.8}\n");
  put("logs/trainer.log", "2026-01-01 00:00:00 trainer: begun\n");
  assert_int_equal(plm_path_join(path, run, PLM_RUN_CHECKPOINTS, NULL), PLM_OK);
  for (uint64_t step = 0; step < 200; step += 100) whole_checkpoint_write(path, step);
  assert_int_equal(COMMAND("keys", keys, "--client", "packer"), 0);
  write_profile();
  failing_lmdb_reads = true;
  return chdir(scratch_directory());
}

static void each_failure_of_the_disk_is_said(void **state)
{
  (void)state;
  /* Whether something is there, who holds a lock, and what ended a run; a log is opened again, and
   * a corpus is read ahead. `up --dry-run` also tells how long the run is, if it can. */
  static const struct row rows[] = {
      {{"checkpoints", run, "--json"}, {"+stat *", "+* */MANIFEST", "+* */pipeline.yaml"}, true},
      {{"checkpoints", run, "--verify"}, {"+stat *", "+* */pipeline.yaml"}, true},
      {{"checkpoints", model, "--verify"}, {"+stat *"}, true},
      {{"metrics", "--run", run}, {"+stat *", "pread *", "open *"}, false},
      {{"metrics", "--run", run, "--plot"}, {"stat *"}, false},
      {{"runs", runs},
       {"stat *", "+open *.lock", "open */FAILED", "open */DONE", "fopen */trainer.jsonl"},
       true},
      {{"report", run, "--output", out},
       {"+stat *", "+open *.lock", "open */FAILED", "open */DONE", "+* */checkpoints*"},
       false},
      {{"corpus", corpus}, {NULL}, false},
      {{"corpus", corpus, "--verify"}, {"+mdb_get *"}, false},
      {{"corpus", corpus, "--fasta"}, {"+mdb_get *"}, false},
      {{"corpus", corpus, "--against", corpus}, {"stat *", "+mdb_get *"}, false},
      {{"logs", "--run", run}, {"+stat *", "+open *", "+pread *"}, false},
      {{"trace", "--config", yaml, "--step", "1"}, {"+stat *", "+mdb_get *"}, false},
      {{"validate", yaml}, {"+stat *"}, false},
      {{"config", "--run", run}, {NULL}, false},
      {{"k8s", yaml, "--image", "i", "--keys", keys, "--output", out}, {"+stat *"}, false},
      {{"up", yaml, "--dry-run"},
       {"+stat *", "open */DONE", "+* */corpus.json", "+* */data.mdb", "+mdb_* *",
        "fopen */trainer.jsonl"},
       true},
      {{"sweep", yaml, "--set", "seed=1,2", "--dry-run"}, {"+stat *", "+open */seed=*"}, true},
      {{"push", "name/model", "--folder", model, "--dry-run"}, {"+stat *"}, false},
      {{"slurm", yaml}, {"+stat *"}, false},
      {{"profile", profiled}, {"+stat *"}, false},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (command_case(rows[i].words) != 0) fail_msg("%s", command_err);
    assert_true(snprintf(expected, sizeof expected, "%s", command_out) < (int)sizeof expected);
    failing_disk_try(call, (void *)&rows[i], rows[i].unnoticed);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_failure_of_the_disk_is_said)};
  return cmocka_run_group_tests(tests, setup, NULL);
}
