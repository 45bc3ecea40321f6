/* The main function of the stages' programs. */
#include "common/cli/program.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/descriptors.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/run/run.h"
#include "common/run/stop.h"

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

void plm_program_begin(void)
{
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; descriptor++) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    /* The lowest free descriptor is this one. Without /dev/null, nothing can be said. */
    const int mode = descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (open("/dev/null", mode) != descriptor) _exit(plm_status_exit_code(PLM_FAILURE));
  }
  signal(SIGXFSZ, SIG_IGN);
  plm_descriptors_raise();
}

int plm_program_main(const struct plm_program *program, int argc, char **argv)
{
  struct plm_arguments arguments = {0};
  struct plm_error error = {0};
  plm_program_begin();
  plm_stop_signals_install();
  plm_log_init(program->name, PLM_LOG_INFO);
  plm_status status = plm_arguments_parse(argc, argv, program->options, &arguments, &error);
  if (status == PLM_OK) status = run_program(program, &arguments, &error);
  plm_arguments_deinit(&arguments);
  if (fflush(stdout) != 0 && status == PLM_OK)
    status = plm_error_errno(&error, "cannot write standard output");
  if (status != PLM_OK && error.what[0] != '\0') plm_error_print(program->name, &error);
  return plm_status_exit_code(status);
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
