/* Runs the model on copies of the wild type that have masks or substitutions, packed into batches.
 */
#include "evaluator/score/variant_scorer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/progress.h"
#include "common/inference/finite_output.h"
#include "common/inference/pseudo_likelihood.h"
#include "common/inference/sequence_batch.h"
#include "common/run/stop.h"

/* A sequence of the batch, and what its logits are for. */
struct job {
  enum {
    JOB_PLACE,  /* masked: one place, for the table */
    JOB_SET,    /* masked: all places of variants that share them */
    JOB_MUTANT, /* causal: one variant */
    JOB_WILD    /* causal: the wild type, for the variants of one window */
  } kind;
  size_t first, count;    /* JOB_PLACE: the place, 1; else variants, as indices into `order` */
  uint32_t begin;         /* of the window, in tokens of the wild type */
  uint32_t index;         /* of the sequence in the batch */
  uint32_t row;           /* of its first token in the batch */
  uint32_t row_count;     /* logits wanted */
  const uint32_t *places; /* (row_count) where they are wanted, in tokens of the window */
};

struct plm_variant_scorer {
  struct plm_inference *inference;
  const struct plm_wild_type *wild_type;
  bool causal, joint;
  uint32_t T, length; /* tokens of the wild type, and of a window */
  uint32_t V;
  int32_t *wild;   /* (T) */
  int32_t *window; /* (length) that is being made */
  uint8_t *wanted; /* (residues) 1: to be masked on its own, 2: its logits are in the table */
  float *table;    /* (residues, V) logits of masked positions */
  struct plm_sequence_batch *batch;
  struct job *jobs; /* (capacity) */
  uint32_t job_count, job_capacity;
  uint32_t *places; /* (tokens of a batch and of a window) of all jobs */
  uint32_t place_count;
  int32_t *rows; /* (tokens of a batch) */
  float *logits; /* (tokens of a batch, V) */
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
  const uint32_t centre = (a + b + 1) / 2, half = scorer->inference->config.max_length / 2;
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

static plm_status take_buffers(struct plm_variant_scorer *scorer, struct plm_error *error)
{
  const struct plm_inference *inference = scorer->inference;
  const uint32_t length = scorer->wild_type->length;
  const size_t tokens = (size_t)inference->max_chunks * inference->config.max_length;
  PLM_TRY(plm_sequence_batch_open(&inference->config, inference->tokenizer->pad,
                                  inference->max_chunks, &scorer->batch, error));
  scorer->job_capacity = (uint32_t)tokens;
  scorer->wild = calloc(scorer->T, sizeof *scorer->wild);
  scorer->window = calloc(scorer->length, sizeof *scorer->window);
  scorer->wanted = calloc(length, sizeof *scorer->wanted);
  scorer->table = scorer->causal ? NULL : calloc((size_t)length * scorer->V, sizeof(float));
  scorer->jobs = calloc(scorer->job_capacity, sizeof *scorer->jobs);
  scorer->places = calloc(tokens + scorer->length, sizeof *scorer->places);
  scorer->rows = calloc(tokens, sizeof *scorer->rows);
  scorer->logits = calloc(tokens * scorer->V, sizeof *scorer->logits);
  if (scorer->wild == NULL || scorer->window == NULL || scorer->wanted == NULL ||
      (scorer->table == NULL && !scorer->causal) || scorer->jobs == NULL ||
      scorer->places == NULL || scorer->rows == NULL || scorer->logits == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for a wild type of %u residues",
                         length);
  return PLM_OK;
}

plm_status plm_variant_scorer_open(struct plm_inference *inference,
                                   const struct plm_wild_type *wild_type,
                                   enum plm_score_masking masking,
                                   struct plm_variant_scorer **scorer, struct plm_error *error)
{
  struct plm_variant_scorer *opened = calloc(1, sizeof *opened);
  if (opened == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  const struct plm_tokenizer *tokenizer = inference->tokenizer;
  const uint32_t max_length = inference->config.max_length;
  opened->inference = inference;
  opened->wild_type = wild_type;
  opened->causal = inference->objective == PLM_OBJECTIVE_CAUSAL;
  opened->joint = masking == PLM_SCORE_JOINT;
  opened->T = wild_type->length + 2;
  opened->length = opened->T < max_length ? opened->T : max_length;
  opened->V = inference->config.vocab_size;
  const plm_status status = take_buffers(opened, error);
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
  plm_sequence_batch_close(scorer->batch);
  free(scorer->wild);
  free(scorer->window);
  free(scorer->wanted);
  free(scorer->table);
  free(scorer->jobs);
  free(scorer->places);
  free(scorer->rows);
  free(scorer->logits);
  free(scorer);
}

/* Whether a variant's positions are masked one at a time. */
static bool by_table(const struct plm_variant_scorer *scorer, const struct plm_variant *variant)
{
  return !scorer->causal && (!scorer->joint || variant->count == 1);
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
  /* a causal model has to see at least one token before the first substitution */
  const uint32_t a = first_token(variant), b = last_token(variant),
                 begin = begin_of(scorer, variant);
  if (a < begin + scorer->causal || b >= begin + scorer->length) {
    const int64_t first = scorer->wild_type->first;
    plm_error_set(
        error, PLM_LIMIT,
        "positions %lld and %lld are too far apart for the model's max_length of %u tokens",
        (long long)(first + a - 1), (long long)(first + b - 1),
        scorer->inference->config.max_length);
    return plm_error_hint(
        error, scorer->causal ? "leave the variant out, or use a model with a larger max_length"
                              : "--masking additive masks one position at a time");
  }
  scorer->work++;
  return PLM_OK;
}

/* ---- batches ---- */

static double preference(const struct plm_variant_scorer *scorer, const float *logits,
                         const struct plm_substitution *item)
{
  const struct plm_tokenizer *tokenizer = scorer->inference->tokenizer;
  return (double)logits[plm_tokenizer_encode(tokenizer, item->mutant)] -
         (double)logits[plm_tokenizer_encode(tokenizer, item->wild_type)];
}

/* The token after the k-th row of a job, in the sequence that it ran. */
static int32_t token_after(const struct plm_variant_scorer *scorer, const struct job *job,
                           uint32_t k)
{
  const int32_t *inputs = plm_sequence_batch_inputs(scorer->batch);
  return inputs[job->row + job->places[0] + k + 1];
}

static void take_place(struct plm_variant_scorer *scorer, const struct job *job,
                       const float *logits)
{
  memcpy(scorer->table + job->first * scorer->V, logits, scorer->V * sizeof *logits);
  scorer->wanted[job->first] = 2;
}

static void take_set(struct plm_variant_scorer *scorer, const struct job *job, const float *logits)
{
  for (size_t v = job->first; v < job->first + job->count; v++) {
    const struct plm_variant *variant = &scorer->variants[scorer->order[v]];
    double score = 0;
    for (uint32_t i = 0; i < variant->count; i++)
      score += preference(scorer, logits + (size_t)i * scorer->V, &variant->items[i]);
    scorer->scores[scorer->order[v]] = score;
  }
}

static void take_mutant(struct plm_variant_scorer *scorer, const struct job *job,
                        const float *logits)
{
  double sum = 0;
  for (uint32_t k = job->row_count; k-- > 0;)
    sum +=
        plm_log_probability(logits + (size_t)k * scorer->V, scorer->V, token_after(scorer, job, k));
  scorer->scores[scorer->order[job->first]] += sum;
}

/* Sums from the last token to the first, and subtracts from each variant the sum over the wild type
 * from its first substitution on. */
static void take_wild(struct plm_variant_scorer *scorer, const struct job *job, const float *logits)
{
  double sum = 0;
  size_t v = job->first + job->count;
  for (uint32_t k = job->row_count; k-- > 0;) {
    sum +=
        plm_log_probability(logits + (size_t)k * scorer->V, scorer->V, token_after(scorer, job, k));
    const uint32_t token = job->begin + job->places[0] + k + 1;
    for (; v > job->first && first_token(&scorer->variants[scorer->order[v - 1]]) == token; v--)
      scorer->scores[scorer->order[v - 1]] -= sum;
  }
}

static plm_status check_job(const struct plm_variant_scorer *scorer, const struct job *job,
                            const float *logits, struct plm_error *error)
{
  const struct plm_wild_type *wild_type = scorer->wild_type;
  const uint32_t place = job->kind == JOB_PLACE
                             ? (uint32_t)job->first
                             : scorer->variants[scorer->order[job->first]].items[0].place;
  return plm_finite_output(logits, (size_t)job->row_count * scorer->V, error,
                           "position %lld of %.200s", (long long)wild_type->first + place,
                           wild_type->name);
}

static int by_row(const void *left, const void *right)
{
  const struct job *a = left, *b = right;
  return (a->row > b->row) - (a->row < b->row);
}

static plm_status flush(struct plm_variant_scorer *scorer, struct plm_error *error)
{
  static void (*const take[])(struct plm_variant_scorer *, const struct job *,
                              const float *) = {[JOB_PLACE] = take_place,
                                                [JOB_SET] = take_set,
                                                [JOB_MUTANT] = take_mutant,
                                                [JOB_WILD] = take_wild};
  if (scorer->job_count == 0) return PLM_OK;
  PLM_TRY(plm_stop_check("", error));
  const struct plm_batch *chunks = plm_sequence_batch_finish(scorer->batch);
  uint32_t rows = 0;
  for (uint32_t j = 0; j < scorer->job_count; j++)
    scorer->jobs[j].row = plm_sequence_batch_row(scorer->batch, scorer->jobs[j].index);
  qsort(scorer->jobs, scorer->job_count, sizeof *scorer->jobs, by_row);
  for (uint32_t j = 0; j < scorer->job_count; j++) {
    const struct job *job = &scorer->jobs[j];
    for (uint32_t k = 0; k < job->row_count; k++)
      scorer->rows[rows++] = (int32_t)(job->row + job->places[k]);
  }
  PLM_TRY(plm_inference_run(scorer->inference, chunks, plm_sequence_batch_inputs(scorer->batch),
                            scorer->rows, rows, NULL, scorer->logits, error));
  const float *logits = scorer->logits;
  for (uint32_t j = 0; j < scorer->job_count; j++) {
    const struct job *job = &scorer->jobs[j];
    PLM_TRY(check_job(scorer, job, logits, error));
    take[job->kind](scorer, job, logits);
    logits += (size_t)job->row_count * scorer->V;
    scorer->work_done += job->kind == JOB_WILD ? 0 : job->count;
  }
  scorer->passes += scorer->job_count;
  scorer->tokens_done += (uint64_t)scorer->job_count * scorer->length;
  plm_progress_update(&scorer->progress, scorer->work_done, scorer->work, scorer->tokens_done,
                      scorer->passes, "pass");
  scorer->job_count = 0;
  scorer->place_count = 0;
  plm_sequence_batch_reset(scorer->batch);
  return PLM_OK;
}

/* Copies the window that begins at `begin` from the wild type, for the caller to change. */
static int32_t *begin_window(struct plm_variant_scorer *scorer, uint32_t begin)
{
  memcpy(scorer->window, scorer->wild + begin, scorer->length * sizeof *scorer->window);
  return scorer->window;
}

/* Where the places of the next job go. There is room, because a batch has no more rows than tokens.
 */
static uint32_t *begin_places(struct plm_variant_scorer *scorer)
{
  return scorer->places + scorer->place_count;
}

/* Adds the window as a job. Its row_count places have been written to begin_places. */
static plm_status add_job(struct plm_variant_scorer *scorer, struct job job,
                          struct plm_error *error)
{
  bool added = plm_sequence_batch_add(scorer->batch, scorer->window, scorer->length);
  if (!added) {
    const uint32_t *written = begin_places(scorer);
    PLM_TRY(flush(scorer, error));
    memmove(begin_places(scorer), written, job.row_count * sizeof *written);
    added = plm_sequence_batch_add(scorer->batch, scorer->window, scorer->length);
  }
  PLM_ASSERT(added);
  job.index = plm_sequence_batch_count(scorer->batch) - 1;
  job.places = begin_places(scorer);
  scorer->place_count += job.row_count;
  scorer->jobs[scorer->job_count++] = job;
  return PLM_OK;
}

/* ---- masked models ---- */

static plm_status fill_table(struct plm_variant_scorer *scorer, struct plm_error *error)
{
  for (uint32_t place = 0; place < scorer->wild_type->length; place++) {
    if (scorer->wanted[place] != 1) continue;
    struct job job = {.kind = JOB_PLACE, .first = place, .count = 1, .row_count = 1};
    job.begin = window_begin(scorer, place + 1, place + 1);
    begin_places(scorer)[0] = place + 1 - job.begin;
    begin_window(scorer, job.begin)[place + 1 - job.begin] = scorer->inference->tokenizer->mask;
    PLM_TRY(add_job(scorer, job, error));
  }
  return flush(scorer, error);
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
    struct job job = {.kind = JOB_SET, .first = first, .count = end - first};
    job.row_count = variant->count;
    job.begin = begin_of(scorer, variant);
    int32_t *window = begin_window(scorer, job.begin);
    for (uint32_t i = 0; i < variant->count; i++) {
      begin_places(scorer)[i] = variant->items[i].place + 1 - job.begin;
      window[variant->items[i].place + 1 - job.begin] = scorer->inference->tokenizer->mask;
    }
    PLM_TRY(add_job(scorer, job, error));
  }
  return flush(scorer, error);
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
static plm_status add_causal(struct plm_variant_scorer *scorer, struct job job, uint32_t token,
                             struct plm_error *error)
{
  uint32_t *places = begin_places(scorer);
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
    const struct job wild = {
        .kind = JOB_WILD, .first = first, .count = end - first, .begin = begin};
    begin_window(scorer, begin);
    PLM_TRY(add_causal(scorer, wild, first_token(variant), error));
    for (size_t v = first; v < end; v++) {
      const struct job job = {.kind = JOB_MUTANT, .first = v, .count = 1, .begin = begin};
      const struct plm_variant *mutant = &scorer->variants[scorer->order[v]];
      int32_t *window = begin_window(scorer, begin);
      for (uint32_t i = 0; i < mutant->count; i++)
        window[mutant->items[i].place + 1 - begin] =
            plm_tokenizer_encode(tokenizer, mutant->items[i].mutant);
      PLM_TRY(add_causal(scorer, job, first_token(mutant), error));
    }
  }
  return flush(scorer, error);
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
  size_t *order = malloc((count + 1) * sizeof *order);
  if (order == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  scorer->variants = variants;
  scorer->scores = scores;
  scorer->order = order;
  plm_sequence_batch_reset(scorer->batch);
  scorer->job_count = scorer->place_count = 0;
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
  plm_sequence_batch_reset(scorer->batch);
  scorer->job_count = scorer->place_count = 0;
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
