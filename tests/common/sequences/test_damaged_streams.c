/* Compressed streams that are cut off or damaged. */
#include "tests/support/harness/cmocka_all.h"

#include <string.h>
#include <zstd.h>

#include "common/base/text/text.h"
#include "common/sequences/byte_stream.h"
#include "tests/support/corpora/packed_text.h"

/* A truncated gzip or zstd stream is an error wherever it is cut, never a shorter file. */
static void cut_streams_are_errors(void **state)
{
  (void)state;
  static struct packed_text packed;
  static const char text[] = ">a\nLAGVSERTIDPKQNFYMHWC\n>b\nLAGV\n";
  for (int how = 1; how < 3; how++) {
    packed_text_make(text, sizeof text - 1, how, 9, &packed);
    const size_t whole = packed.size;
    struct packed_text first;
    if (how == 1)
      first.size = packed_text_gzip(text, 9, first.bytes, sizeof first.bytes);
    else
      first.size = ZSTD_compress(first.bytes, sizeof first.bytes, text, 9, 1);
    for (size_t cut = how == 1 ? 2 : 4; cut < whole; cut++) { /* from the mark of its kind on */
      struct plm_byte_stream *stream;
      struct plm_error error = {0};
      const uint8_t *bytes;
      size_t size;
      plm_status status;
      if (cut == first.size) continue; /* between two members, where the rest cannot be missed */
      assert_int_equal(plm_byte_stream_open_memory("x.gz", packed.bytes, cut, &stream, NULL),
                       PLM_OK);
      do status = plm_byte_stream_read(stream, &bytes, &size, &error);
      while (status == PLM_OK && size != 0);
      if (status != PLM_CORRUPT) fail_msg("packed %d cut at %zu of %zu", how, cut, whole);
      assert_non_null(strstr(error.what, "x.gz"));
      plm_byte_stream_close(stream);
    }
  }
}

/* A flipped bit after the header is detected by the checksum, or does not change the text. */
static void flipped_gzip_is_found(void **state)
{
  (void)state;
  static struct packed_text packed;
  static const char text[] = ">a\nLAGVSERTIDPKQNFYMHWC\n";
  packed_text_make(text, sizeof text - 1, 1, 0, &packed);
  const size_t first = packed_text_gzip(text, 0, (uint8_t[64]){0}, 64);
  for (size_t bit = 8 * (first + 10); bit < 8 * packed.size; bit++) {
    struct plm_text out = {0};
    struct plm_byte_stream *stream;
    struct plm_error error = {0};
    const uint8_t *bytes;
    size_t size;
    plm_status status;
    packed.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    assert_int_equal(plm_byte_stream_open_memory("x.gz", packed.bytes, packed.size, &stream, NULL),
                     PLM_OK);
    while ((status = plm_byte_stream_read(stream, &bytes, &size, &error)) == PLM_OK && size != 0)
      plm_text_append(&out, bytes, size);
    if (status == PLM_OK) assert_string_equal(out.data, text);
    plm_byte_stream_close(stream);
    plm_text_deinit(&out);
    packed.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cut_streams_are_errors),
      cmocka_unit_test(flipped_gzip_is_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
