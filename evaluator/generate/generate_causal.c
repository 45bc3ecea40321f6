/* Samples from a causal model. Each call of the decoder takes the tokens of each live sequence that
 * it has not seen: those of the prompt, or the one that was sampled last. A sequence that ends
 * leaves its slot to the next one. Sequences are written in order, so one that ends early waits in
 * a ring for its turn. */
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/inference/finite_output.h"
#include "common/model/decode.h"
#include "common/run/stop.h"
#include "evaluator/generate/generate_work.h"

enum {
  SLOTS = 64,       /* sequences at a time, if the cache may be that large */
  RING = 4 * SLOTS, /* sequences begun but not yet written */
  ROWS = 256        /* tokens in one call, but no more than max_length */
};
static const uint64_t CACHE_BYTES = UINT64_C(1) << 30;

struct slot {
  struct plm_generation *generation; /* NULL if the slot is free */
  uint32_t fed;                      /* tokens that the cache has */
  uint32_t given;                    /* tokens of the prompt */
};

struct sampling {
  struct plm_generate_work *work;
  struct plm_decode *decode;
  struct plm_decode_options options;
  struct slot slots[SLOTS];
  uint32_t live;
  bool exhausted; /* the queue has no more sequences */
  struct plm_generation *ring[RING];
  uint64_t written, taken; /* sequences so far: written, and taken from the queue */
  struct plm_decode_row *rows;
  int32_t wanted[SLOTS];  /* rows whose logits are needed */
  uint32_t asking[SLOTS]; /* the slots that need them */
  float *logits;
};

static plm_status generate_causal_admit(struct sampling *sampling, struct plm_error *error)
{
  for (uint32_t s = 0; s < sampling->options.slots; s++) {
    struct slot *slot = &sampling->slots[s];
    if (slot->generation != NULL || sampling->exhausted) continue;
    if (sampling->taken >= sampling->written + RING) return PLM_OK;
    PLM_TRY(plm_generation_next(sampling->work->queue, &slot->generation, error));
    sampling->exhausted = slot->generation == NULL;
    if (sampling->exhausted) return PLM_OK;
    slot->fed = 0;
    slot->given = slot->generation->count;
    sampling->taken++;
    sampling->live++;
  }
  return PLM_OK;
}

/* Chooses the rows of a call, at least one for each live sequence, and returns their number. *count
 * becomes the number of sequences whose last token is among them, so that their next one can be
 * sampled. */
static uint32_t lay_out(struct sampling *sampling, uint32_t *count)
{
  uint32_t rows = 0, waiting = sampling->live;
  *count = 0;
  for (uint32_t s = 0; s < sampling->options.slots; s++) {
    struct slot *slot = &sampling->slots[s];
    const struct plm_generation *generation = slot->generation;
    if (generation == NULL) continue;
    waiting--;
    while (slot->fed < generation->count && rows + waiting < sampling->options.rows) {
      sampling->rows[rows++] = (struct plm_decode_row){s, slot->fed, generation->tokens[slot->fed]};
      slot->fed++;
    }
    if (slot->fed < generation->count) continue;
    sampling->asking[*count] = s;
    sampling->wanted[(*count)++] = (int32_t)rows - 1;
  }
  return rows;
}

static plm_status write_finished(struct sampling *sampling, struct plm_error *error)
{
  for (;;) {
    struct plm_generation **next = &sampling->ring[sampling->written % RING];
    if (*next == NULL) return PLM_OK;
    struct plm_generation *generation = *next;
    *next = NULL;
    sampling->written++;
    PLM_TRY(plm_generate_write(sampling->work, generation, error));
  }
}

/* Samples the next token of a slot's sequence. If that ends it, it goes to the ring. */
static void extend(struct sampling *sampling, uint32_t s, const float *logits)
{
  struct plm_generate_work *work = sampling->work;
  const struct plm_tokenizer *tokenizer = work->inference->tokenizer;
  struct plm_generation *generation = sampling->slots[s].generation;
  const uint32_t t = generation->count;
  const struct plm_sampled sampled =
      plm_sampler_choose(&work->sampler, logits, t, generation->number, 0);
  const int32_t token = sampled.token;
  plm_generation_set(generation, tokenizer, t, token);
  plm_step_trace_add(work->trace, tokenizer, generation, t - sampling->slots[s].given, t, sampled,
                     false);
  work->residues += token != tokenizer->eos;
  if (token != tokenizer->eos && generation->count < generation->end) return;
  sampling->ring[generation->number % RING] = generation;
  sampling->slots[s].generation = NULL;
  sampling->live--;
}

static plm_status generate_causal_run(struct sampling *sampling, struct plm_error *error)
{
  const size_t V = sampling->work->inference->config.vocab_size;
  for (;;) {
    uint32_t count;
    PLM_TRY(plm_stop_check("", error));
    PLM_TRY(generate_causal_admit(sampling, error));
    if (sampling->live == 0) return PLM_OK;
    const uint32_t rows = lay_out(sampling, &count);
    PLM_TRY(plm_decode_run(sampling->decode, sampling->rows, rows, sampling->wanted, count,
                           sampling->logits, error));
    for (uint32_t i = 0; i < count; i++) {
      const struct slot *slot = &sampling->slots[sampling->asking[i]];
      PLM_TRY(plm_finite_output(sampling->logits + i * V, V, error, "sequence %s",
                                slot->generation->name));
      extend(sampling, sampling->asking[i], sampling->logits + i * V);
    }
    PLM_TRY(write_finished(sampling, error));
  }
}

/* As many slots as the cache has room for, but no more than there are sequences. */
static uint32_t choose_slots(const struct plm_generate_work *work,
                             struct plm_decode_options options)
{
  options.slots = 1;
  const uint64_t one =
      plm_decode_memory(&work->inference->config, work->inference->ops->act_bytes, &options);
  uint64_t slots = one < CACHE_BYTES ? CACHE_BYTES / one : 1;
  if (slots > options.rows) slots = options.rows;
  if (slots > SLOTS) slots = SLOTS;
  return work->total != 0 && slots > work->total ? (uint32_t)work->total : (uint32_t)slots;
}

plm_status plm_generate_causal(struct plm_generate_work *work, struct plm_error *error)
{
  const struct plm_model_config *config = &work->inference->config;
  const uint32_t length = config->max_length;
  struct sampling *sampling = plm_alloc_zeroed(1, sizeof *sampling);
  sampling->work = work;
  sampling->options = (struct plm_decode_options){
      .capacity = length, .rows = length < ROWS ? length : ROWS, .window = work->inference->window};
  sampling->options.slots = choose_slots(work, sampling->options);
  sampling->rows = calloc(sampling->options.rows, sizeof *sampling->rows);
  sampling->logits = calloc((size_t)SLOTS * config->vocab_size, sizeof *sampling->logits);
  plm_status status = PLM_OK;
  if (sampling->rows == NULL || sampling->logits == NULL)
    status =
        plm_error_set(error, PLM_NO_MEMORY, "no memory for %u rows of logits", (unsigned)SLOTS);
  if (status == PLM_OK)
    status = plm_decode_open(work->inference->model, &sampling->options, &sampling->decode, error);
  if (status == PLM_OK) status = generate_causal_run(sampling, error);
  for (uint32_t s = 0; s < SLOTS; s++) plm_generation_free(sampling->slots[s].generation);
  for (uint32_t i = 0; i < RING; i++) plm_generation_free(sampling->ring[i]);
  plm_decode_close(sampling->decode);
  free(sampling->logits);
  free(sampling->rows);
  free(sampling);
  return status;
}
