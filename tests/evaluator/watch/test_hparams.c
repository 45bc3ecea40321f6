/* evaluator/watch/hparams: one file with a fixed name, which each start replaces; the end is added
 * to it. TensorBoard itself reads one in test_tensorboard_settings.c. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "evaluator/watch/hparams.h"
#include "tests/support/harness/scratch.h"

static const char *const subject = "valid";

static char *file_of(const char *folder, size_t *size)
{
  char path[PLM_PATH_SIZE], *bytes;
  assert_int_equal(plm_path_join(path, folder, PLM_HPARAMS_FILE, NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 20, &bytes, size, NULL), PLM_OK);
  return bytes;
}

static int count_of(const char *bytes, size_t size, const char *word)
{
  int count = 0;
  const size_t length = strlen(word);
  for (size_t i = 0; i + length <= size; i++) count += memcmp(bytes + i, word, length) == 0;
  return count;
}

static void load(const char *text, struct plm_config *config)
{
  struct plm_error error = {0};
  if (plm_config_load_text(text, strlen(text), config, &error) != PLM_OK)
    fail_msg("%s", error.what);
}

/* Whether the file has the time of a start (field 5, a double), which is between two others. */
static bool has_start_between(const char *bytes, size_t size, double from, double until)
{
  for (size_t i = 0; i + 9 <= size; i++) {
    double time;
    memcpy(&time, bytes + i + 1, sizeof time);
    if (bytes[i] == (5 << 3 | 1) && from <= time && time <= until) return true;
  }
  return false;
}

static void each_start_replaces_the_file(void **state)
{
  (void)state;
  struct plm_config config;
  const double began = plm_clock_wall_s();
  char folder[PLM_PATH_SIZE];
  size_t size, longer;
  snprintf(folder, sizeof folder, "%s", scratch_path("starts"));
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  load("corpus: /first\n", &config);
  struct plm_hparams hparams = {.config = &config, .subjects = &subject, .subject_count = 1};
  assert_int_equal(plm_hparams_write(folder, &hparams, NULL), PLM_OK);
  assert_int_equal(plm_hparams_end(folder, NULL), PLM_OK);
  plm_config_deinit(&config);
  char *bytes = file_of(folder, &longer);
  assert_int_equal(count_of(bytes, longer, "_hparams_/session_end_info"), 1);
  assert_int_equal(count_of(bytes, longer, "/first"), 1);
  /* a message of an event (5) has a value (1) with a tag (1) and the name of the plugin (1) */
  const char *end = memmem(bytes, longer, "\n\32_hparams_/session_end_info", 28);
  assert_true(end != NULL && end[-2] == '\n' && end[-4] == '*');
  assert_int_equal(count_of(bytes, longer, "\n\7hparams\22"), 3);
  assert_true(has_start_between(bytes, longer, began, plm_clock_wall_s()));
  free(bytes);
  load("corpus: /other\n", &config);
  assert_int_equal(plm_hparams_write(folder, &hparams, NULL), PLM_OK);
  bytes = file_of(folder, &size);
  assert_true(size < longer);
  assert_int_equal(count_of(bytes, size, "_hparams_/experiment"), 1);
  assert_int_equal(count_of(bytes, size, "_hparams_/session_start_info"), 1);
  assert_int_equal(count_of(bytes, size, "_hparams_/session_end_info"), 0);
  assert_int_equal(count_of(bytes, size, "/first"), 0);
  assert_int_equal(count_of(bytes, size, "/other"), 1);
  /* once in the experiment and once in the session; a setting that is not shown is in neither */
  assert_int_equal(count_of(bytes, size, "trainer.optimizer.lr_head"), 2);
  assert_int_equal(count_of(bytes, size, "trainer.steps"), 2);
  /* of the session: a name (1) with its value (2), which is a number (2) or a text (3) */
  assert_int_equal(count_of(bytes, size, "\n\rtrainer.steps\22\11\21"), 1);
  assert_int_equal(count_of(bytes, size, "\n\6corpus\22\10\32\6/other"), 1);
  /* of the experiment: a name (1) with its type (4), a tag (2) in its name (1), a shown name (3),
   * and that it is of the validation (5) */
  assert_int_equal(count_of(bytes, size, "\n\rtrainer.steps \3"), 1);
  assert_int_equal(count_of(bytes, size, "\n\6corpus \1"), 1);
  assert_int_equal(count_of(bytes, size, "\n\14\22\nvalid/loss\32\nvalid loss(\2"), 1);
  assert_int_equal(count_of(bytes, size, "\n\20\22\16valid/accuracy\32\16valid accuracy(\2"), 1);
  assert_int_equal(count_of(bytes, size, "\n\22\22\20valid/perplexity\32\20valid perplexity(\2"),
                   1);
  assert_int_equal(count_of(bytes, size, "trainer.stop_timeout_s"), 0);
  assert_int_equal(count_of(bytes, size, "network."), 0);
  free(bytes);
  plm_config_deinit(&config);
}

