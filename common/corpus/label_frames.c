/* A ring of frames, in which the oldest make room for new ones. A packer reads a window's labels
 * twice, for its tables and soon after for its chunks, and then not again before the next epoch. */
#include "common/corpus/label_frames.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/alloc.h"

enum {
  FRAMES_MOST = 1024, /* so that looking through all takes less time than making one */
  MAKERS_MOST = 64,
};

struct label_frames {
  size_t limit;
  pthread_mutex_t mutex; /* guards everything below, except the bytes of frames */
  pthread_cond_t made;
  struct label_frame *frames[FRAMES_MOST]; /* frame n is in slot n % FRAMES_MOST */
  uint64_t keys[FRAMES_MOST];              /* of these frames */
  uint64_t first, end;                     /* frames that are kept */
  size_t bytes;                            /* of these */
  uint64_t making[MAKERS_MOST];            /* keys */
  unsigned makers;
};

static uint64_t key_of(enum plm_split split, uint64_t group)
{
  return group * PLM_SPLIT_COUNT + (uint64_t)split;
}

struct label_frames *label_frames_open(size_t limit)
{
  struct label_frames *frames = plm_alloc_zeroed(1, sizeof *frames);
  frames->limit = limit;
  pthread_mutex_init(&frames->mutex, NULL);
  pthread_cond_init(&frames->made, NULL);
  return frames;
}

/* The mutex is held here, and in the functions below up to label_frames_close. */
static void let_go(struct label_frame *frame)
{
  PLM_ASSERT(frame->holders > 0);
  if (--frame->holders > 0) return;
  free(frame->bytes);
  free(frame);
}

static void drop_oldest(struct label_frames *frames)
{
  struct label_frame *oldest = frames->frames[frames->first++ % FRAMES_MOST];
  PLM_ASSERT(frames->bytes >= oldest->size);
  frames->bytes -= oldest->size;
  let_go(oldest);
}

static void keep(struct label_frames *frames, struct label_frame *frame)
{
  if (frame->size > frames->limit) return;
  while (frames->end - frames->first == FRAMES_MOST || frames->bytes > frames->limit - frame->size)
    drop_oldest(frames);
  frames->keys[frames->end % FRAMES_MOST] = frame->key;
  frames->frames[frames->end++ % FRAMES_MOST] = frame;
  frames->bytes += frame->size;
  frame->holders++;
}

static struct label_frame *find(const struct label_frames *frames, uint64_t key)
{
  for (uint64_t n = frames->first; n < frames->end; n++)
    if (frames->keys[n % FRAMES_MOST] == key) return frames->frames[n % FRAMES_MOST];
  return NULL;
}

/* The place of a key among those that are being made; or frames->makers. */
static unsigned maker_of(const struct label_frames *frames, uint64_t key)
{
  unsigned i = 0;
  while (i < frames->makers && frames->making[i] != key) i++;
  return i;
}

void label_frames_close(struct label_frames *frames)
{
  if (frames == NULL) return;
  PLM_ASSERT(frames->makers == 0);
  while (frames->first < frames->end) drop_oldest(frames);
  pthread_mutex_destroy(&frames->mutex);
  pthread_cond_destroy(&frames->made);
  free(frames);
}

struct label_frame *label_frames_hold(struct label_frames *frames, enum plm_split split,
                                      uint64_t group)
{
  const uint64_t key = key_of(split, group);
  pthread_mutex_lock(&frames->mutex);
  struct label_frame *frame = find(frames, key);
  while (frame == NULL && maker_of(frames, key) < frames->makers) {
    pthread_cond_wait(&frames->made, &frames->mutex);
    frame = find(frames, key);
  }
  if (frame != NULL) frame->holders++;
  /* With too many makers, others may make the same one. */
  if (frame == NULL && frames->makers < MAKERS_MOST) frames->making[frames->makers++] = key;
  pthread_mutex_unlock(&frames->mutex);
  return frame;
}

struct label_frame *label_frames_add(struct label_frames *frames, enum plm_split split,
                                     uint64_t group, uint8_t *bytes, size_t size)
{
  struct label_frame *frame = NULL;
  const uint64_t key = key_of(split, group);
  if (bytes != NULL) {
    frame = plm_alloc(sizeof *frame);
    *frame = (struct label_frame){.key = key, .holders = 1, .bytes = bytes, .size = size};
  }
  pthread_mutex_lock(&frames->mutex);
  const unsigned maker = maker_of(frames, key);
  if (maker < frames->makers) frames->making[maker] = frames->making[--frames->makers];
  if (frame != NULL) keep(frames, frame);
  pthread_cond_broadcast(&frames->made);
  pthread_mutex_unlock(&frames->mutex);
  return frame;
}

void label_frames_release(struct label_frames *frames, struct label_frame *frame)
{
  pthread_mutex_lock(&frames->mutex);
  let_go(frame);
  pthread_mutex_unlock(&frames->mutex);
}
