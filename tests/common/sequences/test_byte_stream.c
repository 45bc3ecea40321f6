/* Which zstd streams are read: frames to be skipped, empty frames and several frames in any order,
 * and windows up to the limit. */
#include "tests/support/harness/cmocka_all.h"

#include <string.h>

#include "common/base/process/memory.h"
#include "common/base/text/text.h"
#include "common/sequences/byte_stream.h"
#include "tests/support/corpora/packed_text.h"

#define EMPTY "\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00"
/* A frame whose window has the descriptor `window`, with one raw block of "LAGV". */
#define FRAME(window) "\x28\xb5\x2f\xfd\x00" window "\x21\x00\x00LAGV"
#define PARTS(text) text, sizeof text - 1

static const struct {
  const char *bytes;
  size_t size;
  const char *text;
} readable[] = {
    {PARTS("\x50\x2a\x4d\x18\x03\x00\x00\x00xyz" FRAME("\x58")), "LAGV"},
    {PARTS("\x5f\x2a\x4d\x18\x00\x00\x00\x00" FRAME("\x58")), "LAGV"},
    {PARTS(EMPTY FRAME("\x58") EMPTY), "LAGV"},
    {PARTS(FRAME("\x58") "\x50\x2a\x4d\x18\x03\x00\x00\x00xyz" FRAME("\x58") EMPTY FRAME("\x58")),
     "LAGVLAGVLAGV"},
    {PARTS(EMPTY), ""},
    {PARTS("\x50\x2a\x4d\x18\x03\x00\x00\x00xyz"), ""},
    {PARTS(FRAME("\x88")), "LAGV"}, /* 128 MiB */
};

static plm_status read_all(const char *bytes, size_t size, struct plm_text *text,
                           struct plm_error *error)
{
  struct plm_byte_stream *stream;
  const uint8_t *part;
  size_t part_size;
  plm_status status;
  plm_text_puts(text, "");
  assert_int_equal(plm_byte_stream_open_memory("f.zst", bytes, size, &stream, NULL), PLM_OK);
  while ((status = plm_byte_stream_read(stream, &part, &part_size, error)) == PLM_OK &&
         part_size != 0)
    plm_text_append(text, part, part_size);
  if (status == PLM_OK) assert_int_equal(plm_byte_stream_produced(stream), text->length);
  if (status == PLM_OK) assert_int_equal(plm_byte_stream_consumed(stream), size);
  plm_byte_stream_close(stream);
  return status;
}

static void all_kinds_of_frames_are_read(void **state)
{
  (void)state;
  plm_byte_stream_limit_windows(1);
  for (size_t i = 0; i < sizeof readable / sizeof *readable; i++) {
    struct plm_text text = {0};
    struct plm_error error = {0};
    if (read_all(readable[i].bytes, readable[i].size, &text, &error) != PLM_OK)
      fail_msg("input %zu: %s", i, error.what);
    assert_string_equal(text.data, readable[i].text);
    plm_text_deinit(&text);
  }
  plm_byte_stream_limit_windows(0);
}

