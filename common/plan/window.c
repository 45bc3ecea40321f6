/* Plans one window in four steps: the documents of its groups, or those drawn from its clusters,
 * are gathered as pieces, the pieces are packed into chunks, the pieces within chunks and the
 * chunks are shuffled, and the starts and places are computed. Memory is kept in the caller's
 * plm_window, so that nothing is allocated after the first windows. */
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/plan/packing.h"
#include "common/plan/plan_internal.h"
#include "common/plan/shuffle.h"

/* Memory for packing a window, kept together with the result. */
struct plm_window_scratch {
  struct plm_rooms rooms;
  uint32_t group_capacity; /* of the window's groups and group_begin */
  uint32_t plan_group_capacity;
  uint64_t *plan_groups;   /* those of the plan: of documents, or of clusters */
  uint32_t piece_capacity; /* of everything below, and of the window's arrays */
  struct plm_chunk_document *pieces;
  uint32_t *units, *order, *next, *chunk_of, *begin;
};

/* ---- gathering --------------------------------------------------------------------------------*/

/* What a window is made of, and who knows it. */
struct window_of {
  const struct plm_plan *plan;
  uint64_t epoch;
  uint32_t group_count;
  plm_plan_read *read;
  const void *context;
};

/* A document of the window. */
struct member {
  uint64_t number;
  uint32_t residues;
};

/* Field by field: a processor waits if what it has just written in parts is read as a whole. */
static void put_piece(struct plm_chunk_document *out, const struct member *member, uint64_t begin,
                      uint64_t tokens)
{
  out->number = member->number;
  out->start = 0;
  out->tokens = (uint32_t)tokens;
  out->offset = (uint32_t)(begin == 0 ? 0 : begin - 1);
  out->residues = member->residues;
}

/* The token at which a crop begins: 0, or 2 to tokens - max_length. */
static uint64_t crop_begin(const struct plm_plan *plan, uint64_t epoch, uint64_t document,
                           uint64_t tokens)
{
  const uint64_t draw = plm_draw_below(plan->parameters.seed, (uint32_t)epoch, document,
                                       PLM_PURPOSE_CROPS, tokens - plan->parameters.max_length);
  return draw == 0 ? 0 : draw + 1;
}

/* Writes the pieces of one document, and returns their number. */
static uint32_t document_pieces(const struct plm_plan *plan, uint64_t epoch,
                                const struct member *member, struct plm_chunk_document *out)
{
  const uint64_t max_length = plan->parameters.max_length;
  const uint64_t tokens = tokens_of(member->residues);
  if (tokens <= max_length) {
    put_piece(out, member, 0, tokens);
    return 1;
  }
  switch (plan->parameters.truncate) {
  case PLM_TRUNCATE_HEAD: put_piece(out, member, 0, max_length); return 1;
  case PLM_TRUNCATE_RANDOM_CROP:
    put_piece(out, member, crop_begin(plan, epoch, member->number, tokens), max_length);
    return 1;
  case PLM_TRUNCATE_SPLIT: break;
  }
  uint32_t count = 0;
  PLM_ASSERT(max_length > 0);
  for (uint64_t begin = 0; begin < tokens; begin += max_length) {
    const uint64_t left = tokens - begin;
    put_piece(&out[count++], member, begin, left < max_length ? left : max_length);
  }
  return count;
}

/* ---- memory -----------------------------------------------------------------------------------*/

static plm_status scratch_open(const struct plm_plan *plan, struct plm_window *window,
                               struct plm_error *error)
{
  const struct plm_plan_parameters *p = &plan->parameters;
  const uint32_t capacity = p->max_length >> plan->alignment_shift;
  if (!window->scratch_) window->scratch_ = plm_alloc_zeroed(1, sizeof *window->scratch_);
  struct plm_window_scratch *scratch = window->scratch_;
  if (scratch->rooms.capacity != capacity) {
    plm_rooms_deinit(&scratch->rooms);
    plm_rooms_open(capacity, &scratch->rooms);
  }
  if (scratch->plan_group_capacity < p->window_groups) {
    free(scratch->plan_groups);
    scratch->plan_groups = plm_alloc(p->window_groups * sizeof *scratch->plan_groups);
    scratch->plan_group_capacity = p->window_groups;
  }
  /* Each document of a group of clusters may be in another group of the corpus. */
  const bool clusters = p->sampling == PLM_SAMPLING_CLUSTERS;
  const uint32_t groups = p->window_groups * (clusters ? PLM_GROUP_DOCUMENTS : 1u);
  if (scratch->group_capacity < groups) {
    free(window->groups);
    free(window->group_begin);
    scratch->group_capacity = 0;
    window->groups = malloc(groups * sizeof *window->groups);
    window->group_begin = malloc(((size_t)groups + 1) * sizeof *window->group_begin);
    if (!window->groups || !window->group_begin)
      return plm_error_set(error, PLM_NO_MEMORY, "no memory for a window of %u groups", groups);
    scratch->group_capacity = groups;
  }
  return PLM_OK;
}

