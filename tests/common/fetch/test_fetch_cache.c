/* Which corpora leave the cache when another one needs room, and when there is not enough. */
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/base/numbers/hash.h"
#include "common/fetch/fetch.h"
#include "common/fetch/fetch_cache.h"
#include "tests/support/harness/scratch.h"

static char folder[200];

/* FOLDER/HASH and an ending; the hash of entry `letter` is that letter 32 times. */
static const char *path_of(char letter, const char *ending)
{
  static char path[400];
  char hash[PLM_HASH_HEX_SIZE];
  memset(hash, letter, sizeof hash - 1);
  hash[sizeof hash - 1] = '\0';
  snprintf(path, sizeof path, "%s/%s%s", folder, hash, ending);
  return path;
}

static void put(const char *path, size_t size)
{
  char bytes[1000] = {0};
  assert_true(size <= sizeof bytes);
  scratch_write(path, bytes, size);
}

/* An entry of 100 bytes that was last used at this time: 70 and 10 in the corpus, 20 in the part.
 */
static void put_entry(char letter, time_t seconds, long nanoseconds)
{
  const struct timespec times[2] = {{0}, {.tv_sec = seconds, .tv_nsec = nanoseconds}};
  assert_int_equal(plm_directory_make(path_of(letter, ""), NULL), PLM_OK);
  assert_int_equal(plm_directory_make(path_of(letter, ".part"), NULL), PLM_OK);
  put(path_of(letter, "/data.mdb"), 70);
  put(path_of(letter, "/corpus.json"), 10);
  put(path_of(letter, "/other"), 500); /* does not count */
  put(path_of(letter, ".part/data.mdb"), 20);
  put(path_of(letter, ".lock"), 0);
  assert_int_equal(utimensat(AT_FDCWD, path_of(letter, ".lock"), times, 0), 0);
}

/* a is the least recently used, then c, then b. */
static void make_cache(void)
{
  plm_log_init("t", PLM_LOG_ERROR);
  snprintf(folder, sizeof folder, "%.199s", scratch_path("cache"));
  assert_int_equal(plm_path_remove(folder, NULL), PLM_OK);
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  put_entry('a', 1000, 0);
  put_entry('b', 1001, 7);
  put_entry('c', 1001, 6);
  put(scratch_path("cache/short.lock"), 0);
  put(path_of('d', ".lockx"), 0);
  put(path_of('e', ".lock"), 0); /* nothing is there */
}

/* Whether these entries, and no others, are left. Lock files stay. */
static void has(const char *letters)
{
  for (char letter = 'a'; letter <= 'c'; letter++) {
    const bool expected = strchr(letters, letter) != NULL;
    if (plm_file_exists(path_of(letter, "")) != expected ||
        plm_file_exists(path_of(letter, ".part")) != expected)
      fail_msg("not %s: %c", letters, letter);
    assert_true(plm_file_exists(path_of(letter, ".lock")));
  }
}

static plm_status room_for(uint64_t bytes, uint64_t limit, char keep, struct plm_error *error)
{
  char hash[PLM_HASH_HEX_SIZE];
  memset(hash, keep, sizeof hash - 1);
  hash[sizeof hash - 1] = '\0';
  return plm_fetch_cache_make_room(folder, hash, bytes, limit, error);
}

static void the_least_recently_used_leave(void **state)
{
  (void)state;
  static const struct {
    uint64_t bytes;
    const char *left;
  } cases[] = {{700, "abc"}, {701, "bc"}, {800, "bc"}, {801, "b"},
               {900, "b"},   {901, ""},   {1000, ""}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    make_cache();
    assert_int_equal(room_for(cases[i].bytes, 1000, 'f', NULL), PLM_OK);
    has(cases[i].left);
  }
}

/* Whatever the order in which the folder lists them: of b and c, the one that was used before the
 * other one leaves, by a nanosecond. */
static void a_nanosecond_decides(void **state)
{
  (void)state;
  for (int way = 0; way < 2; way++) {
    make_cache();
    put_entry('b', 1001, way == 0 ? 7 : 6);
    put_entry('c', 1001, way == 0 ? 6 : 7);
    assert_int_equal(room_for(801, 1000, 'f', NULL), PLM_OK);
    has(way == 0 ? "b" : "c");
  }
}

/* More lock files than a cache is expected to have are passed over. */
static void a_cache_may_have_very_many_entries(void **state)
{
  enum { MANY = 4200 };
  (void)state;
  char path[400];
  make_cache();
  for (int i = 0; i < MANY; i++) {
    snprintf(path, sizeof path, "%s/%032d.lock", folder, i);
    put(path, 0);
  }
  assert_int_equal(room_for(1, 1000, 'f', NULL), PLM_OK);
  has("abc");
}

