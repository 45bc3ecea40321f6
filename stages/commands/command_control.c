/* The commands that make a request of a running supervisor: down, restart, scale, wait. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/log/log.h"
#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/base/text/strict_json.h"
#include "common/run/done.h"
#include "common/run/run.h"
#include "stages/commands/command.h"
#include "stages/supervisor/control/supervisor_socket.h"
#include "stages/supervisor/prepare/supervisor_table.h"

/* Sends the request to the run's supervisor and deletes it. The caller deletes *reply. A refusal
 * is an error. */
static plm_status control_ask(const struct plm_command_context *context, cJSON *request,
                              int timeout_ms, cJSON **reply, struct plm_error *error)
{
  static char line[PLM_SOCKET_LINE_SIZE];
  char run[PLM_PATH_SIZE];
  char *text = plm_json_bytes(request, false);
  cJSON_Delete(request);
  plm_status status = plm_command_run_folder(context, run, error);
  if (status == PLM_OK) status = plm_socket_ask(run, text, timeout_ms, line, error);
  free(text);
  if (status == PLM_TIMEOUT) {
    plm_error_set(error, PLM_TIMEOUT, "the request was not completed within %d s",
                  timeout_ms / 1000);
    return plm_error_hint(
        error, "the run continues; `plm-pipeline ps --run %s` shows what it is doing", run);
  }
  if (status != PLM_OK) return status;
  *reply = plm_json_line(line);
  if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(*reply, "ok"))) return PLM_OK;
  const cJSON *reason = cJSON_GetObjectItemCaseSensitive(*reply, "error");
  plm_error_set(error, PLM_FAILURE, "%s",
                cJSON_IsString(reason) ? reason->valuestring
                                       : "the supervisor did not understand the request");
  cJSON_Delete(*reply);
  return PLM_FAILURE;
}

static cJSON *request_of(const char *command)
{
  cJSON *request = cJSON_CreateObject();
  cJSON_AddStringToObject(request, "command", command);
  return request;
}

static plm_status timeout_of(const struct plm_command_context *context, int *timeout_ms,
                             struct plm_error *error)
{
  unsigned long long seconds;
  *timeout_ms = -1;
  if (!plm_arguments_has(context->arguments, "timeout")) return PLM_OK;
  PLM_TRY(plm_arguments_u64(context->arguments, "timeout", 0, &seconds, error));
  *timeout_ms = seconds > 2000000 ? 2000000000 : (int)seconds * 1000;
  return PLM_OK;
}

/* ---- down ---------------------------------------------------------------------------------- */

static plm_status down(const struct plm_command_context *context, struct plm_error *error)
{
  cJSON *reply, *request;
  int timeout_ms;
  PLM_TRY(plm_command_operands(context, 0, error));
  PLM_TRY(timeout_of(context, &timeout_ms, error));
  request = request_of("down");
  cJSON_AddBoolToObject(request, "kill", plm_arguments_has(context->arguments, "kill"));
  PLM_TRY(control_ask(context, request, timeout_ms, &reply, error));
  cJSON_Delete(reply);
  if (!context->quiet) plm_info("stopped");
  return PLM_OK;
}

static const struct plm_option down_options[] = {
    {0, "kill", NULL, "kill all stages at once, without a last checkpoint"},
    {0, "timeout", "SECONDS", "wait at most this long for the end, then exit with 4"},
    {0, NULL, NULL, NULL},
};

const struct plm_command plm_command_down = {
    .name = "down",
    .summary = "stop a run: the trainer saves a checkpoint, the packers stop last",
    .details =
        "Returns once no process of the run is left. Exits with 3 if the run is not running.",
    .options = down_options,
    .run = down,
};

/* ---- restart ------------------------------------------------------------------------------- */

