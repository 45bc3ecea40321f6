/* What a corpus of many documents costs. A packer that reads lengths with their groups serves the
 * same windows as one that has read all of them, its memory does not follow the number of
 * documents, and a window needs only its own groups. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/wire/message.h"
#include "packer/window_build.h"
#include "packer/window_proof.h"
#include "tests/support/corpora/hollow_corpus.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/checked_memory.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

enum { FEW = 1 << 16, MANY = 1 << 20, WINDOW_GROUPS = 2, EPOCH = 3 };

static struct plm_plan_parameters parameters_of(bool clusters)
{
  return (struct plm_plan_parameters){.seed = 5,
                                      .max_length = 512,
                                      .alignment = 1,
                                      .window_groups = WINDOW_GROUPS,
                                      .packing = PLM_PACKING_BEST_FIT,
                                      .truncate = PLM_TRUNCATE_RANDOM_CROP,
                                      .tokenizer = PLM_TOKENIZER_ESM,
                                      .sampling =
                                          clusters ? PLM_SAMPLING_CLUSTERS : PLM_SAMPLING_DOCUMENTS,
                                      .shuffle = true};
}

/* A packer's side of one corpus. */
struct scene {
  struct plm_corpus *corpus;
  struct plm_corpus_cursor *cursor;
  struct plm_plan *plan;
  struct window_memory memory;
  struct packed_window *packed;
};

static void begin(struct scene *s, const char *directory, bool lengths_later,
                  const struct plm_plan_parameters *parameters)
{
  const struct plm_corpus_options options = {.allow_remote = true, .lengths_later = lengths_later};
  *s = (struct scene){.packed = must(calloc(1, sizeof *s->packed))};
  assert_int_equal(plm_corpus_open(directory, &options, &s->corpus, NULL), PLM_OK);
  assert_int_equal(plm_corpus_cursor_open(s->corpus, &s->cursor, NULL), PLM_OK);
  assert_int_equal(plm_plan_open_corpus(parameters, s->corpus, PLM_SPLIT_TRAIN, &s->plan, NULL),
                   PLM_OK);
}

static void end(struct scene *s)
{
  packed_window_free(s->packed);
  window_memory_deinit(&s->memory);
  plm_plan_close(s->plan);
  plm_corpus_cursor_close(s->cursor);
  plm_corpus_close(s->corpus);
}

/* Builds a window and what proves it. Returns the hash of both payloads. */
static struct plm_hash build(struct scene *s, uint64_t window)
{
  struct store_proof proof = {
      .split = PLM_SPLIT_TRAIN, .epoch = EPOCH, .window = window, .count = WINDOW_GROUPS};
  struct plm_hash hashes[2];
  assert_int_equal(packed_window_build(s->packed, &s->memory, s->cursor, PLM_SPLIT_TRAIN, s->plan,
                                       EPOCH, window, NULL),
                   PLM_OK);
  assert_int_equal(window_proof_write(s->corpus, s->cursor, s->plan, &proof, NULL), PLM_OK);
  assert_int_equal(proof.count, WINDOW_GROUPS);
  hashes[0] = plm_hash_bytes(s->packed->bytes, s->packed->offset[s->packed->chunks]);
  hashes[1] = plm_hash_bytes(proof.bytes, proof.size);
  free(proof.bytes);
  return plm_hash_bytes(hashes, sizeof hashes);
}

static void write_corpus(const char *directory, uint64_t documents,
                         const struct plm_plan_parameters *parameters)
{
  const struct hollow_windows windows = {EPOCH, 7, 2};
  hollow_corpus_write(directory, documents, parameters, &windows, 1);
}

static void the_same_is_served(void **state)
{
  (void)state;
  for (int clusters = 0; clusters < 2; clusters++) {
    const struct plm_plan_parameters parameters = parameters_of(clusters != 0);
    struct plm_hash served[2][2];
    char directory[PLM_PATH_SIZE];
    snprintf(directory, sizeof directory, "%s", scratch_path(clusters ? "clusters" : "documents"));
    write_corpus(directory, FEW, &parameters);
    for (int later = 0; later < 2; later++) {
      struct scene s;
      begin(&s, directory, later != 0, &parameters);
      assert_true((plm_corpus_lengths(s.corpus, PLM_SPLIT_TRAIN) == NULL) == (later != 0));
      for (uint64_t w = 0; w < 2; w++) served[later][w] = build(&s, 7 + w);
      end(&s);
    }
    assert_memory_equal(served[0], served[1], sizeof served[0]);
    assert_false(plm_hash_equal(served[0][0], served[0][1]));
  }
}

