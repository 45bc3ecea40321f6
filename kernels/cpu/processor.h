/* Determines which instructions the CPU backend may use: those of the processor, or fewer if
 * PLM_CPU_ISA is set. That variable limits the product library as well. The tests use it to run at
 * each level. */
#ifndef PLM_KERNELS_CPU_PROCESSOR_H
#define PLM_KERNELS_CPU_PROCESSOR_H

#include <stdbool.h>

#include "common/base/status.h"

/* Each level includes the instructions of the levels before it. PORTABLE is what the compiler
 * assumes: SSE2 on x86-64, NEON on aarch64. */
enum plm_processor_level {
  PLM_PROCESSOR_PORTABLE,
  PLM_PROCESSOR_AVX2,        /* with FMA and BMI2: Haswell, Zen */
  PLM_PROCESSOR_AVX512,      /* F, BW, CD, DQ and VL: Skylake-SP */
  PLM_PROCESSOR_AVX512_BF16, /* Cooper Lake, Zen 4 */
  PLM_PROCESSOR_AMX,         /* bf16 tiles, if Linux permits them: Sapphire Rapids */
  PLM_PROCESSOR_LEVELS
};

/* Returns the level in use; PORTABLE if PLM_CPU_ISA is invalid. If the processor has AMX, asks
 * Linux to permit it for all threads of the process. */
enum plm_processor_level plm_processor_level(void);

/* As cpuid reports it, "GenuineIntel"; "" if the processor has none. */
enum { PLM_PROCESSOR_VENDOR_SIZE = 13 };
void plm_processor_vendor(char vendor[PLM_PROCESSOR_VENDOR_SIZE]);

/* Whether the processor computes a vector of 64 bytes as two halves, so that both together cost as
 * much as the whole; of those known: Zen 4. */
bool plm_processor_splits_vectors(void);

/* Sets *level to the level that PLM_CPU_ISA names. If it is not set, *limited is false and *level
 * is the processor's. PLM_CONFIG: PLM_CPU_ISA names no level. PLM_UNSUPPORTED: the processor lacks
 * that level. */
plm_status plm_processor_limit(enum plm_processor_level *level, bool *limited,
                               struct plm_error *error);

/* "portable", "avx2", "avx512", "avx512_bf16", "amx" */
const char *plm_processor_level_name(enum plm_processor_level level);

#endif
