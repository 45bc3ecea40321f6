/* `plm-pipeline push`: uploads a checkpoint or an exported folder to the Hugging Face Hub. The work
 * is done by `hf upload`, which knows the Hub, logins and retries; this finds `hf` and gives it its
 * arguments. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/base/process/program_run.h"
#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/base/text/text.h"
#include "common/huggingface/model_folder.h"
#include "common/run/stop.h"
#include "stages/commands/command.h"
#include "stages/commands/export_options.h"

static const struct plm_option options[] = {
    PLM_EXPORT_OPTIONS,
    {.name = "folder",
     .argument = "DIR",
     .help = "upload this exported folder instead of a checkpoint"},
    {.name = "private", .help = "make the repository private, if it does not exist yet"},
    {.name = "revision", .argument = "NAME", .help = "the branch to upload to (default: main)"},
    {.name = "message", .argument = "TEXT", .help = "message of the commit"},
    {.name = "create-pr", .help = "open a pull request instead of a commit"},
    {.name = "dry-run", .help = "print the commands; upload nothing"},
    {0},
};

enum { ARGUMENTS_MAX = 16, POLL_MS = 20 };

/* `hf upload REPO FOLDER . …`. It holds no secret: hf has its own login, or reads HF_TOKEN. */
static size_t fill_command(const struct plm_arguments *arguments, const char *repository,
                           const char *folder, const char *message,
                           const char *command[ARGUMENTS_MAX])
{
  size_t used = 0;
  const char *revision = plm_arguments_get(arguments, "revision");
  command[used++] = "hf";
  command[used++] = "upload";
  command[used++] = repository;
  command[used++] = folder;
  command[used++] = ".";
  command[used++] = "--repo-type";
  command[used++] = "model";
  if (plm_arguments_has(arguments, "private")) command[used++] = "--private";
  if (revision != NULL) command[used++] = "--revision", command[used++] = revision;
  command[used++] = "--commit-message";
  command[used++] = message;
  if (plm_arguments_has(arguments, "create-pr")) command[used++] = "--create-pr";
  command[used] = NULL;
  return used;
}

static void push_print_words(const char *const *words)
{
  struct plm_text text = {0};
  for (size_t i = 0; words[i] != NULL; i++) {
    if (i > 0) plm_text_puts(&text, " ");
    plm_text_put_word(&text, words[i]);
  }
  plm_print(stdout, "%s\n", text.data);
  plm_text_deinit(&text);
}

/* NAME or OWNER/NAME, in the letters the Hub allows. */
static plm_status check_repository(const char *repository, struct plm_error *error)
{
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_.";
  const char *slash = strchr(repository, '/');
  const char *name = slash == NULL ? repository : slash + 1;
  const size_t owner = slash == NULL ? 1 : strspn(repository, letters);
  if (name[0] != '\0' && name[strspn(name, letters)] == '\0' && strlen(name) <= 96 &&
      (slash == NULL || repository + owner == slash) && owner > 0 &&
      strchr("-.", repository[0]) == NULL && strchr("-.", name[0]) == NULL &&
      strstr(repository, "..") == NULL && strstr(repository, "--") == NULL)
    return PLM_OK;
  plm_error_set(error, PLM_USAGE, "\"%.200s\" is not a name that the Hub allows", repository);
  return plm_error_hint(error, "it is OWNER/NAME, made of letters, digits, - _ and .");
}

/* ---- uploading ----------------------------------------------------------------------------- */

static void push_become(const char *const *command, bool json)
{
  for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL);
  if (json) dup2(STDERR_FILENO, STDOUT_FILENO); /* stdout is kept for the one line at the end */
  execvp(command[0], (char *const *)command);
  fprintf(stderr, "plm-pipeline: cannot run %s: %s\n", command[0], strerror(errno));
  _exit(127);
}

/* Waits for hf, and passes a stop signal on to it. It polls, because a signal that came just before
 * a blocking waitpid would go unnoticed until hf ended. */
