/* The live block of `up`: what it reads from the run folder, and what it writes to a terminal. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <poll.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/run/run.h"
#include "tests/support/cases/supervisor_case.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/scratch.h"

/* The time of this program, in ms; -1: the real one. */
static int64_t own_ms = -1;

/* Takes the place of libc's function in this program. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
  if (own_ms < 0 || clock != CLOCK_MONOTONIC) return (int)syscall(SYS_clock_gettime, clock, now);
  *now = (struct timespec){.tv_sec = own_ms / 1000, .tv_nsec = own_ms % 1000 * 1000000};
  return 0;
}

static int master = -1, standard_error = -1;

/* Standard error becomes a terminal of 24 rows, which passes on what is written to it. */
static int setup(void **state)
{
  int slave;
  struct termios raw;
  *state = supervisor_case_open("trainer: {steps: 100}\n");
  setenv("LC_ALL", "C", 1);
  if (openpty(&master, &slave, NULL, NULL, NULL) != 0) return 1;
  tcgetattr(slave, &raw);
  cfmakeraw(&raw);
  tcsetattr(slave, TCSANOW, &raw);
  fflush(stderr);
  standard_error = dup(STDERR_FILENO);
  dup2(slave, STDERR_FILENO);
  close(slave);
  return 0;
}

static int teardown(void **state)
{
  own_ms = -1;
  fflush(stderr);
  dup2(standard_error, STDERR_FILENO);
  close(standard_error);
  close(master);
  supervisor_case_close(*state);
  return 0;
}

static void make_terminal(unsigned short rows, unsigned short columns)
{
  const struct winsize size = {.ws_row = rows, .ws_col = columns};
  assert_int_equal(ioctl(STDERR_FILENO, TIOCSWINSZ, &size), 0);
}

/* What was written to the terminal since the last call. It arrives a little later than it is
 * written, so a mark follows it. */
static const char *written(void)
{
  static const char mark[] = "\001the end";
  static char text[1 << 16];
  size_t used = 0;
  char *end = NULL;
  fputs(mark, stderr);
  fflush(stderr);
  while (end == NULL) {
    struct pollfd item = {.fd = master, .events = POLLIN};
    assert_int_equal(poll(&item, 1, 60000), 1); /* the mark arrives */
    const ssize_t size = read(master, text + used, sizeof text - 1 - used);
    assert_true(size > 0);
    used += (size_t)size;
    text[used] = '\0';
    end = strstr(text, mark);
  }
  *end = '\0';
  return text;
}

static void append(const struct plm_supervisor *supervisor, const char *name, const char *text)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, supervisor->stages.config->run, name, NULL), PLM_OK);
  FILE *file = fopen(path, "ae");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}

static bool near(double value, double expected)
{
  return fabs(value - expected) <= 1e-9 * fabs(expected);
}

/* ---- what is read ---------------------------------------------------------------------------- */

static void the_trainers_lines_become_facts(void **state)
{
  struct plm_supervisor *supervisor = *state;
  const struct plm_live_facts *facts = &supervisor->screen.live.facts;
  make_terminal(24, 80);
  live_open(&supervisor->screen.live);
  live_update(&supervisor->screen.live);
  assert_true(isnan(facts->loss) && isnan(facts->tokens_per_second) && isnan(facts->left_s));
  assert_int_equal(facts->steps, 100);
  append(supervisor, "trainer.jsonl",
         "{\"step\":10,\"loss\":2.5,\"epoch\":0.5,\"step_ms\":200,\"tokens_per_second\":1000}\n");
  live_update(&supervisor->screen.live);
  assert_int_equal(facts->step, 10);
  assert_true(facts->loss == 2.5 && facts->epoch == 0.5 && facts->tokens_per_second == 1000);
  assert_true(near(facts->left_s, 0.2 * 90));
  /* nine parts of what was and one of what is; what is not known or 0 changes nothing */
  append(supervisor, "trainer.jsonl",
         "{\"step\":20,\"loss\":2.25,\"step_ms\":300,\"tokens_per_second\":2000,"
         "\"warning\":\"gradient is\\n0\"}\n"
         "{\"loss\":9}\nno json\n{\"step\":-1,\"loss\":9}\n");
  live_update(&supervisor->screen.live);
  assert_int_equal(facts->step, 20);
  assert_true(facts->loss == 2.25 && near(facts->tokens_per_second, 1100));
  assert_string_equal(facts->warning, "gradient is\\x0a0");
  assert_true(near(facts->left_s, 0.21 * 80));
  append(supervisor, "trainer.jsonl", "{\"step\":100,\"step_ms\":0,\"tokens_per_second\":0}\n");
  live_update(&supervisor->screen.live);
  assert_true(facts->step == 100 && facts->left_s == 0 && isnan(facts->loss));
  assert_string_equal(facts->warning, "");
  assert_true(near(facts->tokens_per_second, 1100));
  append(supervisor, "trainer.jsonl", "{\"step\":101,\"loss\":1}\n{\"step\":0,\"loss\":3}\n");
  live_update(&supervisor->screen.live);
  assert_true(facts->step == 0 && near(facts->left_s, 0.21 * 100));
  live_erase(&supervisor->screen.live);
}

