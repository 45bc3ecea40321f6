/* `plm-pipeline up`: which words and options go together, and what a dry run says would start. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/process/cgroup.h"
#include "common/run/run.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/cases/control_group.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/scratch.h"

static char run[PLM_PATH_SIZE], file[PLM_PATH_SIZE];
static bool on_nfs; /* all files seem to be on NFS */

/* Takes the place of libc's function in this program. */
int statfs(const char *path, struct statfs *information)
{
  const int result = (int)syscall(SYS_statfs, path, information);
  if (on_nfs) information->f_type = 0x6969;
  return result;
}

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

#define REFUSES(what, ...) COMMAND_REFUSES(2, what, "up", __VA_ARGS__)

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
  assert_non_null(strstr(command_out, "\nports\n"));
  assert_non_null(strstr(command_out, "memory\n  unknown: plm-trainer did not answer\n"));
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

/* `up` starts them itself, unless there is one, another stage, or somebody else who does. */
static void ranks_need_an_engine(void **state)
{
  static const char mpirun[] = "#!/bin/sh\necho Open MPI\n";
  char programs[PLM_PATH_SIZE];
  (void)state;
  scratch_write("mpirun", mpirun, sizeof mpirun - 1);
  assert_int_equal(chmod("mpirun", 0755), 0);
  snprintf(programs, sizeof programs, "%.2000s:%.2000s", run, getenv("PATH"));
  setenv("PATH", programs, 1);
  setenv("PLM_MPI_LIBRARY", "/nowhere.so", 1);
  REFUSES("this build has no MPI, which trainer.ranks above 1 needs: /nowhere.so does not exist",
          "--dry-run", file, "--set", "trainer.ranks=2");
  assert_int_equal(COMMAND("up", "--dry-run", file, "--set", "trainer.ranks=1"), 0);
  assert_int_equal(COMMAND("up", "--dry-run", file, "packer", "--set", "trainer.ranks=2"), 0);
  assert_int_equal(
      COMMAND("up", "--dry-run", file, "--set", "trainer.ranks=2", "--launch", "trainer=srun"), 0);
  unsetenv("PLM_MPI_LIBRARY");
  setenv("PATH", strchr(programs, ':') + 1, 1);
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

/* Each corpus of a mixture has a line, and the ranks of the trainer one. */
static void a_dry_run_names_corpora_and_ranks(void **state)
{
  static const struct written_corpus small = {.documents = {20, 2, 2}, .longest = 10},
                                     other = {.documents = {21, 2, 2}, .longest = 10};
  char one[PLM_PATH_SIZE], two[PLM_PATH_SIZE];
  char set[3 * PLM_PATH_SIZE], expected[3 * PLM_PATH_SIZE];
  (void)state;
  plm_corpus_close(written_corpus_open("one", &small));
  plm_corpus_close(written_corpus_open("two", &other));
  snprintf(one, sizeof one, "%s", scratch_path("one"));
  snprintf(two, sizeof two, "%s", scratch_path("two"));
  snprintf(set, sizeof set, "corpus=[{path: %.4000s}, {path: %.4000s}]", one, two);
  if (COMMAND("up", "--dry-run", file, "packer", "evaluator", "--set", set) != 0)
    fail_msg("%s", command_err);
  snprintf(expected, sizeof expected,
           "graph\n  corpus        %.4000s\n                %.4000s\n    -> packer x 3\n", one,
           two);
  assert_non_null(strstr(command_out, expected));
  assert_null(strstr(command_out, " ranks\n"));
  assert_int_equal(COMMAND("up", "--dry-run", file, "evaluator", "--resume", "never"), 0);
  assert_int_equal(COMMAND("up", "--dry-run", file, "evaluator", "--resume", "auto"), 0);
  on_nfs = true; /* packers need a local corpus */
  snprintf(expected, sizeof expected, "%.4000s lies on a remote file system (NFS)", one);
  REFUSES(expected, "--dry-run", file, "--set", set);
  assert_int_equal(COMMAND("up", "--dry-run", file, "evaluator", "--set", set), 0);
  on_nfs = false;
}

/* The lines of a dry run between two headings. */
static void expect_part(const char *from, const char *to, const char *expected)
{
  const char *begin = strstr(command_out, from), *end = begin != NULL ? strstr(begin, to) : NULL;
  char part[4096];
  if (end == NULL) fail_msg("no part from %s to %s: %s", from, to, command_out);
  snprintf(part, sizeof part, "%.*s", (int)(end - begin), begin);
  assert_string_equal(part, expected);
}

/* The trainer is a script that answers with this line of JSON. */
static void with_estimate(const char *json)
{
  command_case_program("plm-trainer", command_case_prints(json));
  const int code = COMMAND("up", "--dry-run", file, "trainer");
  command_programs = "/nowhere";
  assert_int_equal(code, 0);
}

static void memory_is_that_of_the_trainer(void **state)
{
  (void)state;
  plm_cgroup_read_below("/no such groups");
  with_estimate("{\"total\":1500000,\"parameter_count\":1234,\"free_bytes\":2500000,\"fits\":true,"
                "\"largest_micro_batch_tokens\":4096}");
  expect_part("memory\n", "disk\n",
              "memory\n  trainer       1.5 MB for 1234 parameters (2.5 MB are free)\n"
              "                this fits; largest trainer.micro_batch_tokens that fits: 4096\n");
  with_estimate("{\"total\":1500000,\"parameter_count\":1234,\"fits\":false,"
                "\"largest_micro_batch_tokens\":1,\"unknown\":\"no driver\"}");
  expect_part("memory\n", "disk\n",
              "memory\n  trainer       1.5 MB for 1234 parameters (free memory is unknown: no "
              "driver)\n                this does not fit; largest trainer.micro_batch_tokens that "
              "fits: 1\n");
  with_estimate("{\"total\":1500000,\"parameter_count\":1234,\"fits\":false}");
  expect_part("memory\n", "disk\n",
              "memory\n  trainer       1.5 MB for 1234 parameters (free memory is unknown: no "
              "answer)\n                no micro-batch fits\n");
  with_estimate("{\"device\":\"cuda\",\"total\":9,\"device_bytes\":3500000,\"host_bytes\":700000,"
                "\"parameter_count\":1234,\"free_bytes\":1}");
  expect_part("memory\n", "disk\n",
              "memory\n  trainer       3.5 MB for 1234 parameters, on the CUDA device (0.0 MB are "
              "free); 0.7 MB on the host\n");
  plm_cgroup_read_below("");
}

static void a_control_group_limits_memory(void **state)
{
  (void)state;
  control_group_begin();
  control_group_put("memory.max", "3000000\n");
  control_group_put("memory.current", "1000000\n");
  with_estimate("{\"total\":1500000,\"parameter_count\":1234,\"free_bytes\":2500000}");
  expect_part("memory\n", "disk\n",
              "memory\n  trainer       1.5 MB for 1234 parameters (2.5 MB are free; the control "
              "group of this process may use 3.0 MB)\n");
  with_estimate("{\"device\":\"cuda\",\"parameter_count\":1234,\"free_bytes\":2500000}");
  control_group_end();
  assert_null(strstr(command_out, "control group"));
}

static void ranks_and_disk_are_estimated(void **state)
{
  (void)state;
  with_estimate("{\"parameter_count\":1000000,\"ranks\":4,\"hosts\":2,\"owner_imbalance\":1.25,"
                "\"sent_in_group\":1500000,\"group_size\":2,\"sent_on_rail\":250000}");
  expect_part("ranks\n", "disk\n",
              "ranks\n  4 on 2 hosts; memory is that of the rank that needs most\n"
              "  the largest part of Muon's work is 1.25 times the mean\n"
              "  a rank sends 1.50 MB a step within its group of 2, and 0.25 MB to other groups\n");
  assert_non_null(strstr(command_out, ": 12.0 MB each ("));
  assert_non_null(strstr(command_out, "\n                these fit\n"));
  with_estimate("{\"parameter_count\":1e15,\"ranks\":2}");
  expect_part("ranks\n", "disk\n",
              "ranks\n  2 on 1 host; memory is that of the rank that needs most\n"
              "  the largest part of Muon's work is 1.00 times the mean\n"
              "  a rank sends 0.00 MB a step within its group of 2, and 0.00 MB to other groups\n");
  assert_non_null(strstr(command_out, "\n                these do not fit: free some space"));
  with_estimate("{\"parameter_count\":1,\"ranks\":1}");
  assert_null(strstr(command_out, "\nranks\n"));
}

int main(void)
{
  unsetenv("PLM_CONFIG");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(words_are_stages_or_the_file, setup),
      cmocka_unit_test_setup(packers_are_scaled, setup),
      cmocka_unit_test_setup(ranks_need_an_engine, setup),
      cmocka_unit_test_setup(launches_have_a_stage_and_a_command, setup),
      cmocka_unit_test_setup(an_evaluator_apart_is_alone, setup),
      cmocka_unit_test_setup(a_profile_is_of_steps_of_the_run, setup),
      cmocka_unit_test_setup(finding_rates_starts_no_run, setup),
      cmocka_unit_test_setup(a_dry_run_says_what_would_start, setup),
      cmocka_unit_test_setup(a_dry_run_names_corpora_and_ranks, setup),
      cmocka_unit_test_setup(memory_is_that_of_the_trainer, setup),
      cmocka_unit_test_setup(a_control_group_limits_memory, setup),
      cmocka_unit_test_setup(ranks_and_disk_are_estimated, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
