/* What a run folder tells about its processes: the locks say who trains and evaluates, and the
 * peers files say which packers serve them and how fast. */
#include "stages/supervisor/control/ps_rows.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/clock.h"
#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "common/checkpoint/checkpoint.h"
#include "common/metrics/metrics.h"
#include "common/run/run.h"
#include "stages/supervisor/control/supervisor_socket.h"
#include "stages/views/run_activity.h"

enum { ASK_TIMEOUT_MS = 5000 };

/* Each holds a lock and writes a peers file of its name. */
static const char *const consumers[] = {"trainer", "evaluator"};

static cJSON *add_row(cJSON *rows, const char *stage, unsigned instance, const char *node,
                      double pid, const char *state, bool ready, double age_s)
{
  cJSON *row = cJSON_CreateObject();
  cJSON_AddStringToObject(row, "stage", stage);
  cJSON_AddNumberToObject(row, "instance", instance);
  cJSON_AddStringToObject(row, "node", node);
  cJSON_AddNumberToObject(row, "pid", pid);
  cJSON_AddStringToObject(row, "state", state);
  cJSON_AddBoolToObject(row, "ready", ready);
  cJSON_AddNumberToObject(row, "restarts", 0);
  cJSON_AddNumberToObject(row, "age_s", age_s);
  plm_json_append(rows, row);
  return row;
}

/* ---- by hand ------------------------------------------------------------------------------- */

static bool has_stage(const cJSON *rows, const char *stage)
{
  const cJSON *row;
  cJSON_ArrayForEach(row, rows)
  {
    if (strcmp(plm_json_string(row, "stage", ""), stage) == 0) return true;
  }
  return false;
}

void plm_ps_add_by_hand(const char *run, struct cJSON *rows)
{
  for (size_t i = 0; i < sizeof consumers / sizeof consumers[0]; i++) {
    struct plm_lock_holder holder;
    if (has_stage(rows, consumers[i]) ||
        plm_lock_holder(run, consumers[i], &holder, NULL) != PLM_OK)
      continue;
    char *peers = NULL; /* the file exists once the feed is bound */
    const bool ready = plm_peers_read(run, consumers[i], &peers, NULL) == PLM_OK;
    free(peers);
    add_row(rows, consumers[i], 0, holder.host, holder.pid, ready ? "ready" : "starting", ready,
            plm_lock_age_s(run, consumers[i]));
  }
}

/* ---- metrics ------------------------------------------------------------------------------- */

static void add_signs(cJSON *row, const struct plm_activity *activity)
{
  cJSON_AddNumberToObject(row, "sign_age_s", activity->sign_age_s);
  if (activity->pulsed) cJSON_AddStringToObject(row, "doing", activity->sign.doing);
  if (activity->text[0] != '\0') cJSON_AddStringToObject(row, "activity", activity->text);
}

static void add_trainer_metrics(const char *run, cJSON *row)
{
  struct plm_activity activity;
  plm_activity_read(run, &activity);
  if (activity.rate > 0.0) cJSON_AddNumberToObject(row, "rate", activity.rate);
  if (activity.stepped) cJSON_AddNumberToObject(row, "step_age_s", activity.age_s);
  add_signs(row, &activity);
}

static size_t checkpoints_after(const char *run, double step)
{
  char folder[PLM_PATH_SIZE];
  uint64_t *steps = NULL;
  size_t count = 0, later = 0;
  if (plm_path_join(folder, run, PLM_RUN_CHECKPOINTS, NULL) == PLM_OK &&
      plm_checkpoint_list(folder, &steps, &count, NULL) == PLM_OK)
    for (size_t i = 0; i < count; i++) later += (double)steps[i] > step;
  free(steps);
  return later;
}

