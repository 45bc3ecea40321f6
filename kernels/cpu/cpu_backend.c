/* Opens and closes the CPU backend: chooses instruction set, precision and number of threads. */
#include "common/base/alloc.h"
#include "common/base/process/cgroup.h"
#include "kernels/cpu/cpu_ops.h"

#include <stdlib.h>
#include <string.h>

#include "common/ops/device.h"
#include "kernels/cpu/processor.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/row_product.h"

static void cpu_close(struct plm_ops *ops)
{
  struct plm_cpu *cpu = plm_cpu_of(ops);
  plm_cpu_attention_unregister(cpu);
  plm_pool_close(cpu->pool);
  plm_row_products_close(cpu->row_products);
  plm_products_close(cpu->products);
  free(cpu->workspace);
  free(cpu);
}

/* ---- choosing ---- */
static const char *const isa_names[PLM_ISA_COUNT] = {
    [PLM_ISA_PORTABLE] = "portable", [PLM_ISA_AVX2] = "avx2", [PLM_ISA_AVX512] = "avx512"};

static bool has_isa(enum plm_isa isa)
{
  static const enum plm_processor_level needed[PLM_ISA_COUNT] = {
      [PLM_ISA_PORTABLE] = PLM_PROCESSOR_PORTABLE,
      [PLM_ISA_AVX2] = PLM_PROCESSOR_AVX2,
      [PLM_ISA_AVX512] = PLM_PROCESSOR_AVX512,
  };
  return plm_processor_level() >= needed[isa];
}

/* Precision `auto` selects bf16 only if the processor multiplies bf16 natively. */
static bool has_native_bf16(void)
{
  return plm_processor_level() >= PLM_PROCESSOR_AVX512_BF16;
}

static plm_status choose_isa(const char *name, enum plm_isa *isa, struct plm_error *error)
{
  for (int i = PLM_ISA_COUNT - 1; i >= 0; i--) {
    if (name != NULL && strcmp(name, isa_names[i]) != 0) continue;
    if (has_isa((enum plm_isa)i)) {
      *isa = (enum plm_isa)i;
      return PLM_OK;
    }
    if (name != NULL)
      return plm_error_set(error, PLM_UNSUPPORTED, "this processor has no %s", name);
  }
  return plm_error_set(error, PLM_UNSUPPORTED, "unknown instruction set \"%s\"", name);
}

/* The bf16 kernels for AVX-512 need AVX512_BF16; without it, the AVX2 ones are used. */
static void fill_vector(struct plm_cpu *cpu)
{
#if defined(__x86_64__)
  const bool wide = cpu->isa == PLM_ISA_AVX512 && (!cpu->bf16 || has_native_bf16());
  const bool middle = cpu->isa == PLM_ISA_AVX512 || cpu->isa == PLM_ISA_AVX2;
#define FILL(part)                                         \
  if (wide)                                                \
    plm_cpu_fill_##part##_avx512(&cpu->vector, cpu->bf16); \
  else if (middle)                                         \
    plm_cpu_fill_##part##_avx2(&cpu->vector, cpu->bf16);   \
  else                                                     \
    plm_cpu_fill_##part##_portable(&cpu->vector, cpu->bf16);
#else
#define FILL(part) plm_cpu_fill_##part##_portable(&cpu->vector, cpu->bf16);
#endif
  PLM_CPU_VECTOR_FILLS(FILL)
#undef FILL
}

static uint32_t all_threads(void)
{
  const uint32_t count = plm_usable_cores();
  return count < PLM_CPU_THREADS_LIMIT ? count : PLM_CPU_THREADS_LIMIT;
}

plm_status plm_ops_cpu_open(enum plm_precision precision, uint32_t threads, const char *isa,
                            struct plm_ops **ops, struct plm_error *error)
{
  *ops = NULL;
  enum plm_isa chosen = PLM_ISA_PORTABLE;
  enum plm_processor_level level;
  bool limited;
  PLM_TRY(plm_processor_limit(&level, &limited, error));
  if (limited) plm_products_limit(level);
  PLM_TRY(choose_isa(isa, &chosen, error));
  if (precision == PLM_PRECISION_BF16 && !plm_products_have_bf16()) {
    plm_error_set(error, PLM_UNSUPPORTED,
                  "this processor, or the library that this build computes products with, has no "
                  "bf16 products");
    return plm_error_hint(error, "set trainer.precision to fp32 or auto");
  }
  if (threads > PLM_CPU_THREADS_LIMIT)
    return plm_error_set(error, PLM_LIMIT, "%u threads are more than %d", threads,
                         PLM_CPU_THREADS_LIMIT);
  struct plm_cpu *cpu = plm_alloc_zeroed(1, sizeof *cpu);
  cpu->isa = chosen;
  const bool auto_bf16 =
      precision == PLM_PRECISION_AUTO && has_native_bf16() && plm_products_have_bf16();
  cpu->bf16 = precision == PLM_PRECISION_BF16 || auto_bf16;
  cpu->ops.name = "cpu";
  cpu->ops.isa = isa_names[chosen];
  cpu->ops.products = plm_products_library();
  cpu->ops.act_bytes = cpu->bf16 ? 2 : 4;
  cpu->ops.threads = threads > 0 ? threads : all_threads();
  cpu->ops.context = cpu;
  fill_vector(cpu);
  cpu->ops.close = cpu_close;
  plm_cpu_memory_register(cpu);
  plm_cpu_elementwise_register(cpu);
  plm_cpu_norm_register(cpu);
  plm_cpu_layer_norm_register(cpu);
  plm_cpu_qkv_register(cpu);
  plm_cpu_cached_attention_register(cpu);
  plm_cpu_table_register(cpu);
  plm_cpu_token_dropout_register(cpu);
  plm_cpu_linear_register(cpu);
  plm_cpu_linear_weight_register(cpu);
  plm_cpu_head_register(cpu);
  plm_cpu_labels_register(cpu);
  plm_cpu_sums_register(cpu);
  plm_cpu_optimizer_register(cpu);
  plm_cpu_muon_register(cpu);
  plm_cpu_targets_register(cpu);
  plm_status status = plm_pool_open(cpu->ops.threads, &cpu->pool, error);
  if (status == PLM_OK) status = plm_products_open(cpu->ops.threads, &cpu->products, error);
  if (status != PLM_OK) {
    cpu_close(&cpu->ops);
    return status;
  }
  cpu->row_products = plm_row_products_open(cpu->products);
  plm_cpu_attention_register(cpu);
  *ops = &cpu->ops;
  return PLM_OK;
}
