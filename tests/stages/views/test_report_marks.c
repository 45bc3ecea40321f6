/* The resumes and changes of a run that `report` marks. */
#include "stages/views/report_marks.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "stages/views/report.h"
#include "tests/support/harness/cmocka_all.h"

static void add_history(struct plm_report_marks *marks, const char *text)
{
  cJSON *json = cJSON_Parse(text);
  assert_non_null(json);
  plm_marks_add_history(marks, json);
  cJSON_Delete(json);
}

static void changes_are_in_the_order_of_their_steps(void **state)
{
  static struct plm_report_marks marks;
  double x[] = {6, 8, 12}, y[] = {5, 7, -1};
  const struct plm_curve resumed = {.x = x, .y = y, .count = 3};
  static const struct plm_report_mark wanted[] = {{0, ""},
                                                  {3, "trainer.steps: 5 -> 7"},
                                                  {3, "c: d -> e"},
                                                  {5, ""},
                                                  {7, "trainer.threads: 1 -> 2"}};
  (void)state;
  memset(&marks, 0, sizeof marks);
  plm_marks_add_changes(&marks, 7, "trainer.threads: 1 -> 2\n");
  add_history(&marks, "[{\"step\":3,\"changes\":[\"trainer.steps: 5 -> 7\",\"c: d -> e\",\"\",4]},"
                      "{\"step\":4,\"failed\":\"the disk is full\"},"
                      "{\"step\":-1,\"changes\":[\"no step\"]}]");
  plm_marks_add_resumes(&marks, &resumed);
  assert_int_equal(marks.count, sizeof wanted / sizeof *wanted);
  for (size_t i = 0; i < marks.count; i++) {
    assert_int_equal(marks.list[i].step, wanted[i].step);
    assert_string_equal(marks.list[i].text, wanted[i].text);
  }
}

static void nothing_adds_nothing(void **state)
{
  static struct plm_report_marks marks;
  (void)state;
  memset(&marks, 0, sizeof marks);
  plm_marks_add_history(&marks, NULL);
  plm_marks_add_changes(&marks, 1, NULL);
  plm_marks_add_changes(&marks, 1, "");
  plm_marks_add_resumes(&marks, NULL);
  assert_int_equal(marks.count, 0);
}

static void their_number_is_limited(void **state)
{
  static struct plm_report_marks marks;
  (void)state;
  memset(&marks, 0, sizeof marks);
  for (uint64_t step = 0; step <= PLM_REPORT_MARKS; step++)
    plm_marks_add_changes(&marks, step, "a: 1 -> 2\n");
  assert_int_equal(marks.count, PLM_REPORT_MARKS);
  assert_int_equal(marks.list[PLM_REPORT_MARKS - 1].step, PLM_REPORT_MARKS - 1);
}

static void labels_name_the_key_and_its_new_value(void **state)
{
  static const char *const cases[][2] = {
      {"", "resumed"},
      {"trainer.batch_tokens: 512 -> 1024", "batch_tokens 1024"},
      {"trainer.optimizer.betas: [0.8, 0.95] -> [0.9, 0.95]", "betas [0.9, 0.95]"},
      {"seed: 1 -> 2", "seed 2"},
      {"corpus: source 1: added /a.b weight 1", "corpus: source 1: added /a.b weight 1"},
      {"corpus: source 0: weight 1 -> weight 2", "corpus: source 0: weight 1 -> weight 2"},
      {"something else", "something else"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_report_mark mark = {0};
    char label[64];
    strcpy(mark.text, cases[i][0]);
    plm_mark_label(&mark, label, sizeof label);
    assert_string_equal(label, cases[i][1]);
  }
}

/* A label with room for it says that there are further changes. */
static void a_long_label_is_not_continued(void **state)
{
  static struct plm_report_run run;
  double x[] = {1, 9}, y[] = {1, 2};
  (void)state;
  run.name = "a";
  run.trainer[PLM_REPORT_TRAINER_loss].list[0] = (struct plm_curve){.x = x, .y = y, .count = 2};
  run.trainer[PLM_REPORT_TRAINER_loss].count = 1;
  for (int more = 0; more < 2; more++) {
    char change[100], label[100];
    struct plm_text text = {0};
    snprintf(change, sizeof change, "a.b: 1 -> %0*d\nc: 1 -> 2\n", 40 + more, 7);
    snprintf(label, sizeof label, ">b %0*d%s</text>", 40 + more, 7, more ? "" : " \xE2\x80\xA6");
    run.marks.count = 0;
    plm_marks_add_changes(&run.marks, 2, change);
    plm_report_charts(&text, &run, 1);
    if (strstr(text.data, label) == NULL) fail_msg("no %s in %s", label, text.data);
    plm_text_deinit(&text);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(changes_are_in_the_order_of_their_steps),
      cmocka_unit_test(nothing_adds_nothing),
      cmocka_unit_test(their_number_is_limited),
      cmocka_unit_test(labels_name_the_key_and_its_new_value),
      cmocka_unit_test(a_long_label_is_not_continued),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
