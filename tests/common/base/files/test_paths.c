/* Paths at their limits, and what is asked of a file or made of a folder. */
#include "tests/support/harness/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/numbers/hash.h"
#include "tests/support/harness/scratch.h"

static void paths_are_joined_up_to_the_limit(void **state)
{
  (void)state;
  struct plm_error error = {0};
  char path[PLM_PATH_SIZE], name[PLM_PATH_SIZE + 1];
  assert_int_equal(plm_path_join(path, "a/b", "c", NULL), PLM_OK);
  assert_string_equal(path, "a/b/c");
  assert_int_equal(plm_path_join(path, "a/b", "/c", NULL), PLM_OK);
  assert_string_equal(path, "/c");
  memset(name, 'n', sizeof name);
  name[PLM_PATH_SIZE - 3] = '\0'; /* with "a/" it is one byte shorter than the array */
  assert_int_equal(plm_path_join(path, "a", name, NULL), PLM_OK);
  assert_int_equal(strlen(path), PLM_PATH_SIZE - 1);
  name[PLM_PATH_SIZE - 3] = 'n';
  name[PLM_PATH_SIZE - 2] = '\0';
  assert_int_equal(plm_path_join(path, "a", name, &error), PLM_LIMIT);
  assert_non_null(strstr(error.what, "is longer than 4095 bytes"));
  name[PLM_PATH_SIZE - 2] = 'n';
  name[PLM_PATH_SIZE - 1] = '\0';
  name[0] = '/';
  assert_int_equal(plm_path_join(path, "a", name, NULL), PLM_OK);
  assert_int_equal(plm_path_parent(path, name, NULL), PLM_OK);
  assert_string_equal(path, "/");
  name[PLM_PATH_SIZE - 1] = 'n';
  name[PLM_PATH_SIZE] = '\0';
  assert_int_equal(plm_path_join(path, "a", name, NULL), PLM_LIMIT);
  assert_int_equal(plm_path_parent(path, name, NULL), PLM_LIMIT);
  assert_int_equal(plm_directory_make(name, NULL), PLM_LIMIT);
}