static plm_status restart(const struct plm_command_context *context, struct plm_error *error)
{
  cJSON *reply, *request = request_of("restart");
  cJSON *names = cJSON_AddArrayToObject(request, "stages");
  for (size_t i = 0; i < context->arguments->positional_count; i++) {
    const char *name = context->arguments->positionals[i];
    char kind[16];
    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(name, "."), name);
    if (plm_stage_kind_find(kind) == PLM_KIND_COUNT) {
      cJSON_Delete(request);
      plm_error_set(error, PLM_USAGE, "\"%.80s\" is not a stage", name);
      return plm_error_hint(
          error, "the stages are trainer, evaluator and packer; packer.1 names one packer");
    }
    plm_json_append(names, cJSON_CreateString(name));
  }
  PLM_TRY(control_ask(context, request, -1, &reply, error));
  cJSON_Delete(reply);
  return PLM_OK;
}

const struct plm_command plm_command_restart = {
    .name = "restart",
    .operands = "[STAGE...]",
    .summary = "stop stages in order and start them again",
    .details = "STAGE is trainer, evaluator, packer, or one instance such as packer.1; the default "
               "is all of them. This also starts stages that the supervisor had given up on.",
    .run = restart,
};

/* ---- scale --------------------------------------------------------------------------------- */

static plm_status scale(const struct plm_command_context *context, struct plm_error *error)
{
  unsigned packers;
  cJSON *reply;
  PLM_TRY(plm_command_operands(context, 1, error));
  if (context->arguments->positional_count == 0) {
    return plm_error_set(error, PLM_USAGE, "packer=N is needed: the number of packers");
  }
  PLM_TRY(plm_command_parse_scale(context->arguments->positionals[0], &packers, error));
  cJSON *request = request_of("scale");
  cJSON_AddNumberToObject(request, "packer", packers);
  PLM_TRY(control_ask(context, request, -1, &reply, error));
  cJSON_Delete(reply);
  return PLM_OK;
}

const struct plm_command plm_command_scale = {
    .name = "scale",
    .operands = "packer=N",
    .summary = "change the number of packers during a run",
    .run = scale,
};

/* ---- wait ---------------------------------------------------------------------------------- */

static plm_status finished_before(const struct plm_command_context *context,
                                  struct plm_error *error)
{
  char run[PLM_PATH_SIZE];
  struct plm_done done;
  struct plm_error ignored = {0};
  PLM_TRY(plm_command_run_folder(context, run, &ignored));
  if (plm_done_read(run, &done, NULL) != PLM_OK) return PLM_NOT_RUNNING;
  *error = (struct plm_error){0};
  if (!context->quiet) plm_info("complete at step %llu", (unsigned long long)done.step);
  return PLM_OK;
}

static plm_status control_wait_for(const struct plm_command_context *context,
                                   struct plm_error *error)
{
  PLM_TRY(plm_command_operands(context, 0, error));
  cJSON *reply, *request = request_of("wait");
  int timeout_ms;
  const bool ready = plm_arguments_has(context->arguments, "ready");
  cJSON_AddBoolToObject(request, "ready", ready);
  plm_status status = timeout_of(context, &timeout_ms, error);
  if (status != PLM_OK) {
    cJSON_Delete(request);
    return status;
  }
  status = control_ask(context, request, timeout_ms, &reply, error);
  if (status == PLM_NOT_RUNNING && !ready) return finished_before(context, error);
  if (status != PLM_OK) return status;
  const cJSON *code = cJSON_GetObjectItemCaseSensitive(reply, "exit");
  const cJSON *failure = cJSON_GetObjectItemCaseSensitive(reply, "failure");
  if (cJSON_IsString(failure)) plm_print(stderr, "plm-pipeline: %s", failure->valuestring);
  status = plm_command_status_of_code(cJSON_IsNumber(code) ? code->valueint : 0, error);
  cJSON_Delete(reply);
  return status;
}

static const struct plm_option wait_options[] = {
    {0, "ready", NULL, "wait until every stage is ready instead of until the end"},
    {0, "timeout", "SECONDS", "wait at most this long, then exit with 4"},
    {0, NULL, NULL, NULL},
};

const struct plm_command plm_command_wait = {
    .name = "wait",
    .summary = "wait until a run ends, and exit with its code",
    .options = wait_options,
    .run = control_wait_for,
};
