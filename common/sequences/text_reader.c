/* Plain text: each line that is not empty is a sequence. */
#include "common/sequences/sequence_parts.h"

enum plm_sequence_result plm_text_next(struct plm_sequence_reader *reader,
                                       struct plm_sequence *sequence, struct plm_error *error)
{
  for (;;) {
    struct plm_line_span span;
    const enum plm_sequence_result result = plm_sequence_line_span(reader, &span, error);
    if (result != PLM_SEQUENCE_READ) return result;
    if (span.begins) {
      plm_sequence_builder_reset(&reader->builder);
      reader->record_line = reader->lines.line;
    }
    plm_sequence_builder_add(&reader->builder, &span, reader->lines.line);
    if (!span.ends) continue;
    const struct plm_sequence_builder *builder = &reader->builder;
    const bool empty =
        builder->length == 0 && builder->bad < 0 && !builder->star && !builder->no_memory;
    if (empty) continue;
    plm_sequence_name_by_place(reader);
    return plm_sequence_complete(reader, sequence, error);
  }
}
