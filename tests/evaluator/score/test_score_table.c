/* A table of variants from its first line to its last: rows and their scores, the JSON object, the
 * correlation, and what is said if variants cannot be scored. */
#include "tests/support/harness/cmocka_all.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "evaluator/measures/rank_correlation.h"
#include "evaluator/score/score_variants.h"
#include "evaluator/score/variant_scorer.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/changing_file.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

#define RESIDUES "MKLAVG"
enum { L = 32, LENGTH = sizeof RESIDUES - 1, MOST = 40 };

static struct inference_case model;
static const struct plm_wild_type wild_type = {"wild", (const uint8_t *)RESIDUES, LENGTH, 1,
                                               PLM_TOKENIZER_ESM};
static char table[200], out[200];

static int begin(void **state)
{
  (void)state;
  inference_case_open(&model, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, L, 2);
  snprintf(table, sizeof table, "%.199s", scratch_path("table.csv"));
  snprintf(out, sizeof out, "%.199s", scratch_path("out.csv"));
  plm_log_init("t", PLM_LOG_INFO);
  return 0;
}

static int end(void **state)
{
  (void)state;
  inference_case_close(&model);
  return 0;
}

static double score_of(const char *text)
{
  struct plm_variant_scorer *scorer;
  struct plm_variant variant = {0};
  double score = 0;
  assert_int_equal(plm_variant_parse(&wild_type, text, strlen(text), &variant, NULL), PLM_OK);
  assert_int_equal(
      plm_variant_scorer_open(&model.inference, &wild_type, PLM_SCORE_ADDITIVE, &scorer, NULL),
      PLM_OK);
  assert_int_equal(plm_variant_scorer_expect(scorer, &variant, NULL), PLM_OK);
  assert_int_equal(plm_variant_scorer_run(scorer, &variant, 1, &score, NULL), PLM_OK);
  plm_variant_scorer_close(scorer);
  plm_variant_deinit(&variant);
  return score;
}

static struct plm_score_request request_of(const char *csv)
{
  if (csv != NULL) scratch_write(table, csv, strlen(csv));
  return (struct plm_score_request){.first = 1,
                                    .reader = {.csv = csv != NULL ? table : NULL,
                                               .mutations = "mutant",
                                               .measured = csv != NULL ? "dms" : NULL,
                                               .added = "score"},
                                    .output = out};
}

/* What it says on stderr, and optionally what it prints on stdout. */
static const char *said(const struct plm_score_request *request, int descriptor)
{
  struct plm_error error = {0};
  captured_begin(descriptor);
  const plm_status status = plm_score_table(request, &model.inference, &wild_type, &error);
  const char *text = captured_end();
  if (status != PLM_OK) fail_msg("%s", error.what);
  return text;
}

