/* What `doctor` finds in the folders of a run, in the limits of a process and in the run itself. */
#include "stages/doctor/doctor.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/run/run.h"
#include "common/run/run_failure.h"
#include "stages/supervisor/prepare/run_ports.h"
#include "tests/support/cases/answering_supervisor.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static char run[PLM_PATH_SIZE];
static struct plm_config config;
static struct plm_doctor doctor;

/* Begins with the configuration of a run, which another call or `end` releases. */
static void begin(const char *yaml)
{
  char text[4 * PLM_PATH_SIZE];
  struct plm_error error = {0};
  plm_config_deinit(&config);
  snprintf(text, sizeof text, "%.8000s\nrun: %.4000s\n", yaml, run);
  if (plm_config_load_text(text, strlen(text), &config, &error) != PLM_OK)
    fail_msg("%s", error.what);
  doctor = (struct plm_doctor){.config = &config, .program_directory = "/nowhere"};
}

static int setup(void **state)
{
  (void)state;
  setenv("TZ", "UTC", 1);
  scratch_run(run);
  return 0;
}

static int end(void **state)
{
  (void)state;
  plm_config_deinit(&config);
  config = (struct plm_config){0};
  return 0;
}

/* The first finding of a check; NULL: there is none. */
static const struct plm_finding *finding_of(const char *check)
{
  for (size_t i = 0; i < doctor.count; i++)
    if (strcmp(doctor.findings[i].check, check) == 0) return &doctor.findings[i];
  return NULL;
}

static void expect(const char *check, enum plm_grade grade, const char *found, const char *fix)
{
  const struct plm_finding *finding = finding_of(check);
  assert_non_null(finding);
  assert_string_equal(finding->found, found);
  assert_string_equal(finding->fix, fix);
  assert_int_equal(finding->grade, grade);
}

/* ---- the list ----------------------------------------------------------------------------------
 */

static void the_worst_grade_counts(void **state)
{
  static const enum plm_grade grades[] = {PLM_GRADE_OK, PLM_GRADE_WARNING, PLM_GRADE_PROBLEM};
  (void)state;
  assert_string_equal(plm_grade_name(PLM_GRADE_OK), "ok");
  assert_string_equal(plm_grade_name(PLM_GRADE_WARNING), "warning");
  assert_string_equal(plm_grade_name(PLM_GRADE_PROBLEM), "problem");
  for (int worst = 0; worst < 3; worst++)
    for (int place = 0; place < 3; place++) { /* wherever it stands */
      doctor = (struct plm_doctor){0};
      assert_int_equal(plm_doctor_worst(&doctor), PLM_GRADE_OK);
      for (int i = 0; i < 3; i++)
        plm_doctor_add(&doctor, "x", i == place ? grades[worst] : PLM_GRADE_OK, "found %d", i);
      plm_doctor_fix(&doctor, "fix %d", 7);
      assert_int_equal(plm_doctor_worst(&doctor), grades[worst]);
      assert_string_equal(doctor.findings[1].found, "found 1");
      assert_string_equal(doctor.findings[1].fix, "");
      assert_string_equal(doctor.findings[2].fix, "fix 7");
      assert_int_equal(doctor.count, 3);
    }
}

/* ---- folders -----------------------------------------------------------------------------------
 */

static void a_run_folder_takes_files(void **state)
{
  enum { TMPFS = 0x01021994 };
  struct statfs kind;
  char expected[512];
  (void)state;
  begin("");
  assert_int_equal(statfs(run, &kind), 0);
  const bool memory = (uint32_t)kind.f_type == TMPFS;
  plm_doctor_files(&doctor);
  snprintf(expected, sizeof expected, "files in %.200s can be made, locked and synced (%s)", run,
           memory ? "in memory" : "a local disk");
  expect("run folder", memory ? PLM_GRADE_WARNING : PLM_GRADE_OK, expected,
         memory ? "a restart of this host loses the run: choose a folder on a disk" : "");
  assert_true(scratch_is_empty(run));
  assert_null(finding_of("temporary files"));
  assert_null(finding_of("clock"));
  assert_int_equal(finding_of("control socket")->grade, PLM_GRADE_OK);
}

