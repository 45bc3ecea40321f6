/* Which corpus the evaluator accepts: that of the run folder, which a trainer may write later. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/run/run.h"
#include "evaluator/watch/watched_corpus.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/packers.h"

static const struct plm_hash unknown, first = {.high = 1, .low = 2}, second = {.high = 1, .low = 3};
static char run[PLM_PATH_SIZE];

static int begin(void **state)
{
  (void)state;
  scratch_run(run);
  return plm_directory_make(run, NULL) != PLM_OK;
}

static struct plm_config config_of(uint32_t sources, const char *corpus)
{
  return (struct plm_config){
      .run = run, .source_count = sources, .corpus = (char *)(uintptr_t)corpus};
}

static void finds(const struct plm_config *config, struct plm_hash expected)
{
  struct plm_run_corpus found = {.fingerprint = second};
  assert_int_equal(plm_watched_corpus_find(config, &found, NULL), PLM_OK);
  assert_true(plm_hash_equal(found.fingerprint, expected));
}

/* One corpus is not read, because the evaluator's host need not have it. */
static void the_run_folder_decides(void **state)
{
  (void)state;
  const char *path = packers_corpus("corpus", 30, 3);
  const struct plm_config one = config_of(0, "/nowhere"), alone = config_of(1, "/nowhere"),
                          mixed = config_of(2, path), lost = config_of(2, "/nowhere");
  struct plm_corpus *corpus;
  struct plm_run_corpus found;
  struct plm_error error = {0};
  assert_int_equal(plm_corpus_open(path, NULL, &corpus, NULL), PLM_OK);
  const struct plm_hash read = plm_corpus_info(corpus)->fingerprint;
  plm_corpus_close(corpus);
  finds(&one, unknown);
  finds(&alone, unknown);
  finds(&mixed, read);
  assert_int_equal(plm_watched_corpus_find(&mixed, &found, NULL), PLM_OK);
  assert_true(plm_hash_equal(found.root, read));
  assert_int_equal(plm_watched_corpus_find(&lost, &found, &error), PLM_UNAVAILABLE);
  assert_string_equal(error.where, "corpus: source 0, /nowhere");
  assert_string_equal(error.hint, "the evaluator of a mixture must be able to read the corpus.json "
                                  "of its first corpus");
  assert_int_equal(plm_run_corpus_write(run, &(struct plm_run_corpus){.fingerprint = first}, NULL),
                   PLM_OK);
  finds(&one, first);
  finds(&mixed, first);
  finds(&lost, first);
}

/* Of all splits, and of each token from the first to the last. */
static void the_entropy_is_that_of_all_splits(void **state)
{
  (void)state;
  static struct plm_feed_corpus corpus;
  corpus.composition[PLM_SPLIT_TRAIN][0] = 8;
  corpus.composition[PLM_SPLIT_TEST][0] = 8;
  corpus.composition[PLM_SPLIT_VALID][511] = 48;
  corpus.composition[PLM_SPLIT_TEST][511] = 16;
  const double expected = -0.2 * log(0.2) - 0.8 * log(0.8);
  assert_true(fabs(plm_watched_corpus_entropy(&corpus) - expected) < 1e-12);
}

static plm_status check(struct plm_hash served, const volatile int *give_up, bool *known,
                        struct plm_error *error)
{
  static const volatile int never;
  struct plm_run_pulse pulse = {0};
  return plm_watched_corpus_check(run, served, &pulse, give_up != NULL ? give_up : &never, known,
                                  error);
}

static void another_corpus_is_named(void **state)
{
  (void)state;
  struct plm_error error = {0};
  bool known = true;
  assert_int_equal(check(first, NULL, &known, NULL), PLM_OK); /* no trainer, so nobody names it */
  assert_false(known);
  assert_int_equal(plm_run_corpus_write(run, &(struct plm_run_corpus){.fingerprint = first}, NULL),
                   PLM_OK);
  assert_int_equal(check(first, NULL, &known, NULL), PLM_OK);
  assert_true(known);
  assert_int_equal(check(second, NULL, &known, &error), PLM_UNAVAILABLE);
  assert_false(known);
  assert_string_equal(error.what,
                      "the run trains on corpus 00000000000000010000000000000002, but the "
                      "evaluator's first packer serves 00000000000000010000000000000003");
  assert_string_equal(error.hint, "start the evaluator again: it then accepts only packers of the "
                                  "run's corpus");
}

/* What a trainer does that has no chunks yet. */
struct trainer {
  struct plm_lock *lock;
  bool names; /* its corpus, before it ends */
};

static void *train(void *context)
{
  struct trainer *trainer = context;
  usleep(150000);
  if (trainer->names)
    assert_int_equal(
        plm_run_corpus_write(run, &(struct plm_run_corpus){.fingerprint = first}, NULL), PLM_OK);
  if (!trainer->names) plm_lock_release(trainer->lock);
  return NULL;
}

static void a_trainer_is_awaited(void **state)
{
  (void)state;
  for (int names = 0; names < 2; names++) {
    struct trainer trainer = {.names = names};
    const volatile int now = 1;
    pthread_t thread;
    struct plm_error error = {0};
    bool known = true;
    assert_int_equal(plm_lock_acquire(run, "trainer", &trainer.lock, NULL), PLM_OK);
    assert_int_equal(check(first, &now, &known, &error), PLM_INTERRUPTED);
    assert_string_equal(error.what, "the trainer has not named its corpus yet");
    assert_int_equal(pthread_create(&thread, NULL, train, &trainer), 0);
    assert_int_equal(check(first, NULL, &known, NULL), PLM_OK);
    assert_int_equal(known, names);
    pthread_join(thread, NULL);
    if (names) plm_lock_release(trainer.lock);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(the_run_folder_decides, begin),
      cmocka_unit_test_setup(another_corpus_is_named, begin),
      cmocka_unit_test(the_entropy_is_that_of_all_splits),
      cmocka_unit_test_setup(a_trainer_is_awaited, begin),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
