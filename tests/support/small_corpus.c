/* Making the corpus, and its windows when they are asked for. */
#include "tests/support/small_corpus.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/philox.h"
#include "common/wire/data.h"
#include "common/wire/tables.h"

enum { LONG_EVERY = 16, LONG_TIMES = 4 };

static const struct plm_tokenizer *tokenizer(void)
{
  return plm_tokenizer_of(PLM_TOKENIZER_ESM);
}

static void *allocate(size_t bytes)
{
  void *memory = calloc(1, bytes);
  PLM_ASSERT(memory != NULL);
  return memory;
}

static void draw_sequences(struct small_corpus *corpus, uint32_t shortest, uint32_t longest,
                           uint64_t token_seed)
{
  uint64_t total = 0;
  for (uint32_t d = 0; d < corpus->documents; d++) {
    const uint32_t draw = plm_philox(1, 0, d, 200).w[0];
    const uint32_t length =
        shortest + (uint32_t)(((uint64_t)draw * (longest - shortest + 1)) >> 32);
    corpus->lengths[d] = d % LONG_EVERY == LONG_EVERY - 1 ? LONG_TIMES * length : length;
    corpus->begin[d] = total;
    total += corpus->lengths[d];
  }
  corpus->tokens = allocate(total);
  for (uint64_t i = 0; i < total; i++)
    corpus->tokens[i] = (uint8_t)(4 + plm_philox(token_seed, 1, i, 200).w[0] % 20);
}

static void hash_sequences(struct small_corpus *corpus)
{
  const uint32_t groups = (corpus->documents - 1) / PLM_GROUP_DOCUMENTS + 1;
  struct plm_proof_node *roots = allocate(groups * sizeof *roots);
  struct plm_error error;
  for (uint32_t d = 0; d < corpus->documents; d++)
    corpus->digests[d] =
        plm_proof_sequence(1, corpus->tokens + corpus->begin[d], corpus->lengths[d]);
  for (uint32_t g = 0; g < groups; g++) {
    const uint32_t first = g * PLM_GROUP_DOCUMENTS, left = corpus->documents - first;
    roots[g] = plm_proof_group(corpus->lengths + first, corpus->digests + first, NULL,
                               left < PLM_GROUP_DOCUMENTS ? left : PLM_GROUP_DOCUMENTS);
  }
  PLM_ASSERT(plm_proof_tree_open(PLM_PROOF_PLAIN, roots, groups, &corpus->groups, &error) ==
             PLM_OK);
  free(roots);
  corpus->splits[PLM_SPLIT_TRAIN].documents = corpus->documents;
  memcpy(corpus->splits[PLM_SPLIT_TRAIN].root, plm_proof_tree_root(corpus->groups)->hash,
         PLM_PROOF_HASH_BYTES);
  const struct plm_proof_split *splits = corpus->splits;
  corpus->fingerprint = plm_proof_corpus(0, splits);
}

void small_corpus_open(struct small_corpus *corpus, const struct plm_plan_parameters *parameters,
                       uint32_t documents, uint32_t shortest, uint32_t longest, uint64_t token_seed)
{
  struct plm_error error = {0};
  *corpus = (struct small_corpus){.parameters = *parameters, .documents = documents};
  corpus->lengths = allocate(documents * sizeof *corpus->lengths);
  corpus->begin = allocate(documents * sizeof *corpus->begin);
  corpus->digests = allocate(documents * sizeof *corpus->digests);
  draw_sequences(corpus, shortest, longest, token_seed);
  hash_sequences(corpus);
  PLM_ASSERT(plm_plan_open(parameters, corpus->lengths, documents, &corpus->plan, &error) ==
             PLM_OK);
  pthread_mutex_init(&corpus->lock, NULL);
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
  plm_proof_tree_close(corpus->groups);
  pthread_mutex_destroy(&corpus->lock);
  free(corpus->lengths);
  free(corpus->begin);
  free(corpus->tokens);
  free(corpus->digests);
}

/* ---- windows ------------------------------------------------------------------------------ */

