/* The part of nccl.h that kernels/cuda uses, for the emulation (tests/emulation/nccl). */
#ifndef PLM_TESTS_EMULATION_EMULATED_NCCL_H
#define PLM_TESTS_EMULATION_EMULATED_NCCL_H

#include "tests/emulation/runtime.h"

enum { NCCL_UNIQUE_ID_BYTES = 128 };
struct ncclUniqueId {
  char internal[NCCL_UNIQUE_ID_BYTES];
};
struct ncclComm;
typedef struct ncclComm *ncclComm_t;
enum ncclResult_t { ncclSuccess, ncclSystemError = 2, ncclInvalidUsage = 5, ncclInProgress = 7 };
enum ncclDataType_t { ncclInt8 };
struct ncclConfig_t {
  int blocking;
};
#define NCCL_CONFIG_INITIALIZER \
  {                             \
    1                           \
  }

extern "C" {
ncclResult_t ncclGetVersion(int *version);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAlltoAll(const void *from, void *to, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream);
}

#endif
