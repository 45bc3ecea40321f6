/* What `doctor` says of remote file systems, of those on which few files can still be made, and of
 * the folder of control sockets. */
#include "stages/doctor/doctor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "stages/supervisor/control/supervisor_socket.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static bool on_nfs;              /* all files seem to be on NFS */
static unsigned long most, left; /* files that a file system can have, and that can be made */

/* These take the place of libc's functions in this program. */
int statfs(const char *path, struct statfs *information)
{
  const int result = (int)syscall(SYS_statfs, path, information);
  if (on_nfs) information->f_type = 0x6969;
  return result;
}

int statvfs(const char *path, struct statvfs *information)
{
  (void)path;
  *information = (struct statvfs){.f_files = most, .f_ffree = 1, .f_favail = left};
  return 0;
}

static time_t changed, now; /* of all files, and what the clock says; 0: what is true */

int fstat(int file, struct stat *information)
{
  const int result = (int)syscall(SYS_fstat, file, information);
  if (changed != 0) information->st_mtime = changed;
  return result;
}

time_t time(time_t *kept)
{
  const time_t told = now != 0 ? now : (time_t)syscall(SYS_time, NULL);
  if (kept != NULL) *kept = told;
  return told;
}

static bool no_locks; /* files cannot be locked */

int flock(int file, int operation)
{
  if (!no_locks) return (int)syscall(SYS_flock, file, operation);
  errno = ENOLCK;
  return -1;
}

/* The findings of a check, one on each line, with the grade before them and the advice behind. */
static const char *findings_of(const char *check, const char *yaml)
{
  static char text[4096];
  static struct plm_doctor doctor;
  struct plm_config config;
  struct plm_error error = {0};
  size_t used = 0;
  if (plm_config_load_text(yaml, strlen(yaml), &config, &error) != PLM_OK)
    fail_msg("%s", error.what);
  doctor = (struct plm_doctor){.config = &config, .program_directory = "/nowhere"};
  plm_doctor_files(&doctor);
  text[0] = '\0';
  for (size_t i = 0; i < doctor.count; i++) {
    const struct plm_finding *finding = &doctor.findings[i];
    if (strcmp(finding->check, check) != 0) continue;
    used += (size_t)snprintf(text + used, sizeof text - used, "%s: %s; %s\n",
                             plm_grade_name(finding->grade), finding->found, finding->fix);
  }
  plm_config_deinit(&config);
  return text;
}

static void corpora_on_a_remote_file_system(void **state)
{
  static const char refusal[] = "set packer.cache to a folder on a local disk, or "
                                "packer.allow_remote to true";
  static const struct {
    const char *packer, *grade, *said, *fix;
  } cases[] = {
      {"{}", "problem", ", where packers refuse it", refusal},
      {"{allow_remote: true}", "ok", ", and packers read it there (packer.allow_remote)", ""},
      {"{cache: /cache}", "ok", ", and packers copy it (packer.cache)", ""},
      {"{instances: 0}", "ok", ", but no packer is started here", ""},
  };
  char yaml[3 * PLM_PATH_SIZE], corpus[PLM_PATH_SIZE], expected[2 * PLM_PATH_SIZE];
  (void)state;
  plm_corpus_close(written_corpus_open(
      "corpus", &(struct written_corpus){.documents = {3, 0, 0}, .longest = 9}));
  snprintf(corpus, sizeof corpus, "%.200s", scratch_path("corpus"));
  on_nfs = true;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    snprintf(yaml, sizeof yaml, "corpus: %s\npacker: %s\n", corpus, cases[i].packer);
    snprintf(expected, sizeof expected, "%s: %s is on NFS%s; %s\n", cases[i].grade, corpus,
             cases[i].said, cases[i].fix);
    assert_string_equal(findings_of("corpus", yaml), expected);
  }
  snprintf(yaml, sizeof yaml, "run: %s\n", scratch_directory());
  snprintf(expected, sizeof expected,
           "ok: files in %.200s can be made, locked and synced (NFS); \n", scratch_directory());
  assert_string_equal(findings_of("run folder", yaml), expected);
  on_nfs = false;
}

static void few_files_are_left(void **state)
{
  char yaml[2 * PLM_PATH_SIZE], expected[PLM_PATH_SIZE];
  (void)state;
  snprintf(yaml, sizeof yaml, "run: %s\n", scratch_directory());
  most = 20000;
  left = 10001;
  assert_string_equal(findings_of("disk", yaml), "");
  left = 10000;
  snprintf(expected, sizeof expected,
           "warning: only 10000 files can still be made at %.300s; remove files there, or put "
           "`run` on another disk\n",
           scratch_directory());
  assert_string_equal(findings_of("disk", yaml), expected);
  most = left = 0; /* a file system that does not count them */
  assert_string_equal(findings_of("disk", yaml), "");
}

static void files_have_to_be_locked(void **state)
{
  char yaml[2 * PLM_PATH_SIZE], expected[2 * PLM_PATH_SIZE];
  (void)state;
  snprintf(yaml, sizeof yaml, "run: %s\n", scratch_directory());
  no_locks = true;
  const char *found = findings_of("run folder", yaml);
  no_locks = false;
  snprintf(expected, sizeof expected,
           "problem: in %.200s, files cannot be locked: No locks available; make it writable, or "
           "choose another place with `run` or --run DIR\n",
           scratch_directory());
  assert_string_equal(found, expected);
}

/* A minute is no difference, in either direction. */
static void a_file_server_has_a_clock(void **state)
{
  static const struct {
    int ahead;
    const char *said; /* NULL: nothing */
  } cases[] = {{0, NULL}, {60, NULL}, {-60, NULL}, {61, "61 s ahead of"}, {-100, "100 s behind"}};
  char yaml[2 * PLM_PATH_SIZE], expected[PLM_PATH_SIZE];
  (void)state;
  snprintf(yaml, sizeof yaml, "run: %s\n", scratch_directory());
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    now = 2000000000;
    changed = now + cases[i].ahead;
    const char *found = findings_of("clock", yaml);
    now = changed = 0;
    snprintf(expected, sizeof expected,
             "warning: the clock of the file server of %.300s is %s this host's; synchronise both "
             "clocks (chrony or systemd-timesyncd)\n",
             scratch_directory(), cases[i].said != NULL ? cases[i].said : "");
    assert_string_equal(found, cases[i].said != NULL ? expected : "");
  }
}

/* The folder is told in which the socket will be, not the socket. */
static void control_sockets_have_a_folder(void **state)
{
  char yaml[2 * PLM_PATH_SIZE], expected[512], path[PLM_SOCKET_PATH_SIZE];
  (void)state;
  const char *run = scratch_path("sockets");
  assert_int_equal(plm_directory_make(run, NULL), PLM_OK);
  assert_int_equal(plm_socket_path(run, path, NULL), PLM_OK);
  snprintf(yaml, sizeof yaml, "corpus: c\nrun: %s\n", run);
  snprintf(expected, sizeof expected, "ok: sockets can be made in %.*s; \n",
           (int)(strrchr(path, '/') - path), path);
  assert_string_equal(findings_of("control socket", yaml), expected);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(corpora_on_a_remote_file_system),
      cmocka_unit_test(few_files_are_left),
      cmocka_unit_test(files_have_to_be_locked),
      cmocka_unit_test(a_file_server_has_a_clock),
      cmocka_unit_test(control_sockets_have_a_folder),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
