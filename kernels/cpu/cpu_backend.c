/* Opens and closes the CPU backend: chooses instruction set, precision and number of threads. */
#include "common/base/alloc.h"
#include "common/base/process/cgroup.h"
#include "kernels/cpu/bf16_products.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/int8_products.h"

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

enum plm_isa plm_cpu_best_isa(void)
{
  int isa = PLM_ISA_COUNT - 1;
  while (isa > PLM_ISA_PORTABLE && !has_isa((enum plm_isa)isa)) isa--;
  return (enum plm_isa)isa;
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
static void fill_vector(const struct plm_cpu *cpu, struct plm_cpu_vector *vector, bool is_bf16)
{
#if defined(__x86_64__)
  const bool wide = cpu->isa == PLM_ISA_AVX512 &&
                    (!cpu->bf16 || plm_processor_level() >= PLM_PROCESSOR_AVX512_BF16);
  const bool middle = cpu->isa == PLM_ISA_AVX512 || cpu->isa == PLM_ISA_AVX2;
#define FILL(part)                                 \
  if (wide)                                        \
    plm_cpu_fill_##part##_avx512(vector, is_bf16); \
  else if (middle)                                 \
    plm_cpu_fill_##part##_avx2(vector, is_bf16);   \
  else                                             \
    plm_cpu_fill_##part##_portable(vector, is_bf16);
#else
#define FILL(part) plm_cpu_fill_##part##_portable(vector, is_bf16);
#endif
  PLM_CPU_VECTOR_FILLS(FILL)
#undef FILL
}

static uint32_t all_threads(void)
{
  const uint32_t count = plm_usable_cores();
  return count < PLM_CPU_THREADS_LIMIT ? count : PLM_CPU_THREADS_LIMIT;
}

/* Decides about the precision and how bf16 operands are multiplied. */
static plm_status choose_precision(struct plm_cpu *cpu, const struct plm_cpu_request *request,
                                   struct plm_error *error)
{
  const struct plm_bf16_machine machine = plm_bf16_machine();
  const bool faster = plm_bf16_is_faster(&machine);
  if (request->bf16 == PLM_BF16_NATIVE && !plm_bf16_has_native(&machine)) {
    plm_error_set(error, PLM_UNSUPPORTED,
                  "this processor, or the library that this build computes products with, has no "
                  "bf16 instructions");
    return plm_error_hint(error, "let bf16 be computed by fp32 products");
  }
  cpu->bf16 = request->precision == PLM_PRECISION_BF16 ||
              (request->precision == PLM_PRECISION_AUTO && faster);
  cpu->widens =
      cpu->bf16 && (request->bf16 == PLM_BF16_AUTO ? !faster : request->bf16 == PLM_BF16_BY_FP32);
  if (cpu->bf16)
    cpu->ops.bf16_products =
        plm_bf16_products_names[cpu->widens ? PLM_BF16_BY_FP32 : PLM_BF16_NATIVE];
  if (request->precision == PLM_PRECISION_INT8) {
    const struct plm_int8_machine int8 = plm_int8_machine();
    cpu->int8 = plm_int8_kernel_of(cpu->isa, &int8);
    cpu->rounds_attention = faster;
    cpu->ops.int8 = true;
  }
  return PLM_OK;
}

plm_status plm_ops_cpu_open(enum plm_precision precision, uint32_t threads, const char *isa,
                            struct plm_ops **ops, struct plm_error *error)
{
  const struct plm_cpu_request request = {.precision = precision, .threads = threads, .isa = isa};
  return plm_ops_cpu_open_as(&request, ops, error);
}

plm_status plm_ops_cpu_open_as(const struct plm_cpu_request *request, struct plm_ops **ops,
                               struct plm_error *error)
{
  const uint32_t threads = request->threads;
  *ops = NULL;
  enum plm_isa chosen = PLM_ISA_PORTABLE;
  enum plm_processor_level level;
  bool limited;
  PLM_TRY(plm_processor_limit(&level, &limited, error));
  if (limited) plm_products_limit(level);
  PLM_TRY(choose_isa(request->isa, &chosen, error));
  if (threads > PLM_CPU_THREADS_LIMIT)
    return plm_error_set(error, PLM_LIMIT, "%u threads are more than %d", threads,
                         PLM_CPU_THREADS_LIMIT);
  struct plm_cpu *cpu = plm_alloc_zeroed(1, sizeof *cpu);
  cpu->isa = chosen;
  plm_status status = choose_precision(cpu, request, error);
  if (status != PLM_OK) {
    free(cpu);
    return status;
  }
  cpu->ops.name = "cpu";
  cpu->ops.isa = isa_names[chosen];
  cpu->ops.products = plm_products_library();
  cpu->ops.act_bytes = cpu->bf16 ? 2 : 4;
  cpu->ops.shares_rows = true;
  cpu->ops.threads = threads > 0 ? threads : all_threads();
  cpu->ops.context = cpu;
  fill_vector(cpu, &cpu->vector, cpu->bf16);
  if (cpu->widens) fill_vector(cpu, &cpu->floats, false);
  cpu->ops.close = cpu_close;
  plm_cpu_memory_register(cpu);
  plm_cpu_workspace_register(cpu);
  plm_cpu_elementwise_register(cpu);
  plm_cpu_norm_register(cpu);
  plm_cpu_layer_norm_register(cpu);
  plm_cpu_qkv_register(cpu);
  plm_cpu_cached_attention_register(cpu);
  plm_cpu_table_register(cpu);
  plm_cpu_token_dropout_register(cpu);
  plm_cpu_linear_register(cpu);
  plm_cpu_linear_weight_register(cpu);
  plm_cpu_int8_register(cpu);
  plm_cpu_head_register(cpu);
  plm_cpu_labels_register(cpu);
  plm_cpu_sums_register(cpu);
  plm_cpu_optimizer_register(cpu);
  plm_cpu_muon_register(cpu);
  plm_cpu_targets_register(cpu);
  status = plm_pool_open(cpu->ops.threads, &cpu->pool, error);
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