/* 512 bytes are the most; a character that does not fit is left out as a whole. */
static void a_long_text_is_cut(void **state)
{
  (void)state;
  struct plm_config config;
  char folder[PLM_PATH_SIZE], text[PLM_PATH_SIZE], whole[PLM_PATH_SIZE];
  size_t size;
  snprintf(folder, sizeof folder, "%s", scratch_path("long"));
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  memset(whole, 'a', 511);
  whole[0] = '/';
  for (int letters = 510; letters <= 511; letters++) {
    snprintf(text, sizeof text, "corpus: \"%.*s\xc3\xa9zz\"\n", letters, whole);
    load(text, &config);
    struct plm_hparams hparams = {.config = &config, .subjects = &subject, .subject_count = 1};
    assert_int_equal(plm_hparams_write(folder, &hparams, NULL), PLM_OK);
    char *bytes = file_of(folder, &size);
    assert_int_equal(count_of(bytes, size, "a\xc3\xa9"), letters == 510);
    assert_int_equal(count_of(bytes, size, "a\xc3"), letters == 510);
    assert_int_equal(count_of(bytes, size, "az"), 0);
    assert_int_equal(count_of(bytes, size, "\xa9z"), 0);
    whole[letters] = '\0';
    assert_int_equal(count_of(bytes, size, whole), 1);
    whole[letters] = 'a';
    free(bytes);
    plm_config_deinit(&config);
  }
}

static void errors_name_the_file(void **state)
{
  (void)state;
  struct plm_config config;
  struct plm_error error = {0};
  load("", &config);
  const struct plm_hparams hparams = {.config = &config, .subjects = &subject, .subject_count = 1};
  assert_int_equal(plm_hparams_write(scratch_path("none"), &hparams, &error), PLM_NOT_FOUND);
  assert_non_null(strstr(error.what, "none/" PLM_HPARAMS_FILE));
  assert_int_equal(plm_hparams_end(scratch_path("none"), &error), PLM_NOT_FOUND);
  assert_non_null(strstr(error.what, "none/" PLM_HPARAMS_FILE));
  enum { SUBJECTS = 4000 };
  static const char *many[SUBJECTS];
  for (int i = 0; i < SUBJECTS; i++) many[i] = "a subject with a name";
  const struct plm_hparams long_ones = {
      .config = &config, .subjects = many, .subject_count = SUBJECTS};
  assert_int_equal(plm_hparams_write(scratch_directory(), &long_ones, &error), PLM_LIMIT);
  assert_string_equal(error.what,
                      "the settings are too long for TensorBoard: more than 65536 bytes");
  assert_false(plm_file_exists(scratch_path(PLM_HPARAMS_FILE)));
  plm_config_deinit(&config);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_start_replaces_the_file),
      cmocka_unit_test(a_long_text_is_cut),
      cmocka_unit_test(errors_name_the_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
