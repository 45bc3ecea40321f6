/* The folder of scores: its origin, its lock, what killed commands left, and reading the scores of
 * an assay beside its measurements. */
#include "tests/support/harness/failing_memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "evaluator/score/assay_scores.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_entries.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

static void put(const char *name, const char *text)
{
  scratch_write(scratch_path(name), text, strlen(text));
}

static void has(const char *path, const char *expected)
{
  char *text;
  size_t size;
  assert_int_equal(plm_file_read(path, 1 << 16, &text, &size, NULL), PLM_OK);
  assert_string_equal(text, expected);
  free(text);
}

static const struct plm_assay_origin first = {{1, 2}, "additive", "fp32", 0, 0};

static void a_folder_keeps_its_origin(void **state)
{
  (void)state;
  char folder[200];
  struct plm_assay_scores scores, second = {.lock = -1};
  struct plm_error error = {0};
  snprintf(folder, sizeof folder, "%.199s", scratch_path("origin"));
  assert_int_equal(plm_assay_scores_open(folder, &first, &scores, NULL), PLM_OK);
  assert_true(scores.lock >= 0);
  has(scratch_path("origin/scores.json"),
      "{\n\t\"weights\":\t\"00000000000000020000000000000001\",\n\t\"masking\":\t"
      "\"additive\",\n\t\"precision\":\t\"fp32\"\n}");
  assert_int_equal(plm_assay_scores_open(folder, &first, &second, &error), PLM_BUSY);
  assert_non_null(strstr(error.what, "another command writes scores into "));
  plm_assay_scores_close(&scores);
  assert_int_equal(scores.lock, -1);
  plm_assay_scores_close(&scores);
  static const struct {
    struct plm_assay_origin origin;
    const char *other;
  } others[] = {{{{1, 3}, "joint", "fp32", 0, 0}, "weights"},
                {{{1, 2}, "joint", "bf16", 0, 0}, "masking"},
                {{{1, 2}, "additive", "bf16", 0, 0}, "precision"},
                {{{1, 2}, "additive", "fp32", 64, 9}, "max_length"},
                {{{1, 2}, "additive", "fp32", 0, 9}, "max_variants"}};
  for (size_t i = 0; i < 5; i++) {
    char what[512];
    snprintf(what, sizeof what, "%s has scores made with other %s", folder, others[i].other);
    assert_int_equal(plm_assay_scores_open(folder, &others[i].origin, &second, &error), PLM_EXISTS);
    assert_string_equal(error.what, what);
    assert_string_equal(error.hint, "name another folder with --scores");
    assert_int_equal(second.lock, -1); /* it is not locked any more */
  }
  assert_int_equal(plm_assay_scores_open(folder, &first, &scores, NULL), PLM_OK);
  assert_int_equal(symlink(folder, scratch_path("link")), 0);
  assert_int_equal(plm_assay_scores_open(scratch_path("link"), &first, &second, &error), PLM_BUSY);
  plm_assay_scores_close(&scores);
  assert_int_equal(plm_assay_scores_open(scratch_path("link"), &first, &second, NULL), PLM_OK);
  plm_assay_scores_close(&second);
}

/* Where --max-length was given, the folder keeps that too. */
static void a_folder_keeps_max_length(void **state)
{
  (void)state;
  char folder[200];
  struct plm_assay_scores scores;
  struct plm_assay_origin origin = first;
  origin.max_length = 64;
  snprintf(folder, sizeof folder, "%.199s", scratch_path("windows"));
  assert_int_equal(plm_assay_scores_open(folder, &origin, &scores, NULL), PLM_OK);
  has(scratch_path("windows/scores.json"),
      "{\n\t\"weights\":\t\"00000000000000020000000000000001\",\n\t\"masking\":\t"
      "\"additive\",\n\t\"precision\":\t\"fp32\",\n\t\"max_length\":\t\"64\"\n}");
  plm_assay_scores_close(&scores);
  assert_int_equal(plm_assay_scores_open(folder, &origin, &scores, NULL), PLM_OK);
  plm_assay_scores_close(&scores);
  assert_int_equal(plm_assay_scores_open(folder, &first, &scores, NULL), PLM_EXISTS);
}

