/* Building a window's payload: each document of a group is translated, and its tokens are packed
 * directly into their place. */
#include "packer/window_build.h"

#include <stdlib.h>
#include <string.h>

#include "common/plan/assemble.h"
#include "common/wire/data.h"
#include "common/wire/token_bits.h"

void packed_window_hold(struct packed_window *packed)
{
  atomic_fetch_add_explicit(&packed->references, 1, memory_order_relaxed);
}

void packed_window_release(struct packed_window *packed)
{
  if (atomic_fetch_sub_explicit(&packed->references, 1, memory_order_acq_rel) == 1)
    packed->free(packed);
}

void packed_window_free(struct packed_window *packed)
{
  free(packed->bytes);
  free(packed->offset);
  free(packed->tokens);
  free(packed->documents);
  free(packed);
}

static plm_status reserve_table(struct packed_window *packed, size_t chunks,
                                struct plm_error *error)
{
  uint64_t **columns[] = {&packed->offset, &packed->tokens, &packed->documents};
  if (chunks + 1 <= packed->table_capacity) return PLM_OK;
  const size_t capacity = chunks + chunks / 8 + 64;
  packed->table_capacity = 0;
  for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
    free(*columns[i]);
    *columns[i] = malloc(capacity * sizeof **columns[i]);
    if (*columns[i] == NULL) return plm_error_set(error, PLM_NO_MEMORY, "no memory for a window");
  }
  packed->table_capacity = capacity;
  return PLM_OK;
}

