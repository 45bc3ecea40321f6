/* The plan: from document lengths, parameters and a seed to the chunks of any window of any epoch.
 *
 * A window goes through four steps: gather (its groups' documents become pieces), pack (pieces to
 * chunks), shuffle (within chunks, then chunks), emit (starts and places). Counting chunks needs
 * the first two alone, and those over a histogram of sizes.
 */
#include "common/plan/plan.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/corpus/corpus.h"
#include "common/plan/packing.h"
#include "common/plan/shuffle.h"

enum { CACHED_EPOCHS = 2 };

/* The permutation of groups of one epoch. */
struct permutation {
  uint64_t epoch;
  bool filled;
  uint32_t *groups;
};

struct plm_plan {
  struct plm_plan_parameters parameters;
  const uint32_t *lengths;
  uint64_t documents;
  uint32_t groups;
  uint64_t windows;
  uint32_t alignment_shift; /* units = tokens rounded up >> shift */
  pthread_mutex_t *lock;    /* of permutations: a cache, refilled in turn */
  struct permutation permutations[CACHED_EPOCHS];
  int oldest;
};

/* What the packing of one window needs besides its result; kept with the result. */
struct plm_window_scratch {
  struct plm_rooms rooms;
  uint64_t *groups;
  uint32_t group_capacity;
  uint32_t piece_capacity; /* of everything below, and of the window's arrays */
  struct plm_chunk_document *pieces;
  uint32_t *units, *order, *next, *chunk_of, *begin;
};

/* ---- parameters -------------------------------------------------------------------------------*/

static bool power_of_two(uint64_t value)
{
  return value != 0 && (value & (value - 1)) == 0;
}

plm_status plm_plan_parameters_check(const struct plm_plan_parameters *p, struct plm_error *error)
{
  if (!power_of_two(p->max_length) || p->max_length < 2 || p->max_length > PLM_PLAN_MAX_LENGTH)
    return plm_error_set(error, PLM_CONFIG,
                         "data.max_length %u is not a power of two between 2 and %d", p->max_length,
                         PLM_PLAN_MAX_LENGTH);
  if (!power_of_two(p->alignment) || p->alignment > p->max_length)
    return plm_error_set(error, PLM_CONFIG,
                         "data.document_alignment %u is not a power of two up to max_length %u",
                         p->alignment, p->max_length);
  if (p->window_groups < 1 || p->window_groups > PLM_PLAN_MAX_WINDOW_GROUPS)
    return plm_error_set(error, PLM_CONFIG, "data.window_groups %u is not between 1 and %d",
                         p->window_groups, PLM_PLAN_MAX_WINDOW_GROUPS);
  if (p->packing != PLM_PACKING_BEST_FIT && p->packing != PLM_PACKING_NEXT_FIT)
    return plm_error_set(error, PLM_CONFIG, "unknown data.packing %d", (int)p->packing);
  if (p->truncate != PLM_TRUNCATE_HEAD && p->truncate != PLM_TRUNCATE_RANDOM_CROP &&
      p->truncate != PLM_TRUNCATE_SPLIT)
    return plm_error_set(error, PLM_CONFIG, "unknown data.truncate %d", (int)p->truncate);
  if (p->tokenizer != PLM_TOKENIZER_ESM && p->tokenizer != PLM_TOKENIZER_BYTE)
    return plm_error_set(error, PLM_CONFIG, "unknown data.tokenizer %d", (int)p->tokenizer);
  if (p->token_limit != 0 && p->shuffle)
    return plm_error_set(error, PLM_CONFIG, "a plan with a token limit is not shuffled");
  return PLM_OK;
}

struct plm_hash plm_plan_hash(const struct plm_plan_parameters *p)
{
  const uint64_t fields[] = {
      PLM_PLAN_VERSION, p->seed,     p->max_length, p->alignment, p->window_groups,
      p->packing,       p->truncate, p->tokenizer,  p->shuffle,   p->token_limit,
  };
  enum { FIELDS = sizeof fields / sizeof *fields };
  uint8_t bytes[FIELDS * 8]; /* little-endian, whatever the host */
  for (size_t i = 0; i < FIELDS; i++)
    for (size_t b = 0; b < 8; b++) bytes[i * 8 + b] = (uint8_t)(fields[i] >> (8 * b));
  return plm_hash_bytes(bytes, sizeof bytes);
}

/* ---- opening ----------------------------------------------------------------------------------*/

