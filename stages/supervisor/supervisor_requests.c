/* The requests over the control socket: ps, down, restart, scale, wait. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/printable.h"
#include "common/base/progress.h"
#include "common/base/strict_json.h"
#include "stages/supervisor/ps_rows.h"
#include "stages/supervisor/supervisor_internal.h"

static void hang_up(struct client *client)
{
  close(client->descriptor);
  client->descriptor = -1;
}

/* Sends the reply, deletes it and hangs up. A client that does not read loses the reply. */
static void answer(struct client *client, cJSON *reply)
{
  char *text = plm_json_text(reply, false);
  cJSON_Delete(reply);
  if (text != NULL) {
    struct plm_text line = {0};
    plm_text_printf(&line, "%s\n", text);
    if (!line.failed) {
      const ssize_t sent =
          send(client->descriptor, line.data, line.length, MSG_NOSIGNAL | MSG_DONTWAIT);
      (void)sent;
    }
    plm_text_deinit(&line);
  }
  free(text);
  hang_up(client);
}

static void refuse(struct client *client, const char *reason)
{
  cJSON *reply = cJSON_CreateObject();
  cJSON_AddBoolToObject(reply, "ok", false);
  cJSON_AddStringToObject(reply, "error", reason);
  answer(client, reply);
}

static cJSON *agree(void)
{
  cJSON *reply = cJSON_CreateObject();
  cJSON_AddBoolToObject(reply, "ok", true);
  return reply;
}

/* ---- requests ------------------------------------------------------------------------------ */

/* Why a stage is in back-off or has failed for good. The causes of 256 packers must fit into a
 * reply. */
static void add_cause(const struct plm_supervisor *supervisor, cJSON *row,
                      const struct supervised *stage)
{
  char text[1600], remedy[REMEDY_SIZE];
  supervised_remedy(&supervisor->stages, stage, remedy);
  if (remedy[0] != '\0') cJSON_AddStringToObject(row, "continue", remedy);
  const size_t room = stage->kind == PLM_KIND_PACKER ? 160 : sizeof text;
  if (stage->state != PLM_STAGE_BACKOFF && stage->state != PLM_STAGE_FATAL) return;
  if (stage->cause[0] == '\0') return;
  plm_printable(text, room, stage->cause, PLM_PRINTABLE_LINE);
  cJSON_AddNumberToObject(row, "failed_at", stage->failed_s);
  cJSON_AddStringToObject(row, "cause", text);
}

/* A stopped process says nothing itself, and nobody tells of a packer that no consumer hears. */
static void add_unheard(const struct plm_supervisor *supervisor, cJSON *row,
                        const struct supervised *stage)
{
  const double unheard_s = supervised_unheard_s(stage);
  struct supervised_trouble trouble;
  if (!cJSON_HasObjectItem(row, "sign_age_s") && unheard_s >= 0)
    cJSON_AddNumberToObject(row, "sign_age_s", unheard_s);
  supervised_trouble(&supervisor->stages, stage, &trouble);
  if (trouble.text[0] == '\0') return;
  cJSON_DeleteItemFromObjectCaseSensitive(row, "activity");
  cJSON_AddStringToObject(row, "activity", trouble.text);
}

static void add_unheard_rows(const struct plm_supervisor *supervisor, cJSON *rows)
{
  cJSON *row;
  cJSON_ArrayForEach(row, rows)
  {
    const double pid = plm_json_number(row, "pid", 0.0);
    for (size_t i = 0; i < supervisor->stages.count; i++)
      if (supervisor->stages.all[i].pid > 0 && supervisor->stages.all[i].pid == (pid_t)pid)
        add_unheard(supervisor, row, &supervisor->stages.all[i]);
  }
}