static char *output(void)
{
  char *text;
  size_t size;
  assert_int_equal(plm_file_read(out, 1 << 20, &text, &size, NULL), PLM_OK);
  assert_int_equal(unlink(out), 0);
  return text;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void each_row_keeps_its_fields_and_gets_its_score(void **state)
{
  (void)state;
  struct plm_score_request request =
      request_of("name,mutant,dms\nx,M1A,3\ny,K2L:G6V,\nz,M1M,1\nw,L3W,2\n");
  double x[3] = {score_of("M1A"), 0, score_of("L3W")}, y[3] = {3, 1, 2};
  char expected[1000], line[300];
  struct plm_rank_correlation correlation;
  const char *text = said(&request, STDERR_FILENO);
  for (int i = 0; i < 3; i++) {
    snprintf(line, sizeof line, "%.6f", x[i]);
    x[i] = strtod(line, NULL);
  }
  assert_int_equal(plm_rank_correlate(x, y, 3, &correlation, NULL), PLM_OK);
  snprintf(line, sizeof line, "4 variants of wild; Spearman's correlation with dms (n = 3): %.4f\n",
           correlation.value);
  if (strstr(text, line) == NULL) fail_msg("%s is not %s", text, line);
  char *rows = output();
  snprintf(expected, sizeof expected,
           "name,mutant,dms,score\nx,M1A,3,%.6f\ny,K2L:G6V,,%.6f\nz,M1M,1,0.000000\nw,L3W,2,%.6f\n",
           x[0], score_of("K2L:G6V"), x[2]);
  assert_string_equal(rows, expected);
  free(rows);
}

/* Blanks around variants do not count, of words as of fields. */
static void blanks_are_left_out(void **state)
{
  (void)state;
  static const char *const texts[] = {" M1A ", "K2L\t", "\tL3W"};
  static const char csv[] = "mutant,dms\n M1A ,3\nK2L\t, 5 \n\tL3W,1\n";
  for (int of_file = 0; of_file < 2; of_file++) {
    struct plm_score_request request = request_of(of_file ? csv : NULL);
    struct plm_variant_reader *reader;
    struct plm_variant_entry entry;
    bool ended = false;
    if (!of_file) request.reader.texts = texts, request.reader.text_count = 3;
    assert_int_equal(plm_variant_reader_open(&request.reader, &wild_type, &reader, NULL), PLM_OK);
    for (int i = 0; i < 3; i++) {
      static const char *const expected[] = {"M1A", "K2L", "L3W"};
      static const double measured[] = {3, 5, 1};
      assert_int_equal(plm_variant_reader_next(reader, &entry, &ended, NULL), PLM_OK);
      assert_false(ended);
      assert_int_equal(entry.size, 3);
      assert_memory_equal(entry.text, expected[i], 3);
      assert_true(of_file ? entry.measured == measured[i] : isnan(entry.measured));
    }
    assert_int_equal(plm_variant_reader_next(reader, &entry, &ended, NULL), PLM_OK);
    assert_true(ended);
    plm_variant_reader_close(reader);
  }
}

/* More pairs have an interval, and equal ones no correlation. */
static void a_correlation_is_told_with_its_interval(void **state)
{
  (void)state;
  struct plm_score_request request =
      request_of("mutant,dms\nM1A,3\nK2L,5\nA4M,1\nL3W,2\nG6A,2.5\n");
  const char *text = said(&request, STDERR_FILENO);
  double value, low, high;
  const char *told = strstr(text, "5 variants of wild; Spearman's correlation with dms (n = 5): ");
  if (told == NULL ||
      sscanf(strstr(told, "5): "), "5): %lf, 95 %% interval %lf to %lf", &value, &low, &high) != 3)
    fail_msg("%s", text);
  const double spread = 1.96 * sqrt((1 + 0.5 * value * value) / 2);
  assert_true(fabs(low - tanh(atanh(value) - spread)) < 2e-4);
  assert_true(fabs(high - tanh(atanh(value) + spread)) < 2e-4);
  free(output());
  request = request_of("mutant,dms\nM1A,3\nK2L,3\nA4M,3\n");
  text = said(&request, STDERR_FILENO);
  if (strstr(text, "3 variants of wild; no correlation with dms, which has 3 numbers: too few, or "
                   "all equal\n") == NULL)
    fail_msg("%s", text);
  free(output());
}

static void json_has_each_variant_and_the_correlation(void **state)
{
  (void)state;
  struct plm_score_request request = request_of("mutant,dms\nM1A,3\nK2L,\nA4M,1\n");
  request.output = NULL;
  request.json = true;
  char expected[600];
  const char *text = said(&request, STDOUT_FILENO);
  cJSON *json = cJSON_Parse(text);
  assert_non_null(json);
  const cJSON *variants = cJSON_GetObjectItemCaseSensitive(json, "variants"),
              *spearman = cJSON_GetObjectItemCaseSensitive(json, "spearman");
  assert_int_equal(cJSON_GetArraySize(variants), 3);
  static const char *const names[] = {"M1A", "K2L", "A4M"};
  for (int i = 0; i < 3; i++) {
    const cJSON *item = cJSON_GetArrayItem(variants, i);
    const cJSON *measured = cJSON_GetObjectItemCaseSensitive(item, "measured");
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "mutant")),
                        names[i]);
    assert_true(fabs(cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(item, "score")) -
                     score_of(names[i])) < 1e-6);
    assert_int_equal(measured == NULL, i == 1);
    if (i != 1) assert_true(cJSON_GetNumberValue(measured) == 3 - i);
  }
  assert_true(cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(spearman, "count")) == 2);
  assert_true(fabs(cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(spearman, "value"))) ==
              1); /* of two pairs */
  assert_true(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(spearman, "low")));
  assert_true(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(spearman, "high")));
  cJSON_Delete(json);
  static const char *const texts[] = {"M1A"};
  request = request_of(NULL);
  request.reader.texts = texts;
  request.reader.text_count = 1;
  request.output = NULL;
  request.json = true;
  snprintf(expected, sizeof expected, "{\"variants\":[{\"mutant\":\"M1A\",\"score\":%.6g}]}\n",
           score_of("M1A"));
  text = said(&request, STDOUT_FILENO);
  assert_int_equal(strncmp(text, expected, strlen("{\"variants\":[{\"mutant\":\"M1A\",\"score\":")),
                   0);
  assert_null(strstr(text, "spearman"));
}

