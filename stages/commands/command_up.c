/* `plm-pipeline up`: starts or resumes a run, in the foreground or in the background. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "common/config/step_range.h"
#include "common/run/run.h"
#include "common/run/run_pulse.h"
#include "stages/commands/behind.h"
#include "stages/commands/command.h"
#include "stages/commands/find_lr.h"
#include "stages/supervisor/gang/gang_command.h"
#include "stages/supervisor/prepare/run_corpora.h"
#include "stages/supervisor/prepare/run_labels.h"
#include "stages/supervisor/prepare/run_ports.h"
#include "stages/supervisor/prepare/run_prepare.h"
#include "stages/supervisor/supervisor.h"
#include "stages/supervisor/up_dry_run.h"

enum { EARLIER_EXTRA_S = 5, EARLIER_PAUSE_US = 50000, PROFILE_SIZE = 80 };

static const struct plm_option options[] = {
    {'d', "detach", NULL, "run in the background; the stages' lines go to the run's logs only"},
    {0, "wait", NULL, "run in the background, and return once every stage is ready"},
    {0, "scale", "packer=N", "start N packers, whatever packer.instances says"},
    {0, "resume", "auto|never|PATH",
     "auto (default): continue from the newest checkpoint; never: start over; PATH: continue from "
     "this checkpoint of the run"},
    {0, "launch", "STAGE=COMMAND",
     "start the stage through COMMAND, such as srun: a shell's words, to which the stage's command "
     "line is appended; COMMAND has to pass on SIGUSR1; may be repeated"},
    {0, "apart", NULL,
     "run the evaluator beside another `up` of the run, for example in a pod of its own; only a "
     "signal stops it, and `ps`, `scale` and `down` do not reach it"},
    {0, "dry-run", NULL,
     "print graph, command lines, memory, disk, cores and ports; change nothing"},
    {0, "profile", "FIRST-LAST",
     "write what these steps do, and how long it takes, to profile.json in the run folder, "
     "whatever trainer.profile.steps says; only in this `up`; `plm-pipeline profile` prints it"},
    {0, "find-lr", NULL,
     "train a short run of its own whose learning rates grow from step to step, draw the loss, and "
     "suggest rates; the run itself is not started"},
    {0, "lr-range", "LOW:HIGH",
     "with --find-lr: from which trainer.optimizer.lr_hidden to which (default 1e-6:1); the other "
     "rates keep their ratio to it"},
    {0, "lr-steps", "N", "with --find-lr: number of steps, 10 to 100000 (default 100)"},
    {0, NULL, NULL, NULL},
};

/* What the command line and the files ask for, known before anything starts. */
struct plan {
  const char *file; /* the configuration; NULL: no operand names it */
  struct plm_config config;
  bool chosen[PLM_KIND_COUNT];
  enum plm_resume_mode mode;
  const char *resume_path;
  const char *launch[PLM_KIND_COUNT];
  bool apart;
  char fingerprint[PLM_FINGERPRINTS_SIZE]; /* of the corpora */
  char profile[PROFILE_SIZE];              /* --profile as a setting */
  const char *trainer_options[3];          /* which the trainer gets; ends with NULL */
};

/* ---- the command line ---------------------------------------------------------------------- */

/* Operands are stages, but the first may be the configuration file. */
static plm_status read_operands(const struct plm_arguments *arguments, struct plan *plan,
                                struct plm_error *error)
{
  size_t named = 0;
  for (size_t i = 0; i < arguments->positional_count; i++) {
    const char *word = arguments->positionals[i];
    const enum plm_stage_index kind = plm_stage_kind_find(word);
    if (kind != PLM_KIND_COUNT) {
      plan->chosen[kind] = true;
      named++;
    } else if (i == 0 && (strpbrk(word, "./") != NULL || plm_file_exists(word))) {
      plan->file = word;
    } else {
      plm_error_set(error, PLM_USAGE, "\"%.200s\" is not a stage%s", word,
                    i == 0 ? ", and there is no such file" : "");
      return plm_error_hint(error, "the stages are trainer, evaluator and packer");
    }
  }
  for (int kind = 0; kind < PLM_KIND_COUNT && named == 0; kind++) plan->chosen[kind] = true;
  return PLM_OK;
}

