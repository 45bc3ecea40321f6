/* Asking the processor and Linux for AMX. */
#include "kernels/cpu/amx.h"

#if defined(__x86_64__)
#include <asm/prctl.h>
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Linux 5.16 */
#ifndef ARCH_REQ_XCOMP_PERM
#define ARCH_REQ_XCOMP_PERM 0x1023
#endif

bool plm_cpu_amx_ready(void)
{
  enum { LEAF = 7, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, TILE_DATA = 18 /* XSAVE's feature */ };
  unsigned a, b, c, d;
  if (!__get_cpuid_count(LEAF, 0, &a, &b, &c, &d)) return false;
  if ((d & AMX_BF16) == 0 || (d & AMX_TILE) == 0) return false;
  if (!__builtin_cpu_supports("avx512bf16")) return false;
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}
#else
bool plm_cpu_amx_ready(void)
{
  return false;
}
#endif
