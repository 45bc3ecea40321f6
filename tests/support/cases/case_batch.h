/* For tests of the model: small configurations, documents that are drawn once and can be placed in
 * chunks in different ways, and weights that are not zero, so that gradient checks see every path.
 * Errors end the process. */
#ifndef PLM_TESTS_SUPPORT_CASES_CASE_BATCH_H
#define PLM_TESTS_SUPPORT_CASES_CASE_BATCH_H

#include "common/model/model.h"

enum { CASE_MAX_DOCUMENTS = 64, CASE_MAX_TOKENS = 4096 };

/* Documents one after another: masked inputs, labels (-1 if there is none) and weights. */
struct case_documents {
  uint32_t count;
  uint32_t begin[CASE_MAX_DOCUMENTS + 1];
  int32_t ids[CASE_MAX_TOKENS], inputs[CASE_MAX_TOKENS], labels[CASE_MAX_TOKENS];
  float weights[CASE_MAX_TOKENS];
};

/* The lengths include <cls> and <eos>; a length of 0 ends the list. */
void case_documents_draw(struct case_documents *documents, const uint32_t *lengths,
                         uint32_t vocab_size, uint64_t seed);

/* A batch and its targets, with the memory that they point to. */
struct case_batch {
  struct plm_batch batch;
  struct plm_targets targets;
  uint8_t *tokens;
  uint32_t *document_begin;
  struct plm_chunk_document *documents;
  int32_t *inputs, *positions, *labels;
  float *weights;
};

/* Places documents in order, each at a multiple of alignment in the first chunk that has room; with
 * `separate`, one document in each chunk. */
void case_batch_place(struct case_batch *placed, const struct case_documents *documents,
                      uint32_t max_length, uint32_t alignment, bool separate);
/* Makes a micro-batch of the chunks [first, first + chunks) of another batch. */
void case_batch_part(struct case_batch *part, const struct case_batch *whole, uint32_t first,
                     uint32_t chunks);
void case_batch_free(struct case_batch *placed);

/* A configuration small enough for the reference; the caller may change it. */
struct plm_model_config case_config(enum plm_architecture architecture, uint32_t layers,
                                    uint32_t max_length);

/* Every second layer has these kinds of attention as well. Published architectures, in which every
 * layer sees its whole document, stay as they are. */
void case_alternate(struct plm_model_config *config, unsigned kinds);

/* Initial weights of the seed, plus N(0, 0.05^2) for matrices that start at zero, and N(0, 0.3^2)
 * for the mixes a and b and the skip weights s. In published architectures, plus N(0, 0.2^2) for
 * matrices, and N(0, 0.3^2) for biases and the weights of norms. */
void case_weights(const struct plm_parameter *table, size_t count, uint64_t seed, float *values);

/* |a - b| / |b| of one parameter; |a| if b is 0. */
double case_relative(const struct plm_parameter *parameter, const float *a, const double *b);
double case_relative_float(const struct plm_parameter *parameter, const float *a, const float *b);

#endif
