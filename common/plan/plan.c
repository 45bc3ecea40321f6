/* The plan itself: its parameters and their hash, what it covers, and which groups of documents
 * each window of an epoch holds. Packing a window is in window.c, counting its chunks in
 * chunk_count.c. */
#include "common/plan/plan.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/plan/plan_internal.h"
#include "common/plan/shuffle.h"

/* ---- parameters -------------------------------------------------------------------------------*/

const char *const plm_packing_names[] = {"best_fit", "next_fit", NULL};
const char *const plm_truncate_names[] = {"head", "random_crop", "split", NULL};
const char *const plm_sampling_names[] = {"documents", "clusters", NULL};

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
  if (p->sampling != PLM_SAMPLING_DOCUMENTS && p->sampling != PLM_SAMPLING_CLUSTERS)
    return plm_error_set(error, PLM_CONFIG, "unknown data.sampling %d", (int)p->sampling);
  if (p->sampling == PLM_SAMPLING_CLUSTERS && !p->shuffle)
    return plm_error_set(error, PLM_CONFIG, "a plan that samples clusters must be shuffled");
  if (p->token_limit != 0 && p->shuffle)
    return plm_error_set(error, PLM_CONFIG, "a plan with a token limit cannot be shuffled");
  return PLM_OK;
}

struct plm_hash plm_plan_hash(const struct plm_plan_parameters *p)
{
  const uint64_t fields[] =
      {
          PLM_PLAN_VERSION, p->seed,        p->max_length, p->alignment,
          p->window_groups, p->packing,     p->truncate,   p->tokenizer,
          p->shuffle,       p->token_limit, p->sampling, /* from here on hashed only if it, or what
                                                            follows, is not 0 */
          p->source.low,    p->source.high,
      };
  enum { FIELDS = sizeof fields / sizeof *fields };
  const bool of_mixture = plm_hash_known(p->source);
  const size_t count = of_mixture                              ? FIELDS
                       : p->sampling != PLM_SAMPLING_DOCUMENTS ? FIELDS - 2
                                                               : FIELDS - 3;
  uint8_t bytes[FIELDS * 8]; /* little-endian, whatever the host */
  for (size_t i = 0; i < count; i++)
    for (size_t b = 0; b < 8; b++) bytes[i * 8 + b] = (uint8_t)(fields[i] >> (8 * b));
  return plm_hash_bytes(bytes, count * 8);
}

/* ---- opening ----------------------------------------------------------------------------------*/

uint32_t plm_plan_within(const struct plm_plan_parameters *p, const uint32_t *lengths,
                         uint32_t count, uint64_t *tokens)
{
  for (uint32_t d = 0; d < count; d++) {
    uint64_t own = (uint64_t)lengths[d] + 2;
    if (own > p->max_length && p->truncate != PLM_TRUNCATE_SPLIT) own = p->max_length;
    if (own > p->token_limit - *tokens) return d;
    *tokens += own;
  }
  return count;
}

static plm_status permutations_open(struct plm_plan *plan, struct plm_error *error)
{
  plan->lock = plm_alloc(sizeof *plan->lock);
  pthread_mutex_init(plan->lock, NULL);
  for (int i = 0; i < CACHED_EPOCHS; i++) {
    plan->permutations[i].groups = malloc(plan->groups * sizeof(uint32_t));
    if (!plan->permutations[i].groups)
      return plm_error_set(error, PLM_NO_MEMORY, "no memory to permute %u groups", plan->groups);
  }
  return PLM_OK;
}

static plm_status no_clusters(const char *what, struct plm_error *error)
{
  plm_error_set(error, PLM_CONFIG, "data.sampling: clusters, but %s keeps no clusters", what);
  return plm_error_hint(error, "ingest the sources again with --clusters FILE.tsv");
}

plm_status plm_plan_check_corpus(const struct plm_plan_parameters *parameters,
                                 const struct plm_corpus_info *info, const char *path,
                                 struct plm_error *error)
{
  if (parameters->sampling == PLM_SAMPLING_DOCUMENTS || plm_corpus_keeps_clusters(info))
    return PLM_OK;
  return no_clusters(path, error);
}

