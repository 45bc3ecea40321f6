/* `plm-pipeline manual` and `report`: the parts of a page, and which pages and runs there are. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "common/cli/roff.h"
#include "common/config/settings.h"
#include "stages/commands/command.h"
#include "stages/views/report.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/harness/scratch.h"

/* ---- manual ------------------------------------------------------------------------------------
 */

/* The headings of the page that was printed, each with a comma. */
static void expect_sections(const char *expected)
{
  struct plm_text found = {0};
  for (const char *at = command_out; (at = strstr(at, "\n.SH ")) != NULL; at += 5) {
    const char *name = at + 5 + (at[5] == '"'); /* one of several words is quoted */
    plm_text_printf(&found, "%.*s,", (int)strcspn(name, "\"\n"), name);
  }
  assert_non_null(found.data);
  assert_string_equal(found.data, expected);
  plm_text_deinit(&found);
}

static void each_name_has_its_page(void **state)
{
  char first[1 << 16];
  (void)state;
  assert_int_equal(COMMAND("manual"), 0);
  expect_sections("NAME,SYNOPSIS,DESCRIPTION,COMMANDS,OPTIONS OF EVERY COMMAND,EXIT STATUS,"
                  "ENVIRONMENT,FILES,SEE ALSO,");
  snprintf(first, sizeof first, "%s", command_out);
  assert_string_equal(strrchr(first, ','), ",\n\\fBpipeline.yaml\\fR(5)\n");
  assert_int_equal(COMMAND("manual", "plm-pipeline"), 0);
  assert_string_equal(command_out, first);
  for (size_t i = 0; plm_commands[i] != NULL; i++) { /* it refers to each command */
    char reference[80];
    snprintf(reference, sizeof reference, "plm\\-pipeline\\-%s", plm_commands[i]->name);
    if (strstr(command_out, reference) == NULL) fail_msg("no %s", reference);
  }
  assert_int_equal(COMMAND("manual", "pipeline.yaml"), 0);
  expect_sections("NAME,DESCRIPTION,EXAMPLE,KEYS,SEE ALSO,");
  for (const char *const *name = (const char *const[]){"", "\\-config", "\\-validate", NULL};
       *name != NULL; name++) {
    char reference[80];
    snprintf(reference, sizeof reference, "plm\\-pipeline%s\\fR(1)", *name);
    if (strstr(command_out, reference) == NULL) fail_msg("no %s", reference);
  }
  assert_non_null(strstr(command_out, "; default \\fB1\\fR; on resume: refused\n"));
  assert_non_null(
      strstr(command_out, "Each key says what happens if its value differs when a run is resumed"));
  assert_int_equal(COMMAND("manual", "up"), 0);
  expect_sections("NAME,SYNOPSIS,DESCRIPTION,OPTIONS,EXIT STATUS,SEE ALSO,");
  assert_non_null(strstr(command_out, "Options of every command"));
  assert_non_null(strstr(command_out, " [FILE] [STAGE...]\n"));
  snprintf(first, sizeof first, "%s", command_out);
  assert_int_equal(COMMAND("manual", "plm-pipeline-up"), 0);
  assert_string_equal(command_out, first);
  assert_int_equal(COMMAND("manual", "down"), 0);
  assert_non_null(strstr(command_out, " [OPTIONS]\n"));
  assert_string_not_equal(command_out, first);
  assert_int_equal(COMMAND("manual", "runs"), 0); /* it has no option of its own */
  assert_null(strstr(command_out, "Options of every command"));
}

/* No section is empty. */
static void expect_text_in_each_section(const char *page)
{
  for (const char *at = page; (at = strstr(at, "\n.SH ")) != NULL; at += 5) {
    const char *end = strchr(at + 1, '\n');
    if (end == NULL || end[1] == '\0' || strncmp(end, "\n.SH ", 5) == 0)
      fail_msg("nothing in %.40s", at);
  }
}

