/* `probe` and `probe --task contacts` as whole commands on small models: what they print for one
 * checkpoint and for two is what the parts measure and report, and what is refused. */
#include "tests/support/harness/cmocka_all.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/text/json.h"
#include "common/base/text/text.h"
#include "common/cli/task_options.h"
#include "common/metrics/metrics.h"
#include "evaluator/contacts/contacts_command.h"
#include "evaluator/probe/probe_report.h"
#include "evaluator/task/task.h"
#include "tests/support/cases/task_files.h"
#include "tests/support/cases/task_line.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/scratch.h"

enum { ROWS = 30, PROTEINS = 4 };

static char models[2][PLM_PATH_SIZE], table[PLM_PATH_SIZE], proteins[PLM_PATH_SIZE];

static struct plm_ops *open_ops(void)
{
  struct plm_ops *ops;
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  return ops;
}

/* ---- command lines --------------------------------------------------------------------------- */

static plm_status run(const char *line, char **said, struct plm_error *error)
{
  captured_begin(STDOUT_FILENO);
  const plm_status status = task_line_run(&plm_task_probe, line, error);
  fflush(stdout);
  const char *out = captured_end();
  if (said != NULL) *said = strdup(out);
  task_line_end();
  return status;
}

static char *printed_by(const char *line)
{
  struct plm_error error;
  char *said;
  if (run(line, &said, &error) != PLM_OK) fail_msg("%s: %s", line, error.what);
  return said;
}

static void expect_printed(const char *line, const char *expected)
{
  char *said = printed_by(line);
  if (strcmp(said, expected) != 0) fail_msg("%s\ninstead of\n%s", said, expected);
  free(said);
}

static void refused(const char *line, plm_status expected, const char *what)
{
  struct plm_error error;
  char *said;
  const plm_status status = run(line, &said, &error);
  if (status != expected || strstr(error.what, what) == NULL)
    fail_msg("%s: %d, %s", line, (int)status, error.what);
  assert_string_equal(said, "");
  free(said);
}

static const char *json_line(cJSON *object)
{
  static char text[1 << 16];
  char *printed = cJSON_PrintUnformatted(object);
  snprintf(text, sizeof text, "%s\n", printed);
  cJSON_free(printed);
  cJSON_Delete(object);
  return text;
}

/* Where the numbers of checkpoint m go: the line itself, or an object in its list. */
static cJSON *object_of(cJSON *line, int checkpoints, int m)
{
  cJSON *object = line;
  if (checkpoints > 1) {
    if (m == 0) (void)cJSON_AddArrayToObject(line, "checkpoints");
    object = cJSON_CreateObject();
    cJSON_AddItemToArray(cJSON_GetObjectItemCaseSensitive(line, "checkpoints"), object);
  }
  cJSON_AddStringToObject(object, "checkpoint", models[m]);
  cJSON_AddStringToObject(object, "weights", "model");
  return object;
}

/* ---- probes ---------------------------------------------------------------------------------- */

static struct plm_labelled_table labelled;

static void probe_of(int m, struct plm_probe_results *results)
{
  const struct plm_probe_request request = {.pooling = {.kinds = {PLM_POOL_MEAN}, .count = 1},
                                            .alpha = 10};
  struct plm_ops *ops = open_ops();
  struct plm_inference *inference;
  assert_int_equal(plm_inference_open_trunk(models[m], NULL, ops, PLM_INFERENCE_BATCH_TOKENS,
                                            &inference, NULL, NULL),
                   PLM_OK);
  assert_int_equal(plm_probe_run(&request, &labelled, inference, results, NULL), PLM_OK);
  plm_inference_close(inference);
  ops->close(ops);
}

static void read_table(void)
{
  const struct plm_labelled_request request = {.kind = PLM_LABEL_GUESSED,
                                               .path = table,
                                               .target_column = "y",
                                               .split_column = "part",
                                               .tokenizer = PLM_TOKENIZER_ESM};
  assert_int_equal(plm_labelled_table_read(&request, &labelled, NULL), PLM_OK);
}

/* The command line for this number of checkpoints, with other options. */
static const char *probe_line(int checkpoints, const char *more)
{
  static char line[6 * PLM_PATH_SIZE];
  snprintf(line, sizeof line, "%s --target y --split part --threads 1 --checkpoint %s %s %s %s",
           table, models[0], checkpoints > 1 ? "--checkpoint" : "",
           checkpoints > 1 ? models[1] : "", more);
  return line;
}

static void probes_as_json(void **state)
{
  (void)state;
  read_table();
  for (int checkpoints = 1; checkpoints <= 2; checkpoints++) {
    cJSON *line = cJSON_CreateObject();
    plm_probe_add_table(line, &labelled);
    for (int m = 0; m < checkpoints; m++) {
      struct plm_probe_results results;
      probe_of(m, &results);
      plm_probe_add_results(object_of(line, checkpoints, m), &results);
      plm_probe_results_deinit(&results);
    }
    const char *task = checkpoints == 1 ? "" : "--task regression"; /* which it is anyhow */
    char more[64];
    snprintf(more, sizeof more, "--alpha 10 --json %s", task);
    expect_printed(probe_line(checkpoints, more), json_line(line));
  }
  plm_labelled_table_deinit(&labelled);
}

