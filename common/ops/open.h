/* Opens a backend (kernels/backend.c): the CPU backend, which is linked into the program, or the
 * CUDA backend, a shared object that is loaded only if it is asked for or a device may exist.
 *
 * libplm_cuda.so is looked for in ../lib/plm-pipeline/ from the program's folder
 * (common/base/process/library_path.h). The environment variable PLM_CUDA_LIBRARY names another
 * file, and that file is then tried even if no device is found. The library stays loaded until the
 * program ends. */
#ifndef PLM_COMMON_OPS_OPEN_H
#define PLM_COMMON_OPS_OPEN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/ops/device.h"
#include "common/ops/ops.h"

#define PLM_CUDA_LIBRARY "PLM_CUDA_LIBRARY"

struct plm_ops_request {
  enum plm_device device;
  /* auto: bf16 if the device computes faster in it, else fp32. int8: device auto is the CPU. */
  enum plm_precision precision;
  enum plm_bf16_products bf16; /* of the CPU backend */
  uint32_t threads;            /* of the CPU backend; 0 for all */
  const char *isa;             /* of the CPU backend; NULL for the best */
  int ordinal;                 /* CUDA's number of the device */
  bool of_rank; /* ordinal is the number of a rank on its host; if only one device is visible, all
                 * ranks take that one */
};

/* Opens the backend that is asked for; the caller closes *ops with (*ops)->close.
 *
 * auto  CUDA if it can be used, else the CPU. If a device exists but cannot be used, a warning says
 *       why; if there is none, nothing is said.
 * cuda  PLM_CONFIG if there is no library, the library is from another build, there is no device,
 *       the device or its driver is too old, there are fewer devices than ranks, but several, or
 *       the precision is int8.
 *
 * Other errors are those of plm_ops_cpu_open, and PLM_NO_MEMORY. */
plm_status plm_ops_open(const struct plm_ops_request *request, struct plm_ops **ops,
                        struct plm_error *error);

/* Name of the level of instructions that the CPU backend and its product library may use: that of
 * the processor, or a lesser one that PLM_CPU_ISA names. See doc/processors.md#levels. */
const char *plm_ops_cpu_level(void);

/* How a new run of this processor in bf16 computes products: native or by fp32 ones, never auto. */
enum plm_bf16_products plm_ops_cpu_bf16_products(void);

/* What int8 gains on this processor beside fp32, as a sentence without a full stop, and whether
 * that is time. */
const char *plm_ops_cpu_int8_gain(bool *faster);

/* What bf16 gains on this processor beside fp32, as a sentence without a full stop. */
const char *plm_ops_cpu_bf16_gain(void);

/* What the memory estimate needs to know about a backend. If `device: cuda` is asked for and cannot
 * be opened, ops can only be used for the estimate: only name, act_bytes, muon_scratch, memory_size
 * (which reports 0) and close are set. */
struct plm_ops_preview {
  struct plm_ops *ops;
  uint64_t own_bytes; /* device memory that the backend takes for itself when it is opened */
  bool partial;       /* the library was not found, so own_bytes and muon_scratch are 0 (unknown) */
  struct plm_error why; /* why opening failed; its status is PLM_OK if the backend is open */
};

/* The caller closes preview->ops. Errors are those of plm_ops_open, except that a failure to open
 * `device: cuda` is reported in preview->why instead of as an error. */
plm_status plm_ops_preview(const struct plm_ops_request *request, struct plm_ops_preview *preview,
                           struct plm_error *error);

#endif
