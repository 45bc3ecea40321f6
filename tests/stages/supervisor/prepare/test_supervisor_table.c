/* The pure parts of the supervisor, the state table and the back-off; the tail of a log file. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "common/run/log_tail.h"
#include "stages/supervisor/prepare/supervisor_table.h"
#include "stages/supervisor/stage/supervisor_state.h"
#include "tests/support/harness/scratch.h"

static void delays_double_to_a_minute(void **state)
{
  (void)state;
  /* far enough apart that five deaths never fall into ten minutes, but near enough to double */
  static const int64_t expected[] = {1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000};
  struct plm_backoff backoff = {0};
  int64_t now_ms = 5, delay_ms;
  for (size_t i = 0; i < 8; i++, now_ms += 200000) {
    assert_true(plm_backoff_death(&backoff, now_ms, 0.0, &delay_ms));
    assert_int_equal(delay_ms, expected[i]);
  }
  assert_true(plm_backoff_death(&backoff, now_ms, 0.999, &delay_ms));
  assert_in_range(delay_ms, 45000, 46000); /* jitter takes at most a quarter */
  now_ms += PLM_BACKOFF_WINDOW_MS + 1;
  assert_true(plm_backoff_death(&backoff, now_ms, 0.0, &delay_ms));
  assert_int_equal(delay_ms, 1000); /* forgotten after ten quiet minutes */
}

static void five_deaths_in_ten_minutes_are_enough(void **state)
{
  (void)state;
  struct plm_backoff quick = {0}, slow = {0};
  int64_t delay_ms;
  for (int i = 0; i < 4; i++) assert_true(plm_backoff_death(&quick, i * 149999, 0.5, &delay_ms));
  assert_false(plm_backoff_death(&quick, 4 * 149999, 0.5, &delay_ms));
  for (int i = 0; i < 20; i++) assert_true(plm_backoff_death(&slow, i * 150001, 0.5, &delay_ms));
}

static enum plm_stage_state after(enum plm_stage_state state, const enum plm_stage_event *events,
                                  size_t count)
{
  for (size_t i = 0; i < count; i++) state = plm_stage_next(state, events[i]);
  return state;
}
#define AFTER(...)                                                   \
  after(PLM_STAGE_IDLE, (const enum plm_stage_event[]){__VA_ARGS__}, \
        sizeof((const enum plm_stage_event[]){__VA_ARGS__}) / sizeof(enum plm_stage_event))

static void stages_go_through_their_states(void **state)
{
  (void)state;
  assert_int_equal(AFTER(PLM_EVENT_START, PLM_EVENT_READY), PLM_STAGE_READY);
  assert_int_equal(AFTER(PLM_EVENT_START, PLM_EVENT_DIED), PLM_STAGE_BACKOFF);
  assert_int_equal(AFTER(PLM_EVENT_START, PLM_EVENT_DIED, PLM_EVENT_START), PLM_STAGE_STARTING);
  assert_int_equal(AFTER(PLM_EVENT_START, PLM_EVENT_DIED, PLM_EVENT_STOP), PLM_STAGE_STOPPED);
  assert_int_equal(AFTER(PLM_EVENT_START, PLM_EVENT_STOP, PLM_EVENT_READY), PLM_STAGE_STOPPING);
  /* however it dies while it is stopping, it has stopped and is not restarted */
  assert_int_equal(AFTER(PLM_EVENT_START, PLM_EVENT_STOP, PLM_EVENT_DIED), PLM_STAGE_STOPPED);
  assert_int_equal(AFTER(PLM_EVENT_START, PLM_EVENT_STOP, PLM_EVENT_DIED_OUT), PLM_STAGE_STOPPED);
  assert_int_equal(AFTER(PLM_EVENT_START, PLM_EVENT_READY, PLM_EVENT_ENDED), PLM_STAGE_DONE);
  assert_int_equal(AFTER(PLM_EVENT_START, PLM_EVENT_DIED_OUT, PLM_EVENT_STOP), PLM_STAGE_FATAL);
}

static void only_three_states_have_a_process(void **state)
{
  (void)state;
  for (int s = 0; s < PLM_STAGE_STATE_COUNT; s++) {
    const enum plm_stage_state from = (enum plm_stage_state)s;
    /* after the end of the process, the stage is in no state that has one */
    for (int e = PLM_EVENT_ENDED; e <= PLM_EVENT_DIED_OUT; e++) {
      assert_false(plm_stage_lives(plm_stage_next(from, (enum plm_stage_event)e)));
    }
    assert_true(plm_stage_lives(plm_stage_next(from, PLM_EVENT_START)));
    assert_int_not_equal(strlen(plm_stage_state_name(from)), 0);
  }
}

/* All words of a command line, each in its own brackets. */
static const char *words_of(const struct plm_stage_command *command)
{
  static char text[1 << 14];
  size_t used = 0;
  text[0] = '\0';
  for (char *const *word = command->argv; *word != NULL; word++)
    used += (size_t)snprintf(text + used, sizeof text - used, "[%s]", *word);
  return text;
}

