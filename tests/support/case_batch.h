/* Material for the tests of common/model: small configurations, documents that are drawn once and
 * may be placed in chunks in different ways, and the weights of model.md's gradient checks, where
 * nothing is zero. Everything asserts: this is for tests. */
#ifndef PLM_TESTS_SUPPORT_CASE_BATCH_H
#define PLM_TESTS_SUPPORT_CASE_BATCH_H

#include "common/model/model.h"

enum { CASE_MAX_DOCUMENTS = 64, CASE_MAX_TOKENS = 4096 };

/* Documents with their masked inputs, labels (-1: none) and weights, one after another. */
struct case_documents {
  uint32_t count;
  uint32_t begin[CASE_MAX_DOCUMENTS + 1];
  int32_t ids[CASE_MAX_TOKENS], inputs[CASE_MAX_TOKENS], labels[CASE_MAX_TOKENS];
  float weights[CASE_MAX_TOKENS];
};

/* Lengths count <cls> and <eos>; a 0 ends the list. */
void case_documents_draw(struct case_documents *documents, const uint32_t *lengths,
                         uint32_t vocab_size, uint64_t seed);

/* A batch and its targets, with the memory they point to. */
struct case_batch {
  struct plm_batch batch;
  struct plm_targets targets;
  uint8_t *tokens;
  uint32_t *document_begin;
  struct plm_chunk_document *documents;
  int32_t *inputs, *positions, *labels;
  float *weights;
};

/* First fit in order, each at a multiple of alignment; separate: one document a chunk. */
void case_batch_place(struct case_batch *placed, const struct case_documents *documents,
                      uint32_t max_length, uint32_t alignment, bool separate);
/* Chunks [first, first + chunks) of another batch, as a micro-batch. */
void case_batch_part(struct case_batch *part, const struct case_batch *whole, uint32_t first,
                     uint32_t chunks);
void case_batch_free(struct case_batch *placed);

/* A configuration small enough for the reference; the caller changes it at will. */
struct plm_model_config case_config(enum plm_architecture architecture, uint32_t layers,
                                    uint32_t max_length);

/* Initial weights of the seed, N(0, 0.05^2) added to every matrix that starts at zero and
 * N(0, 0.3^2) to a, b and s. */
void case_weights(const struct plm_parameter *table, size_t count, uint64_t seed, float *values);

/* |a - b| / |b| of one parameter (|a| where b is 0). */
double case_relative(const struct plm_parameter *parameter, const float *a, const double *b);
double case_relative_float(const struct plm_parameter *parameter, const float *a, const float *b);

#endif
