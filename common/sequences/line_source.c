/* Lines of a byte stream: see line_source.h. */
#include "common/sequences/line_source.h"

#include <string.h>

/* Makes the next bytes of the stream the current ones. */
static enum plm_line_result more(struct plm_line_source *source, struct plm_error *error)
{
  source->at = 0;
  source->size = 0;
  const plm_status status =
      plm_byte_stream_read(source->stream, &source->bytes, &source->size, error);
  if (status == PLM_AGAIN) return PLM_LINE_AGAIN;
  if (status != PLM_OK) return PLM_LINE_FAILED;
  return source->size == 0 ? PLM_LINE_END : PLM_LINE_PIECE;
}

/* Makes sure that there is a byte at `at`, which is not the second half of a line end. */
static enum plm_line_result provide(struct plm_line_source *source, struct plm_error *error)
{
  for (;;) {
    if (source->at == source->size) {
      const enum plm_line_result result = more(source, error);
      if (result != PLM_LINE_PIECE) return result;
    }
    if (!source->after_return) return PLM_LINE_PIECE;
    source->after_return = false;
    if (source->bytes[source->at] != '\n') return PLM_LINE_PIECE;
    source->at++;
  }
}

enum plm_line_result plm_line_peek(struct plm_line_source *source, int *byte,
                                   struct plm_error *error)
{
  const enum plm_line_result result = provide(source, error);
  *byte = result == PLM_LINE_PIECE ? source->bytes[source->at] : -1;
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

enum plm_line_result plm_line_next(struct plm_line_source *source, struct plm_line_piece *piece,
                                   struct plm_error *error)
{
  const enum plm_line_result result = provide(source, error);
  if (result != PLM_LINE_PIECE) return result;
  const size_t left = source->size - source->at;
  piece->begins = !source->inside_line;
  piece->bytes = source->bytes + source->at;
  piece->size = find_end(piece->bytes, left);
  piece->ends = piece->size < left;
  source->after_return = piece->ends && piece->bytes[piece->size] == '\r';
  source->at += piece->size + (piece->ends ? 1 : 0);
  if (piece->begins) source->line++;
  source->inside_line = !piece->ends;
  return PLM_LINE_PIECE;
}

bool plm_line_is_blank(const void *bytes, size_t size)
{
  const char *line = bytes;
  for (size_t i = 0; i < size; i++)
    if (line[i] != ' ' && line[i] != '\t') return false;
  return true;
}
