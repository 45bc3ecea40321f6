/* The main function of the stages' programs. */
#include "common/cli/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/descriptors.h"
#include "common/base/files/file.h"
#include "common/base/files/map_guard.h"
#include "common/base/log/log.h"
#include "common/cli/completion.h"
#include "common/cli/roff.h"
#include "common/run/run.h"
#include "common/run/stop.h"

/* The lines of the usage before the empty line are the synopsis, the others the description. */
static void put_usage(struct plm_text *page, const struct plm_program *program)
{
  const char *line = program->usage, *description = strstr(program->usage, "\n\n");
  plm_roff_section(page, "SYNOPSIS");
  while (line != NULL && line < description) {
    char command[256];
    const size_t name = strlen(program->name), size = strcspn(line, "\n");
    snprintf(command, sizeof command, "%.*s", (int)size, line);
    const char *begin = strstr(command, program->name);
    if (begin != NULL) plm_roff_synopsis(page, begin, name);
    line += size + 1;
  }
  plm_roff_section(page, "DESCRIPTION");
  plm_roff_paragraphs(page, description != NULL ? description : program->usage);
}

static void print_manual_page(const struct plm_program *program)
{
  static const char *const pages[] = {"plm-packer", "plm-trainer", "plm-evaluator"};
  struct plm_text page = {0};
  plm_roff_begin(&page, program->name, 1, program->summary);
  put_usage(&page, program);
  plm_roff_section(&page, "OPTIONS");
  plm_roff_options(&page, program->options);
  plm_roff_options(&page, plm_common_options);
  plm_roff_section(&page, "EXIT STATUS");
  plm_roff_paragraphs(&page, program->stage ? PLM_STAGE_EXIT_CODES : PLM_EXIT_CODES);
  plm_roff_section(&page, "SEE ALSO");
  plm_roff_refer(&page, "plm-pipeline", 1, true);
  for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++)
    if (strcmp(pages[i], program->name) != 0) plm_roff_refer(&page, pages[i], 1, false);
  plm_roff_refer(&page, "pipeline.yaml", 5, false);
  plm_text_puts(&page, "\n");
  fputs(page.data, stdout);
  plm_text_deinit(&page);
}

enum { TASKS = 8, OPERANDS_SIZE = 160, SUMMARY_SIZE = 200 };

/* Reads "usage: plm-evaluator embed IN... [options]\n\nWrites embeddings." for completion. */
static void read_usage(const struct plm_program *task, char operands[OPERANDS_SIZE],
                       char summary[SUMMARY_SIZE])
{
  const char *begin = strstr(task->usage, task->name), *text = strstr(task->usage, "\n\n");
  *operands = *summary = '\0';
  if (begin != NULL) {
    begin += strlen(task->name);
    begin += *begin == ' ';
    snprintf(operands, OPERANDS_SIZE, "%.*s", (int)strcspn(begin, "\n"), begin);
    char *options = strstr(operands, "[options]");
    if (options != NULL) *options = '\0';
  }
  if (text == NULL) return;
  snprintf(summary, SUMMARY_SIZE, "%.*s", (int)strcspn(text + 2, "."), text + 2);
  for (char *c = summary; *c != '\0'; c++)
    if (*c == '\n') *c = ' ';
}

static plm_status print_completion(const struct plm_program *program, const char *shell,
                                   struct plm_error *error)
{
  struct plm_completed_command commands[TASKS];
  char operands[TASKS][OPERANDS_SIZE], summaries[TASKS][SUMMARY_SIZE];
  size_t count = 0;
  for (; program->tasks != NULL && program->tasks[count] != NULL && count < TASKS; count++) {
    const struct plm_program *task = program->tasks[count];
    read_usage(task, operands[count], summaries[count]);
    commands[count] = (struct plm_completed_command){.name = strrchr(task->name, ' ') + 1,
                                                     .operands = operands[count],
                                                     .summary = summaries[count],
                                                     .options = task->options};
  }
  const struct plm_completed_program completed = {.name = program->name,
                                                  .options = program->options,
                                                  .commands = commands,
                                                  .command_count = count};
  return plm_completion_print(&completed, shell, error);
}