/* Without a file, --json and --plot, rows go to standard output. */
static void rows_go_to_standard_output(void **state)
{
  (void)state;
  static const char *const texts[] = {"M1A", "K2L"};
  struct plm_score_request request = request_of(NULL);
  char expected[200];
  request.reader.texts = texts;
  request.reader.text_count = 2;
  request.output = NULL;
  snprintf(expected, sizeof expected, "mutant,score\nM1A,%.6f\nK2L,%.6f\n", score_of("M1A"),
           score_of("K2L"));
  assert_string_equal(said(&request, STDOUT_FILENO), expected);
  request.plot = true; /* a map of what was scored, and no rows */
  const char *text = said(&request, STDOUT_FILENO);
  assert_null(strstr(text, "M1A"));
  assert_true(strlen(text) > 20);
  static const struct plm_wild_type wider = {"wider", (const uint8_t *)"MKLAVGSERTIDPKQNFYHW", 20,
                                             1, PLM_TOKENIZER_ESM};
  captured_begin(STDOUT_FILENO);
  assert_int_equal(plm_score_table(&request, &model.inference, &wider, NULL), PLM_OK);
  assert_non_null(strstr(captured_end(), "MKLAVGSERTIDPKQNFYHW\n")); /* 100 columns have room */
}

/* The map has variants with one substitution by an amino acid, and nothing of the others. */
static void a_map_has_single_substitutions(void **state)
{
  (void)state;
  static const char *const texts[] = {"M1A", "K2L:G6V", "A4X", "A4A"};
  char *maps[2];
  for (size_t count = 1; count <= 4; count += 3) {
    struct plm_score_request request = request_of(NULL);
    request.reader.texts = texts;
    request.reader.text_count = count;
    request.output = NULL;
    request.plot = true;
    maps[count / 4] = strdup(said(&request, STDOUT_FILENO));
  }
  assert_string_equal(maps[1], maps[0]);
  free(maps[0]);
  free(maps[1]);
}

/* A gap of an alignment is no position. */
static void gaps_have_no_substitutions(void **state)
{
  (void)state;
  static const struct plm_wild_type gapped = {"gapped", (const uint8_t *)"MK-A", 4, 1,
                                              PLM_TOKENIZER_ESM};
  const struct plm_score_request request = request_of(NULL);
  captured_begin(STDERR_FILENO);
  assert_int_equal(plm_score_table(&request, &model.inference, &gapped, NULL), PLM_OK);
  const char *text = captured_end();
  if (strstr(text, "57 variants of gapped\n") == NULL) fail_msg("%s", text); /* 19 * 3 */
  char *rows = output();
  assert_null(strstr(rows, "\n-"));
  assert_non_null(strstr(rows, "\nK2Y,"));
  assert_non_null(strstr(rows, "\nA4C,"));
  free(rows);
}

/* More rows than are scored together. */
static void many_rows_are_scored(void **state)
{
  (void)state;
  enum { ROWS = 16384 + 1 };
  char *csv = must(malloc(ROWS * 16 + 16)), expected[40];
  char *at = csv + sprintf(csv, "mutant,dms\n");
  for (int i = 0; i < ROWS; i++) at += sprintf(at, "%s,%d\n", i % 2 == 0 ? "M1A" : "K2L", i);
  const struct plm_score_request request = request_of(csv);
  free(csv);
  (void)said(&request, STDERR_FILENO);
  char *rows = output(), *line = strchr(rows, '\n') + 1;
  const double scores[] = {score_of("M1A"), score_of("K2L")};
  for (int i = 0; i < ROWS; i++) {
    snprintf(expected, sizeof expected, "%s,%d,%.6f\n", i % 2 == 0 ? "M1A" : "K2L", i,
             scores[i % 2]);
    if (strncmp(line, expected, strlen(expected)) != 0) fail_msg("%.40s is not %s", line, expected);
    line += strlen(expected);
  }
  assert_string_equal(line, "");
  free(rows);
}

static void all_substitutions_are_scored(void **state)
{
  (void)state;
  struct plm_score_request request = request_of(NULL);
  const char *text = said(&request, STDERR_FILENO);
  char name[40], *rows = output();
  int lines = 0;
  if (strstr(text, "114 variants of wild\n") == NULL) fail_msg("%s", text); /* 19 * 6 */
  for (const char *at = rows; (at = strchr(at, '\n')) != NULL; at++) lines++;
  assert_int_equal(lines, 115);
  snprintf(name, sizeof name, "\nG6V,%.6f\n", score_of("G6V"));
  if (strstr(rows, name) == NULL) fail_msg("no %s in %s", name, rows);
  free(rows);
}

