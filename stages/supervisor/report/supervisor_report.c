/* Judging and describing the failures of a run. */
#include "stages/supervisor/report/supervisor_report.h"

#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "common/base/log/log.h"
#include "common/run/run.h"
#include "common/run/run_failure.h"
#include "stages/supervisor/gang/gang_command.h"
#include "stages/supervisor/stage/memory_kill.h"

enum {
  FAILURE_LINES = 20,
  FAILURES_TOLD = 4,
  BANNER_LINES = 12, /* of mpirun, after the last lines of the ranks */
};

/* ---- the root cause ------------------------------------------------------------------------ */

static bool is_fatal(const struct supervised *stage)
{
  return stage->state == PLM_STAGE_FATAL && stage->failed_as != 0;
}

/* The run's exit code for this failure: codes that say what to do are passed on, as is what is
 * known of a stage that could not be started; all others become 1. */
static int code_of(const struct supervised *stage)
{
  const bool started = stage->started_ms != 0;
  if (stage->failed_again) return PLM_EXIT_NOT_FINITE;
  switch (started ? plm_failure_kind_of(stage->wait_status) : stage->failed_kind) {
  case PLM_FAILURE_NOT_FINITE: return PLM_EXIT_NOT_FINITE;
  case PLM_FAILURE_PASSES: return PLM_EXIT_MAY_PASS;
  case PLM_FAILURE_STAYS: break;
  default: return 1;
  }
  const int code = started ? WEXITSTATUS(stage->wait_status) : PLM_EXIT_STAYS;
  return code == PLM_EXIT_CONFIG || code == PLM_EXIT_TIMEOUT ? code : PLM_EXIT_STAYS;
}

/* Whether all packers failed and a stage therefore gave up waiting for them (exit code 4). */
static bool starved(const struct stages *stages)
{
  bool waited = false;
  for (size_t i = 0; i < stages->count; i++) {
    const struct supervised *stage = &stages->all[i];
    if (stage->removed) continue;
    if (stage->kind == PLM_KIND_PACKER && !is_fatal(stage)) return false;
    if (stage->kind != PLM_KIND_PACKER && is_fatal(stage) && code_of(stage) == PLM_EXIT_TIMEOUT)
      waited = true;
  }
  return waited;
}

/* Whether the failure of a stage is a failure of the run. A packer's failure is one if the run has
 * only packers, or if the run ended because no packer was left. */
static bool fails_run(const struct stages *stages, const bool chosen[PLM_KIND_COUNT],
                      const struct supervised *stage)
{
  if (!is_fatal(stage)) return false;
  if (stage->kind != PLM_KIND_PACKER) return true;
  return (!chosen[PLM_KIND_TRAINER] && !chosen[PLM_KIND_EVALUATOR]) || starved(stages);
}

/* Failures that fail the run come first; otherwise the order is that of time. */
static bool comes_before(const struct stages *stages, const bool chosen[PLM_KIND_COUNT],
                         const struct supervised *a, const struct supervised *b)
{
  const bool fails_a = fails_run(stages, chosen, a), fails_b = fails_run(stages, chosen, b);
  return fails_a != fails_b ? fails_a : a->failed_as < b->failed_as;
}

/* The failed stage that comes next after `last`, or the first one if `last` is NULL. NULL if there
 * is none. */
static const struct supervised *next_failure(const struct stages *stages,
                                             const bool chosen[PLM_KIND_COUNT],
                                             const struct supervised *last)
{
  const struct supervised *next = NULL;
  for (size_t i = 0; i < stages->count; i++) {
    const struct supervised *stage = &stages->all[i];
    if (!is_fatal(stage) || stage == last) continue;
    if (last != NULL && !comes_before(stages, chosen, last, stage)) continue;
    if (next == NULL || comes_before(stages, chosen, stage, next)) next = stage;
  }
  return next;
}

static void add_line(void *context, const char *line)
{
  plm_text_printf(context, "  | %.1000s\n", line);
}

static void add_line_of_gang(void *context, const char *line)
{
  if (!plm_gang_is_banner(line)) add_line(context, line);
}

static bool disk_is_full(const char *path)
{
  struct statvfs information;
  return statvfs(path, &information) == 0 && information.f_bavail == 0;
}

static void supervisor_report_describe(struct plm_text *text, const char *as_what,
                                       const struct supervised *stage, bool with_lines)
{
  char name[64];
  plm_text_printf(text, "%s: %s %s\n", as_what, supervised_name(stage, name), stage->failed_how);
  if (strstr(stage->failed_how, "for lack of memory") != NULL) plm_memory_kill_hint(text);
  if (with_lines) {
    static struct plm_tail tail;
    void (*const line)(void *, const char *) = stage->gang != NULL ? add_line_of_gang : add_line;
    const size_t lines = FAILURE_LINES + (stage->gang != NULL ? BANNER_LINES : 0);
    plm_tail_init_last(&tail, stage->tail.path, stage->log_start, lines);
    plm_tail_read(&tail, 0, line, text);
    plm_tail_flush(&tail, line, text);
    if (disk_is_full(stage->tail.path))
      plm_text_printf(text, "  the disk of %s is full, so its last lines may be missing\n",
                      stage->tail.path);
  }
  plm_text_printf(text, "  log: %s\n", stage->tail.path);
}

/* Leaves the root cause in the run folder, for `ps` and `runs`. */
static void supervisor_report_record(const char *run, const struct supervised *stage, int code)
{
  static struct plm_run_failure failure; /* static because it is large; there is one thread */
  struct plm_error error = {0};
  failure = (struct plm_run_failure){.time_s = stage->failed_s, .exit_code = code};
  supervised_name(stage, failure.stage);
  snprintf(failure.cause, sizeof failure.cause, "%s", stage->cause);
  if (plm_run_failure_write(run, &failure, &error) != PLM_OK) plm_log_error(&error);
}

int stages_judge_failures(const struct stages *stages, const bool chosen[PLM_KIND_COUNT],
                          struct plm_text *text)
{
  int code = 0;
  bool by_trainer = false; /* the trainer's code wins, whichever stage failed first */
  unsigned told = 0, untold = 0;
  for (const struct supervised *stage = next_failure(stages, chosen, NULL); stage != NULL;
       stage = next_failure(stages, chosen, stage)) {
    const bool fails = fails_run(stages, chosen, stage);
    if (fails && (code == 0 || (stage->kind == PLM_KIND_TRAINER && !by_trainer))) {
      code = code_of(stage);
      by_trainer = stage->kind == PLM_KIND_TRAINER;
    }
    if (told < FAILURES_TOLD) {
      const char *const as_what = !fails ? "warning" : told == 0 ? "failed" : "also failed";
      supervisor_report_describe(text, as_what, stage, told == 0);
      told++;
    } else {
      untold++;
    }
  }
  if (code != 0 && !stages->apart)
    supervisor_report_record(stages->config->run, next_failure(stages, chosen, NULL), code);
  if (untold > 0) plm_text_printf(text, "and %u more stages failed\n", untold);
  return code;
}
