/* Making the corpus, and its windows when they are asked for. */
#include "tests/support/corpora/small_corpus.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "common/wire/data.h"
#include "common/wire/tables.h"
#include "common/wire/token_bits.h"
#include "tests/support/cases/label_schemas.h"
#include "tests/support/harness/must.h"

enum { LONG_EVERY = 16, LONG_TIMES = 4 };

static uint32_t *draw_lengths(uint32_t documents, uint32_t shortest, uint32_t longest)
{
  uint32_t *lengths = must(malloc(documents * sizeof *lengths));
  for (uint32_t d = 0; d < documents; d++) {
    const uint32_t draw = plm_philox(1, 0, d, 200).w[0];
    lengths[d] = shortest + (uint32_t)(((uint64_t)draw * (longest - shortest + 1)) >> 32);
    if (d % LONG_EVERY == LONG_EVERY - 1) lengths[d] *= LONG_TIMES;
  }
  return lengths;
}

static void open_corpus(struct small_corpus *corpus, const struct plm_plan_parameters *parameters,
                        uint32_t documents, uint32_t shortest, uint32_t longest,
                        uint32_t token_seed)
{
  corpus->parameters = *parameters;
  corpus->lengths = draw_lengths(documents, shortest, longest);
  const bool labelled = corpus->schema.count > 0;
  corpus->known = (struct known_split){.lengths = corpus->lengths, .documents = documents};
  proven_split_open_labelled(&corpus->train, PLM_TOKENIZER_ESM, token_seed, &corpus->known,
                             labelled ? &corpus->schema : NULL);
  corpus->splits[PLM_SPLIT_TRAIN] = corpus->train.split;
  const struct plm_proof_split *splits = corpus->splits;
  struct plm_proof_digest schema;
  if (labelled) schema = plm_label_schema_digest(&corpus->schema);
  corpus->fingerprint = plm_proof_corpus(0, splits, labelled ? &schema : NULL);
  corpus->plan = known_split_plan(&corpus->known, parameters);
  pthread_mutex_init(&corpus->lock, NULL);
}

void small_corpus_open(struct small_corpus *corpus, const struct plm_plan_parameters *parameters,
                       uint32_t documents, uint32_t shortest, uint32_t longest, uint32_t token_seed)
{
  *corpus = (struct small_corpus){0};
  open_corpus(corpus, parameters, documents, shortest, longest, token_seed);
}

void small_corpus_open_labelled(struct small_corpus *corpus,
                                const struct plm_plan_parameters *parameters, uint32_t documents,
                                uint32_t shortest, uint32_t longest, uint32_t token_seed)
{
  *corpus = (struct small_corpus){0};
  label_schema_make(&corpus->schema);
  open_corpus(corpus, parameters, documents, shortest, longest, token_seed);
}

void small_corpus_forget(struct small_corpus *corpus)
{
  while (corpus->windows != NULL) {
    struct small_window *window = corpus->windows;
    corpus->windows = window->next;
    plm_window_deinit(&window->window);
    free(window->offset);
    free(window->bytes);
    free(window);
  }
}

void small_corpus_close(struct small_corpus *corpus)
{
  small_corpus_forget(corpus);
  plm_plan_close(corpus->plan);
  proven_split_close(&corpus->train);
  plm_label_schema_deinit(&corpus->schema);
  pthread_mutex_destroy(&corpus->lock);
  free(corpus->lengths);
}

/* ---- windows ------------------------------------------------------------------------------ */

static struct small_window *make_window(const struct small_corpus *corpus, uint64_t epoch,
                                        uint64_t index)
{
  struct small_window *made = must(calloc(1, sizeof *made));
  const uint32_t length = corpus->parameters.max_length;
  made->epoch = epoch;
  PLM_ASSERT(known_split_window(&corpus->known, corpus->plan, epoch, index, &made->window, NULL) ==
             PLM_OK);
  made->offset = must(malloc((made->window.chunks + 1) * sizeof *made->offset));
  plm_data_layout(corpus->train.tokenizer, length, corpus->train.schema, &made->window,
                  made->offset);
  made->bytes = proven_split_chunks(&corpus->train, &made->window, length, made->offset);
  return made;
}

const struct small_window *small_corpus_window(struct small_corpus *corpus, uint64_t epoch,
                                               uint64_t window)
{
  pthread_mutex_lock(&corpus->lock);
  struct small_window *found = corpus->windows;
  while (found != NULL && (found->epoch != epoch || found->window.window != window))
    found = found->next;
  if (found == NULL) {
    found = make_window(corpus, epoch, window);
    found->next = corpus->windows;
    corpus->windows = found;
  }
  pthread_mutex_unlock(&corpus->lock);
  return found;
}

