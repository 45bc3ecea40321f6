/* Runs the model on copies of the wild type that have masks or substitutions. */
#include "evaluator/score/variant_scorer.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log/progress.h"
#include "common/inference/finite_output.h"
#include "common/inference/pseudo_likelihood.h"
#include "common/run/stop.h"
#include "evaluator/score/score_batch.h"

const char *const plm_score_masking_names[] = {"additive", "joint", "none", NULL};

struct plm_variant_scorer {
  struct plm_inference *inference;
  const struct plm_wild_type *wild_type;
  bool causal, joint, unmasked;
  uint32_t T, length; /* tokens of the wild type, and of a window */
  uint32_t V;
  int32_t *wild;   /* (T) */
  int32_t *window; /* (length) that is being made */
  uint8_t *wanted; /* (residues) 1: a pass is to ask for it, 2: its logits are in the table */
  float *table; /* (residues, V) logits of positions that are masked by themselves, or not at all */
  struct plm_score_batch *batch;
  /* of one call of plm_variant_scorer_run */
  const struct plm_variant *variants;
  size_t *order;
  double *scores;
  struct plm_progress progress;
  uint64_t work, work_done, tokens_done, passes;
};

/* ---- windows ---- */

/* The first token of the window around tokens a <= b. */
static uint32_t window_begin(const struct plm_variant_scorer *scorer, uint32_t a, uint32_t b)
{
  const uint32_t centre = (a + b + 1) / 2, half = scorer->length / 2;
  const uint32_t begin = centre > half ? centre - half : 0, last = scorer->T - scorer->length;
  return begin < last ? begin : last;
}

static uint32_t first_token(const struct plm_variant *variant)
{
  return variant->items[0].place + 1;
}

static uint32_t last_token(const struct plm_variant *variant)
{
  return variant->items[variant->count - 1].place + 1;
}

static uint32_t begin_of(const struct plm_variant_scorer *scorer, const struct plm_variant *variant)
{
  return window_begin(scorer, first_token(variant), last_token(variant));
}

/* ---- opening ---- */

static plm_status scorer_allocate_buffers(struct plm_variant_scorer *scorer,
                                          struct plm_error *error)
{
  const uint32_t length = scorer->wild_type->length;
  PLM_TRY(plm_score_batch_open(scorer->inference, scorer->length, &scorer->batch, error));
  scorer->wild = calloc(scorer->T, sizeof *scorer->wild);
  scorer->window = calloc(scorer->length, sizeof *scorer->window);
  scorer->wanted = calloc(length, sizeof *scorer->wanted);
  scorer->table = scorer->causal ? NULL : calloc((size_t)length * scorer->V, sizeof(float));
  if (scorer->wild == NULL || scorer->window == NULL || scorer->wanted == NULL ||
      (scorer->table == NULL && !scorer->causal))
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for a wild type of %u residues",
                         length);
  return PLM_OK;
}

plm_status plm_variant_scorer_open(struct plm_inference *inference,
                                   const struct plm_wild_type *wild_type,
                                   enum plm_score_masking masking,
                                   struct plm_variant_scorer **scorer, struct plm_error *error)
{
  struct plm_variant_scorer *opened = plm_alloc_zeroed(1, sizeof *opened);
  const struct plm_tokenizer *tokenizer = inference->tokenizer;
  opened->inference = inference;
  opened->wild_type = wild_type;
  opened->causal = inference->objective == PLM_OBJECTIVE_CAUSAL;
  opened->joint = masking == PLM_SCORE_JOINT;
  opened->unmasked = masking == PLM_SCORE_UNMASKED;
  opened->T = wild_type->length + 2;
  opened->V = inference->config.vocab_size;
  const uint32_t most = plm_inference_most(inference);
  opened->length = opened->T < most ? opened->T : most;
  plm_status status = plm_inference_make_room(inference, opened->length, error);
  if (status == PLM_OK) status = scorer_allocate_buffers(opened, error);
  if (status != PLM_OK) {
    plm_variant_scorer_close(opened);
    return status;
  }
  opened->wild[0] = tokenizer->cls;
  for (uint32_t i = 0; i < wild_type->length; i++)
    opened->wild[i + 1] = plm_tokenizer_encode(tokenizer, wild_type->residues[i]);
  opened->wild[opened->T - 1] = tokenizer->eos;
  plm_progress_begin(&opened->progress, "score");
  opened->progress.rate_unit = "tokens";
  *scorer = opened;
  return PLM_OK;
}

