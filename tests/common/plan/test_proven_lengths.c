/* Lengths that decide what a plan or a trace holds are proven, also where no window that is read
 * contains them. Each case changes two lengths whose sum stays, which nothing else notices. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/plan/trace.h"
#include "tests/support/corpora/corpus_windows.h"
#include "tests/support/corpora/forged_corpus.h"
#include "tests/support/corpora/written_corpus.h"

enum { LONGEST = 100 };

/* Closes a corpus, changes the lengths of a document of train and the next one, and opens it. */
static struct plm_corpus *reopen_changed(struct plm_corpus *corpus, uint32_t document)
{
  char directory[PLM_PATH_SIZE];
  snprintf(directory, sizeof directory, "%s", plm_corpus_path(corpus));
  plm_corpus_close(corpus);
  forged_corpus_move_boundary(directory, PLM_SPLIT_TRAIN, document);
  assert_int_equal(plm_corpus_open(directory, NULL, &corpus, NULL), PLM_OK);
  return corpus;
}

/* The limit ends before or after the first document of a group: in the first case, the plan has no
 * document of this group. */
static void the_end_of_a_limit_is_proven(void **state)
{
  (void)state;
  static const struct written_corpus of = {.documents = {600}, .longest = LONGEST};
  struct plm_plan_parameters parameters = {
      .max_length = 128, .alignment = 1, .window_groups = 1, .truncate = PLM_TRUNCATE_HEAD};
  struct plm_corpus *corpus = written_corpus_open("limited", &of);
  uint32_t *lengths = corpus_lengths(corpus, PLM_SPLIT_TRAIN);
  struct plm_plan *plan;
  struct plm_error error;
  for (uint32_t d = 0; d <= PLM_GROUP_DOCUMENTS; d++) parameters.token_limit += lengths[d] + 2;
  const uint64_t limit = parameters.token_limit;
  assert_int_equal(plm_plan_open_corpus(&parameters, corpus, PLM_SPLIT_TRAIN, &plan, NULL), PLM_OK);
  assert_int_equal(plm_plan_documents(plan), PLM_GROUP_DOCUMENTS + 1);
  plm_plan_close(plan);
  parameters.token_limit = lengths[0] + 1;
  assert_int_equal(plm_plan_open_corpus(&parameters, corpus, PLM_SPLIT_TRAIN, &plan, &error),
                   PLM_CONFIG);
  assert_non_null(strstr(error.what, "too small for the first document"));
  /* A split without documents is said to have none, whatever the limit is. */
  assert_int_equal(plm_plan_open_corpus(&parameters, corpus, PLM_SPLIT_TEST, &plan, &error),
                   PLM_NOT_FOUND);
  assert_string_equal(error.what, "the split has no documents");
  parameters.token_limit = limit;
  free(lengths);
  corpus = reopen_changed(corpus, PLM_GROUP_DOCUMENTS);
  assert_int_equal(plm_plan_open_corpus(&parameters, corpus, PLM_SPLIT_TRAIN, &plan, &error),
                   PLM_CORRUPT);
  assert_non_null(strstr(error.what, "a length in `lengths` is not what ingest wrote"));
  plm_corpus_close(corpus);
}

/* A few clusters, of which an epoch fits into one chunk. */
struct drawn {
  struct plm_corpus *corpus;
  struct plm_corpus_cursor *cursor;
  struct plm_plan *plan;
  struct plm_plan_corpus from;
  struct plm_trace *trace;
};

static void open_drawn(struct drawn *drawn, struct plm_corpus *corpus)
{
  static const struct plm_plan_parameters parameters = {.seed = 4,
                                                        .max_length = 1024,
                                                        .alignment = 1,
                                                        .window_groups = 1,
                                                        .truncate = PLM_TRUNCATE_HEAD,
                                                        .sampling = PLM_SAMPLING_CLUSTERS,
                                                        .shuffle = true};
  drawn->corpus = corpus;
  assert_int_equal(plm_corpus_cursor_open(corpus, &drawn->cursor, NULL), PLM_OK);
  assert_int_equal(plm_plan_open_corpus(&parameters, corpus, PLM_SPLIT_TRAIN, &drawn->plan, NULL),
                   PLM_OK);
  assert_int_equal(plm_plan_windows(drawn->plan), 1);
  assert_in_range(plm_plan_documents(drawn->plan), 2, 1024 / (LONGEST + 2));
  drawn->from = (struct plm_plan_corpus){
      .plan = drawn->plan, .cursor = drawn->cursor, .split = PLM_SPLIT_TRAIN};
  assert_int_equal(plm_trace_open(&drawn->from, NULL, &drawn->trace, NULL), PLM_OK);
}

static void close_drawn(struct drawn *drawn)
{
  plm_trace_close(drawn->trace);
  plm_plan_close(drawn->plan);
  plm_corpus_cursor_close(drawn->cursor);
}

static bool draws_from(const struct drawn *drawn, uint64_t epoch, uint64_t group)
{
  struct plm_plan_group members;
  assert_int_equal(plm_plan_read_corpus(&drawn->from, epoch, 0, 0, &members, NULL), PLM_OK);
  for (uint32_t i = 0; i < members.count; i++)
    if (members.numbers[i] / PLM_GROUP_DOCUMENTS == group) return true;
  return false;
}

/* Finds a document that epoch 0 draws, and an epoch that draws none of the same group. */
static uint64_t find_epoch_without(const struct drawn *drawn, uint32_t *document)
{
  uint32_t *lengths = corpus_lengths(drawn->corpus, PLM_SPLIT_TRAIN);
  struct plm_plan_group members;
  uint64_t found = 0;
  assert_int_equal(plm_plan_read_corpus(&drawn->from, 0, 0, 0, &members, NULL), PLM_OK);
  for (uint32_t i = 0; i < members.count && found == 0; i++) {
    *document = (uint32_t)members.numbers[i];
    if ((*document + 1) % PLM_GROUP_DOCUMENTS == 0 || lengths[*document + 1] == 1) continue;
    for (uint64_t epoch = 1; epoch < 100 && found == 0; epoch++)
      if (!draws_from(drawn, epoch, *document / PLM_GROUP_DOCUMENTS)) found = epoch;
  }
  free(lengths);
  assert_true(found != 0);
  return found;
}

/* Epochs before the chunk's own are only counted, with other members of the clusters. */
static void members_of_counted_epochs_are_proven(void **state)
{
  (void)state;
  static const struct written_corpus of = {
      .documents = {3000}, .longest = LONGEST, .cluster_documents = 800};
  struct drawn drawn;
  struct plm_traced_chunk chunk;
  struct plm_error error;
  uint32_t document = 0;
  open_drawn(&drawn, written_corpus_open("clustered", &of));
  const uint64_t epoch = find_epoch_without(&drawn, &document);
  assert_int_equal(plm_trace_chunk(drawn.trace, epoch, &chunk, NULL), PLM_OK);
  assert_int_equal(chunk.epoch, epoch);
  close_drawn(&drawn);
  open_drawn(&drawn, reopen_changed(drawn.corpus, document));
  assert_int_equal(plm_trace_chunk(drawn.trace, epoch, &chunk, &error), PLM_CORRUPT);
  assert_non_null(strstr(error.what, "`lengths` is not what ingest wrote"));
  close_drawn(&drawn);
  plm_corpus_close(drawn.corpus);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_end_of_a_limit_is_proven),
      cmocka_unit_test(members_of_counted_epochs_are_proven),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
