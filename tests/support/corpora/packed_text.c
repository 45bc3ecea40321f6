/* Compresses small texts. */
#include "tests/support/corpora/packed_text.h"

#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "tests/support/harness/cmocka_all.h"

size_t packed_text_gzip(const void *bytes, size_t size, uint8_t *out, size_t room)
{
  z_stream deflater = {0};
  assert_int_equal(deflateInit2(&deflater, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
  deflater.next_in = (Bytef *)bytes;
  deflater.avail_in = (uInt)size;
  deflater.next_out = out;
  deflater.avail_out = (uInt)room;
  assert_int_equal(deflate(&deflater, Z_FINISH), Z_STREAM_END);
  deflateEnd(&deflater);
  return room - deflater.avail_out;
}

void packed_text_make(const char *text, size_t size, int how, size_t cut,
                      struct packed_text *packed)
{
  uint8_t *out = packed->bytes;
  const size_t room = sizeof packed->bytes;
  if (how == 0) {
    memcpy(out, text, size);
    packed->size = size;
  } else if (how == 1) {
    packed->size = packed_text_gzip(text, cut, out, room);
    packed->size +=
        packed_text_gzip(text + cut, size - cut, out + packed->size, room - packed->size);
  } else {
    packed->size = ZSTD_compress(out, room, text, cut, 1);
    packed->size +=
        ZSTD_compress(out + packed->size, room - packed->size, text + cut, size - cut, 3);
  }
}
