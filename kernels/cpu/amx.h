/* AMX, the matrix tiles of Intel's Xeons from Sapphire Rapids on. */
#ifndef PLM_KERNELS_CPU_AMX_H
#define PLM_KERNELS_CPU_AMX_H

#include <stdbool.h>

/* Whether the processor multiplies bf16 in tiles and Linux lets this process use them; asks for
 * that, which holds for all its threads. */
bool plm_cpu_amx_ready(void);

#endif
