/* What the CUDA backend's shared object offers to the programs: one function, found by its name.
 * Programs and library are built apart, so each says which interface it was built with. */
#ifndef PLM_KERNELS_BACKEND_LIBRARY_H
#define PLM_KERNELS_BACKEND_LIBRARY_H

#include <stddef.h>
#include <stdint.h>

#include "common/ops/ops.h"

struct plm_backend_library {
  uint32_t struct_bytes; /* sizeof(struct plm_backend_library); first, whatever else changes */
  uint32_t ops_bytes;    /* sizeof(struct plm_ops) */
  const char *version;   /* of the programs built beside it */
  const char *interface; /* digest of the headers both sides are compiled with (Makefile) */
  uint64_t own_bytes;    /* of the device's memory, taken by open */
  /* act_bytes: 2 (bf16) or 4 (fp32, TF32 off). ordinal: of the device, counted as CUDA counts
   * (CUDA_VISIBLE_DEVICES). PLM_NOT_FOUND: no such device; PLM_UNSUPPORTED: the device or its
   * driver is too old. */
  plm_status (*open)(size_t act_bytes, int ordinal, struct plm_ops **ops, struct plm_error *error);
  /* Without a device, to plan with: name, act_bytes, muon_scratch, memory_size (0) and close. */
  plm_status (*plan)(size_t act_bytes, struct plm_ops **ops, struct plm_error *error);
};

#define PLM_BACKEND_ENTRY "plm_backend_entry"
typedef const struct plm_backend_library *(*plm_backend_entry_function)(void);

#endif