static void the_evaluators_lines_become_a_text(void **state)
{
  static const struct {
    const char *line, *text;
  } rows[] = {
      {"{\"step\":8,\"split\":\"valid\",\"loss\":2.5,\"accuracy\":0.256}",
       "valid loss 2.5000, accuracy 25.6 % at step 8"},
      {"{\"step\":9,\"split\":\"valid\",\"loss\":2.4}", "valid loss 2.4000 at step 9"},
      {"{\"step\":10,\"loss\":2.3}", "valid loss 2.4000 at step 9"},
      {"{\"step\":10,\"split\":\"valid\"}", "valid loss 2.4000 at step 9"},
      {"{\"split\":\"valid\",\"loss\":2.3}", "valid loss 2.4000 at step 9"},
      /* keep_best judges neither by another split nor by another corpus */
      {"{\"step\":11,\"split\":\"test\",\"loss\":2.3}", "valid loss 2.4000 at step 9"},
      {"{\"step\":11,\"set\":\"other\",\"split\":\"valid\",\"loss\":2.3}",
       "valid loss 2.4000 at step 9"},
      {"{\"step\":11,\"set\":\"corpus\",\"split\":\"valid\",\"loss\":2.2}",
       "valid loss 2.2000 at step 11"},
  };
  struct plm_supervisor *supervisor = *state;
  make_terminal(24, 80);
  live_open(&supervisor->screen.live);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    append(supervisor, "evaluator.jsonl", rows[i].line);
    append(supervisor, "evaluator.jsonl", "\n");
    live_update(&supervisor->screen.live);
    assert_string_equal(supervisor->screen.live.facts.evaluation, rows[i].text);
  }
  live_erase(&supervisor->screen.live);
}

static void ages_by_5_s(const struct plm_supervisor *supervisor, const char *lock)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, supervisor->stages.config->run, lock, NULL), PLM_OK);
  scratch_age(path, 5000);
}

static void list_peers(const struct plm_supervisor *supervisor, const char *role, const char *peers)
{
  assert_int_equal(plm_peers_write(supervisor->stages.config->run, role, peers, NULL), PLM_OK);
}

/* As if it had last looked so long ago. */
static void update_after(struct plm_supervisor *supervisor, int ms)
{
  supervisor->screen.live.looked_ms = plm_clock_ms() - ms;
  live_update(&supervisor->screen.live);
}

static void make_latest_checkpoint(const struct plm_supervisor *supervisor)
{
  char folder[PLM_PATH_SIZE], link[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(folder, supervisor->stages.config->run, "checkpoints", NULL),
                   PLM_OK);
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  assert_int_equal(plm_path_join(link, folder, "latest", NULL), PLM_OK);
  assert_int_equal(symlink("step_00000040", link), 0);
}