/* The descriptor 0x89 is a window of 144 MiB, 0xa8 one of 2 GiB, 0xa9 and 0xff are more. */
static void long_windows_are_read_within_the_limit(void **state)
{
  static const struct {
    const char *bytes;
    size_t size;
    uint64_t limit;
    const char *what; /* NULL: it is read */
  } windows[] = {
      {PARTS(FRAME("\x89")), UINT64_C(144) << 20, NULL},
      {PARTS(FRAME("\x89")), (UINT64_C(144) << 20) - 1, "needs 144 MiB of memory, and 143 MiB"},
      {PARTS(FRAME("\x58") FRAME("\x89")), 1, "needs 144 MiB of memory, and 0 MiB"},
      {PARTS(FRAME("\xa8")), (UINT64_C(2) << 30) - 1, "needs 2048 MiB of memory, and 2047 MiB"},
      {PARTS(FRAME("\xa9")), UINT64_MAX, "needs 2304 MiB of memory, and 2048 MiB"},
      {PARTS(FRAME("\xff")), UINT64_MAX, "of memory, and 2048 MiB"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
    struct plm_text text = {0};
    struct plm_error error = {0};
    plm_byte_stream_limit_windows(windows[i].limit);
    const plm_status status = read_all(windows[i].bytes, windows[i].size, &text, &error);
    if (status != (windows[i].what == NULL ? PLM_OK : PLM_LIMIT))
      fail_msg("input %zu: %s", i, error.what);
    if (windows[i].what == NULL)
      assert_string_equal(text.data, "LAGV");
    else if (strstr(error.what, windows[i].what) == NULL)
      fail_msg("input %zu: %s", i, error.what);
    plm_text_deinit(&text);
  }
  plm_byte_stream_limit_windows(0);
  uint64_t free_bytes, total_bytes;
  plm_memory_size(&free_bytes, &total_bytes);
  assert_true(free_bytes > 0 && total_bytes > free_bytes);
}

/* The header ends within the size of the content, which then must not be taken for a large one. */
static void a_frame_that_is_cut_in_its_header_is_cut_off(void **state)
{
  (void)state;
  struct plm_text text = {0};
  struct plm_error error = {0};
  assert_int_equal(read_all(PARTS("\x28\xb5\x2f\xfd\xe0\x04\x00"), &text, &error), PLM_CORRUPT);
  assert_string_equal(error.what, "f.zst is cut off: its zstd data ends too early after 7 bytes");
  plm_text_deinit(&text);
}

/* After a member of gzip, zeros are padding, as on tapes. */
static void zeros_after_a_member_are_padding(void **state)
{
  (void)state;
  static char bytes[300];
  struct plm_text text = {0};
  size_t size = 0;
  for (int member = 0; member < 2; member++) {
    size += packed_text_gzip("LAGV", 4, (uint8_t *)bytes + size, sizeof bytes - size);
    size += 7; /* zeros */
  }
  assert_int_equal(read_all(bytes, size, &text, NULL), PLM_OK);
  assert_string_equal(text.data, "LAGVLAGV");
  plm_text_deinit(&text);
}

/* The beginning of a stream can be looked at in steps, and is then read as if it had not been. */
static void peeked_bytes_are_read_again(void **state)
{
  (void)state;
  struct plm_byte_stream *stream;
  struct plm_text text = {0};
  const uint8_t *bytes;
  size_t size;
  assert_int_equal(
      plm_byte_stream_open_memory("f", PARTS(FRAME("\x58") FRAME("\x58")), &stream, NULL), PLM_OK);
  assert_int_equal(plm_byte_stream_peek(stream, 3, &bytes, &size, NULL), PLM_OK);
  assert_int_equal(size, 4);
  assert_int_equal(plm_byte_stream_peek(stream, 5, &bytes, &size, NULL), PLM_OK);
  assert_int_equal(size, 8);
  plm_byte_stream_drop(stream, 1);
  assert_int_equal(plm_byte_stream_peek(stream, PLM_PEEK_BYTES, &bytes, &size, NULL), PLM_OK);
  assert_memory_equal(bytes, "AGVLAGV", 7);
  assert_int_equal(size, 7);
  while (plm_byte_stream_read(stream, &bytes, &size, NULL) == PLM_OK && size != 0)
    plm_text_append(&text, bytes, size);
  assert_string_equal(text.data, "AGVLAGV");
  plm_text_deinit(&text);
  plm_byte_stream_close(stream);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_kinds_of_frames_are_read),
      cmocka_unit_test(long_windows_are_read_within_the_limit),
      cmocka_unit_test(a_frame_that_is_cut_in_its_header_is_cut_off),
      cmocka_unit_test(zeros_after_a_member_are_padding),
      cmocka_unit_test(peeked_bytes_are_read_again),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
