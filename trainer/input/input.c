/* The ring of inputs and the thread that fills it. */
#include "trainer/input/input.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/process/thread.h"

enum { POLL_MS = 50 };

struct plm_input {
  struct plm_input_options options;
  void *blocks[PLM_INPUT_RING];
  struct plm_input_slot slots[PLM_INPUT_RING];
  uint64_t g; /* chunks of the run before those of the next input */
  uint64_t seed;
  const struct plm_mixture_history *mixture;
  struct plm_hash fingerprint; /* of the corpus; zero if not known yet */
  bool received_end;           /* rank 0 sends no more */
  volatile int stop;           /* polled by the feed's waits */
  pthread_t thread;
  bool started;
  pthread_mutex_t mutex; /* guards everything below */
  pthread_cond_t changed;
  uint64_t filled, taken, released; /* slots since opening */
  bool ended;                       /* the thread will fill no more */
};

/* Asks the feed where it is in each source of the batch, which is known: it planned the windows
 * that the chunks came from. */
static void note_positions(struct plm_input *input, struct plm_input_slot *slot)
{
  for (uint32_t c = 0; c < slot->batch.chunks; c++) {
    const uint32_t k = slot->batch.sources[c];
    plm_feed_position(input->options.feed, k, &slot->next[k]);
  }
}

/* The first packer that the feed accepted decides the corpus. */
static plm_status input_learn_corpus(struct plm_input *input, struct plm_error *error)
{
  struct plm_feed_corpus corpus;
  if (plm_hash_known(input->fingerprint)) return PLM_OK;
  PLM_TRY(plm_feed_corpus(input->options.feed, &input->stop, &corpus, error));
  input->fingerprint = corpus.fingerprint;
  return PLM_OK;
}

/* The chunks of step s: those of all ranks. */
static plm_status input_receive(struct plm_input *input, struct plm_input_slot *slot, uint64_t s,
                                struct plm_error *error)
{
  const struct plm_input_options *options = &input->options;
  const uint32_t chunks = options->shape.step_chunks * options->ranks->ranks;
  plm_mixture_draw(&plm_mixture_history_at(input->mixture, s)->mixture, input->seed, s, chunks,
                   slot->sources);
  PLM_TRY(plm_feed_next(options->feed, slot->sources, chunks, &input->stop, &slot->batch, error));
  slot->batch.sources = slot->sources;
  slot->batch.first_chunk = input->g; /* counts over the run, not over this feed */
  slot->batch.chunk_ids = NULL;
  input->g += slot->batch.chunks;
  note_positions(input, slot);
  PLM_TRY(input_learn_corpus(input, error));
  slot->fingerprint = input->fingerprint;
  return PLM_OK;
}

/* Once rank 0 has sent a batch, all ranks add up the totals. */
static plm_status fill_part(struct plm_input *input, struct plm_input_slot *slot, uint64_t s,
                            const struct plm_batch *part, struct plm_error *error)
{
  struct plm_step_input *to = &slot->input;
  PLM_TRY(plm_step_input_fill(to, &input->options.shape, s, part, error));
  return plm_rank_add_totals(input->options.ranks, &to->totals, error);
}

static plm_status fill_as_other_rank(struct plm_input *input, struct plm_input_slot *slot,
                                     uint64_t s, struct plm_error *error)
{
  PLM_TRY(plm_rank_receive_batch(input->options.ranks, &slot->part, &input->received_end, error));
  if (input->received_end) return plm_error_set(error, PLM_INTERRUPTED, "rank 0 sends no more");
  return fill_part(input, slot, s, &slot->part.batch, error);
}

