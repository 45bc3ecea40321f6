/* Finds out from the processor, Linux and PLM_CPU_ISA which instructions may be used. */
#include "kernels/cpu/processor.h"

#include <stdlib.h>
#include <string.h>

static const char *const NAMES[PLM_PROCESSOR_LEVELS] = {
    [PLM_PROCESSOR_PORTABLE] = "portable", [PLM_PROCESSOR_AVX2] = "avx2",
    [PLM_PROCESSOR_AVX512] = "avx512",     [PLM_PROCESSOR_AVX512_BF16] = "avx512_bf16",
    [PLM_PROCESSOR_AMX] = "amx",
};

#if defined(__x86_64__)
#include <asm/prctl.h>
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Headers older than Linux 5.16 lack it. */
#ifndef ARCH_REQ_XCOMP_PERM
#define ARCH_REQ_XCOMP_PERM 0x1023
#endif

static bool has_amx(void)
{
  enum { LEAF = 7, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, TILE_DATA = 18 /* the XSAVE feature */ };
  unsigned a, b, c, d;
  if (!__get_cpuid_count(LEAF, 0, &a, &b, &c, &d)) return false;
  if ((d & AMX_BF16) == 0 || (d & AMX_TILE) == 0) return false;
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

void plm_processor_vendor(char vendor[PLM_PROCESSOR_VENDOR_SIZE])
{
  unsigned highest, parts[3];
  memset(vendor, 0, PLM_PROCESSOR_VENDOR_SIZE);
  if (__get_cpuid(0, &highest, &parts[0], &parts[2], &parts[1]))
    memcpy(vendor, parts, sizeof parts);
}

bool plm_processor_splits_vectors(void)
{
  enum { FAMILY = 0x19 /* Zen 3 and Zen 4; Zen 3 has no such vectors */ };
  char vendor[PLM_PROCESSOR_VENDOR_SIZE];
  unsigned a, b, c, d;
  plm_processor_vendor(vendor);
  if (strcmp(vendor, "AuthenticAMD") != 0 || !__get_cpuid(1, &a, &b, &c, &d)) return false;
  const unsigned base = a >> 8 & 0xf, extension = a >> 20 & 0xff;
  return base + extension == FAMILY;
}

static enum plm_processor_level processor_of_host(void)
{
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi2"))
    return PLM_PROCESSOR_PORTABLE;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512cd") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl"))
    return PLM_PROCESSOR_AVX2;
  if (!__builtin_cpu_supports("avx512bf16")) return PLM_PROCESSOR_AVX512;
  return has_amx() ? PLM_PROCESSOR_AMX : PLM_PROCESSOR_AVX512_BF16;
}
#else
void plm_processor_vendor(char vendor[PLM_PROCESSOR_VENDOR_SIZE])
{
  memset(vendor, 0, PLM_PROCESSOR_VENDOR_SIZE);
}

bool plm_processor_splits_vectors(void)
{
  return false;
}

static enum plm_processor_level processor_of_host(void)
{
  return PLM_PROCESSOR_PORTABLE;
}
#endif

plm_status plm_processor_limit(enum plm_processor_level *level, bool *limited,
                               struct plm_error *error)
{
  const char *name = getenv("PLM_CPU_ISA");
  *level = processor_of_host();
  *limited = name != NULL && name[0] != '\0';
  if (!*limited) return PLM_OK;
  for (int i = 0; i < PLM_PROCESSOR_LEVELS; i++) {
    if (strcmp(name, NAMES[i]) != 0) continue;
    if (i > (int)*level)
      return plm_error_set(error, PLM_UNSUPPORTED, "PLM_CPU_ISA: this processor has no %s", name);
    *level = (enum plm_processor_level)i;
    return PLM_OK;
  }
  plm_error_set(error, PLM_CONFIG, "PLM_CPU_ISA: unknown instruction set \"%s\"", name);
  return plm_error_hint(error, "one of amx, avx512_bf16, avx512, avx2, portable");
}

enum plm_processor_level plm_processor_level(void)
{
  enum plm_processor_level level;
  bool limited;
  return plm_processor_limit(&level, &limited, NULL) == PLM_OK ? level : PLM_PROCESSOR_PORTABLE;
}

const char *plm_processor_level_name(enum plm_processor_level level)
{
  return NAMES[level];
}
