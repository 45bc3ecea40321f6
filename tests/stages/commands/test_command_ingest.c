/* `plm-pipeline ingest`: the bounds of its numbers, which options go together, and what it says of
 * the records that it dropped. */
#include "tests/support/harness/cmocka_all.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "common/base/files/file.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/harness/scratch.h"

static char fasta[PLM_PATH_SIZE], corpus[PLM_PATH_SIZE];

static int setup(void **state)
{
  char run[PLM_PATH_SIZE];
  (void)state;
  scratch_run(run);
  assert_int_equal(plm_path_join(fasta, run, "in.fasta", NULL), PLM_OK);
  assert_int_equal(plm_path_join(corpus, run, "corpus", NULL), PLM_OK);
  scratch_write(fasta, ">a\nLAGV\n", 8);
  return 0;
}

#define REFUSES(what, ...) \
  (COMMAND_REFUSES(2, what, "ingest", __VA_ARGS__), assert_false(plm_file_exists(corpus)))

static void numbers_have_bounds(void **state)
{
  static const struct {
    const char *option, *value;
    const char *what; /* NULL: it is taken */
  } cases[] = {
      {"--min-length", "x", "option \"--min-length\" needs a whole number, not \"x\""},
      {"--max-residues", "x", "option \"--max-residues\" needs a whole number, not \"x\""},
      {"--threads", "x", "option \"--threads\" needs a whole number, not \"x\""},
      {"--max-residues", "0", "--max-residues must be from 1 to 268435456"},
      {"--max-residues", "268435457", "--max-residues must be from 1 to 268435456"},
      {"--max-residues", "268435456", NULL},
      {"--max-residues", "4", NULL},
      {"--min-length", "1048577", "--min-length 1048577 is above --max-residues 1048576"},
      {"--min-length", "4", NULL},
      {"--min-length", "0", NULL},
      {"--threads", "257", "--threads must be from 0 to 256"},
      {"--threads", "0", NULL},
      {"--threads", "2", NULL},
      {"--jobs", "1", NULL},
      {"--unclustered", "0.5", "--unclustered belongs to --clusters FILE.tsv"},
      {"--unclustered", "1.1", "--unclustered 1.1 is not a share from 0 to 1"},
      {"--unclustered", "-0.1", "--unclustered -0.1 is not a share from 0 to 1"},
      {"--unclustered", "x", "--unclustered x is not a share from 0 to 1"},
      {"--unclustered", "0.5x", "--unclustered 0.5x is not a share from 0 to 1"},
      {"--unclustered", "nan", "--unclustered nan is not a share from 0 to 1"},
      {"--tokenizer", "esm", NULL},
      {"--tokenizer", "byte", NULL},
      {"--tokenizer", "esm2", "--tokenizer must be esm or byte, not \"esm2\""},
      {"--labels-table", "t.csv",
       "--labels-table t.csv needs --labels COLUMN or --split-column COLUMN"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (cases[i].what != NULL) {
      REFUSES(cases[i].what, fasta, "--corpus", corpus, cases[i].option, cases[i].value);
      continue;
    }
    assert_int_equal(COMMAND("ingest", fasta, "--corpus", corpus, cases[i].option, cases[i].value,
                             "--split", "train=1"),
                     0);
    assert_int_equal(plm_path_remove(corpus, NULL), PLM_OK);
  }
  for (int share = 0; share < 2; share++) { /* 0 and 1 are shares */
    scratch_write(scratch_path("clusters.tsv"), share == 0 ? "a\ta\n" : "b\tb\n", 4);
    assert_int_equal(COMMAND("ingest", fasta, "--corpus", corpus, "--clusters",
                             scratch_path("clusters.tsv"), "--unclustered", share == 0 ? "0" : "1"),
                     0);
    assert_int_equal(plm_path_remove(corpus, NULL), PLM_OK);
  }
  /* by default, a hundredth may be missing */
  assert_int_equal(
      COMMAND("ingest", fasta, "--corpus", corpus, "--clusters", scratch_path("clusters.tsv")), 1);
  assert_non_null(strstr(command_err, "--unclustered SHARE allows more than 0.01, and each"));
  assert_int_equal(
      COMMAND("ingest", fasta, "--corpus", corpus, "--min-length", "5", "--max-residues", "5"),
      1); /* it is taken, but the only sequence is shorter */
  REFUSES("--min-length 5 is above --max-residues 4", fasta, "--corpus", corpus, "--min-length",
          "5", "--max-residues", "4");
}

static void some_options_exclude_others(void **state)
{
  (void)state;
  REFUSES("nothing to ingest: name files, or - for stdin", "--corpus", corpus);
  REFUSES("--corpus DIR is needed: the folder of the new corpus", fasta);
  REFUSES("--corpus - does not name a folder", fasta, "--corpus", "-");
  REFUSES("--clusters does not go with --split-column: each cluster is in one split", fasta,
          "--corpus", corpus, "--clusters", "c.tsv", "--split-column", "s");
  REFUSES("--split does not go with --split-column, which has the split of each sequence", fasta,
          "--corpus", corpus, "--split", "train=1", "--split-column", "s");
  REFUSES("--labels and --split-column need one table, not 2 files", fasta, fasta, "--corpus",
          corpus, "--labels", "a");
  REFUSES("--labels and --split-column need one table, not 2 files", fasta, fasta, "--corpus",
          corpus, "--split-column", "a");
}

/* Everything that was dropped is said from the first record on, and nothing else. */
static void what_was_dropped_is_said(void **state)
{
  static const struct {
    const char *text;
    const char *said; /* NULL: nothing */
  } cases[] = {
      {">a\nLAGV\n>b\nLAGVS\n", NULL},
      {">a\nLAGV\n>b\nL1GV\n", "plm-pipeline: bad records skipped: 1\n"},
      {">a\nLAGV\n>b\nLA\n", "plm-pipeline: sequences shorter than --min-length, dropped: 1\n"},
      {">a\nLAGV\n>b\nLAGVSER\n",
       "plm-pipeline: sequences longer than --max-residues, dropped: 1\n"},
      {">a\nLAGV\n>b\nLAGV\n>c\nLAGV\n", "plm-pipeline: repeated sequences dropped: 2\n"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    scratch_write(fasta, cases[i].text, strlen(cases[i].text));
    assert_int_equal(COMMAND("ingest", fasta, "--corpus", corpus, "--min-length", "3",
                             "--max-residues", "6", "--deduplicate", "--split",
                             "train=0.5,valid=0.5", "--force"),
                     0);
    for (size_t k = 1; k < sizeof cases / sizeof *cases; k++)
      assert_int_equal(strstr(command_err, cases[k].said) != NULL, k == i);
    assert_non_null(strstr(command_err, "plm-pipeline: test: 0 documents, 0 residues\n"));
    assert_null(strstr(command_err, " clusters\n"));
    assert_string_equal(command_out, "");
  }
  scratch_write(scratch_path("clusters.tsv"), "a\ta\na\tb\na\tc\n", 12);
  assert_int_equal(COMMAND("ingest", fasta, "--corpus", corpus, "--clusters",
                           scratch_path("clusters.tsv"), "--split", "valid=1", "--force", "--json"),
                   0);
  assert_non_null(strstr(command_err, "plm-pipeline: train: 0 documents, 0 residues\n"
                                      "plm-pipeline: train: 0 clusters\n"
                                      "plm-pipeline: valid: 3 documents, 12 residues\n"
                                      "plm-pipeline: valid: 1 clusters\n"));
  assert_int_equal(command_out[0], '{');
}

/* Then there is one job, although half of the cores is none. */
static void one_core_is_enough(void **state)
{
  cpu_set_t all, one;
  int first = 0;
  (void)state;
  assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
  while (!CPU_ISSET(first, &all)) first++;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  const int code = COMMAND("ingest", fasta, "--corpus", corpus, "--split", "train=1");
  assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
  assert_int_equal(code, 0);
  assert_non_null(strstr(command_err, "plm-pipeline: train: 1 documents, 4 residues\n"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(numbers_have_bounds, setup),
      cmocka_unit_test_setup(some_options_exclude_others, setup),
      cmocka_unit_test_setup(what_was_dropped_is_said, setup),
      cmocka_unit_test_setup(one_core_is_enough, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
