/* See runtime.h. */
#include "tests/emulation/runtime.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

extern "C" {
}
#include "tests/emulation/card.h"
#include "tests/emulation/emulation.h"

namespace plm::emulation
{

namespace
{

constexpr size_t MOST_PINNED_BYTES = (size_t)64 << 30;

std::vector<Stream *> streams;
std::map<const char *, size_t> pinned; /* buffers and their bytes */
uint64_t draws;
int copies_under_way; /* from or to pinned memory */
uint64_t works_sent;  /* to all streams */

/* A bit of splitmix64 of the order and the number of the draw. */
bool drawn()
{
  uint64_t x = order_seed() * 0x9e3779b97f4a7c15u + ++draws * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return (x ^ x >> 31) & 1;
}

bool is_pinned(const void *buffer, size_t bytes)
{
  const char *begin = static_cast<const char *>(buffer);
  const auto behind = pinned.upper_bound(begin);
  if (behind == pinned.begin()) return false;
  const auto at = std::prev(behind);
  return begin + bytes <= at->first + at->second;
}

bool all_idle()
{
  return std::all_of(streams.begin(), streams.end(), [](Stream *each) { return each->idle(); });
}

/* For calls that a runtime refuses during a capture, or that would spoil the graph. */
void forbid_captured(const char *what)
{
  for (const Stream *each : streams) {
    if (each->capture != nullptr) stop("%s while a stream is captured", what);
  }
}

void trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
void trace(const char *format, ...)
{
  const char *path = getenv("PLM_EMULATED_TRACE");
  if (path == nullptr) return;
  FILE *file = fopen(path, "a");
  if (file == nullptr) stop("PLM_EMULATED_TRACE=%s cannot be opened", path);
  va_list arguments;
  va_start(arguments, format);
  vfprintf(file, format, arguments);
  va_end(arguments);
  fputc('\n', file);
  fclose(file);
}

/* A copy from or to pinned memory, which belongs to the copy until somebody has waited for it. */
void copy_pinned(Stream *stream, void *to, const void *from, size_t bytes, bool to_host)
{
  if (stream->capture != nullptr) stop("a copy of pinned memory in a stream that is captured");
  if (all_idle() || (to_host && stream->idle())) {
    const Reach reach;
    memset(to, 0xff, bytes);
  }
  if (to_host)
    trace("download %zu", bytes);
  else
    trace("upload %zu overlaps %d", bytes, stream->overlaps());
  copies_under_way++;
  const bool late = order_seed() <= 1 || drawn();
  const std::shared_ptr<void> under_way(nullptr, [](void *) { copies_under_way--; });
  stream->add(
      [to, from, bytes, under_way] {
        const Reach reach;
        memcpy(to, from, bytes);
      },
      late);
}

/* A copy from or to other memory. The runtime may read the source of an upload after the call has
 * returned, so an upload is as late as one of pinned memory. A download has been made when the call
 * returns. */
void copy_pageable(Stream *stream, void *to, const void *from, size_t bytes, bool to_host)
{
  forbid_captured("a copy of pageable memory");
  const Work copy = [=] {
    const Reach reach;
    memcpy(to, from, bytes);
  };
  if (!to_host) return stream->add(copy, order_seed() <= 1 || drawn());
  stream->add(copy, false);
  stream->host_waited();
}

} // namespace

void require_pinned(const void *host, size_t bytes)
{
  if (!is_pinned(host, bytes))
    stop("a copy beside the computation of host memory that allocate_host did not allocate");
}

/* ---- streams ---- */

void Stream::add(const Work &work)
{
  add(work, order_seed() > 1 && !pinned.empty() && drawn());
  computed = sent;
  if (capture == nullptr) works_sent++;
}

void Stream::add(const Work &work, bool late)
{
  if (forgotten) stop("a stream of before the device's reset");
  if (capture != nullptr) return capture_work(work);
  items.push_back({work, nullptr, 0});
  sent++;
  if (!late) finish(sent);
}

/* Some captures fail at their third work item. The rest is lost then. */
void Stream::capture_work(const Work &work)
{
  if (card().capture == Capture::CALL && capture->works.size() == 2) {
    capture->invalid = true;
    result(cudaErrorStreamCaptureInvalidated);
  }
  if (!capture->invalid) capture->works.push_back(work);
}

void Stream::exchange(size_t bytes, const Work &early, const Work &late)
{
  const auto reaching = [](const Work &work) {
    return [=] {
      const Reach reach;
      work();
    };
  };
  forbid_captured("a call of NCCL");
  /* A call returns at once, so it cannot do what comes after an unfinished transfer. */
  add(reaching(early), !idle() || (order_seed() > 1 && drawn()));
  add(reaching(late), true);
  exchanges.push_back({sent, works_sent, bytes});
}

void Stream::trace_exchanges(uint64_t count)
{
  while (!exchanges.empty() && exchanges.front().item <= count) {
    const Exchange &first = exchanges.front();
    trace("exchange %zu under %llu", first.bytes,
          (unsigned long long)(works_sent - first.works_before));
    exchanges.pop_front();
  }
}

void Stream::follow(Stream *other, uint64_t count)
{
  other->trace_exchanges(count);
  items.push_back({nullptr, other, count});
  sent++;
  followed[other] = std::max(followed[other], count);
}

bool Stream::overlaps() const
{
  return std::any_of(streams.begin(), streams.end(), [this](const Stream *other) {
    const auto found = followed.find(other);
    const uint64_t waited = found == followed.end() ? 0 : found->second;
    return other != this && other->computed > std::max(other->awaited, waited);
  });
}

/* Items wait for earlier ones of other streams only, so this ends. */
void Stream::finish(uint64_t count)
{
  while (done < count) {
    const Item item = std::move(items.front());
    items.pop_front();
    if (item.other != nullptr) item.other->finish(item.count);
    if (item.work && work_runs()) {
      item.work();
      work_took_time();
    }
    done++;
  }
}

void Stream::finish()
{
  finish(sent);
}

bool Stream::idle() const
{
  return std::none_of(items.begin(), items.end(), [](const Item &each) { return !!each.work; });
}

void streams_forget()
{
  for (Stream *each : streams) {
    each->finish();
    each->forgotten = true;
  }
  streams.clear();
}

} // namespace plm::emulation