static void the_same_labels_are_served(void **state)
{
  enum { WINDOWS = 6 };
  static const struct written_corpus of = {
      PLM_TOKENIZER_ESM, {WINDOWS * WINDOW_GROUPS * PLM_GROUP_DOCUMENTS, 0, 0}, 700, 0, true};
  const struct plm_plan_parameters parameters = parameters_of(false);
  struct plm_hash served[2][WINDOWS];
  (void)state;
  plm_corpus_close(written_corpus_open("labels", &of));
  for (int later = 0; later < 2; later++) {
    struct scene s;
    begin(&s, scratch_path("labels"), later != 0, &parameters);
    for (uint64_t w = 0; w < WINDOWS; w++) served[later][w] = build(&s, w);
    assert_non_null(s.packed->schema);
    end(&s);
  }
  assert_memory_equal(served[0], served[1], sizeof served[0]);
  assert_false(plm_hash_equal(served[0][0], served[0][1]));
}

/* A plan with a limit reads lengths only up to it. */
static void a_limit_ends_the_plan(void **state)
{
  struct plm_plan_parameters parameters = parameters_of(false);
  const char *directory = scratch_path("limit");
  uint64_t documents[2], windows[2];
  (void)state;
  write_corpus(directory, FEW, &parameters);
  parameters.shuffle = false;
  for (uint64_t limit = 100; limit < 10000000; limit *= 33) {
    parameters.token_limit = limit;
    for (int later = 0; later < 2; later++) {
      const struct plm_corpus_options options = {.allow_remote = true, .lengths_later = later != 0};
      struct plm_corpus *corpus;
      struct plm_plan *plan;
      assert_int_equal(plm_corpus_open(directory, &options, &corpus, NULL), PLM_OK);
      const plm_status status =
          plm_plan_open_corpus(&parameters, corpus, PLM_SPLIT_TRAIN, &plan, NULL);
      assert_int_equal(status, PLM_OK);
      documents[later] = plm_plan_documents(plan);
      windows[later] = plm_plan_windows(plan);
      plm_plan_close(plan);
      plm_corpus_close(corpus);
    }
    assert_int_equal(documents[0], documents[1]);
    assert_int_equal(windows[0], windows[1]);
  }
  assert_true(documents[0] > PLM_GROUP_DOCUMENTS && documents[0] < FEW);
}

/* Bytes of the blocks that were taken since then and are not released. */
static size_t held_since(uint64_t taken)
{
  enum { MOST = 4096 };
  static void *callers[MOST];
  static size_t sizes[MOST];
  const long count = checked_memory_origins(taken + 1, callers, sizes, MOST);
  size_t bytes = 0;
  assert_in_range(count, 1, MOST - 1);
  for (long i = 0; i < count; i++) bytes += sizes[i];
  return bytes;
}

/* The roots and checks of groups and the order of an epoch are in memory: less than a byte for each
 * document. Their lengths would be 4. */
static void memory_does_not_follow_documents(void **state)
{
  const struct plm_plan_parameters parameters = parameters_of(false);
  const uint64_t counts[] = {FEW, MANY};
  size_t held[2];
  (void)state;
  if (!CHECKED_MEMORY) skip("a sanitizer brings its own malloc");
  for (int i = 0; i < 2; i++) {
    struct scene s;
    const char *directory = scratch_path(i == 0 ? "few" : "many");
    write_corpus(directory, counts[i], &parameters);
    const uint64_t taken = checked_memory_taken();
    begin(&s, directory, true, &parameters);
    (void)build(&s, 7);
    held[i] = held_since(taken);
    end(&s);
  }
  assert_true(held[1] > held[0]);
  assert_in_range(held[1] - held[0], 1, MANY - FEW);
}

struct counted {
  uint64_t groups;
  uint64_t highest;
};

static void count_group(const void *context, uint32_t index, uint64_t group,
                        struct plm_plan_group *out)
{
  struct counted *counted = *(struct counted *const *)context;
  (void)index;
  counted->groups++;
  counted->highest = group > counted->highest ? group : counted->highest;
  out->count = PLM_GROUP_DOCUMENTS;
  for (uint32_t i = 0; i < out->count; i++) {
    out->numbers[i] = group * PLM_GROUP_DOCUMENTS + i;
    out->lengths[i] = 100;
  }
}

/* A consumer of a billion documents: any window of any epoch is planned from its own groups, each
 * of which is looked at twice at most, and the memory of the plan is that of the order of groups.
 */