/* ---- what cannot be scored ------------------------------------------------------------------- */

/* Returns what is said; *error is filled. */
static const char *fails(const struct plm_score_request *request, struct plm_error *error)
{
  *error = (struct plm_error){0};
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_score_table(request, &model.inference, &wild_type, error);
  const char *text = captured_end();
  assert_int_equal(status, PLM_FORMAT);
  assert_false(plm_file_exists(out));
  return text;
}

static int count_of(const char *text, const char *word)
{
  int count = 0;
  for (; (text = strstr(text, word)) != NULL; text++) count++;
  return count;
}

static void a_single_wrong_variant_is_the_error(void **state)
{
  (void)state;
  struct plm_error error;
  struct plm_score_request request = request_of("mutant,dms\nW1A,1\n");
  assert_string_equal(fails(&request, &error), "");
  assert_non_null(strstr(error.what, "W"));
  assert_non_null(strstr(error.where, "table.csv:2"));
}

/* Of several variants, each wrong one is told, at most twenty; the error counts them. */
static void wrong_variants_are_told_and_counted(void **state)
{
  (void)state;
  static const int wrongs[] = {1, 2, 19, 20, 21, MOST};
  for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
    char csv[2000] = "mutant,dms\nM1A,1\n", what[100];
    struct plm_error error;
    for (int k = 0; k < wrongs[i]; k++)
      strcat(csv, k % 2 == 0 ? "W1A,1\n" : k % 4 == 1 ? "M1A,x\n" : "M1A,inf\n");
    struct plm_score_request request = request_of(csv);
    const char *text = fails(&request, &error);
    assert_int_equal(count_of(text, "table.csv"), wrongs[i] < 20 ? wrongs[i] : 20);
    snprintf(what, sizeof what, "%d of %d variants cannot be scored, so none was scored", wrongs[i],
             wrongs[i] + 1);
    assert_string_equal(error.what, what);
    assert_int_equal(error.where[0], '\0');
  }
}

static void another_numbering_is_proposed(void **state)
{
  (void)state;
  struct plm_error error;
  struct plm_score_request request = request_of("mutant,dms\nM11A,1\nK12L,1\nG16A,2\n");
  fails(&request, &error);
  assert_string_equal(error.hint, "all variants fit with --offset 11");
  request.fixed_first = true;
  fails(&request, &error);
  assert_null(strstr(error.hint, "all variants fit"));
  request = request_of("mutant,dms\nM1A,1\nK2L,1\nG6A,x\n"); /* the numbers are right */
  fails(&request, &error);
  assert_null(strstr(error.hint, "all variants fit"));
}

static void a_table_without_rows_is_refused(void **state)
{
  (void)state;
  struct plm_error error;
  struct plm_score_request request = request_of("mutant,dms\n");
  fails(&request, &error);
  assert_string_equal(error.what, "there are no variants to score");
}

/* A row more, and a row fewer, than were checked, and a position that none of them had. */
static void a_table_that_changes_is_refused(void **state)
{
  (void)state;
  static const char *const tables[] = {"mutant,dms\nM1A,3\nK2L,5\nA4M,1\n", "mutant,dms\nM1A,3\n",
                                       "mutant,dms\nM1A,3\nL3K,5\n"};
  for (int i = 0; i < 3; i++) {
    struct plm_error error;
    char expected[300];
    const struct plm_score_request request = request_of("mutant,dms\nM1A,3\nK2L,5\n");
    changing_file(table, tables[i]);
    fails(&request, &error);
    changing_file(table, NULL);
    snprintf(expected, sizeof expected, "%s changed while it was read", table);
    assert_string_equal(error.what, expected);
  }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
      TEST(each_row_keeps_its_fields_and_gets_its_score),
      TEST(blanks_are_left_out),
      TEST(a_correlation_is_told_with_its_interval),
      TEST(json_has_each_variant_and_the_correlation),
      TEST(rows_go_to_standard_output),
      TEST(a_map_has_single_substitutions),
      TEST(gaps_have_no_substitutions),
      TEST(many_rows_are_scored),
      TEST(all_substitutions_are_scored),
      TEST(a_single_wrong_variant_is_the_error),
      TEST(wrong_variants_are_told_and_counted),
      TEST(another_numbering_is_proposed),
      TEST(a_table_without_rows_is_refused),
      TEST(a_table_that_changes_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
