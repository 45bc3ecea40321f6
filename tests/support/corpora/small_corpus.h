/* A corpus in memory that proves itself, for tests of the feed: random proteins, their hash tree,
 * and the payloads that a true packer would send. Threads may share it. */
#ifndef PLM_TESTS_SUPPORT_CORPORA_SMALL_CORPUS_H
#define PLM_TESTS_SUPPORT_CORPORA_SMALL_CORPUS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/plan/plan.h"
#include "common/wire/message.h"
#include "tests/support/corpora/proven_split.h"

/* A window as packers send it. */
struct small_window {
  struct small_window *next;
  uint64_t epoch;
  struct plm_window window;
  uint64_t *offset; /* (chunks + 1) of its payload */
  uint8_t *bytes;
};

struct small_corpus {
  struct plm_plan_parameters parameters;
  uint32_t *lengths;
  struct known_split known;
  struct proven_split train; /* all documents */
  struct plm_label_schema schema;
  struct plm_proof_split splits[PLM_SPLIT_COUNT];
  struct plm_hash fingerprint;
  struct plm_plan *plan;
  pthread_mutex_t lock; /* of the windows, which stay until _forget */
  struct small_window *windows;
};

/* Lengths are from shortest to longest residues, and every 16th document is four times as long. A
 * seed gives the same corpus each time; another token_seed gives other sequences of the same
 * lengths, unless it is 20 more or fewer. esm only, documents without clusters. */
void small_corpus_open(struct small_corpus *corpus, const struct plm_plan_parameters *parameters,
                       uint32_t documents, uint32_t shortest, uint32_t longest,
                       uint32_t token_seed);
/* The same with labels of the schema of label_schema_make. */
void small_corpus_open_labelled(struct small_corpus *corpus,
                                const struct plm_plan_parameters *parameters, uint32_t documents,
                                uint32_t shortest, uint32_t longest, uint32_t token_seed);
void small_corpus_close(struct small_corpus *corpus);
/* Forgets all windows. They are made again when they are asked for. */
void small_corpus_forget(struct small_corpus *corpus);

const struct small_window *small_corpus_window(struct small_corpus *corpus, uint64_t epoch,
                                               uint64_t window);
/* DATA of the chunk that is `chunk` chunks after the beginning of epoch 0, and its documents. */
struct small_chunk {
  uint64_t epoch, window;
  uint32_t chunk;         /* of the window */
  const uint8_t *payload; /* all that DATA has of the chunk */
  uint64_t bytes;
  const struct plm_chunk_document *documents;
  uint32_t count;
};
struct small_chunk small_corpus_chunk(struct small_corpus *corpus,
                                      const struct plm_plan_place *place);
/* Moves a place past the ends of windows and epochs. */
void small_corpus_settle(struct small_corpus *corpus, struct plm_plan_place *place);
uint64_t small_corpus_epoch_chunks(struct small_corpus *corpus, uint64_t epoch);
/* Whether a batch is the chunks from the place on. */
bool small_corpus_batch_right(struct small_corpus *corpus, const struct plm_batch *batch,
                              struct plm_plan_place place);

/* PROOF for what PROVE asks: bytes has room for PLM_WIRE_PROOF_LIMIT. Returns the size; 0: there
 * are no such groups. */
size_t small_corpus_proof(struct small_corpus *corpus, uint64_t epoch, uint64_t window,
                          uint32_t first, uint32_t *count, uint8_t *bytes);
/* What HELLO says of the corpus. The schema of its labels, if there is one, is to be freed. */
void small_corpus_hello(const struct small_corpus *corpus, struct plm_hello *hello);

#endif
