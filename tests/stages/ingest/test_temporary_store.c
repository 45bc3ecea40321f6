/* What ingest puts aside: a file that is written in pieces and read anywhere, and an index whose
 * records are replaced, found and walked through. */
#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stages/ingest/temporary_file.h"
#include "stages/ingest/temporary_index.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

static char folder[PLM_PATH_SIZE];

static int setup(void **state)
{
  (void)state;
  scratch_run(folder);
  return 0;
}

/* ---- the file ----------------------------------------------------------------------------------
 */

static off_t written(const struct plm_temporary_file *file)
{
  struct stat found;
  assert_int_equal(stat(file->path, &found), 0);
  return found.st_size;
}

/* Also if its number is 0. */
static void a_file_is_closed(void **state)
{
  (void)state;
  struct plm_temporary_file file = {0};
  const int kept = dup(STDIN_FILENO);
  close(STDIN_FILENO);
  must_work(plm_temporary_file_open(folder, "zero", &file, NULL), NULL);
  assert_int_equal(file.descriptor, STDIN_FILENO);
  plm_temporary_file_close(&file);
  const bool closed = fcntl(STDIN_FILENO, F_GETFD) == -1;
  if (kept >= 0) {
    dup2(kept, STDIN_FILENO);
    close(kept);
  }
  assert_true(closed);
}

/* Bytes are collected until there are a MiB of them, and each is read where it was appended. */
static void a_file_is_written_in_pieces(void **state)
{
  enum { PIECE = 1 << 20 };
  (void)state;
  struct plm_temporary_file file = {0};
  uint8_t *bytes = must(malloc(PIECE + 1)), *read = must(malloc(PIECE + 1));
  for (int i = 0; i <= PIECE; i++) bytes[i] = (uint8_t)(i * 7 + i / 251);
  must_work(plm_temporary_file_open(folder, "file", &file, NULL), NULL);
  must_work(plm_temporary_file_append(&file, bytes, PIECE - 1, NULL), NULL);
  must_work(plm_temporary_file_append(&file, bytes, 0, NULL), NULL);
  assert_int_equal(file.size, PIECE - 1);
  assert_int_equal(written(&file), 0);
  must_work(plm_temporary_file_append(&file, bytes + PIECE - 1, 1, NULL), NULL);
  assert_int_equal(written(&file), PIECE);
  must_work(plm_temporary_file_append(&file, "ab", 2, NULL), NULL);
  assert_int_equal(written(&file), PIECE);
  assert_int_equal(file.size, PIECE + 2);
  must_work(plm_temporary_file_flush(&file, NULL), NULL);
  must_work(plm_temporary_file_flush(&file, NULL), NULL);
  assert_int_equal(written(&file), PIECE + 2);
  must_work(plm_temporary_file_read(&file, read, PIECE, 0, NULL), NULL);
  assert_memory_equal(read, bytes, PIECE);
  must_work(plm_temporary_file_read(&file, read, 3, PIECE - 1, NULL), NULL);
  assert_memory_equal(read, bytes + PIECE - 1, 1);
  assert_memory_equal(read + 1, "ab", 2);
  assert_int_not_equal(plm_temporary_file_read(&file, read, 3, PIECE, NULL), PLM_OK);
  plm_temporary_file_close(&file);
  /* another one does not take its place */
  struct plm_temporary_file other = {.descriptor = -1};
  assert_int_not_equal(plm_temporary_file_open(folder, "file", &other, NULL), PLM_OK);
  assert_int_equal(other.descriptor, -1);
  plm_temporary_file_close(&other);
  free(bytes);
  free(read);
}

/* ---- the index ---------------------------------------------------------------------------------
 */

static uint64_t get(struct plm_temporary_index *index, int table, uint64_t number)
{
  const uint64_t key = htobe64(number);
  uint64_t value = 0;
  bool found;
  must_work(
      plm_temporary_index_get(index, table, &key, sizeof key, &value, sizeof value, &found, NULL),
      NULL);
  return found ? value : 0;
}

static void put(struct plm_temporary_index *index, int table, uint64_t number, uint64_t value)
{
  const uint64_t key = htobe64(number);
  must_work(plm_temporary_index_put(index, table, &key, sizeof key, &value, sizeof value, NULL),
            NULL);
}

struct walk {
  uint64_t count, last, sum, end_at;
};

static plm_status on_record(void *context, const void *key, const void *value,
                            struct plm_error *error)
{
  struct walk *walk = context;
  uint64_t number, found;
  memcpy(&number, key, sizeof number);
  memcpy(&found, value, sizeof found);
  number = be64toh(number);
  assert_true(walk->count == 0 || number > walk->last);
  walk->last = number;
  walk->sum += found;
  if (++walk->count == walk->end_at) return plm_error_set(error, PLM_LIMIT, "enough");
  return PLM_OK;
}

/* More records than a transaction takes, in several tables, in no order. */
static void records_are_found_and_walked(void **state)
{
  enum { RECORDS = 40000, STEP = 7919 };
  (void)state;
  struct plm_temporary_index *index;
  struct walk walk = {0};
  struct plm_error error = {0};
  uint64_t sum = 0;
  must_work(plm_temporary_index_open(folder, 2, &index, NULL), NULL);
  assert_int_equal(get(index, 0, 5), 0);
  for (uint64_t i = 0; i < RECORDS; i++) {
    const uint64_t number = i * STEP % RECORDS; /* each once */
    put(index, 0, number, number + 1);
    sum += number + 1;
  }
  put(index, 1, 7, 70);
  put(index, 0, 7, 1000); /* in place of the 8 */
  sum += 1000 - 8;
  for (uint64_t number = 0; number < RECORDS; number++)
    assert_int_equal(get(index, 0, number), number == 7 ? 1000 : number + 1);
  assert_int_equal(get(index, 0, RECORDS), 0);
  assert_int_equal(get(index, 1, 7), 70);
  assert_int_equal(get(index, 1, 8), 0);
  must_work(plm_temporary_index_walk(index, 0, on_record, &walk, NULL), NULL);
  assert_int_equal(walk.count, RECORDS);
  assert_int_equal(walk.last, RECORDS - 1);
  assert_int_equal(walk.sum, sum);
  walk = (struct walk){0};
  must_work(plm_temporary_index_walk(index, 1, on_record, &walk, NULL), NULL);
  assert_int_equal(walk.count, 1);
  assert_int_equal(walk.sum, 70);
  walk = (struct walk){.end_at = 3};
  assert_int_equal(plm_temporary_index_walk(index, 0, on_record, &walk, &error), PLM_LIMIT);
  assert_string_equal(error.what, "enough");
  assert_int_equal(walk.count, 3);
  put(index, 1, 9, 90); /* it goes on after a walk */
  assert_int_equal(get(index, 1, 9), 90);
  plm_temporary_index_close(index);
  plm_temporary_index_close(NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(a_file_is_closed, setup),
      cmocka_unit_test_setup(a_file_is_written_in_pieces, setup),
      cmocka_unit_test_setup(records_are_found_and_walked, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