void plm_variant_scorer_close(struct plm_variant_scorer *scorer)
{
  if (scorer == NULL) return;
  plm_progress_clear(&scorer->progress);
  plm_score_batch_close(scorer->batch);
  free(scorer->wild);
  free(scorer->window);
  free(scorer->wanted);
  free(scorer->table);
  free(scorer);
}

/* Whether a variant's score comes from the table. */
static bool by_table(const struct plm_variant_scorer *scorer, const struct plm_variant *variant)
{
  return !scorer->causal && (!scorer->joint || variant->count == 1);
}

/* Whether one window has all substituted positions. A causal model has to see at least one token
 * before the first one. */
static bool fits(const struct plm_variant_scorer *scorer, const struct plm_variant *variant)
{
  const uint32_t begin = begin_of(scorer, variant);
  return first_token(variant) >= begin + scorer->causal &&
         last_token(variant) < begin + scorer->length;
}

plm_status plm_variant_scorer_expect(struct plm_variant_scorer *scorer,
                                     const struct plm_variant *variant, struct plm_error *error)
{
  if (variant->count == 0) return PLM_OK;
  if (by_table(scorer, variant)) {
    for (uint32_t i = 0; i < variant->count; i++) {
      uint8_t *wanted = &scorer->wanted[variant->items[i].place];
      scorer->work += *wanted == 0;
      if (*wanted == 0) *wanted = 1;
    }
    return PLM_OK;
  }
  if (!fits(scorer, variant)) {
    const uint32_t a = first_token(variant), b = last_token(variant);
    const int64_t first = scorer->wild_type->first;
    plm_error_set(
        error, PLM_LIMIT,
        "positions %lld and %lld are too far apart for the model's max_length of %u tokens",
        (long long)(first + a - 1), (long long)(first + b - 1), scorer->length);
    return plm_error_hint(
        error, scorer->causal ? "leave the variant out, or use a model with a larger max_length"
                              : "--masking additive masks one position at a time");
  }
  scorer->work++;
  return PLM_OK;
}

bool plm_variant_scorer_expects(const struct plm_variant_scorer *scorer,
                                const struct plm_variant *variant)
{
  if (variant->count == 0) return true;
  if (!by_table(scorer, variant)) return fits(scorer, variant);
  for (uint32_t i = 0; i < variant->count; i++)
    if (scorer->wanted[variant->items[i].place] == 0) return false;
  return true;
}

/* ---- batches ---- */

static double preference(const struct plm_variant_scorer *scorer, const float *logits,
                         const struct plm_substitution *item)
{
  const struct plm_tokenizer *tokenizer = scorer->inference->tokenizer;
  return (double)logits[plm_tokenizer_encode(tokenizer, item->mutant)] -
         (double)logits[plm_tokenizer_encode(tokenizer, item->wild_type)];
}

static void finish_place(struct plm_variant_scorer *scorer, const struct plm_score_job *job)
{
  for (uint32_t k = 0; k < job->row_count; k++) {
    const size_t place = job->begin + job->places[k] - 1;
    memcpy(scorer->table + place * scorer->V, job->logits + (size_t)k * scorer->V,
           scorer->V * sizeof *job->logits);
    scorer->wanted[place] = 2;
  }
}

static void finish_set(struct plm_variant_scorer *scorer, const struct plm_score_job *job)
{
  for (size_t v = job->first; v < job->first + job->count; v++) {
    const struct plm_variant *variant = &scorer->variants[scorer->order[v]];
    double score = 0;
    for (uint32_t i = 0; i < variant->count; i++)
      score += preference(scorer, job->logits + (size_t)i * scorer->V, &variant->items[i]);
    scorer->scores[scorer->order[v]] = score;
  }
}

