/* `plm-pipeline up`: which words and options go together, and what a dry run says would start. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/run/run.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/harness/scratch.h"

static char run[PLM_PATH_SIZE], file[PLM_PATH_SIZE];

static int setup(void **state)
{
  char yaml[PLM_PATH_SIZE + 400];
  (void)state;
  scratch_run(run);
  assert_int_equal(plm_path_join(file, run, "its.yaml", NULL), PLM_OK);
  snprintf(yaml, sizeof yaml,
           "run: %.4000s\ncorpus: null\npacker: {instances: 3}\ntrainer: {steps: 20}\n"
           "network: {feed: 'ipc://f', evaluation_feed: 'ipc://e', announcements: 'ipc://a'}\n",
           run);
  scratch_write(file, yaml, strlen(yaml));
  assert_int_equal(chdir(run), 0);
  return 0;
}

/* The first line of what it says, without the name of the program. */
static void refuses(const char *what, const char *const *words)
{
  char said[1000], expected[1000];
  const int code = command_case(words);
  snprintf(said, sizeof said, "%.*s", (int)strcspn(command_err, "\n"), command_err);
  snprintf(expected, sizeof expected, "plm-pipeline: %s", what);
  assert_string_equal(said, expected);
  assert_string_equal(command_out, "");
  assert_int_equal(code, 2);
}
#define REFUSES(what, ...) refuses(what, (const char *const[]){"up", __VA_ARGS__, NULL})

/* ---- words ------------------------------------------------------------------------------------
 */

/* The command lines that would start: a letter for each stage. */
static void expect_stages(const char *stages)
{
  static const char *const programs[] = {"/nowhere/plm-trainer ", "/nowhere/plm-evaluator ",
                                         "/nowhere/plm-packer "};
  static const char letters[] = "tep";
  char found[4] = "";
  size_t count = 0;
  for (int i = 0; i < 3; i++)
    if (strstr(command_out, programs[i]) != NULL) found[count++] = letters[i];
  found[count] = '\0';
  assert_string_equal(found, stages);
}

static void words_are_stages_or_the_file(void **state)
{
  (void)state;
  assert_int_equal(COMMAND("up", "--dry-run", file), 0);
  expect_stages("tep");
  assert_int_equal(COMMAND("up", "--dry-run", file, "trainer"), 0);
  expect_stages("t");
  assert_int_equal(COMMAND("up", "--dry-run", "its.yaml", "packer", "evaluator"), 0);
  expect_stages("ep");
  assert_int_equal(COMMAND("up", "--dry-run", "-c", file, "packer", "packer"), 0);
  expect_stages("p");
  scratch_write("plain", "corpus: null\n", 13); /* the name of a file needs no point */
  assert_int_equal(COMMAND("up", "--dry-run", "plain", "trainer"), 0);
  expect_stages("t");
  REFUSES("\"packers\" is not a stage, and there is no such file", "--dry-run", "packers");
  REFUSES("\"its.yaml\" is not a stage", "--dry-run", "trainer", "its.yaml");
  REFUSES("\"b\" is not a stage", "--dry-run", file, "b");
}

static void packers_are_scaled(void **state)
{
  (void)state;
  assert_int_equal(COMMAND("up", "--dry-run", file), 0);
  assert_non_null(strstr(command_out, "    -> packer x 3\n"));
  assert_non_null(strstr(command_out, "   (x 3)\n"));
  assert_int_equal(COMMAND("up", "--dry-run", file, "--scale", "packer=5"), 0);
  assert_non_null(strstr(command_out, "    -> packer x 5\n"));
  assert_int_equal(COMMAND("up", "--dry-run", file, "--scale", "packer=1"), 0);
  assert_null(strstr(command_out, "(x "));
  REFUSES("expected packer=N with N from 0 to 256, found \"packer=257\"", file, "--scale",
          "packer=257");
}

/* ---- options ----------------------------------------------------------------------------------
 */

static void launches_have_a_stage_and_a_command(void **state)
{
  static const char *const bad[] = {"trainer",    "trainer=",      "=srun",
                                    "train=srun", "trainers=srun", "packer.1=srun"};
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char expected[100];
    snprintf(expected, sizeof expected, "--launch \"%s\" is not of the form STAGE=COMMAND", bad[i]);
    REFUSES(expected, "--dry-run", file, "--launch", "packer=x", "--launch", bad[i]);
  }
  assert_int_equal(COMMAND("up", "--dry-run", file, "--launch", "packer=a=b"), 0);
}

static void an_evaluator_apart_is_alone(void **state)
{
  static const char alone[] =
      "--apart is only for the evaluator: plm-pipeline up FILE evaluator --apart";
  static const char *const flags[] = {"--detach", "--wait", "--dry-run"};
  (void)state;
  REFUSES(alone, file, "--apart");
  REFUSES(alone, file, "--apart", "trainer");
  REFUSES(alone, file, "--apart", "evaluator", "trainer");
  REFUSES(alone, file, "--apart", "evaluator", "packer");
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
    char expected[100];
    snprintf(expected, sizeof expected, "--apart and %s exclude each other", flags[i]);
    REFUSES(expected, file, "evaluator", "--apart", flags[i]);
  }
  REFUSES("--apart and --scale exclude each other", file, "evaluator", "--apart", "--scale",
          "packer=1");
  REFUSES("--apart and --resume exclude each other", file, "evaluator", "--apart", "--resume",
          "auto");
  REFUSES("--apart and --launch exclude each other", file, "evaluator", "--apart", "--launch",
          "evaluator=x");
}

