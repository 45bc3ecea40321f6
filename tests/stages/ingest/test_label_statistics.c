/* What a schema says of labels: how many there are in each split, and the moments and counts of the
 * training split only. */
#include "stages/ingest/label_statistics.h"

#include <math.h>
#include <string.h>

#include "tests/support/cases/label_schemas.h"
#include "tests/support/harness/cmocka_all.h"

enum { RESIDUES = 4, RECORD_SIZE = 64 };

/* A record of label_schema_make's columns. terms: its classes as bits; -1: missing. structure:
 * letters C, E, H, or anything else for a missing one. */
static const uint8_t *record_of(const struct plm_label_schema *schema, double stability, int family,
                                const char *structure, int terms, int soluble)
{
  static const char letters[] = "CEH";
  static uint8_t record[RECORD_SIZE];
  assert_true(plm_label_record_size(schema, RESIDUES) <= sizeof record);
  plm_label_record_clear(schema, RESIDUES, record);
  plm_label_put_number(record, stability);
  plm_label_put_class(record + plm_label_record_offset(schema, 1, RESIDUES), family);
  for (uint32_t i = 0; i < RESIDUES; i++) {
    const char *at = strchr(letters, structure[i]);
    plm_label_put_residue(record + plm_label_record_offset(schema, 2, RESIDUES), i,
                          at != NULL ? (int32_t)(at - letters) : -1);
  }
  uint8_t *at = record + plm_label_record_offset(schema, 3, RESIDUES);
  if (terms == 0) plm_label_put_one_of(at, -1);
  for (int c = 0; terms > 0 && c < 9; c++)
    if ((terms >> c & 1) != 0) plm_label_put_one_of(at, c);
  plm_label_put_class(record + plm_label_record_offset(schema, 4, RESIDUES), soluble);
  return record;
}

static void expect_counts(const struct plm_label_column *column, const uint64_t labels[3],
                          const uint64_t *counts)
{
  for (int s = 0; s < 3; s++) assert_int_equal(column->labels[s], labels[s]);
  for (uint32_t c = 0; c < column->class_count; c++) assert_int_equal(column->counts[c], counts[c]);
}

static void labels_are_counted(void **state)
{
  (void)state;
  struct plm_label_schema schema;
  label_schema_make(&schema);
  for (uint32_t i = 0; i < schema.count; i++) schema.columns[i].mean = 99;
  struct plm_label_statistics *statistics = plm_label_statistics_open(&schema);
  static const struct {
    enum plm_split split;
    double stability;
    int family;
    const char *structure;
    int terms, soluble;
  } documents[] = {
      {PLM_SPLIT_TRAIN, 2, 0, "CEH?", 0x101, 1},   {PLM_SPLIT_TRAIN, 4, 2, "HHHH", 0, 0},
      {PLM_SPLIT_TRAIN, NAN, -1, "????", -1, -1},  {PLM_SPLIT_TRAIN, 9, 2, "C???", 0x100, 1},
      {PLM_SPLIT_VALID, 100, 1, "EE??", 0x002, 1}, {PLM_SPLIT_VALID, NAN, 1, "EEEE", -1, -1},
      {PLM_SPLIT_TEST, -7, -1, "?H??", 0, 0}};
  for (size_t i = 0; i < sizeof documents / sizeof *documents; i++)
    plm_label_statistics_add(statistics, documents[i].split, RESIDUES,
                             record_of(&schema, documents[i].stability, documents[i].family,
                                       documents[i].structure, documents[i].terms,
                                       documents[i].soluble));
  plm_label_statistics_finish(statistics, &schema);
  const struct plm_label_column *columns = schema.columns;
  expect_counts(&columns[0], (const uint64_t[]){3, 1, 1}, NULL);
  assert_true(fabs(columns[0].mean - 5) < 1e-12);
  assert_true(fabs(columns[0].deviation - sqrt(26.0 / 3)) < 1e-12); /* (9 + 1 + 16) / 3 */
  expect_counts(&columns[1], (const uint64_t[]){3, 2, 0}, (const uint64_t[]){1, 0, 2});
  expect_counts(&columns[2], (const uint64_t[]){8, 6, 1}, (const uint64_t[]){2, 1, 5});
  expect_counts(&columns[3], (const uint64_t[]){3, 1, 1},
                (const uint64_t[]){1, 0, 0, 0, 0, 0, 0, 0, 2});
  expect_counts(&columns[4], (const uint64_t[]){3, 1, 1}, (const uint64_t[]){1, 2});
  for (int i = 1; i < 5; i++) assert_true(columns[i].mean == 99); /* only numbers have one */
  plm_label_statistics_close(statistics);
  plm_label_statistics_close(NULL);
  plm_label_schema_deinit(&schema);
}

/* Without a number in the training split there are no moments; of one, the deviation is 0. */
static void numbers_may_be_few(void **state)
{
  (void)state;
  struct plm_label_schema schema;
  label_schema_make(&schema);
  schema.columns[0].mean = schema.columns[0].deviation = 0;
  struct plm_label_statistics *statistics = plm_label_statistics_open(&schema);
  plm_label_statistics_add(statistics, PLM_SPLIT_TEST, RESIDUES,
                           record_of(&schema, 5, -1, "????", -1, -1));
  plm_label_statistics_finish(statistics, &schema);
  expect_counts(&schema.columns[0], (const uint64_t[]){0, 0, 1}, NULL);
  assert_true(schema.columns[0].mean == 0 && schema.columns[0].deviation == 0);
  plm_label_statistics_add(statistics, PLM_SPLIT_TRAIN, RESIDUES,
                           record_of(&schema, 6, -1, "????", -1, -1));
  plm_label_statistics_finish(statistics, &schema);
  expect_counts(&schema.columns[0], (const uint64_t[]){1, 0, 1}, NULL);
  assert_true(schema.columns[0].mean == 6 && schema.columns[0].deviation == 0);
  plm_label_statistics_close(statistics);
  plm_label_schema_deinit(&schema);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(labels_are_counted),
      cmocka_unit_test(numbers_may_be_few),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
