/* common/cli/output_file: a regular file is replaced; a pipe or a device is written to and stays.
 */
#include "tests/support/harness/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/cli/output_file.h"
#include "tests/support/harness/scratch.h"

static void write_words(const char *path, const char *words)
{
  struct plm_error error = {0};
  struct plm_output_file *output;
  if (plm_output_open(path, &output, &error) != PLM_OK) fail_msg("%s", error.what);
  assert_true(fputs(words, plm_output_stream(output)) >= 0);
  if (plm_output_finish(output, &error) != PLM_OK) fail_msg("%s", error.what);
  plm_output_close(output);
}

static void assert_file(const char *path, const char *words)
{
  char *text;
  size_t size;
  assert_int_equal(plm_file_read(path, 1 << 20, &text, &size, NULL), PLM_OK);
  assert_string_equal(text, words);
  free(text);
}

static mode_t kind_of(const char *path)
{
  struct stat information;
  assert_int_equal(lstat(path, &information), 0);
  return information.st_mode & S_IFMT;
}

static void a_file_appears_complete_or_not_at_all(void **state)
{
  (void)state;
  const char *path = scratch_path("file");
  struct plm_output_file *output;
  write_words(path, "first\n");
  assert_int_equal(plm_output_open(path, &output, NULL), PLM_OK);
  fputs("second\n", plm_output_stream(output));
  fflush(plm_output_stream(output));
  assert_file(path, "first\n");
  plm_output_close(output); /* not finished */
  assert_file(path, "first\n");
  char temporary[PLM_PATH_SIZE];
  snprintf(temporary, sizeof temporary, "%s.tmp-%ld", path, (long)getpid());
  assert_false(plm_file_exists(temporary));
  assert_int_equal(plm_output_open(path, &output, NULL), PLM_OK);
  assert_int_equal(plm_output_finish(output, NULL), PLM_OK);
  scratch_write(temporary, "next\n", 5); /* once the file has its name, the other one is free */
  plm_output_close(output);
  assert_file(temporary, "next\n");
  assert_int_equal(unlink(temporary), 0);
  write_words(path, "third\n");
  assert_file(path, "third\n");
}

/* The longest path whose temporary file has a path that fits, and one byte more. */
static void the_temporary_path_must_fit(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE], end[64];
  struct plm_output_file *output;
  struct plm_error error = {0};
  const size_t suffix = (size_t)snprintf(end, sizeof end, ".tmp-%ld", (long)getpid());
  size_t length = (size_t)snprintf(path, sizeof path, "%s", scratch_directory());
  while (length + suffix + 2 < PLM_PATH_SIZE - 1) path[length++] = '/';
  path[length++] = 'a';
  path[length] = '\0';
  for (; length + suffix < PLM_PATH_SIZE; path[length++] = 'a', path[length] = '\0') {
    write_words(path, "fits\n");
    assert_file(path, "fits\n");
  }
  assert_int_equal(length + suffix, PLM_PATH_SIZE);
  assert_int_equal(plm_output_open(path, &output, &error), PLM_LIMIT);
  assert_non_null(strstr(error.what, "is too long"));
}

static void a_link_stays(void **state)
{
  (void)state;
  const char *link = scratch_path("link"), *target = scratch_path("target");
  assert_int_equal(symlink("target", link), 0); /* to nothing yet */
  write_words(link, "one\n");
  assert_int_equal(kind_of(link), S_IFLNK);
  assert_file(target, "one\n");
  write_words(link, "two\n");
  assert_int_equal(kind_of(link), S_IFLNK);
  assert_file(target, "two\n");
  struct plm_output_file *output;
  assert_int_equal(symlink("circle", scratch_path("circle")), 0);
  assert_int_equal(plm_output_open(scratch_path("circle"), &output, NULL), PLM_IO);
}

static void *read_all(void *path)
{
  char *text = NULL;
  size_t size;
  return plm_file_read(path, 1 << 20, &text, &size, NULL) == PLM_OK ? text : NULL;
}