/* Documents 0, 1, 2 ... whose real tokens together stay within the limit. */
static uint64_t documents_within(const struct plm_plan_parameters *p, const uint32_t *lengths,
                                 uint64_t documents)
{
  uint64_t tokens = 0;
  if (p->token_limit == 0) return documents;
  for (uint64_t d = 0; d < documents; d++) {
    uint64_t own = (uint64_t)lengths[d] + 2;
    if (own > p->max_length && p->truncate != PLM_TRUNCATE_SPLIT) own = p->max_length;
    tokens += own;
    if (tokens > p->token_limit) return d;
  }
  return documents;
}

static plm_status permutations_open(struct plm_plan *plan, struct plm_error *error)
{
  plan->lock = malloc(sizeof *plan->lock);
  if (!plan->lock) return plm_error_set(error, PLM_NO_MEMORY, "no memory for a plan");
  pthread_mutex_init(plan->lock, NULL);
  for (int i = 0; i < CACHED_EPOCHS; i++) {
    plan->permutations[i].groups = malloc(plan->groups * sizeof(uint32_t));
    if (!plan->permutations[i].groups)
      return plm_error_set(error, PLM_NO_MEMORY, "no memory to permute %u groups", plan->groups);
  }
  return PLM_OK;
}

plm_status plm_plan_open(const struct plm_plan_parameters *parameters, const uint32_t *lengths,
                         uint64_t documents, struct plm_plan **plan, struct plm_error *error)
{
  *plan = NULL;
  PLM_TRY(plm_plan_parameters_check(parameters, error));
  if (documents == 0) return plm_error_set(error, PLM_NOT_FOUND, "the split has no documents");
  const uint64_t taken = documents_within(parameters, lengths, documents);
  if (taken == 0)
    return plm_error_set(error, PLM_CONFIG,
                         "a limit of %llu tokens does not admit the first document (%u residues)",
                         (unsigned long long)parameters->token_limit, lengths[0]);
  const uint64_t groups = (taken - 1) / PLM_GROUP_DOCUMENTS + 1;
  if (groups >= UINT32_MAX)
    return plm_error_set(error, PLM_LIMIT, "%llu documents are more than a plan can hold",
                         (unsigned long long)documents);

  struct plm_plan *made = calloc(1, sizeof *made);
  if (!made) return plm_error_set(error, PLM_NO_MEMORY, "no memory for a plan");
  made->parameters = *parameters;
  made->lengths = lengths;
  made->documents = taken;
  made->groups = (uint32_t)groups;
  made->windows = (groups - 1) / parameters->window_groups + 1;
  made->alignment_shift = (uint32_t)__builtin_ctz(parameters->alignment);
  const plm_status status = parameters->shuffle ? permutations_open(made, error) : PLM_OK;
  if (status != PLM_OK) {
    plm_plan_close(made);
    return status;
  }
  *plan = made;
  return PLM_OK;
}

void plm_plan_close(struct plm_plan *plan)
{
  if (!plan) return;
  for (int i = 0; i < CACHED_EPOCHS; i++) free(plan->permutations[i].groups);
  if (plan->lock) pthread_mutex_destroy(plan->lock);
  free(plan->lock);
  free(plan);
}

const struct plm_plan_parameters *plm_plan_parameters(const struct plm_plan *plan)
{
  return &plan->parameters;
}

const uint32_t *plm_plan_lengths(const struct plm_plan *plan)
{
  return plan->lengths;
}

uint64_t plm_plan_documents(const struct plm_plan *plan)
{
  return plan->documents;
}

uint64_t plm_plan_windows(const struct plm_plan *plan)
{
  return plan->windows;
}

/* ---- groups -----------------------------------------------------------------------------------*/

/* The epoch's permutation; call with the lock held. */
static const uint32_t *permutation_of(struct plm_plan *plan, uint64_t epoch)
{
  for (int i = 0; i < CACHED_EPOCHS; i++)
    if (plan->permutations[i].filled && plan->permutations[i].epoch == epoch)
      return plan->permutations[i].groups;
  struct permutation *slot = &plan->permutations[plan->oldest];
  plan->oldest = (plan->oldest + 1) % CACHED_EPOCHS;
  for (uint32_t g = 0; g < plan->groups; g++) slot->groups[g] = g;
  struct plm_draws draws = plm_draws_begin(plan->parameters.seed, epoch, PLM_PURPOSE_GROUPS);
  plm_shuffle(&draws, slot->groups, plan->groups);
  slot->epoch = epoch;
  slot->filled = true;
  return slot->groups;
}