static void read_resume(const struct plm_arguments *arguments, struct plan *plan)
{
  const char *how = plm_arguments_get(arguments, "resume");
  if (how == NULL || strcmp(how, "auto") == 0) return;
  plan->mode = strcmp(how, "never") == 0 ? PLM_RESUME_NEVER : PLM_RESUME_PATH;
  plan->resume_path = how;
}

static plm_status read_launch(const struct plm_arguments *arguments, struct plan *plan,
                              struct plm_error *error)
{
  for (size_t i = 0; i < arguments->value_count; i++) {
    const char *value = arguments->values[i].value;
    if (strcmp(arguments->values[i].option->name, "launch") != 0) continue;
    const size_t length = strcspn(value, "=");
    int kind = 0;
    while (kind < PLM_KIND_COUNT && (strlen(plm_stage_kinds[kind].name) != length ||
                                     strncmp(plm_stage_kinds[kind].name, value, length) != 0))
      kind++;
    if (kind == PLM_KIND_COUNT || value[length] == '\0' || value[length + 1] == '\0') {
      plm_error_set(error, PLM_USAGE, "--launch \"%.200s\" is not of the form STAGE=COMMAND",
                    value);
      return plm_error_hint(error, "the stages are trainer, evaluator and packer");
    }
    plan->launch[kind] = value + length + 1;
  }
  return PLM_OK;
}

/* What belongs to the run as a whole is up to its other supervisor. */
static plm_status read_apart(const struct plm_arguments *arguments, struct plan *plan,
                             struct plm_error *error)
{
  static const char *const others[] = {"detach", "wait", "scale", "resume", "launch", "dry-run"};
  plan->apart = plm_arguments_has(arguments, "apart");
  if (!plan->apart) return PLM_OK;
  if (!plan->chosen[PLM_KIND_EVALUATOR] || plan->chosen[PLM_KIND_TRAINER] ||
      plan->chosen[PLM_KIND_PACKER])
    return plm_error_set(error, PLM_USAGE,
                         "--apart is only for the evaluator: plm-pipeline up FILE evaluator "
                         "--apart");
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (plm_arguments_has(arguments, others[i]))
      return plm_error_set(error, PLM_USAGE, "--apart and --%s exclude each other", others[i]);
  return PLM_OK;
}

/* --profile, which is trainer.profile.steps for this `up`. The trainer is told it beside the
 * configuration, which is kept in the run folder. */
static plm_status read_profile(const struct plm_arguments *arguments, struct plan *plan,
                               struct plm_error *error)
{
  struct plm_step_range steps;
  char why[PLM_STEP_RANGE_MESSAGE];
  const char *text = plm_arguments_get(arguments, "profile");
  if (text == NULL) return PLM_OK;
  if (!plm_step_range_parse(text, &steps, why))
    return plm_error_set(error, PLM_USAGE, "--profile: %s", why);
  if (steps.last > plan->config.trainer.steps)
    return plm_error_set(
        error, PLM_USAGE, "--profile: step %llu is beyond the last step, %llu (trainer.steps)",
        (unsigned long long)steps.last, (unsigned long long)plan->config.trainer.steps);
  if (!plan->chosen[PLM_KIND_TRAINER])
    return plm_error_set(error, PLM_USAGE,
                         "--profile needs the trainer, which `up` does not "
                         "start here");
  snprintf(plan->profile, sizeof plan->profile, "trainer.profile.steps=%llu-%llu",
           (unsigned long long)steps.first, (unsigned long long)steps.last);
  plan->trainer_options[0] = "--set";
  plan->trainer_options[1] = plan->profile;
  return PLM_OK;
}

