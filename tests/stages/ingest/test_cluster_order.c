/* More documents, and more lines of the table, than are looked for together come back cluster by
 * cluster. */
#include "stages/ingest/cluster_order.h"

#include <stdio.h>
#include <string.h>

#include "common/base/text/text.h"
#include "common/corpus/corpus.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

enum { TOGETHER = 1 << 18, DOCUMENTS = TOGETHER + 3 };

static void has_name(struct plm_corpus_cursor *cursor, uint64_t document, int expected)
{
  const char *name;
  char wanted[16];
  snprintf(wanted, sizeof wanted, "d%d", expected);
  assert_int_equal(plm_corpus_name(cursor, PLM_SPLIT_TRAIN, document, &name, NULL), PLM_OK);
  assert_string_equal(name, wanted);
}

/* The last document is of the cluster of the first one, as the first line says, and each of the
 * others is alone. */
static void a_cluster_spans_what_is_looked_for_together(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct plm_cluster_order *order;
  struct plm_corpus_writer *writer;
  struct plm_corpus *corpus;
  struct plm_corpus_cursor *cursor;
  struct plm_split_rule splits;
  char table[PLM_PATH_SIZE], directory[PLM_PATH_SIZE];
  struct plm_text lines = {0};
  snprintf(table, sizeof table, "%s", scratch_path("table.tsv"));
  snprintf(directory, sizeof directory, "%s", scratch_path("corpus"));
  plm_text_printf(&lines, "d0\td%d\n", DOCUMENTS - 1);
  for (int i = 0; i < DOCUMENTS; i++) plm_text_printf(&lines, "d%d\td%d\n", i, i);
  scratch_write(table, lines.data, lines.length);
  plm_text_deinit(&lines);
  const struct plm_corpus_writer_options options = {
      .directory = directory, .clustered = true, .threads = 1};
  const struct plm_ingested_file source = {.name = "made", .bytes = 1, .documents = DOCUMENTS};
  assert_int_equal(plm_split_rule_parse("train=1", &splits, &error), PLM_OK);
  if (plm_cluster_order_open(scratch_directory(), table, false, 1, &splits, &order, &error) !=
      PLM_OK)
    fail_msg("%s", error.what);
  for (int i = 0; i < DOCUMENTS; i++) {
    char name[16];
    snprintf(name, sizeof name, "d%d", i);
    assert_int_equal(plm_cluster_order_add(order, name, strlen(name), (const uint8_t *)"LAG", 3,
                                           NULL, 0, &error),
                     PLM_OK);
  }
  const struct plm_cluster_counts counts = plm_cluster_order_counts(order);
  assert_int_equal(counts.members, DOCUMENTS);
  assert_int_equal(counts.in_several, 1);
  assert_int_equal(counts.in_several_line, DOCUMENTS + 1);
  assert_int_equal(plm_corpus_writer_open(&options, &writer, &error), PLM_OK);
  if (plm_cluster_order_write(order, writer, NULL, NULL, &error) != PLM_OK)
    fail_msg("%s", error.what);
  plm_cluster_order_close(order);
  assert_int_equal(plm_corpus_writer_finish(writer, &source, 1, NULL, NULL, NULL, NULL), PLM_OK);
  plm_corpus_writer_close(writer);
  assert_int_equal(plm_corpus_open(directory, NULL, &corpus, NULL), PLM_OK);
  const struct plm_corpus_split *split = &plm_corpus_info(corpus)->splits[PLM_SPLIT_TRAIN];
  assert_int_equal(split->documents, DOCUMENTS);
  assert_int_equal(split->clusters, DOCUMENTS - 1);
  assert_int_equal(plm_corpus_cursor_open(corpus, &cursor, NULL), PLM_OK);
  has_name(cursor, 0, 0);
  has_name(cursor, 1, DOCUMENTS - 1);
  has_name(cursor, 2, 1);
  has_name(cursor, TOGETHER, TOGETHER - 1);
  has_name(cursor, TOGETHER + 1, TOGETHER);
  has_name(cursor, DOCUMENTS - 1, DOCUMENTS - 2);
  plm_corpus_cursor_close(cursor);
  plm_corpus_close(corpus);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_cluster_spans_what_is_looked_for_together)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
