/* count_memory.so: a preloaded library that counts the buffers which the CPU backend takes, so that
 * a test can compare them with the memory estimate. Those come from aligned_alloc, at lines of the
 * cache or at huge pages; what begins at a page is another buffer (common/base/alloc.h).
 *
 *   PLM_COUNT_MEMORY   a folder. At its end, the process writes "LEAST MOST" into DIR/RANK, bytes
 * of its buffers when they were most: what was asked for lies between the two, because buffers of 2
 * MiB and more are rounded up. */
#include <dlfcn.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLOTS = 1 << 16, PAGE = 4096 };

static struct {
  void *buffer;
  size_t least, most;
} buffers[SLOTS]; /* a hash table with open addressing; freed slots are used again */

static size_t least, most, highest_least, highest_most;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static size_t slot_of(const void *buffer)
{
  return (size_t)(((uintptr_t)buffer >> 6) * 0x9e3779b97f4a7c15ull >> 48) % SLOTS;
}

#pragma GCC visibility push(default) /* everything from here on is found before the C library's */

void *aligned_alloc(size_t alignment, size_t size)
{
  static void *(*real)(size_t, size_t);
  if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "aligned_alloc");
  void *buffer = real(alignment, size);
  if (buffer == NULL || alignment == PAGE) return buffer;
  pthread_mutex_lock(&mutex);
  size_t slot = slot_of(buffer);
  while (buffers[slot].buffer != NULL && buffers[slot].buffer != buffer) slot = (slot + 1) % SLOTS;
  buffers[slot].buffer = buffer;
  buffers[slot].least = size - alignment;
  buffers[slot].most = size;
  least += size - alignment;
  most += size;
  if (most > highest_most) {
    highest_least = least;
    highest_most = most;
  }
  pthread_mutex_unlock(&mutex);
  return buffer;
}

void free(void *buffer)
{
  static void (*real)(void *);
  if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "free");
  if (buffer != NULL && most > 0) {
    pthread_mutex_lock(&mutex);
    for (size_t slot = slot_of(buffer); buffers[slot].buffer != NULL; slot = (slot + 1) % SLOTS) {
      if (buffers[slot].buffer != buffer) continue;
      least -= buffers[slot].least;
      most -= buffers[slot].most;
      buffers[slot].least = buffers[slot].most = 0; /* the slot stays, for those behind it */
      break;
    }
    pthread_mutex_unlock(&mutex);
  }
  real(buffer);
}

#pragma GCC visibility pop

__attribute__((destructor)) static void write_count(void)
{
  const char *folder = getenv("PLM_COUNT_MEMORY"), *rank = getenv("OMPI_COMM_WORLD_RANK");
  char path[PATH_MAX];
  if (folder == NULL) return;
  snprintf(path, sizeof path, "%s/%s", folder, rank == NULL ? "0" : rank);
  FILE *file = fopen(path, "w");
  if (file == NULL) return;
  fprintf(file, "%zu %zu\n", highest_least, highest_most);
  fclose(file);
}
