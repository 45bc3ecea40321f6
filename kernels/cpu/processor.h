/* Which instructions the CPU backend may use: those of the processor, or fewer if PLM_CPU_ISA says
 * so. That variable makes a processor pretend to be a lesser one, for the library of products, too;
 * the tests run at each level in this way. */
#ifndef PLM_KERNELS_CPU_PROCESSOR_H
#define PLM_KERNELS_CPU_PROCESSOR_H

#include <stdbool.h>

#include "common/base/status.h"

/* Each has the instructions of those before it. PORTABLE is what the compiler assumes: SSE2 on
 * x86-64, NEON on aarch64. */
enum plm_processor_level {
  PLM_PROCESSOR_PORTABLE,
  PLM_PROCESSOR_AVX2,        /* with FMA and BMI2: Haswell, Zen */
  PLM_PROCESSOR_AVX512,      /* F, BW, CD, DQ and VL: Skylake-SP */
  PLM_PROCESSOR_AVX512_BF16, /* Cooper Lake, Zen 4 */
  PLM_PROCESSOR_AMX, /* bf16 in tiles, if Linux lets the process use them: Sapphire Rapids */
  PLM_PROCESSOR_LEVELS
};

/* The level in use. Asks Linux for AMX, for all threads of the process. */
enum plm_processor_level plm_processor_level(void);

/* PLM_CPU_ISA's level, which is at most the processor's; *limited is false if it is not set.
 * PLM_CONFIG: it names no level; PLM_UNSUPPORTED: the processor lacks it. */
plm_status plm_processor_limit(enum plm_processor_level *level, bool *limited,
                               struct plm_error *error);

/* "portable", "avx2", "avx512", "avx512_bf16", "amx" */
const char *plm_processor_level_name(enum plm_processor_level level);

#endif