static void a_run_folder_without_room(void **state)
{
  struct rlimit before, none;
  char expected[512];
  (void)state;
  begin("");
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  none = (struct rlimit){0, before.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
  plm_doctor_files(&doctor);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_DFL);
  snprintf(expected, sizeof expected, "in %.200s, no file can be written: File too large", run);
  expect("run folder", PLM_GRADE_PROBLEM, expected,
         "make it writable, or choose another place with `run` or --run DIR");
}

static void what_is_in_memory_is_lost(void **state)
{
  enum { TMPFS = 0x01021994 };
  struct statfs kind;
  (void)state;
  if (statfs("/dev/shm", &kind) != 0 || (uint32_t)kind.f_type != TMPFS ||
      access("/dev/shm", W_OK) != 0)
    skip("no file system in memory");
  strcpy(run, "/dev/shm/plm-no-such-run/inside");
  begin("");
  plm_doctor_files(&doctor);
  expect("run folder", PLM_GRADE_WARNING,
         "files in /dev/shm can be made, locked and synced (in memory)",
         "a restart of this host loses the run: choose a folder on a disk");
}

static void a_folder_that_takes_no_files(void **state)
{
  (void)state;
  strcpy(run, "/proc/no-such-run");
  begin("");
  plm_doctor_files(&doctor);
  expect("run folder", PLM_GRADE_PROBLEM,
         "in /proc, no file can be made: No such file or directory",
         "make it writable, or choose another place with `run` or --run DIR");
}

static void temporary_files_need_a_folder(void **state)
{
  const char *kept = getenv("TMPDIR");
  char before[PLM_PATH_SIZE] = "";
  (void)state;
  if (kept != NULL) snprintf(before, sizeof before, "%s", kept);
  setenv("TMPDIR", "/proc", 1);
  begin("");
  plm_doctor_files(&doctor);
  if (before[0] != '\0')
    setenv("TMPDIR", before, 1);
  else
    unsetenv("TMPDIR");
  expect("temporary files", PLM_GRADE_PROBLEM,
         "in /proc, no file can be made: No such file or directory",
         "set TMPDIR to a folder that you can write to");
}

/* ---- corpora -----------------------------------------------------------------------------------
 */

static void corpora_are_read(void **state)
{
  char yaml[2 * PLM_PATH_SIZE], found[512];
  (void)state;
  plm_corpus_close(written_corpus_open(
      "corpus", &(struct written_corpus){.documents = {3, 0, 0}, .longest = 9}));
  const char *corpus = scratch_path("corpus");
  snprintf(yaml, sizeof yaml, "corpus: %s", corpus);
  begin(yaml);
  plm_doctor_files(&doctor);
  const struct plm_finding *finding = finding_of("corpus");
  assert_non_null(finding);
  snprintf(found, sizeof found, "%.300s is on a local disk", corpus);
  expect("corpus", PLM_GRADE_OK, found, "");
  begin("corpus: /nowhere"); /* the default name, which nobody may have used */
  plm_doctor_files(&doctor);
  assert_null(finding_of("corpus"));
  begin("corpus: /nowhere");
  config.path = strdup("/pipeline.yaml");
  plm_doctor_files(&doctor);
  assert_int_equal(finding_of("corpus")->grade, PLM_GRADE_PROBLEM);
  snprintf(yaml, sizeof yaml, "corpus: [{path: %s}, {path: /nowhere}]", corpus);
  begin(yaml);
  plm_doctor_files(&doctor);
  size_t corpora = 0;
  for (size_t i = 0; i < doctor.count; i++)
    corpora += strcmp(doctor.findings[i].check, "corpus") == 0;
  assert_int_equal(corpora, 2);
  assert_int_equal(finding_of("corpus")->grade, PLM_GRADE_OK);
  assert_int_equal(plm_doctor_worst(&doctor), PLM_GRADE_PROBLEM);
  begin("");
  plm_doctor_files(&doctor);
  assert_null(finding_of("corpus"));
}

/* ---- the host ----------------------------------------------------------------------------------
 */