static void a_window_needs_only_its_groups(void **state)
{
  enum { DOCUMENTS = 1000000000, GROUP_BYTES = 16 };
  const struct plm_plan_parameters parameters = parameters_of(false);
  const uint64_t taken = CHECKED_MEMORY ? checked_memory_taken() : 0;
  struct counted counted = {0}, *context = &counted;
  struct plm_window window = {0};
  struct plm_plan *plan;
  (void)state;
  assert_int_equal(plm_plan_open_unread(&parameters, DOCUMENTS, 0, &plan, NULL), PLM_OK);
  const uint64_t last = plm_plan_windows(plan) - 1;
  assert_int_equal(last, DOCUMENTS / PLM_GROUP_DOCUMENTS / WINDOW_GROUPS - 1);
  assert_int_equal(plm_plan_window_of(plan, EPOCH, last, count_group, &context, &window, NULL),
                   PLM_OK);
  assert_in_range(counted.groups, WINDOW_GROUPS, 2 * WINDOW_GROUPS);
  assert_int_equal(window.document_count, WINDOW_GROUPS * PLM_GROUP_DOCUMENTS);
  assert_true(counted.highest < DOCUMENTS / PLM_GROUP_DOCUMENTS + 1);
  if (CHECKED_MEMORY)
    assert_in_range(held_since(taken), 1, DOCUMENTS / PLM_GROUP_DOCUMENTS * GROUP_BYTES);
  plm_window_deinit(&window);
  plm_plan_close(plan);
}

/* Writes a length over that of a document in the middle of the file, where no hash of its ends sees
 * it. before: the lengths of the documents from there on. */
static void forge_length(const char *directory, const uint32_t *before, size_t count,
                         uint32_t length)
{
  char path[PLM_PATH_SIZE], *bytes;
  size_t size;
  assert_int_equal(plm_path_join(path, directory, "data.mdb", NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 28, &bytes, &size, NULL), PLM_OK);
  const char *found = memmem(bytes, size, before, count * sizeof *before);
  assert_non_null(found);
  assert_in_range(found - bytes, 1 << 20, (long)size - (1 << 20));
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  assert_true(file >= 0);
  assert_int_equal(pwrite(file, &length, sizeof length, found - bytes), (ssize_t)sizeof length);
  assert_int_equal(close(file), 0);
  free(bytes);
}

/* A wrong length is found when its group is read, and named. */
static void a_wrong_length_is_found(void **state)
{
  enum { CHANGED = 3 };
  const struct plm_plan_parameters parameters = parameters_of(false);
  const char *const wanted[] = {"is not as long as its documents", "has length 0"};
  char directory[PLM_PATH_SIZE];
  uint64_t groups[WINDOW_GROUPS];
  uint32_t before[PLM_GROUP_DOCUMENTS];
  struct plm_error error;
  (void)state;
  snprintf(directory, sizeof directory, "%s", scratch_path("forged"));
  write_corpus(directory, MANY, &parameters);
  struct scene s;
  begin(&s, directory, true, &parameters);
  (void)plm_plan_window_groups(s.plan, EPOCH, 7, groups);
  const uint32_t *lengths;
  assert_int_equal(plm_corpus_group_lengths(s.cursor, PLM_SPLIT_TRAIN, groups[0], &lengths, NULL),
                   PLM_OK);
  memcpy(before, lengths, sizeof before);
  end(&s);
  for (int i = 0; i < 2; i++) {
    forge_length(directory, before + CHANGED, PLM_GROUP_DOCUMENTS - CHANGED,
                 i == 0 ? before[CHANGED] + 1 : 0);
    before[CHANGED] += i == 0;
    begin(&s, directory, true, &parameters);
    assert_int_equal(packed_window_build(s.packed, &s.memory, s.cursor, PLM_SPLIT_TRAIN, s.plan,
                                         EPOCH, 7, &error),
                     PLM_CORRUPT);
    if (strstr(error.what, wanted[i]) == NULL) fail_msg("%s", error.what);
    struct store_proof proof = {
        .split = PLM_SPLIT_TRAIN, .epoch = EPOCH, .window = 7, .count = WINDOW_GROUPS};
    assert_int_equal(window_proof_write(s.corpus, s.cursor, s.plan, &proof, &error), PLM_CORRUPT);
    if (strstr(error.what,
               i == 0 ? "or a length in `lengths` is not what ingest wrote" : wanted[i]) == NULL)
      fail_msg("%s", error.what);
    free(proof.bytes);
    end(&s);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_same_is_served),
      cmocka_unit_test(the_same_labels_are_served),
      cmocka_unit_test(a_limit_ends_the_plan),
      cmocka_unit_test(memory_does_not_follow_documents),
      cmocka_unit_test(a_window_needs_only_its_groups),
      cmocka_unit_test(a_wrong_length_is_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
