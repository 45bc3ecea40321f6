/* Commands that become another program, which is a script here: the evaluator's tasks, and
 * completion of the stages. Also how a profile is found. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/harness/scratch.h"

static char folder[PLM_PATH_SIZE];

/* Programs that write down their words and end with 9. */
static int setup(void **state)
{
  static const char *const names[] = {"plm-evaluator", "plm-packer", "plm-trainer"};
  (void)state;
  scratch_run(folder);
  assert_int_equal(chdir(folder), 0);
  for (size_t i = 0; i < 3; i++)
    command_case_program(names[i], "#!/bin/sh\necho \"${0##*/}\" >words\n"
                                   "for i; do echo \"<$i>\" >>words; done\nexit 9\n");
  return 0;
}

/* In a process of its own, which then becomes the program. */
static void becomes(const char *expected, const char *const *words)
{
  int status;
  fflush(NULL);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) _exit(command_case(words));
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 9);
  assert_string_equal(scratch_contents("words"), expected);
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- tasks of the evaluator -------------------------------------------------------------------
 */

static void each_task_has_its_command(void **state)
{
  static const char *const tasks[] = {"evaluate", "embed", "generate", "score", "predict", "probe"};
  (void)state;
  for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
    char expected[200];
    snprintf(expected, sizeof expected, "plm-evaluator\n<%s>\n<--checkpoint=a b>\n<--json>\n<-->\n",
             tasks[i]);
    becomes(expected, WORDS(tasks[i], "--checkpoint", "a b", "--json"));
  }
}

/* Options keep their order, and words stay words, also those that look like options. */
static void the_command_line_is_passed_on(void **state)
{
  (void)state;
  becomes("plm-evaluator\n<embed>\n<--checkpoint=c>\n<--set=a=b>\n<--output=o>\n<--per-token>\n"
          "<--set=c=d>\n<-->\n<one>\n<--two>\n",
          WORDS("embed", "--checkpoint", "c", "--set", "a=b", "--output=o", "one", "--per-token",
                "--set", "c=d", "--", "--two"));
}

static void a_program_that_is_missing_is_an_error(void **state)
{
  const char *before = command_programs;
  char expected[PLM_PATH_SIZE];
  (void)state;
  command_programs = folder;
  const int code = COMMAND("embed", "--checkpoint", "c", "one");
  snprintf(expected, sizeof expected, "plm-pipeline: %.3000s/plm-evaluator: No such file", folder);
  const int completion = COMMAND("completion", "bash", "plm-packer");
  command_programs = before;
  assert_int_equal(code, 1);
  assert_int_equal(completion, 1);
  snprintf(expected, sizeof expected, "plm-pipeline: cannot start %.3000s/plm-packer: ", folder);
  assert_int_equal(strncmp(command_err, expected, strlen(expected)), 0);
  assert_non_null(strstr(command_err, "  keep the four programs of one build in one folder\n"));
}

static void a_path_that_is_too_long_is_refused(void **state)
{
  static char long_path[PLM_PATH_SIZE];
  const char *before = command_programs;
  (void)state;
  memset(long_path, 'x', sizeof long_path - 1);
  command_programs = long_path;
  const int embed = COMMAND("embed", "--checkpoint", "c", "one");
  assert_non_null(strstr(command_err, "/plm-evaluator is longer than "));
  const int completion = COMMAND("completion", "bash", "plm-packer");
  command_programs = before;
  assert_int_equal(embed, 1);
  assert_int_equal(completion, 1);
  assert_non_null(strstr(command_err, "/plm-packer is longer than "));
}

/* ---- completion -------------------------------------------------------------------------------
 */

static void programs_complete_themselves(void **state)
{
  (void)state;
  becomes("plm-packer\n<--completion>\n<bash>\n", WORDS("completion", "bash", "plm-packer"));
  becomes("plm-trainer\n<--completion>\n<zsh>\n", WORDS("completion", "zsh", "plm-trainer"));
  becomes("plm-evaluator\n<--completion>\n<fish>\n", WORDS("completion", "fish", "plm-evaluator"));
  assert_int_equal(COMMAND("completion", "bash", "plm-pack"), 2);
  assert_int_equal(
      strncmp(command_err, "plm-pipeline: there is no completion for \"plm-pack\"\n", 52), 0);
  assert_int_equal(COMMAND("completion", "bash", "plm-packer", "more"), 2);
}

/* Every command, and options of its own. */
static void the_pipeline_is_completed_here(void **state)
{
  char own[1 << 17];
  (void)state;
  assert_int_equal(COMMAND("completion", "bash"), 0);
  assert_non_null(strstr(command_out, "plm-pipeline"));
  assert_non_null(strstr(command_out, "sweep"));
  assert_non_null(strstr(command_out, "--find-lr"));
  snprintf(own, sizeof own, "%s", command_out);
  assert_int_equal(COMMAND("completion", "bash", "plm-pipeline"), 0);
  assert_string_equal(command_out, own);
  assert_int_equal(COMMAND("completion", "fish"), 0);
  assert_string_not_equal(command_out, own);
  assert_non_null(strstr(command_out, "train a run for each combination of the values of --set"));
  assert_int_equal(COMMAND("completion"), 2);
  assert_int_equal(COMMAND("completion", "tcsh"), 2);
}

