/* What a corpus of many documents costs. Whoever opens it reads lengths with their groups: the
 * windows are those of an array of all of them, the memory does not follow the number of
 * documents, and a window needs only its own groups. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/plan/trace.h"
#include "common/wire/message.h"
#include "packer/window_build.h"
#include "packer/window_proof.h"
#include "tests/support/corpora/corpus_windows.h"
#include "tests/support/corpora/hollow_corpus.h"
#include "tests/support/corpora/known_split.h"
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
  struct proven_groups *proven;
  struct plm_corpus_cursor *cursor;
  struct plm_plan *plan;
  struct window_memory memory;
  struct packed_window *packed;
};

static void begin(struct scene *s, const char *directory,
                  const struct plm_plan_parameters *parameters)
{
  const struct plm_corpus_options options = {.allow_remote = true};
  *s = (struct scene){.packed = must(calloc(1, sizeof *s->packed))};
  assert_int_equal(plm_corpus_open(directory, &options, &s->corpus, NULL), PLM_OK);
  assert_int_equal(plm_corpus_cursor_open(s->corpus, &s->cursor, NULL), PLM_OK);
  assert_int_equal(proven_groups_open(s->corpus, &s->proven, NULL), PLM_OK);
  assert_int_equal(plm_plan_open_corpus(parameters, s->corpus, PLM_SPLIT_TRAIN, &s->plan, NULL),
                   PLM_OK);
}

static void end(struct scene *s)
{
  packed_window_free(s->packed);
  window_memory_deinit(&s->memory);
  plm_plan_close(s->plan);
  plm_corpus_cursor_close(s->cursor);
  proven_groups_close(s->proven);
  plm_corpus_close(s->corpus);
}

/* Builds a window and what proves it. */
static void build(struct scene *s, uint64_t window)
{
  struct store_proof proof = {
      .split = PLM_SPLIT_TRAIN, .epoch = EPOCH, .window = window, .count = WINDOW_GROUPS};
  assert_int_equal(packed_window_build(s->packed, &s->memory, s->cursor, PLM_SPLIT_TRAIN, s->plan,
                                       EPOCH, window, NULL),
                   PLM_OK);
  assert_int_equal(window_proof_write(s->corpus, s->proven, s->cursor, s->plan, &proof, NULL),
                   PLM_OK);
  assert_int_equal(proof.count, WINDOW_GROUPS);
  free(proof.bytes);
}

static void write_corpus(const char *directory, uint64_t documents,
                         const struct plm_plan_parameters *parameters)
{
  const struct hollow_windows windows = {EPOCH, 7, 2};
  hollow_corpus_write(directory, documents, parameters, &windows, 1);
}

/* All lengths. The caller frees them. */
static struct known_split read_all(struct plm_corpus *corpus)
{
  const struct plm_corpus_split *info = &plm_corpus_info(corpus)->splits[PLM_SPLIT_TRAIN];
  return (struct known_split){corpus_lengths(corpus, PLM_SPLIT_TRAIN), info->documents,
                              corpus_clusters(corpus, PLM_SPLIT_TRAIN), info->clusters};
}

static void assert_same_window(const struct plm_window *a, const struct plm_window *b)
{
  assert_int_equal(a->chunks, b->chunks);
  assert_int_equal(a->document_count, b->document_count);
  assert_memory_equal(a->chunk_begin, b->chunk_begin, (a->chunks + 1) * sizeof *a->chunk_begin);
  assert_memory_equal(a->documents, b->documents, a->document_count * sizeof *a->documents);
}

/* With pieces that are cut, cropped and split, lengths that are proven or not, and counts. */
static void windows_are_those_of_all_lengths(void **state)
{
  (void)state;
  for (int way = 0; way < 6; way++) {
    struct plm_plan_parameters parameters = parameters_of(way % 2 != 0);
    struct plm_window read = {0}, known = {0};
    uint32_t counts[2];
    struct scene s;
    const char *directory = scratch_path(way % 2 != 0 ? "clusters" : "documents");
    if (way < 2) write_corpus(directory, FEW, &parameters);
    parameters.truncate = (enum plm_truncate)(way / 2);
    parameters.max_length = 64;
    begin(&s, directory, &parameters);
    const struct known_split all = read_all(s.corpus);
    for (uint64_t w = 7; w < 9; w++) {
      const struct plm_plan_corpus from = {s.plan, s.cursor, PLM_SPLIT_TRAIN, w == 7};
      assert_int_equal(plm_plan_window(s.plan, EPOCH, w, plm_plan_read_corpus, &from, &read, NULL),
                       PLM_OK);
      assert_int_equal(known_split_window(&all, s.plan, EPOCH, w, &known, NULL), PLM_OK);
      assert_same_window(&read, &known);
    }
    counts[0] = corpus_window_chunks(s.corpus, PLM_SPLIT_TRAIN, s.plan, EPOCH, 8);
    assert_int_equal(known_split_chunks(&all, s.plan, EPOCH, 8, 1, &counts[1], NULL), PLM_OK);
    assert_int_equal(counts[0], counts[1]);
    assert_int_equal(counts[0], read.chunks);
    plm_window_deinit(&read);
    plm_window_deinit(&known);
    free((void *)all.lengths);
    free((void *)all.clusters);
    end(&s);
  }
}

