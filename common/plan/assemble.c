/* From a planned window to tokens: read groups in the window's reading order, translate each
 * piece into its place, pad to the next one. */
#include "common/plan/assemble.h"

#include <string.h>

#include "common/plan/translate.h"

size_t plm_assemble_bytes(const struct plm_plan *plan, const struct plm_window *window)
{
  const struct plm_plan_parameters *p = plm_plan_parameters(plan);
  return (size_t)window->chunks * p->max_length * plm_tokenizer_of(p->tokenizer)->token_bytes;
}

/* Token `at` onwards, `count` times. */
static void fill(void *tokens, uint32_t token_bytes, uint64_t at, uint64_t count, uint16_t id)
{
  if (token_bytes == 1) {
    memset((uint8_t *)tokens + at, id, count);
    return;
  }
  uint16_t *wide = (uint16_t *)tokens + at;
  for (uint64_t i = 0; i < count; i++) wide[i] = id;
}

/* One piece at token `at`, and padding up to token `end`. residues: of its whole document. */
static void write_piece(const struct plm_translator *translator,
                        const struct plm_chunk_document *piece, const uint8_t *residues,
                        void *tokens, uint64_t at, uint64_t end)
{
  const struct plm_tokenizer *tokenizer = translator->tokenizer;
  const uint32_t token_bytes = tokenizer->token_bytes;
  const uint64_t begin = plm_piece_begin(piece);
  const bool has_cls = begin == 0;
  const bool has_eos = begin + piece->tokens == (uint64_t)piece->residues + 2;
  const uint64_t count = piece->tokens - (uint64_t)has_cls - (uint64_t)has_eos;
  if (has_cls) fill(tokens, token_bytes, at++, 1, tokenizer->cls);
  translator->residues(translator, residues + piece->offset, count,
                       (uint8_t *)tokens + at * token_bytes);
  at += count;
  if (has_eos) fill(tokens, token_bytes, at++, 1, tokenizer->eos);
  fill(tokens, token_bytes, at, end - at, tokenizer->pad);
}

/* Pieces lie at random in the window's tables and in its tokens, which no near cache holds: what
 * will be needed soon is asked for here, and its table entry sooner still. (always_inline: gcc
 * takes a function that only prefetches for one that does nothing.) */
__attribute__((always_inline)) static inline void
look_ahead(const struct plm_window *window, uint32_t i, uint32_t end, const uint64_t *chunk_at,
           uint32_t max_length, uint32_t token_bytes, const uint8_t *tokens)
{
  enum { TABLE_AHEAD = 16, TOKENS_AHEAD = 8, LINE = 64, BYTES_AHEAD = 8 * LINE };
  if (i + TABLE_AHEAD < end)
    __builtin_prefetch(&window->documents[window->places[i + TABLE_AHEAD].document]);
  if (i + TOKENS_AHEAD >= end) return;
  const struct plm_window_place place = window->places[i + TOKENS_AHEAD];
  const struct plm_chunk_document *piece = &window->documents[place.document];
  const uint64_t base =
      chunk_at != NULL ? chunk_at[place.chunk] : (uint64_t)place.chunk * max_length;
  const uint8_t *at = tokens + (base + piece->start) * token_bytes;
  const uint64_t bytes = (uint64_t)piece->tokens * token_bytes;
  for (uint64_t byte = 0; byte < bytes && byte < BYTES_AHEAD; byte += LINE)
    __builtin_prefetch(at + byte, 1);
}

/* All pieces of one group; lengths are the whole split's. chunk_at: as in assemble.h, or NULL. */
static plm_status write_group(const struct plm_translator *translator, const struct plm_plan *plan,
                              const struct plm_window *window, uint32_t slot,
                              const uint8_t *residues, size_t size, const uint64_t *chunk_at,
                              void *tokens, struct plm_error *error)
{
  const uint32_t max_length = plm_plan_parameters(plan)->max_length;
  const uint32_t *lengths = plm_plan_lengths(plan);
  const uint32_t end = window->group_begin[slot + 1];
  uint64_t document = window->groups[slot] * PLM_GROUP_DOCUMENTS, from = 0;
  for (uint32_t i = window->group_begin[slot]; i < end; i++) {
    look_ahead(window, i, end, chunk_at, max_length, translator->tokenizer->token_bytes, tokens);
    const struct plm_window_place place = window->places[i];
    const struct plm_chunk_document *piece = &window->documents[place.document];
    while (document < piece->number) from += lengths[document++];
    if (from + piece->residues > size)
      return plm_error_set(error, PLM_CORRUPT,
                           "group %llu holds %zu residues, fewer than its documents' lengths say",
                           (unsigned long long)window->groups[slot], size);
    const uint64_t base =
        chunk_at != NULL ? chunk_at[place.chunk] : (uint64_t)place.chunk * max_length;
    const bool last = place.document + 1 == window->chunk_begin[place.chunk + 1];
    write_piece(translator, piece, residues + from, tokens, base + piece->start,
                base + (last ? max_length : piece[1].start));
  }
  return PLM_OK;
}

plm_status plm_assemble_scattered(struct plm_corpus_cursor *cursor, enum plm_split split,
                                  const struct plm_plan *plan, const struct plm_window *window,
                                  uint32_t first, uint32_t count, const uint64_t *chunk_at,
                                  void *tokens, struct plm_error *error)
{
  struct plm_translator translator;
  PLM_ASSERT(first <= window->group_count && count <= window->group_count - first);
  plm_translator_init(&translator, plm_plan_parameters(plan)->tokenizer);
  for (uint32_t slot = first; slot < first + count; slot++) {
    const uint8_t *residues;
    size_t size;
    PLM_TRY(plm_corpus_group(cursor, split, window->groups[slot], &residues, &size, error));
    PLM_TRY(write_group(&translator, plan, window, slot, residues, size, chunk_at, tokens, error));
  }
  return PLM_OK;
}

plm_status plm_assemble_groups(struct plm_corpus_cursor *cursor, enum plm_split split,
                               const struct plm_plan *plan, const struct plm_window *window,
                               uint32_t first, uint32_t count, void *tokens,
                               struct plm_error *error)
{
  return plm_assemble_scattered(cursor, split, plan, window, first, count, NULL, tokens, error);
}

plm_status plm_assemble_window(struct plm_corpus_cursor *cursor, enum plm_split split,
                               const struct plm_plan *plan, const struct plm_window *window,
                               void *tokens, struct plm_error *error)
{
  return plm_assemble_groups(cursor, split, plan, window, 0, window->group_count, tokens, error);
}
