/* `plm-pipeline up`: starts or resumes a run, in the foreground or in the background. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/log_file.h"
#include "common/base/printable.h"
#include "common/base/strict_json.h"
#include "common/run/run.h"
#include "stages/commands/command.h"
#include "stages/supervisor/gang_command.h"
#include "stages/supervisor/run_corpora.h"
#include "stages/supervisor/run_ports.h"
#include "stages/supervisor/run_prepare.h"
#include "stages/supervisor/supervisor.h"
#include "stages/supervisor/supervisor_socket.h"
#include "stages/supervisor/up_dry_run.h"

enum { EARLIER_EXTRA_S = 5, EARLIER_PAUSE_US = 50000 };

static const struct plm_option options[] = {
    {'d', "detach", NULL, "run in the background; the stages' lines go to the run's logs only"},
    {0, "wait", NULL, "run in the background, and return once every stage is ready"},
    {0, "scale", "packer=N", "start N packers, whatever packer.instances says"},
    {0, "resume", "auto|never|PATH",
     "auto (default): continue from the newest checkpoint; never: start over; PATH: continue from "
     "this checkpoint of the run"},
    {0, "dry-run", NULL,
     "print graph, command lines, memory, disk, cores and ports; change nothing"},
    {0, NULL, NULL, NULL},
};

/* What the command line and the files ask for, known before anything starts. */
struct plan {
  struct plm_config config;
  bool chosen[PLM_KIND_COUNT];
  enum plm_resume_mode mode;
  const char *resume_path;
  char fingerprint[PLM_FINGERPRINTS_SIZE]; /* of the corpora */
};

/* ---- the command line ---------------------------------------------------------------------- */

/* Operands are stages, but the first may be the configuration file. */
static plm_status read_operands(const struct plm_arguments *arguments, const char **file,
                                bool chosen[PLM_KIND_COUNT], struct plm_error *error)
{
  size_t named = 0;
  *file = NULL;
  for (size_t i = 0; i < arguments->positional_count; i++) {
    const char *word = arguments->positionals[i];
    const enum plm_stage_index kind = plm_stage_kind_find(word);
    if (kind != PLM_KIND_COUNT) {
      chosen[kind] = true;
      named++;
    } else if (i == 0 && (strpbrk(word, "./") != NULL || plm_file_exists(word))) {
      *file = word;
    } else {
      plm_error_set(error, PLM_USAGE, "\"%.200s\" is not a stage%s", word,
                    i == 0 ? ", and there is no such file" : "");
      return plm_error_hint(error, "the stages are trainer, evaluator and packer");
    }
  }
  for (int kind = 0; kind < PLM_KIND_COUNT && named == 0; kind++) chosen[kind] = true;
  return PLM_OK;
}

static void read_resume(const struct plm_arguments *arguments, struct plan *plan)
{
  const char *how = plm_arguments_get(arguments, "resume");
  if (how == NULL || strcmp(how, "auto") == 0) return;
  plan->mode = strcmp(how, "never") == 0 ? PLM_RESUME_NEVER : PLM_RESUME_PATH;
  plan->resume_path = how;
}

static plm_status read_plan(const struct plm_command_context *context, struct plan *plan,
                            struct plm_error *error)
{
  const char *file;
  unsigned packers;
  const char *scale = plm_arguments_get(context->arguments, "scale");
  PLM_TRY(read_operands(context->arguments, &file, plan->chosen, error));
  if (scale != NULL) PLM_TRY(plm_command_parse_scale(scale, &packers, error));
  PLM_TRY(plm_arguments_load_config(context->arguments, file, true, &plan->config, error));
  if (scale != NULL) plan->config.packer_instances = packers;
  read_resume(context->arguments, plan);
  char fault[PLM_CONFIG_FAULT_SIZE];
  const char *key = plm_config_schedule_fault(&plan->config, fault);
  if (key != NULL && plan->chosen[PLM_KIND_TRAINER]) plm_warning("%s: %s", key, fault);
  plm_status status = plm_run_corpora_read(&plan->config, plan->fingerprint, error);
  if (status == PLM_OK && plan->chosen[PLM_KIND_PACKER])
    status = plm_run_corpora_local(&plan->config, error);
  if (status == PLM_OK && plan->chosen[PLM_KIND_TRAINER] && plan->config.trainer.ranks > 1)
    status = plm_gang_check(&plan->config, error);
  if (status != PLM_OK) plm_config_deinit(&plan->config);
  return status;
}

/* ---- running ------------------------------------------------------------------------------- */

/* A complete run only evaluates the checkpoints that have no metrics yet. */
static void only_evaluate(struct plan *plan, const struct plm_prepared *prepared)
{
  plan->chosen[PLM_KIND_TRAINER] = false;
  plm_info("the run is complete at step %llu; evaluating checkpoints without metrics",
           (unsigned long long)prepared->step);
}