static void request_ps(struct plm_supervisor *supervisor, struct client *client,
                       const cJSON *request)
{
  (void)request;
  char host[256] = "localhost";
  gethostname(host, sizeof host - 1);
  cJSON *reply = agree();
  cJSON *array = cJSON_AddArrayToObject(reply, "stages");
  for (size_t i = 0; i < supervisor->stages.count; i++) {
    const struct supervised *stage = &supervisor->stages.all[i];
    if (stage->removed && !plm_stage_lives(stage->state)) continue;
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "stage", plm_stage_kinds[stage->kind].name);
    cJSON_AddNumberToObject(row, "instance", stage->instance);
    cJSON_AddStringToObject(row, "node", host);
    cJSON_AddNumberToObject(row, "pid", stage->pid);
    cJSON_AddStringToObject(row, "state", plm_stage_state_name(stage->state));
    cJSON_AddBoolToObject(row, "ready", stage->state == PLM_STAGE_READY);
    cJSON_AddNumberToObject(row, "restarts", stage->restarts);
    const int64_t age_ms = plm_stage_lives(stage->state) ? plm_clock_ms() - stage->started_ms : 0;
    cJSON_AddNumberToObject(row, "age_s", (double)age_ms / 1000.0);
    if (stage->gang != NULL)
      cJSON_AddNumberToObject(row, "ranks", supervisor->stages.config->trainer.ranks);
    add_cause(supervisor, row, stage);
    plm_json_append(array, row);
  }
  plm_ps_add_by_hand(supervisor->stages.config->run, array);
  plm_ps_add_metrics(supervisor->stages.config->run, array);
  plm_ps_add_packers(supervisor->stages.config->run, array);
  add_unheard_rows(supervisor, array);
  answer(client, reply);
}

static void request_down(struct plm_supervisor *supervisor, struct client *client,
                         const cJSON *request)
{
  const bool now = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(request, "kill"));
  if (!supervisor->stages.draining) supervisor_drain(supervisor, SIGTERM);
  while (now && !supervisor->killing) supervisor_drain(supervisor, SIGTERM); /* as two signals */
  client->waits = CLIENT_WAITS_END;
}

static bool is_named(const cJSON *names, const struct supervised *stage)
{
  char name[64];
  supervised_name(stage, name);
  if (cJSON_GetArraySize(names) == 0) return true;
  const cJSON *item;
  cJSON_ArrayForEach(item, names)
  {
    if (cJSON_IsString(item) && (strcmp(item->valuestring, name) == 0 ||
                                 strcmp(item->valuestring, plm_stage_kinds[stage->kind].name) == 0))
      return true;
  }
  return false;
}

static void request_restart(struct plm_supervisor *supervisor, struct client *client,
                            const cJSON *request)
{
  const cJSON *names = cJSON_GetObjectItemCaseSensitive(request, "stages");
  size_t found = 0;
  if (supervisor->stages.draining) {
    refuse(client, "the run is already stopping");
    return;
  }
  for (size_t i = 0; i < supervisor->stages.count; i++) {
    struct supervised *stage = &supervisor->stages.all[i];
    if (stage->removed || !is_named(names, stage)) continue;
    found++;
    if (plm_stage_lives(stage->state) || stage->state == PLM_STAGE_BACKOFF) {
      supervised_stop(supervisor->stages.config, stage);
      stage->start_again = true;
    } else if (stage->state != PLM_STAGE_DONE || stage->kind == PLM_KIND_PACKER) {
      stage->failures = (struct plm_failures){0};
      stage->restarts++;
      supervised_start(&supervisor->launcher, stage);
    }
  }
  if (found == 0)
    refuse(client, "the run has no such stage");
  else
    answer(client, agree());
}

/* The packer with this number, or a new one; NULL if there is no room. */
static struct supervised *packer_at(struct plm_supervisor *supervisor, unsigned instance)
{
  for (size_t i = 0; i < supervisor->stages.count; i++) {
    struct supervised *stage = &supervisor->stages.all[i];
    if (stage->kind == PLM_KIND_PACKER && stage->instance == instance) return stage;
  }
  if (supervisor->stages.count == SUPERVISED_MAX) return NULL;
  return supervised_add(&supervisor->stages, PLM_KIND_PACKER, instance);
}

