/* A problem for attention: one batch's mask, seeded tensors in the precision under test and the
 * same as doubles, and the results that follow from the formulas, one query and head at a time. */
#ifndef PLM_TESTS_SUPPORT_ATTENTION_CASE_H
#define PLM_TESTS_SUPPORT_ATTENTION_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/model/masks.h"
#include "kernels/cpu/attention.h"

/* Documents in chunks, put together by hand. */
enum { ATTENTION_MAX_DOCUMENTS = 1024, ATTENTION_MAX_CHUNKS = 8 };
struct attention_batch {
  struct plm_batch batch;
  uint32_t begin[ATTENTION_MAX_CHUNKS + 1];
  struct plm_chunk_document documents[ATTENTION_MAX_DOCUMENTS];
};
void attention_batch_begin(struct attention_batch *sample, uint32_t chunks, uint32_t length);
/* The next document of a chunk, chunks in their order. */
void attention_batch_add(struct attention_batch *sample, uint32_t chunk, uint32_t start,
                         uint32_t tokens);
/* Documents that cross tiles of 64, a hole, padding at the end, a chunk of padding alone. */
void attention_batch_mixed(struct attention_batch *sample);

enum attention_tensor { Q, K_, V, DOUT, OUT, DQ, DK, DV, ATTENTION_TENSORS };

struct attention_case {
  struct plm_attention_shape shape;
  struct plm_interval_mask mask;
  int32_t *mask_values;
  bool bf16;
  size_t rows, width; /* B * L, H * K */
  char *data[ATTENTION_TENSORS];
  float *lse;
  double *exact[ATTENTION_TENSORS]; /* inputs as read, results of the reference; (rows, width) */
  double *exact_lse;
};

/* Standard normal, the i-th of the seed. */
double attention_case_normal(uint64_t seed, uint64_t i);

/* Builds the batch's mask of `kinds`, random tensors and results full of NaN. Scores are not capped
 * unless the caller sets shape.soft_cap afterwards. */
void attention_case_init(struct attention_case *p, const struct plm_batch *batch, unsigned kinds,
                         uint32_t window, uint32_t block, int32_t heads, int32_t K, bool is_bf16);
void attention_case_deinit(struct attention_case *p);

/* One element: row of (rows), column of (width). */
double attention_case_get(const struct attention_case *p, enum attention_tensor t, size_t row,
                          size_t column);
void attention_case_set(struct attention_case *p, enum attention_tensor t, size_t row,
                        size_t column, float x);

/* Where a tensor begins: q, k, v and their gradients lie side by side in one buffer each. */
const void *attention_case_part(const struct attention_case *p, enum attention_tensor t);
void *attention_case_part_mutable(struct attention_case *p, enum attention_tensor t);

/* Forward and backward on this backend: the inputs, and what lies in the results before, go to its
 * memory; the results come back. */
void attention_case_run_on(struct attention_case *p, struct plm_ops *ops);

/* The same on the CUDA backend of device_case_open, opened and closed. */
void attention_case_run_on_cuda(struct attention_case *p, uint64_t order);

/* Adds to exact[OUT] and the exact gradients (zero at first) what the exact inputs give. */
void attention_case_reference(struct attention_case *p);

/* Largest error of a tensor over its largest value. */
double attention_case_worst(const struct attention_case *p, enum attention_tensor t);
/* The results against the reference's: fails with the tensor's name. */
void attention_case_compare(const struct attention_case *p);
/* A problem, of `heads` heads of K. */
struct attention_request {
  const struct plm_batch *batch;
  unsigned kinds;
  uint32_t window, block;
  int32_t heads, K;
  float cap;
  bool bf16;
};

/* A whole problem on the CUDA backend against the reference. */
void attention_case_check_cuda(const struct attention_request *request);
/* The same where rows without a key hold what must not be used: no output, no gradient there. How
 * many there are. */
size_t attention_case_check_padding(const struct attention_request *request);
/* Orders 1 to `orders` of the emulation's threads give the same bits. */
void attention_case_check_orders(const struct attention_request *request, uint64_t orders);

#endif