static void finish_mutant(struct plm_variant_scorer *scorer, const struct plm_score_job *job)
{
  double sum = 0;
  for (uint32_t k = job->row_count; k-- > 0;)
    sum += plm_score_batch_next_token(scorer->batch, job, k);
  scorer->scores[scorer->order[job->first]] += sum;
}

/* Sums from the last token to the first, and subtracts from each variant the sum over the wild type
 * from its first substitution on. */
static void finish_wild_type(struct plm_variant_scorer *scorer, const struct plm_score_job *job)
{
  double sum = 0;
  size_t v = job->first + job->count;
  for (uint32_t k = job->row_count; k-- > 0;) {
    sum += plm_score_batch_next_token(scorer->batch, job, k);
    const uint32_t token = job->begin + job->places[0] + k + 1;
    for (; v > job->first && first_token(&scorer->variants[scorer->order[v - 1]]) == token; v--)
      scorer->scores[scorer->order[v - 1]] -= sum;
  }
}

static plm_status check_job(const struct plm_variant_scorer *scorer,
                            const struct plm_score_job *job, struct plm_error *error)
{
  const struct plm_wild_type *wild_type = scorer->wild_type;
  const uint32_t place = job->kind == PLM_JOB_PLACE
                             ? (uint32_t)job->first
                             : scorer->variants[scorer->order[job->first]].items[0].place;
  return plm_finite_output(job->logits, (size_t)job->row_count * scorer->V, error,
                           "position %lld of %.200s", (long long)wild_type->first + place,
                           wild_type->name);
}

/* Runs the batch, and takes what its jobs are for. */
static plm_status variant_scorer_flush(struct plm_variant_scorer *scorer, struct plm_error *error)
{
  static void (*const finish[])(struct plm_variant_scorer *,
                                const struct plm_score_job *) = {[PLM_JOB_PLACE] = finish_place,
                                                                 [PLM_JOB_SET] = finish_set,
                                                                 [PLM_JOB_MUTANT] = finish_mutant,
                                                                 [PLM_JOB_WILD] = finish_wild_type};
  uint32_t count;
  const struct plm_score_job *jobs = plm_score_batch_jobs(scorer->batch, &count);
  if (count == 0) return PLM_OK;
  PLM_TRY(plm_stop_check("", error));
  PLM_TRY(plm_score_batch_run(scorer->batch, error));
  for (uint32_t j = 0; j < count; j++) {
    PLM_TRY(check_job(scorer, &jobs[j], error));
    finish[jobs[j].kind](scorer, &jobs[j]);
    scorer->work_done += jobs[j].kind == PLM_JOB_WILD ? 0 : jobs[j].count;
  }
  scorer->passes += count;
  scorer->tokens_done += (uint64_t)count * scorer->length;
  plm_progress_update(&scorer->progress, scorer->work_done, scorer->work, scorer->tokens_done,
                      scorer->passes, "pass");
  plm_score_batch_reset(scorer->batch);
  return PLM_OK;
}

/* Copies the window that begins at `begin` from the wild type, for the caller to change. */
static int32_t *begin_window(struct plm_variant_scorer *scorer, uint32_t begin)
{
  memcpy(scorer->window, scorer->wild + begin, scorer->length * sizeof *scorer->window);
  return scorer->window;
}

/* Adds the window as a job, whose places have been written. */
static plm_status add_job(struct plm_variant_scorer *scorer, struct plm_score_job job,
                          struct plm_error *error)
{
  if (plm_score_batch_add(scorer->batch, scorer->window, &job)) return PLM_OK;
  const uint32_t *written = plm_score_batch_places(scorer->batch);
  PLM_TRY(variant_scorer_flush(scorer, error));
  memmove(plm_score_batch_places(scorer->batch), written, job.row_count * sizeof *written);
  const bool added = plm_score_batch_add(scorer->batch, scorer->window, &job);
  PLM_ASSERT(added);
  return PLM_OK;
}

/* ---- masked models ---- */

/* One pass for all wanted places with the same window, and nothing is masked. Windows begin later
 * for later places. */
