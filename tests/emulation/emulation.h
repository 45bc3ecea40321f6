/* CUDA on the CPU, as far as kernels/cuda needs it, so that every kernel can be checked on any
 * machine and under sanitizers. hopper.h adds sm_90a, runtime.h the functions of the runtime.
 *
 * The threads of a block are fibers of one operating-system thread. A fiber runs until it has to
 * wait for others; which one runs next is drawn from a seed, and a warp may run as far ahead of the
 * others as barriers let it. If a barrier is missing, the result is wrong or depends on the seed,
 * which a test sees that runs a kernel under several seeds. Blocks run one after another, in an
 * order drawn from the seed.
 *
 * Shared memory is NaN at first. It ends where the launch said; the bytes after it are a pattern
 * that is checked, and are poisoned under ASan. Asynchronous copies are made when they are waited
 * for, not earlier, and their targets are NaN until then.
 *
 * The process ends with a message if a barrier or an operation of a warp is not reached by all
 * threads, or by a warp's threads at different places, if an access is misaligned, or if a kernel
 * uses more shared memory or threads than a device has.
 *
 * Sources that run here use shared memory only through plm_shared<T>(), launch kernels only through
 * plm_launch(), and use instructions only through instructions.cuh. */
#ifndef PLM_TESTS_EMULATION_EMULATION_H
#define PLM_TESTS_EMULATION_EMULATION_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
  {
  }
};

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
static inline float2 make_float2(float x, float y)
{
  return {x, y};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
  return {x, y, z, w};
}

