/* Reading requests, carrying them out, and answering. */
#include "stages/supervisor/supervisor_requests.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/clock.h"
#include "common/base/log/progress.h"
#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/base/text/strict_json.h"
#include "stages/supervisor/control/ps_rows.h"

void requests_init(struct requests *requests)
{
  requests->listen_fd = -1;
  for (size_t i = 0; i < CLIENTS_MAX; i++) requests->clients[i].descriptor = -1;
}

plm_status requests_open(struct requests *requests, struct plm_error *error)
{
  if (requests->stages->apart) return PLM_OK; /* the run's socket is that of the other supervisor */
  PLM_TRY(plm_socket_path(requests->stages->config->run, requests->socket_path, error));
  return plm_socket_listen(requests->socket_path, &requests->listen_fd, error);
}

void requests_close(struct requests *requests)
{
  if (requests->listen_fd < 0) return;
  unlink(requests->socket_path);
  close(requests->listen_fd);
}

/* ---- replies ------------------------------------------------------------------------------- */

static void hang_up(struct client *client)
{
  close(client->descriptor);
  client->descriptor = -1;
}

/* Sends the reply, deletes it and hangs up. A client that does not read loses the reply. */
static void supervisor_requests_answer(struct client *client, cJSON *reply)
{
  char *text = plm_json_text(reply, false);
  cJSON_Delete(reply);
  if (text != NULL) {
    struct plm_text line = {0};
    plm_text_printf(&line, "%s\n", text);
    const ssize_t sent =
        send(client->descriptor, line.data, line.length, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)sent;
    plm_text_deinit(&line);
  }
  free(text);
  hang_up(client);
}

static void supervisor_requests_refuse(struct client *client, const char *reason)
{
  cJSON *reply = cJSON_CreateObject();
  cJSON_AddBoolToObject(reply, "ok", false);
  cJSON_AddStringToObject(reply, "error", reason);
  supervisor_requests_answer(client, reply);
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
static void add_cause(const struct stages *stages, cJSON *row, const struct supervised *stage)
{
  char text[1600], remedy[REMEDY_SIZE];
  supervised_remedy(stages, stage, remedy);
  if (remedy[0] != '\0') cJSON_AddStringToObject(row, "continue", remedy);
  const size_t room = stage->kind == PLM_KIND_PACKER ? 160 : sizeof text;
  if (stage->state != PLM_STAGE_BACKOFF && stage->state != PLM_STAGE_FATAL) return;
  if (stage->cause[0] == '\0') return;
  plm_printable(text, room, stage->cause, PLM_PRINTABLE_LINE);
  cJSON_AddNumberToObject(row, "failed_at", stage->failed_s);
  cJSON_AddStringToObject(row, "cause", text);
}

/* A stopped process says nothing itself, and nobody tells of a packer that no consumer hears. */
static void add_unheard(const struct stages *stages, cJSON *row, const struct supervised *stage)
{
  const double unheard_s = supervised_unheard_s(stage);
  struct supervised_trouble trouble;
  if (!cJSON_HasObjectItem(row, "sign_age_s") && unheard_s >= 0)
    cJSON_AddNumberToObject(row, "sign_age_s", unheard_s);
  supervised_trouble(stages, stage, &trouble);
  if (trouble.text[0] == '\0') return;
  cJSON_DeleteItemFromObjectCaseSensitive(row, "activity");
  cJSON_AddStringToObject(row, "activity", trouble.text);
}

static void add_unheard_rows(const struct stages *stages, cJSON *rows)
{
  cJSON *row;
  cJSON_ArrayForEach(row, rows)
  {
    const char *name = plm_json_string(row, "stage", "");
    for (size_t i = 0; i < stages->count; i++) {
      const struct supervised *stage = &stages->all[i];
      if (stage->pid > 0 && strcmp(name, plm_stage_kinds[stage->kind].name) == 0 &&
          stage->instance == plm_json_whole(row, "instance", UINT32_MAX, 0))
        add_unheard(stages, row, stage);
    }
  }
}

static void request_ps(struct requests *requests, struct client *client, const cJSON *request)
{
  (void)request;
  char host[256] = "localhost";
  gethostname(host, sizeof host - 1);
  cJSON *reply = agree();
  cJSON *array = cJSON_AddArrayToObject(reply, "stages");
  for (size_t i = 0; i < requests->stages->count; i++) {
    const struct supervised *stage = &requests->stages->all[i];
    if (stage->removed && !plm_stage_lives(stage->state)) continue;
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "stage", plm_stage_kinds[stage->kind].name);
    cJSON_AddNumberToObject(row, "instance", stage->instance);
    const bool launched = stage->launched_pid != 0;
    cJSON_AddStringToObject(row, "node", launched ? stage->launched_host : host);
    cJSON_AddNumberToObject(row, "pid", launched ? stage->launched_pid : stage->pid);
    cJSON_AddStringToObject(row, "state", plm_stage_state_name(stage->state));
    cJSON_AddBoolToObject(row, "ready", stage->state == PLM_STAGE_READY);
    cJSON_AddNumberToObject(row, "restarts", stage->restarts);
    const int64_t age_ms = plm_stage_lives(stage->state) ? plm_clock_ms() - stage->started_ms : 0;
    cJSON_AddNumberToObject(row, "age_s", (double)age_ms / 1000.0);
    if (stage->gang != NULL)
      cJSON_AddNumberToObject(row, "ranks", requests->stages->config->trainer.ranks);
    add_cause(requests->stages, row, stage);
    plm_json_append(array, row);
  }
  plm_ps_add_by_hand(requests->stages->config->run, array);
  plm_ps_add_metrics(requests->stages->config->run, array);
  plm_ps_add_packers(requests->stages->config->run, array);
  add_unheard_rows(requests->stages, array);
  supervisor_requests_answer(client, reply);
}