uint32_t plm_plan_window_groups(const struct plm_plan *plan, uint64_t epoch, uint64_t window,
                                uint64_t *out)
{
  PLM_ASSERT(window < plan->windows);
  const uint64_t first = window * plan->parameters.window_groups;
  uint32_t count = plan->parameters.window_groups;
  if (count > plan->groups - first) count = (uint32_t)(plan->groups - first);
  if (!plan->parameters.shuffle) {
    for (uint32_t i = 0; i < count; i++) out[i] = first + i;
    return count;
  }
  pthread_mutex_lock(plan->lock);
  /* the cache is the one thing in a plan that changes */
  const uint32_t *permuted = permutation_of((struct plm_plan *)plan, epoch);
  for (uint32_t i = 0; i < count; i++) out[i] = permuted[first + i];
  pthread_mutex_unlock(plan->lock);
  return count;
}

static void group_documents(const struct plm_plan *plan, uint64_t group, uint64_t *begin,
                            uint64_t *end)
{
  *begin = group * PLM_GROUP_DOCUMENTS;
  *end = *begin + PLM_GROUP_DOCUMENTS;
  if (*end > plan->documents) *end = plan->documents;
}

/* ---- gathering --------------------------------------------------------------------------------*/

static uint64_t document_tokens(const struct plm_plan *plan, uint64_t document)
{
  return (uint64_t)plan->lengths[document] + 2; /* <cls> and <eos> */
}

/* Pieces that the documents of the groups make. */
static uint64_t count_pieces(const struct plm_plan *plan, const uint64_t *groups, uint32_t count)
{
  const uint64_t max_length = plan->parameters.max_length;
  uint64_t pieces = 0, begin, end;
  for (uint32_t i = 0; i < count; i++) {
    group_documents(plan, groups[i], &begin, &end);
    pieces += end - begin;
    if (plan->parameters.truncate != PLM_TRUNCATE_SPLIT) continue;
    for (uint64_t d = begin; d < end; d++) pieces += (document_tokens(plan, d) - 1) / max_length;
  }
  return pieces;
}

static struct plm_chunk_document piece_at(const struct plm_plan *plan, uint64_t document,
                                          uint64_t begin, uint64_t tokens)
{
  return (struct plm_chunk_document){.number = document,
                                     .tokens = (uint32_t)tokens,
                                     .offset = (uint32_t)(begin == 0 ? 0 : begin - 1),
                                     .residues = plan->lengths[document]};
}

/* Where a crop of max_length tokens begins: 0 or 2 .. tokens - max_length. */
static uint64_t crop_begin(const struct plm_plan *plan, uint64_t epoch, uint64_t document,
                           uint64_t tokens)
{
  const uint64_t draw = plm_draw_below(plan->parameters.seed, (uint32_t)epoch, document,
                                       PLM_PURPOSE_CROPS, tokens - plan->parameters.max_length);
  return draw == 0 ? 0 : draw + 1;
}

/* Writes the pieces of one document; returns their count. */
static uint32_t document_pieces(const struct plm_plan *plan, uint64_t epoch, uint64_t document,
                                struct plm_chunk_document *out)
{
  const uint64_t max_length = plan->parameters.max_length;
  const uint64_t tokens = document_tokens(plan, document);
  if (tokens <= max_length) {
    out[0] = piece_at(plan, document, 0, tokens);
    return 1;
  }
  switch (plan->parameters.truncate) {
  case PLM_TRUNCATE_HEAD: out[0] = piece_at(plan, document, 0, max_length); return 1;
  case PLM_TRUNCATE_RANDOM_CROP:
    out[0] = piece_at(plan, document, crop_begin(plan, epoch, document, tokens), max_length);
    return 1;
  case PLM_TRUNCATE_SPLIT: break;
  }
  uint32_t count = 0;
  for (uint64_t begin = 0; begin < tokens; begin += max_length) {
    const uint64_t left = tokens - begin;
    out[count++] = piece_at(plan, document, begin, left < max_length ? left : max_length);
  }
  return count;
}

static uint32_t units_of(const struct plm_plan *plan, uint64_t tokens)
{
  return (uint32_t)((tokens + plan->parameters.alignment - 1) >> plan->alignment_shift);
}

/* ---- memory -----------------------------------------------------------------------------------*/

