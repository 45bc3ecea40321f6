/* Inside of the CPU backend: what its files share. Nothing outside kernels/cpu includes this.
 *
 * The work is split in three: operators (ops_*.c) cut their rows into tiles and hand the tiles to
 * the thread pool; the pool runs a tile on one thread; the arithmetic of a tile is a vector kernel
 * (isa/) that is compiled once for each instruction set and chosen when the backend opens.
 * A tile's extent depends on the shape alone, never on the number of threads, and partial sums are
 * combined in the order of the tiles, so that any number of threads gives the same bits. The
 * exception is the gradient of weights in bf16 (ops_linear_weight.c).
 */
#ifndef PLM_KERNELS_CPU_CPU_OPS_H
#define PLM_KERNELS_CPU_CPU_OPS_H

#include "common/ops/ops.h"
#include "kernels/cpu/cpu_vector.h"
#include "kernels/cpu/pool.h"

/* Threads of a backend at most: more do not help one host's step. */
enum { PLM_CPU_THREADS_LIMIT = 256 };

enum plm_isa { PLM_ISA_PORTABLE, PLM_ISA_AVX2, PLM_ISA_AVX512, PLM_ISA_COUNT };

struct plm_products;     /* product.h: cached matrix products */
struct plm_row_products; /* row_product.h */

/* ops->context of the CPU backend. */
struct plm_cpu {
  struct plm_ops ops;
  enum plm_isa isa;
  bool bf16; /* activations: bf16, else float */
  struct plm_pool *pool;
  struct plm_cpu_vector vector; /* the kernels of this isa and precision */
  struct plm_products *products;
  struct plm_row_products *row_products;
  void *workspace; /* of one operator's call: partial sums, conversions */
  size_t workspace_bytes;
  struct plm_error error; /* sticky, reported by ops->synchronize */
  void *attention; /* the attention operator's own: its scratch, taken by _attention_register */
};

static inline struct plm_cpu *plm_cpu_of(struct plm_ops *ops)
{
  return ops->context;
}

/* Elements of activations from a base: act pointers have no size of their own. */
static inline const act *plm_act_at(const struct plm_cpu *cpu, const act *base, int64_t element)
{
  return (const char *)base + element * (int64_t)cpu->ops.act_bytes;
}

static inline act *plm_act_at_mutable(const struct plm_cpu *cpu, act *base, int64_t element)
{
  return (char *)base + element * (int64_t)cpu->ops.act_bytes;
}

/* Sum of squares in double, tiles in their order: the same bits with any number of threads. */
double plm_cpu_sum_squares(struct plm_cpu *cpu, const float *x, size_t n);

/* At least `bytes` of workspace for one operator's call, kept and grown at a shape's first use.
 * NULL without memory (sticky): the operator does nothing. */
void *plm_cpu_workspace(struct plm_cpu *cpu, size_t bytes);

/* Each sets its operators in cpu->ops. The attention pair also takes (cpu->attention) and frees
 * what it needs; unregister is called by ops->close, also when register failed. */
void plm_cpu_memory_register(struct plm_cpu *cpu);
void plm_cpu_elementwise_register(struct plm_cpu *cpu);
void plm_cpu_norm_register(struct plm_cpu *cpu);
void plm_cpu_cached_attention_register(struct plm_cpu *cpu);
void plm_cpu_table_register(struct plm_cpu *cpu);
void plm_cpu_linear_register(struct plm_cpu *cpu);
void plm_cpu_linear_weight_register(struct plm_cpu *cpu);
void plm_cpu_head_register(struct plm_cpu *cpu);
void plm_cpu_optimizer_register(struct plm_cpu *cpu);
void plm_cpu_muon_register(struct plm_cpu *cpu);
void plm_cpu_targets_register(struct plm_cpu *cpu);
plm_status plm_cpu_attention_register(struct plm_cpu *cpu, struct plm_error *error);
void plm_cpu_attention_unregister(struct plm_cpu *cpu);

#endif
