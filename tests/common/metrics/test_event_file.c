/* common/metrics/tensorboard: the exact bytes of an event file, read here as TFRecord and protocol
 * buffers. TensorBoard itself reads one in test_tensorboard.c. */
#include "tests/support/harness/cmocka_all.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/metrics/event_record.h"
#include "common/metrics/metrics.h"
#include "tests/support/harness/scratch.h"

struct file {
  unsigned char *bytes;
  size_t size, place;
};

/* Finds the only file of the folder. */
static struct file read_only_file(const char *folder)
{
  struct file file = {0};
  char *text;
  const char *path = scratch_only_file(folder);
  assert_int_equal(strncmp(strrchr(path, '/') + 1, "events.out.tfevents.", 20), 0);
  assert_int_equal(plm_file_read(path, 1 << 24, &text, &file.size, NULL), PLM_OK);
  file.bytes = (unsigned char *)text;
  return file;
}

static uint64_t little(const unsigned char *bytes, int count)
{
  uint64_t value = 0;
  for (int i = 0; i < count; i++) value |= (uint64_t)bytes[i] << (8 * i);
  return value;
}

/* CRC32C bit by bit, with the mask of TFRecord. */
static uint32_t masked(const unsigned char *bytes, size_t size)
{
  uint32_t crc = 0xFFFFFFFFu;
  for (size_t i = 0; i < size; i++) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0);
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

/* The next record, whose two checksums are checked; false at the end. */
static bool next_record(struct file *file, const unsigned char **record, size_t *size)
{
  if (file->place == file->size) return false;
  const unsigned char *at = file->bytes + file->place;
  assert_true(file->place + 16 <= file->size);
  *size = (size_t)little(at, 8);
  assert_true(file->place + 16 + *size <= file->size);
  assert_int_equal(little(at + 8, 4), masked(at, 8));
  assert_int_equal(little(at + 12 + *size, 4), masked(at + 12, *size));
  *record = at + 12;
  file->place += 16 + *size;
  return true;
}

/* Checks the time, of now, at the beginning of an event, and returns the rest. */
static const unsigned char *behind_time(const unsigned char *event)
{
  double seconds;
  assert_int_equal(event[0], 1 << 3 | 1);
  const uint64_t bits = little(event + 1, 8);
  memcpy(&seconds, &bits, sizeof seconds);
  assert_true(seconds <= plm_clock_wall_s() && seconds > plm_clock_wall_s() - 600);
  return event + 9;
}

static void assert_event(struct file *file, const char *rest, size_t size)
{
  const unsigned char *record;
  size_t length;
  assert_true(next_record(file, &record, &length));
  assert_int_equal(length, 9 + size);
  assert_memory_equal(behind_time(record), rest, size);
}

/* The lowest descriptor that is free. */
static int free_descriptor(void)
{
  const int descriptor = dup(STDERR_FILENO);
  assert_true(descriptor >= 0);
  close(descriptor);
  return descriptor;
}

static const char version[] = "\x10\x00\x1a\x0d"
                              "brain.Event:2";

static void an_event_file_has_these_bytes(void **state)
{
  (void)state;
  const char *folder = scratch_path("events");
  struct plm_tensorboard *board;
  struct plm_error error = {0};
  assert_int_equal(plm_tensorboard_open(folder, -1, &board, &error), PLM_OK);
  struct file file = read_only_file(folder); /* the first record is written at once */
  assert_event(&file, version, sizeof version - 1);
  assert_int_equal(file.place, file.size);
  free(file.bytes);
  assert_int_equal(plm_tensorboard_scalar(board, 1, "a", 1.0, &error), PLM_OK);
  assert_int_equal(plm_tensorboard_scalar(board, 300, "loss", -2.5, &error), PLM_OK);
  plm_tensorboard_close(board); /* writes what is in the buffer */
  file = read_only_file(folder);
  assert_event(&file, version, sizeof version - 1);
  assert_event(&file,
               "\x10\x01\x2a\x0a\x0a\x08\x0a\x01"
               "a\x15\x00\x00\x80\x3f",
               14);
  assert_event(&file,
               "\x10\xac\x02\x2a\x0d\x0a\x0b\x0a\x04"
               "loss\x15\x00\x00\x20\xc0",
               18);
  assert_int_equal(file.place, file.size);
  free(file.bytes);
}

/* Steps of one byte and of two: 127 and 128, behind which the events are dropped. */
static void a_resumed_run_begins_a_session(void **state)
{
  (void)state;
  static const struct {
    int64_t resumed;
    const char *step;
    size_t size;
  } cases[] = {{0, "\x10\x01", 2}, {126, "\x10\x7f", 2}, {127, "\x10\x80\x01", 3}};
  for (size_t i = 0; i < 3; i++) {
    char folder[PLM_PATH_SIZE], name[16], rest[16];
    struct plm_tensorboard *board;
    snprintf(name, sizeof name, "resumed%zu", i);
    snprintf(folder, sizeof folder, "%s", scratch_path(name));
    assert_int_equal(plm_tensorboard_open(folder, cases[i].resumed, &board, NULL), PLM_OK);
    plm_tensorboard_close(board);
    struct file file = read_only_file(folder);
    assert_event(&file, version, sizeof version - 1);
    memcpy(rest, cases[i].step, cases[i].size);
    memcpy(rest + cases[i].size, "\x3a\x02\x08\x01", 4);
    assert_event(&file, rest, cases[i].size + 4);
    assert_int_equal(file.place, file.size);
    free(file.bytes);
  }
}