/* What is there of the corpus itself is part of its bytes. */
static void the_corpus_itself_stays(void **state)
{
  (void)state;
  make_cache();
  assert_int_equal(room_for(800, 1000, 'a', NULL), PLM_OK);
  has("abc");
  assert_int_equal(room_for(801, 1000, 'a', NULL), PLM_OK);
  has("ab");
  assert_int_equal(room_for(1000, 1000, 'a', NULL), PLM_OK);
  has("a");
}

static void what_is_in_use_stays(void **state)
{
  (void)state;
  struct plm_error error = {0};
  make_cache();
  const int lock = open(path_of('a', ".lock"), O_RDWR);
  assert_int_equal(flock(lock, LOCK_SH), 0);
  assert_int_equal(room_for(750, 1000, 'f', NULL), PLM_OK);
  has("ab");
  assert_int_equal(room_for(901, 1000, 'f', &error), PLM_NO_SPACE);
  has("a");
  char what[512];
  snprintf(what, sizeof what,
           "the cache %s may hold 0.00 GB; the corpus has 0.00 GB, and corpora that are in use "
           "have 0.00 GB",
           folder);
  assert_string_equal(error.what, what);
  assert_string_equal(error.hint, "raise --cache-limit, or choose another --cache DIR");
  close(lock);
  assert_int_equal(room_for(901, 1000, 'f', NULL), PLM_OK);
  has("");
}

static void the_disk_has_a_limit_too(void **state)
{
  (void)state;
  struct plm_error error = {0};
  make_cache();
  assert_int_equal(room_for(UINT64_C(1) << 62, UINT64_MAX, 'f', &error), PLM_NO_SPACE);
  assert_non_null(strstr(error.what, " has room for "));
  assert_non_null(strstr(error.what, "; the corpus needs 4611686018.43 GB more"));
  assert_int_equal(room_for(UINT64_C(1) << 62, UINT64_MAX, 'a', &error), PLM_NO_SPACE);
  assert_int_equal(room_for(99, 1000, 'a', NULL), PLM_OK); /* it has more than that already */
  has("abc");
  snprintf(folder, sizeof folder, "%.199s", scratch_path("missing"));
  assert_int_equal(room_for(1, 1000, 'a', &error), PLM_NOT_FOUND);
}

static void the_folder_follows_the_environment(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  struct plm_error error = {0};
  setenv("XDG_CACHE_HOME", "/x", 1);
  assert_int_equal(plm_fetch_cache_folder(path, NULL), PLM_OK);
  assert_string_equal(path, "/x/plm-pipeline/corpora");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", "/home/me", 1);
  assert_int_equal(plm_fetch_cache_folder(path, NULL), PLM_OK);
  assert_string_equal(path, "/home/me/.cache/plm-pipeline/corpora");
  unsetenv("HOME");
  assert_int_equal(plm_fetch_cache_folder(path, &error), PLM_CONFIG);
  assert_string_equal(error.what, "no folder for fetched corpora is known");
}

static plm_status make_room_for_all(void *context, struct plm_error *error)
{
  const long at = failing_disk_pause();
  (void)context;
  make_cache();
  failing_disk_resume(at);
  return room_for(1000, 1000, 'f', error);
}

/* What cannot be removed is said. An entry whose lock cannot be opened counts as one in use. */
static void a_disk_that_fails_is_said(void **state)
{
  static const char *const locks[] = {"open *.lock", "open *.lock", "open *.lock", NULL};
  (void)state;
  failing_disk_try(make_room_for_all, NULL, locks);
}

/* The number of a closed descriptor is soon somebody else's. */
static void locks_are_given_up_once(void **state)
{
  (void)state;
  struct plm_fetched fetched = {.locks = {open("/dev/null", O_RDONLY), -1}, .count = 2};
  const int number = fetched.locks[0];
  assert_true(number >= 0);
  plm_fetched_release(&fetched);
  assert_int_equal(fcntl(number, F_GETFD), -1);
  const int others = open("/dev/null", O_RDONLY);
  assert_int_equal(others, number);
  plm_fetched_release(&fetched);
  assert_int_not_equal(fcntl(others, F_GETFD), -1);
  close(others);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_disk_that_fails_is_said),
      cmocka_unit_test(the_least_recently_used_leave),
      cmocka_unit_test(a_nanosecond_decides),
      cmocka_unit_test(a_cache_may_have_very_many_entries),
      cmocka_unit_test(the_corpus_itself_stays),
      cmocka_unit_test(what_is_in_use_stays),
      cmocka_unit_test(the_disk_has_a_limit_too),
      cmocka_unit_test(the_folder_follows_the_environment),
      cmocka_unit_test(locks_are_given_up_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
