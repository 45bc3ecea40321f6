/* Compares operators of a device, at the shapes of the models, with the CPU backend in fp32 on the
 * same inputs (rounded to bf16 for bf16): |difference| / |result| of everything that they write.
 * For the programs of tests/gpu that name the operators. */
#ifndef PLM_TESTS_SUPPORT_OPERATORS_OPERATOR_SAMPLE_H
#define PLM_TESTS_SUPPORT_OPERATORS_OPERATOR_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/ops/ops.h"

enum { SAMPLE_V = 33, SAMPLE_OPERANDS = 12, SAMPLES_MAX = 64 };

/* Of all samples, named as in ops.h, and the masks of documents on the CPU and on the device. */
struct sample_sizes {
  int64_t N, D, F, B, L, H, K;
  struct plm_interval_mask masks[2];
};

/* A decoder's values are so small that logits are of order 1. */
enum operand_kind { NONE, ACT, DECODER, FLOAT, TOKENS, LABELS, ROWS };
enum operand_use { IN, OUT, BOTH };
struct operand {
  enum operand_kind kind;
  enum operand_use use;
  int64_t count;
};

struct sample {
  const char *name;
  /* b: the operands in their order; side: 0 for the CPU, 1 for the device */
  void (*call)(struct plm_ops *ops, void **b, int side);
  double allowed_fp32, allowed_bf16;
  struct operand operands[SAMPLE_OPERANDS];
};

/* Writes the samples for these sizes, which stay valid, and returns their number. */
typedef size_t sample_fill(struct sample samples[SAMPLES_MAX], const struct sample_sizes *sizes);
/* The main function of a program PROGRAM [TOKENS]. TOKENS is 8192 if not given; below 1024 the
 * widths are small as well. Prints a line for each comparison, with tabs: operator, shape,
 * precision, error, allowed error, good or WRONG. Returns whether one was wrong. */
int operator_samples_run(int argc, char **argv, sample_fill *fill);

/* Rows of a table of samples: the call has the name of the sample, or another one. */
#define NAMED(name, call, fp32, bf16, ...) \
  {                                        \
    name, call, fp32, bf16,                \
    {                                      \
      __VA_ARGS__                          \
    }                                      \
  }
#define SAMPLE(call, ...) NAMED(#call, call, __VA_ARGS__)
#define CALL(name) static void name(struct plm_ops *ops, void **b, __attribute__((unused)) int side)

#endif
