/* Lines of a byte stream: see line_reader.h. */
#include "common/sequences/line_reader.h"

#include <string.h>

/* Makes the next bytes of the stream the current ones. */
static enum plm_line_result more(struct plm_line_reader *reader, struct plm_error *error)
{
  reader->at = 0;
  reader->size = 0;
  const plm_status status =
      plm_byte_stream_read(reader->stream, &reader->bytes, &reader->size, error);
  if (status == PLM_AGAIN) return PLM_LINE_AGAIN;
  if (status != PLM_OK) return PLM_LINE_FAILED;
  return reader->size == 0 ? PLM_LINE_END : PLM_LINE_SPAN;
}

/* Makes sure that there is a byte at `at`, which is not the second half of a line end. */
static enum plm_line_result provide(struct plm_line_reader *reader, struct plm_error *error)
{
  for (;;) {
    if (reader->at == reader->size) {
      const enum plm_line_result result = more(reader, error);
      if (result != PLM_LINE_SPAN) return result;
    }
    if (!reader->after_return) return PLM_LINE_SPAN;
    reader->after_return = false;
    if (reader->bytes[reader->at] != '\n') return PLM_LINE_SPAN;
    reader->at++;
  }
}

enum plm_line_result plm_line_peek(struct plm_line_reader *reader, int *byte,
                                   struct plm_error *error)
{
  const enum plm_line_result result = provide(reader, error);
  *byte = result == PLM_LINE_SPAN ? reader->bytes[reader->at] : -1;
  return result;
}

/* The number of bytes before the first line end. The loop over a block has a fixed count, so that
 * the compiler vectorises it. */
static size_t find_end(const uint8_t *bytes, size_t size)
{
  enum { BLOCK = 64 };
  size_t at = 0;
  for (; at + BLOCK <= size; at += BLOCK) {
    uint8_t ends = 0;
    for (size_t i = 0; i < BLOCK; i++)
      ends |= (uint8_t)(bytes[at + i] == '\n') | (uint8_t)(bytes[at + i] == '\r');
    if (ends != 0) break;
  }
  while (at < size && bytes[at] != '\n' && bytes[at] != '\r') at++;
  return at;
}

enum plm_line_result plm_line_next(struct plm_line_reader *reader, struct plm_line_span *span,
                                   struct plm_error *error)
{
  const enum plm_line_result result = provide(reader, error);
  if (result != PLM_LINE_SPAN) return result;
  const size_t left = reader->size - reader->at;
  span->begins = !reader->inside_line;
  span->bytes = reader->bytes + reader->at;
  span->size = find_end(span->bytes, left);
  span->ends = span->size < left;
  reader->after_return = span->ends && span->bytes[span->size] == '\r';
  reader->at += span->size + (span->ends ? 1 : 0);
  if (span->begins) reader->line++;
  reader->inside_line = !span->ends;
  return PLM_LINE_SPAN;
}

bool plm_line_is_blank(const void *bytes, size_t size)
{
  const char *line = bytes;
  for (size_t i = 0; i < size; i++)
    if (line[i] != ' ' && line[i] != '\t') return false;
  return true;
}