/* The findings of the host under a limit, one on each line, in a process of their own. */
static void limits_under(int resource, rlim_t soft, rlim_t hard, char text[4096])
{
  int ends[2];
  size_t used = 0;
  ssize_t size;
  assert_int_equal(pipe(ends), 0);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    const struct rlimit limit = {soft, hard};
    if (setrlimit(resource, &limit) != 0) _exit(1);
    plm_doctor_host(&doctor);
    for (size_t i = 0; i < doctor.count; i++)
      if (strcmp(doctor.findings[i].check, "limits") == 0)
        dprintf(ends[1], "%s: %s\n%s", plm_grade_name(doctor.findings[i].grade),
                doctor.findings[i].found, doctor.findings[i].fix);
    _exit(0);
  }
  close(ends[1]);
  while ((size = read(ends[0], text + used, 4095 - used)) > 0) used += (size_t)size;
  text[used] = '\0';
  close(ends[0]);
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

static bool is_unlimited(int resource)
{
  struct rlimit limit;
  return getrlimit(resource, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
}

static void limits_that_are_too_low(void **state)
{
  static const char fine[] = "ok: files, processes, address space and file sizes suffice\n";
  char text[4096];
  struct rlimit files;
  (void)state;
  begin("");
  if (!is_unlimited(RLIMIT_AS) || !is_unlimited(RLIMIT_FSIZE)) skip("there are limits already");
  getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_max >= 1024) {
    limits_under(RLIMIT_NOFILE, 512, 1024, text);
    assert_string_equal(text, fine);
    limits_under(RLIMIT_NOFILE, 512, 1023, text);
    assert_string_equal(text,
                        "warning: a process may open only 1023 files\nraise the hard limit: nofile "
                        "in /etc/security/limits.conf, or LimitNOFILE= of the service");
  }
  limits_under(RLIMIT_FSIZE, RLIM_INFINITY, RLIM_INFINITY, text);
  assert_string_equal(text, fine);
  limits_under(RLIMIT_FSIZE, 1500000000, RLIM_INFINITY, text);
  assert_string_equal(text, "warning: a file may have only 1.500 GB\nulimit -f unlimited");
  limits_under(RLIMIT_AS, 1500100000000000, RLIM_INFINITY, text);
  assert_string_equal(text, "warning: the address space of a process is limited to 1500100.0 GB, "
                            "and the corpus is mapped into it\nulimit -v unlimited");
  limits_under(RLIMIT_NPROC, 255, 255, text);
  assert_string_equal(text, "warning: you may have only 255 processes\nraise nproc in "
                            "/etc/security/limits.conf, or TasksMax= of the service");
  limits_under(RLIMIT_NPROC, 256, 256, text);
  assert_string_equal(text, fine);
}

/* A port that somebody has, one that is no address of this host, and those of a running run. */
static void ports_are_tried(void **state)
{
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof address;
  char yaml[400], found[512];
  struct plm_lock *lock;
  (void)state;
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
  assert_int_equal(listen(listener, 1), 0);
  assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
  snprintf(yaml, sizeof yaml,
           "network: {feed: 'tcp://127.0.0.1:%d', evaluation_feed: 'tcp://127.0.0.1:*', "
           "announcements: 'tcp://127.0.0.1:*'}",
           ntohs(address.sin_port));
  begin(yaml);
  plm_doctor_host(&doctor);
  snprintf(found, sizeof found, "network.feed: tcp://127.0.0.1:%d is in use by ",
           ntohs(address.sin_port));
  const struct plm_finding *finding = finding_of("ports");
  assert_int_equal(finding->grade, PLM_GRADE_PROBLEM);
  assert_int_equal(strncmp(finding->found, found, strlen(found)), 0);
  assert_string_equal(
      finding->fix,
      "stop that process, or let the system choose: --set 'network.feed=tcp://127.0.0.1:*'");
  assert_int_equal(plm_lock_acquire(run, "trainer", &lock, NULL), PLM_OK);
  begin(yaml);
  plm_doctor_host(&doctor);
  expect("ports", PLM_GRADE_OK, "the run is running and has its ports", "");
  plm_lock_release(lock);
  close(listener);
  begin(yaml); /* now it is free */
  plm_doctor_host(&doctor);
  assert_int_equal(finding_of("ports")->grade, PLM_GRADE_OK);
  begin("network: {keys: /keys, feed: 'tcp://203.0.113.9:5000', evaluation_feed: "
        "'tcp://127.0.0.1:*', "
        "announcements: 'tcp://127.0.0.1:*'}");
  plm_doctor_host(&doctor);
  finding = finding_of("ports");
  assert_int_equal(finding->grade, PLM_GRADE_PROBLEM);
  assert_int_equal(
      strncmp(finding->found, "network.feed: tcp://203.0.113.9:5000 cannot be bound: ", 54), 0);
  size_t findings = 0;
  for (size_t i = 0; i < doctor.count; i++)
    findings += strcmp(doctor.findings[i].check, "ports") == 0;
  assert_int_equal(findings, 1);
}