/* ---- profile ----------------------------------------------------------------------------------
 */

#define EVENT(name, cat, pid, dur, more)                                                        \
  "{\"name\":\"" name "\",\"cat\":\"" cat "\",\"ph\":\"X\",\"pid\":" pid ",\"tid\":0,\"ts\":0," \
  "\"dur\":" dur ",\"args\":{" more "}},\n"

/* Two ranks, of which the second takes three times as long for its operator. */
static const char profile[] =
    "{\"otherData\":{\"format\":\"plm-profile\",\"first_step\":10,\"last_step\":10,\"ranks\":2,"
    "\"threads\":1,\"device\":\"cpu\",\"isa\":\"avx2\",\"precision\":\"fp32\","
    "\"product_flops_per_second\":2e9,\"copy_bytes_per_second\":1e9},\"traceEvents\":[\n" EVENT(
        "step 10", "step", "0", "10000",
        "") EVENT("add", "operator", "0", "1000",
                  "\"shape\":\"8 x 9\",\"bytes\":8") EVENT("step 10", "step", "1", "10000", "")
        EVENT("add", "operator", "1", "3000",
              "\"shape\":\"8 x 9\",\"bytes\":8") "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":"
                                                 "0,\"args\":{\"name\":\"rank 0\"}}\n]}\n";

static void a_profile_is_that_of_a_file_or_a_run(void **state)
{
  char by_file[1 << 14];
  (void)state;
  assert_int_equal(COMMAND("profile", "run"), 1);
  assert_string_equal(command_err, "plm-pipeline: there is no file or folder run\n");
  assert_int_equal(mkdir("run", 0755), 0);
  static const char hint[] = "plm-pipeline: run has no profile\n  make one of some steps that are "
                             "still to come: `plm-pipeline up --profile 10-12`, or "
                             "trainer.profile.steps\n";
  assert_int_equal(COMMAND("profile", "run"), 1);
  assert_string_equal(command_err, hint);
  scratch_write("its", profile, sizeof profile - 1);
  assert_int_equal(COMMAND("profile", "its"), 0);
  snprintf(by_file, sizeof by_file, "%s", command_out);
  assert_non_null(strstr(by_file, "add"));
  assert_null(strstr(by_file, "8 x 9"));
  assert_int_equal(rename("its", "run/profile.json"), 0);
  assert_int_equal(COMMAND("profile", "run"), 0);
  assert_string_equal(command_out, by_file);
  assert_int_equal(COMMAND("profile", "--run", "run"), 0);
  assert_string_equal(command_out, by_file);
  assert_int_equal(COMMAND("profile", "run", "run"), 2);
  assert_int_equal(COMMAND("profile", "run", "--shapes"), 0);
  assert_non_null(strstr(command_out, "8 x 9"));
  scratch_write("other", "{}", 2);
  assert_int_equal(COMMAND("profile", "other"), 1);
  assert_non_null(strstr(command_err, "other"));
}

/* Without a rank, times are means. */
static void a_profile_may_be_that_of_one_rank(void **state)
{
  static const char *const times[] = {"2", "1", "3"};
  (void)state;
  scratch_write("its", profile, sizeof profile - 1);
  for (int rank = -1; rank < 2; rank++) {
    char number[16], expected[64];
    snprintf(number, sizeof number, "%d", rank);
    if (rank < 0)
      assert_int_equal(COMMAND("profile", "its", "--json"), 0);
    else
      assert_int_equal(COMMAND("profile", "its", "--json", "--rank", number), 0);
    snprintf(expected, sizeof expected, "\"ms\":%s", times[rank + 1]);
    if (strstr(command_out, expected) == NULL) fail_msg("%s: %s", expected, command_out);
  }
  assert_int_equal(COMMAND("profile", "its", "--rank", "2"), 2);
  assert_int_equal(COMMAND("profile", "its", "--rank", "-1"), 2);
  assert_int_equal(COMMAND("profile", "its", "--rank", "100000000"), 2);
}

int main(void)
{
  unsetenv("PLM_CONFIG");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(each_task_has_its_command, setup),
      cmocka_unit_test_setup(the_command_line_is_passed_on, setup),
      cmocka_unit_test_setup(a_program_that_is_missing_is_an_error, setup),
      cmocka_unit_test_setup(a_path_that_is_too_long_is_refused, setup),
      cmocka_unit_test_setup(programs_complete_themselves, setup),
      cmocka_unit_test_setup(the_pipeline_is_completed_here, setup),
      cmocka_unit_test_setup(a_profile_is_that_of_a_file_or_a_run, setup),
      cmocka_unit_test_setup(a_profile_may_be_that_of_one_rank, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