static plm_status scratch_open(const struct plm_plan *plan, struct plm_window *window,
                               struct plm_error *error)
{
  const struct plm_plan_parameters *p = &plan->parameters;
  const uint32_t capacity = p->max_length >> plan->alignment_shift;
  if (!window->scratch_) window->scratch_ = calloc(1, sizeof *window->scratch_);
  struct plm_window_scratch *scratch = window->scratch_;
  if (!scratch) return plm_error_set(error, PLM_NO_MEMORY, "no memory for a window");
  if (scratch->rooms.capacity != capacity) {
    plm_rooms_deinit(&scratch->rooms);
    PLM_TRY(plm_rooms_open(capacity, &scratch->rooms, error));
  }
  if (scratch->group_capacity < p->window_groups) {
    free(scratch->groups);
    scratch->group_capacity = 0;
    scratch->groups = malloc(p->window_groups * sizeof *scratch->groups);
    if (!scratch->groups)
      return plm_error_set(error, PLM_NO_MEMORY, "no memory for a window of %u groups",
                           p->window_groups);
    scratch->group_capacity = p->window_groups;
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

static plm_status reserve_pieces(struct plm_window *window, uint64_t pieces,
                                 struct plm_error *error)
{
  struct plm_window_scratch *scratch = window->scratch_;
  if (pieces <= scratch->piece_capacity) return PLM_OK;
  if (pieces >= INT32_MAX)
    return plm_error_set(error, PLM_LIMIT, "a window of %llu pieces is more than can be packed",
                         (unsigned long long)pieces);
  free_pieces(window);
  const size_t count = pieces + pieces / 8; /* the next window may be a little larger */
  scratch->pieces = malloc(count * sizeof *scratch->pieces);
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
    free(window->scratch_->groups);
    free(window->scratch_);
  }
  *window = (struct plm_window){0};
}

/* ---- a window ---------------------------------------------------------------------------------*/

static void gather(const struct plm_plan *plan, uint64_t epoch, uint32_t group_count,
                   struct plm_window *out)
{
  struct plm_window_scratch *scratch = out->scratch_;
  uint32_t count = 0;
  uint64_t begin, end;
  for (uint32_t i = 0; i < group_count; i++) {
    group_documents(plan, scratch->groups[i], &begin, &end);
    for (uint64_t d = begin; d < end; d++)
      count += document_pieces(plan, epoch, d, scratch->pieces + count);
  }
  out->real_tokens = 0;
  for (uint32_t i = 0; i < count; i++) {
    scratch->units[i] = units_of(plan, scratch->pieces[i].tokens);
    out->real_tokens += scratch->pieces[i].tokens;
  }
  out->document_count = count;
}

/* order: pieces chunk by chunk, in a chunk by window order; begin: (chunks + 1). */
static void sort_by_chunk(struct plm_window_scratch *scratch, uint32_t count, uint32_t chunks)
{
  uint32_t *begin = scratch->begin;
  memset(begin, 0, ((size_t)chunks + 1) * sizeof *begin);
  for (uint32_t i = 0; i < count; i++) begin[scratch->chunk_of[i] + 1]++;
  for (uint32_t c = 0; c < chunks; c++) begin[c + 1] += begin[c];
  for (uint32_t i = 0; i < count; i++) scratch->order[begin[scratch->chunk_of[i]]++] = i;
  memmove(begin + 1, begin, chunks * sizeof *begin); /* each had moved on to its end */
  begin[0] = 0;
}

/* chunk_order (in scratch->next, free by now): new place -> chunk as packed. */
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

static void emit(const struct plm_plan *plan, struct plm_window *out)
{
  const struct plm_window_scratch *scratch = out->scratch_;
  const uint32_t *chunk_order = scratch->next;
  uint32_t written = 0;
  for (uint32_t c = 0; c < out->chunks; c++) {
    const uint32_t packed = chunk_order[c];
    uint32_t start = 0;
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

static plm_status check_place(const struct plm_plan *plan, uint64_t epoch, uint64_t first,
                              uint64_t count, struct plm_error *error)
{
  if (epoch > UINT32_MAX || plan->windows > UINT32_MAX) /* counters of the draws hold 32 bits */
    return plm_error_set(error, PLM_LIMIT, "epoch %llu of %llu windows is beyond what is planned",
                         (unsigned long long)epoch, (unsigned long long)plan->windows);
  if (count > plan->windows || first > plan->windows - count)
    return plm_error_set(error, PLM_NOT_FOUND, "window %llu of an epoch of %llu",
                         (unsigned long long)(first + count - 1),
                         (unsigned long long)plan->windows);
  return PLM_OK;
}

plm_status plm_plan_window(const struct plm_plan *plan, uint64_t epoch, uint64_t window,
                           struct plm_window *out, struct plm_error *error)
{
  if (!plan->parameters.shuffle) epoch = 0;
  PLM_TRY(check_place(plan, epoch, window, 1, error));
  PLM_TRY(scratch_open(plan, out, error));
  struct plm_window_scratch *scratch = out->scratch_;
  const uint32_t groups = plm_plan_window_groups(plan, epoch, window, scratch->groups);
  PLM_TRY(reserve_pieces(out, count_pieces(plan, scratch->groups, groups), error));
  out->epoch = epoch;
  out->window = window;
  gather(plan, epoch, groups, out);
  if (plan->parameters.packing == PLM_PACKING_BEST_FIT)
    out->chunks = plm_pack_best_fit(&scratch->rooms, scratch->units, out->document_count,
                                    scratch->order, scratch->next, scratch->chunk_of);
  else
    out->chunks = plm_pack_next_fit(scratch->rooms.capacity, scratch->units, out->document_count,
                                    scratch->chunk_of);
  sort_by_chunk(scratch, out->document_count, out->chunks);
  shuffle_window(plan, epoch, window, scratch, out->chunks);
  emit(plan, out);
  return PLM_OK;
}

/* ---- counting ---------------------------------------------------------------------------------*/

/* Sizes of a document's pieces into the histogram. */
static void count_sizes(const struct plm_plan *plan, uint64_t begin, uint64_t end,
                        uint32_t *histogram)
{
  const uint64_t max_length = plan->parameters.max_length;
  const bool split = plan->parameters.truncate == PLM_TRUNCATE_SPLIT;
  for (uint64_t d = begin; d < end; d++) {
    uint64_t tokens = document_tokens(plan, d);
    if (tokens > max_length) {
      if (split) histogram[units_of(plan, max_length)] += (uint32_t)(tokens / max_length);
      tokens = split ? tokens % max_length : max_length;
      if (tokens == 0) continue;
    }
    histogram[units_of(plan, tokens)]++;
  }
}

static uint64_t count_best_fit(const struct plm_plan *plan, const uint64_t *groups, uint32_t count,
                               struct plm_rooms *rooms, uint32_t *histogram)
{
  uint64_t begin, end;
  memset(histogram, 0, ((size_t)rooms->capacity + 1) * sizeof *histogram);
  for (uint32_t i = 0; i < count; i++) {
    group_documents(plan, groups[i], &begin, &end);
    count_sizes(plan, begin, end, histogram);
  }
  return plm_pack_best_fit_count(rooms, histogram);
}

static uint64_t count_next_fit(const struct plm_plan *plan, const uint64_t *groups, uint32_t count,
                               uint32_t capacity)
{
  const uint64_t max_length = plan->parameters.max_length;
  const bool split = plan->parameters.truncate == PLM_TRUNCATE_SPLIT;
  uint64_t chunks = 0, begin, end;
  uint32_t room = 0;
  for (uint32_t i = 0; i < count; i++) {
    group_documents(plan, groups[i], &begin, &end);
    for (uint64_t d = begin; d < end; d++) {
      uint64_t tokens = document_tokens(plan, d);
      if (tokens > max_length) { /* whole chunks, which leave no room */
        chunks += split ? tokens / max_length : 1;
        tokens = split ? tokens % max_length : 0;
        room = 0;
        if (tokens == 0) continue;
      }
      const uint32_t units = units_of(plan, tokens);
      if (units > room) {
        chunks++;
        room = capacity;
      }
      room -= units;
    }
  }
  return chunks;
}

plm_status plm_plan_window_chunks(const struct plm_plan *plan, uint64_t epoch, uint64_t first,
                                  uint64_t count, uint32_t *counts, struct plm_error *error)
{
  const uint32_t capacity = plan->parameters.max_length >> plan->alignment_shift;
  struct plm_rooms rooms = {0};
  plm_status status = PLM_OK;
  if (!plan->parameters.shuffle) epoch = 0;
  PLM_TRY(check_place(plan, epoch, first, count, error));
  uint64_t *groups = malloc(plan->parameters.window_groups * sizeof *groups);
  uint32_t *histogram = malloc(((size_t)capacity + 1) * sizeof *histogram);
  if (!groups || !histogram) {
    status = plm_error_set(error, PLM_NO_MEMORY, "no memory to count chunks");
    goto done;
  }
  PLM_TRY_GOTO(status, plm_rooms_open(capacity, &rooms, error), done);
  for (uint64_t w = 0; w < count; w++) {
    const uint32_t group_count = plm_plan_window_groups(plan, epoch, first + w, groups);
    const uint64_t chunks = plan->parameters.packing == PLM_PACKING_BEST_FIT
                                ? count_best_fit(plan, groups, group_count, &rooms, histogram)
                                : count_next_fit(plan, groups, group_count, capacity);
    if (chunks >= INT32_MAX) {
      status = plm_error_set(error, PLM_LIMIT, "window %llu has too many chunks",
                             (unsigned long long)(first + w));
      goto done;
    }
    counts[w] = (uint32_t)chunks;
  }
done:
  plm_rooms_deinit(&rooms);
  free(histogram);
  free(groups);
  return status;
}
