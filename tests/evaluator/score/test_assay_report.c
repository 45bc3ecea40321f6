/* All that a report prints: the table, the JSON object, and the means on stderr. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "evaluator/score/assay_report.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/scratch.h"

static const struct plm_assay_result results[] = {
    {"one", "P1", "Stability", 12, {0.5, 0.25, -0.125, 1, 0.0625}},
    {"two, again", "P2", "Activity", 3, {NAN, NAN, NAN, 0, 1}},
};

static const char csv[] = "DMS_id,UniProt_ID,coarse_selection_type,number_mutants,"
                          "Spearman,AUC,MCC,NDCG,Top_recall\n"
                          "one,P1,Stability,12,0.500000,0.250000,-0.125000,1.000000,0.062500\n"
                          "\"two, again\",P2,Activity,3,,,,0.000000,1.000000\n";

static const char object[] =
    "{\"assays\":[{\"DMS_id\":\"one\",\"UniProt_ID\":\"P1\",\"coarse_selection_type\":"
    "\"Stability\",\"number_mutants\":12,\"Spearman\":0.5,\"AUC\":0.25,\"MCC\":-0.125,\"NDCG\":1,"
    "\"Top_recall\":0.0625},{\"DMS_id\":\"two, again\",\"UniProt_ID\":\"P2\","
    "\"coarse_selection_type\":\"Activity\",\"number_mutants\":3,\"Spearman\":null,\"AUC\":null,"
    "\"MCC\":null,\"NDCG\":0,\"Top_recall\":1}],\"selection_types\":[{\"coarse_selection_type\":"
    "\"Activity\",\"Spearman\":null,\"AUC\":null,\"MCC\":null,\"NDCG\":0,\"Top_recall\":1},"
    "{\"coarse_selection_type\":\"Stability\",\"Spearman\":0.5,\"AUC\":0.25,\"MCC\":-0.125,"
    "\"NDCG\":1,\"Top_recall\":0.0625}],\"average\":{\"Spearman\":0.5,\"AUC\":0.25,\"MCC\":-0.125,"
    "\"NDCG\":0.5,\"Top_recall\":0.53125}}\n";

static const char means[] =
    "t: Activity: Spearman -, AUC -, MCC -, NDCG 0.000, Top_recall 1.000\n"
    "t: Stability: Spearman 0.500, AUC 0.250, MCC -0.125, NDCG 1.000, Top_recall 0.062\n"
    "t: average of 2 assays: Spearman 0.500, AUC 0.250, MCC -0.125, NDCG 0.500, Top_recall 0.531\n";

static void prints(const char *output, bool json, const char *out)
{
  captured_begin(STDOUT_FILENO);
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_assay_report(results, 2, output, json, NULL);
  const char *err_text = captured_end(), *out_text = captured_end();
  assert_int_equal(status, PLM_OK);
  assert_string_equal(out_text, out);
  assert_string_equal(err_text, means);
}

static void has(const char *path, const char *expected)
{
  char *text;
  size_t size;
  assert_int_equal(plm_file_read(path, 1 << 16, &text, &size, NULL), PLM_OK);
  assert_string_equal(text, expected);
  assert_int_equal(unlink(path), 0);
  free(text);
}

static void the_table_and_the_object_go_where_they_should(void **state)
{
  (void)state;
  const char *path = scratch_path("table.csv");
  plm_log_init("t", PLM_LOG_INFO);
  prints(NULL, false, csv);
  prints(NULL, true, object);
  prints(path, false, "");
  has(path, csv);
  prints(path, true, object);
  has(path, csv);
}

static void a_table_that_cannot_be_written_ends_it(void **state)
{
  (void)state;
  struct plm_error error = {0};
  plm_log_init("t", PLM_LOG_ERROR);
  captured_begin(STDOUT_FILENO);
  const plm_status status =
      plm_assay_report(results, 2, scratch_path("missing/table.csv"), true, &error);
  const char *text = captured_end();
  assert_int_equal(status, PLM_NOT_FOUND);
  assert_string_equal(text, "");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_table_and_the_object_go_where_they_should),
      cmocka_unit_test(a_table_that_cannot_be_written_ends_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