static void request_scale(struct plm_supervisor *supervisor, struct client *client,
                          const cJSON *request)
{
  const cJSON *wanted = cJSON_GetObjectItemCaseSensitive(request, "packer");
  if (supervisor->stages.draining) {
    refuse(client, "the run is already stopping");
    return;
  }
  if (!cJSON_IsNumber(wanted) || wanted->valuedouble < 0 || wanted->valuedouble > 256) {
    refuse(client, "expected packer=N with N from 0 to 256");
    return;
  }
  const unsigned count = (unsigned)wanted->valueint;
  for (unsigned i = 0; i < count; i++) {
    struct supervised *stage = packer_at(supervisor, i);
    if (stage == NULL) break;
    stage->removed = false;
    if (stage->state == PLM_STAGE_STOPPING)
      stage->start_again = true;
    else if (!plm_stage_lives(stage->state) && stage->state != PLM_STAGE_BACKOFF) {
      supervised_start(&supervisor->launcher, stage);
    }
  }
  for (size_t i = 0; i < supervisor->stages.count; i++) {
    struct supervised *stage = &supervisor->stages.all[i];
    if (stage->kind != PLM_KIND_PACKER || stage->instance < count) continue;
    stage->removed = true;
    stage->start_again = false;
    supervised_stop(supervisor->stages.config, stage);
  }
  answer(client, agree());
}

static void request_wait(struct plm_supervisor *supervisor, struct client *client,
                         const cJSON *request)
{
  const bool ready = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(request, "ready"));
  client->waits = ready ? CLIENT_WAITS_READY : CLIENT_WAITS_END;
  supervisor_answer_ready(supervisor);
}

static const struct {
  const char *name;
  void (*run)(struct plm_supervisor *supervisor, struct client *client, const cJSON *request);
} requests[] = {
    {"ps", request_ps},       {"down", request_down}, {"restart", request_restart},
    {"scale", request_scale}, {"wait", request_wait},
};

static void serve(struct plm_supervisor *supervisor, struct client *client)
{
  cJSON *request = plm_json_line(client->line);
  const cJSON *command = cJSON_GetObjectItemCaseSensitive(request, "command");
  bool served = false;
  for (size_t i = 0; i < sizeof requests / sizeof requests[0] && !served; i++) {
    if (!cJSON_IsString(command) || strcmp(command->valuestring, requests[i].name) != 0) continue;
    served = true;
    requests[i].run(supervisor, client, request);
  }
  if (!served) refuse(client, "unknown request");
  cJSON_Delete(request);
}

/* ---- clients ------------------------------------------------------------------------------- */

void supervisor_accept(struct plm_supervisor *supervisor)
{
  const int descriptor = accept4(supervisor->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (descriptor < 0) return;
  for (size_t i = 0; i < CLIENTS_MAX; i++) {
    struct client *client = &supervisor->clients[i];
    if (client->descriptor >= 0) continue;
    *client = (struct client){.descriptor = descriptor};
    return;
  }
  close(descriptor);
}

void supervisor_client_readable(struct plm_supervisor *supervisor, struct client *client)
{
  char *room = client->line + client->used;
  const ssize_t size = read(client->descriptor, room, sizeof client->line - 1 - client->used);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) { /* the client has left, for example a `wait` that was interrupted */
    hang_up(client);
    return;
  }
  if (client->waits != CLIENT_ASKS) return; /* it has made its request */
  client->used += (size_t)size;
  client->line[client->used] = '\0';
  char *end = strchr(client->line, '\n');
  if (end != NULL) {
    *end = '\0';
    serve(supervisor, client);
  } else if (client->used == sizeof client->line - 1) {
    refuse(client, "the request is too long");
  }
}

void supervisor_answer_ready(struct plm_supervisor *supervisor)
{
  bool ready = true;
  for (size_t i = 0; i < supervisor->stages.count; i++) {
    const struct supervised *stage = &supervisor->stages.all[i];
    if (stage->removed) continue;
    ready = ready && (stage->state == PLM_STAGE_READY || stage->state == PLM_STAGE_DONE);
  }
  for (size_t i = 0; ready && i < CLIENTS_MAX; i++) {
    struct client *client = &supervisor->clients[i];
    if (client->descriptor >= 0 && client->waits == CLIENT_WAITS_READY) answer(client, agree());
  }
}

void supervisor_answer_end(struct plm_supervisor *supervisor)
{
  for (size_t i = 0; i < CLIENTS_MAX; i++) {
    struct client *client = &supervisor->clients[i];
    if (client->descriptor < 0) continue;
    if (client->waits == CLIENT_ASKS) {
      hang_up(client);
      continue;
    }
    cJSON *reply = agree();
    cJSON_AddNumberToObject(reply, "exit", supervisor->exit_code);
    if (supervisor->failure.length > 0) {
      cJSON_AddStringToObject(reply, "failure", supervisor->failure.data);
    }
    answer(client, reply);
  }
}
