/* The emulated card: what it is like, and what goes wrong with it. A test says so in a text of
 * words, by plm_emulation_card (controls.h) or in the environment variable PLM_EMULATED_CARD, which
 * is for programs that load the emulated backend:
 *
 *   capability=90        the compute capability, 80 (8.0) if nothing is said
 *   shared=BYTES         shared memory that a block may have: 232448 (H100) for 9.0 if nothing is
 *                        said, else 101376, the least of all devices of 8.0 or newer
 *   multiprocessors=2    3 if nothing is said, so that blocks take several work items
 *   name=TEXT            with _ for a space
 *   driver=12040         the CUDA version of the driver; 0: there is no driver
 *   devices=0            the driver finds no device
 *   count=ERROR          asked how many devices there are, the driver answers with an error:
 *                        unknown, initialization, system_not_ready or driver_mismatch
 *   open=ERROR           it finds the devices, and answers so when one is opened
 *   busy=FILE            while FILE exists, another process holds the card in exclusive mode
 *   used=BYTES           memory that other processes hold
 *   lost=N               the Nth work item from now on fails, and so does all that follows
 *   lost_after=FILE      the first work item after FILE was made fails, in the same way
 *   once=FILE            not if FILE exists, which is made then
 *   lost_device=K        only the device with this number is lost; else all are
 *   gone=FILE            once the card is lost, there is no device any more, or, with lost_device,
 *                        one less; FILE is made then, to tell other processes
 *   capture=WHERE        a stream cannot be captured. WHERE is begin, call (a launch invalidates
 *                        the capture), end, or instantiate (there is no memory for the graph)
 *   work_us=N            events tell the time by a clock that only the device's work moves: each
 *                        part of it takes N us, and a multiply-add of a matrix instruction 0.1 ns
 *   cold_ms=N            for N ms of that clock from now on, all of it takes ten times as long
 *   products=wrong       products of warpgroups give wrong results
 *   products=large       all their results are 2.5 % too large
 *   products=fault       they are a fault of the device
 *
 * A word that is not known ends the process. When a stream is destroyed, "works N" is traced
 * (runtime.h), the work items that the process has done. */
#ifndef PLM_TESTS_EMULATION_CARD_H
#define PLM_TESTS_EMULATION_CARD_H

#include <cstdint>
#include <string>

#include "tests/emulation/runtime.h"

namespace plm::emulation
{

enum class Capture { SOUND, BEGIN, CALL, END, INSTANTIATE };

struct Card {
  int capability, multiprocessors, driver, lost_device; /* lost_device: -1 for all */
  std::string name, gone, busy, lost_after, once;
  bool present, wrong_products, faulty_products, large_products;
  uint64_t used, lost, work_ns, cold_until_ns;
  size_t shared; /* 0: nothing is said */
  Capture capture;
  cudaError_t count_answer, open_answer; /* cudaSuccess: nothing is wrong */
};
/* From the environment at first; tests may change it. */
Card &card();

size_t shared_of_card(); /* bytes that a block may have */
bool has_fault();        /* of the device, which every later call of the runtime returns */
/* Counts a work item that is about to run. Returns whether it runs: not after a fault. */
bool work_runs();
uint64_t works_done(); /* how many were counted */
/* The clock of events, and what moves it after a work item. */
uint64_t device_clock_ns();
void work_took_time();

} // namespace plm::emulation

#endif
