/* The environment of a corpus under construction grows with its records. */
#include "stages/ingest/corpus_store.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/numbers/hash.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

/* A transaction with records of less than 32 MiB fits into the map of the beginning, and one with
 * this record does not. */
static void a_large_record_has_room(void **state)
{
  enum { LARGE = 121 << 20 };
  (void)state;
  char folder[PLM_PATH_SIZE];
  struct plm_corpus_store *store;
  struct plm_error error = {0};
  struct plm_hash hash;
  uint8_t *bytes = must(calloc(LARGE, 1));
  for (int i = 0; i < 3; i++) bytes[i * (LARGE / 3)] = (uint8_t)(i + 1);
  scratch_run(folder);
  must_work(plm_corpus_store_open(folder, PLM_CORPUS_FORMAT, &store, &error), &error);
  must_work(plm_corpus_store_put(store, PLM_SPLIT_TRAIN, PLM_RECORD_LENGTHS, 0, bytes, 5, &error),
            &error);
  must_work(
      plm_corpus_store_put(store, PLM_SPLIT_TRAIN, PLM_RECORD_LENGTHS, 1, bytes, LARGE, &error),
      &error);
  must_work(plm_corpus_store_put(store, PLM_SPLIT_TEST, PLM_RECORD_LENGTHS, 0, bytes, 7, &error),
            &error);
  must_work(plm_corpus_store_hash(store, PLM_RECORD_LENGTHS, &hash, &error), &error);
  struct plm_hasher *hasher = plm_hasher_open();
  plm_hasher_update(hasher, bytes, 5);
  plm_hasher_update(hasher, bytes, LARGE);
  plm_hasher_update(hasher, bytes, 7);
  assert_true(plm_hash_equal(hash, plm_hasher_digest(hasher)));
  plm_hasher_close(hasher);
  plm_corpus_store_close(store);
  assert_int_equal(plm_path_remove(folder, NULL), PLM_OK);
  free(bytes);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_large_record_has_room)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
