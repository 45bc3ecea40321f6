/* What the supervisor shows on a terminal, in a file and in the background. */
#include "stages/supervisor/report/supervisor_screen.h"

#include <poll.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "tests/support/cases/supervisor_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static int master = -1, standard_error = -1;

/* Standard error becomes a terminal, which passes on what is written to it, or a file. */
static void redirect(bool terminal)
{
  const struct winsize size = {.ws_row = 24, .ws_col = 80};
  struct termios raw;
  int slave;
  fflush(stderr);
  standard_error = dup(STDERR_FILENO);
  if (terminal) {
    assert_int_equal(openpty(&master, &slave, NULL, NULL, &size), 0);
    tcgetattr(slave, &raw);
    cfmakeraw(&raw);
    tcsetattr(slave, TCSANOW, &raw);
  } else {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    master = ends[0];
    slave = ends[1];
  }
  dup2(slave, STDERR_FILENO);
  close(slave);
}

/* What was written since the last call. */
static const char *written(void)
{
  static char text[1 << 14];
  static const char mark = '\001';
  size_t used = 0;
  assert_int_equal(write(STDERR_FILENO, &mark, 1), 1);
  do {
    struct pollfd item = {.fd = master, .events = POLLIN};
    assert_int_equal(poll(&item, 1, 60000), 1); /* the mark arrives */
    const ssize_t size = read(master, text + used, sizeof text - 1 - used);
    assert_true(size > 0);
    used += (size_t)size;
  } while (text[used - 1] != mark);
  text[used - 1] = '\0';
  return text;
}

static void put_back(void)
{
  dup2(standard_error, STDERR_FILENO);
  close(standard_error);
  close(master);
}

static void append(const struct supervised *stage, const char *text)
{
  FILE *file = fopen(stage->tail.path, "ae");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}

/* In the foreground, the lines of all stages come after their names; on a terminal, they may have
 * colours, and a block follows. The program's name is left out, if it is that of the stage. */
static void lines_are_shown_in_the_foreground(void **state)
{
  static const struct {
    bool terminal, detached, quiet, color;
    const char *lines; /* what is said of them; NULL: nothing */
    bool block;
  } rows[] = {
      {false, false, false, true, "trainer.0   | a\npacker.0    | plm-trainer: b\n", false},
      {true, false, false, false, "trainer.0   | a\npacker.0    | plm-trainer: b\n", true},
      {true, false, false, true,
       "\033[32mtrainer.0   |\033[0m a\n\033[33mpacker.0    |\033[0m plm-trainer: b\n", true},
      {true, true, false, true, NULL, false},
      {true, false, true, true, NULL, false},
  };
  (void)state;
  setenv("TERM", "xterm", 1);
  setenv("LC_ALL", "C", 1);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_supervisor *supervisor = supervisor_case_open("trainer: {steps: 100}\n");
    struct screen *screen = &supervisor->screen;
    struct supervised *trainer = supervisor_case_add(supervisor, PLM_KIND_TRAINER, PLM_STAGE_READY);
    struct supervised *packer = supervisor_case_add(supervisor, PLM_KIND_PACKER, PLM_STAGE_READY);
    screen->detached = rows[i].detached;
    screen->quiet = rows[i].quiet;
    screen->color = rows[i].color;
    redirect(rows[i].terminal);
    screen_open(screen);
    append(trainer, "2026-01-02T03:04:05.678Z plm-trainer: a\n");
    append(packer, "plm-trainer: b\nplm-packer: no end");
    screen_update(screen);
    const char *text = written();
    char shown[1 << 14];
    snprintf(shown, sizeof shown, "%s", text);
    screen_say(screen, "%d words", 2);
    char said[1 << 14];
    snprintf(said, sizeof said, "%s", written());
    screen_close(screen);
    char last[1 << 14];
    snprintf(last, sizeof last, "%s", written());
    put_back();
    if (rows[i].lines == NULL)
      assert_string_equal(shown, "");
    else if (strncmp(shown, rows[i].lines, strlen(rows[i].lines)) != 0)
      fail_msg("row %zu shows %s", i, shown);
    if (rows[i].lines != NULL)
      assert_int_equal(shown[strlen(rows[i].lines)] != '\0', rows[i].block);
    /* the block is erased before a message, which has its time in the background */
    const char *message = strstr(said, "plm-pipeline: 2 words\n");
    assert_non_null(message);
    assert_int_equal(message != said, rows[i].block || rows[i].detached);
    assert_int_equal(strstr(said, "\033[J") != NULL, rows[i].block);
    if (rows[i].detached) assert_int_equal(message - said, strlen("2026-01-02T03:04:05.678Z "));
    assert_int_equal(strstr(last, " no end\n") != NULL, rows[i].lines != NULL);
    assert_int_equal(strstr(last, "\033[J") != NULL, rows[i].block);
    supervisor_case_close(supervisor);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(lines_are_shown_in_the_foreground)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