static void a_pipe_is_written_and_stays(void **state)
{
  (void)state;
  char pipe_path[PLM_PATH_SIZE], link[PLM_PATH_SIZE];
  snprintf(pipe_path, sizeof pipe_path, "%s", scratch_path("pipe"));
  snprintf(link, sizeof link, "%s", scratch_path("to-pipe"));
  assert_int_equal(mkfifo(pipe_path, 0600), 0);
  assert_int_equal(symlink("pipe", link), 0);
  const char *const paths[] = {pipe_path, link};
  for (size_t i = 0; i < 2; i++) {
    pthread_t reader;
    void *text;
    assert_true(plm_output_is_stream(paths[i]));
    assert_int_equal(pthread_create(&reader, NULL, read_all, pipe_path), 0);
    write_words(paths[i], "through the pipe\n");
    pthread_join(reader, &text);
    assert_non_null(text);
    assert_string_equal(text, "through the pipe\n");
    free(text);
    assert_int_equal(kind_of(pipe_path), S_IFIFO);
  }
  assert_int_equal(kind_of(link), S_IFLNK);
}

static void a_device_is_written_and_stays(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s", scratch_path("null")); /* not /dev/null itself */
  if (mknod(path, S_IFCHR | 0600, makedev(1, 3)) != 0)
    skip("this file system or user cannot make a device");
  const int opened = open(path, O_WRONLY | O_CLOEXEC);
  if (opened < 0) skip("devices do not work on this file system");
  close(opened);
  write_words(path, "into nothing\n");
  assert_int_equal(kind_of(path), S_IFCHR);
}

static void standard_output_has_several_names(void **state)
{
  (void)state;
  static const char *const names[] = {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    struct plm_output_file *output;
    assert_true(plm_output_is_stdout(names[i]));
    assert_true(plm_output_is_stream(names[i]));
    assert_string_equal(plm_output_name(names[i]), "standard output");
    assert_int_equal(plm_output_open(names[i], &output, NULL), PLM_OK);
    assert_ptr_equal(plm_output_stream(output), stdout);
    assert_int_equal(plm_output_finish(output, NULL), PLM_OK);
    plm_output_close(output);
  }
  assert_false(plm_output_is_stdout("/dev/fd/2"));
  assert_false(plm_output_is_stdout("./-"));
  assert_false(plm_output_is_stdout("/dev/fd/1x"));
}

static void a_descriptor_is_written_where_it_stands(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE], name[64];
  snprintf(path, sizeof path, "%s", scratch_path("redirected"));
  const int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  assert_int_equal(write(descriptor, "before\n", 7), 7);
  snprintf(name, sizeof name, "/dev/fd/%d", descriptor);
  write_words(name, "after\n");
  close(descriptor);
  assert_file(path, "before\nafter\n");
}

static void a_folder_is_refused_at_once(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct plm_output_file *output;
  assert_int_equal(plm_output_open(scratch_directory(), &output, &error), PLM_EXISTS);
  assert_non_null(strstr(error.what, "exists and is not a file"));
  assert_int_equal(plm_output_open(scratch_path("nowhere/out"), &output, &error), PLM_NOT_FOUND);
}

static void paths_and_descriptors_are_told_apart(void **state)
{
  (void)state;
  char file[PLM_PATH_SIZE], folder[PLM_PATH_SIZE];
  struct plm_error error = {0};
  snprintf(file, sizeof file, "%s", scratch_path("plain"));
  assert_false(plm_output_is_stream(file));
  assert_int_equal(plm_output_write(file, "x", 1, false, NULL), PLM_OK);
  assert_false(plm_output_is_stream(file));
  assert_false(plm_output_is_stream(scratch_directory()));
  assert_true(plm_output_is_stream("/dev/null"));
  assert_true(plm_output_is_stream("/dev/stderr"));
  assert_true(plm_output_is_stream("/dev/fd/0"));
  assert_true(plm_output_is_stream("/proc/self/fd/9"));
  assert_false(plm_output_is_stream("/dev/fd/x"));
  assert_false(plm_output_is_stream("/dev/fd/1x"));
  assert_false(plm_output_is_stream("dev/fd/1"));
  assert_true(plm_output_is_stream("/dev/fd/1048576"));
  assert_false(plm_output_is_stream("/dev/fd/1048577"));
  assert_false(plm_output_is_stdout("/dev/stderr"));
  assert_string_equal(plm_output_name(file), file);
  /* the folder in which a stream's other files may be written is the one for temporary files */
  assert_int_equal(plm_output_folder(file, folder, &error), PLM_OK);
  assert_string_equal(folder, scratch_directory());
  assert_int_equal(plm_output_folder("-", folder, &error), PLM_OK);
  assert_non_null(strstr(folder, plm_temporary_folder()));
}