static void packers_stages_and_the_checkpoint(void **state)
{
  struct plm_supervisor *supervisor = *state;
  const struct plm_live_facts *facts = &supervisor->screen.live.facts;
  make_terminal(24, 80);
  live_open(&supervisor->screen.live);
  (void)supervisor_case_add(supervisor, PLM_KIND_TRAINER, PLM_STAGE_READY);
  (void)supervisor_case_add(supervisor, PLM_KIND_EVALUATOR, PLM_STAGE_STARTING);
  struct supervised *packer = supervisor_case_add(supervisor, PLM_KIND_PACKER, PLM_STAGE_READY);
  packer->removed = true;
  packer->pulse = (struct plm_pulse){.begun = true, .mark = 7, .since_ms = 0};
  ages_by_5_s(supervisor, "trainer.lock");
  append(supervisor, "pulse.trainer.json",
         "{\"doing\":\"waiting for data\",\"waits\":true,\"waited_s\":40}\n");
  append(supervisor, "pulse.evaluator.json",
         "{\"doing\":\"waiting for packers\",\"waits\":true,\"waited_s\":100}\n");
  list_peers(supervisor, "evaluator", "[{\"host\":\"e\",\"pid\":3,\"rate\":1000}]");
  live_update(&supervisor->screen.live);
  assert_true(facts->stages == 2 && facts->ready == 1 && !facts->has_checkpoint);
  assert_string_equal(facts->evaluator, "");
  assert_int_equal(strncmp(facts->activity, "waiting for data 0:4", 20), 0);
  assert_string_equal(facts->packers, "e:3: 1.0k/s"); /* the evaluator's, without the trainer's */
  list_peers(supervisor, "trainer",
             "[{\"host\":\"a\",\"pid\":1,\"rate\":12345},"
             "{\"host\":\"b\",\"pid\":2,\"rate\":5,\"standby\":true},"
             "{\"host\":\"c\",\"pid\":3,\"rate\":49,\"ahead\":12},"
             "{\"host\":\"d\",\"pid\":4,\"rate\":50,\"ahead\":1},"
             "{\"host\":\"e\",\"pid\":5,\"rate\":0,\"ahead\":1},"
             "{\"host\":\"f\",\"pid\":6,\"rate\":0,\"ahead\":0}]");
  make_latest_checkpoint(supervisor);
  own_ms = plm_clock_ms();
  update_after(supervisor, 999); /* it has looked within the last second */
  assert_string_equal(facts->packers, "e:3: 1.0k/s");
  update_after(supervisor, 1000);
  assert_string_equal(facts->packers, "a:1: 12.3k/s  b:2: standby  "
                                      "c:3: ready, 12 chunks ahead  d:4: 0.1k/s  "
                                      "e:5: ready, 1 chunk ahead  f:6: 0.0k/s");
  assert_true(facts->has_checkpoint && facts->checkpoint_step == 40);
  plm_peers_remove(supervisor->stages.config->run, "trainer");
  plm_peers_remove(supervisor->stages.config->run, "evaluator");
  update_after(supervisor, 1000);
  assert_string_equal(facts->packers, "");
  live_erase(&supervisor->screen.live);
}

static void silent_packers_and_waiting_evaluators(void **state)
{
  struct plm_supervisor *supervisor = *state;
  const struct plm_live_facts *facts = &supervisor->screen.live.facts;
  make_terminal(24, 80);
  live_open(&supervisor->screen.live);
  (void)supervisor_case_add(supervisor, PLM_KIND_TRAINER, PLM_STAGE_STARTING);
  (void)supervisor_case_add(supervisor, PLM_KIND_EVALUATOR, PLM_STAGE_READY);
  struct supervised *packer = supervisor_case_add(supervisor, PLM_KIND_PACKER, PLM_STAGE_READY);
  packer->pulse = (struct plm_pulse){.begun = true, .mark = 7};
  ages_by_5_s(supervisor, "evaluator.lock");
  append(supervisor, "pulse.trainer.json",
         "{\"doing\":\"waiting for data\",\"waits\":true,\"waited_s\":40}\n");
  append(supervisor, "pulse.evaluator.json",
         "{\"doing\":\"waiting for packers\",\"waits\":true,\"waited_s\":100}\n");
  own_ms = plm_clock_ms();
  for (int unheard = 9; unheard <= 10; unheard++) {
    packer->pulse.since_ms = own_ms - 1000 * (int64_t)unheard;
    update_after(supervisor, 1000);
    assert_string_equal(facts->packers, unheard == 9 ? "" : "0: not heard for 0:10");
  }
  assert_int_equal(strncmp(facts->evaluator, "waiting for packers 1:4", 23), 0);
  assert_string_equal(facts->activity, "");
  live_erase(&supervisor->screen.live);
}

