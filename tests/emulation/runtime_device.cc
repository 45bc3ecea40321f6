/* The emulated runtime's devices, errors and kernels' attributes: see runtime.h. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include <unistd.h>

extern "C" {
#include "common/base/clock.h"
#include "tests/emulation/controls.h"
}
#include "tests/emulation/card.h"
#include "tests/emulation/emulation.h"
#include "tests/emulation/runtime.h"

namespace plm::emulation
{

namespace
{

enum { UNASKED_SHARED_BYTES = 48 << 10 };

std::map<const void *, size_t> shared_limits; /* what kernels were allowed */
cudaError_t last_error = cudaSuccess;
cudaError_t fault = cudaSuccess; /* of the device: it stays */
uint64_t works_run, clock_ns, adds_seen;
int current_device;

bool exists(const std::string &file)
{
  return !file.empty() && access(file.c_str(), F_OK) == 0;
}

/* What a process finds that asks for the devices. */
cudaError_t devices_found()
{
  if (card().driver < CUDART_VERSION) return cudaErrorInsufficientDriver;
  if (card().count_answer != cudaSuccess) return card().count_answer;
  const bool all_gone = card().lost_device < 0 && exists(card().gone);
  return card().present && !all_gone ? cudaSuccess : cudaErrorNoDevice;
}

/* How many there are: a lost one of several is missing for processes that begin later. */
int device_count()
{
  const char *said = getenv("PLM_EMULATED_DEVICES");
  const bool one_gone = card().lost_device >= 0 && !has_fault() && exists(card().gone);
  return (said != nullptr ? atoi(said) : 1) - (one_gone ? 1 : 0);
}

/* Whether the device is lost in this work item. */
bool is_lost_now()
{
  if (card().lost_device >= 0 && card().lost_device != current_device) return false;
  if (card().lost != 0 && works_run == card().lost) return true;
  return exists(card().lost_after) && !exists(card().once);
}

void make_file(const std::string &name)
{
  if (name.empty()) return;
  FILE *file = fopen(name.c_str(), "w");
  if (file == nullptr) stop("%s cannot be made", name.c_str());
  fclose(file);
}

} // namespace

void raise_fault()
{
  fault = last_error = cudaErrorIllegalAddress;
}

bool has_fault()
{
  return fault != cudaSuccess;
}

uint64_t works_done()
{
  return works_run;
}

bool work_runs()
{
  works_run++;
  if (has_fault() || !is_lost_now()) return !has_fault();
  make_file(card().gone);
  make_file(card().once);
  fault = last_error = cudaErrorUnknown;
  return false;
}

uint64_t device_clock_ns()
{
  return card().work_ns != 0 ? clock_ns : plm_clock_ns();
}

void work_took_time()
{
  enum { ADDS_PER_NS = 10, COLD = 10 };
  const uint64_t adds = plm_emulation_work_done().multiply_adds;
  const uint64_t ns = card().work_ns + (adds - adds_seen) / ADDS_PER_NS;
  adds_seen = adds;
  clock_ns += clock_ns < card().cold_until_ns ? COLD * ns : ns;
}

cudaError_t result(cudaError_t code)
{
  if (fault != cudaSuccess) code = fault;
  if (code != cudaSuccess) last_error = code;
  return code;
}

void require_shared(const void *kernel, size_t bytes)
{
  if (has_fault()) return; /* the permission may have failed, and the kernel does not run either */
  if (bytes > UNASKED_SHARED_BYTES && shared_limits[kernel] < bytes)
    stop("a kernel is launched with %zu bytes of shared memory but was allowed %zu", bytes,
         shared_limits[kernel]);
}

} // namespace plm::emulation

using namespace plm::emulation;

cudaError_t cudaGetLastError()
{
  return std::exchange(last_error, fault);
}

cudaError_t cudaPeekAtLastError()
{
  return last_error;
}

const char *cudaGetErrorString(cudaError_t code)
{
  static const char *const texts[] = {
      "no error",
      "invalid argument",
      "out of memory",
      "CUDA driver version is insufficient for CUDA runtime version",
      "device not ready",
      "an illegal memory access was encountered",
      "no CUDA-capable device is detected",
      "CUDA-capable device(s) is/are busy or unavailable",
      "operation failed due to a previous error during capture",
      "unknown error",
      "initialization error",
      "system not yet initialized",
      "system has unsupported display driver / cuda driver combination"};
  return texts[code];
}

cudaError_t cudaGetDeviceCount(int *count)
{
  *count = 0;
  const cudaError_t found = devices_found();
  if (found != cudaSuccess) return result(found);
  *count = device_count();
  return result(cudaSuccess);
}

static bool is_device(int device)
{
  int count;
  return cudaGetDeviceCount(&count) == cudaSuccess && device >= 0 && device < count;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
  if (!is_device(device)) return result(cudaErrorInvalidValue);
  *properties = {};
  snprintf(properties->name, sizeof properties->name, "%s", card().name.c_str());
  properties->major = card().capability / 10;
  properties->minor = card().capability % 10;
  properties->multiProcessorCount = card().multiprocessors;
  properties->sharedMemPerBlockOptin = shared_of_card();
  return result(cudaSuccess);
}

cudaError_t cudaSetDevice(int device)
{
  if (!is_device(device)) return result(cudaErrorInvalidValue);
  if (exists(card().busy)) return result(cudaErrorDevicesUnavailable);
  if (card().open_answer != cudaSuccess) return result(card().open_answer);
  current_device = device;
  return result(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int *version)
{
  *version = card().driver;
  return cudaSuccess;
}

/* A fault stays. Otherwise nothing is left of what the process had on the device. */
cudaError_t cudaDeviceReset()
{
  if (has_fault()) return result(cudaSuccess);
  shared_limits.clear();
  streams_forget();
  device_forget();
  return result(cudaSuccess);
}

cudaError_t cudaGetDevice(int *device)
{
  *device = current_device;
  return result(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device)
{
  snprintf(text, (size_t)size, "emulated:%d", device);
  return result(cudaSuccess);
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute, int value)
{
  if (value < 0 || (size_t)value > shared_of_card()) return result(cudaErrorInvalidValue);
  shared_limits[kernel] = (size_t)value;
  return result(cudaSuccess);
}

cudaError_t cudaFuncGetName(const char **name, const void *)
{
  *name = "a kernel";
  return cudaSuccess;
}
