/* Label records: values come back, and each has one form. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "common/labels/label_record.h"
#include "tests/support/cases/label_schemas.h"
#include "tests/support/harness/aborted.h"

enum { RESIDUES = 5, SIZE = 8 + 2 + RESIDUES + 3 + 2 };

static void values_come_back(void **state)
{
  struct plm_label_schema schema;
  struct plm_error error = {0};
  uint8_t record[SIZE];
  (void)state;
  label_schema_make(&schema);
  assert_int_equal(plm_label_record_size(&schema, RESIDUES), SIZE);
  plm_label_record_clear(&schema, RESIDUES, record);
  assert_int_equal(plm_label_record_check(&schema, RESIDUES, record, &error), PLM_OK);
  uint8_t *number = record, *family = record + 8, *structure = record + 10, *terms = record + 15;
  assert_ptr_equal(terms, record + plm_label_record_offset(&schema, 3, RESIDUES));
  assert_true(isnan(plm_label_number(number)));
  assert_int_equal(plm_label_class(family), -1);
  assert_int_equal(plm_label_residue(structure, 4), -1);
  assert_int_equal(plm_label_has(terms, 8), -1);
  plm_label_put_number(number, -0.1);
  plm_label_put_class(family, 2);
  plm_label_put_residue(structure, 0, 1);
  plm_label_put_residue(structure, 4, 2);
  plm_label_put_one_of(terms, -1);
  assert_int_equal(plm_label_has(terms, 8), 0);
  plm_label_put_one_of(terms, 8);
  plm_label_put_one_of(terms, 0);
  assert_int_equal(plm_label_record_check(&schema, RESIDUES, record, &error), PLM_OK);
  assert_true(plm_label_number(number) == -0.1);
  assert_int_equal(plm_label_class(family), 2);
  assert_int_equal(plm_label_residue(structure, 0), 1);
  assert_int_equal(plm_label_residue(structure, 1), -1);
  assert_int_equal(plm_label_residue(structure, 4), 2);
  assert_int_equal(plm_label_has(terms, 0), 1);
  assert_int_equal(plm_label_has(terms, 1), 0);
  assert_int_equal(plm_label_has(terms, 8), 1);
  plm_label_schema_deinit(&schema);
}

/* Writes a byte where the record has another one: it must be refused, and name the column. */
static void refused(const struct plm_label_schema *schema, size_t at, uint8_t byte,
                    const char *column)
{
  struct plm_error error = {0};
  uint8_t record[SIZE];
  plm_label_record_clear(schema, RESIDUES, record);
  record[at] = byte;
  assert_int_equal(plm_label_record_check(schema, RESIDUES, record, &error), PLM_FORMAT);
  assert_non_null(strstr(error.what, column));
}

static void other_forms_are_refused(void **state)
{
  struct plm_label_schema schema;
  (void)state;
  label_schema_make(&schema);
  refused(&schema, 0, 1, "stability");    /* another NaN */
  refused(&schema, 6, 0xf0, "stability"); /* infinity */
  refused(&schema, 8, 4, "family");
  refused(&schema, 14, 4, "structure");
  refused(&schema, 15, 2, "terms");
  refused(&schema, 16, 1, "terms"); /* classes of a missing label */
  refused(&schema, 18, 3, "soluble");
  uint8_t record[SIZE];
  plm_label_record_clear(&schema, RESIDUES, record);
  record[15] = 1;
  record[17] = 2; /* class 9 of 9 */
  assert_int_equal(plm_label_record_check(&schema, RESIDUES, record, NULL), PLM_FORMAT);
  plm_label_schema_deinit(&schema);
}

/* All bits of the last byte may be classes, and none behind them is. */
static void masks_end_with_the_last_class(void **state)
{
  (void)state;
  for (uint32_t classes = 7; classes <= 17; classes++) {
    struct plm_label_column column = {
        .name = (char[]){"c"}, .kind = PLM_LABEL_CLASSES, .class_count = classes};
    const struct plm_label_schema schema = {.columns = &column, .count = 1};
    const size_t last = (classes + 7) / 8;
    uint8_t record[4] = {1};
    assert_int_equal(plm_label_record_size(&schema, RESIDUES), 1 + last);
    for (uint32_t bit = 0; bit < 8; bit++) {
      record[last] = (uint8_t)(1u << bit);
      assert_int_equal(plm_label_record_check(&schema, RESIDUES, record, NULL),
                       8 * (last - 1) + bit < classes ? PLM_OK : PLM_FORMAT);
    }
  }
}

/* The functions that write a label, and the number of its classes. */
static const struct {
  int32_t most;
  enum { CLASS, RESIDUE, ONE_OF } kind;
} writers[] = {{PLM_LABEL_CLASS_MOST, CLASS},
               {PLM_LABEL_RESIDUES_MOST, RESIDUE},
               {PLM_LABEL_CLASSES_MOST, ONE_OF}};
enum { WRITERS = sizeof writers / sizeof *writers };

static int32_t write_and_read(size_t writer, int32_t value)
{
  static uint8_t record[1 + (PLM_LABEL_CLASSES_MOST + 7) / 8];
  memset(record, 0, sizeof record);
  switch (writers[writer].kind) {
  case CLASS: plm_label_put_class(record, value); return plm_label_class(record);
  case RESIDUE: plm_label_put_residue(record, 3, value); return plm_label_residue(record, 3);
  case ONE_OF: break;
  }
  plm_label_put_one_of(record, value);
  if (value < 0) return plm_label_has(record, 0) == 0 ? -1 : 0;
  if (value > 0) assert_int_equal(plm_label_has(record, (uint32_t)value - 1), 0);
  return plm_label_has(record, (uint32_t)value) == 1 ? value : -2;
}

struct written {
  size_t writer;
  int32_t value;
};

static void write_label(const void *context)
{
  const struct written *written = context;
  write_and_read(written->writer, written->value);
}

/* The last class is one, and one behind it ends the process. */
static void classes_have_bounds(void **state)
{
  (void)state;
  for (size_t w = 0; w < WRITERS; w++) {
    const int32_t kept[] = {-1, 0, 1, writers[w].most - 1}, refused_ones[] = {-2, writers[w].most};
    for (int i = 0; i < 4; i++) assert_int_equal(write_and_read(w, kept[i]), kept[i]);
    for (int i = 0; i < 2; i++) {
      const struct written written = {.writer = w, .value = refused_ones[i]};
      aborted(write_label, &written);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_come_back),
      cmocka_unit_test(masks_end_with_the_last_class),
      cmocka_unit_test(other_forms_are_refused),
      cmocka_unit_test(classes_have_bounds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
