/* Random inputs, comparison and a bounded wait for the self-checks of the sm_90a kernels. */
#include "kernels/cuda/sm90/check_sm90.cuh"

#include <cmath>
#include <cstring>

#include <unistd.h>

/* The error of the whole over its norm, and of the worst element over the largest one. */
static constexpr double WHOLE = 0.02, WORST = 0.06;

void plm_sm90_draw(std::vector<uint16_t> &values, uint64_t seed)
{
  uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
  for (uint16_t &value : values) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    const float number = (float)((int)(x >> 33 & 255) - 128) / 64;
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    value = (uint16_t)(bits >> 16);
  }
}

static double number(uint16_t pattern)
{
  const uint32_t bits = (uint32_t)pattern << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

bool plm_sm90_close(const std::vector<uint16_t> &got, const std::vector<uint16_t> &expected)
{
  double error = 0, size = 0, worst = 0, largest = 0;
  for (size_t i = 0; i < got.size(); i++) {
    const double a = number(expected[i]), d = number(got[i]) - a;
    if (!(fabs(d) <= 1e30)) return false;
    error += d * d, size += a * a;
    worst = fmax(worst, fabs(d)), largest = fmax(largest, fabs(a));
  }
  return error <= WHOLE * WHOLE * size && worst <= WORST * largest;
}

plm_status plm_sm90_settle(struct plm_cuda *cuda, struct plm_error *error)
{
  enum { SECONDS = 20 };
  cudaError_t code = cudaErrorNotReady;
  for (int i = 0; i < SECONDS * 1000 && code == cudaErrorNotReady; i++) {
    code = cudaStreamQuery(cuda->stream);
    if (code == cudaErrorNotReady) usleep(1000);
  }
  if (code == cudaErrorNotReady) {
    cudaGetLastError();
    return plm_error_set(error, PLM_TIMEOUT, "they did not end within %d s", SECONDS);
  }
  return cuda->ops.synchronize(&cuda->ops, error);
}