static plm_status read_plan(const struct plm_command_context *context, struct plan *plan,
                            struct plm_error *error)
{
  unsigned packers;
  const char *scale = plm_arguments_get(context->arguments, "scale");
  PLM_TRY(read_operands(context->arguments, plan, error));
  if (scale != NULL) PLM_TRY(plm_command_parse_scale(scale, &packers, error));
  PLM_TRY(read_launch(context->arguments, plan, error));
  PLM_TRY(read_apart(context->arguments, plan, error));
  PLM_TRY(plm_arguments_load_config(context->arguments, plan->file, true, &plan->config, error));
  if (scale != NULL) plan->config.packer_instances = packers;
  read_resume(context->arguments, plan);
  char fault[PLM_CONFIG_FAULT_SIZE];
  const char *key = plm_config_schedule_fault(&plan->config, fault);
  if (key != NULL && plan->chosen[PLM_KIND_TRAINER]) plm_warning("%s: %s", key, fault);
  plm_status status = read_profile(context->arguments, plan, error);
  if (status == PLM_OK) status = plm_run_corpora_read(&plan->config, plan->fingerprint, error);
  if (status == PLM_OK && plan->chosen[PLM_KIND_PACKER])
    status = plm_run_corpora_local(&plan->config, error);
  if (status == PLM_OK && (plan->chosen[PLM_KIND_TRAINER] || plan->chosen[PLM_KIND_EVALUATOR]))
    status = plm_run_labels_check(&plan->config, error);
  if (status == PLM_OK && plan->chosen[PLM_KIND_TRAINER] && plan->config.trainer.ranks > 1 &&
      plan->launch[PLM_KIND_TRAINER] == NULL)
    status = plm_gang_check(&plan->config, error);
  if (status != PLM_OK) plm_config_deinit(&plan->config);
  return status;
}

/* ---- running ------------------------------------------------------------------------------- */

/* A complete run only evaluates the checkpoints that have no metrics yet. No trainer starts that
 * would replace the pulse of one that was killed at its end. */
static void only_evaluate(struct plan *plan, const struct plm_prepared *prepared)
{
  plan->chosen[PLM_KIND_TRAINER] = false;
  plm_run_pulse_remove(plan->config.run, "trainer");
  plm_info("the run is complete at step %llu; evaluating checkpoints without metrics",
           (unsigned long long)prepared->step);
}