/* ---- what is drawn --------------------------------------------------------------------------- */

/* How many lines of the block a text from the terminal has: each but the last ends with "\033[K\n".
 */
static size_t lines_in(const char *text)
{
  size_t lines = 1;
  for (const char *at = text; (at = strstr(at, "\033[K\n")) != NULL; at += 4) lines++;
  return lines;
}

static void the_block_is_drawn_when_it_changes(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct live *live = &supervisor->screen.live;
  char up[32];
  make_terminal(24, 80);
  live_open(&supervisor->screen.live);
  append(supervisor, "trainer.jsonl", "{\"step\":10,\"loss\":2.5,\"step_ms\":200}\n");
  live_update(&supervisor->screen.live);
  const char *text = written();
  assert_true(text[0] != '\r' && text[0] != '\0'); /* the cursor is where it shall begin */
  const size_t count = live->drawn_count;
  assert_int_equal(lines_in(text), count);
  assert_string_equal(text + strlen(text) - 3, "\033[J");
  assert_null(strstr(text, "\033[0m"));
  live_update(&supervisor->screen.live);
  assert_string_equal(written(), ""); /* nothing has changed */
  append(supervisor, "trainer.jsonl", "{\"step\":11,\"loss\":2.5,\"step_ms\":200}\n");
  live_update(&supervisor->screen.live);
  snprintf(up, sizeof up, "\r\033[%zuA", count - 1);
  text = written();
  assert_memory_equal(text, up, strlen(up));
  assert_memory_not_equal(text + strlen(up), " \033[J\r", 5);
  assert_int_equal(lines_in(text), live->drawn_count);
  live_erase(live);
  snprintf(up, sizeof up, "\r\033[%zuA \033[J\r", count - 1);
  assert_string_equal(written(), up);
  assert_int_equal(live->drawn_count, 0);
  live_erase(live);
  assert_string_equal(written(), "");
}

/* A narrower terminal has broken the lines, so the block has more rows. */
static void the_block_fits_another_width(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct live *live = &supervisor->screen.live;
  char up[32];
  size_t rows = 0;
  make_terminal(24, 200);
  live_open(&supervisor->screen.live);
  append(supervisor, "trainer.jsonl", "{\"step\":10,\"loss\":2.5,\"step_ms\":200}\n");
  live_update(&supervisor->screen.live);
  written();
  for (size_t i = 0; i < live->drawn_count; i++) {
    const size_t columns = live->drawn[i].columns;
    assert_true(columns <= 79);
    rows += columns == 0 ? 1 : (columns + 19) / 20;
  }
  assert_true(rows > live->drawn_count);
  assert_int_equal(live->drawn_columns, 200);
  make_terminal(24, 20);
  live_update(&supervisor->screen.live);
  snprintf(up, sizeof up, "\r\033[%zuA \033[J\r", rows - 1);
  const char *text = written();
  assert_memory_equal(text, up, strlen(up));
  for (size_t i = 0; i < live->drawn_count; i++) assert_true(live->drawn[i].columns <= 19);
  assert_int_equal(live->drawn_columns, 20);
  /* at least one row stays free */
  const size_t count = live->drawn_count;
  make_terminal((unsigned short)(count + 1), 20);
  live_update(&supervisor->screen.live);
  assert_int_equal(live->drawn_count, count);
  make_terminal((unsigned short)count, 20);
  live_update(&supervisor->screen.live);
  assert_int_equal(live->drawn_count, count - 1);
  make_terminal(1, 20);
  live_update(&supervisor->screen.live);
  assert_int_equal(live->drawn_count, 1);
  written();
  live_erase(live); /* in its only row */
  assert_string_equal(written(), "\r \033[J\r");
  make_terminal(0, 0); /* a terminal that does not know its size */
  live_update(&supervisor->screen.live);
  assert_int_equal(live->drawn_columns, 80);
  assert_int_equal(live->drawn_count, lines_in(written()));
  live_erase(live);
}

