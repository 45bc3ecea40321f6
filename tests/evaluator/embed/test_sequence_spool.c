/* What embed keeps of its sequences: the windows of the spool, its fingerprint, and what is told
 * when a part of it is lost. */
#include "tests/support/harness/cmocka_all.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "evaluator/embed/sequence_spool.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

/* A window ends at either limit, and a sequence with more tokens than a window may have fills one.
 */
static void windows_cover_everything_once(void **state)
{
  (void)state;
  const uint32_t most = PLM_SPOOL_WINDOW_TOKENS;
  const uint32_t long_ones[] = {most / 2, most / 2, 1, most + 3, 2};
  const uint32_t shorts = PLM_SPOOL_WINDOW_SEQUENCES + 5;
  const uint32_t counts[] = {2, 1, 1, PLM_SPOOL_WINDOW_SEQUENCES, 6};
  uint16_t *tokens = must(malloc((most + 3) * sizeof *tokens));
  struct plm_sequence_spool *spool;
  assert_int_equal(plm_sequence_spool_open(scratch_directory(), 2, &spool, NULL), PLM_OK);
  for (uint32_t i = 0; i < 5 + shorts; i++) {
    const uint32_t length = i < 5 ? long_ones[i] : 1 + i % 3;
    for (uint32_t t = 0; t < length; t++) tokens[t] = (uint16_t)(i * 31 + t);
    assert_int_equal(plm_sequence_spool_add(spool, "n", 1, tokens, length, NULL), PLM_OK);
  }
  assert_int_equal(plm_sequence_spool_finish(spool, NULL), PLM_OK);
  struct plm_spool_window window = {0}, other = {0}; /* each has its own place */
  uint64_t first = 0, before = 0;
  for (size_t w = 0;; w++) {
    assert_int_equal(plm_sequence_spool_next(spool, &window, NULL), PLM_OK);
    if (w == 0) assert_int_equal(plm_sequence_spool_next(spool, &other, NULL), PLM_OK);
    assert_int_equal(window.first, first);
    assert_int_equal(window.tokens_before, before);
    if (window.count == 0) break;
    assert_true(w < 5);
    assert_int_equal(window.count, counts[w]);
    for (uint32_t k = 0; k < window.count; k++) {
      const uint32_t i = (uint32_t)first + k;
      const uint32_t length = i < 5 ? long_ones[i] : 1 + i % 3;
      const uint16_t *kept = (const uint16_t *)window.token_data + window.starts[k];
      assert_int_equal(window.lengths[k], length);
      assert_int_equal(kept[0], (uint16_t)(i * 31));
      assert_int_equal(kept[length - 1], (uint16_t)(i * 31 + length - 1));
    }
    if (w == 0)
      assert_memory_equal(other.token_data, window.token_data, window.tokens * sizeof *tokens);
    first += window.count;
    before += window.tokens;
  }
  assert_int_equal(first, 5 + shorts);
  assert_int_equal(before, plm_sequence_spool_tokens(spool));
  plm_spool_window_deinit(&window);
  plm_spool_window_deinit(&other);
  plm_sequence_spool_close(spool);
  free(tokens);
}

static void take_length(void *context, uint64_t number, uint32_t tokens)
{
  (void)context, (void)number, (void)tokens;
}

static plm_status take_name(void *context, uint64_t number, const char *name, size_t size,
                            struct plm_error *error)
{
  (void)context, (void)number, (void)name, (void)size, (void)error;
  return PLM_OK;
}

/* Of its three files, each is cut in turn, or can no longer be read. */
static void a_lost_part_of_the_spool_is_told(void **state)
{
  enum { PARTS = 3 };
  (void)state;
  for (int lost = 0; lost < 2 * PARTS; lost++) {
    const int part = lost % PARTS;
    int next[PARTS]; /* the descriptors that the spool's files get */
    struct plm_sequence_spool *spool;
    struct plm_spool_window window = {0};
    struct plm_error error = {0};
    for (int i = 0; i < PARTS; i++) next[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < PARTS; i++) assert_true(next[i] >= 0 && close(next[i]) == 0);
    assert_int_equal(plm_sequence_spool_open(scratch_directory(), 1, &spool, NULL), PLM_OK);
    for (int i = 0; i < 2; i++)
      assert_int_equal(plm_sequence_spool_add(spool, "name", 4, "\x05\x06", 2, NULL), PLM_OK);
    assert_int_equal(plm_sequence_spool_finish(spool, NULL), PLM_OK);
    if (lost < PARTS) {
      assert_int_equal(ftruncate(next[part], 1), 0);
    } else {
      const int other = open("/dev/null", O_WRONLY | O_CLOEXEC);
      assert_int_equal(dup3(other, next[part], O_CLOEXEC), next[part]);
      close(other);
    }
    const plm_status found[] = {
        plm_sequence_spool_next(spool, &window, part < 2 ? &error : NULL),
        plm_sequence_spool_each_length(spool, take_length, NULL, NULL),
        plm_sequence_spool_each_name(spool, take_name, NULL, part == 2 ? &error : NULL)};
    const plm_status why = lost < PARTS ? PLM_CORRUPT : PLM_IO;
    for (int i = 0; i < PARTS; i++)
      assert_int_equal(found[i], i == part || (i == 0 && part == 1) ? why : PLM_OK);
    assert_non_null(strstr(error.what, lost < PARTS
                                           ? "the temporary copy of the sequences ends too early"
                                           : "cannot read the temporary copy of the sequences"));
    plm_spool_window_deinit(&window);
    plm_sequence_spool_close(spool);
  }
}

static void fingerprints_see_names_lengths_and_tokens(void **state)
{
  (void)state;
  static const struct {
    const char *names[2], *tokens[2];
  } inputs[] = {
      {{"a", "b"}, {"LAG", "V"}}, {{"a", "c"}, {"LAG", "V"}}, {{"a", "b"}, {"LAGV", "V"}},
      {{"a", "b"}, {"LA", "GV"}}, {{"ab", ""}, {"LAG", "V"}}, {{"b", "a"}, {"V", "LAG"}},
      {{"a", "b"}, {"LAG", "S"}},
  };
  enum { INPUTS = sizeof inputs / sizeof *inputs };
  struct plm_hash hashes[INPUTS];
  for (size_t i = 0; i < INPUTS; i++) {
    struct plm_sequence_spool *spool;
    assert_int_equal(plm_sequence_spool_open(scratch_directory(), 1, &spool, NULL), PLM_OK);
    for (int k = 0; k < 2; k++)
      assert_int_equal(plm_sequence_spool_add(spool, inputs[i].names[k], strlen(inputs[i].names[k]),
                                              inputs[i].tokens[k],
                                              (uint32_t)strlen(inputs[i].tokens[k]), NULL),
                       PLM_OK);
    hashes[i] = plm_sequence_spool_fingerprint(spool);
    for (size_t j = 0; j < i; j++) assert_false(plm_hash_equal(hashes[i], hashes[j]));
    plm_sequence_spool_close(spool);
  }
}

static void a_folder_that_is_not_there_is_named(void **state)
{
  (void)state;
  struct plm_sequence_spool *spool;
  struct plm_error error = {0};
  assert_int_equal(plm_sequence_spool_open(scratch_path("nowhere"), 1, &spool, &error),
                   PLM_NOT_FOUND);
  assert_non_null(strstr(error.what, "nowhere"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(windows_cover_everything_once),
      cmocka_unit_test(a_lost_part_of_the_spool_is_told),
      cmocka_unit_test(fingerprints_see_names_lengths_and_tokens),
      cmocka_unit_test(a_folder_that_is_not_there_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
