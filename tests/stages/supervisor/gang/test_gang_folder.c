/* The folder of a gang belongs to its user only, and is removed by a later supervisor if the one
 * that made it was killed together with its gang, but not while somebody uses it. */
#include "common/base/files/file.h"
#include "tests/support/harness/cmocka_all.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stages/supervisor/gang/gang_folder.h"
#include "tests/support/harness/scratch.h"

static char socket_path[256]; /* of a run of this test's own */
static bool without_memory;   /* /dev/shm cannot be written */

/* Takes the place of libc's function in this program. */
int access(const char *path, int mode)
{
  if (without_memory && strcmp(path, "/dev/shm") == 0) return -1;
  return (int)syscall(SYS_faccessat, AT_FDCWD, path, mode);
}

static int prepare(void **state)
{
  (void)state;
  snprintf(socket_path, sizeof socket_path, "%s/plm-test%ld.sock", plm_temporary_folder(),
           (long)getpid());
  return 0;
}

static void the_folder_must_be_ours(void **state)
{
  (void)state;
  struct plm_gang_folder folder, again;
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_gang_folder_make(socket_path, &folder, NULL), PLM_OK);
  snprintf(path, sizeof path, "%s", folder.path);
  assert_int_equal(scratch_mode(path, ""), 0700);
  close(folder.lock);
  assert_int_equal(plm_gang_folder_make(socket_path, &again, NULL),
                   PLM_OK); /* of an earlier start */
  assert_string_equal(path, again.path);
  close(again.lock);
  assert_int_equal(chmod(path, 0755), 0);
  assert_int_equal(plm_gang_folder_make(socket_path, &again, NULL), PLM_FAILURE);
  assert_string_equal(again.path, "");
  assert_int_equal(rmdir(path), 0);
  assert_int_equal(symlink("/tmp", path), 0);
  assert_int_equal(plm_gang_folder_make(socket_path, &again, NULL), PLM_FAILURE);
  assert_int_equal(unlink(path), 0);
}

/* The name of the socket, without its ending and cut, with the user and the process. */
static void the_path_is_short(void **state)
{
  static const struct {
    const char *socket, *begins;
  } cases[] = {{"/run/plm-ab.sock", "plm-ab"},
               {"/run/plm-0123456.x.sock", "plm-0123456"},
               {"/run/plm-0123456789abcdef.sock", "plm-0123456789abcdef"},
               {"/run/plm-0123456789abcdefg.sock", "plm-0123456789abcdef"},
               {"/run/plm-0123456789abcdef01", "plm-0123456789abcdef"}};
  const bool memory = access("/dev/shm", W_OK | X_OK) == 0;
  (void)state;
  if (!memory) skip("no /dev/shm");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_gang_folder folder;
    char expected[256];
    assert_int_equal(plm_gang_folder_make(cases[i].socket, &folder, NULL), PLM_OK);
    snprintf(expected, sizeof expected, "/dev/shm/%s-%u-%d.mpi", cases[i].begins,
             (unsigned)getuid(), (int)getpid());
    char found[PLM_PATH_SIZE];
    snprintf(found, sizeof found, "%s", folder.path);
    plm_gang_folder_remove(&folder);
    assert_string_equal(found, expected);
  }
}

/* Then it is made beside the socket. */
static void there_may_be_no_memory_for_files(void **state)
{
  struct plm_gang_folder folder;
  struct plm_error error = {0};
  char beside[PLM_PATH_SIZE], path[PLM_PATH_SIZE], what[PLM_PATH_SIZE];
  (void)state;
  without_memory = true;
  scratch_run(beside);
  snprintf(path, sizeof path, "%.200s/plm-ab.sock", beside);
  assert_int_equal(plm_gang_folder_make(path, &folder, &error), PLM_OK);
  snprintf(what, sizeof what, "%.200s/plm-ab-%u-%d.mpi", beside, (unsigned)getuid(), (int)getpid());
  assert_string_equal(folder.path, what);
  plm_gang_folder_remove(&folder);
  assert_int_equal(plm_gang_folder_make("/proc/none/plm-ab.sock", &folder, &error), PLM_NOT_FOUND);
  snprintf(what, sizeof what, "/proc/none/plm-ab-%u-%d.mpi: No such file or directory",
           (unsigned)getuid(), (int)getpid());
  assert_string_equal(error.what, what);
  assert_string_equal(folder.path, "");
  assert_int_equal(plm_gang_folder_make("/proc/none/plm-ab.sock", &folder, NULL), PLM_NOT_FOUND);
  without_memory = false;
}

static void only_abandoned_folders_are_removed(void **state)
{
  (void)state;
  struct plm_gang_folder other, ours;
  int ends[2], status;
  assert_int_equal(pipe(ends), 0);
  const pid_t child = fork(); /* another supervisor of the same run */
  if (child == 0) {
    if (plm_gang_folder_make(socket_path, &other, NULL) != PLM_OK) _exit(1);
    char file[PLM_PATH_SIZE + 8];
    snprintf(file, sizeof file, "%s/memory", other.path);
    scratch_write(file, "x", 1);
    if (write(ends[1], &other, sizeof other) != (ssize_t)sizeof other) _exit(1);
    pause();
    _exit(1);
  }
  assert_int_equal(read(ends[0], &other, sizeof other), sizeof other);
  assert_int_equal(plm_gang_folder_make(socket_path, &ours, NULL), PLM_OK);
  assert_string_not_equal(ours.path, other.path);
  assert_int_equal(access(other.path, F_OK), 0);
  assert_int_equal(kill(child, SIGKILL), 0);
  assert_int_equal(waitpid(child, &status, 0), child);
  plm_gang_folder_remove(&ours);
  assert_int_equal(plm_gang_folder_make(socket_path, &ours, NULL), PLM_OK);
  assert_int_not_equal(access(other.path, F_OK), 0);
  char kept[PLM_PATH_SIZE];
  snprintf(kept, sizeof kept, "%s", ours.path);
  assert_int_equal(access(kept, F_OK), 0);
  plm_gang_folder_remove(&ours);
  assert_string_equal(ours.path, "");
  assert_int_not_equal(access(kept, F_OK), 0);
  ours.lock = dup(ends[0]);
  plm_gang_folder_remove(&ours); /* there is none, so no descriptor is closed */
  assert_int_equal(close(ours.lock), 0);
  close(ends[0]);
  close(ends[1]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_folder_must_be_ours),
      cmocka_unit_test(the_path_is_short),
      cmocka_unit_test(there_may_be_no_memory_for_files),
      cmocka_unit_test(only_abandoned_folders_are_removed),
  };
  return cmocka_run_group_tests(tests, prepare, NULL);
}
