/* Fetching the corpora of a run into a cache: what is there then, which locks are held, and what
 * the terminal shows. The head is a thread of the test with the real fetch server. */
#include "common/fetch/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/corpus/corpus_description.h"
#include "common/run/stop.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/fetch_head.h"

/* ---- what the terminal shows ----------------------------------------------------------------- */

static bool on_terminal;

int isatty(int descriptor)
{
  return on_terminal && descriptor == STDERR_FILENO;
}

/* For the thread that fetches, a second passes with each part that the head sends, so that the bar
 * is drawn each time. Otherwise its clock is so slow that no answer counts as lost, however busy
 * the machine is. */
enum { SLOWER = 20, NS_PER_S = 1000000000 };
static _Thread_local bool own_clock;

int clock_gettime(clockid_t clock, struct timespec *now)
{
  static _Thread_local long long begun;
  const int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (!own_clock || clock != CLOCK_MONOTONIC) return result;
  const long long real = (long long)now->tv_sec * NS_PER_S + now->tv_nsec;
  if (begun == 0) begun = real;
  const long long slow = begun + (real - begun) / SLOWER;
  now->tv_sec = (time_t)(slow / NS_PER_S + fetch_head_parts);
  now->tv_nsec = (long)(slow % NS_PER_S);
  return result;
}

/* ---- a signal, and a file that cannot be read ------------------------------------------------ */

static off_t stops_in;   /* a stop signal comes when a file of this size is read; 0: none */
static off_t unreadable; /* a file of this size cannot be read; 0: none */

/* Takes the place of libc's function in this program. */
ssize_t pread(int file, void *bytes, size_t size, off_t at)
{
  struct stat information;
  if (stops_in != 0 && fstat(file, &information) == 0 && information.st_size == stops_in)
    plm_stop_requested = SIGTERM;
  if (unreadable != 0 && fstat(file, &information) == 0 && information.st_size == unreadable) {
    errno = EIO;
    return -1;
  }
  if (own_clock) fetch_head_parts++; /* a second passes */
  return syscall(SYS_pread64, file, bytes, size, at);
}

/* ---- a disk that fails ----------------------------------------------------------------------- */

static off_t unsynced; /* a file of this size cannot be synced; 0: none */

int fsync(int file)
{
  struct stat information;
  if (unsynced != 0 && fstat(file, &information) == 0 && information.st_size == unsynced) {
    errno = EIO;
    return -1;
  }
  return (int)syscall(SYS_fsync, file);
}

/* ---- the cache ------------------------------------------------------------------------------- */

static struct plm_fetch_options options_of(const struct fetch_head *head, const char *cache)
{
  return (struct plm_fetch_options){
      .endpoint = head->bound, .cache = scratch_path(cache), .limit_bytes = 1 << 30};
}

static void same_file(const char *folder, const char *other, const char *name)
{
  char path[PLM_PATH_SIZE], *bytes, *expected;
  size_t size, wanted;
  assert_int_equal(plm_path_join(path, folder, name, NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 24, &bytes, &size, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, other, name, NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 24, &expected, &wanted, NULL), PLM_OK);
  assert_int_equal(size, wanted);
  assert_memory_equal(bytes, expected, size);
  free(bytes);
  free(expected);
}

/* Whether somebody holds the lock of a corpus of the cache. */
static bool is_locked(const char *corpus)
{
  char path[PLM_PATH_SIZE];
  assert_true(snprintf(path, sizeof path, "%s.lock", corpus) < (int)sizeof path);
  const int lock = open(path, O_RDWR | O_CLOEXEC);
  assert_true(lock >= 0);
  const bool locked = flock(lock, LOCK_EX | LOCK_NB) != 0;
  close(lock);
  return locked;
}

