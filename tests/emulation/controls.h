/* How tests control the emulation: the order in which it works, what tuning finds, how much scratch
 * a backend has, and which device it pretends to be. */
#ifndef PLM_TESTS_EMULATION_CONTROLS_H
#define PLM_TESTS_EMULATION_CONTROLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default) /* test programs call these functions of a shared library */

/* The seed of the order in which threads and blocks of later launches run and in which streams do
 * their work (runtime.h). Seeds 0 and 1 make copies as late as possible; others draw. */
void plm_emulation_order(uint64_t seed);

/* The seed from which tuning draws the algorithms that it finds: the number of the process, until a
 * test sets another. The environment variable PLM_EMULATED_TUNING replaces it, for programs that
 * load the emulated backend. */
void plm_emulation_tuning(uint64_t seed);

/* Bytes of scratch of backends that are opened later, so that operators work in slabs on small
 * shapes; 0 restores the default. */
void plm_emulation_scratch(size_t bytes);

/* The device's compute capability: 80 (8.0) at first, or 90 (9.0). With wrong_products, the
 * products of warpgroups give wrong results, which the backend's self-checks must notice. The next
 * backend checks the kernels for sm_90a again. */
void plm_emulation_capability(int capability, bool wrong_products);

/* From now on a product of a warpgroup is a fault of the device, as an access to a wrong address
 * is. It is final for the process: every later call of the runtime returns it, also after a reset.
 */
void plm_emulation_faulty_products(bool faulty);

/* Changes the card as the words say that card.h lists, "multiprocessors=2 capture=end". */
void plm_emulation_card(const char *text);

/* What all launches have done so far, for tests that a kernel does no more than it has to. */
struct plm_emulation_work {
  uint64_t multiply_adds; /* of matrix instructions */
  uint64_t copied_bytes;  /* from global to shared memory, by asynchronous copies */
  uint64_t exchanges;     /* shuffles, votes and other operations of a whole warp */
};
struct plm_emulation_work plm_emulation_work_done(void);

/* Calls take(context, kernel, launches) for each kernel that has run, with the address of its
 * function. */
void plm_emulation_launches(void (*each)(void *context, const void *kernel, uint64_t launches),
                            void *context);

#pragma GCC visibility pop

#endif