/* A line has a second row only if it is wider than the terminal. */
static void rows_are_counted_to_the_column(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct live *live = &supervisor->screen.live;
  make_terminal(24, 200);
  live_open(&supervisor->screen.live);
  append(supervisor, "trainer.jsonl", "{\"step\":10,\"loss\":2.5,\"step_ms\":200}\n");
  live_update(&supervisor->screen.live);
  const size_t count = live->drawn_count;
  for (size_t i = 0; i < count; i++) {
    for (unsigned narrower = 0; narrower < 4; narrower++) {
      const size_t drawn = live->drawn[i].columns,
                   columns = narrower < 3 ? drawn - narrower : drawn / 2;
      char up[32];
      size_t rows = 0;
      if (drawn < 3) continue;
      for (size_t k = 0; k < count; k++) {
        const size_t width = live->drawn[k].columns;
        rows += width == 0 ? 1 : (width + columns - 1) / columns;
      }
      written();
      make_terminal(24, (unsigned short)columns);
      live_erase(live);
      snprintf(up, sizeof up, "\r\033[%zuA \033[J\r", rows - 1);
      assert_string_equal(written(), up);
      live->drawn_count = count; /* and so are its lines */
    }
  }
  live_erase(live);
}

static void labels_have_a_color(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct live *live = &supervisor->screen.live;
  struct plm_text expected = {0};
  make_terminal(24, 80);
  live->color = true;
  live_open(&supervisor->screen.live);
  live_update(&supervisor->screen.live);
  for (size_t i = 0; i < live->drawn_count; i++) {
    const struct plm_live_line *line = &live->drawn[i];
    plm_text_printf(&expected, "%s%.*s\033[0m%s%s", line->color, (int)line->label, line->text,
                    line->text + line->label, i + 1 < live->drawn_count ? "\033[K\n" : "\033[J");
  }
  assert_string_equal(written(), expected.data);
  plm_text_deinit(&expected);
  live_erase(live);
}

/* Without its time and the name of its program, which the stage's name tells. */
static void lines_of_a_log_are_printed(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct supervised *trainer = supervisor_case_add(supervisor, PLM_KIND_TRAINER, PLM_STAGE_READY);
  supervisor->screen.lines = true;
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, supervisor->stages.config->run, "log", NULL), PLM_OK);
  plm_tail_init(&trainer->tail, path, 0);
  append(supervisor, "log",
         "2026-01-02T03:04:05.678Z plm-trainer: step 1\nplm-trainer:x\nno: newline");
  screen_update(&supervisor->screen);
  assert_string_equal(written(), "trainer.0   | step 1\ntrainer.0   | plm-trainer:x\n");
  screen_close(&supervisor->screen);
  assert_string_equal(written(), "trainer.0   | no: newline\n");
}

static void colors_are_for_a_terminal(void **state)
{
  struct plm_supervisor *supervisor = *state;
  for (int how = 0; how < 4; how++) {
    struct screen screen = {
        .stages = &supervisor->stages, .detached = how == 1, .quiet = how == 2, .color = true};
    if (how == 3) captured_begin(STDERR_FILENO);
    screen_open(&screen);
    if (how == 3) captured_end();
    assert_int_equal(screen.color, how == 0);
    assert_int_equal(screen.lines, how == 0 || how == 3);
  }
}

static void options_of_up_reach_the_screen(void **state)
{
  struct plm_supervisor *supervisor = *state;
  for (int how = 0; how < 4; how++) {
    struct plm_supervisor_options options = supervisor->options;
    static struct plm_supervisor made;
    options.detached = how == 1;
    options.quiet = how == 2;
    options.color = how == 3;
    supervisor_init(&made, &options, NULL);
    assert_int_equal(made.screen.detached, how == 1);
    assert_int_equal(made.screen.quiet, how == 2);
    assert_int_equal(made.screen.color, how == 3);
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(the_trainers_lines_become_facts),    TEST(the_evaluators_lines_become_a_text),
      TEST(packers_stages_and_the_checkpoint),  TEST(silent_packers_and_waiting_evaluators),
      TEST(the_block_is_drawn_when_it_changes), TEST(the_block_fits_another_width),
      TEST(rows_are_counted_to_the_column),     TEST(labels_have_a_color),
      TEST(colors_are_for_a_terminal),          TEST(options_of_up_reach_the_screen),
      TEST(lines_of_a_log_are_printed),
  };
  return cmocka_run_group_tests_name("live terminal", tests, NULL, NULL);
}
