/* common/base: Philox's known answer, hashes, growing strings, files. */
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/progress.h"
#include "common/base/numbers/hash.h"
#include "common/base/numbers/philox.h"
#include "common/base/numbers/random.h"
#include "common/base/text/text.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static void philox_gives_the_known_answer(void **state)
{
  (void)state;
  const struct plm_philox_words zero = plm_philox(0, 0, 0, 0);
  assert_int_equal(zero.w[0], 0x6627e8d5);
  assert_int_equal(zero.w[1], 0xe169c58d);
  assert_int_equal(zero.w[2], 0xbc57ac4c);
  assert_int_equal(zero.w[3], 0x9b00dbd8);
  /* the second vector of the paper's reference implementation: all bits set */
  const struct plm_philox_words ones = plm_philox(UINT64_MAX, UINT32_MAX, UINT64_MAX, UINT32_MAX);
  assert_int_equal(ones.w[0], 0x408f276d);
  assert_int_equal(ones.w[1], 0x41c83b0e);
  assert_int_equal(ones.w[2], 0xa20bc7c6);
  assert_int_equal(ones.w[3], 0x6d5451fd);
}

static void hashes_go_to_hex_and_back(void **state)
{
  (void)state;
  char hex[PLM_HASH_HEX_SIZE];
  plm_hash_to_hex(plm_hash_bytes("", 0), hex);
  assert_string_equal(hex, "99aa06d3014798d86001c324468d497f"); /* xxhsum -H2 of an empty file */
  struct plm_hash back;
  assert_int_equal(plm_hash_from_hex(hex, &back, NULL), PLM_OK);
  assert_true(plm_hash_equal(back, plm_hash_bytes("", 0)));
  assert_true(plm_hash_known((struct plm_hash){.low = 1}));
  assert_true(plm_hash_known((struct plm_hash){.high = 1}));
  assert_false(plm_hash_known((struct plm_hash){0}));
  struct plm_error error = {0};
  assert_int_equal(plm_hash_from_hex("99AA", &back, &error), PLM_FORMAT);
}

static void files_are_replaced_whole(void **state)
{
  (void)state;
  struct plm_error error = {0};
  char path[PLM_PATH_SIZE], *bytes;
  size_t size;
  const char *folder = getenv("PLM_TMP") != NULL ? getenv("PLM_TMP") : "/tmp";
  assert_int_equal(plm_path_join(path, folder, "a/b/c", &error), PLM_OK);
  assert_int_equal(plm_directory_make(path, &error), PLM_OK);
  assert_int_equal(plm_path_join(path, folder, "a/b/c/file", &error), PLM_OK);
  assert_int_equal(plm_file_replace(path, "one", 3, 0600, &error), PLM_OK);
  assert_int_equal(plm_file_replace(path, "second", 6, 0600, &error), PLM_OK);
  assert_int_equal(plm_file_read(path, 100, &bytes, &size, &error), PLM_OK);
  assert_int_equal(size, 6);
  assert_string_equal(bytes, "second");
  free(bytes);
  assert_int_equal(plm_file_read(path, 5, &bytes, &size, &error), PLM_LIMIT);
  assert_int_equal(plm_path_join(path, folder, "a", &error), PLM_OK);
  assert_int_equal(plm_path_remove(path, &error), PLM_OK);
  assert_false(plm_file_exists(path));
  assert_int_equal(plm_file_read(path, 5, &bytes, &size, &error), PLM_NOT_FOUND);
}

static void a_killed_replacement_leaves_nothing_for_long(void **state)
{
  (void)state;
  struct plm_error error = {0};
  char path[PLM_PATH_SIZE], left[PLM_PATH_SIZE + 8], *bytes;
  size_t size;
  const char *folder = getenv("PLM_TMP") != NULL ? getenv("PLM_TMP") : "/tmp";
  assert_int_equal(plm_path_join(path, folder, "replaced", &error), PLM_OK);
  snprintf(left, sizeof left, "%s.tmp", path);
  assert_int_equal(plm_file_write(left, "longer than the next", 20, 0644, &error), PLM_OK);
  assert_int_equal(plm_file_replace(path, "next", 4, 0600, &error), PLM_OK);
  assert_false(plm_file_exists(left));
  assert_int_equal(plm_file_read(path, 100, &bytes, &size, &error), PLM_OK);
  assert_string_equal(bytes, "next");
  free(bytes);
  struct stat information;
  assert_int_equal(stat(path, &information), 0);
  assert_int_equal(information.st_mode & 0777, 0600); /* not that of what was left */
  assert_int_equal(plm_path_remove(path, &error), PLM_OK);
}

