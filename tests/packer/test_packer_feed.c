/* Packers as processes, the feed in this one: the chunks are the plan's, whoever serves them. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/plan/assemble.h"
#include "common/wire/data.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/packers.h"

enum { DOCUMENTS = 3000, CHUNKS = 5 };

static struct plm_feed *open_feed(const struct plm_feed_options *options)
{
  struct plm_feed *feed;
  struct plm_error error = {0};
  if (plm_feed_open(options, &feed, &error) != PLM_OK) {
    plm_error_print("test", &error);
    fail();
  }
  return feed;
}

/* What the feed must deliver, computed here from the plan and the corpus alone. */
static struct plm_hash expected(const struct plm_feed_options *options, const char *corpus_path,
                                uint64_t skip, uint32_t batches, uint32_t chunks)
{
  const struct plm_corpus_options opening = {0};
  struct plm_error error = {0};
  struct plm_corpus *corpus;
  struct plm_corpus_cursor *cursor;
  struct plm_plan *plan;
  struct plm_window window = {0};
  const uint32_t length = options->plan.max_length;
  assert_int_equal(plm_corpus_open(corpus_path, &opening, &corpus, &error), PLM_OK);
  assert_int_equal(plm_corpus_cursor_open(corpus, &cursor, &error), PLM_OK);
  assert_int_equal(plm_plan_open(&options->plan, plm_corpus_lengths(corpus, options->split),
                                 plm_corpus_info(corpus)->splits[options->split].documents, &plan,
                                 &error),
                   PLM_OK);
  struct plm_hasher *hasher = plm_hasher_open();
  uint8_t *batch = malloc((size_t)chunks * length);
  uint32_t *begin = malloc((chunks + 1) * sizeof *begin);
  struct plm_chunk_document *documents = malloc((size_t)chunks * length * sizeof *documents);
  uint8_t *tokens = NULL;
  uint64_t epoch = 0, index = 0;
  uint32_t chunk = 0, count = 0, in_batch = 0, done = 0;
  while (done < batches) {
    if (chunk == window.chunks) {
      if (index == plm_plan_windows(plan)) {
        epoch++;
        index = 0;
      }
      assert_int_equal(plm_plan_window(plan, epoch, index++, &window, &error), PLM_OK);
      tokens = realloc(tokens, plm_assemble_bytes(plan, &window));
      assert_int_equal(plm_assemble_window(cursor, options->split, plan, &window, tokens, &error),
                       PLM_OK);
      chunk = 0;
    }
    if (skip > 0) {
      skip--;
      chunk++;
      continue;
    }
    begin[in_batch] = count;
    for (uint32_t i = window.chunk_begin[chunk]; i < window.chunk_begin[chunk + 1]; i++)
      documents[count++] = window.documents[i];
    memcpy(batch + (size_t)in_batch * length, tokens + (size_t)chunk * length, length);
    chunk++;
    if (++in_batch < chunks) continue;
    begin[chunks] = count;
    plm_hasher_update(hasher, batch, (size_t)chunks * length);
    plm_hasher_update(hasher, begin, (chunks + 1) * sizeof *begin);
    plm_hasher_update(hasher, documents, count * sizeof *documents);
    count = in_batch = 0;
    done++;
  }
  const struct plm_hash hash = plm_hasher_digest(hasher);
  plm_hasher_close(hasher);
  free(batch);
  free(begin);
  free(documents);
  free(tokens);
  plm_window_deinit(&window);
  plm_plan_close(plan);
  plm_corpus_cursor_close(cursor);
  plm_corpus_close(corpus);
  return hash;
}

static void serves_the_plan_over_tcp_and_ipc(void **state)
{
  (void)state;
  const char *corpus = packers_corpus("corpus", DOCUMENTS, 1);
  struct plm_feed_options options = packers_options();
  /* about three epochs, so that batches span their borders */
  const struct plm_hash want = expected(&options, corpus, 0, 1500, CHUNKS);
  char ipc[256];
  snprintf(ipc, sizeof ipc, "ipc:///tmp/plm-test-%d.sock", (int)getpid());
  for (int kind = 0; kind < 2; kind++) {
    if (kind == 1) options.endpoint = ipc;
    struct plm_feed *feed = open_feed(&options);
    const pid_t packer = packers_start(corpus, plm_feed_bound(feed), NULL, NULL);
    assert_true(plm_hash_equal(packers_take(feed, 1500, CHUNKS), want));
    uint64_t epoch, chunk;
    plm_feed_position(feed, &epoch, &chunk);
    assert_true(epoch >= 2);
    assert_int_equal(packers_stop(packer, SIGTERM), 0);
    plm_feed_close(feed);
  }
}

int main(void)
{
  plm_log_init("test", PLM_LOG_INFO);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(serves_the_plan_over_tcp_and_ipc),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