/* Only files that are called NAME.csv.tmp-DIGITS are removed. */
static void unfinished_files_are_removed(void **state)
{
  (void)state;
  static const char *const kept[] = {"unfinished/a.csv", "unfinished/b.csv.tmp-12x",
                                     "unfinished/c.tmp-12"};
  static const char *const removed[] = {"unfinished/a.csv.tmp-1", "unfinished/b.c.csv.tmp-98760"};
  struct plm_assay_scores scores;
  assert_int_equal(plm_directory_make(scratch_path("unfinished"), NULL), PLM_OK);
  for (size_t i = 0; i < 3; i++) put(kept[i], "x");
  for (size_t i = 0; i < 2; i++) put(removed[i], "x");
  assert_int_equal(plm_assay_scores_open(scratch_path("unfinished"), &first, &scores, NULL),
                   PLM_OK);
  plm_assay_scores_close(&scores);
  for (size_t i = 0; i < 3; i++) assert_true(plm_file_exists(scratch_path(kept[i])));
  for (size_t i = 0; i < 2; i++) assert_false(plm_file_exists(scratch_path(removed[i])));
}

static plm_status open_scores(void *context, struct plm_error *error)
{
  struct plm_assay_scores scores;
  const long at = failing_disk_pause();
  assert_int_equal(plm_path_remove(context, NULL), PLM_OK);
  assert_int_equal(plm_directory_make(context, NULL), PLM_OK);
  put("fails/a.csv.tmp-1", "x");
  put("fails/b.csv.tmp-2", "x");
  failing_disk_resume(at);
  const plm_status status = plm_assay_scores_open(context, &first, &scores, error);
  if (status == PLM_OK) plm_assay_scores_close(&scores);
  return status;
}

static void each_failure_of_the_disk_is_an_error(void **state)
{
  (void)state;
  char folder[200];
  snprintf(folder, sizeof folder, "%.199s", scratch_path("fails"));
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  failing_disk_try(open_scores, folder, NULL);
}

static void an_assay_has_its_file(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE], id[PLM_PATH_SIZE];
  const struct plm_assay_scores scores = {.folder = "/there", .lock = -1};
  const struct plm_assay assay = {.id = id};
  struct plm_error error = {0};
  strcpy(id, "ONE");
  assert_int_equal(plm_assay_scores_path(&scores, &assay, path, NULL), PLM_OK);
  assert_string_equal(path, "/there/ONE.csv");
  memset(id, 'a', sizeof id);
  id[PLM_PATH_SIZE - 4] = '\0'; /* with the ending and NUL, one byte more than there is room for */
  assert_int_equal(plm_assay_scores_path(&scores, &assay, path, &error), PLM_LIMIT);
  assert_non_null(strstr(error.what, "DMS_id aaa"));
}

static plm_status read_both(const char *assay_text, const char *scored, double cutoff,
                            struct plm_assay_values *values, struct plm_error *error)
{
  struct plm_assay assay = {.cutoff = cutoff};
  const long at = failing_disk_pause();
  put("assay.csv", assay_text);
  put("scored.csv", scored);
  failing_disk_resume(at);
  snprintf(assay.file, sizeof assay.file, "%s", scratch_path("assay.csv"));
  return plm_assay_scores_read(scratch_path("scored.csv"), &assay, 0, values, error);
}

static void are(const struct plm_assay_values *values, size_t count, const double *expected)
{
  assert_int_equal(values->count, count);
  for (size_t i = 0; i < count; i++) {
    assert_true(values->score[i] == expected[3 * i]);
    assert_true(values->measured[i] == expected[3 * i + 1]);
    const double fit = expected[3 * i + 2];
    assert_true(isnan(fit) ? isnan(values->fit[i]) : values->fit[i] == fit);
  }
}