/* Into folders of their sections, those of the programs as they print them. */
static void all_pages_are_written(void **state)
{
  static const char *const programs[] = {"plm-packer", "plm-trainer", "plm-evaluator"};
  const char *before = command_programs;
  char folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE], name[80], expected[80], *text;
  size_t size, count = 0;
  (void)state;
  scratch_run(folder);
  for (size_t i = 0; i < 3; i++)
    command_case_program(programs[i], "#!/bin/sh\n[ $# -eq 1 ] && echo \"${0##*/} $1\"\n");
  assert_int_equal(COMMAND("manual", "--all", folder), 0);
  assert_string_equal(command_out, "");
  while (plm_commands[count] != NULL) count++;
  for (size_t i = 0; i < count + 5; i++) {
    const char *page = i < 3            ? programs[i]
                       : i == count + 3 ? "plm-pipeline"
                       : i == count + 4 ? "pipeline.yaml"
                                        : plm_commands[i - 3]->name;
    snprintf(name, sizeof name, "man%d/%s%s.%d", i == count + 4 ? 5 : 1,
             i < 3 || i >= count + 3 ? "" : "plm-pipeline-", page, i == count + 4 ? 5 : 1);
    assert_int_equal(plm_path_join(path, folder, name, NULL), PLM_OK);
    assert_int_equal(plm_file_read(path, 1 << 20, &text, &size, NULL), PLM_OK);
    assert_int_equal(COMMAND("manual", page), 0);
    assert_string_equal(text, command_out);
    expect_text_in_each_section(text);
    snprintf(expected, sizeof expected, "%s --manual-page\n", page);
    if (i < 3) assert_string_equal(text, expected);
    free(text);
  }
  command_case_program("plm-trainer", "#!/bin/sh\nexit 0\n"); /* it prints nothing */
  assert_int_equal(COMMAND("manual", "plm-trainer"), 1);
  assert_non_null(strstr(command_err, "/plm-trainer did not print its manual page\n"));
  command_case_program("plm-trainer", "#!/bin/sh\necho page\nexit 1\n");
  assert_int_equal(COMMAND("manual", "plm-trainer"), 1);
  assert_int_equal(COMMAND("manual", "--all", folder), 1);
  command_programs = "/nowhere";
  assert_int_equal(COMMAND("manual", "plm-trainer"), 1);
  assert_string_equal(command_out, "");
  command_programs = before;
}

/* Every key, with what it means. */
static void each_setting_has_its_item(void **state)
{
  size_t count;
  const struct plm_setting *settings = plm_settings(&count);
  (void)state;
  assert_int_equal(COMMAND("manual", "pipeline.yaml"), 0);
  for (size_t i = 0; i < count; i++) {
    const char *key = settings[i].key;
    struct plm_text item = {0};
    plm_roff_item(&item, key, "x");
    *strrchr(item.data, 'x') = '\0';
    const char *found = strstr(command_out, item.data);
    if (found == NULL) fail_msg("no %s", key);
    found += strlen(item.data);
    if (*found == '\n' || *found == '.') fail_msg("nothing about %s", key);
    plm_text_deinit(&item);
  }
}

static void other_names_are_refused(void **state)
{
  static const char *const names[] = {"upp", "plm-pipeline-upp", "plm-pipeline-", "pipeline.yml"};
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char expected[100];
    snprintf(expected, sizeof expected, "plm-pipeline: there is no manual page \"%s\"\n", names[i]);
    assert_int_equal(COMMAND("manual", names[i]), 2);
    assert_int_equal(strncmp(command_err, expected, strlen(expected)), 0);
  }
  assert_int_equal(COMMAND("manual", "up", "down"), 2);
  assert_int_equal(COMMAND("manual", "up", "--all", scratch_path("pages")), 2);
  assert_false(plm_file_exists(scratch_path("pages")));
}

/* ---- report ------------------------------------------------------------------------------------
 */

static void make_run(const char *folder)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, folder, "pipeline.yaml", NULL), PLM_OK);
  scratch_write(path, "seed: 1\n", 8);
}

static size_t count_of(const char *text)
{
  size_t count = 0;
  for (const char *at = command_out; (at = strstr(at, text)) != NULL; at += strlen(text)) count++;
  return count;
}