using namespace plm::emulation;

/* ---- memory ---- */

cudaError_t cudaMalloc(void **buffer, size_t bytes)
{
  forbid_captured("an allocation");
  size_t free_bytes, total_bytes;
  cudaMemGetInfo(&free_bytes, &total_bytes);
  void *made = bytes <= free_bytes ? device_allocate(bytes) : nullptr;
  if (made == nullptr) return result(cudaErrorMemoryAllocation);
  *buffer = made;
  return result(cudaSuccess);
}

cudaError_t cudaFree(void *buffer)
{
  forbid_captured("a release");
  for (Stream *each : streams) {
    each->finish();
    each->host_waited();
  }
  device_release(buffer);
  return result(cudaSuccess);
}

cudaError_t cudaMallocHost(void **buffer, size_t bytes)
{
  forbid_captured("an allocation of pinned memory");
  void *made =
      bytes <= MOST_PINNED_BYTES ? malloc(bytes) : nullptr; /* ASan would end the process */
  if (made == nullptr) return result(cudaErrorMemoryAllocation);
  memset(made, 0xff, bytes);
  pinned[static_cast<char *>(made)] = bytes;
  *buffer = made;
  return result(cudaSuccess);
}

cudaError_t cudaFreeHost(void *buffer)
{
  forbid_captured("a release of pinned memory");
  if (pinned.erase(static_cast<char *>(buffer)) == 0)
    stop("a release of host memory that allocate_host did not allocate");
  if (copies_under_way > 0 && !has_fault())
    stop("a release of host memory while copies are under way");
  free(buffer);
  return result(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
  uint64_t free_now, total;
  device_size(&free_now, &total);
  *free_bytes = free_now > card().used ? free_now - card().used : 0;
  *total_bytes = total;
  return result(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
  const bool to_host = kind == cudaMemcpyDeviceToHost;
  if (kind == cudaMemcpyDeviceToDevice)
    stream->add([=] {
      const Reach reach;
      memcpy(to, from, bytes);
    });
  else if (is_pinned(to_host ? to : from, bytes))
    copy_pinned(stream, to, from, bytes, to_host);
  else
    copy_pageable(stream, to, from, bytes, to_host);
  return result(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void *buffer, int value, size_t bytes, cudaStream_t stream)
{
  stream->add([=] {
    const Reach reach;
    memset(buffer, value, bytes);
  });
  return result(cudaSuccess);
}

/* ---- streams and events ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
  *stream = new Stream;
  streams.push_back(*stream);
  return result(cudaSuccess);
}

/* Other streams may wait for what it did. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
  for (Stream *each : streams) each->finish();
  const auto found = std::find(streams.begin(), streams.end(), stream);
  if (found != streams.end()) streams.erase(found);
  trace("works %llu", (unsigned long long)works_done());
  delete stream;
  return result(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
  if (stream->capture != nullptr) stop("a wait for a stream that is captured");
  stream->finish();
  stream->host_waited();
  return result(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
  return cudaStreamSynchronize(stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
  if (stream->capture != nullptr) stop("a wait for another stream's event in a captured one");
  if (event->stream != nullptr) stream->follow(event->stream, event->count);
  trace("wait");
  return result(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
  *event = new Event{{}, nullptr, 0, (flags & cudaEventDisableTiming) == 0, nullptr};
  return result(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
  return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
  delete event;
  return result(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
  const bool done = event->stream == nullptr || event->stream->has_done(event->count);
  return done || has_fault() ? result(cudaSuccess) : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
  if (event->stream != nullptr) event->stream->finish(event->count);
  return result(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
  if (stream->capture != nullptr) stop("an event in a stream that is captured");
  if (event->timed) {
    const auto ns = event->ns = std::make_shared<uint64_t>(0);
    stream->add([=] { *ns = device_clock_ns(); }, !stream->empty());
  }
  event->stream = stream;
  event->count = stream->sent;
  return result(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
  if (!from->timed || !to->timed) stop("the time between events that were made without timing");
  if (from->stream == nullptr || to->stream == nullptr) return result(cudaErrorInvalidValue);
  for (const cudaEvent_t event : {from, to})
    if (!event->stream->has_done(event->count)) return result(cudaErrorNotReady);
  *ms = static_cast<float>(1e-6 * (static_cast<double>(*to->ns) - static_cast<double>(*from->ns)));
  return result(cudaSuccess);
}

/* ---- graphs ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
  if (stream->capture != nullptr) stop("a second capture of a stream");
  if (card().capture == Capture::BEGIN) return result(cudaErrorMemoryAllocation);
  stream->capture = new Graph;
  return result(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
  if (stream->capture == nullptr) stop("the end of a capture that was not begun");
  Graph *made = std::exchange(stream->capture, nullptr);
  *graph = nullptr;
  if (made->invalid || card().capture == Capture::END || has_fault()) {
    delete made;
    return result(cudaErrorStreamCaptureInvalidated);
  }
  *graph = made;
  trace("record %zu", made->works.size());
  return result(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned)
{
  *executable = nullptr;
  if (graph == nullptr) return result(cudaErrorInvalidValue);
  if (card().capture == Capture::INSTANTIATE) return result(cudaErrorMemoryAllocation);
  *executable = new Graph(*graph);
  return result(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
  delete graph;
  return result(cudaSuccess);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream)
{
  if (stream->capture != nullptr) stop("a graph launched into a capture");
  if (executable == nullptr) return result(cudaErrorInvalidValue);
  trace("replay %zu", executable->works.size());
  const Reach reach; /* once, since it may take a system call */
  for (const Work &work : executable->works) stream->add(work);
  return result(cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable)
{
  delete executable;
  return result(cudaSuccess);
}
