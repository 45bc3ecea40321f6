/* Words about stages: names, how one ended, the root cause. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "stages/supervisor_internal.h"

void supervised_name(const struct supervised *stage, char name[64])
{
  snprintf(name, 64, "%s.%u", plm_stage_kinds[stage->kind].name, stage->instance);
}

void supervised_ending(const struct supervised *stage, char text[96])
{
  const int status = stage->wait_status;
  if (WIFSIGNALED(status)) {
    snprintf(text, 96, "was ended by signal %d (%s)", WTERMSIG(status),
             strsignal(WTERMSIG(status)));
  } else if (WEXITSTATUS(status) == 0) {
    snprintf(text, 96, "ended without finishing");
  } else {
    snprintf(text, 96, "exited with %d", WEXITSTATUS(status));
  }
}

static void add_line(void *context, const char *line)
{
  plm_text_printf(context, "  | %s\n", line);
}

void supervisor_note_failure(struct plm_supervisor *supervisor, struct supervised *stage,
                             const char *how)
{
  const int status = stage->wait_status;
  const bool exited = stage->started_ms != 0 && WIFEXITED(status);
  int code =
      exited && (WEXITSTATUS(status) == 2 || WEXITSTATUS(status) == 4) ? WEXITSTATUS(status) : 1;
  /* the trainer's code is the run's, whoever failed first */
  if (!supervisor->failed || (stage->kind == PLM_KIND_TRAINER && code != 1)) {
    supervisor->failure_code = code;
  }
  if (supervisor->failed) return;
  supervisor->failed = true;
  char name[64];
  static struct plm_tail tail;
  supervised_name(stage, name);
  plm_text_printf(&supervisor->failure, "%s %s\n", name, how);
  plm_tail_init(&tail, stage->tail.path,
                plm_tail_find(stage->tail.path, stage->log_start, FAILURE_LINES));
  plm_tail_read(&tail, 0, add_line, &supervisor->failure);
  plm_tail_flush(&tail, add_line, &supervisor->failure);
  plm_text_printf(&supervisor->failure, "  log: %s\n", stage->tail.path);
}