static void only_one_result_goes_to_standard_output(void **state)
{
  (void)state;
  struct plm_error error = {0};
  assert_int_equal(plm_output_check_stdout(NULL, "--json", &error), PLM_OK);
  assert_int_equal(plm_output_check_stdout("file", "--json", &error), PLM_OK);
  assert_int_equal(plm_output_check_stdout("/dev/fd/1", "--json", &error), PLM_USAGE);
  assert_string_equal(error.what,
                      "--json and --output /dev/fd/1 would both write to standard output");
}

static void targets_are_found_through_links(void **state)
{
  (void)state;
  char target[PLM_PATH_SIZE], wanted[PLM_PATH_SIZE], folder[PLM_PATH_SIZE];
  struct plm_error error = {0};
  assert_int_equal(plm_directory_make(scratch_path("deep"), NULL), PLM_OK);
  assert_int_equal(symlink("deep/second", scratch_path("chain")), 0);
  assert_int_equal(symlink("end", scratch_path("deep/second")), 0);
  snprintf(wanted, sizeof wanted, "%s", scratch_path("deep/end"));
  assert_int_equal(plm_output_target(scratch_path("chain"), target, &error), PLM_OK);
  assert_string_equal(target, wanted);
  assert_int_equal(plm_output_folder(scratch_path("chain"), folder, &error), PLM_OK);
  assert_string_equal(folder, scratch_path("deep"));
  assert_int_equal(symlink("deep", scratch_path("to-folder")), 0);
  assert_int_equal(plm_output_target(scratch_path("to-folder"), target, &error), PLM_EXISTS);
  assert_int_equal(plm_output_folder(scratch_path("to-folder"), folder, &error), PLM_EXISTS);
  assert_int_equal(plm_output_target("/dev/null", target, &error), PLM_EXISTS);
  /* 40 links lead to no file, as for the kernel; 39 do */
  for (int i = 0; i < 40; i++) {
    char name[16], next[16];
    snprintf(name, sizeof name, "link%d", i);
    snprintf(next, sizeof next, "link%d", i + 1);
    assert_int_equal(symlink(next, scratch_path(name)), 0);
  }
  assert_int_equal(plm_output_target(scratch_path("link0"), target, &error), PLM_IO);
  assert_non_null(strstr(error.what, "cannot write "));
  assert_int_equal(plm_output_target(scratch_path("link1"), target, &error), PLM_OK);
  assert_string_equal(target, scratch_path("link40"));
}

static void long_paths_are_refused(void **state)
{
  (void)state;
  static char longest[PLM_PATH_SIZE + 1];
  char target[PLM_PATH_SIZE];
  struct plm_error error = {0};
  struct plm_output_file *output;
  memset(longest, 'x', PLM_PATH_SIZE);
  assert_int_equal(plm_output_target(longest, target, &error), PLM_LIMIT);
  assert_int_equal(plm_output_open(longest, &output, &error), PLM_LIMIT);
  longest[PLM_PATH_SIZE - 1] = '\0';
  assert_int_equal(plm_output_target(longest, target, &error), PLM_OK);
  assert_string_equal(target, longest);
  /* a link within a folder, to a name that fits only without the folder */
  longest[1000] = '\0';
  if (symlink(longest, scratch_path("far")) == 0) {
    char path[PLM_PATH_SIZE];
    const char *folder = scratch_directory();
    const size_t slashes = PLM_PATH_SIZE - 1 - 4 - strlen(folder); /* before /far */
    memcpy(path, folder, strlen(folder));
    memset(path + strlen(folder), '/', slashes);
    memcpy(path + strlen(folder) + slashes, "/far", 5);
    assert_int_equal(plm_output_target(path, target, &error), PLM_LIMIT);
  }
  longest[1000] = 'x';
  assert_int_equal(plm_output_open(longest, &output, &error), PLM_LIMIT); /* with .tmp-PID */
  memset(longest, '/', PLM_PATH_SIZE - 1); /* a device needs no temporary path */
  memcpy(longest + PLM_PATH_SIZE - 9, "dev/null", 8);
  assert_int_equal(plm_output_open(longest, &output, &error), PLM_OK);
  plm_output_close(output);
}

static bool chmod_fails;

