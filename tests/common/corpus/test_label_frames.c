/* The ring of decompressed frames that cursors share: what is kept, for how long, and who makes it.
 */
#include "common/corpus/label_frames.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/process/thread.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"

enum { MOST = 1024, MAKERS = 64, GROUPS = 2000, ROUNDS = 50 };

/* Makes a frame of the given size, filled with a byte that depends on the group. */
static void make(struct label_frames *frames, enum plm_split split, uint64_t group, size_t size)
{
  uint8_t *bytes = must(malloc(size));
  memset(bytes, (int)(group % 251), size);
  assert_null(label_frames_hold(frames, split, group));
  struct label_frame *frame = label_frames_add(frames, split, group, bytes, size);
  assert_ptr_equal(frame->bytes, bytes);
  assert_int_equal(frame->size, size);
  label_frames_release(frames, frame);
}

/* Whether a frame is kept. */
static bool has(struct label_frames *frames, enum plm_split split, uint64_t group)
{
  struct label_frame *frame = label_frames_hold(frames, split, group);
  if (frame != NULL) {
    assert_int_equal(frame->bytes[0], group % 251);
    label_frames_release(frames, frame);
  } else {
    assert_null(label_frames_add(frames, split, group, NULL, 0)); /* nobody makes it */
  }
  return frame != NULL;
}

static void the_last_frames_are_kept(void **state)
{
  struct label_frames *frames = label_frames_open(1 << 20);
  (void)state;
  for (uint64_t group = 0; group < GROUPS; group++) {
    make(frames, PLM_SPLIT_TRAIN, group, 1);
    if (group < MOST) assert_true(has(frames, PLM_SPLIT_TRAIN, 0));
    if (group >= MOST) assert_false(has(frames, PLM_SPLIT_TRAIN, group - MOST));
    if (group >= MOST) assert_true(has(frames, PLM_SPLIT_TRAIN, group - MOST + 1));
    assert_true(has(frames, PLM_SPLIT_TRAIN, group));
  }
  label_frames_close(frames);
}

static void as_many_bytes_are_kept_as_the_limit_allows(void **state)
{
  struct label_frames *frames = label_frames_open(10);
  (void)state;
  make(frames, PLM_SPLIT_TRAIN, 0, 11); /* never */
  assert_false(has(frames, PLM_SPLIT_TRAIN, 0));
  make(frames, PLM_SPLIT_TRAIN, 1, 4);
  make(frames, PLM_SPLIT_TRAIN, 2, 6);
  assert_true(has(frames, PLM_SPLIT_TRAIN, 1) && has(frames, PLM_SPLIT_TRAIN, 2));
  make(frames, PLM_SPLIT_TRAIN, 3, 4);
  assert_false(has(frames, PLM_SPLIT_TRAIN, 1));
  assert_true(has(frames, PLM_SPLIT_TRAIN, 2) && has(frames, PLM_SPLIT_TRAIN, 3));
  make(frames, PLM_SPLIT_TRAIN, 4, 5);
  assert_false(has(frames, PLM_SPLIT_TRAIN, 2));
  assert_true(has(frames, PLM_SPLIT_TRAIN, 3) && has(frames, PLM_SPLIT_TRAIN, 4));
  make(frames, PLM_SPLIT_TRAIN, 5, 10);
  assert_false(has(frames, PLM_SPLIT_TRAIN, 3) || has(frames, PLM_SPLIT_TRAIN, 4));
  assert_true(has(frames, PLM_SPLIT_TRAIN, 5));
  label_frames_close(frames);
}

/* Splits have groups of the same numbers. */
static void a_frame_is_of_one_split(void **state)
{
  struct label_frames *frames = label_frames_open(100);
  (void)state;
  for (uint64_t group = 0; group < 4; group++) {
    for (int split = 0; split < PLM_SPLIT_COUNT; split++) {
      assert_false(has(frames, (enum plm_split)split, group));
      make(frames, (enum plm_split)split, group, 1 + (size_t)split);
    }
    for (int split = 0; split < PLM_SPLIT_COUNT; split++) {
      struct label_frame *frame = label_frames_hold(frames, (enum plm_split)split, group);
      assert_non_null(frame);
      assert_int_equal(frame->size, 1 + split);
      label_frames_release(frames, frame);
    }
  }
  label_frames_close(frames);
}