static void each_corpus_is_fetched_and_locked(void **state)
{
  (void)state;
  struct fetch_head head;
  struct plm_fetched fetched = {0};
  fetch_head_open(&head, 2);
  const struct plm_fetch_options options = options_of(&head, "cache");
  for (int again = 0; again < 2; again++) { /* the second time, the cache has them */
    assert_int_equal(plm_fetch_corpora(&options, &fetched, NULL), PLM_OK);
    assert_int_equal(fetched.count, 2);
    assert_string_not_equal(fetched.paths[0], fetched.paths[1]);
    for (int k = 0; k < 2; k++) {
      same_file(fetched.paths[k], head.folders[k], PLM_CORPUS_DATA);
      same_file(fetched.paths[k], head.folders[k], PLM_CORPUS_DESCRIPTION);
      assert_true(is_locked(fetched.paths[k]));
    }
    plm_fetched_release(&fetched);
    assert_int_equal(fetched.count, 0);
    for (int k = 0; k < 2; k++) assert_false(is_locked(fetched.paths[k]));
    plm_fetched_release(&fetched);
  }
  fetch_head_close(&head);
}

/* One corpus fits into the limit, a second one does not: the first is in use. */
static void the_cache_has_a_limit(void **state)
{
  (void)state;
  struct fetch_head head;
  struct plm_fetched fetched = {0};
  uint64_t bytes = 0;
  fetch_head_open(&head, 2);
  struct plm_fetch_options options = options_of(&head, "small");
  for (int k = 0; k < 2; k++) {
    char path[PLM_PATH_SIZE];
    uint64_t size;
    assert_int_equal(
        plm_path_join(path, head.folders[0], k == 0 ? "data.mdb" : "corpus.json", NULL), PLM_OK);
    assert_int_equal(plm_file_size(path, &size, NULL), PLM_OK);
    bytes += size;
  }
  for (int fits = 0; fits < 2; fits++) {
    options.limit_bytes = bytes - !fits;
    struct plm_error error = {0};
    const plm_status status = plm_fetch_corpora(&options, &fetched, &error);
    if (status != PLM_NO_SPACE) fail_msg("%d: %s", (int)status, error.what);
    assert_int_equal(fetched.count, fits);
    plm_fetched_release(&fetched);
  }
  fetch_head_close(&head);
}

/* What came before the error is in use until it is released. */
static void a_corpus_that_is_missing_ends_it(void **state)
{
  (void)state;
  struct fetch_head head;
  struct plm_fetched fetched = {0};
  struct plm_error error = {0};
  fetch_head_open(&head, 3);
  const struct plm_fetch_options options = options_of(&head, "other");
  assert_int_equal(plm_fetch_corpora(&options, &fetched, &error), PLM_NOT_FOUND);
  assert_non_null(strstr(error.what, "corpus2 is not a corpus"));
  assert_int_equal(fetched.count, 2);
  for (int k = 0; k < 2; k++) assert_true(is_locked(fetched.paths[k]));
  plm_fetched_release(&fetched);
  for (int k = 0; k < 2; k++) assert_false(is_locked(fetched.paths[k]));
  fetch_head_close(&head);
}

static void a_head_has_at_most_16_corpora(void **state)
{
  (void)state;
  for (uint32_t count = PLM_MAX_SOURCES; count <= PLM_MAX_SOURCES + 1; count++) {
    struct fetch_head head;
    struct plm_fetched fetched = {0};
    struct plm_error error = {0};
    fetch_head_open(&head, count);
    const struct plm_fetch_options options = options_of(&head, "cache");
    const plm_status status = plm_fetch_corpora(&options, &fetched, &error);
    if (count == PLM_MAX_SOURCES) {
      assert_int_equal(status, PLM_OK);
      assert_int_equal(fetched.count, count);
      assert_string_equal(fetched.paths[count - 1], fetched.paths[1]);
    } else {
      assert_int_equal(status, PLM_PROTOCOL);
      assert_non_null(strstr(error.what, " has 17 corpora"));
      assert_int_equal(fetched.count, 1);
    }
    plm_fetched_release(&fetched);
    fetch_head_close(&head);
  }
}

/* Changes a byte of a file; again: puts it back. */
static void change_byte(const char *path, uint64_t at)
{
  unsigned char byte;
  const int file = open(path, O_RDWR | O_CLOEXEC);
  assert_true(file >= 0);
  assert_int_equal(pread(file, &byte, 1, (off_t)at), 1);
  byte ^= 1;
  assert_int_equal(pwrite(file, &byte, 1, (off_t)at), 1);
  close(file);
}

/* What an earlier fetch left of data.mdb is used if it is the beginning of the file, or all of it.
 */