static void add_evaluator_metrics(const char *run, cJSON *row)
{
  struct plm_activity activity;
  plm_activity_read_evaluator(run, &activity);
  add_signs(row, &activity);
  char path[PLM_PATH_SIZE];
  cJSON *last = NULL;
  if (plm_path_join(path, run, PLM_RUN_EVALUATOR_METRICS, NULL) == PLM_OK)
    (void)plm_metrics_last(path, &last, NULL);
  const double seconds = plm_json_number(last, "seconds", 0.0);
  const double age_s = plm_clock_wall_s() - plm_json_number(last, "time", 0.0);
  if (seconds > 0.0 && age_s <= plm_lock_age_s(run, "evaluator"))
    cJSON_AddNumberToObject(row, "rate", plm_json_number(last, "tokens", 0.0) / seconds);
  /* checkpoints are evaluated in order: those after the last report wait, whichever process wrote
   * it */
  cJSON_AddNumberToObject(row, "queue",
                          (double)checkpoints_after(run, plm_json_number(last, "step", -1.0)));
  cJSON_Delete(last);
}

void plm_ps_add_metrics(const char *run, struct cJSON *rows)
{
  cJSON *row;
  cJSON_ArrayForEach(row, rows)
  {
    const char *stage = plm_json_string(row, "stage", "");
    if (!cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(row, "ready"))) continue;
    if (strcmp(stage, "trainer") == 0) add_trainer_metrics(run, row);
    if (strcmp(stage, "evaluator") == 0) add_evaluator_metrics(run, row);
  }
}

/* ---- packers ------------------------------------------------------------------------------- */

static cJSON *find_packer(cJSON *rows, const cJSON *peer)
{
  cJSON *row;
  cJSON_ArrayForEach(row, rows)
  {
    if (strcmp(plm_json_string(row, "stage", ""), "packer") == 0 &&
        plm_json_number(row, "pid", 0.0) == plm_json_number(peer, "pid", 0.0) &&
        strcmp(plm_json_string(row, "node", ""), plm_json_string(peer, "host", "")) == 0) {
      return row;
    }
  }
  return NULL;
}

static unsigned next_instance(const cJSON *rows)
{
  double next = 0;
  const cJSON *row;
  cJSON_ArrayForEach(row, rows)
  {
    if (strcmp(plm_json_string(row, "stage", ""), "packer") == 0 &&
        plm_json_number(row, "instance", 0.0) >= next)
      next = plm_json_number(row, "instance", 0.0) + 1;
  }
  return (unsigned)next;
}

/* A packer tells each consumer its total rate, but only the queue of that consumer. */
static void add_counters(cJSON *row, const cJSON *peer)
{
  const bool known = cJSON_HasObjectItem(row, "rate");
  const double queue = plm_json_number(row, "queue", 0.0) + plm_json_number(peer, "queue", 0.0);
  const double ahead = plm_json_number(row, "ahead", 0.0) + plm_json_number(peer, "ahead", 0.0);
  const double rate = fmax(plm_json_number(peer, "rate", 0.0), plm_json_number(row, "rate", 0.0));
  const bool standby =
      cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(known ? row : peer, "standby"));
  const cJSON *corpora = cJSON_GetObjectItemCaseSensitive(peer, "corpora");
  if (corpora != NULL && !cJSON_HasObjectItem(row, "corpora"))
    plm_json_put(row, "corpora", cJSON_Duplicate(corpora, 1));
  const double sign_age_s =
      fmin(plm_json_number(peer, "sign_age_s", 0.0), plm_json_number(row, "sign_age_s", INFINITY));
  cJSON_DeleteItemFromObjectCaseSensitive(row, "sign_age_s");
  cJSON_AddNumberToObject(row, "sign_age_s", sign_age_s);
  cJSON_DeleteItemFromObjectCaseSensitive(row, "rate");
  cJSON_DeleteItemFromObjectCaseSensitive(row, "queue");
  cJSON_DeleteItemFromObjectCaseSensitive(row, "standby");
  cJSON_AddNumberToObject(row, "rate", rate);
  cJSON_AddNumberToObject(row, "queue", queue);
  cJSON_DeleteItemFromObjectCaseSensitive(row, "ahead");
  cJSON_AddNumberToObject(row, "ahead", ahead);
  cJSON_AddBoolToObject(row, "standby", standby);
}

