/* Internals of the CPU backend that its files share. Nothing outside kernels/cpu includes this.
 *
 * The work has three levels. Operators (ops_*.c) cut their rows into tiles and hand the tiles to
 * the thread pool. The pool runs each tile on one thread. The arithmetic of a tile is a vector
 * kernel (isa/), which is compiled once for each instruction set and chosen when the backend opens.
 *
 * The extent of a tile depends only on the shape, never on the number of threads, and partial sums
 * are combined in the order of the tiles. Any number of threads therefore gives the same bits. The
 * only exception is the gradient of weights in fp32 (ops_linear_weight.c).
 */
#ifndef PLM_KERNELS_CPU_CPU_OPS_H
#define PLM_KERNELS_CPU_CPU_OPS_H

#include "common/base/process/pool.h"
#include "common/ops/ops.h"
#include "kernels/cpu/cpu_vector.h"

/* Most threads of a backend: more would not speed up a step on one host. */
enum { PLM_CPU_THREADS_LIMIT = 256 };

enum plm_isa { PLM_ISA_PORTABLE, PLM_ISA_AVX2, PLM_ISA_AVX512, PLM_ISA_COUNT };

struct plm_products;     /* product.h: cached matrix products */
struct plm_row_products; /* row_product.h */
struct plm_int8_kernel;  /* int8_kernel.h */

/* ops->context of the CPU backend. */
struct plm_cpu {
  struct plm_ops ops;
  enum plm_isa isa;
  bool bf16;   /* activations are bf16, else float */
  bool widens; /* bf16: products are fp32 ones of the widened operands (bf16_products.h) */
  const struct plm_int8_kernel *int8; /* NULL unless int8 was asked for */
  bool rounds_attention; /* int8: attention rounds to bf16, which is faster on this processor */
  struct plm_pool *pool;
  struct plm_cpu_vector vector; /* kernels for this isa and precision */
  struct plm_cpu_vector floats; /* the same for float activations; only if it widens */
  struct plm_products *products;
  struct plm_row_products *row_products;
  void *workspace; /* for one call of an operator: partial sums, conversions */
  size_t workspace_bytes;
  struct plm_error error; /* sticky, reported by ops->synchronize */
  void *attention;        /* struct plm_attention, opened by plm_cpu_attention_register */
};

static inline struct plm_cpu *plm_cpu_of(struct plm_ops *ops)
{
  return ops->context;
}

/* The best instruction set that the processor has and PLM_CPU_ISA leaves. */
enum plm_isa plm_cpu_best_isa(void);

/* How much of n a tile has that begins at `begin`: `size`, and the last one what is left. */
static inline int64_t plm_tile_extent(int64_t n, int64_t begin, int64_t size)
{
  const int64_t left = n - begin;
  return left < size ? left : size;
}

/* Address of an element of activations. Its size is known only at run time, because act is void. */
static inline const act *plm_act_at(const struct plm_cpu *cpu, const act *base, int64_t element)
{
  return (const char *)base + element * (int64_t)cpu->ops.act_bytes;
}

static inline act *plm_act_at_mutable(const struct plm_cpu *cpu, act *base, int64_t element)
{
  return (char *)base + element * (int64_t)cpu->ops.act_bytes;
}

/* Sum of squares in double. The sums of the tiles are added in the order of the tiles, so any
 * number of threads gives the same bits. */
double plm_cpu_sum_squares(struct plm_cpu *cpu, const float *x, size_t n);

/* Adds the sums of the tiles (tiles), each in the order of the tiles, to *totals[j], unless
 * totals[j] is NULL. */
enum { PLM_CPU_TILE_SUMS = 3 };
void plm_cpu_add_tile_sums(float (*sums)[PLM_CPU_TILE_SUMS], int64_t tiles,
                           float *const totals[PLM_CPU_TILE_SUMS]);

/* to_D += the sums of the columns of parts, (tiles, D) with rows `stride` floats apart, added in
 * the order of the tiles. */
void plm_cpu_add_tile_columns(struct plm_cpu *cpu, float *to, const float *parts, int64_t tiles,
                              int64_t stride, int64_t D);

/* Returns at least `bytes` of workspace for one call of an operator. It is kept between calls and
 * replaced if a call needs more; its contents are then lost. Returns NULL if there is no memory:
 * the error is kept in cpu->error, and the operator must do nothing. */
void *plm_cpu_workspace(struct plm_cpu *cpu, size_t bytes);

/* Floats of workspace that linear_backward_weight takes if operands are floats or widened. */
int64_t plm_cpu_linear_weight_floats(const struct plm_cpu *cpu, int64_t N, int64_t I, int64_t O);

/* Each function sets its operators in cpu->ops. plm_cpu_attention_register also opens
 * cpu->attention, which plm_cpu_attention_unregister closes; ops->close calls the latter even if
 * opening failed before the former. */
void plm_cpu_memory_register(struct plm_cpu *cpu);
void plm_cpu_workspace_register(struct plm_cpu *cpu);
void plm_cpu_elementwise_register(struct plm_cpu *cpu);
void plm_cpu_norm_register(struct plm_cpu *cpu);
void plm_cpu_layer_norm_register(struct plm_cpu *cpu);
void plm_cpu_qkv_register(struct plm_cpu *cpu);
void plm_cpu_cached_attention_register(struct plm_cpu *cpu);
void plm_cpu_table_register(struct plm_cpu *cpu);
void plm_cpu_token_dropout_register(struct plm_cpu *cpu);
void plm_cpu_linear_register(struct plm_cpu *cpu);
void plm_cpu_linear_weight_register(struct plm_cpu *cpu);
void plm_cpu_int8_register(struct plm_cpu *cpu);
void plm_cpu_head_register(struct plm_cpu *cpu);
void plm_cpu_labels_register(struct plm_cpu *cpu);
void plm_cpu_sums_register(struct plm_cpu *cpu);
void plm_cpu_optimizer_register(struct plm_cpu *cpu);
void plm_cpu_muon_register(struct plm_cpu *cpu);
void plm_cpu_targets_register(struct plm_cpu *cpu);
void plm_cpu_attention_register(struct plm_cpu *cpu);
void plm_cpu_attention_unregister(struct plm_cpu *cpu);

#endif