static void writers_of_one_path_take_turns(void **state)
{
  (void)state;
  enum { writers = 4, rounds = 200 };
  struct plm_error error = {0};
  char path[PLM_PATH_SIZE], left[PLM_PATH_SIZE + 8], text[4096], *bytes;
  size_t size;
  const char *folder = getenv("PLM_TMP") != NULL ? getenv("PLM_TMP") : "/tmp";
  assert_int_equal(plm_path_join(path, folder, "contested", &error), PLM_OK);
  for (int i = 0; i < writers; i++) {
    if (fork() != 0) continue;
    memset(text, 'a' + i, sizeof text);
    for (int round = 0; round < rounds; round++)
      if (plm_file_replace(path, text, sizeof text, 0600, &error) != PLM_OK) _exit(1);
    _exit(0);
  }
  for (int i = 0; i < writers; i++) {
    int status;
    assert_true(wait(&status) > 0);
    assert_int_equal(status, 0);
  }
  assert_int_equal(plm_file_read(path, sizeof text, &bytes, &size, &error), PLM_OK);
  assert_int_equal(size, sizeof text);
  memset(text, bytes[0], sizeof text);
  assert_memory_equal(bytes, text, sizeof text);
  free(bytes);
  snprintf(left, sizeof left, "%s.tmp", path);
  assert_false(plm_file_exists(left));
  assert_int_equal(plm_path_remove(path, &error), PLM_OK);
}

static void text_grows(void **state)
{
  (void)state;
  struct plm_text text = {0};
  for (int i = 0; i < 1000; i++) plm_text_printf(&text, "%d,", i % 10);
  assert_int_equal(text.length, 2000);
  assert_memory_equal(text.data, "0,1,2,3,", 8);
  plm_text_deinit(&text);
}

static void quantities_are_singular_or_plural(void **state)
{
  (void)state;
  char text[64];
  assert_string_equal(plm_format_quantity(0, "sequence", text), "0 sequences");
  assert_string_equal(plm_format_quantity(1, "sequence", text), "1 sequence");
  assert_string_equal(plm_format_quantity(1234, "sequence", text), "1,234 sequences");
  assert_string_equal(plm_format_quantity(1, "pass", text), "1 pass");
  assert_string_equal(plm_format_quantity(2, "pass", text), "2 passes");
}

static void a_bar_counts_one_in_the_singular(void **state)
{
  (void)state;
  struct plm_progress progress;
  char *text;
  size_t size;
  const char *path = scratch_path("progress");
  const int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600), error = dup(STDERR_FILENO);
  dup2(file, STDERR_FILENO);
  plm_progress_begin(&progress, "read");
  progress.terminal = false;
  progress.last_ns = 0; /* long ago, so that the line is due */
  plm_progress_update(&progress, 1, 2, 1, 1, "sequence");
  dup2(error, STDERR_FILENO);
  close(error);
  close(file);
  assert_int_equal(plm_file_read(path, 1000, &text, &size, NULL), PLM_OK);
  assert_non_null(strstr(text, "read 50 %  1 sequence, "));
  free(text);
}

static void on_alarm(int signal)
{
  (void)signal;
}

/* getrandom returns early when a signal comes, and fails if it has nothing yet. */
static void random_bytes_are_complete_despite_signals(void **state)
{
  (void)state;
  enum { SIZE = 1 << 22, PART = 64 };
  static const unsigned char nothing[PART];
  const struct sigaction interrupt = {.sa_handler = on_alarm}, ignore = {.sa_handler = SIG_IGN};
  const struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
  unsigned char *bytes = calloc(1, SIZE);
  assert_non_null(bytes);
  sigaction(SIGALRM, &interrupt, NULL);
  setitimer(ITIMER_REAL, &often, NULL);
  assert_int_equal(plm_random_bytes(bytes, SIZE, NULL), PLM_OK);
  setitimer(ITIMER_REAL, &never, NULL);
  sigaction(SIGALRM, &ignore, NULL);
  for (size_t i = 0; i < SIZE; i += PART) assert_memory_not_equal(bytes + i, nothing, PART);
  free(bytes);
}

static void the_temporary_folder_has_a_default(void **state)
{
  (void)state;
  setenv("TMPDIR", "/somewhere", 1);
  assert_string_equal(plm_temporary_folder(), "/somewhere");
  setenv("TMPDIR", "", 1);
  assert_string_equal(plm_temporary_folder(), "/tmp");
  unsetenv("TMPDIR");
  assert_string_equal(plm_temporary_folder(), "/tmp");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(quantities_are_singular_or_plural),
      cmocka_unit_test(a_bar_counts_one_in_the_singular),
      cmocka_unit_test(philox_gives_the_known_answer),
      cmocka_unit_test(hashes_go_to_hex_and_back),
      cmocka_unit_test(files_are_replaced_whole),
      cmocka_unit_test(a_killed_replacement_leaves_nothing_for_long),
      cmocka_unit_test(writers_of_one_path_take_turns),
      cmocka_unit_test(text_grows),
      cmocka_unit_test(random_bytes_are_complete_despite_signals),
      cmocka_unit_test(the_temporary_folder_has_a_default),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