/* Rows without a score or a measurement are left out. */
static void scores_are_read_beside_measurements(void **state)
{
  (void)state;
  struct plm_assay_values values;
  assert_int_equal(read_both("mutant,DMS_score,DMS_score_bin\nA1G,1.5,1\nA1H,,0\nA1I,NA,0\n"
                             "A1K,-2,0\nA1L,3,\nA1M,4,NA\nA1N,5,1\n",
                             "mutant,DMS_score,DMS_score_bin,plm_score\nA1G,1.5,1,-0.25\n"
                             "A1H,,0,1\nA1I,NA,0,2\nA1K,-2,0,3\nA1L,3,,4\nA1M,4,NA,5\nA1N,5,1,\n",
                             0, &values, NULL),
                   PLM_OK);
  are(&values, 4, (double[]){-0.25, 1.5, 1, 3, -2, 0, 4, 3, NAN, 5, 4, NAN});
  plm_assay_values_deinit(&values);
  assert_int_equal(values.count, 0);
  assert_null(values.score);
  static const char assay[] = "DMS_score\n1\n2\n3\n",
                    scored[] = "DMS_score,plm_score\n1,7\n2,8\n3,9\n";
  assert_int_equal(read_both(assay, scored, 2, &values, NULL), PLM_OK);
  are(&values, 3, (double[]){7, 1, 0, 8, 2, 1, 9, 3, 1}); /* 2 is fit */
  plm_assay_values_deinit(&values);
  assert_int_equal(read_both(assay, scored, (double)NAN, &values, NULL), PLM_OK);
  are(&values, 3, (double[]){7, 1, NAN, 8, 2, NAN, 9, 3, NAN});
  plm_assay_values_deinit(&values);
}

/* More rows than memory is taken for at first. */
static void many_scores_are_read(void **state)
{
  (void)state;
  enum { ROWS = 5000 };
  struct plm_assay_values values;
  char *assay = must(malloc(ROWS * 16)), *scored = must(malloc(ROWS * 24));
  char *a = assay + sprintf(assay, "DMS_score\n"),
       *s = scored + sprintf(scored, "DMS_score,plm_score\n");
  for (int i = 0; i < ROWS; i++) {
    a += sprintf(a, "%d\n", i);
    s += sprintf(s, "%d,%d\n", i, 7 * i);
  }
  assert_int_equal(read_both(assay, scored, ROWS / 2, &values, NULL), PLM_OK);
  assert_int_equal(values.count, ROWS);
  for (int i = 0; i < ROWS; i++) {
    assert_true(values.score[i] == 7 * i && values.measured[i] == i);
    assert_true(values.fit[i] == (i >= ROWS / 2));
  }
  plm_assay_values_deinit(&values);
  free(assay);
  free(scored);
}

/* A sample is of the column that names the variants. */
static void a_sample_needs_its_column(void **state)
{
  (void)state;
  for (int indels = 0; indels < 2; indels++) {
    struct plm_assay assay = {.cutoff = 0, .indels = indels};
    struct plm_assay_values values;
    struct plm_error error = {0};
    put("assay.csv", "mutant,DMS_score\nA1G,1\n");
    put("scored.csv", "mutant,DMS_score,plm_score\nA1G,1,2\n");
    snprintf(assay.file, sizeof assay.file, "%s", scratch_path("assay.csv"));
    assert_int_equal(plm_assay_scores_read(scratch_path("scored.csv"), &assay, 1, &values, &error),
                     indels ? PLM_CONFIG : PLM_OK);
    if (indels) assert_non_null(strstr(error.what, "has no column \"mutated_sequence\""));
    assert_int_equal(values.count, !indels);
    plm_assay_values_deinit(&values);
  }
}

static plm_status read_three(void *context, struct plm_error *error)
{
  static const double expected[] = {7, 1, 0, 8, 2, 1, 9, 3, 1};
  struct plm_assay_values values;
  (void)context;
  const plm_status status =
      read_both("DMS_score\n1\n2\n3\n", "DMS_score,plm_score\n1,7\n2,8\n3,9\n", 2, &values, error);
  if (status == PLM_OK) are(&values, 3, expected);
  if (status != PLM_OK) assert_null(values.score);
  plm_assay_values_deinit(&values);
  return status;
}

static void a_lack_of_memory_is_an_error(void **state)
{
  static const char *const unnoticed[] = {"+stat *.csv", NULL}; /* a file of unknown kind is read */
  (void)state;
  failing_disk_try(read_three, NULL, unnoticed);
  failing_memory_try(read_three, NULL, 3);
}

