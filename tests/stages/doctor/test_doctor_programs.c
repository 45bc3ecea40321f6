/* What `doctor` finds out about programs, GPUs, names and clocks, and from what the trainer, a
 * script here, says of the run; and how the command prints findings. */
#include "stages/doctor/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/base/process/cgroup.h"
#include "stages/supervisor/prepare/trainer_estimate.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/cases/control_group.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static char run[PLM_PATH_SIZE], programs[PLM_PATH_SIZE];
static struct plm_config config;
static struct plm_doctor doctor;

/* What the host calls itself, and its clock: these take the places of libc's functions. */
static const char *host = "127.0.0.1";
static time_t clock_s; /* 0: the true one */

int gethostname(char *name, size_t size)
{
  return snprintf(name, size, "%s", host) < (int)size ? 0 : -1;
}

time_t time(time_t *now)
{
  const time_t said = clock_s != 0 ? clock_s : (time_t)plm_clock_wall_s();
  if (now != NULL) *now = said;
  return said;
}

static void write_program(const char *name, const char *text, mode_t mode)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, programs, name, NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
  assert_int_equal(chmod(path, mode), 0);
}

static int setup(void **state)
{
  (void)state;
  scratch_run(run);
  scratch_run(programs);
  write_program("plm-packer", "#!/bin/sh\n", 0755);
  write_program("plm-trainer", "#!/bin/sh\nexit 1\n", 0755);
  write_program("plm-evaluator", "#!/bin/sh\n", 0755);
  unsetenv("PLM_CPU_ISA");
  unsetenv("ONEDNN_MAX_CPU_ISA");
  unsetenv("DNNL_MAX_CPU_ISA");
  plm_cgroup_read_below("/no such groups");
  return 0;
}

static int end(void **state)
{
  (void)state;
  plm_config_deinit(&config);
  config = (struct plm_config){0};
  plm_cgroup_read_below("");
  return 0;
}

static void examine(const char *yaml)
{
  char text[PLM_PATH_SIZE + 1000];
  struct plm_error error = {0};
  plm_config_deinit(&config);
  snprintf(text, sizeof text, "%s\nrun: %.4000s\n", yaml, run);
  if (plm_config_load_text(text, strlen(text), &config, &error) != PLM_OK)
    fail_msg("%s", error.what);
  doctor = (struct plm_doctor){.config = &config, .program_directory = programs, .root = run};
  plm_doctor_programs(&doctor);
}

/* The trainer answers with this line of JSON. */
static void answer(const char *json)
{
  write_program("plm-trainer", command_case_prints(json), 0755);
  examine("");
}

static size_t findings_of(const char *check, const struct plm_finding **first)
{
  size_t count = 0;
  for (size_t i = 0; i < doctor.count; i++) {
    if (strcmp(doctor.findings[i].check, check) != 0) continue;
    if (count++ == 0) *first = &doctor.findings[i];
  }
  return count;
}

static void expect(const char *check, enum plm_grade grade, const char *found, const char *fix)
{
  const struct plm_finding *finding;
  assert_int_equal(findings_of(check, &finding), 1);
  assert_string_equal(finding->found, found);
  assert_string_equal(finding->fix, fix);
  assert_int_equal(finding->grade, grade);
}

static void expect_none(const char *check)
{
  const struct plm_finding *finding;
  assert_int_equal(findings_of(check, &finding), 0);
}

/* ---- programs and devices ---------------------------------------------------------------------
 */

static void programs_are_in_one_folder(void **state)
{
  static const char *const names[] = {"plm-packer", "plm-trainer", "plm-evaluator"};
  const struct plm_finding *finding;
  char found[PLM_PATH_SIZE + 100];
  (void)state;
  examine("");
  snprintf(found, sizeof found, "plm-pipeline %s, with its stages in %.300s", PLM_VERSION,
           programs);
  expect("programs", PLM_GRADE_OK, found, "");
  for (size_t i = 0; i < 3; i++) {
    write_program(names[i], "", 0644);
    examine("");
    snprintf(found, sizeof found, "%.300s/%s is missing or not executable", programs, names[i]);
    expect("programs", PLM_GRADE_PROBLEM, found,
           "build it with `make`, and keep the four programs in one folder");
    write_program(names[i], "#!/bin/sh\nexit 1\n", 0755);
  }
  snprintf(programs, sizeof programs, "/nowhere");
  examine("");
  assert_int_equal(findings_of("programs", &finding), 3);
}