static void free_pieces(struct plm_window *window)
{
  struct plm_window_scratch *scratch = window->scratch_;
  scratch->piece_capacity = 0;
  free(scratch->pieces);
  free(scratch->units);
  free(scratch->order);
  free(scratch->next);
  free(scratch->chunk_of);
  free(scratch->begin);
  free(window->chunk_begin);
  free(window->documents);
  free(window->places);
  scratch->pieces = NULL;
  scratch->units = scratch->order = scratch->next = scratch->chunk_of = scratch->begin = NULL;
  window->chunk_begin = NULL;
  window->documents = NULL;
  window->places = NULL;
}

/* Makes room for so many pieces. Those that are there already stay, all else is lost. */
static plm_status reserve_pieces(struct plm_window *window, uint64_t pieces,
                                 struct plm_error *error)
{
  struct plm_window_scratch *scratch = window->scratch_;
  if (pieces <= scratch->piece_capacity) return PLM_OK;
  if (pieces >= INT32_MAX)
    return plm_error_set(error, PLM_LIMIT, "a window has %llu pieces, more than can be packed",
                         (unsigned long long)pieces);
  struct plm_chunk_document *kept = scratch->pieces;
  scratch->pieces = NULL;
  free_pieces(window);
  const size_t count = pieces + pieces / 8; /* the next window may be a little larger */
  scratch->pieces = realloc(kept, count * sizeof *scratch->pieces);
  if (!scratch->pieces) free(kept);
  scratch->units = malloc(count * sizeof *scratch->units);
  scratch->order = malloc(count * sizeof *scratch->order);
  scratch->next = malloc(count * sizeof *scratch->next);
  scratch->chunk_of = malloc(count * sizeof *scratch->chunk_of);
  scratch->begin = malloc((count + 1) * sizeof *scratch->begin);
  window->chunk_begin = malloc((count + 1) * sizeof *window->chunk_begin);
  window->documents = malloc(count * sizeof *window->documents);
  window->places = malloc(count * sizeof *window->places);
  if (!scratch->pieces || !scratch->units || !scratch->order || !scratch->next ||
      !scratch->chunk_of || !scratch->begin || !window->chunk_begin || !window->documents ||
      !window->places) {
    free_pieces(window);
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for a window of %llu pieces",
                         (unsigned long long)pieces);
  }
  scratch->piece_capacity = (uint32_t)count;
  return PLM_OK;
}

void plm_window_deinit(struct plm_window *window)
{
  if (window->scratch_) {
    free_pieces(window);
    plm_rooms_deinit(&window->scratch_->rooms);
    free(window->groups);
    free(window->group_begin);
    free(window->scratch_->plan_groups);
    free(window->scratch_);
  }
  *window = (struct plm_window){0};
}

/* ---- a window ---------------------------------------------------------------------------------*/

/* The number of pieces that the documents of a group become, or more. */
static uint64_t most_pieces(const struct plm_plan *plan, const struct plm_plan_group *group)
{
  uint64_t pieces = group->count;
  if (plan->parameters.truncate != PLM_TRUNCATE_SPLIT) return pieces;
  for (uint32_t k = 0; k < group->count; k++)
    pieces += (tokens_of(group->lengths[k]) - 1) / plan->parameters.max_length;
  return pieces;
}

/* Writes the pieces of the window's documents, and where each group of the corpus that they come
 * from begins among them. Each group is read once. */
static plm_status window_gather(const struct window_of *of, struct plm_window *out,
                                struct plm_error *error)
{
  struct plm_window_scratch *scratch = out->scratch_;
  struct plm_plan_group read;
  uint32_t count = 0, groups = 0;
  /* Also a window without documents has its arrays. */
  PLM_TRY(reserve_pieces(out, (uint64_t)of->group_count * PLM_GROUP_DOCUMENTS, error));
  for (uint32_t i = 0; i < of->group_count; i++) {
    PLM_TRY(of->read(of->context, of->epoch, i, scratch->plan_groups[i], &read, error));
    PLM_TRY(reserve_pieces(out, count + most_pieces(of->plan, &read), error));
    for (uint32_t k = 0; k < read.count; k++) {
      const struct member member = {read.numbers[k], read.lengths[k]};
      const uint64_t group = member.number / PLM_GROUP_DOCUMENTS;
      if (k == 0 || group != out->groups[groups - 1]) {
        PLM_ASSERT(groups < scratch->group_capacity);
        out->groups[groups] = group;
        out->group_begin[groups++] = count;
      }
      count += document_pieces(of->plan, of->epoch, &member, scratch->pieces + count);
      PLM_ASSERT(count <= scratch->piece_capacity);
    }
  }
  out->group_begin[groups] = count;
  out->group_count = groups;
  out->real_tokens = 0;
  for (uint32_t i = 0; i < count; i++) {
    scratch->units[i] = units_of(of->plan, scratch->pieces[i].tokens);
    out->real_tokens += scratch->pieces[i].tokens;
  }
  out->document_count = count;
  PLM_ASSERT(groups <= count);
  return PLM_OK;
}