/* Takes the place of libc's function in this program. */
int fchmod(int file, mode_t mode)
{
  errno = EPERM;
  return chmod_fails ? -1 : (int)syscall(SYS_fchmod, file, mode);
}

static void secrets_are_private(void **state)
{
  (void)state;
  const mode_t before = umask(022);
  const char *path = scratch_path("secret"), *other = scratch_path("public");
  struct plm_error error = {0};
  assert_int_equal(plm_output_write(path, "secret\n", 7, true, &error), PLM_OK);
  assert_file(path, "secret\n");
  assert_int_equal(scratch_mode(scratch_directory(), "secret"), 0600);
  assert_int_equal(plm_output_write(other, "words", 5, false, &error), PLM_OK);
  assert_file(other, "words");
  assert_int_equal(scratch_mode(scratch_directory(), "public"), 0644);
  assert_int_equal(umask(before), 022); /* as it was before the call */
  chmod_fails = true;
  assert_int_equal(plm_output_write(path, "more\n", 5, true, &error), PLM_IO);
  chmod_fails = false;
  assert_memory_equal(error.what, "cannot make ", 12);
  assert_non_null(strstr(error.what, "/secret private: Operation not permitted"));
  assert_file(path, "secret\n");
}

static void a_full_device_is_an_error(void **state)
{
  (void)state;
  struct plm_error error = {0};
  if (!plm_file_exists("/dev/full")) skip("there is no /dev/full");
  assert_int_equal(plm_output_write("/dev/full", "x", 1, false, &error), PLM_NO_SPACE);
  assert_string_equal(error.what, "cannot write /dev/full: No space left on device");
  assert_int_equal(plm_output_write("/dev/fd/999999", "x", 1, false, &error), PLM_IO);
  assert_string_equal(error.what, "cannot write /dev/fd/999999: Bad file descriptor");
}

/* More than a buffer, and a descriptor that only reads. */
static void what_cannot_be_written_is_an_error(void **state)
{
  (void)state;
  static char bytes[1 << 20];
  char path[64], what[128];
  struct plm_error error = {0};
  if (!plm_file_exists("/dev/full")) skip("there is no /dev/full");
  assert_int_equal(plm_output_write("/dev/full", bytes, sizeof bytes, false, &error), PLM_NO_SPACE);
  assert_string_equal(error.what, "cannot write /dev/full: No space left on device");
  const int reading = open(scratch_directory(), O_RDONLY | O_CLOEXEC);
  snprintf(path, sizeof path, "/dev/fd/%d", reading);
  assert_int_equal(plm_output_write(path, "x", 1, false, &error), PLM_IO);
  snprintf(what, sizeof what, "cannot write %s: Invalid argument", path);
  assert_string_equal(error.what, what);
  close(reading);
}

/* Also if the disk has room again for what comes after it, and the file ends as it should. */
static void a_write_that_failed_is_remembered(void **state)
{
  enum { LIMIT = 1 << 16 };
  (void)state;
  const char *path = scratch_path("limited");
  struct plm_error error = {0};
  struct plm_output_file *output;
  struct rlimit limit;
  write_words(path, "before\n");
  assert_int_equal(plm_output_open(path, &output, &error), PLM_OK);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const struct rlimit small = {LIMIT, limit.rlim_max};
  void (*const handler)(int) = signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  for (int i = 0; i < 2 * LIMIT; i++) fputc('x', plm_output_stream(output));
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  signal(SIGXFSZ, handler);
  assert_int_equal(fflush(plm_output_stream(output)), 0);
  const plm_status status = plm_output_finish(output, &error);
  plm_output_close(output);
  assert_int_equal(status, PLM_IO);
  assert_non_null(strstr(error.what, "/limited could not be written"));
  assert_file(path, "before\n");
}

static void a_file_that_cannot_be_replaced_leaves_nothing(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct plm_output_file *output;
  char path[PLM_PATH_SIZE], temporary[PLM_PATH_SIZE + 32];
  snprintf(path, sizeof path, "%s", scratch_path("replaced"));
  snprintf(temporary, sizeof temporary, "%s.tmp-%ld", path, (long)getpid());
  assert_int_equal(plm_output_open(path, &output, &error), PLM_OK);
  assert_true(plm_file_exists(temporary));
  assert_int_equal(mkdir(path, 0700), 0); /* meanwhile */
  assert_int_equal(plm_output_finish(output, &error), PLM_IO);
  plm_output_close(output);
  assert_false(plm_file_exists(temporary));
  plm_output_close(NULL);
}