/* A file below the folder in which the GPU is looked for. */
static void system_file(const char *name, const char *text)
{
  char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%.4000s%s", run, name);
  for (char *slash = path + strlen(run) + 1; (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
    *slash = '\0';
    assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
  }
  scratch_write(path, text, strlen(text));
}

static void card(const char *vendor, const char *class)
{
  static int number;
  char name[80];
  snprintf(name, sizeof name, "/sys/bus/pci/devices/%d/vendor", ++number);
  system_file(name, vendor);
  snprintf(name, sizeof name, "/sys/bus/pci/devices/%d/class", number);
  system_file(name, class);
}

/* What is found if nobody wants a GPU, and if the trainer or the evaluator wants one. */
static void expect_driver(enum plm_grade grade, const char *found, const char *fix)
{
  static const char *const wanting[] = {"", "trainer: {device: cuda}", "evaluator: {device: cuda}"};
  for (size_t i = 0; i < sizeof wanting / sizeof *wanting; i++) {
    examine(wanting[i]);
    expect("driver", i > 0 && grade == PLM_GRADE_WARNING ? PLM_GRADE_PROBLEM : grade, found, fix);
  }
}

static void a_gpu_needs_a_driver_and_its_device(void **state)
{
  static const char install[] = "install the NVIDIA driver (Debian: nvidia-driver) and restart";
  char path[PLM_PATH_SIZE];
  (void)state;
  setenv("PLM_CUDA_LIBRARY", "/nowhere/libplm_cuda.so", 1);
  card("0x8086\n", "0x030000\n"); /* of another vendor */
  card("0x10de\n", "0x040300\n"); /* for sound */
  examine("");
  expect("driver", PLM_GRADE_OK, "no NVIDIA GPU", "");
  examine("evaluator: {device: cuda}");
  expect("driver", PLM_GRADE_PROBLEM, "no NVIDIA GPU, but the configuration asks for cuda",
         "set trainer.device and evaluator.device to auto or cpu");
  card("0x10de\n", "0x030200\n");
  expect_driver(PLM_GRADE_WARNING, "1 NVIDIA GPU, but no driver is loaded", install);
  card("0x10de\n", "0x030000\n");
  expect_driver(PLM_GRADE_WARNING, "2 NVIDIA GPUs, but no driver is loaded", install);
  system_file("/proc/driver/nvidia/version", "NVRM version: 580.1\nmore\n");
  expect_driver(PLM_GRADE_WARNING, "2 NVIDIA GPUs, but /dev/nvidia0 is missing",
                "run `nvidia-modprobe -c 0 -u` as root; give a container its GPUs (--gpus all)");
  system_file("/dev/nvidia0", "");
  examine("");
  const struct plm_finding *finding;
  assert_int_equal(findings_of("driver", &finding), 2);
  assert_string_equal(finding[0].found, "1 GPU; NVRM version: 580.1");
  assert_int_equal(finding[0].grade, PLM_GRADE_OK);
  assert_string_equal(finding[1].found,
                      "there is a GPU, but the CUDA backend /nowhere/libplm_cuda.so is missing");
  assert_int_equal(finding[1].grade, PLM_GRADE_WARNING);
  setenv("PLM_CUDA_LIBRARY", "/dev/null", 1);
  system_file("/dev/nvidia1", "");
  expect_driver(PLM_GRADE_OK, "2 GPUs; NVRM version: 580.1", "");
  snprintf(path, sizeof path, "%.4000s/dev/nvidia2", run);
  assert_int_equal(symlink("/nowhere", path), 0);
  expect_driver(PLM_GRADE_WARNING, "you may not open 1 of 3 device nodes /dev/nvidia*",
                "add yourself to the group that owns them: ls -l /dev/nvidia0");
  unsetenv("PLM_CUDA_LIBRARY");
}

#define UNKNOWN "a-label-of-more-than-63-characters-in-which-nobody-needs-to-ask-a-server"

static void the_host_name_is_looked_up(void **state)
{
  (void)state;
  examine("");
  plm_doctor_host(&doctor);
  expect("host name", PLM_GRADE_OK, "127.0.0.1 resolves", "");
  host = UNKNOWN;
  examine("");
  plm_doctor_host(&doctor);
  expect("host name", PLM_GRADE_OK, UNKNOWN " does not resolve; only several ranks need it", "");
  examine("trainer: {ranks: 2}");
  plm_doctor_host(&doctor);
  expect("host name", PLM_GRADE_PROBLEM, UNKNOWN " does not resolve, which Open MPI needs",
         "add a line for it to /etc/hosts: 127.0.1.1 " UNKNOWN);
  host = "127.0.0.1";
}

static void the_clock_is_looked_at(void **state)
{
  static const char now[] = "2025-01-01 00:00:00 UTC";
  const struct plm_finding *finding;
  (void)state;
  for (int early = 0; early < 2; early++) {
    clock_s = 1735689600 - early;
    examine("");
    plm_doctor_host(&doctor);
    assert_int_equal(findings_of("clock", &finding), 1);
    assert_int_equal(finding->grade, early ? PLM_GRADE_WARNING : PLM_GRADE_OK);
    assert_int_equal(strncmp(finding->found, now, strlen(now)) == 0, !early);
  }
  expect("clock", PLM_GRADE_WARNING, "it says 2024-12-31 23:59:59 UTC",
         "set it: logs and metrics carry its time");
  for (int ahead = 0; ahead < 2; ahead++) { /* files have another time */
    clock_s = (time_t)plm_clock_wall_s() + (ahead ? 1000 : -1000);
    examine("");
    plm_doctor_files(&doctor);
    assert_int_equal(findings_of("clock", &finding), 1);
    assert_int_equal(finding->grade, PLM_GRADE_WARNING);
    assert_non_null(strstr(finding->found, ahead ? " s behind this " : " s ahead of "));
  }
  clock_s = 0;
}

/* ---- what the trainer says --------------------------------------------------------------------
 */

static void a_trainer_that_does_not_answer(void **state)
{
  static const char fix[] = "`plm-trainer --dry-run` says more";
  (void)state;
  write_program("plm-trainer", "#!/bin/sh\nprintf 'a warning\\nthe error\\n\\n' >&2\nexit 2\n",
                0755);
  examine("");
  expect("device", PLM_GRADE_PROBLEM, "plm-trainer cannot estimate this run: a warning the error",
         fix);
  write_program("plm-trainer", "#!/bin/sh\nexit 2\n", 0755);
  examine("");
  expect("device", PLM_GRADE_PROBLEM, "plm-trainer cannot estimate this run: it gave no answer",
         fix);
  write_program("plm-trainer", "#!/bin/sh\necho >&2\nexit 2\n", 0755);
  examine("");
  expect("device", PLM_GRADE_PROBLEM, "plm-trainer cannot estimate this run: it gave no answer",
         fix);
  expect_none("disk");
  expect_none("memory");
}

static void processors_have_levels(void **state)
{
  char found[200];
  (void)state;
  answer("{\"device\":\"cpu\",\"level\":\"avx2\",\"precision\":\"fp32\"}");
  snprintf(found, sizeof found, "the trainer computes on the CPU (avx2) in fp32, with %u cores",
           plm_usable_cores());
  expect("device", PLM_GRADE_OK, found, "");
  expect_none("precision");
  expect_none("inference");
  expect_none("oneDNN");
  expect_none("memory");
  setenv("PLM_CPU_ISA", "", 1);
  answer("{\"level\":\"avx2\",\"precision\":\"fp32\"}"); /* a CPU unless it says another */
  expect("device", PLM_GRADE_OK, found, "");
  setenv("PLM_CPU_ISA", "avx2", 1);
  answer("{\"device\":\"cpu\",\"level\":\"avx2\",\"precision\":\"fp32\"}");
  expect("device", PLM_GRADE_WARNING, found,
         "PLM_CPU_ISA=avx2 chooses these instructions: unset it");
  answer("{\"device\":\"NVIDIA H200\",\"level\":\"portable\",\"precision\":\"bf16\","
         "\"bf16_gain\":\"x\"}");
  expect("device", PLM_GRADE_OK, "the trainer computes on NVIDIA H200 in bf16", "");
  expect_none("precision");
  unsetenv("PLM_CPU_ISA");
  answer("{\"device\":\"cpu\",\"level\":\"portable\",\"precision\":\"bf16\","
         "\"bf16_gain\":\"bf16 would be faster\",\"int8_gain\":\"int8 too\"}");
  snprintf(found, sizeof found, "the trainer computes on the CPU (portable) in bf16, with %u cores",
           plm_usable_cores());
  expect("device", PLM_GRADE_WARNING, found,
         "this processor has no AVX2: training works, but use a newer one");
  expect("precision", PLM_GRADE_OK, "bf16 would be faster", "");
  expect("inference", PLM_GRADE_OK, "int8 too", "");
}

static void the_library_of_products_is_named(void **state)
{
  static const char *const variables[] = {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"};
  (void)state;
  answer("{\"products\":\"oneDNN 3.5\"}");
  expect("oneDNN", PLM_GRADE_OK, "oneDNN 3.5", "");
  answer("{\"products\":\"OpenBLAS\"}");
  expect("oneDNN", PLM_GRADE_WARNING, "OpenBLAS, which has no bf16 instructions",
         "install libdnnl-dev, then `make clean` and `make`");
  for (size_t i = 0; i < 2; i++) {
    char found[100], fix[100];
    setenv(variables[i], "", 1);
    answer("{\"products\":\"oneDNN 3.5\"}");
    expect("oneDNN", PLM_GRADE_OK, "oneDNN 3.5", "");
    setenv(variables[i], "AVX2", 1);
    answer("{\"products\":\"oneDNN 3.5\"}");
    snprintf(found, sizeof found, "oneDNN 3.5; %s=AVX2 is set", variables[i]);
    snprintf(fix, sizeof fix, "unset %s, so that oneDNN uses all instructions of the processor",
             variables[i]);
    expect("oneDNN", PLM_GRADE_WARNING, found, fix);
    unsetenv(variables[i]);
  }
}

/* A control group of 3 GB, of which 1 GB is used. */
static void limit_memory(void)
{
  control_group_begin();
  control_group_put("memory.max", "3000000000\n");
  control_group_put("memory.high", "max\n");
  control_group_put("memory.current", "1000000000\n");
  control_group_put("memory.stat", "inactive_file 0\n");
}

static void memory_has_to_suffice(void **state)
{
  (void)state;
  answer("{\"total\":1500000000,\"free_bytes\":2000000000,\"fits\":true}");
  expect("memory", PLM_GRADE_OK, "the trainer takes 1.50 GB, and 2.00 GB are free", "");
  answer("{\"total\":1500000000,\"free_bytes\":1000000000,\"fits\":false,"
         "\"largest_micro_batch_tokens\":4096}");
  expect("memory", PLM_GRADE_PROBLEM, "the trainer takes 1.50 GB, and 1.00 GB are free",
         "set trainer.micro_batch_tokens to 4096, or trainer.recompute: block");
  answer("{\"total\":1500000000,\"free_bytes\":1000000000,\"fits\":false,"
         "\"largest_micro_batch_tokens\":0}");
  expect("memory", PLM_GRADE_PROBLEM, "the trainer takes 1.50 GB, and 1.00 GB are free",
         "use a smaller model, or a machine with more memory");
  answer("{\"total\":1500000000,\"free_bytes\":0,\"fits\":false}"); /* it does not know */
  expect_none("memory");
  answer("{\"total\":1500000000,\"free_bytes\":1,\"fits\":false}");
  expect("memory", PLM_GRADE_PROBLEM, "the trainer takes 1.50 GB, and 0.00 GB are free",
         "use a smaller model, or a machine with more memory");
  limit_memory();
  answer("{\"total\":1500000000,\"free_bytes\":1000000000,\"fits\":false}");
  expect("memory", PLM_GRADE_PROBLEM,
         "the trainer takes 1.50 GB, and 1.00 GB of the 3.00 GB of the control group are free",
         "use a smaller model, or a container with more memory");
  answer("{\"total\":1500000000,\"free_bytes\":1000000000,\"fits\":false,\"device\":\"H200\"}");
  expect("memory", PLM_GRADE_PROBLEM, "the trainer takes 1.50 GB, and 1.00 GB are free",
         "use a smaller model, or a machine with more memory");
}

/* 12 bytes for each parameter. */
static void checkpoints_need_room(void **state)
{
  const struct plm_finding *finding;
  char expected[PLM_PATH_SIZE];
  (void)state;
  answer("{\"parameter_count\":1000000}");
  assert_int_equal(findings_of("disk", &finding), 1);
  snprintf(expected, sizeof expected, "checkpoints take at most %.2f GB, and ",
           0.012 * plm_checkpoints_kept(&config));
  assert_int_equal(strncmp(finding->found, expected, strlen(expected)), 0);
  const double most = strtod(finding->found + strlen(expected), NULL);
  const double now = 1e-9 * plm_disk_free_bytes(run);
  assert_true(most > 0.5 * now && most < 2 * now); /* others write there, too */
  assert_non_null(strstr(finding->found, " GB are free at "));
  assert_int_equal(finding->grade, PLM_GRADE_OK);
  assert_string_equal(finding->fix, "");
  answer("{\"parameter_count\":1e15}");
  assert_int_equal(findings_of("disk", &finding), 1);
  assert_int_equal(finding->grade, PLM_GRADE_PROBLEM);
  assert_string_equal(finding->fix, "free some space, lower trainer.checkpoint.keep_last and "
                                    "max_unevaluated, or put `run` on another disk");
}

/* ---- ranks ------------------------------------------------------------------------------------
 */

static void ranks_need_open_mpi(void **state)
{
  char before[PLM_PATH_SIZE];
  (void)state;
  snprintf(before, sizeof before, "%s", getenv("PATH"));
  examine("trainer: {ranks: 1}");
  expect_none("ranks");
  setenv("PATH", "/nowhere", 1);
  examine("trainer: {ranks: 2}");
  setenv("PATH", before, 1);
  expect("ranks", PLM_GRADE_PROBLEM, "mpirun is not on PATH, and trainer.ranks above 1 needs it",
         "install Open MPI (Debian: openmpi-bin), or set trainer.ranks: 1");
  write_program("mpirun", "#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n", 0755);
  setenv("PLM_MPI_LIBRARY", "/dev/null", 1);
  setenv("PATH", programs, 1);
  examine("trainer: {ranks: 4}");
  setenv("PATH", before, 1);
  unsetenv("PLM_MPI_LIBRARY");
  expect("ranks", PLM_GRADE_OK, "Open MPI and its engine are here, for 4 ranks", "");
}

/* ---- the command ------------------------------------------------------------------------------
 */

/* Findings of all groups; the exit code says whether there is a problem, and -q leaves out what is
 * in order. */
static void findings_are_printed(void **state)
{
  char file[PLM_PATH_SIZE], yaml[PLM_PATH_SIZE + 300], line[PLM_PATH_SIZE + 300];
  (void)state;
  assert_int_equal(plm_path_join(file, run, "its.yaml", NULL), PLM_OK);
  snprintf(yaml, sizeof yaml,
           "run: %.4000s\ncorpus: null\nnetwork: {feed: 'ipc://f', evaluation_feed: 'ipc://e', "
           "announcements: 'ipc://a'}\n",
           run);
  scratch_write(file, yaml, strlen(yaml));
  command_case_program("plm-packer", "#!/bin/sh\n");
  command_case_program("plm-evaluator", "#!/bin/sh\n");
  command_case_program("plm-trainer", "#!/bin/sh\necho '{\"level\":\"avx2\",\"precision\":\"fp32\","
                                      "\"products\":\"OpenBLAS\"}'\n");
  assert_int_equal(COMMAND("doctor", file), 0);
  snprintf(line, sizeof line,
           "ok      programs         plm-pipeline %s, with its stages in %.300s\n", PLM_VERSION,
           command_programs);
  assert_int_equal(strncmp(command_out, line, strlen(line)), 0);
  static const char warning[] =
      "\nwarning oneDNN           OpenBLAS, which has no bf16 instructions\n"
      "                         fix: install libdnnl-dev, then `make clean` and `make`\n";
  assert_non_null(strstr(command_out, warning));
  static const char *const checks[] = {"run folder", "control socket", "ports", "limits",
                                       "host name",  "locale",         "clock"};
  for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
    snprintf(line, sizeof line, "%-16s ", checks[i]);
    if (strstr(command_out, line) == NULL) fail_msg("%s: %s", checks[i], command_out);
  }
  assert_int_equal(COMMAND("doctor", "--quiet", file), 0);
  assert_null(strstr(command_out, "\nok "));
  assert_true(command_out[0] != 'o');
  assert_non_null(strstr(command_out, "warning oneDNN  "));
  assert_int_equal(COMMAND("doctor", "--color=always", file), 0);
  assert_int_equal(strncmp(command_out, "\033[32mok      \033[0mprograms  ", 27), 0);
  assert_non_null(strstr(command_out, "\n\033[33mwarning \033[0moneDNN  "));
  assert_int_equal(COMMAND("doctor", "-c", file, "--json"), 0);
  static const char row[] =
      "{\"check\":\"oneDNN\",\"grade\":\"warning\",\"found\":\"OpenBLAS, which "
      "has no bf16 instructions\",\"fix\":\"install libdnnl-dev, then `make "
      "clean` and `make`\"}";
  assert_non_null(strstr(command_out, row));
  assert_non_null(strstr(command_out, "[{\"check\":\"programs\",\"grade\":\"ok\",\"found\":\""));
  assert_null(strstr(command_out, "\"fix\":\"\""));
  command_case_program("plm-trainer", "#!/bin/sh\nexit 1\n");
  assert_int_equal(COMMAND("doctor", file), 1);
  assert_string_equal(command_err, "");
  assert_non_null(strstr(command_out, "\nproblem device           plm-trainer cannot estimate "));
  assert_int_equal(COMMAND("doctor", file, "other"), 2);
  assert_int_equal(COMMAND("doctor", "/none.yaml"), 2);
}

int main(void)
{
  unsetenv("PLM_CONFIG");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(programs_are_in_one_folder, setup, end),
      cmocka_unit_test_setup_teardown(a_gpu_needs_a_driver_and_its_device, setup, end),
      cmocka_unit_test_setup_teardown(the_host_name_is_looked_up, setup, end),
      cmocka_unit_test_setup_teardown(the_clock_is_looked_at, setup, end),
      cmocka_unit_test_setup_teardown(a_trainer_that_does_not_answer, setup, end),
      cmocka_unit_test_setup_teardown(processors_have_levels, setup, end),
      cmocka_unit_test_setup_teardown(the_library_of_products_is_named, setup, end),
      cmocka_unit_test_setup_teardown(memory_has_to_suffice, setup, end),
      cmocka_unit_test_setup_teardown(checkpoints_need_room, setup, end),
      cmocka_unit_test_setup_teardown(ranks_need_open_mpi, setup, end),
      cmocka_unit_test_setup_teardown(findings_are_printed, setup, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
