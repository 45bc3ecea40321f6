/* Label records that were decompressed for a window's tables are those of its chunks. */
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "common/base/process/thread.h"
#include "common/corpus/corpus.h"
#include "packer/window_store.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/peers/packers.h"

enum { GROUPS = 8, DOCUMENTS = GROUPS * PLM_GROUP_DOCUMENTS, THREADS = 4, WAIT_MS = 60000 };

/* The frames that this process has decompressed. */
static atomic_uint frames;

size_t ZSTD_decompressDCtx(ZSTD_DCtx *context, void *out, size_t room, const void *in, size_t size)
{
  size_t (*real)(ZSTD_DCtx *, void *, size_t, const void *, size_t);
  void *found = must(dlsym(RTLD_NEXT, "ZSTD_decompressDCtx"));
  memcpy(&real, &found, sizeof real);
  atomic_fetch_add(&frames, 1);
  return real(context, out, room, in, size);
}

static struct plm_corpus *open_labelled(const char *name)
{
  const struct written_corpus of = {.tokenizer = PLM_TOKENIZER_ESM,
                                    .documents = {DOCUMENTS, 0, 0},
                                    .longest = 60,
                                    .labelled = true};
  struct plm_corpus *corpus = written_corpus_open(name, &of);
  atomic_store(&frames, 0);
  return corpus;
}

static struct plm_corpus_cursor *cursor_of(struct plm_corpus *corpus)
{
  struct plm_corpus_cursor *cursor;
  assert_int_equal(plm_corpus_cursor_open(corpus, &cursor, NULL), PLM_OK);
  return cursor;
}

/* The records of a group, and their size. */
static const uint8_t *labels_of(struct plm_corpus_cursor *cursor, uint64_t group, size_t *size)
{
  const uint8_t *records = NULL;
  const size_t *offsets = NULL;
  PLM_ASSERT(plm_corpus_labels(cursor, PLM_SPLIT_TRAIN, group, &records, &offsets, NULL) == PLM_OK);
  *size = offsets[PLM_GROUP_DOCUMENTS];
  return records;
}

/* A window's tables and its chunks, which two threads make side by side. */
static void a_window_decompresses_each_frame_once(void **state)
{
  (void)state;
  struct plm_corpus *corpus = open_labelled("window");
  struct window_store *store;
  struct packed_window *packed;
  struct store_proof proof = {.bytes = NULL};
  struct plm_plan_parameters parameters = packers_options().plan;
  parameters.window_groups = GROUPS;
  assert_int_equal(window_store_open(corpus, 2, STORE_REPLACED_MOST, &store, NULL), PLM_OK);
  struct store_plan *plan =
      window_store_plan(store, PLM_SPLIT_TRAIN, &parameters, plm_plan_hash(&parameters));
  const struct store_proof ask = {.plan = plan, .count = GROUPS};
  assert_true(window_store_ask_proof(store, &ask));
  bool proven = false, built = false;
  while (!proven || !built) {
    struct pollfd item = {.fd = window_store_wake(store), .events = POLLIN};
    if (!proven) proven = window_store_pop_proof(store, &proof);
    built = window_store_get(store, plan, 0, 0, true, &packed, NULL) == WINDOW_READY;
    if (proven && built) break;
    assert_int_equal(poll(&item, 1, WAIT_MS), 1); /* for one of the two */
    window_store_woken(store);
    window_store_pass(store);
  }
  assert_int_equal(proof.error.status, PLM_OK);
  assert_int_equal(proof.count, GROUPS);
  assert_int_equal(packed->documents[packed->chunks], DOCUMENTS);
  assert_int_equal(atomic_load(&frames), 2 * GROUPS); /* of residues and of labels */
  free(proof.bytes);
  window_store_close(store);
  plm_corpus_close(corpus);
}

struct reader {
  struct plm_corpus *corpus;
  pthread_t thread;
  uint8_t *expected[GROUPS];
  bool same;
};

