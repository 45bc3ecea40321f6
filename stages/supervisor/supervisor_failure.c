/* Gathering what is known of a failure, and saying what follows. */
#include "stages/supervisor/supervisor_failure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include <cjson/cJSON.h>

#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "common/base/numbers/random.h"
#include "common/base/text/json.h"
#include "common/checkpoint/checkpoint.h"
#include "common/metrics/metrics.h"
#include "common/run/run.h"

enum { LAST_LINES = 20 };

/* ---- what is known --------------------------------------------------------------------------- */

struct words {
  const char *program;
  char text[PLM_FAILURE_TEXT];
};

/* The error that ends a program is the last line that begins with the program's name. */
static void keep_words(void *context, const char *line)
{
  struct words *words = context;
  const size_t length = strlen(words->program);
  line += plm_log_time_length(line);
  if (strncmp(line, words->program, length) == 0 && strncmp(line + length, ": ", 2) == 0)
    snprintf(words->text, sizeof words->text, "%s", line + length + 2);
}

static void read_words(const struct supervised *stage, struct words *words)
{
  static struct plm_tail tail; /* static because it is large; there is one thread */
  *words = (struct words){.program = plm_stage_kinds[stage->kind].program};
  plm_tail_init_last(&tail, stage->tail.path, stage->log_start, LAST_LINES);
  plm_tail_read(&tail, 0, keep_words, words);
  plm_tail_flush(&tail, keep_words, words);
}

/* The last step that this process of the trainer has reported. */
static bool read_step(const struct stages *stages, int64_t lived_ms, uint64_t *step)
{
  char path[PLM_PATH_SIZE];
  cJSON *line = NULL;
  if (plm_path_join(path, stages->config->run, PLM_RUN_TRAINER_METRICS, NULL) != PLM_OK ||
      plm_metrics_last(path, &line, NULL) != PLM_OK)
    return false;
  const double age_s = plm_clock_wall_s() - plm_json_number(line, "time", 0.0);
  const double number = plm_json_number(line, "step", (double)NAN);
  const bool known = number >= 0.0 && age_s <= 1e-3 * (double)lived_ms;
  if (known) *step = (uint64_t)number;
  cJSON_Delete(line);
  return known;
}

/* ---- what follows ---------------------------------------------------------------------------- */

static double jitter(void)
{
  uint32_t random = 0;
  if (plm_random_bytes(&random, sizeof random, NULL) != PLM_OK) return 0.0;
  return (double)random * 0x1p-32;
}

static enum plm_failure_verdict judge(const struct stages *stages, struct supervised *stage,
                                      struct plm_failure *failure, int64_t *delay_ms)
{
  static struct words words;
  const int64_t lived_ms = stage->started_ms != 0 ? failure->now_ms - stage->started_ms : 0;
  words.text[0] = '\0';
  if (stage->started_ms != 0 && WIFEXITED(stage->wait_status)) read_words(stage, &words);
  failure->text = words.text; /* static */
  failure->lived_ms = lived_ms;
  if (stage->kind == PLM_KIND_TRAINER) {
    failure->lived_ms = 0;
    if (!plm_checkpoint_latest(stages->config->run, &failure->mark)) failure->mark = UINT64_MAX;
    failure->at_step = read_step(stages, lived_ms, &failure->step);
  }
  return plm_failures_add(&stage->failures, failure, stages->config->supervisor.wait_s, jitter(),
                          delay_ms);
}

/* Appends why a stage is given up. */
static void supervisor_failure_explain(const struct stages *stages,
                                       enum plm_failure_verdict verdict,
                                       const struct plm_failure *failure, char *how, size_t size)
{
  const size_t used = strlen(how);
  char *end = how + used;
  const size_t room = size - used;
  if (verdict == PLM_VERDICT_TOO_OFTEN) {
    snprintf(end, room, ", for the fifth time in ten minutes: giving up");
  } else if (verdict == PLM_VERDICT_TOO_LONG) {
    snprintf(end, room, "; its cause has not passed within supervisor.wait_s (%g s): giving up",
             stages->config->supervisor.wait_s);
  } else if (verdict == PLM_VERDICT_REPEATED && failure->kind == PLM_FAILURE_NOT_FINITE) {
    snprintf(end, room,
             ", twice at the same step%s: another replay would end there again. Lower the learning "
             "rates (trainer.optimizer.lr_*) or set trainer.clip.norm",
             failure->at_step ? "" : " of the start");
  } else if (verdict == PLM_VERDICT_REPEATED) {
    snprintf(end, room,
             ", twice after step %llu with the same error: another replay would end there again. "
             "`plm-pipeline trace --step %llu` shows the sequences of the next step",
             (unsigned long long)failure->step, (unsigned long long)failure->step + 1);
  }
}

static void start_later(const struct stages *stages, struct screen *screen,
                        struct supervised *stage, bool waits, const struct plm_failure *failure,
                        int64_t delay_ms, const char *how)
{
  char name[64];
  stage->state = plm_stage_next(stage->state, PLM_EVENT_DIED);
  stage->due_ms = failure->now_ms + delay_ms;
  if (!waits) {
    screen_say(screen, "%s %s; restarting it in %.1f s", supervised_name(stage, name), how,
               (double)delay_ms / 1000.0);
    return;
  }
  const double waited_s = 1e-3 * (double)(failure->now_ms - stage->failures.waits_since_ms);
  screen_say(screen,
             "%s %s, which may pass; restarting it in %.1f s, and for at most %.0f s more "
             "(supervisor.wait_s)",
             supervised_name(stage, name), how, (double)delay_ms / 1000.0,
             stages->config->supervisor.wait_s - waited_s);
}

static void keep_cause(struct supervised *stage, const char *how, const char *words)
{
  stage->failed_s = plm_clock_wall_s();
  snprintf(stage->cause, sizeof stage->cause, "%s%s%s", how, words[0] != '\0' ? ": " : "", words);
}

void supervised_note_failure(struct stages *stages, struct supervised *stage, const char *how)
{
  stage->failed_as = ++stages->failures;
  snprintf(stage->failed_how, sizeof stage->failed_how, "%s", how);
}

void supervised_failed(struct stages *stages, struct screen *screen, struct supervised *stage,
                       enum plm_failure_kind kind, const char *how)
{
  struct plm_failure failure = {.kind = kind, .now_ms = plm_clock_ms(), .text = ""};
  const bool never = plm_stage_restart(stages->config, stage->kind) == PLM_RESTART_NO;
  int64_t delay_ms = 0;
  const enum plm_failure_verdict judged = judge(stages, stage, &failure, &delay_ms);
  const enum plm_failure_verdict verdict = never ? PLM_VERDICT_STAYS : judged;
  stage->failed_kind = kind;
  keep_cause(stage, how, failure.text);
  if (verdict == PLM_VERDICT_AGAIN || verdict == PLM_VERDICT_WAITS) {
    start_later(stages, screen, stage, verdict == PLM_VERDICT_WAITS, &failure, delay_ms, how);
    return;
  }
  char name[64], why[sizeof stage->failed_how];
  snprintf(why, sizeof why, "%s", how);
  supervisor_failure_explain(stages, verdict, &failure, why, sizeof why);
  keep_cause(stage, why, failure.text);
  stage->state = plm_stage_next(stage->state, PLM_EVENT_DIED_OUT);
  screen_say(screen, "%s %s", supervised_name(stage, name), why);
  stage->failed_again = verdict == PLM_VERDICT_REPEATED;
  supervised_note_failure(stages, stage, why);
}