/* The table once, a row for each checkpoint, and the composition after the last one. */
static void probes_as_text(void **state)
{
  (void)state;
  read_table();
  for (int checkpoints = 1; checkpoints <= 2; checkpoints++) {
    struct plm_probe_results results[2];
    for (int m = 0; m < checkpoints; m++) probe_of(m, &results[m]);
    captured_begin(STDOUT_FILENO);
    plm_probe_print_table(&labelled);
    plm_probe_print_header(&labelled);
    for (int m = 0; m < checkpoints; m++) {
      plm_probe_print_row(models[m], "last", labelled.kind, &results[m].layers[0].fit);
      if (m + 1 == checkpoints)
        plm_probe_print_row("(composition and length only)", "-", labelled.kind,
                            &results[m].baseline);
    }
    fflush(stdout);
    char *expected = strdup(captured_end());
    expect_printed(probe_line(checkpoints, "--alpha 10"), expected);
    free(expected);
    for (int m = 0; m < checkpoints; m++) plm_probe_results_deinit(&results[m]);
  }
  plm_labelled_table_deinit(&labelled);
}

/* With the predictions on standard output, nothing else is printed. */
static void predictions(void **state)
{
  (void)state;
  char expected[PLM_PATH_SIZE], file[PLM_PATH_SIZE], more[PLM_PATH_SIZE + 50], *text, *same;
  struct plm_probe_results results;
  size_t size;
  snprintf(expected, sizeof expected, "%s", scratch_path("expected.csv"));
  snprintf(file, sizeof file, "%s", scratch_path("file.csv"));
  read_table();
  probe_of(0, &results);
  assert_int_equal(plm_probe_write_predictions(&results, expected, NULL), PLM_OK);
  plm_probe_results_deinit(&results);
  plm_labelled_table_deinit(&labelled);
  assert_int_equal(plm_file_read(expected, 1 << 20, &text, &size, NULL), PLM_OK);
  expect_printed(probe_line(1, "--alpha 10 --output -"), text);
  snprintf(more, sizeof more, "--alpha 10 --output %.4000s", file);
  char *said = printed_by(probe_line(1, more));
  assert_int_equal(strncmp(said, "table   ", 8), 0);
  free(said);
  assert_int_equal(plm_file_read(file, 1 << 20, &same, &size, NULL), PLM_OK);
  assert_string_equal(same, text);
  free(text);
  free(same);
}

static void probes_that_are_refused(void **state)
{
  (void)state;
  char line[2 * PLM_PATH_SIZE];
  refused("t.csv --target y", PLM_USAGE, "--checkpoint");
  refused("t.csv --checkpoint C", PLM_USAGE, "--target");
  refused("--checkpoint C --target y", PLM_USAGE, "no table is named");
  refused("t.csv --checkpoint C --target y --train 3", PLM_USAGE, "--train is for --task contacts");
  refused("t.csv --checkpoint C --target y --task some", PLM_USAGE, "not \"some\"");
  refused("t.csv --checkpoint C --target y --alpha 0", PLM_USAGE, "--alpha 0 is not");
  refused("t.csv --checkpoint C --target y --pooling some", PLM_USAGE, "some");
  refused("t.csv --checkpoint C --target y --max-length 0", PLM_USAGE, "--max-length 0");
  refused("t.csv --checkpoint C --target y --json --output -", PLM_USAGE, "--json");
  refused("t.csv --checkpoint C --checkpoint D --target y --output o", PLM_USAGE,
          "so it takes one --checkpoint");
  refused("t.csv --checkpoint C --target y --device some", PLM_USAGE, "not \"some\"");
  snprintf(line, sizeof line, "%.3000s --checkpoint C", proteins);
  refused(line, PLM_USAGE, "is a folder, not a table");
  snprintf(line, sizeof line, "%.3000s --checkpoint C --target y --output %.3000s", table, table);
  refused(line, PLM_USAGE, "--output");
}

/* ---- contacts -------------------------------------------------------------------------------- */

static void contacts_of(int m, uint32_t training, uint32_t max_length,
                        struct plm_contacts_results *results)
{
  const struct plm_contacts_request request = {.training = training, .max_length = max_length};
  struct plm_ops *ops = open_ops();
  struct plm_inference *inference;
  struct plm_protein_folder folder;
  assert_int_equal(plm_inference_open_trunk(models[m], NULL, ops, PLM_CONTACT_BATCH_TOKENS,
                                            &inference, NULL, NULL),
                   PLM_OK);
  assert_int_equal(plm_protein_folder_read(proteins, PLM_TOKENIZER_ESM, &folder, NULL), PLM_OK);
  assert_int_equal(plm_contacts_run(&request, &folder, inference, results, NULL), PLM_OK);
  plm_protein_folder_deinit(&folder);
  plm_inference_close(inference);
  ops->close(ops);
}