/* The stages of a supervisor that was killed may still be publishing; they hold these locks. */
static void wait_for_earlier_stages(const struct plm_config *config,
                                    const bool chosen[PLM_KIND_COUNT])
{
  static const enum plm_stage_index writers[] = {PLM_KIND_TRAINER, PLM_KIND_EVALUATOR};
  const int64_t until_ms =
      plm_clock_ms() + 1000 * (int64_t)(config->trainer.stop_timeout_s + EARLIER_EXTRA_S);
  for (size_t i = 0; i < sizeof writers / sizeof writers[0]; i++) {
    const char *name = plm_stage_kinds[writers[i]].name;
    struct plm_lock_holder holder;
    bool said = false;
    while (chosen[writers[i]] && plm_lock_holder(config->run, name, &holder, NULL) == PLM_OK &&
           plm_clock_ms() < until_ms) {
      if (!said)
        plm_info("waiting for the %s of an earlier `up` to end (process %d)", name, holder.pid);
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
  struct plm_prepared prepared = {0};
  PLM_TRY(plm_directory_make(plan->config.run, error));
  PLM_TRY(plm_lock_acquire(plan->config.run, plan->apart ? "supervisor-evaluator" : "supervisor",
                           &lock, error));
  wait_for_earlier_stages(&plan->config, plan->chosen);
  plm_status status = plan->apart
                          ? plm_run_prepare_apart(&plan->config, error)
                          : plm_run_prepare(&plan->config, plan->mode, plan->resume_path,
                                            plan->chosen[PLM_KIND_TRAINER], &prepared, error);
  if (status == PLM_OK && prepared.complete && !plan->chosen[PLM_KIND_EVALUATOR]) {
    plm_info("the run is complete at step %llu", (unsigned long long)prepared.step);
    plm_lock_release(lock);
    *exit_code = 0;
    return PLM_OK;
  }
  if (status == PLM_OK && prepared.complete) only_evaluate(plan, &prepared);
  if (status == PLM_OK) status = check_ports(plan, error);
  if (status == PLM_OK && detached) status = plm_behind_log(plan->config.run, error);
  struct plm_supervisor_options supervisor = {
      .config = &plan->config,
      .run = context->run,
      .sets = plm_arguments_has(context->arguments, "set"),
      .lock = lock,
      .program_directory = context->program_directory,
      .fingerprint = plan->fingerprint,
      .trainer_options = plan->trainer_options,
      .apart = plan->apart,
      .detached = detached,
      .color = context->color,
      .quiet = context->quiet,
      .started_fd = started_fd,
  };
  memcpy(supervisor.chosen, plan->chosen, sizeof supervisor.chosen);
  memcpy(supervisor.launch, plan->launch, sizeof supervisor.launch);
  if (status == PLM_OK) status = plm_supervise(&supervisor, exit_code, error);
  plm_lock_release(lock);
  return status;
}

/* ---- in the background --------------------------------------------------------------------- */

struct behind {
  const struct plm_command_context *context;
  struct plan *plan;
};

static plm_status supervise_behind(void *context, int started_fd, int *exit_code,
                                   struct plm_error *error)
{
  const struct behind *behind = context;
  return supervise(behind->context, behind->plan, true, started_fd, exit_code, error);
}

static plm_status run_behind(const struct plm_command_context *context, struct plan *plan,
                             struct plm_error *error)
{
  struct behind behind = {context, plan};
  int pid;
  PLM_TRY(plm_behind_start(supervise_behind, &behind, &pid, error));
  if (plm_arguments_has(context->arguments, "wait"))
    PLM_TRY(plm_behind_wait_ready(plan->config.run, pid, error));
  if (!context->quiet) plm_info("running in %s (process %d)", plan->config.run, pid);
  return PLM_OK;
}

/* --find-lr starts no run, so it goes with no option that says how to start one. */
static plm_status find_rates(const struct plm_command_context *context, struct plm_error *error)
{
  static const char *const others[] = {"detach", "wait",    "scale",  "resume",
                                       "apart",  "dry-run", "profile"};
  const struct plm_arguments *arguments = context->arguments;
  struct plan plan = {0};
  struct plm_find_lr find;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (plm_arguments_has(arguments, others[i]))
      return plm_error_set(error, PLM_USAGE,
                           "--find-lr starts no run, so --%s has no meaning; "
                           "leave it out",
                           others[i]);
  PLM_TRY(plm_find_lr_options(arguments, &find, error));
  PLM_TRY(read_plan(context, &plan, error));
  plm_status status = PLM_OK;
  for (int kind = 0; kind < PLM_KIND_COUNT && status == PLM_OK; kind++)
    if (!plan.chosen[kind])
      status = plm_error_set(error, PLM_USAGE,
                             "--find-lr takes no stages; name only the "
                             "configuration");
  if (status == PLM_OK) status = plm_find_lr(context, &find, &plan.config, error);
  plm_config_deinit(&plan.config);
  return status;
}

static plm_status up(const struct plm_command_context *context, struct plm_error *error)
{
  struct plan plan = {0};
  int exit_code = 0;
  plm_status status;
  if (plm_arguments_has(context->arguments, "find-lr")) return find_rates(context, error);
  if (plm_arguments_has(context->arguments, "lr-range") ||
      plm_arguments_has(context->arguments, "lr-steps"))
    return plm_error_set(error, PLM_USAGE, "--lr-range and --lr-steps need --find-lr");
  PLM_TRY(read_plan(context, &plan, error));
  if (plm_arguments_has(context->arguments, "dry-run")) {
    struct plm_prepared prepared;
    status = plm_run_inspect(&plan.config, plan.mode, plan.resume_path,
                             plan.chosen[PLM_KIND_TRAINER], &prepared, error);
    if (status == PLM_OK) {
      const struct plm_dry_run run = {&plan.config,     context->program_directory,
                                      plan.fingerprint, plan.chosen,
                                      &prepared,        plan.trainer_options};
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
        "130 after Ctrl-C, 143 after SIGTERM or `down`; after a failure 2, 4, 5, 6 or 7 "
        "if the failed stage exited with it, otherwise 1. 5: a value was not finite, or an error "
        "came twice at the same step. 6: a cause that may pass did not pass within "
        "supervisor.wait_s. 7: the cause stays, for example because a program is missing.\n\n"
        "--find-lr prints the smoothed loss over the learning rate and two suggestions: where the "
        "loss falls fastest, and a tenth of the rate with the least loss. It stops early when the "
        "loss exceeds four times its least value. --json prints {lr_hidden, smoothed_loss, "
        "diverged, steepest_descent, minimum_tenth}.",
    .options = options,
    .run = up,
};