struct __nv_bfloat16 {
  uint16_t bits;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

/* A function that is also compiled for processors with AVX2. Its results have the same bits. (A
 * sanitizer is not there yet when the loader chooses one.) */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PLM_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define PLM_WIDE
#endif

namespace plm::emulation
{

/* The running fiber: its position and number in the block. */
struct Self {
  dim3 thread;
  int number;
};
extern Self *self;
/* What all fibers of the running block have in common. */
struct Launch {
  dim3 block, grid_blocks, block_threads;
  char *shared;
  size_t shared_bytes;
};
extern Launch launch;

/* Runs body once for each thread of each block. */
struct Body {
  void (*call)(void *context);
  void *context;
};
void run(dim3 grid, dim3 block, size_t shared_bytes, const Body &body);

/* What controls.h was told. */
uint64_t order_seed();
uint64_t tuning_seed();
size_t scratch_bytes();

/* A fault of the device, which every later call of the runtime returns. */
void raise_fault();

/* Counts what the launches do (controls.h). */
void count_multiply_adds(uint64_t count);
void count_copied_bytes(uint64_t bytes);
void count_exchange();
void count_launch(const void *kernel);

/* Device memory. The host can touch it only while a Reach exists; host code that follows a device
 * pointer otherwise ends with a fault. Under ASan it does not, but the ends of buffers are guarded.
 */
void *device_allocate(size_t bytes); /* filled with NaN; NULL if there is no room */
void device_release(void *buffer);
void device_size(uint64_t *free_bytes, uint64_t *total_bytes);
void device_forget(); /* after the device's reset no buffer may be used */
class Reach
{
public:
  Reach();
  ~Reach();
  Reach(const Reach &) = delete;
};

[[noreturn]] void stop(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- what threads do together: a call returns when all of the block or warp have come ---- */
void block_barrier();
uint64_t block_barriers(); /* how often the block has met */
/* Says at which line of the source the next operation of the block or warp is, for instructions
 * that all threads of a warp must execute together (.aligned). take_line() returns it once, and
 * then 0. */
void at_line(int line);
int pop_line();
/* Returns the word that each lane brought, valid until the lane's next call but one. */
const uint64_t *exchange_word(const char *what, uint64_t word);
/* The same for up to 8 words. */
enum { LANES = 32, WORDS = 8 };
typedef uint64_t Lanes[LANES][WORDS];
const Lanes &warp_exchange(const char *what, const uint64_t *words, int count);
/* The same, but the last lane to come lets `compute` replace the words of all lanes. */
const Lanes &warp_compute(const char *what, const uint64_t *words, int count,
                          void (*compute)(Lanes &lanes));
/* For mma.m16n8k16 (instructions.cuh): replaces the words a[0..3], b[0..1] of each lane by its four
 * elements of the product, as doubles. */
void multiply_fragments(Lanes &lanes);
static inline int thread() /* its number in the block */
{
  return self->number;
}
static inline int lane()
{
  return (int)((unsigned)self->number % LANES);
}
const char *end_of_stack(); /* behind the highest address of the thread's stack */
void let_others_run();      /* gives way once */
/* Lets others run until the condition holds. It may depend only on what the block changes. */
void wait_until(const char *what, bool (*condition)(void *context), void *context);

/* ---- asynchronous copies, made when they are waited for ---- */
void copy_later(void *to, const void *from, int bytes, int valid_bytes);
void copy_commit();
void copy_wait(int groups_that_may_be_left);

template <class T> static inline uint64_t to_word(T value)
{
  static_assert(sizeof value <= 8, "a lane's word");
  uint64_t word = 0;
  memcpy(&word, &value, sizeof value);
  return word;
}
template <class T> static inline T from_word(uint64_t word)
{
  T value;
  memcpy(&value, &word, sizeof value);
  return value;
}

template <class T> static inline T shuffle(const char *what, T value, int from)
{
  return from_word<T>(exchange_word(what, to_word(value))[from & (LANES - 1)]);
}

} // namespace plm::emulation

#define threadIdx (plm::emulation::self->thread)
#define blockIdx (plm::emulation::launch.block)
#define blockDim (plm::emulation::launch.block_threads)
#define gridDim (plm::emulation::launch.grid_blocks)

static inline void __syncthreads()
{
  plm::emulation::block_barrier();
}
#define __syncthreads() (plm::emulation::at_line(__LINE__), __syncthreads())
static inline void __syncwarp(unsigned = 0xffffffffu)
{
  plm::emulation::exchange_word("__syncwarp", 0);
}
template <class T> static inline T __shfl_xor_sync(unsigned, T value, int mask)
{
  return plm::emulation::shuffle("__shfl_xor_sync", value, plm::emulation::lane() ^ mask);
}
template <class T> static inline T __shfl_sync(unsigned, T value, int from)
{
  return plm::emulation::shuffle("__shfl_sync", value, from);
}
template <class T> static inline T __shfl_up_sync(unsigned, T value, unsigned by)
{
  const int lane = plm::emulation::lane(), from = lane - (int)by;
  return plm::emulation::shuffle("__shfl_up_sync", value, from < 0 ? lane : from);
}
static inline unsigned __ballot_sync(unsigned, bool predicate)
{
  const uint64_t *words = plm::emulation::exchange_word("__ballot_sync", predicate);
  unsigned bits = 0;
  for (int i = 0; i < plm::emulation::LANES; i++) bits |= (unsigned)words[i] << i;
  return bits;
}
static inline bool __any_sync(unsigned mask, bool predicate)
{
  return __ballot_sync(mask, predicate) != 0;
}

/* Atomic, since fibers are not interrupted. */
static inline int atomicAdd(int *at, int value)
{
  const int before = *at;
  *at += value;
  return before;
}

static inline int __popc(unsigned x)
{
  return __builtin_popcount(x);
}
static inline float __uint_as_float(unsigned x)
{
  return plm::emulation::from_word<float>(x);
}
static inline unsigned __float_as_uint(float x)
{
  return (unsigned)plm::emulation::to_word(x);
}
/* Rounds to nearest, ties to even; NaN stays NaN. */
static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
  const unsigned bits = __float_as_uint(x);
  if (x != x) return {(uint16_t)(bits >> 16 | 0x40)};
  return {(uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x)
{
  return x.bits;
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
  return (unsigned)(((uint64_t)a * b) >> 32);
}
static inline float rsqrtf(float x)
{
  return 1.0f / sqrtf(x);
}

using std::max;
using std::min;

#endif