static void a_path_has_a_folder(void **state)
{
  static const char *const cases[][2] = {
      {"a/b/c", "a/b"}, {"a/b", "a"}, {"a", "."}, {"/a", "/"}, {"/", "/"}, {"/a/b", "/a"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char parent[PLM_PATH_SIZE];
    assert_int_equal(plm_path_parent(parent, cases[i][0], NULL), PLM_OK);
    assert_string_equal(parent, cases[i][1]);
  }
}

static void the_cache_folder_follows_the_environment(void **state)
{
  static const struct {
    const char *cache, *home, *name, *path; /* path NULL: there is none */
  } cases[] = {
      {"/c", "/h", "n", "/c/plm-pipeline/n"},
      {"/c", NULL, "", "/c/plm-pipeline"},
      {NULL, "/h", "n", "/h/.cache/plm-pipeline/n"},
      {"c", "/h", "", "/h/.cache/plm-pipeline"},
      {"", "/h", "n", "/h/.cache/plm-pipeline/n"},
      {NULL, NULL, "n", NULL},
      {"c", "h", "n", NULL},
      {NULL, "", "n", NULL},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char path[PLM_PATH_SIZE];
    cases[i].cache != NULL ? setenv("XDG_CACHE_HOME", cases[i].cache, 1)
                           : unsetenv("XDG_CACHE_HOME");
    cases[i].home != NULL ? setenv("HOME", cases[i].home, 1) : unsetenv("HOME");
    assert_int_equal(plm_cache_folder(cases[i].name, path), cases[i].path != NULL);
    if (cases[i].path != NULL) assert_string_equal(path, cases[i].path);
  }
  char path[PLM_PATH_SIZE], longest[PLM_PATH_SIZE];
  memset(longest, '/', sizeof longest);
  longest[PLM_PATH_SIZE - 1 - strlen("/plm-pipeline/n")] = '\0';
  setenv("XDG_CACHE_HOME", longest, 1);
  assert_true(plm_cache_folder("n", path));
  assert_false(plm_cache_folder("nn", path));
}

static void a_file_is_looked_at(void **state)
{
  (void)state;
  struct plm_error error = {0};
  bool exists = false;
  uint64_t size = 0;
  char below[PLM_PATH_SIZE], loop[PLM_PATH_SIZE], through[PLM_PATH_SIZE];
  const char *path = scratch_path("looked-at");
  assert_int_equal(plm_file_look(path, &exists, &error), PLM_OK);
  assert_false(exists);
  assert_int_equal(plm_file_size(path, &size, &error), PLM_NOT_FOUND);
  assert_int_equal(plm_file_write(path, "12345", 5, 0640, &error), PLM_OK);
  assert_int_equal(plm_file_look(path, &exists, &error), PLM_OK);
  assert_true(exists);
  assert_true(plm_file_exists(path));
  assert_int_equal(plm_file_size(path, &size, &error), PLM_OK);
  assert_int_equal(size, 5);
  assert_int_equal(scratch_mode(scratch_directory(), "looked-at") & ~0640u, 0);
  snprintf(below, sizeof below, "%s/file", path); /* a folder of it is a file */
  exists = true;
  assert_int_equal(plm_file_look(below, &exists, &error), PLM_OK);
  assert_false(exists);
  assert_int_equal(plm_directory_make(path, &error), PLM_EXISTS);
  assert_non_null(strstr(error.what, " exists and is not a folder"));
  snprintf(through, sizeof through, "%.4000s/", path);
  assert_int_equal(plm_directory_make(through, &error), PLM_EXISTS);
  assert_int_equal(plm_directory_make(below, &error), PLM_IO);
  assert_non_null(strstr(error.what, "cannot create folder "));
  snprintf(loop, sizeof loop, "%s", scratch_path("loop"));
  assert_int_equal(symlink("loop", loop), 0);
  snprintf(through, sizeof through, "%.4000s/file", loop);
  assert_int_equal(plm_file_look(through, &exists, &error), PLM_IO);
  assert_non_null(strstr(error.what, "cannot stat "));
  assert_int_equal(unlink(loop), 0);
  assert_int_equal(plm_path_remove(path, &error), PLM_OK);
  assert_int_equal(plm_path_remove(path, &error), PLM_OK); /* it is missing */
}

/* A file whose size is that of the buffer, and the limit itself. */
static void a_file_is_read_up_to_the_limit(void **state)
{
  static const size_t sizes[] = {0, 1, (1 << 16) - 2, (1 << 16) - 1, 1 << 16, 1 << 17, 300000};
  (void)state;
  char *bytes, *written = malloc(300000);
  for (size_t i = 0; i < 300000; i++) written[i] = (char)(i % 251 + 1);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const char *path = scratch_path("whole");
    struct plm_error error = {0};
    struct plm_hash hash;
    uint64_t hashed = 0;
    size_t size = 0;
    scratch_write(path, written, sizes[i]);
    assert_int_equal(plm_file_read(path, sizes[i], &bytes, &size, NULL), PLM_OK);
    assert_int_equal(size, sizes[i]);
    assert_memory_equal(bytes, written, size);
    assert_int_equal(bytes[size], '\0');
    free(bytes);
    assert_int_equal(plm_hash_file(path, &hash, &hashed, NULL, NULL), PLM_OK);
    assert_int_equal(hashed, sizes[i]);
    assert_true(plm_hash_equal(hash, plm_hash_bytes(written, sizes[i])));
    assert_int_equal(plm_hash_file(path, &hash, NULL, NULL, NULL), PLM_OK);
    if (sizes[i] == 0) continue;
    assert_int_equal(plm_file_read(path, sizes[i] - 1, &bytes, &size, &error), PLM_LIMIT);
    assert_non_null(strstr(error.what, " is larger than the limit of "));
  }
  free(written);
  struct plm_error error = {0};
  struct plm_hash hash;
  size_t size;
  assert_int_equal(plm_file_read(scratch_directory(), 10, &bytes, &size, &error), PLM_IO);
  assert_non_null(strstr(error.what, "cannot read "));
  assert_int_equal(plm_hash_file(scratch_directory(), &hash, NULL, NULL, &error), PLM_IO);
  assert_non_null(strstr(error.what, "cannot read "));
  assert_int_equal(plm_hash_file(scratch_path("missing"), &hash, NULL, NULL, &error),
                   PLM_NOT_FOUND);
}

static void a_hash_has_32_digits(void **state)
{
  static const char *const bad[] = {
      "",
      "0123456789abcdef0123456789abcde",
      "0123456789abcdef0123456789abcdef0",
      "0123456789abcdef0123456789abcdeF",
      "0123456789abcdeg0123456789abcdef",
      "/123456789abcdef0123456789abcdef",
      ":123456789abcdef0123456789abcdef",
      "`123456789abcdef0123456789abcdef",
  };
  (void)state;
  struct plm_hash hash;
  char hex[PLM_HASH_HEX_SIZE];
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_int_equal(plm_hash_from_hex(bad[i], &hash, NULL), PLM_FORMAT);
  assert_int_equal(plm_hash_from_hex("0123456789abcdeffedcba9876543210", &hash, NULL), PLM_OK);
  assert_int_equal(hash.high, 0x0123456789abcdef);
  assert_int_equal(hash.low, 0xfedcba9876543210);
  plm_hash_to_hex(hash, hex);
  assert_string_equal(hex, "0123456789abcdeffedcba9876543210");
  const struct plm_hash low = {hash.low + 1, hash.high}, high = {hash.low, hash.high + 1};
  assert_true(plm_hash_equal(hash, hash));
  assert_false(plm_hash_equal(hash, low));
  assert_false(plm_hash_equal(hash, high));
}