/* Writes a piece's tokens, and returns the end of its evidence, which begins at `evidence`. */
static uint8_t *write_piece(const struct small_corpus *corpus,
                            const struct plm_chunk_document *document, uint8_t *tokens,
                            uint8_t *evidence)
{
  const uint8_t *residues = corpus->tokens + corpus->begin[document->number];
  const uint64_t blocks = plm_proof_block_count(document->residues);
  struct plm_data_piece piece;
  struct plm_proof_tree *tree;
  struct plm_error error;
  plm_data_piece(document, &piece);
  if (piece.has_cls) *tokens++ = (uint8_t)tokenizer()->cls;
  memcpy(tokens, residues + piece.begin, piece.end - piece.begin);
  if (piece.has_eos) tokens[piece.end - piece.begin] = (uint8_t)tokenizer()->eos;
  if (piece.whole) return evidence;
  struct plm_proof_node *nodes = allocate(blocks * sizeof *nodes);
  plm_proof_block_nodes(1, residues, document->residues, nodes);
  PLM_ASSERT(plm_proof_tree_open(PLM_PROOF_PLAIN, nodes, blocks, &tree, &error) == PLM_OK);
  evidence = plm_data_write_evidence(tokenizer(), document, residues, tree, evidence);
  plm_proof_tree_close(tree);
  free(nodes);
  return evidence;
}

static struct small_window *make_window(const struct small_corpus *corpus, uint64_t epoch,
                                        uint64_t index)
{
  struct small_window *made = allocate(sizeof *made);
  struct plm_window *window = &made->window;
  const uint32_t length = corpus->parameters.max_length;
  struct plm_error error = {0};
  made->epoch = epoch;
  PLM_ASSERT(plm_plan_window(corpus->plan, epoch, index, window, &error) == PLM_OK);
  made->offset = allocate((window->chunks + 1) * sizeof *made->offset);
  plm_data_layout(tokenizer(), length, window, made->offset);
  made->bytes = allocate(made->offset[window->chunks]);
  for (uint32_t c = 0; c < window->chunks; c++) {
    uint8_t *tokens = made->bytes + made->offset[c], *evidence = tokens + length;
    memset(tokens, tokenizer()->pad, length);
    for (uint32_t i = window->chunk_begin[c]; i < window->chunk_begin[c + 1]; i++)
      evidence =
          write_piece(corpus, &window->documents[i], tokens + window->documents[i].start, evidence);
    PLM_ASSERT(evidence == made->bytes + made->offset[c + 1]);
  }
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
                              .tokens = window->bytes + window->offset[at.chunk],
                              .documents = window->window.documents + begin[0],
                              .count = begin[1] - begin[0]};
}

bool small_corpus_batch_right(struct small_corpus *corpus, const struct plm_batch *batch,
                              struct plm_plan_place place)
{
  const uint32_t length = corpus->parameters.max_length;
  bool right = batch->max_length == length;
  for (uint32_t i = 0; i < batch->chunks && right; i++, place.chunk++) {
    const struct small_chunk want = small_corpus_chunk(corpus, &place);
    const uint32_t begin = batch->document_begin[i];
    right &= batch->document_begin[i + 1] - begin == want.count;
    right &= memcmp((const uint8_t *)batch->tokens + (size_t)i * length, want.tokens, length) == 0;
    right = right && memcmp(batch->documents + begin, want.documents,
                            want.count * sizeof *want.documents) == 0;
  }
  return right;
}

/* ---- what it says of itself --------------------------------------------------------------- */

static plm_status read_digests(void *context, uint64_t group,
                               struct plm_proof_digest digests[PLM_PROOF_GROUP],
                               struct plm_error *error)
{
  const struct small_corpus *corpus = context;
  const uint64_t first = group * PLM_GROUP_DOCUMENTS, left = corpus->documents - first;
  (void)error;
  memcpy(digests, corpus->digests + first,
         (left < PLM_GROUP_DOCUMENTS ? left : PLM_GROUP_DOCUMENTS) * sizeof *digests);
  return PLM_OK;
}

size_t small_corpus_proof(struct small_corpus *corpus, uint64_t epoch, uint64_t window,
                          uint32_t first, uint32_t *count, uint8_t *bytes)
{
  const struct plm_tables_source source = {.documents = corpus->documents,
                                           .lengths = corpus->lengths,
                                           .groups = corpus->groups,
                                           .digests = read_digests,
                                           .context = corpus};
  const uint32_t groups = plm_plan_group_count(corpus->plan, window);
  struct plm_error error;
  size_t size = 0;
  if (*count == 0 || first >= groups || *count > groups - first) return 0;
  const struct plm_tables_window of = {corpus->plan, epoch, window};
  PLM_ASSERT(plm_tables_write(&source, &of, first, count, bytes, PLM_WIRE_PROOF_LIMIT, &size,
                              &error) == PLM_OK);
  return size;
}

void small_corpus_hello(const struct small_corpus *corpus, struct plm_hello *hello)
{
  hello->protocol_least = hello->protocol_most = PLM_WIRE_VERSION;
  hello->tokenizer = corpus->parameters.tokenizer;
  hello->fingerprint = corpus->fingerprint;
  memcpy(hello->splits, corpus->splits, sizeof hello->splits);
}