static plm_status fill_unmasked(struct plm_variant_scorer *scorer, struct plm_error *error)
{
  uint32_t place = 0;
  const uint32_t length = scorer->wild_type->length;
  while (place < length) {
    struct plm_score_job job = {.kind = PLM_JOB_PLACE, .first = place};
    job.begin = window_begin(scorer, place + 1, place + 1);
    for (; place < length && window_begin(scorer, place + 1, place + 1) == job.begin; place++) {
      if (scorer->wanted[place] != 1) continue;
      if (job.row_count == 0) job.first = place;
      plm_score_batch_places(scorer->batch)[job.row_count++] = place + 1 - job.begin;
    }
    job.count = job.row_count;
    begin_window(scorer, job.begin);
    if (job.row_count > 0) PLM_TRY(add_job(scorer, job, error));
  }
  return variant_scorer_flush(scorer, error);
}

static plm_status fill_table(struct plm_variant_scorer *scorer, struct plm_error *error)
{
  if (scorer->unmasked) return fill_unmasked(scorer, error);
  for (uint32_t place = 0; place < scorer->wild_type->length; place++) {
    if (scorer->wanted[place] != 1) continue;
    struct plm_score_job job = {.kind = PLM_JOB_PLACE, .first = place, .count = 1, .row_count = 1};
    job.begin = window_begin(scorer, place + 1, place + 1);
    plm_score_batch_places(scorer->batch)[0] = place + 1 - job.begin;
    begin_window(scorer, job.begin)[place + 1 - job.begin] = scorer->inference->tokenizer->mask;
    PLM_TRY(add_job(scorer, job, error));
  }
  return variant_scorer_flush(scorer, error);
}

static int compare_places(const struct plm_variant *a, const struct plm_variant *b)
{
  if (a->count != b->count) return a->count < b->count ? -1 : 1;
  for (uint32_t i = 0; i < a->count; i++) {
    if (a->items[i].place != b->items[i].place)
      return a->items[i].place < b->items[i].place ? -1 : 1;
  }
  return 0;
}

static int by_places(const void *left, const void *right, void *context)
{
  const struct plm_variant *variants = context;
  return compare_places(&variants[*(const size_t *)left], &variants[*(const size_t *)right]);
}

static plm_status run_sets(struct plm_variant_scorer *scorer, size_t count, struct plm_error *error)
{
  qsort_r(scorer->order, count, sizeof *scorer->order, by_places, (void *)scorer->variants);
  for (size_t first = 0, end; first < count; first = end) {
    const struct plm_variant *variant = &scorer->variants[scorer->order[first]];
    for (end = first + 1; end < count; end++)
      if (compare_places(variant, &scorer->variants[scorer->order[end]]) != 0) break;
    struct plm_score_job job = {.kind = PLM_JOB_SET, .first = first, .count = end - first};
    job.row_count = variant->count;
    job.begin = begin_of(scorer, variant);
    int32_t *window = begin_window(scorer, job.begin);
    for (uint32_t i = 0; i < variant->count; i++) {
      plm_score_batch_places(scorer->batch)[i] = variant->items[i].place + 1 - job.begin;
      window[variant->items[i].place + 1 - job.begin] = scorer->inference->tokenizer->mask;
    }
    PLM_TRY(add_job(scorer, job, error));
  }
  return variant_scorer_flush(scorer, error);
}

/* ---- causal models ---- */

static int by_window(const void *left, const void *right, void *context)
{
  const struct plm_variant_scorer *scorer = context;
  const struct plm_variant *a = &scorer->variants[*(const size_t *)left];
  const struct plm_variant *b = &scorer->variants[*(const size_t *)right];
  const uint32_t begin_a = begin_of(scorer, a), begin_b = begin_of(scorer, b);
  if (begin_a != begin_b) return begin_a < begin_b ? -1 : 1;
  const uint32_t token_a = first_token(a), token_b = first_token(b);
  return (token_a > token_b) - (token_a < token_b);
}

/* Adds the window unchanged, with the logits from the token before `token` onwards. */
static plm_status add_causal(struct plm_variant_scorer *scorer, struct plm_score_job job,
                             uint32_t token, struct plm_error *error)
{
  uint32_t *places = plm_score_batch_places(scorer->batch);
  const uint32_t first = token - job.begin - 1;
  job.row_count = scorer->length - 1 - first;
  for (uint32_t k = 0; k < job.row_count; k++) places[k] = first + k;
  return add_job(scorer, job, error);
}