/* A profile is of steps that the run has, and goes to the trainer alone. */
static void a_profile_is_of_steps_of_the_run(void **state)
{
  (void)state;
  assert_int_equal(COMMAND("up", "--dry-run", file, "--profile", "19-20"), 0);
  assert_non_null(
      strstr(command_out, " --set trainer.profile.steps=19-20\n  /nowhere/plm-evaluator "));
  assert_int_equal(COMMAND("up", "--dry-run", file), 0);
  assert_null(strstr(command_out, "trainer.profile.steps"));
  REFUSES("--profile: step 21 is beyond the last step, 20 (trainer.steps)", "--dry-run", file,
          "--profile", "19-21");
  REFUSES("--profile needs the trainer, which `up` does not start here", "--dry-run", file,
          "evaluator", "packer", "--profile", "19-20");
  assert_int_equal(COMMAND("up", "--dry-run", file, "--profile", "x"), 2);
  assert_int_equal(strncmp(command_err, "plm-pipeline: --profile: ", 25), 0);
}

static void finding_rates_starts_no_run(void **state)
{
  static const char *const flags[] = {"detach", "wait", "apart", "dry-run"}, *const values[] = {
                                                                                 "scale", "resume",
                                                                                 "profile"};
  char word[40], expected[100];
  (void)state;
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
    snprintf(word, sizeof word, "--%s", flags[i]);
    snprintf(expected, sizeof expected,
             "--find-lr starts no run, so --%s has no meaning; leave it out", flags[i]);
    REFUSES(expected, file, "--find-lr", word);
  }
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    snprintf(word, sizeof word, "--%s=x", values[i]);
    snprintf(expected, sizeof expected,
             "--find-lr starts no run, so --%s has no meaning; leave it out", values[i]);
    REFUSES(expected, file, "--find-lr", word);
  }
  REFUSES("--find-lr takes no stages; name only the configuration", file, "--find-lr", "trainer",
          "evaluator");
  REFUSES("--find-lr takes no stages; name only the configuration", file, "--find-lr", "packer",
          "evaluator");
  REFUSES("--lr-range and --lr-steps need --find-lr", file, "--lr-range", "1e-4:1");
  REFUSES("--lr-range and --lr-steps need --find-lr", file, "--lr-steps", "20");
  REFUSES("--lr-range needs LOW:HIGH, not \"1\"", file, "--find-lr", "--lr-range", "1");
  REFUSES("--find-lr needs a corpus on this host, but `corpus` is null", file, "--find-lr");
}

/* ---- what would start --------------------------------------------------------------------------
 */

static void a_dry_run_says_what_would_start(void **state)
{
  char expected[8 * PLM_PATH_SIZE], folder[PLM_PATH_SIZE];
  (void)state;
  assert_int_equal(COMMAND("up", "--dry-run", file, "trainer", "evaluator", "--set",
                           "trainer.threads=3", "--set", "evaluator.threads=5", "--set",
                           "network.feed=tcp://127.0.0.1:*"),
                   0);
  assert_non_null(realpath(run, folder));
  snprintf(expected, sizeof expected,
           "a new run would start\n"
           "graph\n"
           "  corpus        (that of the packers)\n"
           "    -> trainer    feed tcp://127.0.0.1:*, announcements ipc://%s/a\n"
           "    -> evaluator  feed ipc://%s/e\n"
           "  run           %s\n"
           "command lines\n"
           "  /nowhere/plm-trainer -c %s/pipeline.yaml --run %s\n"
           "  /nowhere/plm-evaluator -c %s/pipeline.yaml --run %s\n"
           "memory\n"
           "  unknown: plm-trainer did not answer\n"
           "cores\n  ",
           folder, folder, run, run, run, run, run);
  assert_int_equal(strncmp(command_out, expected, strlen(expected)), 0);
  assert_non_null(strstr(command_out, " here; trainer.threads 3, evaluator.threads 5\nports\n"
                                      "  network.feed             tcp://127.0.0.1:*: free\n"));
  assert_int_equal(COMMAND("up", "--dry-run", file, "packer"), 0);
  assert_non_null(strstr(command_out, " here; trainer.threads 0 (all), evaluator.threads auto\n"));
}

int main(void)
{
  unsetenv("PLM_CONFIG");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(words_are_stages_or_the_file, setup),
      cmocka_unit_test_setup(packers_are_scaled, setup),
      cmocka_unit_test_setup(launches_have_a_stage_and_a_command, setup),
      cmocka_unit_test_setup(an_evaluator_apart_is_alone, setup),
      cmocka_unit_test_setup(a_profile_is_of_steps_of_the_run, setup),
      cmocka_unit_test_setup(finding_rates_starts_no_run, setup),
      cmocka_unit_test_setup(a_dry_run_says_what_would_start, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