/* Two runs of one name are distinguished by their paths, wherever they stand. A third one keeps its
 * name. */
static void runs_of_one_name_have_their_paths(void **state)
{
  static const char *const orders[][3] = {{"a/same", "b/same", "c/other"},
                                          {"c/other", "a/same", "b/same"},
                                          {"a/same", "c/other", "b/same"}};
  (void)state;
  for (size_t i = 0; i < 3; i++) make_run(scratch_path(orders[0][i]));
  assert_int_equal(chdir(scratch_directory()), 0);
  for (size_t i = 0; i < 3; i++) {
    char cell[PLM_PATH_SIZE + 8];
    assert_int_equal(COMMAND("report", orders[i][0], orders[i][1], orders[i][2], "--output", "-"),
                     0);
    for (size_t k = 0; k < 2; k++) {
      snprintf(cell, sizeof cell, "<th>%s</th>", scratch_path(orders[0][k]));
      if (count_of(cell) == 0) fail_msg("no %s", cell);
    }
    assert_int_equal(count_of("<th>same</th>"), 0);
    assert_true(count_of("<th>other</th>") > 0);
  }
}

static void a_report_is_written_into_the_first_run(void **state)
{
  char expected[PLM_PATH_SIZE + 100], run[PLM_PATH_SIZE];
  const char *words[PLM_REPORT_RUNS + 5] = {"report", "--output", "-"};
  (void)state;
  snprintf(run, sizeof run, "%s", scratch_path("written"));
  make_run(run);
  assert_int_equal(COMMAND("report", "--run", run), 0);
  snprintf(expected, sizeof expected, "plm-pipeline: %s/report.html is written\n", run);
  assert_string_equal(command_err, expected);
  assert_string_equal(command_out, "");
  assert_true(plm_file_exists(scratch_path("written/report.html")));
  assert_int_equal(COMMAND("report", run, "--output", scratch_path("page.html")), 0);
  char *page;
  size_t size;
  assert_int_equal(plm_file_read(scratch_path("page.html"), 1 << 20, &page, &size, NULL), PLM_OK);
  assert_int_equal(strlen(page), size);
  assert_memory_equal(page, "<!DOCTYPE html>\n", 16);
  assert_true(plm_text_ends_with(page, "</footer>\n</body>\n</html>\n"));
  assert_non_null(strstr(page, "<title>written</title>"));
  free(page);
  assert_int_equal(COMMAND("report", run, "--run", run), 2);
  for (size_t i = 0; i <= PLM_REPORT_RUNS; i++) {
    if (i == PLM_REPORT_RUNS) assert_int_equal(command_case(words), 0);
    words[3 + i] = run;
  }
  assert_int_equal(command_case(words), 2);
}

static time_t says; /* 0: the true time */

/* Takes the place of libc's function in this program. */
time_t time(time_t *kept)
{
  const time_t now = says != 0 ? says : (time_t)syscall(SYS_time, NULL);
  if (kept != NULL) *kept = now;
  return now;
}

static void a_report_says_when_it_was_made(void **state)
{
  char run[PLM_PATH_SIZE];
  (void)state;
  setenv("TZ", "UTC", 1);
  tzset();
  snprintf(run, sizeof run, "%s", scratch_path("dated"));
  make_run(run);
  says = 1735689600;
  assert_int_equal(COMMAND("report", run, "--output", "-"), 0);
  assert_non_null(strstr(command_out, " report, 2025-01-01 00:00 +0000</footer>\n"));
  says = INT64_MAX; /* no calendar has this year */
  assert_int_equal(COMMAND("report", run, "--output", "-"), 0);
  says = 0;
  assert_non_null(strstr(command_out, " report, </footer>\n"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_name_has_its_page),
      cmocka_unit_test(all_pages_are_written),
      cmocka_unit_test(each_setting_has_its_item),
      cmocka_unit_test(other_names_are_refused),
      cmocka_unit_test(runs_of_one_name_have_their_paths),
      cmocka_unit_test(a_report_says_when_it_was_made),
      cmocka_unit_test(a_report_is_written_into_the_first_run),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