/* A frame that is held can be read after it was dropped. */
static void a_held_frame_stays(void **state)
{
  struct label_frames *frames = label_frames_open(4);
  (void)state;
  make(frames, PLM_SPLIT_VALID, 7, 4);
  struct label_frame *first = label_frames_hold(frames, PLM_SPLIT_VALID, 7);
  struct label_frame *second = label_frames_hold(frames, PLM_SPLIT_VALID, 7);
  assert_ptr_equal(first, second);
  make(frames, PLM_SPLIT_VALID, 8, 4);
  assert_false(has(frames, PLM_SPLIT_VALID, 7));
  label_frames_release(frames, second);
  assert_int_equal(first->bytes[3], 7);
  label_frames_release(frames, first);
  label_frames_close(frames);
}

/* Beyond that number of makers, several may make the same frame, and nobody waits. */
static void makers_are_few(void **state)
{
  struct label_frames *frames = label_frames_open(1 << 20);
  (void)state;
  for (uint64_t group = 0; group < MAKERS; group++)
    assert_null(label_frames_hold(frames, PLM_SPLIT_TRAIN, group));
  for (int i = 0; i < 2; i++) assert_null(label_frames_hold(frames, PLM_SPLIT_TRAIN, MAKERS));
  for (uint64_t group = 0; group < MAKERS; group++)
    assert_null(label_frames_add(frames, PLM_SPLIT_TRAIN, group, NULL, 0));
  for (int i = 0; i < 2; i++)
    label_frames_release(frames,
                         label_frames_add(frames, PLM_SPLIT_TRAIN, MAKERS, must(calloc(1, 1)), 1));
  label_frames_close(frames);
}

struct waiter {
  struct label_frames *frames;
  uint64_t group;
  struct label_frame *found;
  pthread_t thread;
};

static void *wait_for_frame(void *context)
{
  struct waiter *waiter = context;
  waiter->found = label_frames_hold(waiter->frames, PLM_SPLIT_TEST, waiter->group);
  return NULL;
}

/* The last of the makers is known too: others wait for what it makes. */
static void others_wait_for_the_maker(void **state)
{
  struct label_frames *frames = label_frames_open(1 << 20);
  (void)state;
  for (uint64_t group = 1; group < MAKERS; group++)
    assert_null(label_frames_hold(frames, PLM_SPLIT_TRAIN, group));
  for (uint64_t round = 0; round < ROUNDS; round++) {
    struct waiter waiters[3];
    assert_null(label_frames_hold(frames, PLM_SPLIT_TEST, round));
    for (int i = 0; i < 3; i++) {
      waiters[i] = (struct waiter){.frames = frames, .group = round};
      assert_int_equal(
          plm_thread_start(&waiters[i].thread, "waiter", wait_for_frame, &waiters[i], NULL),
          PLM_OK);
    }
    struct label_frame *made =
        label_frames_add(frames, PLM_SPLIT_TEST, round, must(calloc(1, 1)), 1);
    for (int i = 0; i < 3; i++) {
      pthread_join(waiters[i].thread, NULL);
      assert_ptr_equal(waiters[i].found, made);
      label_frames_release(frames, waiters[i].found);
    }
    label_frames_release(frames, made);
  }
  for (uint64_t group = 1; group < MAKERS; group++)
    assert_null(label_frames_add(frames, PLM_SPLIT_TRAIN, group, NULL, 0));
  label_frames_close(frames);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_last_frames_are_kept),
      cmocka_unit_test(as_many_bytes_are_kept_as_the_limit_allows),
      cmocka_unit_test(a_frame_is_of_one_split),
      cmocka_unit_test(a_held_frame_stays),
      cmocka_unit_test(makers_are_few),
      cmocka_unit_test(others_wait_for_the_maker),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
