/* Plain text: one sequence a line. */
#include "stages/sequence_parts.h"

enum plm_sequence_result plm_text_next(struct plm_sequence_reader *reader,
                                       struct plm_sequence *sequence, struct plm_error *error)
{
  if (reader->ended) return PLM_SEQUENCE_END;
  for (;;) {
    struct plm_line_piece piece;
    const enum plm_line_result result = plm_line_next(&reader->lines, &piece, error);
    if (result == PLM_LINE_FAILED) return PLM_SEQUENCE_FAILED;
    if (result == PLM_LINE_AGAIN) return PLM_SEQUENCE_AGAIN;
    if (result == PLM_LINE_END) {
      reader->ended = true;
      if (!reader->line_open) return PLM_SEQUENCE_END;
    } else {
      if (piece.begins) {
        plm_sequence_builder_reset(&reader->builder);
        reader->record_line = reader->lines.line;
        reader->line_open = true;
      }
      plm_sequence_builder_add(&reader->builder, &piece, reader->lines.line);
      if (!piece.ends) continue;
    }
    reader->line_open = false;
    const struct plm_sequence_builder *builder = &reader->builder;
    const bool empty =
        builder->length == 0 && builder->bad < 0 && !builder->star && !builder->no_memory;
    if (empty && reader->ended) return PLM_SEQUENCE_END;
    if (empty) continue;
    plm_sequence_name_by_place(reader);
    return plm_sequence_complete(reader, sequence, error);
  }
}
