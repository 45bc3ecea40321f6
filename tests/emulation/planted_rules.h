/* A kernel that breaks one rule of the device at a time, for the test that shows that the emulation
 * ends the process where a device would do something undefined. */
#ifndef PLM_TESTS_EMULATION_PLANTED_RULES_H
#define PLM_TESTS_EMULATION_PLANTED_RULES_H

#include <stdint.h>

#pragma GCC visibility push(default) /* test programs call these functions of a shared library */

/* What is said of a misaligned access: under AddressSanitizer, what UndefinedBehaviorSanitizer
 * says. */
#ifdef __SANITIZE_ADDRESS__
#define PLM_MISALIGNED(bytes) "which requires " #bytes " byte alignment"
#else
#define PLM_MISALIGNED(bytes) "an access to an address that is not a multiple of " #bytes
#endif

/* NAME, and a part of the message with which the process ends. */
#define PLM_PLANTED_RULES(X)                                                  \
  X(SECOND_FENCE, "changed after the fence")                                  \
  X(INIT_FENCE, "before the fence of its initialisation")                     \
  X(INIT_BARRIER, "without a __syncthreads")                                  \
  X(INIT_TWICE, "initialised a second time")                                  \
  X(REGISTERS_POOL, "registers that nobody gives back")                       \
  X(REGISTERS_PART, "setmaxnreg.dec")                                         \
  X(REGISTERS_DIFFER, "a warpgroup does not agree")                           \
  X(REGISTERS_UP, "setmaxnreg.dec to 200 registers by threads that hold 168") \
  X(NAMED_COUNT, "a named barrier of 128 threads and of 256")                 \
  X(NAMED_PART, "no multiple of a warp")                                      \
  X(NAMED_ZERO, "a named barrier 0")                                          \
  X(NAMED_LEFT, "at a named barrier at the end of a block")                   \
  X(NAMED_DIVERGED, "meet in bar.arrive at different places")                 \
  X(MATRICES_DIVERGED, "meet in ldmatrix at different places")                \
  X(STORES_DIVERGED, "meet in stmatrix at different places")                  \
  X(MATRICES_HIDDEN, "stored without the fence for products")                 \
  X(BLOCK_DIVERGED, "meet at different __syncthreads")                        \
  X(FENCE_DIVERGED, "came through different wgmma instructions")              \
  X(WAIT_DIVERGED, "came through different wgmma instructions")               \
  X(TILE_OVER_BARRIER, "a tile over a barrier")                               \
  X(STORE_OVER_BARRIER, "something was written over a barrier")               \
  X(MAP_COPIED, "not in the kernel's parameters")                             \
  X(MAP_ADDRESS, "of memory that is not aligned")                             \
  X(MAP_STRIDE, "a stride of 120 bytes")                                      \
  X(MAP_STRIDES, "strides of 256 and 128 bytes")                              \
  X(MAP_BOX, "a box of 257")                                                  \
  X(PAIR_OF_4, PLM_MISALIGNED(4))                                             \
  X(PAIR_OF_8, PLM_MISALIGNED(8))

enum plm_planted_rule {
#define PLM_RULE(name, message) PLM_RULE_##name,
  PLM_PLANTED_RULES(PLM_RULE)
#undef PLM_RULE
      PLM_RULE_COUNT, /* nothing is broken */
};

enum { PLM_RULES_SIDE = 64 };
/* out[i], for i < 128, depends on the product of a with itself. a is (64, 64) in bf16, aligned to
 * 16 bytes, and followed by 16 more bytes. */
void plm_cuda_planted_rule_run(enum plm_planted_rule fault, float *out, const uint16_t *a);

#pragma GCC visibility pop

#endif
