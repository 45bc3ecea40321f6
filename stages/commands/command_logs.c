/* `plm-pipeline logs`: prints what the stages logged, during the run and afterwards. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "common/base/text/printable.h"
#include "common/base/text/text.h"
#include "common/run/log_tail.h"
#include "common/run/run.h"
#include "stages/commands/command.h"

enum { LOGS_MAX = 300, FOLLOW_US = 100000 };

struct log {
  char name[64]; /* "trainer.0" */
  struct plm_tail_lines lines;
  bool exhausted; /* this pass found no more */
  /* Of the next line. A line that does not begin with a time belongs to the one before it. */
  char time[PLM_LOG_TIME_SIZE];
};

struct logs {
  struct log *list; /* LOGS_MAX of them */
  size_t count;
  size_t last; /* the log that the last line came from */
  bool prefixed, color;
  char folder[PLM_PATH_SIZE];
};

static int by_name(const void *a, const void *b)
{
  return strcmp(((const struct log *)a)->name, ((const struct log *)b)->name);
}

static bool is_wanted(const struct plm_arguments *arguments, const char *name)
{
  const size_t stage = strcspn(name, ".");
  for (size_t i = 0; i < arguments->positional_count; i++) {
    const char *wanted = arguments->positionals[i];
    if (strcmp(wanted, name) == 0 ||
        (strlen(wanted) == stage && strncmp(wanted, name, stage) == 0)) {
      return true;
    }
  }
  return arguments->positional_count == 0;
}

static bool is_known(const struct logs *logs, const char *name)
{
  for (size_t i = 0; i < logs->count; i++) {
    if (strcmp(logs->list[i].name, name) == 0) return true;
  }
  return false;
}

/* Adds the logs that are new. lines: how many of their last lines to show; all if negative. */
static plm_status find_logs(struct logs *logs, const struct plm_arguments *arguments, long lines,
                            struct plm_error *error)
{
  const size_t before = logs->count;
  DIR *folder = opendir(logs->folder);
  if (folder == NULL) {
    plm_error_errno(error, "there are no logs in %s", logs->folder);
    return plm_error_hint(error, "start a run with `plm-pipeline up`, or name one with --run DIR");
  }
  const struct dirent *item;
  plm_status status;
  while ((status = plm_directory_next(folder, logs->folder, &item, error)) == PLM_OK &&
         item != NULL) {
    char name[64], path[PLM_PATH_SIZE];
    const size_t length = strlen(item->d_name);
    if (length < 5 || length > 60 || strcmp(item->d_name + length - 4, ".log") != 0) continue;
    snprintf(name, sizeof name, "%.*s", (int)length - 4, item->d_name);
    if (!is_wanted(arguments, name) || is_known(logs, name) || logs->count == LOGS_MAX) continue;
    status = plm_path_join(path, logs->folder, item->d_name, error);
    if (status != PLM_OK) break;
    struct log *log = &logs->list[logs->count++];
    strcpy(log->name, name);
    plm_tail_init_last(&log->lines.tail, path, (struct plm_tail_place){0},
                       lines < 0 ? SIZE_MAX : (size_t)lines);
  }
  closedir(folder);
  qsort(logs->list + before, logs->count - before, sizeof *logs->list, by_name);
  return status;
}

struct printing {
  const struct logs *logs;
  const struct log *log;
};

static void logs_print_line(void *context, const char *line)
{
  static const char *const colors[] = {"\033[32m", "\033[36m", "\033[33m", "\033[35m"};
  const struct printing *printing = context;
  if (printing->logs->prefixed) {
    const char *paint = colors[(unsigned char)printing->log->name[0] % 4];
    char name[64];
    plm_printable(name, sizeof name, printing->log->name, PLM_PRINTABLE_LINE);
    printf("%s%-11s |%s ", printing->logs->color ? paint : "", name,
           printing->logs->color ? "\033[0m" : "");
  }
  plm_print(stdout, "%s\n", line);
}

/* ---- merging by time ----------------------------------------------------------------------- */

/* The log's next line, or NULL if there is none in this pass. */
static const char *next_line(struct log *log)
{
  const char *line = log->exhausted ? NULL : plm_tail_peek(&log->lines);
  log->exhausted = line == NULL;
  if (line == NULL) return NULL;
  const size_t length = plm_log_time_length(line);
  if (length > 0) snprintf(log->time, sizeof log->time, "%.*s", (int)length, line);
  return line;
}

