/* What the shared object of the CUDA backend offers to the programs: one function, found by name.
 * Programs and library are built separately, so the library states the interface that it was built
 * with, and the programs compare it with their own. */
#ifndef PLM_KERNELS_BACKEND_LIBRARY_H
#define PLM_KERNELS_BACKEND_LIBRARY_H

#include <stddef.h>
#include <stdint.h>

#include "common/ops/ops.h"

struct plm_backend_library {
  uint32_t struct_bytes; /* sizeof(struct plm_backend_library); always the first field */
  uint32_t ops_bytes;    /* sizeof(struct plm_ops) */
  const char *version;   /* of the programs built together with it */
  const char *interface; /* digest of the headers that both sides are compiled with (Makefile) */
  uint64_t own_bytes;    /* device memory that open takes for the backend itself */
  /* act_bytes: 2 (bf16) or 4 (fp32, TF32 off). ordinal: number of the device as CUDA counts it, so
   * CUDA_VISIBLE_DEVICES changes it. PLM_NOT_FOUND: there is no such device. PLM_UNSUPPORTED: the
   * device or its driver is too old. PLM_BUSY: another process holds the device. */
  plm_status (*open)(size_t act_bytes, int ordinal, struct plm_ops **ops, struct plm_error *error);
  /* How many devices this process sees. */
  int (*count_devices)(void);
  /* Opens operators to estimate with, without a device. Only name, act_bytes, threads,
   * muon_scratch, memory_size (which reports 0) and close may be used. */
  plm_status (*preview)(size_t act_bytes, struct plm_ops **ops, struct plm_error *error);
};

#define PLM_BACKEND_ENTRY "plm_backend_entry"
typedef const struct plm_backend_library *(*plm_backend_entry_function)(void);

#endif