static void locales_are_tried(void **state)
{
  (void)state;
  begin("");
  setenv("LC_ALL", "C", 1);
  plm_doctor_host(&doctor);
  expect("locale", PLM_GRADE_WARNING, "characters are ANSI_X3.4-1968",
         "export LC_ALL=C.UTF-8, because curves in the terminal are drawn with Unicode characters");
  begin("");
  setenv("LC_ALL", "C.UTF-8", 1);
  plm_doctor_host(&doctor);
  expect("locale", PLM_GRADE_OK, "characters are UTF-8", "");
  begin("");
  setenv("LC_ALL", "no_SUCH.LOCALE", 1);
  plm_doctor_host(&doctor);
  expect("locale", PLM_GRADE_WARNING, "the locale that LC_ALL or LANG names is not installed",
         "export LC_ALL=C.UTF-8, or run `dpkg-reconfigure locales`");
  setenv("LC_ALL", "C", 1);
}

/* ---- the run -----------------------------------------------------------------------------------
 */

static void a_failure_of_the_last_start(void **state)
{
  const struct plm_run_failure failure = {
      .time_s = 86400, .exit_code = 5, .stage = "trainer.0", .cause = "exited with 5: too bad"};
  char fix[512];
  (void)state;
  begin("");
  plm_doctor_run(&doctor);
  assert_int_equal(doctor.count, 0);
  assert_int_equal(plm_run_failure_write(run, &failure, NULL), PLM_OK);
  plm_doctor_run(&doctor);
  snprintf(fix, sizeof fix, "remove the cause, then: plm-pipeline up %.300s/pipeline.yaml", run);
  expect("run", PLM_GRADE_WARNING,
         "the last start failed at 1970-01-02 00:00:00: trainer.0 exited with 5: too bad", fix);
}

static void write_file(const char *name, const char *text)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, run, name, NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
}

/* A trainer that runs and ends no step. */
static void a_silent_trainer(void **state)
{
  struct plm_lock *lock;
  char line[200], path[PLM_PATH_SIZE], found[200];
  (void)state;
  assert_int_equal(plm_lock_acquire(run, "trainer", &lock, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, run, "trainer.lock", NULL), PLM_OK);
  scratch_age(path, 1000);
  write_file("peers.trainer.json", "[{}]");
  snprintf(line, sizeof line, "{\"step\":1,\"step_ms\":100,\"time\":%.3f}\n",
           plm_clock_wall_s() - 1);
  write_file("trainer.jsonl", line);
  begin("");
  plm_doctor_run(&doctor);
  expect("run", PLM_GRADE_OK, "it is running, and its steps end", "");
  snprintf(line, sizeof line, "{\"step\":1,\"step_ms\":100,\"time\":%.3f}\n",
           plm_clock_wall_s() - 181.3);
  write_file("trainer.jsonl", line);
  write_file("peers.trainer.json", "[{}]");
  begin("");
  plm_doctor_run(&doctor);
  snprintf(found, sizeof found, "trainer.0 (process %d): no step for 3:01", (int)getpid());
  expect("run", PLM_GRADE_WARNING, found,
         "see `plm-pipeline logs trainer.0`; if nothing moves, restart it: plm-pipeline restart "
         "trainer.0");
  plm_lock_release(lock);
}

/* What the supervisor of the run answers, and what is said of it. */
static void with_answer(const char *answer)
{
  begin("");
  answering_begin(run, answer, 1);
  plm_doctor_run(&doctor);
  answering_end();
}
#define STAGES(rows) "{\"ok\":true,\"stages\":[" rows "]}"

