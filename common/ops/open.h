/* Opening what computes (kernels/backend.c): the CPU backend, linked in, or the CUDA backend, a
 * shared object that is loaded where it is wanted and a device may be.
 *
 * libplm_cuda.so is looked for in ../lib/ from the program's own folder, as `make` builds it and as
 * an installation (PREFIX/bin, PREFIX/lib) has it; the environment variable PLM_CUDA_LIBRARY names
 * another file, which is then taken to have its device. It stays loaded until the program ends. */
#ifndef PLM_COMMON_OPS_OPEN_H
#define PLM_COMMON_OPS_OPEN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/ops/device.h"
#include "common/ops/ops.h"

#define PLM_CUDA_LIBRARY "PLM_CUDA_LIBRARY"

struct plm_ops_request {
  enum plm_device device;
  enum plm_precision precision; /* auto: bf16 where the device computes in it, else fp32 */
  uint32_t threads;             /* on the CPU; 0: all */
  const char *isa;              /* on the CPU; NULL: the best */
  int ordinal;                  /* which CUDA device, counted as CUDA counts */
};

/* auto: CUDA, else the CPU: silently where there is no device, with one line where there is one
 * that cannot be used. cuda: PLM_CONFIG when there is no library, one of another build, no device,
 * or one that is too old (or its driver). Otherwise as plm_ops_cpu_open, and PLM_NO_MEMORY. */
plm_status plm_ops_open(const struct plm_ops_request *request, struct plm_ops **ops,
                        struct plm_error *error);

/* What plans of memory rest on. Where device: cuda cannot be opened, ops has name, act_bytes,
 * muon_scratch, memory_size (which says 0) and close alone. */
struct plm_ops_plan {
  struct plm_ops *ops;
  uint64_t own_bytes;   /* of the device's memory, that the backend takes for itself when opened */
  bool partial;         /* no library: own_bytes and muon_scratch are 0, not known */
  struct plm_error why; /* of the opening that failed; status PLM_OK: it is open */
};

/* plan->ops is the caller's to close. Errors as plm_ops_open, but for device: cuda. */
plm_status plm_ops_plan(const struct plm_ops_request *request, struct plm_ops_plan *plan,
                        struct plm_error *error);

#endif
