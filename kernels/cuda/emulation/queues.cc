/* See queues.h. */
#include "kernels/cuda/emulation/queues.h"

#include "kernels/cuda/emulation/emulation.h"

namespace plm::emulation
{

Queues::~Queues()
{
  finish_computation();
  finish_copies();
  for (const auto &buffer : host) free(const_cast<char *>(buffer.first));
}

/* Items wait for earlier ones of the other queue only, so this goes no deeper than both. */
void Queues::run_until(Queue &queue, Queue &other, uint64_t count)
{
  while (queue.done < count) {
    const Item item = std::move(queue.items.front());
    queue.items.pop_front();
    run_until(other, queue, item.after);
    item.work();
    queue.done++;
  }
}

void Queues::send(Queue &queue, Queue &other, const Work &work, bool late)
{
  queue.items.push_back({work, queue.after});
  queue.sent++;
  if (!late) run_until(queue, other, queue.sent);
}

/* splitmix64 of the order and the number of the draw */
bool Queues::drawn()
{
  uint64_t x = order_seed() * 0x9e3779b97f4a7c15u + ++draws * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return (x ^ x >> 31) & 1;
}

void Queues::compute(const Work &work)
{
  if (open != nullptr)
    open->push_back(work);
  else
    send(computing, copying, work, order_seed() > 1 && !host.empty() && drawn());
}

void Queues::copy_beside(void *to, const void *from, size_t bytes, bool to_host)
{
  if (!is_host(to_host ? to : from, bytes))
    stop("a copy beside the computation of host memory that is not allocate_host's");
  const bool idle = computing.items.empty() && copying.items.empty();
  if (idle || (to_host && copying.items.empty())) {
    const Reach reach;
    memset(to, 0xff, bytes); /* the copy's until it was waited for */
  }
  const auto work = [=] {
    const Reach reach;
    memcpy(to, from, bytes);
  };
  send(copying, computing, work, order_seed() <= 1 || drawn());
}

void Queues::compute_follows()
{
  computing.after = copying.sent;
}

void Queues::copies_follow()
{
  copying.after = computing.sent;
}

void Queues::finish_computation()
{
  run_until(computing, copying, computing.sent);
  run_until(copying, computing, computing.after);
}

void Queues::finish_copies()
{
  run_until(copying, computing, copying.sent);
  run_until(computing, copying, copying.after);
}

void *Queues::allocate_host(size_t bytes)
{
  char *buffer = static_cast<char *>(malloc(bytes > 0 ? bytes : 1));
  if (buffer == nullptr) return nullptr;
  memset(buffer, 0xff, bytes);
  host[buffer] = bytes;
  return buffer;
}

void Queues::release_host(void *buffer)
{
  if (buffer == nullptr) return;
  if (host.erase(static_cast<const char *>(buffer)) == 0)
    stop("host memory released that is not allocate_host's");
  if (!copying.items.empty()) stop("host memory released while copies are under way");
  free(buffer);
}

bool Queues::is_host(const void *buffer, size_t bytes) const
{
  const char *begin = static_cast<const char *>(buffer);
  const auto behind = host.upper_bound(begin);
  if (behind == host.begin()) return false;
  const auto at = std::prev(behind);
  return begin + bytes <= at->first + at->second;
}

void Queues::record_into(Recording *recording)
{
  open = recording;
}

} // namespace plm::emulation
