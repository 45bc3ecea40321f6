/* Which checkpoint `export` and `push` take, and which names of repositories `push` takes. */
#include "stages/commands/export_options.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/cases/command_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static const struct plm_option options[] = {
    PLM_EXPORT_OPTIONS, {.name = "name", .argument = "N"}, {.name = "force"}, {0}};
static char run[PLM_PATH_SIZE];

static int setup(void **state)
{
  (void)state;
  scratch_run(run);
  return 0;
}

/* The folder that these words choose. */
static plm_status choose(const char *const *words, char path[PLM_PATH_SIZE],
                         struct plm_error *error)
{
  struct plm_arguments arguments;
  int count = 0;
  while (words[count] != NULL) count++;
  *error = (struct plm_error){0};
  assert_int_equal(plm_arguments_parse(count, (char **)words, options, &arguments, NULL), PLM_OK);
  const struct plm_command_context context = {.arguments = &arguments,
                                              .run = plm_arguments_get(&arguments, "run")};
  const plm_status status = plm_export_folder(&context, path, error);
  plm_arguments_deinit(&arguments);
  return status;
}
#define CHOOSE(...) choose((const char *const[]){"export", __VA_ARGS__, NULL}, path, &error)

static void a_checkpoint_is_named_or_that_of_a_run(void **state)
{
  char path[PLM_PATH_SIZE], expected[2 * PLM_PATH_SIZE], folder[PLM_PATH_SIZE];
  struct plm_error error;
  (void)state;
  assert_int_equal(CHOOSE("--checkpoint", "a/b"), PLM_OK);
  assert_string_equal(path, "a/b");
  assert_int_equal(CHOOSE("--checkpoint", "a", "--run", run), PLM_USAGE);
  assert_string_equal(error.what, "--checkpoint cannot be combined with --run or --step");
  assert_int_equal(CHOOSE("--checkpoint", "a", "--step", "1"), PLM_USAGE);
  assert_string_equal(error.what, "--checkpoint cannot be combined with --run or --step");
  assert_int_equal(CHOOSE("--run", run), PLM_NOT_FOUND);
  snprintf(expected, sizeof expected, "there are no checkpoints in %s", run);
  assert_string_equal(error.what, expected);
  assert_int_equal(plm_path_join(folder, run, "checkpoints/step_00000012", NULL), PLM_OK);
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  assert_int_equal(CHOOSE("--run", run, "--step", "12"), PLM_OK);
  assert_string_equal(path, folder);
  assert_int_equal(CHOOSE("--run", run, "--step", "13"), PLM_NOT_FOUND);
  assert_string_equal(error.what, "the run has no checkpoint of step 13");
  assert_string_equal(error.where, run);
  assert_int_equal(CHOOSE("--run", run, "--step", "x"), PLM_USAGE);
  assert_int_equal(CHOOSE("--run", run), PLM_NOT_FOUND); /* the only one does not verify */
  snprintf(expected, sizeof expected, "no checkpoint in %s/checkpoints verifies", run);
  assert_string_equal(error.what, expected);
}

/* A path has to fit with its end. */
static void a_long_path_is_refused(void **state)
{
  char path[PLM_PATH_SIZE], given[PLM_PATH_SIZE + 1];
  struct plm_error error;
  (void)state;
  memset(given, 'a', sizeof given);
  given[PLM_PATH_SIZE - 1] = '\0';
  assert_int_equal(CHOOSE("--checkpoint", given), PLM_OK);
  assert_string_equal(path, given);
  given[PLM_PATH_SIZE - 1] = 'a';
  given[PLM_PATH_SIZE] = '\0';
  assert_int_equal(CHOOSE("--checkpoint", given), PLM_LIMIT);
}