static void refuses(const char *assay, const char *scored, plm_status status, const char *where,
                    const char *what)
{
  struct plm_assay_values values;
  struct plm_error error = {0};
  assert_int_equal(read_both(assay, scored, 0, &values, &error), status);
  if (strstr(error.what, what) == NULL || strstr(error.where, where) == NULL)
    fail_msg("%s: %s is not %s: %s", error.where, error.what, where, what);
  assert_null(values.score);
}

static void other_files_are_refused(void **state)
{
  (void)state;
  static const char assay[] = "mutant,DMS_score\nA1G,1\n\nA2G,2\n";
  refuses(assay, "mutant,DMS_score\nA1G,1\n", PLM_EXISTS, "", "line 1 differs");
  refuses(assay, "mutant,DMS_score,x,plm_score\nA1G,1,1,1\n", PLM_EXISTS, "", "line 1 differs");
  refuses(assay, "mutant,DMS_scorE,plm_score\nA1G,1,1\nA2G,2,1\n", PLM_EXISTS, "",
          "line 1 differs");
  refuses(assay, "mutant,DMS_score,plm_score\nA1G,1,1\nA2G,21,1\n", PLM_EXISTS, "",
          "line 4 differs");
  refuses(assay, "mutant,DMS_score,plm_score\nA1G,1,1\nA2H,2,1\n", PLM_EXISTS, "",
          "line 4 differs");
  refuses(assay, "mutant,DMS_score,plm_score\nA1G,1,1\n", PLM_EXISTS, "", "line 4 differs");
  refuses(assay, "mutant,DMS_score,plm_score\nA1G,1,1\nA2G,2,1\nA3G,2,1\n", PLM_EXISTS, "",
          "assay.csv: line 4 differs");
  refuses(assay, "mutant,DMS_score,plm_score\nA1G,1,1\nA2G,2,x\n", PLM_FORMAT, "scored.csv:3",
          "field 3 is \"x\", not a number");
  refuses(assay, "mutant,DMS_score,plm_score\nA1G,1,1\nA2G,2,1x\n", PLM_FORMAT, "scored.csv:3",
          "field 3 is \"1x\", not a number");
  refuses(assay, "mutant,DMS_score,plm_score\nA1G,1,inf\nA2G,2,1\n", PLM_FORMAT, "scored.csv:2",
          "field 3 is \"inf\", not a number");
  refuses("mutant,DMS_score\nA1G,high\n", "mutant,DMS_score,plm_score\nA1G,high,1\n", PLM_FORMAT,
          "scored.csv:2", "field 2 is \"high\", not a number");
  refuses("DMS_score,DMS_score_bin\n1,0.5\n", "DMS_score,DMS_score_bin,plm_score\n1,0.5,1\n",
          PLM_FORMAT, "assay.csv:2", "DMS_score_bin is 0.5, not 0 or 1");
  refuses("DMS_score,DMS_score_bin\n1,2\n", "DMS_score,DMS_score_bin,plm_score\n1,2,1\n",
          PLM_FORMAT, "assay.csv:2", "DMS_score_bin is 2, not 0 or 1");
  refuses("mutant,DMS_score\nA1G\n", "mutant,DMS_score,plm_score\nA1G,1\n", PLM_FORMAT, "",
          "assay.csv:2: the row has only 1 fields");
  refuses("DMS_score,DMS_score_bin\n1\n", "DMS_score,DMS_score_bin,plm_score\n1,1\n", PLM_FORMAT,
          "", "assay.csv:2: the row has only 1 fields");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_folder_keeps_its_origin),
      cmocka_unit_test(a_folder_keeps_max_length),
      cmocka_unit_test(unfinished_files_are_removed),
      cmocka_unit_test(each_failure_of_the_disk_is_an_error),
      cmocka_unit_test(an_assay_has_its_file),
      cmocka_unit_test(scores_are_read_beside_measurements),
      cmocka_unit_test(many_scores_are_read),
      cmocka_unit_test(a_sample_needs_its_column),
      cmocka_unit_test(a_lack_of_memory_is_an_error),
      cmocka_unit_test(other_files_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
