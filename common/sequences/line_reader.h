/* The lines of a byte stream, in spans that lie in the stream's own buffer: they are never copied,
 * and a line may be of any length. A line ends with LF, CR LF or, as on old Macs, CR. */
#ifndef PLM_COMMON_SEQUENCES_LINE_READER_H
#define PLM_COMMON_SEQUENCES_LINE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/sequences/byte_stream.h"

/* Initialise it with {.stream = stream}. */
struct plm_line_reader {
  struct plm_byte_stream *stream; /* borrowed */
  const uint8_t *bytes;
  size_t at, size;
  uint64_t line;     /* of the last span, from 1 */
  bool inside_line;  /* the last span did not end its line */
  bool after_return; /* the last byte was a CR, so an LF after it belongs to the same line end */
};

struct plm_line_span {
  const uint8_t *bytes; /* without the line end */
  size_t size;
  bool begins, ends; /* it is the first span of its line; it is the last one */
};

enum plm_line_result {
  PLM_LINE_SPAN, /* *span is valid until the next call */
  PLM_LINE_END,
  PLM_LINE_FAILED, /* error says why */
  PLM_LINE_AGAIN,  /* a signal came; call again */
};
enum plm_line_result plm_line_next(struct plm_line_reader *reader, struct plm_line_span *span,
                                   struct plm_error *error);
/* Gives the next byte without consuming it, but not the LF of a CR LF, which is consumed; -1 at the
 * end (with PLM_LINE_END). */
enum plm_line_result plm_line_peek(struct plm_line_reader *reader, int *byte,
                                   struct plm_error *error);
/* Whether there are only spaces and tabs. */
bool plm_line_is_blank(const void *bytes, size_t size);

#endif