static plm_status push_wait_for(pid_t child, struct plm_error *error)
{
  int state = 0;
  bool passed_on = false;
  for (pid_t ended = 0; ended == 0;) {
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    if (plm_stop_requested != 0 && !passed_on) {
      kill(child, SIGTERM);
      passed_on = true;
    }
    ended = waitpid(child, &state, WNOHANG);
    if (ended < 0) return plm_error_errno(error, "cannot wait for hf");
    if (ended == 0) nanosleep(&pause, NULL); /* a signal ends it early */
  }
  if (WIFEXITED(state) && WEXITSTATUS(state) == 0) return PLM_OK;
  PLM_TRY(plm_stop_check(" during the upload", error));
  plm_error_set(error, PLM_FAILURE, "`hf upload` %s %d",
                WIFSIGNALED(state) ? "was ended by signal" : "ended with",
                WIFSIGNALED(state) ? WTERMSIG(state) : WEXITSTATUS(state));
  return plm_error_hint(
      error, "see the message of hf above; to log in, use `hf auth login` or set HF_TOKEN");
}

static plm_status push_upload(const char *const *command, bool json, struct plm_error *error)
{
  fflush(stdout);
  const pid_t child = fork();
  if (child < 0) return plm_error_errno(error, "cannot start hf");
  if (child == 0) push_become(command, json);
  return push_wait_for(child, error);
}

static plm_status push_report(const struct plm_command_context *context, const char *repository,
                              struct plm_error *error)
{
  if (!context->json) return PLM_OK; /* hf has reported it */
  cJSON *json = cJSON_CreateObject();
  cJSON_AddStringToObject(json, "repository", repository);
  cJSON_AddBoolToObject(json, "uploaded", true);
  return plm_json_print(json, error);
}

/* ---- from a checkpoint, from a folder ------------------------------------------------------ */

/* Exports into a temporary folder, uploads that, and removes it. */
static plm_status push_checkpoint(const struct plm_command_context *context, const char *repository,
                                  const char *input, struct plm_error *error)
{
  const char *command[ARGUMENTS_MAX];
  char folder[PLM_PATH_SIZE], output[PLM_PATH_SIZE], message[128];
  struct plm_export_request request = plm_export_request_of(context->arguments);
  struct plm_export_result result;
  const char *given = plm_arguments_get(context->arguments, "message");
  PLM_TRY(plm_path_join(folder, plm_temporary_folder(), "plm-push-XXXXXX", error));
  if (mkdtemp(folder) == NULL) return plm_error_errno(error, "cannot make %s", folder);
  plm_status status = plm_path_join(output, folder, "model", error);
  request.input = input;
  request.output = output;
  request.name = repository;
  if (status == PLM_OK) status = plm_export(&request, &result, error);
  if (status == PLM_OK) {
    snprintf(message, sizeof message, "plm-pipeline: step %llu, %s weights",
             (unsigned long long)result.step, result.weights);
    fill_command(context->arguments, repository, output, given != NULL ? given : message, command);
    status = push_upload(command, context->json, error);
  }
  const plm_status removed = plm_path_remove(folder, status == PLM_OK ? error : NULL);
  return status == PLM_OK ? removed : status;
}

/* *folder may be changed to a path in buffer, because hf would take a name that begins with a dash
 * for an option. */
static plm_status push_check_folder(const struct plm_command_context *context, const char **folder,
                                    char buffer[PLM_PATH_SIZE], struct plm_error *error)
{
  static const char *const of_checkpoints[] = {"checkpoint", "step", "weights", "dtype", "license"};
  struct plm_model_folder found;
  for (size_t i = 0; i < sizeof of_checkpoints / sizeof *of_checkpoints; i++)
    if (plm_arguments_has(context->arguments, of_checkpoints[i]))
      return plm_error_set(error, PLM_USAGE,
                           "--folder is uploaded unchanged and cannot be combined with --%s",
                           of_checkpoints[i]);
  if ((*folder)[0] == '-') {
    PLM_TRY(plm_path_join(buffer, ".", *folder, error));
    *folder = buffer;
  }
  PLM_TRY(plm_model_folder_check(*folder, &found, NULL, error));
  if (!found.checkpoint) return PLM_OK;
  plm_error_set(error, PLM_USAGE, "%s is a checkpoint, which includes the optimizer's state",
                *folder);
  return plm_error_hint(error, "use --checkpoint DIR, which exports it first");
}

