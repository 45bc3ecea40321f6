/* Decides on which processors bf16 products are computed with bf16 instructions. On the others they
 * are fp32 products of the same values, because their bf16 instructions are slower or missing. The
 * choice follows from a table, not from a measurement, so that it is the same in each start.
 */
#ifndef PLM_KERNELS_CPU_BF16_PRODUCTS_H
#define PLM_KERNELS_CPU_BF16_PRODUCTS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/processor.h"

/* What the choice depends on. */
struct plm_bf16_machine {
  enum plm_processor_level level; /* of the processor or the product library, the lesser one */
  char vendor[PLM_PROCESSOR_VENDOR_SIZE]; /* as plm_processor_vendor has it */
  uint32_t library;                       /* plm_products_kind().version */
};

/* This machine, as far as PLM_CPU_ISA and the library's limit let it be used. */
struct plm_bf16_machine plm_bf16_machine(void);

/* Whether bf16 instructions can be used at all. */
bool plm_bf16_has_native(const struct plm_bf16_machine *machine);

/* Whether they are faster than fp32 ones, by the table. */
bool plm_bf16_is_faster(const struct plm_bf16_machine *machine);

/* What bf16 gains, as a sentence without a full stop. */
const char *plm_bf16_gain(const struct plm_bf16_machine *machine);

#endif