static void an_interrupted_fetch_is_continued(void **state)
{
  enum { SOME = 5000 };
  (void)state;
  struct fetch_head head;
  struct plm_corpus_description description;
  char cache[PLM_PATH_SIZE], part[PLM_PATH_SIZE], data[PLM_PATH_SIZE], original[PLM_PATH_SIZE];
  char hash[PLM_HASH_HEX_SIZE], *bytes;
  size_t size;
  fetch_head_open(&head, 1);
  assert_int_equal(plm_corpus_description_read(head.folders[0], &description, NULL), PLM_OK);
  plm_hash_to_hex(description.files.whole, hash);
  plm_corpus_description_deinit(&description);
  assert_int_equal(plm_path_join(original, head.folders[0], PLM_CORPUS_DATA, NULL), PLM_OK);
  assert_int_equal(plm_file_read(original, 1 << 24, &bytes, &size, NULL), PLM_OK);
  const struct {
    size_t left;
    int64_t changed; /* byte; -1: none */
    bool continued, damaged;
  } rows[] = {{SOME, -1, true, false},     {SOME, 0, true, true},     {SOME, SOME - 1, true, true},
              {size, -1, false, false},    {size, SOME, false, true}, {size + 1, -1, false, true},
              {size - 1, -1, true, false}, {0, -1, false, false}};
  char *more = malloc(size + 1);
  assert_non_null(more);
  memcpy(more, bytes, size);
  more[size] = 'x';
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char name[24];
    struct plm_fetched fetched = {0};
    struct plm_error error = {0};
    snprintf(name, sizeof name, "left.%zu", i);
    snprintf(cache, sizeof cache, "%s", scratch_path(name));
    snprintf(part, sizeof part, "%.3000s/%s.part", cache, hash);
    assert_int_equal(plm_directory_make(cache, NULL), PLM_OK);
    assert_int_equal(plm_directory_make(part, NULL), PLM_OK);
    assert_int_equal(plm_path_join(data, part, PLM_CORPUS_DATA, NULL), PLM_OK);
    scratch_write(data, more, rows[i].left);
    if (rows[i].changed >= 0) change_byte(data, (uint64_t)rows[i].changed);
    const struct plm_fetch_options options = options_of(&head, name);
    captured_begin(STDERR_FILENO);
    const plm_status status = plm_fetch_corpora(&options, &fetched, &error);
    const char *said = captured_end();
    if (status != PLM_OK) fail_msg("row %zu: %s", i, error.what);
    assert_non_null(strstr(said, hash));
    assert_int_equal(captured_times(said, "continuing after "), rows[i].continued);
    assert_int_equal(
        captured_times(said, "what an interrupted fetch left is damaged; fetching all of"),
        rows[i].damaged);
    same_file(fetched.paths[0], head.folders[0], PLM_CORPUS_DATA);
    assert_false(plm_file_exists(part));
    plm_fetched_release(&fetched);
  }
  free(more);
  free(bytes);
  fetch_head_close(&head);
}

/* A stop signal ends the look at what an earlier fetch left, which stays. */
static void a_stop_signal_leaves_the_part(void **state)
{
  (void)state;
  struct fetch_head head;
  struct plm_fetched fetched = {0};
  struct plm_error error = {0};
  char part[PLM_PATH_SIZE], hash[PLM_HASH_HEX_SIZE], path[PLM_PATH_SIZE];
  char *bytes;
  size_t size;
  fetch_head_open(&head, 1);
  assert_int_equal(plm_path_join(path, head.folders[0], PLM_CORPUS_DATA, NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 24, &bytes, &size, NULL), PLM_OK);
  plm_hash_to_hex(plm_hash_bytes(bytes, size), hash);
  snprintf(part, sizeof part, "%s/%s.part", scratch_path("stopped"), hash);
  assert_int_equal(plm_directory_make(scratch_path("stopped"), NULL), PLM_OK);
  assert_int_equal(plm_directory_make(part, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, part, PLM_CORPUS_DATA, NULL), PLM_OK);
  scratch_write(path, bytes, size);
  free(bytes);
  const struct plm_fetch_options options = options_of(&head, "stopped");
  stops_in = (off_t)size;
  const plm_status status = plm_fetch_corpora(&options, &fetched, &error);
  stops_in = 0;
  plm_stop_requested = 0;
  assert_int_equal(status, PLM_TERMINATED);
  assert_int_equal(fetched.count, 0);
  assert_true(plm_file_exists(part));
  assert_int_equal(plm_fetch_corpora(&options, &fetched, &error), PLM_OK);
  plm_fetched_release(&fetched);
  fetch_head_close(&head);
}

