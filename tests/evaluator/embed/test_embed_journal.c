/* The journal of `embed`: what was written is read again, everything else is refused, and each
 * difference is named. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "evaluator/embed/embed_journal.h"
#include "tests/support/harness/scratch.h"

static struct plm_embed_journal distinct(void)
{
  return (struct plm_embed_journal){.input = {1, 2},
                                    .checkpoint = {3, 4},
                                    .config = {5, 6},
                                    .options = "pooled mean fp32",
                                    .bytes = 7,
                                    .windows = 8,
                                    .batches = 9,
                                    .sequences = UINT64_MAX};
}

static void what_is_written_is_read(void **state)
{
  (void)state;
  const char *path = scratch_path("journal");
  struct plm_embed_journal journal = distinct(), read;
  memset(journal.options, 'o', sizeof journal.options - 1); /* the longest */
  assert_int_equal(plm_embed_journal_write(&journal, path, NULL), PLM_OK);
  assert_int_equal(plm_embed_journal_read(&read, path, NULL), PLM_OK);
  assert_int_equal(plm_embed_journal_compare(&read, &journal, NULL), PLM_OK);
  assert_int_equal(read.bytes, 7);
  assert_int_equal(read.windows, 8);
  assert_int_equal(read.batches, 9);
  assert_true(read.sequences == UINT64_MAX);
  plm_embed_journal_remove(path);
  assert_int_equal(plm_embed_journal_read(&read, path, NULL), PLM_NOT_FOUND);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static const char good[] =
    "{\"version\":2,\"input\":\"000000000000000200000000000000ab\","
    "\"checkpoint\":\"00000000000000040000000000000003\","
    "\"config\":\"00000000000000060000000000000005\",\"options\":\"pooled\","
    "\"bytes\":\"7\",\"windows\":\"8\",\"batches\":\"9\",\"sequences\":\"10\"}\n";

/* Reads the journal with `old` replaced by `new`. */
static plm_status with(const char *old, const char *new)
{
  const char *path = scratch_path("changed"), *at = strstr(good, old);
  struct plm_text text = {0};
  struct plm_embed_journal read;
  struct plm_error error = {0};
  assert_non_null(at);
  plm_text_append(&text, good, (size_t)(at - good));
  plm_text_puts(&text, new);
  plm_text_puts(&text, at + strlen(old));
  scratch_write(path, text.data, text.length);
  plm_text_deinit(&text);
  const plm_status status = plm_embed_journal_read(&read, path, &error);
  if (status != PLM_OK) {
    assert_string_equal(error.what, "this is not a journal that this version of embed wrote");
    assert_string_equal(error.where, path);
  }
  return status;
}

static void each_field_has_to_be_right(void **state)
{
  (void)state;
  static const char *const names[] = {"bytes", "windows", "batches", "sequences"},
                           *const values[] = {"7", "8", "9", "10"};
  static const struct {
    const char *number;
    plm_status status;
  } numbers[] = {{"0", PLM_OK},      {"9", PLM_OK},      {"18446744073709551615", PLM_OK},
                 {"", PLM_FORMAT},   {"/", PLM_FORMAT},  {":", PLM_FORMAT},
                 {"-1", PLM_FORMAT}, {"1x", PLM_FORMAT}, {" 1", PLM_FORMAT}};
  char old[64], new[300];
  assert_int_equal(with("pooled", "pooled"), PLM_OK);
  for (size_t i = 0; i < 4; i++) {
    snprintf(old, sizeof old, "\"%s\":\"%s\"", names[i], values[i]);
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
      snprintf(new, sizeof new, "\"%s\":\"%s\"", names[i], numbers[k].number);
      assert_int_equal(with(old, new), numbers[k].status);
    }
    snprintf(new, sizeof new, "\"%s\":%s", names[i], values[i]); /* a number loses digits */
    assert_int_equal(with(old, new), PLM_FORMAT);
    snprintf(old, sizeof old, "\"%s\"", names[i]);
    assert_int_equal(with(old, "\"other\""), PLM_FORMAT);
  }
  static const char *const others[] = {"version", "input", "checkpoint", "config", "options"};
  for (size_t i = 0; i < 5; i++) assert_int_equal(with(others[i], "other"), PLM_FORMAT);
  assert_int_equal(with("\"version\":2", "\"version\":3"), PLM_FORMAT);
  assert_int_equal(with("\"version\":2", "\"version\":1"), PLM_FORMAT);
  assert_int_equal(with("ab", "xy"), PLM_FORMAT);
  assert_int_equal(with("0000ab", "000ab"), PLM_FORMAT);
  assert_int_equal(with("pooled", ""), PLM_FORMAT);
  for (int length = 255; length <= 256; length++) {
    snprintf(new, sizeof new, "%0*d", length, 1);
    assert_int_equal(with("pooled", new), length == 255 ? PLM_OK : PLM_FORMAT);
  }
  assert_int_equal(with("\"}", "\""), PLM_FORMAT);
}

/* ---- differences ----------------------------------------------------------------------------- */

static void differs(const struct plm_embed_journal *other, const char *what)
{
  const struct plm_embed_journal journal = distinct();
  struct plm_error error = {0};
  assert_int_equal(plm_embed_journal_compare(&journal, other, &error), PLM_EXISTS);
  assert_string_equal(error.what, what);
}

static void each_difference_is_named(void **state)
{
  (void)state;
  static const char another[] = "it was begun with another checkpoint";
  struct plm_embed_journal other = distinct();
  other.windows = other.batches = other.sequences = 0; /* how far it is does not matter */
  const struct plm_embed_journal journal = distinct(), same = other;
  assert_int_equal(plm_embed_journal_compare(&journal, &same, NULL), PLM_OK);
  other.input.low++;
  differs(&other, "it was begun with other sequences or names");
  other = same;
  other.checkpoint.high++;
  differs(&other, another);
  other = same;
  other.config.low++;
  differs(&other, another);
  other = same;
  strcpy(other.options, "pooled mean bf16");
  differs(&other,
          "it was begun as \"pooled mean fp32\", but this command asks for \"pooled mean bf16\"");
  other = same;
  other.bytes++;
  differs(&other, "its result has 7 bytes, and that of this command 8");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_written_is_read),
      cmocka_unit_test(each_field_has_to_be_right),
      cmocka_unit_test(each_difference_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