/* Prints new lines in the order of their time. Lines later than `until` (if not NULL) wait for the
 * next pass, which may find earlier ones in other logs. Returns false if there was nothing new. */
static bool print_new(struct logs *logs, const char *until)
{
  bool any = false;
  for (size_t i = 0; i < logs->count; i++) logs->list[i].exhausted = false;
  for (;;) {
    struct log *first = NULL;
    for (size_t i = 0; i < logs->count; i++) {
      struct log *log =
          &logs->list[(logs->last + i) % logs->count]; /* on a tie, the same log continues */
      if (next_line(log) == NULL) continue;
      any = true;
      if (first == NULL || strcmp(log->time, first->time) < 0) first = log;
    }
    if (first == NULL || (until != NULL && strcmp(first->time, until) > 0)) break;
    const char *line = next_line(first);
    struct printing printing = {.logs = logs, .log = first};
    logs->last = (size_t)(first - logs->list);
    logs_print_line(&printing, line);
    plm_tail_take(&first->lines);
  }
  fflush(stdout);
  return any;
}

static bool is_running(const char *run)
{
  struct plm_lock_holder holder;
  return plm_lock_holder(run, "supervisor", &holder, NULL) == PLM_OK;
}

/* Whether all logs could be read in the last pass. */
static plm_status check_logs(const struct logs *logs, struct plm_error *error)
{
  for (size_t i = 0; i < logs->count; i++)
    PLM_TRY(plm_tail_check(&logs->list[i].lines.tail, error));
  return PLM_OK;
}

static plm_status print_logs(const struct plm_command_context *context, const char *run,
                             struct logs *logs, long lines, struct plm_error *error)
{
  PLM_TRY(find_logs(logs, context->arguments, lines, error));
  if (logs->count == 0 && context->arguments->positional_count > 0) {
    return plm_error_set(error, PLM_NOT_FOUND, "there is no log of \"%.80s\" in %s",
                         context->arguments->positionals[0], logs->folder);
  }
  const bool follow = plm_arguments_has(context->arguments, "follow");
  logs->prefixed = logs->count > 1 || (follow && context->arguments->positional_count != 1);
  if (!follow) print_new(logs, NULL);
  while (follow) {
    char now[PLM_LOG_TIME_SIZE];
    const bool running = is_running(run); /* asked before the last look at the logs */
    plm_log_time_now(now);
    PLM_TRY(find_logs(logs, context->arguments, -1, error));
    const bool any = print_new(logs, running ? now : NULL);
    PLM_TRY(check_logs(logs, error));
    if (!running && !any) break;
    usleep(FOLLOW_US);
  }
  for (size_t i = 0; i < logs->count; i++) {
    struct printing printing = {.logs = logs, .log = &logs->list[i]};
    plm_tail_flush(&logs->list[i].lines.tail, logs_print_line, &printing);
  }
  return check_logs(logs, error);
}

static plm_status show_logs(const struct plm_command_context *context, struct plm_error *error)
{
  char run[PLM_PATH_SIZE];
  unsigned long long tail;
  struct logs logs = {.color = context->color};
  const bool limited = plm_arguments_has(context->arguments, "tail");
  PLM_TRY(plm_arguments_u64(context->arguments, "tail", 0, &tail, error));
  PLM_TRY(plm_command_run_folder(context, run, error));
  PLM_TRY(plm_path_join(logs.folder, run, PLM_RUN_LOGS, error));
  if (tail > 1000000000) tail = 1000000000;
  logs.list = plm_alloc_zeroed(LOGS_MAX, sizeof *logs.list);
  const plm_status status = print_logs(context, run, &logs, limited ? (long)tail : -1, error);
  for (size_t i = 0; i < logs.count; i++) plm_tail_lines_deinit(&logs.list[i].lines);
  free(logs.list);
  return status;
}

static const struct plm_option options[] = {
    {'f', "follow", NULL, "keep printing lines as they come, until the run ends"},
    {0, "tail", "N", "print only the last N lines of each log"},
    {0, NULL, NULL, NULL},
};

const struct plm_command plm_command_logs = {
    .name = "logs",
    .operands = "[STAGE...]",
    .summary = "show what the stages logged, during the run and afterwards",
    .details =
        "STAGE is trainer, evaluator, packer, supervisor, or one instance such as packer.1; the "
        "default is all of them. The lines of several logs are merged by the time (UTC) that each "
        "line begins with. The supervisor has a log only if the run is in the background.",
    .options = options,
    .run = show_logs,
};