/* Only the trainer is told the corpora, if they are here. */
static void each_stage_has_its_command_line(void **state)
{
  static struct plm_stage_command command;
  static const char *const more[] = {"--set", "a=b", NULL}, *const none[] = {NULL};
  (void)state;
  memset(&command, 'x', sizeof command);
  assert_int_equal(
      plm_stage_command_make("/bin", "/run", "p.yaml", "f1,f2", PLM_KIND_TRAINER, &command, NULL),
      PLM_OK);
  assert_string_equal(words_of(&command),
                      "[/bin/plm-trainer][-c][/run/p.yaml][--run][/run][--fingerprint][f1,f2]");
  plm_stage_command_add(&command, more);
  plm_stage_command_add(&command, none);
  plm_stage_command_add(&command, NULL);
  plm_stage_command_add(&command, more);
  assert_string_equal(
      words_of(&command),
      "[/bin/plm-trainer][-c][/run/p.yaml][--run][/run][--fingerprint][f1,f2][--set]"
      "[a=b][--set][a=b]");
  assert_int_equal(
      plm_stage_command_make("/bin", "/run", "p.yaml", "", PLM_KIND_TRAINER, &command, NULL),
      PLM_OK);
  assert_string_equal(words_of(&command), "[/bin/plm-trainer][-c][/run/p.yaml][--run][/run]");
  assert_int_equal(
      plm_stage_command_make("/bin", "/run", "p.yaml", "f", PLM_KIND_EVALUATOR, &command, NULL),
      PLM_OK);
  assert_string_equal(words_of(&command), "[/bin/plm-evaluator][-c][/run/p.yaml][--run][/run]");
  assert_int_equal(
      plm_stage_command_make("/bin", "/run", "p.yaml", "f", PLM_KIND_PACKER, &command, NULL),
      PLM_OK);
  assert_string_equal(words_of(&command), "[/bin/plm-packer][-c][/run/p.yaml][--run][/run]");
}

static void a_path_that_is_too_long_is_refused(void **state)
{
  static struct plm_stage_command command;
  static char path[PLM_PATH_SIZE];
  (void)state;
  memset(path, 'x', sizeof path - 1);
  assert_int_equal(plm_stage_command_make(path, "/run", "p", "", PLM_KIND_PACKER, &command, NULL),
                   PLM_LIMIT);
  assert_int_equal(plm_stage_command_make("/bin", path, "p", "", PLM_KIND_PACKER, &command, NULL),
                   PLM_LIMIT);
}

static void kinds_have_instances_and_rules(void **state)
{
  static const char yaml[] = "corpus: null\npacker: {instances: 7, restart: always}\n"
                             "trainer: {restart: 'no'}\nevaluator: {restart: on-failure}\n";
  struct plm_config config;
  (void)state;
  assert_int_equal(plm_config_load_text(yaml, strlen(yaml), &config, NULL), PLM_OK);
  assert_int_equal(plm_stage_instances(&config, PLM_KIND_TRAINER), 1);
  assert_int_equal(plm_stage_instances(&config, PLM_KIND_EVALUATOR), 1);
  assert_int_equal(plm_stage_instances(&config, PLM_KIND_PACKER), 7);
  assert_int_equal(plm_stage_restart(&config, PLM_KIND_TRAINER), PLM_RESTART_NO);
  assert_int_equal(plm_stage_restart(&config, PLM_KIND_EVALUATOR), PLM_RESTART_ON_FAILURE);
  assert_int_equal(plm_stage_restart(&config, PLM_KIND_PACKER), PLM_RESTART_ALWAYS);
  plm_config_deinit(&config);
  assert_int_equal(plm_stage_kind_find("evaluator"), PLM_KIND_EVALUATOR);
  assert_int_equal(plm_stage_kind_find("trainers"), PLM_KIND_COUNT);
}

static void collect(void *context, const char *line)
{
  plm_text_printf(context, "[%s]", line);
}

static void a_growing_file_is_followed(void **state)
{
  (void)state;
  struct plm_text lines = {0};
  static struct plm_tail tail;
  const char *path = scratch_path("followed.log");
  plm_tail_init(&tail, path, 0);
  assert_false(plm_tail_read(&tail, 0, collect, &lines)); /* not there yet */
  FILE *file = fopen(path, "w");
  fputs("one\ntw", file);
  fflush(file);
  plm_tail_read(&tail, 0, collect, &lines);
  assert_string_equal(lines.data, "[one]");
  fputs("o\n\nfour", file);
  fflush(file);
  plm_tail_read(&tail, 0, collect, &lines);
  plm_tail_flush(&tail, collect, &lines);
  assert_string_equal(lines.data, "[one][two][][four]");
  fclose(file);
  assert_int_equal(plm_tail_find(path, 0, 2), 8); /* "" begins at 8 */
  assert_int_equal(plm_tail_find(path, 0, 1), 9); /* "four" */
  assert_int_equal(plm_tail_find(path, 0, 9), 0);
  assert_int_equal(plm_tail_find(path, 5, 9), 5);
  assert_int_equal(plm_tail_find(path, 0, 0), 13);
  file = fopen(path, "w"); /* cut, as a resume cuts the metrics */
  fputs("x\n", file);
  fclose(file);
  plm_text_clear(&lines);
  plm_tail_read(&tail, 0, collect, &lines);
  assert_string_equal(lines.data, "[x]");
  plm_text_deinit(&lines);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(delays_double_to_a_minute),
      cmocka_unit_test(five_deaths_in_ten_minutes_are_enough),
      cmocka_unit_test(stages_go_through_their_states),
      cmocka_unit_test(only_three_states_have_a_process),
      cmocka_unit_test(each_stage_has_its_command_line),
      cmocka_unit_test(a_path_that_is_too_long_is_refused),
      cmocka_unit_test(kinds_have_instances_and_rules),
      cmocka_unit_test(a_growing_file_is_followed),
  };
  return cmocka_run_group_tests_name("supervisor table", tests, NULL, NULL);
}