static plm_status run_causal(struct plm_variant_scorer *scorer, size_t count,
                             struct plm_error *error)
{
  const struct plm_tokenizer *tokenizer = scorer->inference->tokenizer;
  qsort_r(scorer->order, count, sizeof *scorer->order, by_window, scorer);
  for (size_t first = 0, end; first < count; first = end) {
    const struct plm_variant *variant = &scorer->variants[scorer->order[first]];
    const uint32_t begin = begin_of(scorer, variant);
    for (end = first + 1; end < count; end++)
      if (begin_of(scorer, &scorer->variants[scorer->order[end]]) != begin) break;
    const struct plm_score_job wild = {
        .kind = PLM_JOB_WILD, .first = first, .count = end - first, .begin = begin};
    begin_window(scorer, begin);
    PLM_TRY(add_causal(scorer, wild, first_token(variant), error));
    for (size_t v = first; v < end; v++) {
      const struct plm_score_job job = {
          .kind = PLM_JOB_MUTANT, .first = v, .count = 1, .begin = begin};
      const struct plm_variant *mutant = &scorer->variants[scorer->order[v]];
      int32_t *window = begin_window(scorer, begin);
      for (uint32_t i = 0; i < mutant->count; i++)
        window[mutant->items[i].place + 1 - begin] =
            plm_tokenizer_encode(tokenizer, mutant->items[i].mutant);
      PLM_TRY(add_causal(scorer, job, first_token(mutant), error));
    }
  }
  return variant_scorer_flush(scorer, error);
}

/* ---- scoring ---- */

static double from_table(const struct plm_variant_scorer *scorer, const struct plm_variant *variant)
{
  double score = 0;
  for (uint32_t i = 0; i < variant->count; i++) {
    const struct plm_substitution *item = &variant->items[i];
    PLM_ASSERT(scorer->wanted[item->place] == 2);
    score += preference(scorer, scorer->table + (size_t)item->place * scorer->V, item);
  }
  return score;
}

plm_status plm_variant_scorer_run(struct plm_variant_scorer *scorer,
                                  const struct plm_variant *variants, size_t count, double *scores,
                                  struct plm_error *error)
{
  size_t passes = 0;
  size_t *order = plm_alloc((count + 1) * sizeof *order);
  scorer->variants = variants;
  scorer->scores = scores;
  scorer->order = order;
  plm_score_batch_reset(scorer->batch);
  plm_status status = scorer->causal ? PLM_OK : fill_table(scorer, error);
  for (size_t v = 0; v < count && status == PLM_OK; v++) {
    scores[v] = 0;
    if (variants[v].count == 0) continue;
    if (by_table(scorer, &variants[v]))
      scores[v] = from_table(scorer, &variants[v]);
    else
      order[passes++] = v;
  }
  if (status == PLM_OK && passes != 0)
    status = scorer->causal ? run_causal(scorer, passes, error) : run_sets(scorer, passes, error);
  free(order);
  scorer->order = NULL;
  plm_progress_clear(&scorer->progress);
  return status;
}

plm_status plm_variant_scorer_positions(struct plm_variant_scorer *scorer, const char *letters,
                                        double *scores, struct plm_error *error)
{
  const struct plm_tokenizer *tokenizer = scorer->inference->tokenizer;
  const uint32_t length = scorer->wild_type->length;
  PLM_ASSERT(!scorer->causal);
  for (uint32_t place = 0; place < length; place++) {
    scorer->work += scorer->wanted[place] == 0;
    if (scorer->wanted[place] == 0) scorer->wanted[place] = 1;
  }
  const plm_status status = fill_table(scorer, error);
  plm_progress_clear(&scorer->progress);
  if (status != PLM_OK) return status;
  for (uint32_t place = 0; place < length; place++) {
    const float *logits = scorer->table + (size_t)place * scorer->V;
    for (const char *letter = letters; *letter != '\0'; letter++)
      *scores++ =
          plm_log_probability(logits, scorer->V, plm_tokenizer_encode(tokenizer, (uint8_t)*letter));
  }
  return PLM_OK;
}