static plm_status input_fill(struct plm_input *input, struct plm_input_slot *slot, uint64_t s,
                             struct plm_error *error)
{
  const struct plm_input_options *options = &input->options;
  if (!plm_ranks_first(options->ranks)) return fill_as_other_rank(input, slot, s, error);
  PLM_TRY(input_receive(input, slot, s, error));
  PLM_TRY(plm_rank_send_batch(options->ranks, &slot->batch, error));
  const struct plm_batch part = plm_batch_slice(&slot->batch, 0, options->shape.step_chunks);
  return fill_part(input, slot, s, &part, error);
}

/* Ends the exchange of chunks. Rank 0 may be sending what nobody needs any more; that is received
 * and dropped. */
static void end_batches(struct plm_input *input)
{
  struct plm_ranks *ranks = input->options.ranks;
  struct plm_rank_batch dropped = {0};
  if (plm_ranks_first(ranks)) {
    plm_rank_send_end(ranks);
    return;
  }
  plm_status status = PLM_OK;
  while (!input->received_end && status == PLM_OK) {
    struct plm_step_totals nothing = {0};
    status = plm_rank_receive_batch(ranks, &dropped, &input->received_end, NULL);
    if (status == PLM_OK && !input->received_end)
      status = plm_rank_add_totals(ranks, &nothing, NULL);
  }
  if (status == PLM_OK) plm_rank_batch_deinit(&dropped);
}

static bool input_stopping(const struct plm_input *input)
{
  return __atomic_load_n(&input->stop, __ATOMIC_RELAXED) != 0;
}

/* Fills slot after slot. An error ends the thread and is left in the last slot. */
static void *input_run(void *context)
{
  struct plm_input *input = context;
  plm_status status = PLM_OK;
  for (uint64_t s = input->options.step; s < input->options.steps && status == PLM_OK; s++) {
    pthread_mutex_lock(&input->mutex);
    while (input->filled - input->released == PLM_INPUT_RING && !input_stopping(input))
      pthread_cond_wait(&input->changed, &input->mutex);
    struct plm_input_slot *slot = &input->slots[input->filled % PLM_INPUT_RING];
    pthread_mutex_unlock(&input->mutex);
    if (input_stopping(input)) break;
    slot->error = (struct plm_error){0};
    slot->batch = (struct plm_batch){0};
    status = slot->status = input_fill(input, slot, s, &slot->error);
    pthread_mutex_lock(&input->mutex);
    input->filled++;
    pthread_cond_broadcast(&input->changed);
    pthread_mutex_unlock(&input->mutex);
  }
  end_batches(input);
  pthread_mutex_lock(&input->mutex);
  input->ended = true;
  pthread_cond_broadcast(&input->changed);
  pthread_mutex_unlock(&input->mutex);
  return NULL;
}

static plm_status start_thread(struct plm_input *input, struct plm_error *error)
{
  plm_condition_init(&input->changed);
  pthread_mutex_init(&input->mutex, NULL);
  PLM_TRY(plm_thread_start(&input->thread, "input", input_run, input, error));
  input->started = true;
  return PLM_OK;
}

static void set_position(struct plm_input *input, const struct plm_data_cursor *cursor)
{
  input->g = cursor->chunks;
  input->seed = cursor->seed;
  input->mixture = &cursor->mixture;
  if (cursor->mixed) input->fingerprint = cursor->sources[0].fingerprint;
}

/* Room for the sources of each batch. Only rank 0 draws them. */
static void make_sources(struct plm_input *input)
{
  const struct plm_input_options *options = &input->options;
  if (!plm_ranks_first(options->ranks)) return;
  for (int i = 0; i < PLM_INPUT_RING; i++)
    input->slots[i].sources = plm_alloc((size_t)options->shape.step_chunks * options->ranks->ranks);
}