void small_corpus_settle(struct small_corpus *corpus, struct plm_plan_place *place)
{
  for (;;) {
    const uint32_t chunks = small_corpus_window(corpus, place->epoch, place->window)->window.chunks;
    if (place->chunk < chunks) return;
    place->chunk -= chunks;
    place->before += chunks;
    if (++place->window < plm_plan_windows(corpus->plan)) continue;
    place->epoch++;
    place->window = place->before = 0;
  }
}

uint64_t small_corpus_epoch_chunks(struct small_corpus *corpus, uint64_t epoch)
{
  uint64_t chunks = 0;
  for (uint64_t w = 0; w < plm_plan_windows(corpus->plan); w++)
    chunks += small_corpus_window(corpus, epoch, w)->window.chunks;
  return chunks;
}

struct small_chunk small_corpus_chunk(struct small_corpus *corpus,
                                      const struct plm_plan_place *place)
{
  struct plm_plan_place at = *place;
  small_corpus_settle(corpus, &at);
  const struct small_window *window = small_corpus_window(corpus, at.epoch, at.window);
  const uint32_t *begin = window->window.chunk_begin + at.chunk;
  return (struct small_chunk){.epoch = at.epoch,
                              .window = at.window,
                              .chunk = (uint32_t)at.chunk,
                              .payload = window->bytes + window->offset[at.chunk],
                              .bytes = window->offset[at.chunk + 1] - window->offset[at.chunk],
                              .documents = window->window.documents + begin[0],
                              .count = begin[1] - begin[0]};
}

bool small_corpus_batch_right(struct small_corpus *corpus, const struct plm_batch *batch,
                              struct plm_plan_place place)
{
  const uint32_t length = corpus->parameters.max_length;
  uint8_t *tokens = must(malloc(length));
  bool right = batch->max_length == length;
  for (uint32_t i = 0; i < batch->chunks && right; i++, place.chunk++) {
    const struct small_chunk want = small_corpus_chunk(corpus, &place);
    const uint32_t begin = batch->document_begin[i];
    right &= batch->document_begin[i + 1] - begin == want.count;
    right &= (batch->labels != NULL) == (corpus->schema.count > 0);
    for (uint32_t d = 0; d < want.count && right && batch->labels != NULL; d++) {
      uint8_t *record = proven_split_record(&corpus->train, want.documents[d].number);
      right &= memcmp(batch->labels + batch->label_at[begin + d], record,
                      plm_label_record_size(&corpus->schema, want.documents[d].residues)) == 0;
      free(record);
    }
    plm_token_bits_unpack(corpus->train.tokenizer, want.payload, length, tokens);
    right &= memcmp((const uint8_t *)batch->tokens + (size_t)i * length, tokens, length) == 0;
    right = right && memcmp(batch->documents + begin, want.documents,
                            want.count * sizeof *want.documents) == 0;
  }
  free(tokens);
  return right;
}

/* ---- what it says of itself --------------------------------------------------------------- */

size_t small_corpus_proof(struct small_corpus *corpus, uint64_t epoch, uint64_t window,
                          uint32_t first, uint32_t *count, uint8_t *bytes)
{
  const uint32_t groups = plm_plan_group_count(corpus->plan, window);
  size_t size = 0;
  if (*count == 0 || first >= groups || *count > groups - first) return 0;
  const struct plm_tables_window of = {corpus->plan, epoch, window, corpus->train.schema != NULL};
  PLM_ASSERT(plm_tables_write(&corpus->train.input, &of, first, count, bytes, PLM_WIRE_PROOF_LIMIT,
                              &size, NULL) == PLM_OK);
  return size;
}

void small_corpus_hello(const struct small_corpus *corpus, struct plm_hello *hello)
{
  hello->protocol_least = hello->protocol_most = PLM_WIRE_VERSION;
  hello->tokenizer = corpus->parameters.tokenizer;
  hello->fingerprint = corpus->fingerprint;
  memcpy(hello->splits, corpus->splits, sizeof hello->splits);
  hello->schema_bytes = (uint32_t)plm_label_schema_bytes(&corpus->schema);
  if (hello->schema_bytes == 0) return;
  uint8_t *schema = must(malloc(hello->schema_bytes));
  plm_label_schema_encode(&corpus->schema, schema);
  hello->schema = schema;
}
