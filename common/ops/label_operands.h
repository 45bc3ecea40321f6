/* Operands of the operators for heads that predict labels (ops.h, "heads for labels"), and the rule
 * of dropout, which every backend uses. */
#ifndef PLM_COMMON_OPS_LABEL_OPERANDS_H
#define PLM_COMMON_OPS_LABEL_OPERANDS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/numbers/philox.h"
#include "common/ops/operands.h"
#include "common/ops/update.h"

/* R groups of rows, each of which becomes one row: rows [begin[r], end[r]). Groups do not overlap,
 * but rows may belong to none, and groups may be empty (begin == end). The arrays are on the
 * device. */
struct plm_row_groups {
  const int32_t *begin, *end; /* (R) */
  int64_t R;
};

/* Which elements of (N, D) are dropped (Srivastava et al. 2014), by draws from Philox with the
 * counter (column / 4, key of the row, purpose). A key names a row for the whole run, so a mask
 * does not depend on the rank, the micro-batch or the process that computes it. */
struct plm_dropout {
  uint64_t seed;
  uint32_t purpose;     /* PLM_PURPOSE_DROPOUT + 256 * the number of the place in the model */
  uint32_t drop;        /* 24-bit threshold: plm_dropout_threshold */
  float scale;          /* of what is kept: 1 / (1 - rate) */
  const uint64_t *keys; /* (N), device; plm_dropout_key */
};

/* The key of position x in chunk g of the run. */
static inline uint64_t plm_dropout_key(uint64_t g, uint32_t x)
{
  return g << 20 | x; /* chunks have at most 2^20 tokens */
}

/* Dropout at place number `place` with this rate, which is below 1. */
static inline struct plm_dropout plm_dropout_of(uint64_t seed, uint32_t place, double rate,
                                                const uint64_t *keys)
{
  return (struct plm_dropout){seed, PLM_PURPOSE_DROPOUT + 256 * place, (uint32_t)(rate * 0x1p24),
                              (float)(1 / (1 - rate)), keys};
}

PLM_HOST_AND_DEVICE static inline bool plm_dropout_drops(const struct plm_dropout *dropout,
                                                         uint32_t word)
{
  return (word >> 8) < dropout->drop;
}

/* What outputs are compared with. */
enum plm_label_loss {
  PLM_LOSS_SQUARES, /* squared error: (z - y)^2 for each output */
  PLM_LOSS_CLASS,   /* softmax cross-entropy of one class */
  PLM_LOSS_CLASSES  /* binary cross-entropy for each output, whose target is 0 to 1 */
};

/* Labels of N rows with O outputs each. All pointers are to device memory. */
struct plm_label_rows {
  enum plm_label_loss kind;
  int64_t N, O;
  const int32_t *classes; /* (N) in [0, O), or -1: missing. With PLM_LOSS_CLASS */
  const float *targets;   /* (N, O), NaN: missing. With the other kinds */
  const float *weights;   /* (O) of classes or outputs; NULL: all are 1 */
  float *hits; /* (N), an output: 1 if the row's class is not missing and no output is larger than
                * its own, else 0 (always 0 for the other kinds). NULL: not wanted */
};

#endif