/* Prints commands that can also be run elsewhere, so they use no temporary folder. What the first
 * would refuse is refused here. */
static plm_status print_commands(const struct plm_command_context *context, const char *repository,
                                 const char *input, const char *folder, struct plm_error *error)
{
  const struct plm_arguments *arguments = context->arguments;
  const char *given = plm_arguments_get(arguments, "message");
  const char *name = strrchr(repository, '/') != NULL ? strrchr(repository, '/') + 1 : repository;
  const char *command[ARGUMENTS_MAX];
  if (folder == NULL) {
    struct plm_export_request request = plm_export_request_of(arguments);
    request.input = input;
    PLM_TRY(plm_export_check(&request, error));
    static const char *const passed[] = {"weights", "dtype", "license"};
    static const char *const dashed[] = {"--weights", "--dtype", "--license"};
    size_t used = 0;
    command[used++] = "plm-pipeline";
    command[used++] = "export";
    command[used++] = "--checkpoint", command[used++] = input;
    command[used++] = "--output", command[used++] = name;
    command[used++] = "--name", command[used++] = repository;
    if (request.merge) command[used++] = "--merge";
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
      const char *value = plm_arguments_get(arguments, passed[i]);
      if (value != NULL) command[used++] = dashed[i], command[used++] = value;
    }
    command[used] = NULL;
    push_print_words(command);
  }
  fill_command(arguments, repository, folder != NULL ? folder : name,
               given != NULL ? given : "plm-pipeline", command);
  push_print_words(command);
  return PLM_OK;
}

static plm_status push_run(const struct plm_command_context *context, struct plm_error *error)
{
  const struct plm_arguments *arguments = context->arguments;
  const char *folder = plm_arguments_get(arguments, "folder");
  const char *command[ARGUMENTS_MAX];
  char input[PLM_PATH_SIZE], hf[PLM_PATH_SIZE];
  if (arguments->positional_count != 1)
    return plm_error_set(error, PLM_USAGE, "push needs the name of one repository: OWNER/NAME");
  const char *repository = arguments->positionals[0];
  const char *given = plm_arguments_get(arguments, "message");
  PLM_TRY(check_repository(repository, error));
  if (folder != NULL)
    PLM_TRY(push_check_folder(context, &folder, input, error));
  else
    PLM_TRY(plm_export_folder(context, input, error));
  if (plm_arguments_has(arguments, "dry-run"))
    return print_commands(context, repository, input, folder, error);
  if (!plm_program_find("hf", hf)) {
    PLM_TRY(print_commands(context, repository, input, folder, error));
    plm_error_set(error, PLM_NOT_FOUND, "nothing was uploaded: the command `hf` is not on PATH");
    return plm_error_hint(error, "install it with `pip install -U huggingface_hub`, or run the "
                                 "commands above where it is installed");
  }
  plm_stop_signals_install();
  if (folder == NULL) {
    PLM_TRY(push_checkpoint(context, repository, input, error));
  } else {
    fill_command(arguments, repository, folder, given != NULL ? given : "plm-pipeline", command);
    PLM_TRY(push_upload(command, context->json, error));
  }
  return push_report(context, repository, error);
}

const struct plm_command plm_command_push = {
    .name = "push",
    .operands = "REPO [--checkpoint DIR | --folder DIR]",
    .summary = "upload a checkpoint to the Hugging Face Hub with `hf upload`",
    .details =
        "A checkpoint is first exported into a temporary folder (see `export`); --folder uploads "
        "an "
        "existing export. To log in, use `hf auth login` or set HF_TOKEN. With --dry-run, or if "
        "the command `hf` is not installed, the commands are printed and nothing is uploaded.",
    .options = options,
    .run = push_run,
};