plm_status plm_input_open(const struct plm_input_options *options, struct plm_input **out,
                          struct plm_error *error)
{
  struct plm_input *input = plm_alloc_zeroed(1, sizeof *input);
  input->options = *options;
  set_position(input, options->cursor);
  input->options.cursor = NULL;
  const size_t bytes = plm_step_input_bytes(&options->shape);
  plm_status status = PLM_OK;
  make_sources(input);
  for (int i = 0; i < PLM_INPUT_RING && status == PLM_OK; i++) {
    status = options->ops->allocate_host(options->ops, bytes, &input->blocks[i], error);
    if (status == PLM_OK)
      plm_step_input_init(&input->slots[i].input, &options->shape, input->blocks[i]);
  }
  if (status == PLM_OK) status = start_thread(input, error);
  if (status != PLM_OK) {
    plm_input_close(input);
    return status;
  }
  *out = input;
  return PLM_OK;
}

void plm_input_close(struct plm_input *input)
{
  if (input == NULL) return;
  if (input->started) {
    pthread_mutex_lock(&input->mutex);
    __atomic_store_n(&input->stop, 1, __ATOMIC_RELAXED);
    pthread_cond_broadcast(&input->changed);
    pthread_mutex_unlock(&input->mutex);
    pthread_join(input->thread, NULL);
    while (input->released < input->filled)
      plm_input_release(input, &input->slots[input->released % PLM_INPUT_RING]);
    pthread_mutex_destroy(&input->mutex);
    pthread_cond_destroy(&input->changed);
  }
  struct plm_ops *ops = input->options.ops;
  for (int i = 0; i < PLM_INPUT_RING; i++) {
    struct plm_input_slot *slot = &input->slots[i];
    plm_step_input_deinit(&slot->input);
    free(slot->sources);
    plm_rank_batch_deinit(&slot->part);
    if (input->blocks[i] != NULL) ops->release_host(ops, input->blocks[i]);
  }
  free(input);
}

static void wait_a_little(struct plm_input *input)
{
  const struct timespec until = plm_clock_after_ms(POLL_MS);
  pthread_cond_timedwait(&input->changed, &input->mutex, &until);
}

bool plm_input_wait(struct plm_input *input, const volatile int *stop)
{
  const bool stopped = __atomic_load_n(stop, __ATOMIC_RELAXED) != 0;
  pthread_mutex_lock(&input->mutex);
  if (input->taken == input->filled && !input->ended && !stopped) wait_a_little(input);
  const bool ready = input->taken < input->filled || input->ended;
  pthread_mutex_unlock(&input->mutex);
  return ready;
}

plm_status plm_input_next(struct plm_input *input, struct plm_input_slot **slot,
                          struct plm_error *error)
{
  *slot = NULL;
  pthread_mutex_lock(&input->mutex);
  while (input->taken == input->filled && !input->ended) wait_a_little(input);
  if (input->taken < input->filled) *slot = &input->slots[input->taken % PLM_INPUT_RING];
  pthread_mutex_unlock(&input->mutex);
  if (*slot == NULL) return plm_error_set(error, PLM_INTERRUPTED, "interrupted");
  if ((*slot)->status != PLM_OK) { /* the slot is not taken, so asking again gives the same error */
    if (error != NULL) *error = (*slot)->error;
    const plm_status status = (*slot)->status;
    *slot = NULL;
    return status;
  }
  input->taken++;
  return PLM_OK;
}

const struct plm_input_slot *plm_input_peek(struct plm_input *input)
{
  pthread_mutex_lock(&input->mutex);
  const struct plm_input_slot *slot = &input->slots[input->taken % PLM_INPUT_RING];
  const bool ready = input->taken < input->filled && slot->status == PLM_OK;
  pthread_mutex_unlock(&input->mutex);
  return ready ? slot : NULL;
}

void plm_input_release(struct plm_input *input, struct plm_input_slot *slot)
{
  if (slot->batch.tokens != NULL) plm_feed_release(input->options.feed, &slot->batch);
  slot->batch = (struct plm_batch){0};
  pthread_mutex_lock(&input->mutex);
  input->released++;
  pthread_cond_broadcast(&input->changed);
  pthread_mutex_unlock(&input->mutex);
}