/* In parts, again after a reset, and the two shorter hashes by known answers. */
static void hashes_of_parts_are_that_of_the_whole(void **state)
{
  (void)state;
  struct plm_hasher *hasher = plm_hasher_open();
  plm_hasher_update(hasher, "abc", 3);
  plm_hasher_update(hasher, "de", 2);
  assert_true(plm_hash_equal(plm_hasher_digest(hasher), plm_hash_bytes("abcde", 5)));
  plm_hasher_reset(hasher);
  plm_hasher_update(hasher, "abc", 3);
  assert_true(plm_hash_equal(plm_hasher_digest(hasher), plm_hash_bytes("abc", 3)));
  plm_hasher_close(hasher);
  plm_hasher_close(NULL);
  assert_int_equal(plm_hash64_bytes("", 0), 0x2d06800538d394c2);
  assert_int_equal(plm_hash32_name(""), 0x02cc5d05);
  assert_int_equal(plm_hash32_name("abc"), 0x32d153ff);
}

static void an_unnamed_file_can_be_written_and_read(void **state)
{
  (void)state;
  struct plm_error error = {0};
  int descriptor;
  char bytes[4] = "";
  struct stat information;
  assert_int_equal(plm_file_open_unnamed(scratch_directory(), &descriptor, NULL), PLM_OK);
  assert_int_equal(plm_file_write_all(descriptor, "abc", 3, "unnamed", NULL), PLM_OK);
  assert_int_equal(pread(descriptor, bytes, 3, 0), 3);
  assert_string_equal(bytes, "abc");
  assert_int_equal(fstat(descriptor, &information), 0);
  assert_int_equal(information.st_nlink, 0);
  assert_int_equal(information.st_mode & 0777, 0600);
  assert_int_equal(fcntl(descriptor, F_GETFD), FD_CLOEXEC);
  close(descriptor);
  assert_int_equal(plm_file_open_unnamed(scratch_path("no/folder"), &descriptor, &error),
                   PLM_NOT_FOUND);
  assert_non_null(strstr(error.what, "cannot write into folder "));
  descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC);
  assert_int_equal(plm_file_write_all(descriptor, "abc", 3, "PATH", &error), PLM_IO);
  assert_string_equal(error.what, "cannot write PATH: Bad file descriptor");
  assert_int_equal(plm_file_write_all(descriptor, "", 0, "PATH", &error), PLM_OK);
  close(descriptor);
}

static void each_entry_of_a_folder_comes_once(void **state)
{
  (void)state;
  const struct dirent *entry;
  char folder[PLM_PATH_SIZE];
  int names = 0;
  scratch_run(folder);
  DIR *opened = opendir(folder);
  assert_non_null(opened);
  errno = EIO; /* what an earlier call left is not an error of this one */
  do {
    assert_int_equal(plm_directory_next(opened, folder, &entry, NULL), PLM_OK);
    names += entry != NULL;
  } while (entry != NULL);
  assert_int_equal(names, 2); /* . and .. */
  closedir(opened);
  assert_int_equal(plm_directory_sync(folder, NULL), PLM_OK);
  assert_int_equal(plm_parent_sync(folder, NULL), PLM_OK);
  assert_int_equal(plm_file_sync(scratch_path("missing"), NULL), PLM_NOT_FOUND);
  assert_int_equal(plm_parent_sync("/no such folder/file", NULL), PLM_OK);
}

/* The clocks of hosts differ, so a file may have been changed in the future. */
static void a_file_has_an_age(void **state)
{
  (void)state;
  const char *path = scratch_path("aged");
  assert_true(isnan(plm_file_age_s(path)));
  scratch_age(path, 0.5);
  assert_true(plm_file_age_s(path) >= 0.499);
  scratch_age(path, 86400);
  assert_true(plm_file_age_s(path) >= 86399.999 && plm_file_age_s(path) < 90000);
  scratch_age(path, -3600);
  assert_true(plm_file_age_s(path) == 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(paths_are_joined_up_to_the_limit),
      cmocka_unit_test(a_path_has_a_folder),
      cmocka_unit_test(the_cache_folder_follows_the_environment),
      cmocka_unit_test(a_file_is_looked_at),
      cmocka_unit_test(a_file_is_read_up_to_the_limit),
      cmocka_unit_test(a_hash_has_32_digits),
      cmocka_unit_test(hashes_of_parts_are_that_of_the_whole),
      cmocka_unit_test(an_unnamed_file_can_be_written_and_read),
      cmocka_unit_test(each_entry_of_a_folder_comes_once),
      cmocka_unit_test(a_file_has_an_age),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