static void request_down(struct requests *requests, struct client *client, const cJSON *request)
{
  const bool now = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(request, "kill"));
  if (!requests->stages->draining) drain_begin(requests->drain, SIGTERM);
  while (now && !requests->drain->killing)
    drain_begin(requests->drain, SIGTERM); /* as two signals */
  client->waits = CLIENT_WAITS_END;
}

static bool is_named(const cJSON *names, const struct supervised *stage)
{
  char name[64];
  if (cJSON_GetArraySize(names) == 0) return true;
  const cJSON *item;
  cJSON_ArrayForEach(item, names)
  {
    if (cJSON_IsString(item) && (strcmp(item->valuestring, supervised_name(stage, name)) == 0 ||
                                 strcmp(item->valuestring, plm_stage_kinds[stage->kind].name) == 0))
      return true;
  }
  return false;
}

static void request_restart(struct requests *requests, struct client *client, const cJSON *request)
{
  const cJSON *names = cJSON_GetObjectItemCaseSensitive(request, "stages");
  size_t found = 0;
  if (requests->stages->draining) {
    supervisor_requests_refuse(client, "the run is already stopping");
    return;
  }
  for (size_t i = 0; i < requests->stages->count; i++) {
    struct supervised *stage = &requests->stages->all[i];
    if (stage->removed || !is_named(names, stage)) continue;
    found++;
    if (plm_stage_lives(stage->state) || stage->state == PLM_STAGE_BACKOFF) {
      supervised_stop(requests->stages->config, stage);
      stage->start_again = true;
    } else if (stage->state != PLM_STAGE_DONE || stage->kind == PLM_KIND_PACKER) {
      stage->failures = (struct plm_failures){0};
      stage->restarts++;
      supervised_start(requests->launcher, stage);
    }
  }
  if (found == 0)
    supervisor_requests_refuse(client, "the run has no such stage");
  else
    supervisor_requests_answer(client, agree());
}

/* The packer with this number, or a new one; NULL if there is no room. */
static struct supervised *packer_at(struct stages *stages, unsigned instance)
{
  for (size_t i = 0; i < stages->count; i++) {
    struct supervised *stage = &stages->all[i];
    if (stage->kind == PLM_KIND_PACKER && stage->instance == instance) return stage;
  }
  if (stages->count == SUPERVISED_MAX) return NULL;
  return supervised_add(stages, PLM_KIND_PACKER, instance);
}

