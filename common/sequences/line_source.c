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

enum plm_line_result plm_line_peek(struct plm_line_source *source, int *byte,
                                   struct plm_error *error)
{
  *byte = -1;
  if (source->at == source->size) {
    const enum plm_line_result result = more(source, error);
    if (result != PLM_LINE_PIECE) return result;
  }
  *byte = source->bytes[source->at];
  return PLM_LINE_PIECE;
}

enum plm_line_result plm_line_next(struct plm_line_source *source, struct plm_line_piece *piece,
                                   struct plm_error *error)
{
  if (source->at == source->size) {
    const enum plm_line_result result = more(source, error);
    if (result != PLM_LINE_PIECE) return result;
  }
  const uint8_t *begin = source->bytes + source->at;
  const uint8_t *end = memchr(begin, '\n', source->size - source->at);
  piece->begins = !source->inside_line;
  piece->ends = end != NULL;
  piece->bytes = begin;
  piece->size = end != NULL ? (size_t)(end - begin) : source->size - source->at;
  source->at += piece->size + (end != NULL ? 1 : 0);
  if (piece->begins) source->line++;
  source->inside_line = end == NULL;
  return PLM_LINE_PIECE;
}

bool plm_line_is_blank(const void *bytes, size_t size)
{
  const char *line = bytes;
  for (size_t i = 0; i < size; i++)
    if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') return false;
  return true;
}