static plm_status reserve_bytes(uint8_t **memory, size_t *capacity, size_t bytes,
                                struct plm_error *error)
{
  if (bytes <= *capacity) return PLM_OK;
  free(*memory);
  *capacity = 0;
  const size_t pages = (bytes + bytes / 8 + 4095) & ~(size_t)4095;
  *memory = malloc(pages);
  if (*memory == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu bytes of a window", bytes);
  *capacity = pages;
  return PLM_OK;
}

/* Computes the position of everything. */
static plm_status lay_out(struct packed_window *packed, const struct plm_window *window,
                          const struct plm_tokenizer *tokenizer, struct plm_error *error)
{
  PLM_TRY(reserve_table(packed, window->chunks, error));
  uint64_t tokens = 0;
  packed->chunks = window->chunks;
  packed->token_bytes = tokenizer->token_bytes;
  plm_data_layout(tokenizer, packed->max_length, packed->schema, window, packed->offset);
  PLM_TRY(reserve_bytes(&packed->bytes, &packed->capacity, packed->offset[window->chunks], error));
  for (uint32_t c = 0; c < window->chunks; c++) {
    packed->documents[c] = window->chunk_begin[c];
    packed->tokens[c] = tokens;
    for (uint32_t i = window->chunk_begin[c]; i < window->chunk_begin[c + 1]; i++)
      tokens += window->documents[i].tokens;
    plm_token_bits_begin(tokenizer, plm_data_extent(packed->max_length, window, c).tokens,
                         packed->bytes + packed->offset[c]);
  }
  packed->documents[window->chunks] = window->document_count;
  packed->tokens[window->chunks] = tokens;
  return PLM_OK;
}

/* A window that is built. */
struct window_pieces {
  const struct packed_window *packed;
  struct window_memory *memory;
};

/* The chunks of a group's pieces are at random places, so they are rarely in a cache. This fetches
 * that of a piece that comes soon. (always_inline: gcc removes calls to a function that only
 * prefetches, because it considers that function free of side effects.) */
__attribute__((always_inline)) static inline void look_ahead(const struct window_pieces *pieces,
                                                             uint32_t i)
{
  enum { AHEAD = 8, LINE = 64, BYTES_AHEAD = 8 * LINE };
  const struct plm_window *window = &pieces->memory->window;
  const struct plm_tokenizer *tokenizer = pieces->memory->evidence.translator.tokenizer;
  if (i + AHEAD >= window->document_count) return;
  const struct plm_window_place place = window->places[i + AHEAD];
  const struct plm_chunk_document *piece = &window->documents[place.document];
  const uint8_t *chunk = pieces->packed->bytes + pieces->packed->offset[place.chunk];
  const uint8_t *at = chunk + plm_token_bits_size(tokenizer, piece->start);
  const size_t bytes = plm_token_bits_size(tokenizer, piece->tokens);
  for (size_t byte = 0; byte < bytes && byte < BYTES_AHEAD; byte += LINE)
    __builtin_prefetch(at + byte, 1);
}

/* Packs a document or piece into its chunk. */
static plm_status pack_piece(void *context, uint32_t i, const uint8_t *residues,
                             struct plm_error *error)
{
  const struct window_pieces *pieces = context;
  struct window_memory *memory = pieces->memory;
  const struct plm_translator *translator = &memory->evidence.translator;
  const struct plm_window_place place = memory->window.places[i];
  const struct plm_chunk_document *piece = &memory->window.documents[place.document];
  look_ahead(pieces, i);
  const uint32_t count = plm_assemble_piece(&memory->window, pieces->packed->max_length, translator,
                                            i, residues, memory->piece);
  plm_token_bits_pack(translator->tokenizer, memory->piece, piece->start, count,
                      pieces->packed->bytes + pieces->packed->offset[place.chunk]);
  if (piece->tokens == (uint64_t)piece->residues + 2) return PLM_OK;
  return evidence_take(&memory->evidence, place, residues, error);
}

/* Computes the place of each document's label record. */
static plm_status lay_out_labels(const struct packed_window *packed,
                                 const struct plm_tokenizer *tokenizer,
                                 struct window_memory *memory, struct plm_error *error)
{
  const struct plm_window *window = &memory->window;
  if (window->document_count > memory->label_capacity) {
    free(memory->label_at);
    memory->label_capacity = 0;
    memory->label_at = malloc(window->document_count * sizeof *memory->label_at);
    if (memory->label_at == NULL)
      return plm_error_set(error, PLM_NO_MEMORY, "no memory for labels");
    memory->label_capacity = window->document_count;
  }
  for (uint32_t c = 0; c < window->chunks; c++) {
    uint64_t at = packed->offset[c] + plm_data_labels_at(tokenizer, packed->max_length, window, c);
    for (uint32_t i = window->chunk_begin[c]; i < window->chunk_begin[c + 1]; i++) {
      memory->label_at[i] = at;
      at += plm_label_record_size(packed->schema, window->documents[i].residues);
    }
    PLM_ASSERT(at == packed->offset[c + 1]);
  }
  return PLM_OK;
}

/* Writes the label record of each document, group by group. */
static plm_status write_labels(const struct packed_window *packed,
                               const struct plm_tokenizer *tokenizer, struct window_memory *memory,
                               struct plm_corpus_cursor *cursor, enum plm_split split,
                               struct plm_error *error)
{
  const struct plm_window *window = &memory->window;
  PLM_TRY(lay_out_labels(packed, tokenizer, memory, error));
  for (uint32_t slot = 0; slot < window->group_count; slot++) {
    const uint8_t *records;
    const size_t *offsets;
    PLM_TRY(plm_corpus_labels(cursor, split, window->groups[slot], &records, &offsets, error));
    for (uint32_t p = window->group_begin[slot]; p < window->group_begin[slot + 1]; p++) {
      const uint32_t i = window->places[p].document;
      const size_t *begin = offsets + window->documents[i].number % PLM_GROUP_DOCUMENTS;
      memcpy(packed->bytes + memory->label_at[i], records + begin[0], begin[1] - begin[0]);
    }
  }
  return PLM_OK;
}

plm_status packed_window_build(struct packed_window *packed, struct window_memory *memory,
                               struct plm_corpus_cursor *cursor, enum plm_split split,
                               const struct plm_plan *plan, uint64_t epoch, uint64_t index,
                               struct plm_error *error)
{
  const struct plm_plan_parameters *parameters = plm_plan_parameters(plan);
  const struct plm_tokenizer *tokenizer = plm_tokenizer_of(parameters->tokenizer);
  struct plm_window *window = &memory->window;
  packed->max_length = parameters->max_length;
  packed->schema = plm_corpus_cursor_schema(cursor);
  const struct plm_plan_corpus from = {.plan = plan, .cursor = cursor, .split = split};
  PLM_TRY(plm_plan_window(plan, epoch, index, plm_plan_read_corpus, &from, window, error));
  PLM_TRY(lay_out(packed, window, tokenizer, error));
  PLM_TRY(reserve_bytes(&memory->piece, &memory->piece_capacity,
                        (size_t)parameters->max_length * tokenizer->token_bytes, error));
  evidence_begin(&memory->evidence, &(struct evidence_places){.plan = parameters,
                                                              .window = window,
                                                              .payload = packed->bytes,
                                                              .offset = packed->offset});
  struct window_pieces pieces = {.packed = packed, .memory = memory};
  const struct plm_assembly assembly = {
      .split = split, .plan = plan, .window = window, .take = pack_piece, .context = &pieces};
  PLM_TRY(plm_assemble_groups(cursor, &assembly, 0, window->group_count, error));
  PLM_TRY(evidence_end(&memory->evidence, error));
  return packed->schema == NULL ? PLM_OK
                                : write_labels(packed, tokenizer, memory, cursor, split, error);
}

void window_memory_deinit(struct window_memory *memory)
{
  plm_window_deinit(&memory->window);
  evidence_deinit(&memory->evidence);
  free(memory->piece);
  free(memory->label_at);
}
