/* What a person sees of a run in the foreground: the lines of the stages, each after the stage's
 * name, and on a terminal one live line below them. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/log_file.h"
#include "common/base/printable.h"
#include "common/base/progress.h"
#include "common/base/strict_json.h"
#include "common/run/run.h"
#include "stages/supervisor/supervisor_internal.h"

enum { LINES_A_CALL = 1 << 18 };

static const char *const colors[PLM_KIND_COUNT] = {[PLM_KIND_TRAINER] = "\033[32m",
                                                   [PLM_KIND_EVALUATOR] = "\033[36m",
                                                   [PLM_KIND_PACKER] = "\033[33m"};

static void erase(struct screen *screen)
{
  if (screen->drawn) fputs("\r\033[K", stderr);
  screen->drawn = false;
}

void screen_open(struct plm_supervisor *supervisor)
{
  struct screen *screen = &supervisor->screen;
  const struct plm_supervisor_options *options = &supervisor->options;
  char path[PLM_PATH_SIZE];
  screen->lines = !options->detached && !options->quiet;
  screen->on_terminal = screen->lines && isatty(STDERR_FILENO);
  screen->color = options->color && screen->on_terminal;
  snprintf(path, sizeof path, "%s/%s", supervisor->run, PLM_RUN_TRAINER_METRICS);
  plm_tail_init(&screen->trainer, path, plm_tail_find(path, 0, 1));
  snprintf(path, sizeof path, "%s/%s", supervisor->run, PLM_RUN_EVALUATOR_METRICS);
  plm_tail_init(&screen->evaluator, path, plm_tail_find(path, 0, 1));
}

void screen_say(struct plm_supervisor *supervisor, const char *format, ...)
{
  va_list arguments;
  erase(&supervisor->screen);
  char time[PLM_LOG_TIME_SIZE] = "";
  if (supervisor->options.detached) { /* as in the logs of the stages */
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
  struct plm_supervisor *supervisor;
  const struct supervised *stage;
};

static void print_line(void *context, const char *line)
{
  const struct printing *printing = context;
  struct screen *screen = &printing->supervisor->screen;
  const char *program = plm_stage_kinds[printing->stage->kind].program;
  const size_t length = strlen(program);
  char name[64];
  supervised_name(printing->stage, name);
  line += plm_log_time_length(line);
  /* the stage's name also tells the program's */
  if (strncmp(line, program, length) == 0 && strncmp(line + length, ": ", 2) == 0)
    line += length + 2;
  erase(screen);
  fprintf(stderr, "%s%-11s |%s ", screen->color ? colors[printing->stage->kind] : "", name,
          screen->color ? "\033[0m" : "");
  plm_print(stderr, "%s\n", line);
}

/* ---- the live line ------------------------------------------------------------------------- */

static void trainer_line(void *context, const char *line)
{
  struct screen *screen = context;
  cJSON *json = plm_json_line(line);
  const double step = plm_json_number(json, "step", (double)NAN),
               step_ms = plm_json_number(json, "step_ms", (double)NAN);
  if (json != NULL && step >= 0.0) {
    screen->step = (uint64_t)step;
    screen->loss = plm_json_number(json, "loss", (double)NAN);
    screen->tokens_per_second = plm_json_number(json, "tokens_per_second", (double)NAN);
    if (step_ms > 0.0) {
      screen->step_ms = screen->step_ms > 0.0 ? 0.9 * screen->step_ms + 0.1 * step_ms : step_ms;
    }
  }
  cJSON_Delete(json);
}

static void evaluator_line(void *context, const char *line)
{
  struct screen *screen = context;
  cJSON *json = plm_json_line(line);
  const cJSON *split = cJSON_GetObjectItemCaseSensitive(json, "split");
  const double loss = plm_json_number(json, "loss", (double)NAN),
               step = plm_json_number(json, "step", (double)NAN);
  if (cJSON_IsString(split) && !plm_metrics_is_extra(json) && isfinite(loss) && step >= 0.0) {
    char name[17];
    plm_printable(name, sizeof name, split->valuestring, PLM_PRINTABLE_LINE);
    snprintf(screen->evaluation, sizeof screen->evaluation, " | %s %.4f at step %.0f", name, loss,
             step);
    const double accuracy = plm_json_number(json, "accuracy", (double)NAN);
    const size_t used = strlen(screen->evaluation);
    if (isfinite(accuracy)) {
      snprintf(screen->evaluation + used, sizeof screen->evaluation - used, ", accuracy %.3f",
               accuracy);
    }
  }
  cJSON_Delete(json);
}

static void draw(struct plm_supervisor *supervisor)
{
  struct screen *screen = &supervisor->screen;
  struct winsize size = {0};
  char line[512];
  if (screen->step == 0) {
    size_t ready = 0;
    for (size_t i = 0; i < supervisor->count; i++) {
      ready += supervisor->stages[i].state == PLM_STAGE_READY;
    }
    snprintf(line, sizeof line, "starting: %zu of %zu stages are ready", ready, supervisor->count);
  } else {
    const uint64_t steps = supervisor->config->trainer.steps;
    const double left_s =
        steps > screen->step ? (double)(steps - screen->step) * screen->step_ms / 1000.0 : 0.0;
    char left[32];
    snprintf(line, sizeof line, "step %llu/%llu  loss %.4f  %.1fk tokens/s  %s left%s",
             (unsigned long long)screen->step, (unsigned long long)steps, screen->loss,
             screen->tokens_per_second / 1000.0, plm_format_duration(left_s, left),
             screen->evaluation);
  }
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1) {
    if (strlen(line) >= size.ws_col) line[size.ws_col - 1] = '\0';
  }
  fprintf(stderr, "\r%s\033[K", line);
  screen->drawn = true;
}

void screen_update(struct plm_supervisor *supervisor)
{
  struct screen *screen = &supervisor->screen;
  if (screen->lines) {
    for (size_t i = 0; i < supervisor->count; i++) {
      struct printing printing = {.supervisor = supervisor, .stage = &supervisor->stages[i]};
      plm_tail_read(&supervisor->stages[i].tail, LINES_A_CALL, print_line, &printing);
    }
  }
  if (screen->on_terminal) {
    plm_tail_read(&screen->trainer, LINES_A_CALL, trainer_line, screen);
    plm_tail_read(&screen->evaluator, LINES_A_CALL, evaluator_line, screen);
    draw(supervisor);
  }
  fflush(stderr);
}

void screen_close(struct plm_supervisor *supervisor)
{
  if (supervisor->screen.lines) {
    screen_update(supervisor);
    for (size_t i = 0; i < supervisor->count; i++) {
      struct printing printing = {.supervisor = supervisor, .stage = &supervisor->stages[i]};
      plm_tail_flush(&supervisor->stages[i].tail, print_line, &printing);
    }
  }
  erase(&supervisor->screen);
  fflush(stderr);
}