static void a_file_that_is_also_read_is_refused(void **state)
{
  (void)state;
  struct plm_error error = {0};
  char file[PLM_PATH_SIZE], hard[PLM_PATH_SIZE], soft[PLM_PATH_SIZE], what[2 * PLM_PATH_SIZE];
  snprintf(file, sizeof file, "%s", scratch_path("table"));
  snprintf(hard, sizeof hard, "%s", scratch_path("hard"));
  snprintf(soft, sizeof soft, "%s", scratch_path("soft"));
  write_words(file, "name,sequence\n");
  assert_int_equal(link(file, hard), 0);
  assert_int_equal(symlink("table", soft), 0);
  const char *inputs[] = {scratch_path("missing"), file};
  assert_int_equal(plm_output_check_inputs("--output", file, inputs, 2, &error), PLM_USAGE);
  snprintf(what, sizeof what, "--output %s is also the input", file);
  assert_string_equal(error.what, what);
  assert_string_equal(error.hint, "write the result to another file");
  const char *names[] = {hard, soft};
  for (int i = 0; i < 2; i++) {
    assert_int_equal(plm_output_check_inputs("--trace", names[i], inputs, 2, &error), PLM_USAGE);
    snprintf(what, sizeof what, "--trace %s is the same file as the input %s", names[i], file);
    assert_string_equal(error.what, what);
  }
  /* no input, no output, an output that does not exist yet, and what is no regular file */
  assert_int_equal(plm_output_check_inputs("--output", file, inputs, 1, &error), PLM_OK);
  assert_int_equal(plm_output_check_inputs("--output", NULL, inputs, 2, &error), PLM_OK);
  assert_int_equal(plm_output_check_inputs("--output", inputs[0], inputs, 2, &error), PLM_OK);
  const char *device[] = {"/dev/null"};
  assert_int_equal(plm_output_check_inputs("--output", device[0], device, 1, &error), PLM_OK);
}

static void a_file_that_is_standard_input_is_refused(void **state)
{
  (void)state;
  struct plm_error error = {0};
  char what[2 * PLM_PATH_SIZE];
  const char *file = scratch_path("stdin"), *const inputs[] = {"-"};
  write_words(file, "words\n");
  const int before = dup(STDIN_FILENO), opened = open(file, O_RDONLY | O_CLOEXEC);
  assert_true(opened >= 0 && dup2(opened, STDIN_FILENO) == STDIN_FILENO);
  const plm_status status = plm_output_check_inputs("--output", file, inputs, 1, &error);
  const plm_status zero = plm_output_check_inputs("--output", "/dev/fd/0", inputs, 1, &error);
  if (before >= 0) assert_int_equal(dup2(before, STDIN_FILENO), STDIN_FILENO);
  close(before);
  close(opened);
  assert_int_equal(zero, PLM_OK); /* a descriptor is written to as it is */
  assert_int_equal(status, PLM_USAGE);
  snprintf(what, sizeof what, "--output %s is the same file as standard input", file);
  assert_string_equal(error.what, what);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_file_appears_complete_or_not_at_all),
      cmocka_unit_test(the_temporary_path_must_fit),
      cmocka_unit_test(a_link_stays),
      cmocka_unit_test(a_pipe_is_written_and_stays),
      cmocka_unit_test(a_device_is_written_and_stays),
      cmocka_unit_test(standard_output_has_several_names),
      cmocka_unit_test(a_descriptor_is_written_where_it_stands),
      cmocka_unit_test(a_folder_is_refused_at_once),
      cmocka_unit_test(paths_and_descriptors_are_told_apart),
      cmocka_unit_test(only_one_result_goes_to_standard_output),
      cmocka_unit_test(targets_are_found_through_links),
      cmocka_unit_test(long_paths_are_refused),
      cmocka_unit_test(secrets_are_private),
      cmocka_unit_test(a_full_device_is_an_error),
      cmocka_unit_test(what_cannot_be_written_is_an_error),
      cmocka_unit_test(a_write_that_failed_is_remembered),
      cmocka_unit_test(a_file_that_cannot_be_replaced_leaves_nothing),
      cmocka_unit_test(a_file_that_is_also_read_is_refused),
      cmocka_unit_test(a_file_that_is_standard_input_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
