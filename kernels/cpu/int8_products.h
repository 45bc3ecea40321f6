/* Chooses the kernel of int8 products by the processor's instructions, and says what it gains. The
 * bits do not depend on the choice. */
#ifndef PLM_KERNELS_CPU_INT8_PRODUCTS_H
#define PLM_KERNELS_CPU_INT8_PRODUCTS_H

#include <stdbool.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/int8_kernel.h"

/* The instructions that multiply int8, beyond those of an instruction set. */
struct plm_int8_machine {
  bool avx512_vnni, avx_vnni;
};

/* This machine, as far as PLM_CPU_ISA lets it be used. */
struct plm_int8_machine plm_int8_machine(void);

/* The best kernel of a machine for this instruction set of the backend. */
const struct plm_int8_kernel *plm_int8_kernel_of(enum plm_isa isa,
                                                 const struct plm_int8_machine *machine);

/* What int8 gains beside fp32 with that kernel, as a sentence without a full stop, and whether that
 * is time. */
const char *plm_int8_gain(enum plm_isa isa, const struct plm_int8_machine *machine, bool *faster);

#endif
