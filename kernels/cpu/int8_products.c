/* Which int8 kernel a processor gets, and a table of what each gains. */
#include "kernels/cpu/int8_products.h"

#include <stddef.h>

#include "kernels/cpu/processor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* What a kernel gains beside the fp32 products of an instruction set. */
struct row {
  const struct plm_int8_kernel *kernel;
  enum plm_isa most; /* the best instruction set of which this holds */
  bool faster;
  const char *gain;
};

/* The figures are those of doc/processors.md. */
static const struct row rows[] = {
#if defined(__x86_64__)
    {&plm_int8_kernel_avx512_vnni, PLM_ISA_AVX512, true,
     "int8 is faster than fp32 here: its products use AVX512_VNNI (3 to 4 times the rate of fp32 "
     "products, measured on Zen 4)"},
    {&plm_int8_kernel_avx_vnni, PLM_ISA_AVX512, true,
     "int8 is probably faster than fp32 here: its products use AVX-VNNI, which has four times "
     "the peak rate of fp32 with AVX2 (not measured)"},
    {&plm_int8_kernel_avx2, PLM_ISA_AVX2, true,
     "int8 is faster than fp32 here: its products use AVX2 (1.4 to 2 times the rate of fp32 "
     "products, measured on Zen 3)"},
    {&plm_int8_kernel_avx2, PLM_ISA_AVX512, false,
     "int8 saves memory but perhaps no time here: its products use AVX2, because this processor "
     "has no VNNI, and fp32 uses AVX-512"},
#endif
    {&plm_int8_kernel_portable, PLM_ISA_AVX512, false,
     "int8 saves memory but perhaps no time here: this build has no fast int8 products for the "
     "processor, or PLM_CPU_ISA excludes them"},
};

struct plm_int8_machine plm_int8_machine(void)
{
  struct plm_int8_machine machine = {0};
#if defined(__x86_64__)
  enum { LEAF = 7, AVX_VNNI = 1 << 4, AVX512_VNNI = 1 << 11 };
  unsigned a, b, c, d;
  const enum plm_processor_level level = plm_processor_level();
  if (__get_cpuid_count(LEAF, 0, &a, &b, &c, &d))
    machine.avx512_vnni = level >= PLM_PROCESSOR_AVX512 && (c & AVX512_VNNI) != 0;
  if (__get_cpuid_count(LEAF, 1, &a, &b, &c, &d))
    machine.avx_vnni = level >= PLM_PROCESSOR_AVX2 && (a & AVX_VNNI) != 0;
#endif
  return machine;
}

const struct plm_int8_kernel *plm_int8_kernel_of(enum plm_isa isa,
                                                 const struct plm_int8_machine *machine)
{
#if defined(__x86_64__)
  if (isa >= PLM_ISA_AVX512 && machine->avx512_vnni) return &plm_int8_kernel_avx512_vnni;
  if (isa >= PLM_ISA_AVX2)
    return machine->avx_vnni ? &plm_int8_kernel_avx_vnni : &plm_int8_kernel_avx2;
#else
  (void)isa;
  (void)machine;
#endif
  return &plm_int8_kernel_portable;
}

const char *plm_int8_gain(enum plm_isa isa, const struct plm_int8_machine *machine, bool *faster)
{
  const struct plm_int8_kernel *kernel = plm_int8_kernel_of(isa, machine);
  const struct row *row = rows;
  while (row->kernel != kernel || row->most < isa) row++;
  *faster = row->faster;
  return row->gain;
}