/* A plan with a limit reads lengths only up to it. */
static void a_limit_ends_the_plan(void **state)
{
  struct plm_plan_parameters parameters = parameters_of(false);
  const struct hollow_windows read = {.count = 32}; /* the documents within the largest limit */
  const char *directory = scratch_path("limit");
  (void)state;
  parameters.shuffle = false;
  hollow_corpus_write(directory, FEW, &parameters, &read, 1);
  for (uint64_t limit = 100; limit < 10000000; limit *= 33) {
    struct scene s;
    parameters.token_limit = limit;
    begin(&s, directory, &parameters);
    const struct known_split known = read_all(s.corpus);
    struct plm_plan *all = known_split_plan(&known, &parameters);
    assert_int_equal(plm_plan_documents(s.plan), plm_plan_documents(all));
    assert_int_equal(plm_plan_windows(s.plan), plm_plan_windows(all));
    assert_true(plm_plan_documents(all) < FEW);
    plm_plan_close(all);
    free((void *)known.lengths);
    end(&s);
  }
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

/* The roots and checks of groups, the tree over the sizes of clusters and the order of an epoch are
 * in memory: less than a byte for each document. Their lengths would be 4, the sizes 2. */
static void check_memory(bool clusters)
{
  const struct plm_plan_parameters parameters = parameters_of(clusters);
  const uint64_t counts[] = {FEW, MANY};
  size_t held[2];
  for (int i = 0; i < 2; i++) {
    static const char *const names[] = {"few", "many", "few-clusters", "many-clusters"};
    struct scene s;
    const char *directory = scratch_path(names[2 * clusters + i]);
    write_corpus(directory, counts[i], &parameters);
    const uint64_t taken = checked_memory_taken();
    begin(&s, directory, &parameters);
    build(&s, 7);
    held[i] = held_since(taken);
    end(&s);
  }
  assert_true(held[1] > held[0]);
  assert_in_range(held[1] - held[0], 1, MANY - FEW);
}

static void memory_does_not_follow_documents(void **state)
{
  (void)state;
  if (!CHECKED_MEMORY) skip("a sanitizer brings its own malloc");
  check_memory(false);
  check_memory(true);
}

struct counted {
  uint64_t groups;
  uint64_t highest;
};

static plm_status count_group(const void *context, uint64_t epoch, uint32_t index, uint64_t group,
                              struct plm_plan_group *out, struct plm_error *error)
{
  struct counted *counted = *(struct counted *const *)context;
  (void)epoch;
  (void)index;
  (void)error;
  counted->groups++;
  counted->highest = group > counted->highest ? group : counted->highest;
  out->count = PLM_GROUP_DOCUMENTS;
  for (uint32_t i = 0; i < out->count; i++) {
    out->numbers[i] = group * PLM_GROUP_DOCUMENTS + i;
    out->lengths[i] = 100;
  }
  return PLM_OK;
}

/* A consumer of a billion documents: any window of any epoch is planned from its own groups, each
 * of which is read once, also if its documents are split, and the memory of the plan is that of the
 * order of groups. */
static void a_window_needs_only_its_groups(void **state)
{
  enum { DOCUMENTS = 1000000000, GROUP_BYTES = 16 };
  struct plm_plan_parameters parameters = parameters_of(false);
  const uint64_t taken = CHECKED_MEMORY ? checked_memory_taken() : 0;
  struct counted counted = {0}, *context = &counted;
  struct plm_window window = {0};
  struct plm_plan *plan;
  (void)state;
  assert_int_equal(plm_plan_open(&parameters, DOCUMENTS, 0, &plan, NULL), PLM_OK);
  const uint64_t last = plm_plan_windows(plan) - 1;
  assert_int_equal(last, DOCUMENTS / PLM_GROUP_DOCUMENTS / WINDOW_GROUPS - 1);
  assert_int_equal(plm_plan_window(plan, EPOCH, last, count_group, &context, &window, NULL),
                   PLM_OK);
  assert_int_equal(counted.groups, WINDOW_GROUPS);
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

/* Lengths that are possible but wrong are found by whoever proves them, before a trace counts by
 * them. */
static void find_by_proof(const struct scene *s, struct plm_error *error)
{
  const struct plm_plan_corpus from = {s->plan, s->cursor, PLM_SPLIT_TRAIN, true};
  struct plm_window window = {0};
  struct plm_trace *trace;
  struct plm_traced_chunk chunk;
  assert_int_equal(plm_plan_window(s->plan, EPOCH, 7, plm_plan_read_corpus, &from, &window, error),
                   PLM_CORRUPT);
  assert_non_null(strstr(error->what, "or a length in `lengths` is not what ingest wrote"));
  plm_window_deinit(&window);
  assert_int_equal(plm_trace_open(&from, NULL, &trace, NULL), PLM_OK);
  assert_int_equal(plm_trace_chunk(trace, 100000, &chunk, error), PLM_CORRUPT);
  assert_non_null(strstr(error->what, "`lengths` is not what ingest wrote"));
  plm_trace_close(trace);
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
  begin(&s, directory, &parameters);
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
    begin(&s, directory, &parameters);
    assert_int_equal(packed_window_build(s.packed, &s.memory, s.cursor, PLM_SPLIT_TRAIN, s.plan,
                                         EPOCH, 7, &error),
                     PLM_CORRUPT);
    if (strstr(error.what, wanted[i]) == NULL) fail_msg("%s", error.what);
    struct store_proof proof = {
        .split = PLM_SPLIT_TRAIN, .epoch = EPOCH, .window = 7, .count = WINDOW_GROUPS};
    assert_int_equal(window_proof_write(s.corpus, s.proven, s.cursor, s.plan, &proof, &error),
                     PLM_CORRUPT);
    if (strstr(error.what,
               i == 0 ? "or a length in `lengths` is not what ingest wrote" : wanted[i]) == NULL)
      fail_msg("%s", error.what);
    free(proof.bytes);
    if (i == 0) find_by_proof(&s, &error);
    end(&s);
  }
}

struct reports {
  uint64_t alive, done, total;
};

static void tell(void *context, uint64_t done, uint64_t total)
{
  struct reports *reports = context;
  reports->alive += done == reports->done;
  reports->done = done;
  reports->total = total;
}

/* Whoever traces a chunk hears of its windows and, while all lengths are compared with their hash,
 * of each of their records. */
static void a_trace_says_that_it_is_alive(void **state)
{
  enum { BLOCK = 65536 };
  const struct plm_plan_parameters parameters = parameters_of(false);
  const char *directory = scratch_path("traced");
  struct reports reports = {0};
  struct plm_advance advance = {.tell = tell, .context = &reports};
  struct plm_traced_chunk chunk;
  struct plm_trace *trace;
  struct scene s;
  uint64_t before = 0;
  (void)state;
  write_corpus(directory, MANY, &parameters);
  begin(&s, directory, &parameters);
  const uint64_t windows = plm_plan_windows(s.plan);
  const struct plm_plan_corpus from = {
      .plan = s.plan, .cursor = s.cursor, .split = PLM_SPLIT_TRAIN};
  uint32_t *counts = must(calloc(windows, sizeof *counts));
  for (uint64_t epoch = 0; epoch <= EPOCH; epoch++) {
    const uint64_t counted = epoch < EPOCH ? windows : 7;
    assert_int_equal(plm_plan_window_chunks(s.plan, epoch, 0, counted, plm_plan_read_corpus, &from,
                                            counts, NULL),
                     PLM_OK);
    for (uint64_t w = 0; w < counted; w++) before += counts[w];
  }
  free(counts);
  assert_int_equal(plm_trace_open(&from, &advance, &trace, NULL), PLM_OK);
  assert_int_equal(plm_trace_chunk(trace, before, &chunk, NULL), PLM_OK);
  assert_int_equal(chunk.epoch, EPOCH);
  assert_int_equal(reports.alive, MANY / BLOCK);
  assert_int_equal(reports.done, before);
  assert_int_equal(reports.total, before);
  plm_trace_close(trace);
  end(&s);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(windows_are_those_of_all_lengths),
      cmocka_unit_test(a_limit_ends_the_plan),
      cmocka_unit_test(memory_does_not_follow_documents),
      cmocka_unit_test(a_window_needs_only_its_groups),
      cmocka_unit_test(a_wrong_length_is_found),
      cmocka_unit_test(a_trace_says_that_it_is_alive),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