/* A corpus that is not what its description says is asked for once, and nothing of it is kept. */
static void what_cannot_be_read_is_named(void **state)
{
  enum { SOME = 5000 };
  (void)state;
  static const char bytes[SOME];
  struct fetch_head head;
  struct plm_fetched fetched = {0};
  struct plm_error error = {0};
  struct plm_corpus_description description;
  char part[PLM_PATH_SIZE], hash[PLM_HASH_HEX_SIZE], path[PLM_PATH_SIZE];
  char expected[PLM_PATH_SIZE + 64];
  fetch_head_open(&head, 1);
  assert_int_equal(plm_corpus_description_read(head.folders[0], &description, NULL), PLM_OK);
  plm_hash_to_hex(description.files.whole, hash);
  plm_corpus_description_deinit(&description);
  snprintf(part, sizeof part, "%.3000s/%s.part", scratch_path("unreadable"), hash);
  assert_int_equal(plm_directory_make(part, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, part, PLM_CORPUS_DATA, NULL), PLM_OK);
  scratch_write(path, bytes, SOME);
  const struct plm_fetch_options options = options_of(&head, "unreadable");
  unreadable = SOME;
  const plm_status status = plm_fetch_corpora(&options, &fetched, &error);
  unreadable = 0;
  assert_int_equal(status, PLM_IO);
  snprintf(expected, sizeof expected, "cannot read %s: Input/output error", path);
  assert_string_equal(error.what, expected);
  fetch_head_close(&head);
}

static bool stays; /* nothing can be removed */

/* Takes the place of libc's function in this program. */
int remove(const char *path)
{
  struct stat information;
  errno = EACCES;
  if (stays || lstat(path, &information) != 0) return -1;
  return S_ISDIR(information.st_mode) ? rmdir(path) : unlink(path);
}

static void a_damaged_corpus_is_not_kept(void **state)
{
  (void)state;
  struct fetch_head head;
  struct plm_fetched fetched = {0};
  struct plm_error error = {0};
  char original[PLM_PATH_SIZE];
  fetch_head_open(&head, 1);
  assert_int_equal(plm_path_join(original, head.folders[0], PLM_CORPUS_DATA, NULL), PLM_OK);
  change_byte(original, 6000);
  const struct plm_fetch_options options = options_of(&head, "damaged");
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_fetch_corpora(&options, &fetched, &error);
  const char *said = captured_end();
  assert_int_equal(status, PLM_CORRUPT);
  assert_non_null(strstr(error.what, " sent a corpus that is not what its corpus.json states"));
  assert_int_equal(captured_times(said, "damaged"), 1); /* only the cache's path */
  stays = true;
  captured_begin(STDERR_FILENO);
  const plm_status again = plm_fetch_corpora(&options, &fetched, &error);
  (void)captured_end();
  stays = false;
  change_byte(original, 6000);
  assert_int_equal(again, PLM_IO);
  assert_non_null(strstr(error.what, ".part: Permission denied"));
  assert_memory_equal(error.what, "cannot remove ", 14);
  assert_int_equal(fetched.count, 0);
  plm_fetched_release(&fetched);
  fetch_head_close(&head);
}

/* What may not be on the disk is not said to be there. What was fetched is there for a next try. */
static void a_corpus_is_synced(void **state)
{
  (void)state;
  struct fetch_head head;
  struct plm_fetched fetched = {0};
  struct plm_error error = {0};
  char original[PLM_PATH_SIZE];
  uint64_t size;
  fetch_head_open(&head, 1);
  assert_int_equal(plm_path_join(original, head.folders[0], PLM_CORPUS_DATA, NULL), PLM_OK);
  assert_int_equal(plm_file_size(original, &size, NULL), PLM_OK);
  const struct plm_fetch_options options = options_of(&head, "unsynced");
  unsynced = (off_t)size;
  const plm_status status = plm_fetch_corpora(&options, &fetched, &error);
  unsynced = 0;
  assert_int_equal(status, PLM_IO);
  assert_non_null(strstr(error.what, "cannot fsync "));
  assert_int_equal(fetched.count, 0);
  assert_int_equal(plm_fetch_corpora(&options, &fetched, &error), PLM_OK);
  plm_fetched_release(&fetched);
  fetch_head_close(&head);
}