static void *read_groups(void *context)
{
  struct reader *reader = context;
  struct plm_corpus_cursor *cursor = cursor_of(reader->corpus);
  reader->same = true;
  for (uint64_t group = 0; group < GROUPS; group++) {
    size_t size;
    const uint8_t *records = labels_of(cursor, group, &size);
    reader->same &= memcmp(records, reader->expected[group], size) == 0;
  }
  plm_corpus_cursor_close(cursor);
  return NULL;
}

/* Threads that need the same groups at the same time wait for each other. */
static void threads_decompress_each_frame_once(void **state)
{
  (void)state;
  struct plm_corpus *corpus = open_labelled("threads");
  struct plm_corpus_cursor *cursor = cursor_of(corpus);
  struct reader readers[THREADS];
  uint8_t *expected[GROUPS];
  for (uint64_t group = 0; group < GROUPS; group++) { /* not shared yet */
    size_t size;
    const uint8_t *records = labels_of(cursor, group, &size);
    expected[group] = memcpy(must(malloc(size)), records, size);
  }
  plm_corpus_cursor_close(cursor);
  plm_corpus_share_labels(corpus, (size_t)1 << 30);
  assert_int_equal(atomic_load(&frames), GROUPS);
  for (int i = 0; i < THREADS; i++) {
    readers[i].corpus = corpus;
    memcpy(readers[i].expected, expected, sizeof expected);
    assert_int_equal(plm_thread_start(&readers[i].thread, "reader", read_groups, &readers[i], NULL),
                     PLM_OK);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(readers[i].thread, NULL);
  for (int i = 0; i < THREADS; i++) assert_true(readers[i].same);
  assert_int_equal(atomic_load(&frames), 2 * GROUPS);
  for (int group = 0; group < GROUPS; group++) free(expected[group]);
  plm_corpus_close(corpus);
}

/* The oldest groups are dropped, but not while a cursor reads one. */
static void the_limit_is_kept(void **state)
{
  (void)state;
  struct plm_corpus *corpus = open_labelled("limit");
  struct plm_corpus_cursor *first = cursor_of(corpus), *second;
  size_t size, largest = 0;
  for (uint64_t group = 0; group < GROUPS; group++) {
    (void)labels_of(first, group, &size);
    largest = size > largest ? size : largest;
  }
  plm_corpus_cursor_close(first);
  plm_corpus_share_labels(corpus, 2 * largest); /* two groups, but not three */
  first = cursor_of(corpus);
  second = cursor_of(corpus);
  const uint8_t *held = labels_of(first, 0, &size);
  uint8_t *copy = memcpy(must(malloc(size)), held, size);
  atomic_store(&frames, 0);
  for (uint64_t group = 0; group < GROUPS; group++) {
    size_t others;
    (void)labels_of(second, group, &others);
  }
  assert_int_equal(atomic_load(&frames), GROUPS - 1); /* the first reader had group 0 */
  assert_memory_equal(held, copy, size);
  (void)labels_of(first, GROUPS - 1, &size);
  (void)labels_of(first, GROUPS - 2, &size);
  assert_int_equal(atomic_load(&frames), GROUPS - 1);
  (void)labels_of(first, 0, &size);
  assert_int_equal(atomic_load(&frames), GROUPS);
  free(copy);
  plm_corpus_cursor_close(first);
  plm_corpus_cursor_close(second);
  plm_corpus_close(corpus);
}

/* A group that is larger than the limit is not kept. */
static void nothing_is_kept_beyond_the_limit(void **state)
{
  (void)state;
  struct plm_corpus *corpus = open_labelled("nothing");
  plm_corpus_share_labels(corpus, 1);
  struct plm_corpus_cursor *first = cursor_of(corpus), *second = cursor_of(corpus);
  size_t size, again;
  const uint8_t *one = labels_of(first, 3, &size), *two = labels_of(second, 3, &again);
  assert_int_equal(size, again);
  assert_memory_equal(one, two, size);
  assert_int_equal(atomic_load(&frames), 2);
  plm_corpus_cursor_close(first);
  plm_corpus_cursor_close(second);
  plm_corpus_close(corpus);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_window_decompresses_each_frame_once),
      cmocka_unit_test(threads_decompress_each_frame_once),
      cmocka_unit_test(the_limit_is_kept),
      cmocka_unit_test(nothing_is_kept_beyond_the_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