static void stages_in_trouble_are_named(void **state)
{
  static const struct {
    const char *answer, *found, *fix;
    enum plm_grade grade;
  } cases[] = {
      {STAGES("{\"stage\":\"trainer\",\"instance\":0,\"state\":\"ready\"}"),
       "it is running, and its steps end", "", PLM_GRADE_OK},
      {STAGES(
           "{\"stage\":\"packer\",\"instance\":3,\"state\":\"fatal\",\"activity\":\"x\",\"cause\":"
           "\"exited with 7\"}"),
       "packer.3 has failed for good: exited with 7",
       "remove the cause, then: plm-pipeline restart packer.3", PLM_GRADE_PROBLEM},
      {STAGES("{\"stage\":\"packer\",\"instance\":3,\"state\":\"back-off\"}"),
       "packer.3 has failed and will be started again: its log says why",
       "remove the cause; see `plm-pipeline logs packer.3`", PLM_GRADE_WARNING},
      {STAGES("{\"stage\":\"trainer\",\"pid\":77,\"activity\":\"waiting for the writer of a "
              "checkpoint\"}"),
       "trainer.0 (process 77): waiting for the writer of a checkpoint",
       "see whether the disk of the run folder is slow or hangs", PLM_GRADE_WARNING},
      {STAGES("{\"stage\":\"trainer\",\"pid\":77,\"activity\":\"waiting for packers\"}"),
       "trainer.0 (process 77): waiting for packers",
       "see `plm-pipeline logs packer`, or start more with `plm-pipeline scale packer=N` or "
       "`plm-pipeline join`",
       PLM_GRADE_WARNING},
      {STAGES("{\"stage\":\"trainer\",\"pid\":77,\"activity\":\"stopped by a signal\"}"),
       "trainer.0 (process 77): stopped by a signal",
       "continue it with `kill -CONT PID`, or restart it: plm-pipeline restart trainer.0",
       PLM_GRADE_WARNING},
      {STAGES("{\"stage\":\"trainer\",\"pid\":77,\"activity\":\"no step for 9:00\"}"),
       "trainer.0 (process 77): no step for 9:00",
       "see `plm-pipeline logs trainer.0`; if nothing moves, restart it: plm-pipeline restart "
       "trainer.0",
       PLM_GRADE_WARNING},
  };
  char fix[PLM_PATH_SIZE], many[8000];
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    with_answer(cases[i].answer);
    expect("run", cases[i].grade, cases[i].found, cases[i].fix);
  }
  with_answer("{\"ok\":true}");
  snprintf(fix, sizeof fix,
           "see whether its process is stopped; it is named in %.300s/supervisor.lock", run);
  expect("run", PLM_GRADE_WARNING,
         "the supervisor does not answer: the supervisor's answer lists no stages", fix);
  assert_int_equal(doctor.count, 1);
  size_t used = (size_t)snprintf(many, sizeof many, "{\"ok\":true,\"stages\":[");
  for (int i = 0; i < 20; i++)
    used += (size_t)snprintf(many + used, sizeof many - used,
                             "%s{\"stage\":\"packer\",\"instance\":%d,\"state\":\"fatal\"}",
                             i > 0 ? "," : "", i);
  snprintf(many + used, sizeof many - used, "]}");
  with_answer(many); /* only the first 16 are reported */
  assert_int_equal(doctor.count, 16);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_worst_grade_counts),
      cmocka_unit_test_setup_teardown(a_run_folder_takes_files, setup, end),
      cmocka_unit_test_setup_teardown(a_run_folder_without_room, setup, end),
      cmocka_unit_test_setup_teardown(what_is_in_memory_is_lost, setup, end),
      cmocka_unit_test_setup_teardown(a_folder_that_takes_no_files, setup, end),
      cmocka_unit_test_setup_teardown(temporary_files_need_a_folder, setup, end),
      cmocka_unit_test_setup_teardown(corpora_are_read, setup, end),
      cmocka_unit_test_setup_teardown(limits_that_are_too_low, setup, end),
      cmocka_unit_test_setup_teardown(ports_are_tried, setup, end),
      cmocka_unit_test_setup_teardown(locales_are_tried, setup, end),
      cmocka_unit_test_setup_teardown(a_failure_of_the_last_start, setup, end),
      cmocka_unit_test_setup_teardown(a_silent_trainer, setup, end),
      cmocka_unit_test_setup_teardown(stages_in_trouble_are_named, setup, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
