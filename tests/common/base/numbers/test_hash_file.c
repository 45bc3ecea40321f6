/* Large files are hashed as small ones are, although threads read them ahead. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/numbers/hash.h"
#include "common/base/numbers/philox.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

enum { MIB = 1 << 20, LARGE = 16 * MIB, LONGEST = 37 * MIB };

/* What pread does in this program. */
static off_t fails_at = -1; /* reads of this byte fail */
static size_t most = SIZE_MAX;
static atomic_bool others_read; /* another thread than the first one has read */

ssize_t pread(int descriptor, void *bytes, size_t size, off_t offset)
{
  const size_t some = size < most ? size : most;
  if (gettid() != getpid()) others_read = true;
  if (fails_at >= offset && fails_at < offset + (off_t)some) {
    errno = EIO;
    return -1;
  }
  return syscall(SYS_pread64, descriptor, bytes, some, offset);
}

static uint8_t *content;

static int fill(void **state)
{
  (void)state;
  content = must(malloc(LONGEST));
  for (uint32_t i = 0; i < LONGEST / 16; i++) {
    const struct plm_philox_words words = plm_philox(1, 0, i, 100);
    memcpy(content + 16 * (size_t)i, words.w, 16);
  }
  return 0;
}

static int release(void **state)
{
  (void)state;
  free(content);
  return 0;
}

struct told {
  uint64_t done, total;
};

static void hear(void *context, uint64_t done, uint64_t total)
{
  struct told *told = context;
  assert_true(done > told->done);
  *told = (struct told){done, total};
}

static void check(size_t size)
{
  struct told told = {0};
  struct plm_advance advance = {.tell = hear, .context = &told};
  struct plm_error error = {0};
  struct plm_hash hash;
  uint64_t hashed = 0;
  const char *path = scratch_path("file");
  scratch_write(path, content, size);
  plm_advance_begin(&advance, size);
  if (plm_hash_file(path, &hash, &hashed, &advance, &error) != PLM_OK) fail_msg("%s", error.what);
  assert_int_equal(hashed, size);
  assert_true(plm_hash_equal(hash, plm_hash_bytes(content, size)));
  assert_int_equal(told.done, size);
  assert_int_equal(told.total, size);
}

static void every_size_is_hashed(void **state)
{
  static const size_t sizes[] = {1,         MIB - 1,   MIB,   MIB + 1, 3 * MIB,
                                 LARGE - 1, LARGE + 1, LARGE, LONGEST, LONGEST - 3};
  (void)state;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) check(sizes[i]);
}

static void only_a_large_file_is_read_by_threads(void **state)
{
  (void)state;
  others_read = false;
  check(LARGE - 1);
  assert_false(others_read);
  check(LARGE);
  assert_true(others_read);
}

static void short_reads_are_continued(void **state)
{
  (void)state;
  most = MIB / 3 + 1;
  check(3 * MIB);
  check(LARGE + 5);
  most = MIB - 1;
  check(3 * MIB);
  most = SIZE_MAX;
}

/* Whichever part cannot be read, and whatever others have been read ahead. */
static void an_error_is_told(void **state)
{
  static const size_t at[] = {0, MIB - 1, 5 * MIB, LARGE, LARGE + 4};
  (void)state;
  const char *path = scratch_path("damaged");
  scratch_write(path, content, LARGE + 5);
  for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
    struct told told = {0};
    struct plm_advance advance = {.tell = hear, .context = &told};
    struct plm_error error = {0};
    struct plm_hash hash;
    char expected[512];
    fails_at = (off_t)at[i];
    assert_int_equal(plm_hash_file(path, &hash, NULL, &advance, &error), PLM_IO);
    snprintf(expected, sizeof expected, "cannot read %s: %s", path, strerror(EIO));
    assert_string_equal(error.what, expected);
    assert_int_equal(told.done, at[i] / MIB * MIB); /* what is before it was hashed */
  }
  fails_at = -1;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_size_is_hashed),
      cmocka_unit_test(only_a_large_file_is_read_by_threads),
      cmocka_unit_test(short_reads_are_continued),
      cmocka_unit_test(an_error_is_told),
  };
  return cmocka_run_group_tests(tests, fill, release);
}