/* On a terminal, the bar is gone when the next line comes, and at the end. */
static void the_bar_is_removed(void **state)
{
  (void)state;
  static const char gone[] = "\r\033[K", next[] = "t: fetching the corpus ";
  struct fetch_head head;
  struct plm_fetched fetched = {0};
  fetch_head_open(&head, 2);
  const struct plm_fetch_options options = options_of(&head, "third");
  setenv("TERM", "xterm", 1);
  captured_begin(STDERR_FILENO);
  on_terminal = own_clock = true;
  const plm_status status = plm_fetch_corpora(&options, &fetched, NULL);
  on_terminal = own_clock = false;
  const char *said = captured_end();
  assert_int_equal(status, PLM_OK);
  assert_int_equal(captured_times(said, next), 2);
  assert_int_equal(captured_times(said, "\rfetch ["), captured_times(said, "100 %"));
  const char *second = strstr(strstr(said, next) + 1, next);
  assert_true(second - said > 4 && strncmp(second - 4, gone, 4) == 0);
  assert_true(strlen(second) > 4 && strcmp(second + strlen(second) - 4, gone) == 0);
  assert_true(captured_times(said, "\rfetch [") >= 2 && captured_times(second, "\rfetch [") >= 1);
  assert_int_equal(captured_times(said, gone), 2);
  plm_fetched_release(&fetched);
  fetch_head_close(&head);
}

/* What an earlier fetch has left is a part of the whole. */
static void the_bar_begins_with_what_was_there(void **state)
{
  (void)state;
  struct fetch_head head;
  struct plm_fetched fetched = {0};
  char part[PLM_PATH_SIZE], hash[PLM_HASH_HEX_SIZE], path[PLM_PATH_SIZE], *bytes;
  size_t size;
  fetch_head_open(&head, 1);
  assert_int_equal(plm_path_join(path, head.folders[0], PLM_CORPUS_DATA, NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 24, &bytes, &size, NULL), PLM_OK);
  plm_hash_to_hex(plm_hash_bytes(bytes, size), hash);
  snprintf(part, sizeof part, "%s/%s.part", scratch_path("half"), hash);
  assert_int_equal(plm_directory_make(scratch_path("half"), NULL), PLM_OK);
  assert_int_equal(plm_directory_make(part, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, part, PLM_CORPUS_DATA, NULL), PLM_OK);
  scratch_write(path, bytes, size / 2);
  free(bytes);
  const struct plm_fetch_options options = options_of(&head, "half");
  setenv("TERM", "xterm", 1);
  captured_begin(STDERR_FILENO);
  on_terminal = own_clock = true;
  const plm_status status = plm_fetch_corpora(&options, &fetched, NULL);
  on_terminal = own_clock = false;
  const char *said = captured_end();
  assert_int_equal(status, PLM_OK);
  const char *bar = strstr(said, "\rfetch [");
  assert_non_null(bar);
  assert_int_equal(strncmp(strchr(bar, ']'), "]  50 %", 7), 0);
  plm_fetched_release(&fetched);
  fetch_head_close(&head);
}

int main(void)
{
  plm_log_init("t", PLM_LOG_INFO);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_corpus_is_fetched_and_locked),
      cmocka_unit_test(the_cache_has_a_limit),
      cmocka_unit_test(a_corpus_that_is_missing_ends_it),
      cmocka_unit_test(a_head_has_at_most_16_corpora),
      cmocka_unit_test(an_interrupted_fetch_is_continued),
      cmocka_unit_test(a_stop_signal_leaves_the_part),
      cmocka_unit_test(what_cannot_be_read_is_named),
      cmocka_unit_test(a_damaged_corpus_is_not_kept),
      cmocka_unit_test(a_corpus_is_synced),
      cmocka_unit_test(the_bar_is_removed),
      cmocka_unit_test(the_bar_begins_with_what_was_there),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