/* Sorts the pieces by chunk, and by window order within a chunk, into `order`; begin (chunks + 1)
 * says where each chunk begins there. */
static void sort_by_chunk(struct plm_window_scratch *scratch, uint32_t count, uint32_t chunks)
{
  uint32_t *begin = scratch->begin;
  memset(begin, 0, ((size_t)chunks + 1) * sizeof *begin);
  for (uint32_t i = 0; i < count; i++) {
    PLM_ASSERT(scratch->chunk_of[i] < chunks);
    begin[scratch->chunk_of[i] + 1]++;
  }
  for (uint32_t c = 0; c < chunks; c++) begin[c + 1] += begin[c];
  for (uint32_t i = 0; i < count; i++) scratch->order[begin[scratch->chunk_of[i]]++] = i;
  memmove(begin + 1, begin, chunks * sizeof *begin); /* each had been advanced to the chunk's end */
  begin[0] = 0;
  PLM_ASSERT(begin[chunks] == count);
}

/* Shuffles pieces and chunks. chunk_order, the packed chunk at each new place, reuses
 * scratch->next, which packing no longer needs. */
static void shuffle_window(const struct plm_plan *plan, uint64_t epoch, uint64_t window,
                           struct plm_window_scratch *scratch, uint32_t chunks)
{
  uint32_t *chunk_order = scratch->next;
  for (uint32_t c = 0; c < chunks; c++) chunk_order[c] = c;
  if (!plan->parameters.shuffle) return;
  const uint64_t seed = plan->parameters.seed, place = epoch << 32 | window;
  struct plm_draws draws = plm_draws_begin(seed, place, PLM_PURPOSE_DOCUMENTS);
  for (uint32_t c = 0; c < chunks; c++)
    plm_shuffle(&draws, scratch->order + scratch->begin[c],
                scratch->begin[c + 1] - scratch->begin[c]);
  draws = plm_draws_begin(seed, place, PLM_PURPOSE_CHUNKS);
  plm_shuffle(&draws, chunk_order, chunks);
}

static void window_emit(const struct plm_plan *plan, struct plm_window *out)
{
  const struct plm_window_scratch *scratch = out->scratch_;
  const uint32_t *chunk_order = scratch->next;
  uint32_t written = 0;
  for (uint32_t c = 0; c < out->chunks; c++) {
    const uint32_t packed = chunk_order[c];
    uint32_t start = 0;
    PLM_ASSERT(packed < out->chunks && scratch->begin[packed] < scratch->begin[packed + 1]);
    out->chunk_begin[c] = written;
    for (uint32_t k = scratch->begin[packed]; k < scratch->begin[packed + 1]; k++) {
      const uint32_t piece = scratch->order[k];
      out->documents[written] = scratch->pieces[piece];
      out->documents[written].start = start;
      out->places[piece] = (struct plm_window_place){.chunk = c, .document = written};
      start += scratch->units[piece] << plan->alignment_shift;
      written++;
    }
    PLM_ASSERT(start <= plan->parameters.max_length);
  }
  out->chunk_begin[out->chunks] = written;
  PLM_ASSERT(written == out->document_count);
}

plm_status plm_plan_window(const struct plm_plan *plan, uint64_t epoch, uint64_t window,
                           plm_plan_read *read, const void *context, struct plm_window *out,
                           struct plm_error *error)
{
  if (!plan->parameters.shuffle) epoch = 0;
  PLM_TRY(plm_plan_check_place(plan, epoch, window, 1, error));
  PLM_TRY(scratch_open(plan, out, error));
  struct plm_window_scratch *scratch = out->scratch_;
  const struct window_of of = {plan, epoch,
                               plm_plan_window_groups(plan, epoch, window, scratch->plan_groups),
                               read, context};
  out->epoch = epoch;
  out->window = window;
  PLM_TRY(window_gather(&of, out, error));
  if (plan->parameters.packing == PLM_PACKING_BEST_FIT)
    out->chunks = plm_pack_best_fit(&scratch->rooms, scratch->units, out->document_count,
                                    scratch->order, scratch->next, scratch->chunk_of);
  else
    out->chunks = plm_pack_next_fit(scratch->rooms.capacity, scratch->units, out->document_count,
                                    scratch->chunk_of);
  PLM_ASSERT(out->chunks <= out->document_count); /* none is empty */
  sort_by_chunk(scratch, out->document_count, out->chunks);
  shuffle_window(plan, epoch, window, scratch, out->chunks);
  window_emit(plan, out);
  return PLM_OK;
}