void plm_ps_add_packers(const char *run, struct cJSON *rows)
{
  for (size_t i = 0; i < sizeof consumers / sizeof consumers[0]; i++) {
    char *text;
    if (plm_peers_read(run, consumers[i], &text, NULL) != PLM_OK) continue;
    cJSON *peers = plm_json_line(text);
    const cJSON *peer;
    free(text);
    cJSON_ArrayForEach(peer, peers)
    {
      cJSON *row = find_packer(rows, peer);
      if (row == NULL) {
        row = add_row(rows, "packer", next_instance(rows), plm_json_string(peer, "host", ""),
                      plm_json_number(peer, "pid", 0.0), "joined", true,
                      plm_json_number(peer, "age_s", 0.0));
      }
      add_counters(row, peer);
    }
    cJSON_Delete(peers);
  }
}

/* ---- all of it ------------------------------------------------------------------------------- */

static plm_status ask_supervisor(const char *run, cJSON **rows, struct plm_error *error)
{
  static char reply[PLM_SOCKET_LINE_SIZE];
  PLM_TRY(plm_socket_ask(run, "{\"command\":\"ps\"}", ASK_TIMEOUT_MS, reply, error));
  cJSON *json = plm_json_line(reply);
  *rows = cJSON_DetachItemFromObjectCaseSensitive(json, "stages");
  cJSON_Delete(json);
  if (cJSON_IsArray(*rows)) return PLM_OK;
  cJSON_Delete(*rows);
  return plm_error_set(error, PLM_PROTOCOL, "the supervisor's answer lists no stages");
}

plm_status plm_ps_read(const char *run, cJSON **rows, struct plm_error *error)
{
  const plm_status status = ask_supervisor(run, rows, error);
  if (status != PLM_NOT_RUNNING) return status;
  cJSON *found = cJSON_CreateArray(); /* the stages that were started by hand */
  plm_ps_add_by_hand(run, found);
  if (cJSON_GetArraySize(found) == 0) {
    cJSON_Delete(found);
    return status;
  }
  plm_ps_add_metrics(run, found);
  plm_ps_add_packers(run, found);
  *rows = found;
  return PLM_OK;
}

static void add_troubled(const cJSON *row, cJSON *troubled)
{
  const char *state = plm_json_string(row, "state", ""),
             *activity = plm_json_string(row, "activity", "");
  char name[64];
  if (strcmp(state, "back-off") == 0 || strcmp(state, "fatal") == 0) activity = state;
  if (activity[0] == '\0') return;
  snprintf(name, sizeof name, "packer.%.0f", plm_json_number(row, "instance", 0.0));
  cJSON *item = cJSON_CreateObject();
  cJSON_AddStringToObject(item, "packer", name);
  cJSON_AddStringToObject(item, "activity", activity);
  plm_json_append(troubled, item);
}

void plm_ps_packers(const char *run, struct plm_ps_packers *packers)
{
  cJSON *rows = NULL;
  const cJSON *row;
  *packers = (struct plm_ps_packers){.troubled = cJSON_CreateArray()};
  if (plm_ps_read(run, &rows, NULL) != PLM_OK) {
    rows = cJSON_CreateArray();
    plm_ps_add_packers(run, rows);
  }
  cJSON_ArrayForEach(row, rows)
  {
    if (strcmp(plm_json_string(row, "stage", ""), "packer") != 0) continue;
    packers->serve += cJSON_HasObjectItem(row, "standby"); /* a consumer lists it */
    add_troubled(row, packers->troubled);
  }
  cJSON_Delete(rows);
}