static plm_status run_program(const struct plm_program *program,
                              const struct plm_arguments *arguments, struct plm_error *error)
{
  if (plm_arguments_has(arguments, "help")) {
    plm_help_text(program->usage, 0);
    printf("\noptions:\n");
    plm_options_help(program->options);
    plm_options_help(plm_common_options);
    if (program->more != NULL) {
      putchar('\n');
      plm_help_text(program->more, 0);
    }
    return PLM_OK;
  }
  if (plm_arguments_has(arguments, "version")) {
    printf("%s %s\n", program->name, PLM_VERSION);
    return PLM_OK;
  }
  if (arguments->positional_count > program->operands)
    return plm_error_set(error, PLM_USAGE, "unexpected argument \"%.80s\"",
                         arguments->positionals[program->operands]);
  plm_arguments_log(arguments, program->name);
  return program->run(arguments, error);
}

static void end_by_signal(int number)
{
  _exit(128 + number);
}

static void end_by_signals(void)
{
  static const int numbers[] = {SIGHUP, SIGINT, SIGTERM, SIGUSR1};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    struct sigaction action;
    if (sigaction(numbers[i], NULL, &action) == 0 && action.sa_handler == SIG_DFL)
      signal(numbers[i], end_by_signal);
  }
}

void plm_program_begin(void)
{
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; descriptor++) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    /* The lowest free descriptor is this one. Without /dev/null, nothing can be said. */
    const int mode = descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (open("/dev/null", mode) != descriptor) _exit(plm_status_exit_code(PLM_FAILURE));
  }
  signal(SIGXFSZ, SIG_IGN); /* beyond a limit on file sizes, a write fails instead of killing us */
  plm_descriptors_raise();
  if (getpid() == 1) end_by_signals();
}

static bool is_output_lost(void)
{
  struct pollfd out = {.fd = STDOUT_FILENO};
  return ferror(stdout) != 0 && poll(&out, 1, 0) != 1; /* an event: nobody reads it any more */
}

plm_status plm_program_flush_output(plm_status status, struct plm_error *error)
{
  const bool lost = is_output_lost(), flushed = fflush(stdout) == 0;
  if (status != PLM_OK) return status;
  if (!flushed) return plm_error_errno(error, "cannot write standard output");
  if (!lost) return PLM_OK;
  return plm_error_set(error, PLM_IO, "a part of standard output could not be written");
}

int plm_program_main(const struct plm_program *program, int argc, char **argv)
{
  struct plm_arguments arguments = {0};
  struct plm_error error = {0};
  plm_program_begin();
  if (program->stage) plm_guard_exit_code = plm_status_stage_code(PLM_IO);
  plm_stop_signals_install();
  plm_log_init(program->name, PLM_LOG_INFO);
  plm_status status = PLM_OK;
  if (program->summary != NULL && argc == 2 && strcmp(argv[1], "--manual-page") == 0) {
    print_manual_page(program);
  } else if (program->summary != NULL && argc == 3 && strcmp(argv[1], "--completion") == 0) {
    status = print_completion(program, argv[2], &error);
  } else {
    status = plm_arguments_parse(argc, argv, program->options, &arguments, &error);
    if (status == PLM_OK) status = run_program(program, &arguments, &error);
  }
  plm_arguments_deinit(&arguments);
  status = plm_program_flush_output(status, &error);
  if (status != PLM_OK && error.what[0] != '\0') plm_error_print(program->name, &error);
  return program->stage ? plm_status_stage_code(status) : plm_status_exit_code(status);
}

plm_status plm_program_config(const struct plm_arguments *arguments, struct plm_config *config,
                              struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  const char *run = plm_arguments_get(arguments, "run");
  const bool named = plm_arguments_has(arguments, "config") || plm_environment_config() != NULL;
  const bool of_run = !named && run != NULL &&
                      plm_path_join(path, run, PLM_RUN_CONFIG, NULL) == PLM_OK &&
                      plm_file_exists(path);
  return plm_arguments_load_config(arguments, of_run ? path : NULL, false, config, error);
}
