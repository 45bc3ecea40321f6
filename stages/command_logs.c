/* `plm-pipeline logs`: what the stages said, also after the run. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/run/log_tail.h"
#include "common/run/run.h"
#include "stages/command.h"

enum { LOGS_MAX = 300, FOLLOW_US = 100000 };

struct log {
  char name[64]; /* "trainer.0" */
  struct plm_tail tail;
};

struct logs {
  struct log *list; /* LOGS_MAX of them */
  size_t count;
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

/* Adds the logs that are new; lines: how many of their last lines to show, all when negative. */
static plm_status find_logs(struct logs *logs, const struct plm_arguments *arguments, long lines,
                            struct plm_error *error)
{
  const size_t before = logs->count;
  DIR *folder = opendir(logs->folder);
  if (folder == NULL) {
    plm_error_errno(error, "no logs in %s", logs->folder);
    return plm_error_hint(error, "start a run with `plm-pipeline up`, or name one with --run DIR");
  }
  for (const struct dirent *item; (item = readdir(folder)) != NULL;) {
    char name[64], path[PLM_PATH_SIZE];
    const size_t length = strlen(item->d_name);
    if (length < 5 || length > 60 || strcmp(item->d_name + length - 4, ".log") != 0) continue;
    snprintf(name, sizeof name, "%.*s", (int)length - 4, item->d_name);
    if (!is_wanted(arguments, name) || is_known(logs, name) || logs->count == LOGS_MAX) continue;
    if (plm_path_join(path, logs->folder, item->d_name, error) != PLM_OK) continue;
    struct log *log = &logs->list[logs->count++];
    memcpy(log->name, name, sizeof name);
    plm_tail_init(&log->tail, path, lines < 0 ? 0 : plm_tail_find(path, 0, (size_t)lines));
  }
  closedir(folder);
  qsort(logs->list + before, logs->count - before, sizeof *logs->list, by_name);
  return PLM_OK;
}

struct printing {
  const struct logs *logs;
  const struct log *log;
};

static void print_line(void *context, const char *line)
{
  static const char *const colors[] = {"\033[32m", "\033[36m", "\033[33m", "\033[35m"};
  const struct printing *printing = context;
  if (printing->logs->prefixed) {
    const char *paint = colors[(unsigned char)printing->log->name[0] % 4];
    printf("%s%-11s |%s ", printing->logs->color ? paint : "", printing->log->name,
           printing->logs->color ? "\033[0m" : "");
  }
  puts(line);
}

static bool print_new(struct logs *logs)
{
  bool any = false;
  for (size_t i = 0; i < logs->count; i++) {
    struct printing printing = {.logs = logs, .log = &logs->list[i]};
    any |= plm_tail_read(&logs->list[i].tail, 0, print_line, &printing);
  }
  fflush(stdout);
  return any;
}

static bool is_running(const char *run)
{
  struct plm_lock_holder holder;
  return plm_lock_holder(run, "supervisor", &holder, NULL) == PLM_OK;
}

static plm_status print_logs(const struct plm_command_context *context, const char *run,
                             struct logs *logs, long lines, struct plm_error *error)
{
  PLM_TRY(find_logs(logs, context->arguments, lines, error));
  if (logs->count == 0 && context->arguments->positional_count > 0) {
    return plm_error_set(error, PLM_NOT_FOUND, "no log of \"%.80s\" in %s",
                         context->arguments->positionals[0], logs->folder);
  }
  const bool follow = plm_arguments_has(context->arguments, "follow");
  logs->prefixed = logs->count > 1 || (follow && context->arguments->positional_count != 1);
  print_new(logs);
  while (follow) {
    const bool running = is_running(run); /* asked before the last look */
    PLM_TRY(find_logs(logs, context->arguments, -1, error));
    const bool any = print_new(logs);
    if (!running && !any) break;
    usleep(FOLLOW_US);
  }
  for (size_t i = 0; i < logs->count; i++) {
    struct printing printing = {.logs = logs, .log = &logs->list[i]};
    plm_tail_flush(&logs->list[i].tail, print_line, &printing);
  }
  return PLM_OK;
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
  logs.list = calloc(LOGS_MAX, sizeof *logs.list);
  if (logs.list == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  const plm_status status = print_logs(context, run, &logs, limited ? (long)tail : -1, error);
  free(logs.list);
  return status;
}

static const struct plm_option options[] = {
    {'f', "follow", NULL, "go on with what comes, until the run ends"},
    {0, "tail", "N", "only the last N lines of each"},
    {0, NULL, NULL, NULL},
};

const struct plm_command plm_command_logs = {
    .name = "logs",
    .operands = "[STAGE...]",
    .summary = "what the stages said; also after the run",
    .details = "STAGE is trainer, evaluator, packer, one of several (packer.1), or supervisor.",
    .options = options,
    .run = show_logs,
};
