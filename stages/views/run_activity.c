/* Reads the last lines of trainer.jsonl, the pulse and the peers file. */
#include "stages/views/run_activity.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/clock.h"
#include "common/base/log/progress.h"
#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "common/run/log_tail.h"
#include "common/run/run.h"
#include "stages/views/median.h"

enum {
  STEPS = 32,         /* of which the median is taken */
  WAIT_S = 10,        /* a shorter wait is not told */
  SILENCE_S = 30,     /* nor is a shorter silence, */
  SILENCE_STEPS = 20, /* or one of fewer steps */
};

/* ---- steps ----------------------------------------------------------------------------------- */

struct steps {
  double time_s, step, tokens_per_second; /* of the last line */
  double ms[STEPS];
  size_t count;
};

static void activity_on_line(void *context, const char *text)
{
  struct steps *steps = context;
  cJSON *line = plm_json_line(text);
  const double ms = plm_json_number(line, "step_ms", 0.0);
  if (ms > 0.0) {
    steps->time_s = plm_json_number(line, "time", 0.0);
    steps->step = plm_json_number(line, "step", 0.0);
    steps->tokens_per_second = plm_json_number(line, "tokens_per_second", 0.0);
    steps->ms[steps->count++ % STEPS] = ms;
  }
  cJSON_Delete(line);
}

static void read_steps(const char *run, struct plm_activity *activity)
{
  static struct plm_tail tail; /* static because it is large; callers have one thread */
  struct steps steps = {0};
  char path[PLM_PATH_SIZE];
  const double process_age_s = plm_lock_age_s(run, "trainer");
  activity->age_s = process_age_s;
  if (plm_path_join(path, run, PLM_RUN_TRAINER_METRICS, NULL) != PLM_OK) return;
  plm_tail_init(&tail, path, plm_tail_find(path, 0, STEPS));
  plm_tail_read(&tail, 0, activity_on_line, &steps);
  const size_t count = steps.count < STEPS ? steps.count : STEPS;
  if (count == 0) return;
  const double last_s = 1e-3 * steps.ms[(steps.count - 1) % STEPS];
  activity->step_s = 1e-3 * plm_median(steps.ms, count);
  const double age_s = fmax(0.0, plm_clock_wall_s() - steps.time_s);
  activity->stepped = age_s <= process_age_s; /* otherwise an earlier process wrote the line */
  if (!activity->stepped) return;
  activity->age_s = age_s;
  activity->step = (uint64_t)steps.step;
  activity->rate = steps.tokens_per_second * last_s / fmax(last_s, age_s);
}

static bool reports_packers(const char *run)
{
  char *text = NULL;
  const bool heard = plm_peers_read(run, "trainer", &text, NULL) == PLM_OK;
  free(text);
  return heard;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* "waiting for packers 1:05", with `after` behind the time. */
static void run_activity_say(struct plm_activity *activity, const char *what, double age_s,
                             const char *after)
{
  char time[32];
  const char *const colon = after[0] != '\0' ? ": " : "";
  snprintf(activity->word, sizeof activity->word, "%s%s%s", what, colon, after);
  snprintf(activity->text, sizeof activity->text, "%s %s%s%s", what,
           plm_format_duration(age_s, time), colon, after);
}

/* Whether it waits, and says so. A short wait is not told. */
static bool waits(struct plm_activity *activity)
{
  const struct plm_run_sign *sign = &activity->sign;
  if (!activity->pulsed || !sign->waits || sign->age_s >= SILENCE_S) return false;
  if (sign->wait_s >= WAIT_S) run_activity_say(activity, sign->doing, sign->wait_s, "");
  return true;
}

static void describe_trainer(struct plm_activity *activity)
{
  const double silence_s = fmax(SILENCE_S, SILENCE_STEPS * activity->step_s);
  const bool speaks = activity->pulsed && (!activity->stepped || activity->sign.waits);
  if (waits(activity)) return;
  if (speaks && activity->sign_age_s >= SILENCE_S)
    run_activity_say(activity, "no sign for", activity->sign_age_s, activity->sign.doing);
  else if (activity->age_s >= silence_s && (activity->stepped || !activity->heard))
    run_activity_say(activity, "no step for", activity->age_s, "");
}

static void describe_evaluator(struct plm_activity *activity)
{
  const double age_s = activity->sign_age_s;
  if (!activity->pulsed || waits(activity)) return;
  if (age_s >= fmax(SILENCE_S, SILENCE_STEPS * activity->sign.pace_s))
    run_activity_say(activity, "no sign for", age_s, activity->sign.doing);
}

/* ---- reading --------------------------------------------------------------------------------- */

void plm_activity_read(const char *run, struct plm_activity *activity)
{
  *activity = (struct plm_activity){0};
  read_steps(run, activity);
  activity->heard = reports_packers(run);
  activity->pulsed = plm_run_pulse_read(run, "trainer", &activity->sign) &&
                     (!activity->stepped || activity->sign.age_s < activity->age_s);
  activity->sign_age_s = activity->pulsed ? activity->sign.age_s : activity->age_s;
  describe_trainer(activity);
}

void plm_activity_read_evaluator(const char *run, struct plm_activity *activity)
{
  *activity = (struct plm_activity){0};
  activity->pulsed = plm_run_pulse_read(run, "evaluator", &activity->sign);
  activity->sign_age_s = activity->pulsed ? activity->sign.age_s : plm_lock_age_s(run, "evaluator");
  describe_evaluator(activity);
}
