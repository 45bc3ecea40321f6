/* What a run folder tells of its processes: locks say who trains and evaluates, the peers files of
 * both say which packers serve them and how fast. */
#include "stages/ps_rows.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <cjson/cJSON.h>

#include "common/base/json.h"
#include "common/run/run.h"

/* They hold a lock of this name and write a peers file of this name. */
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
  cJSON_AddItemToArray(rows, row);
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

/* A lock file is written when the lock is taken. */
static double lock_age_s(const char *run, const char *name)
{
  char file[64], path[PLM_PATH_SIZE];
  struct stat info;
  snprintf(file, sizeof file, "%s.lock", name);
  if (plm_path_join(path, run, file, NULL) != PLM_OK || stat(path, &info) != 0) return 0.0;
  const double age_s = difftime(time(NULL), info.st_mtime);
  return age_s > 0 ? age_s : 0.0;
}

void plm_ps_add_by_hand(const char *run, struct cJSON *rows)
{
  for (size_t i = 0; i < sizeof consumers / sizeof consumers[0]; i++) {
    struct plm_lock_holder holder;
    if (has_stage(rows, consumers[i]) ||
        plm_lock_holder(run, consumers[i], &holder, NULL) != PLM_OK)
      continue;
    char *peers = NULL; /* written from when the feed is bound */
    const bool ready = plm_peers_read(run, consumers[i], &peers, NULL) == PLM_OK;
    free(peers);
    add_row(rows, consumers[i], 0, holder.host, holder.pid, ready ? "ready" : "starting", ready,
            lock_age_s(run, consumers[i]));
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

/* A packer tells each consumer its rate over both, and the queue of that consumer alone. */
static void add_counters(cJSON *row, const cJSON *peer)
{
  const bool known = cJSON_HasObjectItem(row, "rate");
  const double queue = plm_json_number(row, "queue", 0.0) + plm_json_number(peer, "queue", 0.0);
  const double rate = fmax(plm_json_number(peer, "rate", 0.0), plm_json_number(row, "rate", 0.0));
  const bool standby =
      cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(known ? row : peer, "standby"));
  cJSON_DeleteItemFromObjectCaseSensitive(row, "rate");
  cJSON_DeleteItemFromObjectCaseSensitive(row, "queue");
  cJSON_DeleteItemFromObjectCaseSensitive(row, "standby");
  cJSON_AddNumberToObject(row, "rate", rate);
  cJSON_AddNumberToObject(row, "queue", queue);
  cJSON_AddBoolToObject(row, "standby", standby);
}

void plm_ps_add_packers(const char *run, struct cJSON *rows)
{
  for (size_t i = 0; i < sizeof consumers / sizeof consumers[0]; i++) {
    char *text;
    if (plm_peers_read(run, consumers[i], &text, NULL) != PLM_OK) continue;
    cJSON *peers = cJSON_Parse(text);
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