/* A plan over `taken` documents or clusters. */
static plm_status open_counts(const struct plm_plan_parameters *parameters, uint64_t taken,
                              struct plm_plan **plan, struct plm_error *error)
{
  const uint64_t groups = (taken - 1) / PLM_GROUP_DOCUMENTS + 1;
  if (groups >= UINT32_MAX)
    return plm_error_set(error, PLM_LIMIT, "%llu documents are more than a plan can hold",
                         (unsigned long long)taken);
  struct plm_plan *made = plm_alloc_zeroed(1, sizeof *made);
  made->parameters = *parameters;
  made->documents = taken;
  made->groups = (uint32_t)groups;
  made->windows = (groups - 1) / parameters->window_groups + 1;
  made->alignment_shift = (uint32_t)__builtin_ctz(parameters->alignment);
  PLM_ASSERT((made->windows - 1) * parameters->window_groups < groups &&
             groups <= made->windows * parameters->window_groups);
  const plm_status status = parameters->shuffle ? permutations_open(made, error) : PLM_OK;
  if (status == PLM_OK)
    *plan = made;
  else
    plm_plan_close(made);
  return status;
}

plm_status plm_plan_open(const struct plm_plan_parameters *parameters, uint64_t documents,
                         uint64_t cluster_count, struct plm_plan **plan, struct plm_error *error)
{
  const bool clusters = parameters->sampling == PLM_SAMPLING_CLUSTERS;
  *plan = NULL;
  PLM_TRY(plm_plan_parameters_check(parameters, error));
  if (documents == 0) return plm_error_set(error, PLM_NOT_FOUND, "the split has no documents");
  if (clusters && cluster_count == 0) return no_clusters("the split", error);
  return open_counts(parameters, clusters ? cluster_count : documents, plan, error);
}

/* The number of documents of a split, from the first, within the token limit. The lengths are
 * proven here, because no window may have the first document beyond the limit. */
static plm_status corpus_within(const struct plm_plan_parameters *p, struct plm_corpus *corpus,
                                enum plm_split split, uint64_t *within, struct plm_error *error)
{
  const uint64_t documents = plm_corpus_info(corpus)->splits[split].documents;
  struct plm_corpus_cursor *cursor;
  uint64_t tokens = 0;
  uint32_t count = 0, more = 0;
  *within = documents;
  if (p->token_limit == 0 || documents == 0) return PLM_OK;
  PLM_TRY(plm_corpus_cursor_open(corpus, &cursor, error));
  plm_status status = PLM_OK;
  for (*within = 0; *within < documents && more == count; *within += more) {
    const uint64_t group = *within / PLM_GROUP_DOCUMENTS;
    const uint32_t *lengths = NULL;
    status = plm_corpus_proven_lengths(cursor, split, group, &lengths, error);
    if (status != PLM_OK) break;
    count = plm_corpus_group_documents(documents, group);
    more = plm_plan_within(p, lengths, count, &tokens);
  }
  plm_corpus_cursor_close(cursor);
  if (status == PLM_OK && *within == 0)
    status = plm_error_set(error, PLM_CONFIG,
                           "a limit of %llu tokens is too small for the first document",
                           (unsigned long long)p->token_limit);
  return status;
}

plm_status plm_plan_open_corpus(const struct plm_plan_parameters *parameters,
                                struct plm_corpus *corpus, enum plm_split split,
                                struct plm_plan **plan, struct plm_error *error)
{
  const struct plm_corpus_info *info = plm_corpus_info(corpus);
  uint64_t within;
  *plan = NULL;
  PLM_TRY(plm_plan_check_corpus(parameters, info, plm_corpus_path(corpus), error));
  PLM_TRY(plm_plan_parameters_check(parameters, error));
  PLM_TRY(corpus_within(parameters, corpus, split, &within, error));
  return plm_plan_open(parameters, within, info->splits[split].clusters, plan, error);
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

uint64_t plm_plan_documents(const struct plm_plan *plan)
{
  return plan->documents;
}

uint64_t plm_plan_windows(const struct plm_plan *plan)
{
  return plan->windows;
}

uint32_t plm_plan_group_count(const struct plm_plan *plan, uint64_t window)
{
  if (window >= plan->windows) return 0;
  const uint64_t left = plan->groups - window * plan->parameters.window_groups;
  return left < plan->parameters.window_groups ? (uint32_t)left : plan->parameters.window_groups;
}

/* ---- groups -----------------------------------------------------------------------------------*/

/* Whether the items are the numbers from 0 to count - 1 in some order: if not, their sum or the sum
 * of their squares differs. Both are modulo 2^64. */
static bool is_permutation(const uint32_t *items, uint32_t count)
{
  uint64_t sum = 0, squares = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (items[i] >= count) return false;
    sum += items[i] - (uint64_t)i;
    squares += (uint64_t)items[i] * items[i] - (uint64_t)i * i;
  }
  return sum == 0 && squares == 0;
}

