/* A test case of attention: a batch's mask, seeded tensors in the tested precision and as doubles,
 * and the results in double precision, computed from the formulas for one query and head at a time.
 */
#ifndef PLM_TESTS_SUPPORT_OPERATORS_ATTENTION_CASE_H
#define PLM_TESTS_SUPPORT_OPERATORS_ATTENTION_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/model/masks.h"
#include "kernels/cpu/attention.h"

/* Documents placed in chunks by the caller. */
enum { ATTENTION_MAX_DOCUMENTS = 1024, ATTENTION_MAX_CHUNKS = 8 };
struct attention_batch {
  struct plm_batch batch;
  uint32_t begin[ATTENTION_MAX_CHUNKS + 1];
  struct plm_chunk_document documents[ATTENTION_MAX_DOCUMENTS];
};
void attention_batch_begin(struct attention_batch *sample, uint32_t chunks, uint32_t length);
/* Adds a document. Chunks must come in order. */
void attention_batch_add(struct attention_batch *sample, uint32_t chunk, uint32_t start,
                         uint32_t tokens);
/* The same for a list: attention_batch_of(&sample, chunks, length, {chunk, start, tokens}, ...). */
struct attention_document {
  uint32_t chunk, start, tokens;
};
void attention_batch_fill(struct attention_batch *sample, uint32_t chunks, uint32_t length,
                          const struct attention_document *documents, size_t count);
#define attention_batch_of(sample, chunks, length, ...)                                          \
  attention_batch_fill(sample, chunks, length, (const struct attention_document[]){__VA_ARGS__}, \
                       sizeof((const struct attention_document[]){__VA_ARGS__}) /                \
                           sizeof(struct attention_document))
/* Documents that cross tiles of 64, a gap between documents, padding at the end, and a chunk of
 * only padding. */
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
  double *exact[ATTENTION_TENSORS]; /* inputs as stored, results of the reference; (rows, width) */
  double *exact_lse;
};

/* The i-th standard normal number of the stream of this seed. */
double attention_case_normal(uint64_t seed, uint64_t i);

/* Builds the batch's mask of `kinds`, random tensors and results full of NaN. Scores are not capped
 * unless the caller sets shape.soft_cap afterwards. */
void attention_case_init(struct attention_case *p, const struct plm_batch *batch, unsigned kinds,
                         uint32_t window, uint32_t block, int32_t heads, int32_t K, bool is_bf16);
void attention_case_deinit(struct attention_case *p);

/* Gets or sets the element (row, column) of a tensor of (rows, width). */
double attention_case_get(const struct attention_case *p, enum attention_tensor t, size_t row,
                          size_t column);
void attention_case_set(struct attention_case *p, enum attention_tensor t, size_t row,
                        size_t column, float x);

/* Where a tensor begins. q, k, v are columns of one buffer, and so are their gradients. */
const void *attention_case_part(const struct attention_case *p, enum attention_tensor t);
void *attention_case_part_mutable(struct attention_case *p, enum attention_tensor t);

/* Runs forward and backward on a backend: copies inputs and the present contents of the results to
 * its memory, and the results back. */
void attention_case_run_on(struct attention_case *p, struct plm_ops *ops);

/* The same on the CUDA backend, which is opened by device_case_open and closed again. */
void attention_case_run_on_cuda(struct attention_case *p, uint64_t order);

/* Adds the exact output and gradients to `exact`, where they are zero at first; sets exact_lse. */
void attention_case_reference(struct attention_case *p);

/* The largest error of a tensor, divided by its largest magnitude or 1, whichever is larger. */
double attention_case_worst(const struct attention_case *p, enum attention_tensor t);
/* Compares the results with the reference's; fails the test with the tensor's name. */
void attention_case_compare(const struct attention_case *p);

/* ---- cases --------------------------------------------------------------------------------------
 * Each test program runs these with the shapes that its kernels' tiles make interesting. */

/* What computes a case. `order` is that of the emulation's threads, or the number of a CPU's. */
struct attention_target {
  void (*run)(struct attention_case *p, const void *of, uint64_t order);
  const void *of;
};
/* Replaces the CUDA backend, which computes them otherwise. The list is borrowed. */
void attention_case_targets(const struct attention_target *targets, size_t count);

/* Compares a batch in `heads` heads of width K with the reference, on each target. */
void attention_check(const struct attention_batch *sample, unsigned kinds, uint32_t window,
                     uint32_t block, int32_t heads, int32_t K, float cap, bool is_bf16);
/* The same without a cap for the mask kinds 1, 1 + step, ... below 16. A step of 2 takes all that
 * have PLM_ATTENTION_DOCUMENT, and a multiple of 2 some of them. */
void attention_check_masks(const struct attention_batch *sample, unsigned step, uint32_t window,
                           uint32_t block, int32_t heads, int32_t K, bool is_bf16);
/* The same for the batch's documents, with heads of each of these widths. */
void attention_check_widths(const struct attention_batch *sample, int32_t heads,
                            const int32_t *widths, size_t count, bool is_bf16);
/* The same for two chunks of each of these lengths, with a causal mask for every second one. */
void attention_check_lengths(const uint32_t *lengths, size_t count, int32_t K, bool is_bf16);
/* Rows without keys have no output and no gradient, and this value in them is not used. Returns
 * their number. */
size_t attention_check_padding(const struct attention_batch *sample, int32_t heads, int32_t K,
                               float value, bool is_bf16);
/* Orders 1 to `orders` give the same bits with a window. */
void attention_check_orders(const struct attention_batch *sample, uint32_t window, int32_t heads,
                            int32_t K, uint64_t orders, bool is_bf16);

#endif