static void request_scale(struct requests *requests, struct client *client, const cJSON *request)
{
  const cJSON *wanted = cJSON_GetObjectItemCaseSensitive(request, "packer");
  if (requests->stages->draining) {
    supervisor_requests_refuse(client, "the run is already stopping");
    return;
  }
  if (!cJSON_IsNumber(wanted) || wanted->valuedouble < 0 || wanted->valuedouble > 256) {
    supervisor_requests_refuse(client, "expected packer=N with N from 0 to 256");
    return;
  }
  const unsigned count = (unsigned)wanted->valueint;
  for (unsigned i = 0; i < count; i++) {
    struct supervised *stage = packer_at(requests->stages, i);
    if (stage == NULL) break;
    stage->removed = false;
    if (stage->state == PLM_STAGE_STOPPING)
      stage->start_again = true;
    else if (!plm_stage_lives(stage->state) && stage->state != PLM_STAGE_BACKOFF) {
      supervised_start(requests->launcher, stage);
    }
  }
  for (size_t i = 0; i < requests->stages->count; i++) {
    struct supervised *stage = &requests->stages->all[i];
    if (stage->kind != PLM_KIND_PACKER || stage->instance < count) continue;
    stage->removed = true;
    stage->start_again = false;
    supervised_stop(requests->stages->config, stage);
  }
  supervisor_requests_answer(client, agree());
}

static void request_wait(struct requests *requests, struct client *client, const cJSON *request)
{
  const bool ready = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(request, "ready"));
  client->waits = ready ? CLIENT_WAITS_READY : CLIENT_WAITS_END;
  requests_answer_ready(requests);
}

static const struct {
  const char *name;
  void (*run)(struct requests *requests, struct client *client, const cJSON *request);
} commands[] = {
    {"ps", request_ps},       {"down", request_down}, {"restart", request_restart},
    {"scale", request_scale}, {"wait", request_wait},
};

static void supervisor_requests_serve(struct requests *requests, struct client *client)
{
  cJSON *request = plm_json_line(client->line);
  const cJSON *command = cJSON_GetObjectItemCaseSensitive(request, "command");
  bool served = false;
  for (size_t i = 0; i < sizeof commands / sizeof commands[0] && !served; i++) {
    if (!cJSON_IsString(command) || strcmp(command->valuestring, commands[i].name) != 0) continue;
    served = true;
    commands[i].run(requests, client, request);
  }
  if (!served) supervisor_requests_refuse(client, "unknown request");
  cJSON_Delete(request);
}

/* ---- clients ------------------------------------------------------------------------------- */

void requests_accept(struct requests *requests)
{
  const int descriptor = accept4(requests->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (descriptor < 0) return;
  for (size_t i = 0; i < CLIENTS_MAX; i++) {
    struct client *client = &requests->clients[i];
    if (client->descriptor >= 0) continue;
    *client = (struct client){.descriptor = descriptor};
    return;
  }
  close(descriptor);
}

void requests_readable(struct requests *requests, struct client *client)
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
    supervisor_requests_serve(requests, client);
  } else if (client->used == sizeof client->line - 1) {
    supervisor_requests_refuse(client, "the request is too long");
  }
}

void requests_answer_ready(struct requests *requests)
{
  bool ready = true;
  for (size_t i = 0; i < requests->stages->count; i++) {
    const struct supervised *stage = &requests->stages->all[i];
    if (stage->removed) continue;
    ready = ready && (stage->state == PLM_STAGE_READY || stage->state == PLM_STAGE_DONE);
  }
  for (size_t i = 0; ready && i < CLIENTS_MAX; i++) {
    struct client *client = &requests->clients[i];
    if (client->descriptor >= 0 && client->waits == CLIENT_WAITS_READY)
      supervisor_requests_answer(client, agree());
  }
}

void requests_answer_end(struct requests *requests, int exit_code, const char *failure)
{
  for (size_t i = 0; i < CLIENTS_MAX; i++) {
    struct client *client = &requests->clients[i];
    if (client->descriptor < 0) continue;
    if (client->waits == CLIENT_ASKS) {
      hang_up(client);
      continue;
    }
    cJSON *reply = agree();
    cJSON_AddNumberToObject(reply, "exit", exit_code);
    if (failure[0] != '\0') cJSON_AddStringToObject(reply, "failure", failure);
    supervisor_requests_answer(client, reply);
  }
}
