/* Hashing files. Of a large one, threads read parts ahead while the caller hashes them in order:
 * one thread that reads and hashes by turns leaves the disk idle half of the time. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files/descriptors.h"
#include "common/base/files/file.h"
#include "common/base/numbers/hash.h"
#include "common/base/process/cgroup.h"
#include "common/base/process/thread.h"

enum {
  PART = 1 << 20,           /* bytes that are read at once */
  LARGE = 16 << 20,         /* a file for which threads are worth it */
  READERS_MOST = 4,         /* more do not make a disk faster */
  SLOTS = 2 * READERS_MOST, /* parts of a large file in memory */
};

struct part {
  size_t size; /* less than PART at the end of the file */
  int error;   /* an errno; 0: none */
  bool full;
};

/* Part n of the file is in slot n % slots. */
struct read_ahead {
  int descriptor;
  unsigned slots; /* SLOTS, or 1 if the caller reads */
  uint8_t *bytes; /* (slots, PART) */
  pthread_t threads[READERS_MOST];
  unsigned thread_count;
  pthread_mutex_t mutex; /* guards everything below */
  pthread_cond_t changed;
  struct part parts[SLOTS];
  uint64_t next, hashed; /* parts that a thread has taken; parts whose slot is free again */
  bool closing;
};

static uint8_t *bytes_of(const struct read_ahead *ahead, uint64_t part)
{
  return ahead->bytes + part % ahead->slots * PART;
}

static struct part read_part(const struct read_ahead *ahead, uint64_t number)
{
  const ssize_t got =
      plm_file_read_part(ahead->descriptor, bytes_of(ahead, number), PART, number * PART);
  if (got < 0) return (struct part){.full = true, .error = errno};
  return (struct part){.full = true, .size = (size_t)got};
}

static void *read_parts(void *context)
{
  struct read_ahead *ahead = context;
  pthread_mutex_lock(&ahead->mutex);
  while (!ahead->closing) {
    if (ahead->next - ahead->hashed == SLOTS) {
      pthread_cond_wait(&ahead->changed, &ahead->mutex);
      continue;
    }
    const uint64_t number = ahead->next++;
    pthread_mutex_unlock(&ahead->mutex);
    const struct part part = read_part(ahead, number);
    pthread_mutex_lock(&ahead->mutex);
    PLM_ASSERT(!ahead->parts[number % SLOTS].full && number - ahead->hashed < SLOTS);
    ahead->parts[number % SLOTS] = part;
    pthread_cond_broadcast(&ahead->changed);
  }
  pthread_mutex_unlock(&ahead->mutex);
  return NULL;
}

/* Starts threads for a large file. Where none can be started, the caller reads. */
static void read_ahead_open(struct read_ahead *ahead, int descriptor)
{
  struct stat about;
  const bool large =
      fstat(descriptor, &about) == 0 && S_ISREG(about.st_mode) && about.st_size >= LARGE;
  const uint32_t cores = large ? plm_usable_cores() : 0;
  *ahead = (struct read_ahead){.descriptor = descriptor, .slots = large ? SLOTS : 1};
  ahead->bytes = plm_alloc_pages((size_t)ahead->slots * PART);
  pthread_mutex_init(&ahead->mutex, NULL);
  pthread_cond_init(&ahead->changed, NULL);
  while (ahead->thread_count < READERS_MOST && ahead->thread_count < cores &&
         plm_thread_start(&ahead->threads[ahead->thread_count], "read", read_parts, ahead, NULL) ==
             PLM_OK)
    ahead->thread_count++;
}

static void read_ahead_close(struct read_ahead *ahead)
{
  pthread_mutex_lock(&ahead->mutex);
  ahead->closing = true;
  pthread_cond_broadcast(&ahead->changed);
  pthread_mutex_unlock(&ahead->mutex);
  for (unsigned i = 0; i < ahead->thread_count; i++) pthread_join(ahead->threads[i], NULL);
  pthread_mutex_destroy(&ahead->mutex);
  pthread_cond_destroy(&ahead->changed);
  free(ahead->bytes);
}

/* Waits for part `number`, which stays in its slot until read_ahead_free. */
static struct part read_ahead_wait(struct read_ahead *ahead, uint64_t number)
{
  pthread_mutex_lock(&ahead->mutex);
  PLM_ASSERT(ahead->hashed == number);
  while (!ahead->parts[number % SLOTS].full) pthread_cond_wait(&ahead->changed, &ahead->mutex);
  const struct part part = ahead->parts[number % SLOTS];
  pthread_mutex_unlock(&ahead->mutex);
  return part;
}

static void read_ahead_free(struct read_ahead *ahead)
{
  pthread_mutex_lock(&ahead->mutex);
  ahead->parts[ahead->hashed++ % SLOTS].full = false;
  pthread_cond_broadcast(&ahead->changed);
  pthread_mutex_unlock(&ahead->mutex);
}

/* Hashes all parts in order. Returns an errno; 0: none. */
static int hash_parts(struct read_ahead *ahead, struct plm_hasher *hasher, uint64_t *total,
                      struct plm_advance *advance)
{
  struct part part = {.size = PART};
  for (uint64_t number = 0; part.error == 0 && part.size == PART; number++) {
    part = ahead->thread_count > 0 ? read_ahead_wait(ahead, number) : read_part(ahead, number);
    if (part.size == 0) break;
    plm_hasher_update(hasher, bytes_of(ahead, number), part.size);
    *total += part.size;
    plm_advance_by(advance, part.size);
    if (ahead->thread_count > 0) read_ahead_free(ahead);
  }
  return part.error;
}

plm_status plm_hash_file(const char *path, struct plm_hash *hash, uint64_t *size_bytes,
                         struct plm_advance *advance, struct plm_error *error)
{
  struct read_ahead ahead;
  uint64_t total = 0;
  const int descriptor = plm_descriptors_open(path, O_RDONLY, 0);
  if (descriptor < 0) return plm_error_errno(error, "cannot open %s", path);
  (void)posix_fadvise(descriptor, 0, 0, POSIX_FADV_SEQUENTIAL); /* the kernel reads further ahead */
  struct plm_hasher *hasher = plm_hasher_open();
  read_ahead_open(&ahead, descriptor);
  const int failed = hash_parts(&ahead, hasher, &total, advance);
  if (failed == 0) {
    *hash = plm_hasher_digest(hasher);
    if (size_bytes != NULL) *size_bytes = total;
  }
  read_ahead_close(&ahead);
  plm_hasher_close(hasher);
  close(descriptor);
  if (failed == 0) return PLM_OK;
  errno = failed;
  return plm_error_errno(error, "cannot read %s", path);
}