/* From here on, a run in the background writes its lines to its log. */
static plm_status open_behind(const struct plan *plan, struct plm_error *error)
{
  char logs[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(logs, plan->config.run, PLM_RUN_LOGS, error));
  PLM_TRY(plm_path_join(path, logs, "supervisor.log", error));
  plm_log_file_turn_idle(path);
  const int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (log < 0 || nothing < 0) return plm_error_errno(error, "%s", path);
  dup2(nothing, STDIN_FILENO);
  dup2(nothing, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  close(log);
  close(nothing);
  plm_log_file_set(path);
  return PLM_OK;
}

/* The stages of a supervisor that was killed may still be publishing; they hold these locks. */
static void wait_for_earlier_stages(const struct plm_config *config)
{
  static const char *const writers[] = {"trainer", "evaluator"};
  const int64_t until_ms =
      plm_clock_ms() + 1000 * (int64_t)(config->trainer.stop_timeout_s + EARLIER_EXTRA_S);
  for (size_t i = 0; i < sizeof writers / sizeof writers[0]; i++) {
    struct plm_lock_holder holder;
    bool said = false;
    while (plm_lock_holder(config->run, writers[i], &holder, NULL) == PLM_OK &&
           plm_clock_ms() < until_ms) {
      if (!said)
        plm_info("waiting for the %s of an earlier `up` to end (process %d)", writers[i],
                 holder.pid);
      said = true;
      usleep(EARLIER_PAUSE_US);
    }
  }
}

static plm_status check_ports(const struct plan *plan, struct plm_error *error)
{
  struct plm_run_port ports[PLM_RUN_PORTS];
  const size_t count = plm_run_ports(&plan->config, plan->chosen, ports);
  for (size_t i = 0; i < count; i++) {
    if (ports[i].wrong[0] != '\0') {
      plm_error_set(error, PLM_CONFIG, "%s: %s cannot be bound: %s", ports[i].key, ports[i].address,
                    ports[i].wrong);
      return plm_error_hint(error, "use an address of this host: --set '%s=%s'", ports[i].key,
                            ports[i].any);
    }
    if (!ports[i].taken) continue;
    plm_error_set(error, PLM_BUSY, "%s: %s is in use by %s", ports[i].key, ports[i].address,
                  ports[i].owner);
    return plm_error_hint(error, "stop it, or choose another port: --set %s=%s", ports[i].key,
                          ports[i].any);
  }
  return PLM_OK;
}

static plm_status supervise(const struct plm_command_context *context, struct plan *plan,
                            bool detached, int started_fd, int *exit_code, struct plm_error *error)
{
  struct plm_lock *lock = NULL;
  struct plm_prepared prepared;
  PLM_TRY(plm_directory_make(plan->config.run, error));
  PLM_TRY(plm_lock_take(plan->config.run, "supervisor", &lock, error));
  wait_for_earlier_stages(&plan->config);
  plm_status status = plm_run_prepare(&plan->config, plan->mode, plan->resume_path,
                                      plan->chosen[PLM_KIND_TRAINER], &prepared, error);
  if (status == PLM_OK && prepared.complete && !plan->chosen[PLM_KIND_EVALUATOR]) {
    plm_info("the run is complete at step %llu", (unsigned long long)prepared.step);
    plm_lock_release(lock);
    *exit_code = 0;
    return PLM_OK;
  }
  if (status == PLM_OK && prepared.complete) only_evaluate(plan, &prepared);
  if (status == PLM_OK) status = check_ports(plan, error);
  if (status == PLM_OK && detached) status = open_behind(plan, error);
  struct plm_supervisor_options supervisor = {
      .config = &plan->config,
      .lock = lock,
      .program_directory = context->program_directory,
      .fingerprint = plan->fingerprint,
      .detached = detached,
      .color = context->color,
      .quiet = context->quiet,
      .started_fd = started_fd,
  };
  memcpy(supervisor.chosen, plan->chosen, sizeof supervisor.chosen);
  if (status == PLM_OK) status = plm_supervise(&supervisor, exit_code, error);
  plm_lock_release(lock);
  return status;
}

/* ---- in the background --------------------------------------------------------------------- */

/* Closes what the child has inherited beyond standard error, except one descriptor. A pipe or a
 * lock among them belongs to the caller, who may wait until everybody has closed it. */
static plm_status close_inherited(int kept, struct plm_error *error)
{
  static const char path[] = "/proc/self/fd";
  const struct dirent *entry;
  plm_status status = PLM_OK;
  DIR *folder = opendir(path);
  if (folder == NULL) return plm_error_errno(error, "cannot open %s", path);
  while ((status = plm_directory_next(folder, path, &entry, error)) == PLM_OK && entry != NULL) {
    const int descriptor = atoi(entry->d_name); /* 0 for "." and ".." */
    if (descriptor > STDERR_FILENO && descriptor != kept && descriptor != dirfd(folder))
      close(descriptor);
  }
  closedir(folder);
  return status;
}

/* Runs the child. Once its lines go to the run's log, it keeps none of the caller's descriptors, so
 * that whoever reads the caller's output sees its end. An error before the start is sent through
 * the pipe to the parent, which prints it; once the stages are started, a newline is sent. */
static _Noreturn void live_behind(const struct plm_command_context *context, struct plan *plan,
                                  int pipe_end)
{
  struct plm_error error = {0};
  int exit_code = 1;
  setsid();
  plm_status status = close_inherited(pipe_end, &error);
  if (status == PLM_OK) status = supervise(context, plan, true, pipe_end, &exit_code, &error);
  if (status != PLM_OK) {
    error.status = status;
    const ssize_t sent = write(pipe_end, &error, sizeof error);
    (void)sent; /* the parent also sees the exit code */
    exit_code = plm_status_exit_code(status);
  }
  plm_config_deinit(&plan->config);
  _exit(exit_code);
}

/* Reads what the child sends until it has started the stages (true) or ended (false). */
static bool wait_for_start(int pipe_end, struct plm_error *error)
{
  struct plm_error sent;
  size_t used = 0;
  while (used < sizeof sent) {
    const ssize_t got = read(pipe_end, (char *)&sent + used, sizeof sent - used);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    used += (size_t)got;
  }
  if (used == sizeof sent && error != NULL) *error = sent;
  return used == 1;
}

static plm_status wait_until_ready(const char *run, struct plm_error *error)
{
  static char reply[PLM_SOCKET_LINE_SIZE];
  PLM_TRY(plm_socket_ask(run, "{\"command\":\"wait\",\"ready\":true}", -1, reply, error));
  cJSON *json = plm_json_line(reply);
  const cJSON *code = cJSON_GetObjectItemCaseSensitive(json, "exit");
  const cJSON *failure = cJSON_GetObjectItemCaseSensitive(json, "failure");
  if (cJSON_IsString(failure)) plm_print(stderr, "plm-pipeline: %s", failure->valuestring);
  const plm_status status =
      plm_command_status_of_code(cJSON_IsNumber(code) ? code->valueint : 0, error);
  cJSON_Delete(json);
  return status;
}

static plm_status run_behind(const struct plm_command_context *context, struct plan *plan,
                             struct plm_error *error)
{
  int ends[2], child_status = 0;
  fflush(NULL);
  if (pipe2(ends, O_CLOEXEC) != 0) return plm_error_errno(error, "pipe");
  const pid_t child = fork();
  if (child < 0) return plm_error_errno(error, "fork");
  if (child == 0) {
    close(ends[0]);
    live_behind(context, plan, ends[1]);
  }
  close(ends[1]);
  const bool up = wait_for_start(ends[0], error);
  close(ends[0]);
  if (!up) {
    waitpid(child, &child_status, 0);
    if (error != NULL && error->what[0] != '\0') return error->status;
    return plm_command_status_of_code(WIFEXITED(child_status) ? WEXITSTATUS(child_status) : 1,
                                      error);
  }
  if (plm_arguments_has(context->arguments, "wait")) {
    PLM_TRY(wait_until_ready(plan->config.run, error));
  }
  if (!context->quiet) plm_info("running in %s (process %d)", plan->config.run, (int)child);
  return PLM_OK;
}

static plm_status up(const struct plm_command_context *context, struct plm_error *error)
{
  struct plan plan = {0};
  int exit_code = 0;
  plm_status status;
  PLM_TRY(read_plan(context, &plan, error));
  if (plm_arguments_has(context->arguments, "dry-run")) {
    struct plm_prepared prepared;
    status = plm_run_inspect(&plan.config, plan.mode, plan.resume_path,
                             plan.chosen[PLM_KIND_TRAINER], &prepared, error);
    if (status == PLM_OK) {
      const struct plm_dry_run run = {&plan.config, context->program_directory, plan.fingerprint,
                                      plan.chosen, &prepared};
      status = plm_dry_run(&run, error);
    }
  } else if (plm_arguments_has(context->arguments, "detach") ||
             plm_arguments_has(context->arguments, "wait")) {
    status = run_behind(context, &plan, error);
  } else {
    status = supervise(context, &plan, false, -1, &exit_code, error);
    if (status == PLM_OK) status = plm_command_status_of_code(exit_code, error);
  }
  plm_config_deinit(&plan.config);
  return status;
}

const struct plm_command plm_command_up = {
    .name = "up",
    .sets = true,
    .operands = "[FILE] [STAGE...]",
    .summary = "start or resume a run: trainer, evaluator and packers",
    .details =
        "Runs in the foreground and prints the lines of every stage. Ctrl-C stops the run "
        "in order: "
        "the trainer saves a checkpoint, then the others stop. A second Ctrl-C kills "
        "them.\n\nFILE is the configuration, as with -c. STAGE is trainer, evaluator or packer; "
        "the default is all of them. Exit codes: 0 if the run is complete and evaluated, "
        "130 after Ctrl-C, 143 after SIGTERM or `down`; after a failure 2, 4, 5 or 6 "
        "if the failed stage exited with it, otherwise 1. 5: a value was not finite, or an error "
        "came twice at the same step. 6: a cause that may pass did not pass within "
        "supervisor.wait_s.",
    .options = options,
    .run = up,
};
