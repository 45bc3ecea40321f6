/* The command line with which the supervisor starts a trainer with several ranks. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/process/cgroup.h"
#include "common/base/text/text.h"
#include "stages/supervisor/gang/gang_command.h"
#include "tests/support/harness/scratch.h"

/* A folder with an mpirun of ours, which is all that PATH has. */
static int prepare(void **state)
{
  (void)state;
  const char *program = scratch_path("mpirun");
  const char text[] = "#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n";
  scratch_write(program, text, sizeof text - 1);
  if (chmod(program, 0755) != 0) return 1;
  setenv("PATH", scratch_directory(), 1);
  return unsetenv("PLM_MPI_LIBRARY");
}

static void load(const char *yaml, struct plm_config *config)
{
  scratch_write(scratch_path("pipeline.yaml"), yaml, strlen(yaml));
  assert_int_equal(plm_config_load(scratch_path("pipeline.yaml"), NULL, 0, config, NULL, NULL),
                   PLM_OK);
}

/* The arguments after the program, separated by blanks. The caller frees them. */
static char *line_of(const struct plm_config *config)
{
  char *rank_argv[] = {(char *)"plm-trainer", (char *)"-c", (char *)"f", NULL};
  struct plm_gang_command command;
  struct plm_text text = {0};
  assert_int_equal(plm_gang_command_make(config, rank_argv, &command, NULL), PLM_OK);
  assert_string_equal(command.argv[0], scratch_path("mpirun"));
  for (size_t i = 1; i < command.count; i++)
    plm_text_printf(&text, "%s%s", i == 1 ? "" : " ", command.argv[i]);
  assert_null(command.argv[command.count]);
  plm_gang_command_deinit(&command);
  return text.data;
}

static void ranks_run_on_this_host_by_default(void **state)
{
  (void)state;
  struct plm_config config;
  char expected[512];
  const uint32_t cores = plm_usable_cores();
  load("trainer: {ranks: 4}\n", &config);
  assert_true(plm_stage_is_gang(&config, PLM_KIND_TRAINER));
  assert_false(plm_stage_is_gang(&config, PLM_KIND_EVALUATOR));
  char *line = line_of(&config);
  snprintf(expected, sizeof expected,
           "-np 4 --bind-to none --map-by slot --host localhost:%u --oversubscribe "
           "plm-trainer -c f",
           cores < 4 ? cores : 4);
  assert_string_equal(line, expected);
  free(line);
  plm_config_deinit(&config);
}

static void other_hosts_get_the_variables_of_the_project(void **state)
{
  (void)state;
  struct plm_config config;
  load("trainer: {ranks: 4, hosts: [a:2, b-1:6]}\n", &config);
  setenv("PLM_LOG_BYTES", "a=b", 1);
  setenv("PLM_LOG_FILE", "/log", 1); /* this one and the next four hold for one process or host */
  setenv("PLM_GANG_FOLDER", "/dev/shm/x.mpi", 1);
  setenv("PLM_READY_FD", "7", 1);
  setenv("PLM_INSTANCE", "0", 1);
  setenv("PLM_SUPERVISED", "1.trainer.0", 1);
  setenv("OTHER", "PLM_X=1", 1);
  setenv("PLM_LOG_TIMES", "1", 1);
  char *line = line_of(&config);
  const char *hosts = strstr(line, "--map-by slot --host a:2,b-1:6 -x ");
  assert_non_null(hosts);
  assert_null(strstr(line, "--oversubscribe"));
  assert_null(strstr(line, "orte_keep_fqdn_hostnames"));
  assert_non_null(strstr(line, " -x PLM_LOG_BYTES "));
  const char *times = strstr(line, " -x PLM_LOG_TIMES ");
  assert_non_null(times);
  assert_null(strstr(times + 5, "PLM_LOG_TIMES")); /* also if it is set: once */
  static const char *const absent[] = {"LOG_FILE",   "READY_FD", "INSTANCE",
                                       "SUPERVISED", "FOLDER",   "OTHER"};
  for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
    assert_null(strstr(line, absent[i]));
  free(line);
  plm_config_deinit(&config);
  load("trainer: {ranks: 4, hosts: [a.example:2, b.example:2]}\n", &config);
  line = line_of(&config);
  assert_non_null(strstr(line, "--host a.example:2,b.example:2 --mca orte_keep_fqdn_hostnames 1 "));
  free(line);
  plm_config_deinit(&config);
}

static void what_is_missing_is_said(void **state)
{
  (void)state;
  struct plm_config config;
  struct plm_error error = {0};
  char programs[4096];
  snprintf(programs, sizeof programs, "%s/bin", scratch_directory());
  mkdir(programs, 0755);
  load("trainer: {ranks: 2, hosts: ['localhost:2']}\n", &config);
  assert_int_equal(plm_gang_check(&config, &error), PLM_CONFIG);
  assert_non_null(strstr(error.what, "lib/plm-pipeline/libplm_mpi.so does not exist"));
  assert_non_null(strstr(error.hint, "Debian: libopenmpi-dev"));
  scratch_write(scratch_path("engine.so"), "", 0);
  setenv("PLM_MPI_LIBRARY", scratch_path("engine.so"), 1);
  assert_int_equal(plm_gang_check(&config, NULL), PLM_OK);
  setenv("PATH", programs, 1);
  scratch_write(scratch_path("bin/mpirun"), "#!/bin/sh\necho HYDRA\n", 21);
  assert_int_equal(chmod(scratch_path("bin/mpirun"), 0755), 0);
  assert_int_equal(plm_gang_check(&config, &error), PLM_CONFIG);
  assert_non_null(strstr(error.what, "bin/mpirun is not the mpirun of Open MPI"));
  assert_int_equal(unlink(scratch_path("bin/mpirun")), 0);
  assert_int_equal(plm_gang_check(&config, &error), PLM_CONFIG);
  assert_non_null(strstr(error.what, "mpirun is not on PATH"));
  unsetenv("PATH");
  assert_int_equal(plm_gang_check(&config, &error), PLM_CONFIG);
  setenv("PATH", scratch_directory(), 1);
  plm_config_deinit(&config);
  load("trainer: {ranks: 2, hosts: ['plm-no-such-host.invalid:2']}\n", &config);
  assert_int_equal(plm_gang_check(&config, &error), PLM_CONFIG);
  char here[256], expected[300];
  assert_int_equal(gethostname(here, sizeof here), 0);
  snprintf(expected, sizeof expected, "the first host must be this one (%.200s), ", here);
  assert_non_null(strstr(error.what, expected));
  plm_config_deinit(&config);
}

static void the_banner_of_mpirun_is_known(void **state)
{
  (void)state;
  assert_true(plm_gang_is_banner(
      "mpirun detected that one or more processes exited with non-zero status, thus causing"));
  assert_true(plm_gang_is_banner("  Process name: [[15176,1],1]"));
  assert_true(plm_gang_is_banner("  Exit code:    3"));
  assert_true(plm_gang_is_banner("[vm:15917] Read -1, expected 435456, errno = 3"));
  assert_false(plm_gang_is_banner("plm-trainer: error: no disk"));
  assert_false(plm_gang_is_banner("mpirun noticed that process rank 1 with PID 7 on node a exited "
                                  "on signal 9 (Killed)."));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_run_on_this_host_by_default),
      cmocka_unit_test(other_hosts_get_the_variables_of_the_project),
      cmocka_unit_test(what_is_missing_is_said),
      cmocka_unit_test(the_banner_of_mpirun_is_known),
  };
  return cmocka_run_group_tests(tests, prepare, NULL);
}
