/* A check in a process of its own. A fault of a device is final for the process that caused it:
 * every later call of CUDA returns the same error, also after a reset. */
#ifndef PLM_KERNELS_CUDA_CHECKS_CHECK_PROCESS_CUH
#define PLM_KERNELS_CUDA_CHECKS_CHECK_PROCESS_CUH

extern "C" {
#include "common/base/status.h"
}

/* Runs check(context, error) in a child of this process and returns what it returned, with its
 * error. PLM_FAILURE if the child was killed, PLM_TIMEOUT if it did not end in time; it is gone in
 * either case. The calling process must not have used CUDA yet, because a child cannot use what its
 * parent has initialised. */
plm_status plm_cuda_check_apart(plm_status (*check)(void *context, struct plm_error *error),
                                void *context, struct plm_error *error);

#endif