static void a_request_has_the_options(void **state)
{
  const char *words[] = {"export", "--weights", "ema",       "--dtype", "bfloat16",
                         "--name", "n",         "--license", "mit",     "--merge"};
  struct plm_arguments arguments;
  (void)state;
  assert_int_equal(plm_arguments_parse(10, (char **)words, options, &arguments, NULL), PLM_OK);
  const struct plm_export_request request = plm_export_request_of(&arguments);
  assert_string_equal(request.weights, "ema");
  assert_string_equal(request.dtype, "bfloat16");
  assert_string_equal(request.name, "n");
  assert_string_equal(request.license, "mit");
  assert_true(request.merge);
  assert_false(request.force);
  plm_arguments_deinit(&arguments);
}

/* ---- push --------------------------------------------------------------------------------------
 */

static void expect_name(const char *name, bool allowed)
{
  char expected[400];
  snprintf(expected, sizeof expected,
           "plm-pipeline: \"%.200s\" is not a name that the Hub allows\n", name);
  const int code = COMMAND("push", "--folder", "/nowhere", "--dry-run", "--", name);
  assert_int_equal(strncmp(command_err, expected, strlen(expected)) == 0, !allowed);
  if (!allowed) assert_int_equal(code, 2);
  if (allowed) assert_non_null(strstr(command_err, "/nowhere"));
}

static void names_of_repositories(void **state)
{
  static const char *const good[] = {"model", "owner/model", "O_1.b-c/a_B.9-z", "_/_"};
  static const char *const bad[] = {"owner/", "/model", "a/b/c",    "-a",    ".a",   "a/-b",
                                    "a/.b",   "a b",    "o w/b",    "a/b c", "a..b", "a--b",
                                    "a--b/c", "a/b..c", "\xc3\xa9", "a:b/c", "-a/b", ".a/b"};
  char longest[98];
  (void)state;
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) expect_name(good[i], true);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) expect_name(bad[i], false);
  memset(longest, 'a', sizeof longest);
  longest[96] = '\0';
  expect_name(longest, true);
  longest[96] = 'a';
  longest[97] = '\0';
  expect_name(longest, false);
  assert_int_equal(COMMAND("push", "a", "b", "--dry-run"), 2);
  assert_int_equal(COMMAND("push", "--dry-run"), 2);
  assert_int_equal(strncmp(command_err, "plm-pipeline: push needs the name of one repository", 51),
                   0);
}

/* A folder is uploaded as it is. */
static void a_folder_has_no_options_of_checkpoints(void **state)
{
  static const char *const of_checkpoints[] = {"checkpoint", "step", "weights", "dtype", "license"};
  (void)state;
  for (size_t i = 0; i < sizeof of_checkpoints / sizeof *of_checkpoints; i++) {
    char option[40], expected[200];
    snprintf(option, sizeof option, "--%s", of_checkpoints[i]);
    snprintf(expected, sizeof expected,
             "plm-pipeline: --folder is uploaded unchanged and cannot be combined with --%s\n",
             of_checkpoints[i]);
    assert_int_equal(COMMAND("push", "a/b", "--folder", run, "--dry-run", option, "1"), 2);
    assert_int_equal(strncmp(command_err, expected, strlen(expected)), 0);
  }
}

/* ---- export ------------------------------------------------------------------------------------
 */

static void an_export_needs_a_folder(void **state)
{
  static const char *const needed = "plm-pipeline: --output DIR is needed: the folder to write\n";
  (void)state;
  assert_int_equal(COMMAND("export", "--checkpoint", run), 2);
  assert_int_equal(strncmp(command_err, needed, strlen(needed)), 0);
  assert_int_equal(COMMAND("export", "--checkpoint", run, "--output", "-"), 2);
  assert_non_null(strstr(command_err, "an export is a folder and cannot go to standard output\n"));
  assert_int_equal(COMMAND("export", "--checkpoint", run, "--output", scratch_path("x"), "more"),
                   2);
  assert_non_null(strstr(command_err, "unexpected argument \"more\""));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(a_checkpoint_is_named_or_that_of_a_run, setup),
      cmocka_unit_test(a_long_path_is_refused),
      cmocka_unit_test(a_request_has_the_options),
      cmocka_unit_test(names_of_repositories),
      cmocka_unit_test_setup(a_folder_has_no_options_of_checkpoints, setup),
      cmocka_unit_test_setup(an_export_needs_a_folder, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