/* The records fill the buffer of 64 KiB more than once; nothing is lost or written twice.
 */
static void more_than_a_buffer_comes_in_order(void **state)
{
  (void)state;
  enum { STEPS = 4000 };
  const char *folder = scratch_path("many");
  struct plm_tensorboard *board;
  assert_int_equal(plm_tensorboard_open(folder, -1, &board, NULL), PLM_OK);
  for (int step = 1; step <= STEPS; step++)
    assert_int_equal(plm_tensorboard_scalar(board, 1 << 20, "trainer/x", step, NULL), PLM_OK);
  assert_int_equal(plm_tensorboard_flush(board, NULL), PLM_OK);
  struct file file = read_only_file(folder);
  assert_event(&file, version, sizeof version - 1);
  const unsigned char *record;
  size_t length;
  for (int step = 1; step <= STEPS; step++) {
    float value;
    assert_true(next_record(&file, &record, &length));
    const uint32_t bits = (uint32_t)little(record + length - 4, 4);
    memcpy(&value, &bits, sizeof value);
    assert_true(value == (float)step);
  }
  assert_int_equal(file.place, file.size);
  const size_t size = file.size;
  free(file.bytes);
  plm_tensorboard_close(board);
  file = read_only_file(folder);
  assert_int_equal(file.size, size);
  free(file.bytes);
}

static void the_longest_tag_fits(void **state)
{
  (void)state;
  char tag[258];
  const char *folder = scratch_path("tags");
  struct plm_tensorboard *board;
  struct plm_error error = {0};
  memset(tag, 't', sizeof tag);
  tag[257] = '\0';
  assert_int_equal(plm_tensorboard_open(folder, -1, &board, NULL), PLM_OK);
  assert_int_equal(plm_tensorboard_scalar(board, 1, tag, 1, &error), PLM_LIMIT);
  tag[256] = '\0';
  assert_int_equal(plm_tensorboard_scalar(board, 1, tag, 1, &error), PLM_OK);
  plm_tensorboard_close(board);
  struct file file = read_only_file(folder);
  const unsigned char *record;
  size_t length;
  assert_event(&file, version, sizeof version - 1);
  assert_true(next_record(&file, &record, &length));
  assert_int_equal(file.place, file.size);
  assert_memory_equal(record + length - 5 - 256, tag, 256);
  free(file.bytes);
}

/* The first entries of the table of CRC32C, whatever was there before, and the last one. */
static void the_table_is_that_of_crc32c(void **state)
{
  (void)state;
  uint32_t table[256];
  memset(table, 0xff, sizeof table);
  plm_record_table(table);
  assert_int_equal(table[0], 0);
  assert_int_equal(table[1], 0xf26b8303);
  assert_int_equal(table[128], 0x82f63b78);
  assert_int_equal(table[255], 0xad7d5351);
}

/* Two starts in one second have two files; so do two in one process. */
static void each_start_has_its_own_file(void **state)
{
  (void)state;
  const char *folder = scratch_path("starts");
  struct plm_tensorboard *boards[3];
  int files = 0;
  const int before = free_descriptor();
  for (int i = 0; i < 3; i++)
    assert_int_equal(plm_tensorboard_open(folder, -1, &boards[i], NULL), PLM_OK);
  for (int i = 0; i < 3; i++) plm_tensorboard_close(boards[i]);
  plm_tensorboard_close(NULL);
  assert_int_equal(free_descriptor(), before);
  DIR *directory = opendir(folder);
  assert_non_null(directory);
  for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
    files += entry->d_name[0] != '.';
  closedir(directory);
  assert_int_equal(files, 3);
}

static void errors_name_the_file(void **state)
{
  (void)state;
  struct plm_tensorboard *board;
  struct plm_error error = {0};
  scratch_write(scratch_path("file"), "", 0);
  assert_int_equal(plm_tensorboard_open(scratch_path("file"), -1, &board, &error), PLM_EXISTS);
  assert_int_equal(plm_tensorboard_open("/proc/self", -1, &board, &error), PLM_NOT_FOUND);
  assert_memory_equal(error.what, "cannot create /proc/self/events.out.tfevents.", 45);
  char folder[PLM_PATH_SIZE];
  scratch_run(folder);
  while (strlen(folder) + 3 < sizeof folder) strcat(folder, "/.");
  assert_int_equal(plm_tensorboard_open(folder, -1, &board, &error), PLM_LIMIT);
  assert_non_null(strstr(error.what, " is too long"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_event_file_has_these_bytes),
      cmocka_unit_test(a_resumed_run_begins_a_session),
      cmocka_unit_test(more_than_a_buffer_comes_in_order),
      cmocka_unit_test(the_longest_tag_fits),
      cmocka_unit_test(the_table_is_that_of_crc32c),
      cmocka_unit_test(each_start_has_its_own_file),
      cmocka_unit_test(errors_name_the_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
