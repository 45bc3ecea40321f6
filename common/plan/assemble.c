/* From a planned window to tokens: the groups are read in the window's reading order, each piece of
 * a document is translated, and the space up to the next piece is padded. */
#include "common/plan/assemble.h"

#include <string.h>

size_t plm_assemble_bytes(const struct plm_plan *plan, const struct plm_window *window)
{
  const struct plm_plan_parameters *p = plm_plan_parameters(plan);
  return (size_t)window->chunks * p->max_length * plm_tokenizer_of(p->tokenizer)->token_bytes;
}

/* Writes `id` to `count` tokens from token `at`. */
static void assemble_fill(void *tokens, uint32_t token_bytes, uint64_t at, uint64_t count,
                          uint16_t id)
{
  if (token_bytes == 1) {
    memset((uint8_t *)tokens + at, id, count);
    return;
  }
  uint16_t *wide = (uint16_t *)tokens + at;
  for (uint64_t i = 0; i < count; i++) wide[i] = id;
}

uint32_t plm_assemble_piece(const struct plm_window *window, uint32_t max_length,
                            const struct plm_translator *translator, uint32_t i,
                            const uint8_t *residues, void *tokens)
{
  const struct plm_tokenizer *tokenizer = translator->tokenizer;
  const struct plm_window_place place = window->places[i];
  const struct plm_chunk_document *piece = &window->documents[place.document];
  const uint32_t token_bytes = tokenizer->token_bytes;
  const uint64_t begin = plm_piece_begin(piece);
  const bool has_cls = begin == 0;
  const bool has_eos = begin + piece->tokens == (uint64_t)piece->residues + 2;
  const bool last = place.document + 1 == window->chunk_begin[place.chunk + 1];
  const uint32_t end = last ? max_length : piece[1].start;
  const uint32_t count = piece->tokens - (uint32_t)has_cls - (uint32_t)has_eos;
  PLM_ASSERT(piece->start + piece->tokens <= end && end <= max_length);
  uint64_t at = 0;
  if (has_cls) assemble_fill(tokens, token_bytes, at++, 1, tokenizer->cls);
  translator->residues(translator, residues + piece->offset, count,
                       (uint8_t *)tokens + at * token_bytes);
  at += count;
  if (has_eos) assemble_fill(tokens, token_bytes, at++, 1, tokenizer->eos);
  if (piece->start + at < end)
    assemble_fill(tokens, token_bytes, at, end - piece->start - at, tokenizer->pad);
  return end - piece->start;
}

/* Writes a piece to its place in the window's tokens. */
static void write_piece(const struct plm_assembly *assembly,
                        const struct plm_translator *translator, uint32_t i,
                        const uint8_t *residues)
{
  const struct plm_window *window = assembly->window;
  const struct plm_window_place place = window->places[i];
  const uint32_t max_length = plm_plan_parameters(assembly->plan)->max_length;
  const uint64_t at = (uint64_t)place.chunk * max_length + window->documents[place.document].start;
  (void)plm_assemble_piece(window, max_length, translator, i, residues,
                           (uint8_t *)assembly->tokens + at * translator->tokenizer->token_bytes);
}

/* Takes all pieces of the group at window->groups[slot], whose documents' lengths and residues are
 * given. */
static plm_status take_group(const struct plm_translator *translator,
                             const struct plm_assembly *assembly, uint32_t slot,
                             const uint32_t *lengths, const uint8_t *residues, size_t size,
                             struct plm_error *error)
{
  enum { AHEAD = 16 };
  const struct plm_window *window = assembly->window;
  const uint32_t end = window->group_begin[slot + 1];
  const uint64_t first = window->groups[slot] * PLM_GROUP_DOCUMENTS;
  uint64_t document = first, from = 0;
  for (uint32_t i = window->group_begin[slot]; i < end; i++) {
    const struct plm_window_place place = window->places[i];
    const struct plm_chunk_document *piece = &window->documents[place.document];
    /* The pieces of a group are at random places in the table, so they are rarely in a cache. */
    if (i + AHEAD < window->document_count)
      __builtin_prefetch(&window->documents[window->places[i + AHEAD].document]);
    /* What plm_plan_window has laid out: ascending within a group. */
    PLM_ASSERT(document <= piece->number);
    PLM_ASSERT(window->chunk_begin[place.chunk] <= place.document &&
               place.document < window->chunk_begin[place.chunk + 1]);
    while (document < piece->number) from += lengths[document++ - first];
    if (from + piece->residues > size)
      return plm_error_set(error, PLM_CORRUPT,
                           "group %llu holds %zu residues, fewer than the lengths of its documents "
                           "add up to",
                           (unsigned long long)window->groups[slot], size);
    if (assembly->take == NULL)
      write_piece(assembly, translator, i, residues + from);
    else
      PLM_TRY(assembly->take(assembly->context, i, residues + from, error));
  }
  return PLM_OK;
}

plm_status plm_assemble_groups(struct plm_corpus_cursor *cursor,
                               const struct plm_assembly *assembly, uint32_t first, uint32_t count,
                               struct plm_error *error)
{
  const struct plm_window *window = assembly->window;
  struct plm_translator translator;
  PLM_ASSERT(first <= window->group_count && count <= window->group_count - first);
  plm_translator_init(&translator, plm_plan_parameters(assembly->plan)->tokenizer);
  for (uint32_t slot = first; slot < first + count; slot++) {
    const uint8_t *residues;
    const uint32_t *lengths;
    size_t size;
    PLM_TRY(
        plm_corpus_group(cursor, assembly->split, window->groups[slot], &residues, &size, error));
    PLM_TRY(
        plm_corpus_group_lengths(cursor, assembly->split, window->groups[slot], &lengths, error));
    PLM_TRY(take_group(&translator, assembly, slot, lengths, residues, size, error));
  }
  return PLM_OK;
}

plm_status plm_assemble_window(struct plm_corpus_cursor *cursor, enum plm_split split,
                               const struct plm_plan *plan, const struct plm_window *window,
                               void *tokens, struct plm_error *error)
{
  const struct plm_assembly assembly = {
      .split = split, .plan = plan, .window = window, .tokens = tokens};
  return plm_assemble_groups(cursor, &assembly, 0, window->group_count, error);
}
