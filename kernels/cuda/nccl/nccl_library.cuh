/* The functions of NCCL that the backend calls. libnccl.so.2 is loaded when several ranks first use
 * it, so one process without others needs neither the library nor, to be built, nccl.h. */
#ifndef PLM_KERNELS_CUDA_NCCL_NCCL_LIBRARY_CUH
#define PLM_KERNELS_CUDA_NCCL_NCCL_LIBRARY_CUH

#include "kernels/cuda/device/platform.cuh"

extern "C" {
#include "common/base/status.h"
}

enum { PLM_NCCL_OLDEST = 22800 }; /* 2.28.0, the first one with ncclAlltoAll */

#ifdef PLM_EMULATE
#include "emulation/emulated_nccl.h"
#define PLM_HAS_NCCL 1
#elif __has_include(<nccl.h>)
#include <nccl.h>
#if NCCL_VERSION_CODE >= 22800
#define PLM_HAS_NCCL 1
#endif
#endif
#ifndef PLM_HAS_NCCL
#define PLM_HAS_NCCL 0
#endif

#if PLM_HAS_NCCL

struct plm_nccl_functions {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) init;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclCommFinalize) finalize;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclAlltoAll) all_to_all;
};

/* Loads the library that the environment variable PLM_NCCL_LIBRARY names, or libnccl.so.2, once in
 * a process. *version is its version, as NCCL counts: 22809 is 2.28.9. PLM_CONFIG: there is none,
 * or it is older than PLM_NCCL_OLDEST. */
plm_status plm_nccl_load(const struct plm_nccl_functions **functions, int *version,
                         struct plm_error *error);

#endif
#endif
