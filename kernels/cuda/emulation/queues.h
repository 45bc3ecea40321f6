/* The emulated device's two queues, of computation and of copies beside it, and recordings.
 *
 * What one queue has to wait for of the other is what compute_follows and copies_follow say, and no
 * more: so a missing wait shows. Copies are done as late as that allows. Computation is done at
 * once under the orders 0 and 1 (plm_cuda_emulation_order); under any other order it is drawn for
 * each piece of work whether its queue runs now or later, of computation once there is host memory
 * for copies beside it. A host buffer that a copy writes to is NaN until then, and so is a device
 * buffer when nothing else is under way.
 *
 * What ends the process with a message: copies beside the computation from or to host memory that
 * allocate_host has not given, such memory released while a copy is under way, and whatever has no
 * place in a recording.
 */
#ifndef PLM_KERNELS_CUDA_QUEUES_H
#define PLM_KERNELS_CUDA_QUEUES_H

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

namespace plm::emulation
{

typedef std::function<void()> Work;
typedef std::vector<Work> Recording;

class Queues
{
public:
  Queues() = default;
  ~Queues();
  Queues(const Queues &) = delete;

  void compute(const Work &work);
  /* to or from is host memory; the other is the device's */
  void copy_beside(void *to, const void *from, size_t bytes, bool to_host);
  void compute_follows();
  void copies_follow();
  void finish_computation(); /* and the copies that it follows */
  void finish_copies();      /* and the computation that they follow */

  void *allocate_host(size_t bytes); /* NULL: none */
  void release_host(void *buffer);

  void record_into(Recording *recording); /* NULL: no longer */

private:
  struct Item {
    Work work;
    uint64_t after; /* so many of the other queue's come before */
  };
  struct Queue {
    std::deque<Item> items; /* not done yet */
    uint64_t sent = 0, done = 0;
    uint64_t after = 0; /* of the items to come */
  };
  void run_until(Queue &queue, Queue &other, uint64_t count);
  void send(Queue &queue, Queue &other, const Work &work, bool late);
  bool drawn();
  bool is_host(const void *buffer, size_t bytes) const;

  Queue computing, copying;
  Recording *open = nullptr;
  std::map<const char *, size_t> host; /* what allocate_host has given */
  uint64_t draws = 0;
};

} // namespace plm::emulation

#endif