static const char *contacts_line(int checkpoints, const char *more)
{
  static char line[6 * PLM_PATH_SIZE];
  snprintf(line, sizeof line, "%s --task contacts --threads 1 --checkpoint %s %s %s %s", proteins,
           models[0], checkpoints > 1 ? "--checkpoint" : "", checkpoints > 1 ? models[1] : "",
           more);
  return line;
}

static void contacts_as_json(void **state)
{
  (void)state;
  for (int checkpoints = 1; checkpoints <= 2; checkpoints++) {
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "folder", proteins);
    cJSON_AddStringToObject(line, "task", "contacts");
    for (int m = 0; m < checkpoints; m++) {
      struct plm_contacts_results results;
      contacts_of(m, 2, 0, &results);
      assert_true(results.trained == 2 && results.tested == 2);
      cJSON *object = object_of(line, checkpoints, m);
      plm_metrics_number(object, "precision_l", results.precision[PLM_CONTACTS_L]);
      plm_metrics_number(object, "precision_l2", results.precision[PLM_CONTACTS_L2]);
      plm_metrics_number(object, "precision_l5", results.precision[PLM_CONTACTS_L5]);
      plm_metrics_number(object, "chance", results.chance);
      plm_metrics_integer(object, "trained", results.trained);
      plm_metrics_integer(object, "tested", results.tested);
      plm_metrics_integer(object, "heads", results.heads);
      plm_metrics_integer(object, "heads_used", results.used);
    }
    expect_printed(contacts_line(checkpoints, "--train 2 --json"), json_line(line));
  }
}

static void contacts_as_text(void **state)
{
  (void)state;
  for (int checkpoints = 1; checkpoints <= 2; checkpoints++) {
    struct plm_text text = {0};
    for (int m = 0; m < checkpoints; m++) {
      struct plm_contacts_results results;
      char heads[32];
      contacts_of(m, 3, 30, &results);
      if (m == 0)
        plm_text_printf(&text,
                        "folder  %s: 3 proteins to learn from, 1 to test\n\n%-32s  %-11s "
                        "%-8s %-8s %-8s %s\n",
                        proteins, "checkpoint", "heads", "L", "L/2", "L/5", "chance");
      snprintf(heads, sizeof heads, "%u of %u", results.used, results.heads);
      plm_text_printf(&text, "%-32s  %-11s", models[m], heads);
      for (int k = 0; k < PLM_CONTACT_MEASURES; k++)
        plm_text_printf(&text, " %-8.3f", results.precision[k]);
      plm_text_printf(&text, " %.3f\n", results.chance);
    }
    captured_begin(STDERR_FILENO);
    char *said = printed_by(contacts_line(checkpoints, "--train 3 --max-length 30"));
    const char *warned = captured_end();
    assert_non_null(strstr(warned, "sees only the beginning: 4\n"));
    assert_string_equal(said, text.data);
    free(said);
    plm_text_deinit(&text);
  }
}

static void contacts_that_are_refused(void **state)
{
  (void)state;
  static const char *const others[] = {"--target y",    "--split y", "--layers 1",
                                       "--pooling max", "--alpha 1", "--sequence-column y",
                                       "--output y"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    char line[200], what[100];
    snprintf(line, sizeof line, "F --task contacts --checkpoint C %s", others[i]);
    snprintf(what, sizeof what, "%.*s does not apply to --task contacts",
             (int)strcspn(others[i], " "), others[i]);
    refused(line, PLM_USAGE, what);
  }
  refused("F --task contacts", PLM_USAGE, "--checkpoint");
  refused("--task contacts --checkpoint C", PLM_USAGE, "no folder is named");
  refused("F --task contacts --checkpoint C --train 0", PLM_USAGE, "--train");
  refused("F --task contacts --checkpoint C --train 1000001", PLM_USAGE, "--train");
  refused("F --task contacts --checkpoint C --max-length 0", PLM_USAGE, "--max-length 0");
  struct plm_error error;
  assert_int_equal(run(contacts_line(1, "--train 4"), NULL, &error), PLM_FORMAT);
  assert_non_null(strstr(error.what, "(--train)"));
  assert_string_equal(error.where, proteins);
  refused(contacts_line(1, ""), PLM_FORMAT, "20");
}

static int setup(void **state)
{
  (void)state;
  plm_log_init("t", PLM_LOG_WARNING);
  task_files_model("one", PLM_TRANSFORMER, 0, models[0]);
  task_files_model("two", PLM_UNET, 0, models[1]);
  task_files_table("table.csv", ROWS, table);
  task_files_proteins("proteins", PROTEINS, proteins);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(probes_as_json),
      cmocka_unit_test(probes_as_text),
      cmocka_unit_test(predictions),
      cmocka_unit_test(probes_that_are_refused),
      cmocka_unit_test(contacts_as_json),
      cmocka_unit_test(contacts_as_text),
      cmocka_unit_test(contacts_that_are_refused),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
