/* Printing the messages of the supervisor and the lines of the stages. */
#include "stages/supervisor/report/supervisor_screen.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/base/log/log_file.h"
#include "common/base/log/terminal.h"
#include "common/base/text/printable.h"

enum { LINES_A_CALL = 1 << 18 };

static const char *const colors[PLM_KIND_COUNT] = {[PLM_KIND_TRAINER] = "\033[32m",
                                                   [PLM_KIND_EVALUATOR] = "\033[36m",
                                                   [PLM_KIND_PACKER] = "\033[33m"};

void screen_open(struct screen *screen)
{
  screen->lines = !screen->detached && !screen->quiet;
  screen->color = screen->color && screen->lines && isatty(STDERR_FILENO);
  screen->on_terminal = screen->lines && plm_terminal_can_redraw(STDERR_FILENO);
  screen->live.stages = screen->stages;
  screen->live.color = screen->color;
  if (screen->on_terminal) live_open(&screen->live);
}

void screen_say(struct screen *screen, const char *format, ...)
{
  va_list arguments;
  live_erase(&screen->live);
  char time[PLM_LOG_TIME_SIZE] = "";
  if (screen->detached) { /* as in the logs of the stages */
    plm_log_time_now(time);
    plm_log_file_turn();
  }
  fprintf(stderr, "%splm-pipeline: ", time);
  char message[2048];
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  plm_print(stderr, "%s\n", message);
  fflush(stderr);
}

struct printing {
  struct screen *screen;
  const struct supervised *stage;
};

static void supervisor_screen_print_line(void *context, const char *line)
{
  const struct printing *printing = context;
  struct screen *screen = printing->screen;
  const char *program = plm_stage_kinds[printing->stage->kind].program;
  const size_t length = strlen(program);
  char name[64];
  line += plm_log_time_length(line);
  /* the stage's name also tells the program's */
  if (strncmp(line, program, length) == 0 && strncmp(line + length, ": ", 2) == 0)
    line += length + 2;
  live_erase(&screen->live);
  fprintf(stderr, "%s%-11s |%s ", screen->color ? colors[printing->stage->kind] : "",
          supervised_name(printing->stage, name), screen->color ? "\033[0m" : "");
  plm_print(stderr, "%s\n", line);
}

void screen_update(struct screen *screen)
{
  if (screen->lines) {
    for (size_t i = 0; i < screen->stages->count; i++) {
      struct printing printing = {.screen = screen, .stage = &screen->stages->all[i]};
      plm_tail_read(&screen->stages->all[i].tail, LINES_A_CALL, supervisor_screen_print_line,
                    &printing);
    }
  }
  if (screen->on_terminal) live_update(&screen->live);
  fflush(stderr);
}

void screen_close(struct screen *screen)
{
  if (screen->lines) {
    screen_update(screen);
    for (size_t i = 0; i < screen->stages->count; i++) {
      struct printing printing = {.screen = screen, .stage = &screen->stages->all[i]};
      plm_tail_flush(&screen->stages->all[i].tail, supervisor_screen_print_line, &printing);
    }
  }
  live_erase(&screen->live);
  fflush(stderr);
}