/* The permutation of an epoch. The caller holds the lock. */
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
  PLM_ASSERT(is_permutation(slot->groups, plan->groups));
  slot->epoch = epoch;
  slot->filled = true;
  return slot->groups;
}

uint32_t plm_plan_window_groups(const struct plm_plan *plan, uint64_t epoch, uint64_t window,
                                uint64_t *out)
{
  const uint64_t first = window * plan->parameters.window_groups;
  const uint32_t count = plm_plan_group_count(plan, window);
  PLM_ASSERT(count > 0 && first + count <= plan->groups);
  if (!plan->parameters.shuffle) {
    for (uint32_t i = 0; i < count; i++) out[i] = first + i;
    return count;
  }
  pthread_mutex_lock(plan->lock);
  /* The cache, which the lock protects, is the only part of a plan that changes. */
  const uint32_t *permuted = permutation_of((struct plm_plan *)plan, epoch);
  for (uint32_t i = 0; i < count; i++) {
    out[i] = permuted[first + i];
    PLM_ASSERT(out[i] < plan->groups);
  }
  pthread_mutex_unlock(plan->lock);
  return count;
}

void plm_plan_draw_members(const struct plm_plan *plan, uint64_t epoch, uint64_t group,
                           const uint32_t *sizes, uint32_t count, uint64_t begin, uint64_t *numbers)
{
  const uint64_t first = group * PLM_GROUP_DOCUMENTS;
  for (uint32_t i = 0; i < count; i++) {
    numbers[i] = begin;
    if (sizes[i] > 1) /* a cluster of one has no choice */
      numbers[i] += plm_draw_below(plan->parameters.seed, (uint32_t)epoch, first + i,
                                   PLM_PURPOSE_MEMBERS, sizes[i]);
    begin += sizes[i];
  }
}

/* Reads the lengths of documents whose numbers are given, ascending. */
static plm_status read_lengths(const struct plm_plan_corpus *from, struct plm_plan_group *group,
                               struct plm_error *error)
{
  const uint32_t *lengths = NULL;
  uint64_t held = UINT64_MAX;
  for (uint32_t i = 0; i < group->count; i++) {
    const uint64_t of = group->numbers[i] / PLM_GROUP_DOCUMENTS;
    if (of != held)
      PLM_TRY((from->prove ? plm_corpus_proven_lengths : plm_corpus_group_lengths)(
          from->cursor, from->split, of, &lengths, error));
    PLM_ASSERT(lengths != NULL);
    held = of;
    group->lengths[i] = lengths[group->numbers[i] % PLM_GROUP_DOCUMENTS];
  }
  return PLM_OK;
}

plm_status plm_plan_read_corpus(const void *plan_corpus, uint64_t epoch, uint32_t index,
                                uint64_t group, struct plm_plan_group *out, struct plm_error *error)
{
  const struct plm_plan_corpus *from = plan_corpus;
  const struct plm_plan *plan = from->plan;
  const uint64_t first = group * PLM_GROUP_DOCUMENTS;
  (void)index;
  PLM_ASSERT(group < plan->groups && first < plan->documents);
  out->count = plm_corpus_group_documents(plan->documents, group);
  if (plan->parameters.sampling == PLM_SAMPLING_CLUSTERS) {
    const uint32_t *sizes = NULL;
    uint64_t begin = 0;
    PLM_TRY(plm_corpus_cluster_sizes(from->cursor, from->split, group, &sizes, &begin, error));
    plm_plan_draw_members(plan, epoch, group, sizes, out->count, begin, out->numbers);
  } else {
    for (uint32_t i = 0; i < out->count; i++) out->numbers[i] = first + i;
  }
  return read_lengths(from, out, error);
}

/* ---- limits ---------------------------------------------------------------------------------*/

plm_status plm_plan_check_place(const struct plm_plan *plan, uint64_t epoch, uint64_t first,
                                uint64_t count, struct plm_error *error)
{
  PLM_ASSERT(plan->windows <= plan->groups); /* which are fewer than 2^32 */
  if (epoch > UINT32_MAX)                    /* the counters of the random draws have 32 bits */
    return plm_error_set(error, PLM_LIMIT, "epoch %llu: a plan numbers at most 2^32 epochs",
                         (unsigned long long)epoch);
  if (count > plan->windows || first > plan->windows - count)
    return plm_error_set(error, PLM_NOT_FOUND, "window %llu does not exist: an epoch has %llu",
                         (unsigned long long)(first + count - 1),
                         (unsigned long long)plan->windows);
  return PLM_OK;
}
