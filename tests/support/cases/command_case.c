/* Calling commands as stages/pipeline_main.c does. */
#include "tests/support/cases/command_case.h"

#include <poll.h>
#include <pty.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "stages/commands/command.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

enum { WORDS = 256, LIMIT_MS = 60000 };

const char *command_out = "", *command_err = "", *command_programs = "/nowhere";

/* Ends as the program would, which prints the error. */
static int call(const char *const *words)
{
  const struct plm_command *command = plm_command_find(words[0]);
  char *argv[WORDS];
  int argc = 0;
  struct plm_arguments arguments;
  struct plm_error error = {0};
  PLM_ASSERT(command != NULL);
  for (; words[argc] != NULL; argc++) {
    PLM_ASSERT(argc < WORDS);
    argv[argc] = (char *)words[argc];
  }
  plm_status status = plm_arguments_parse(argc, argv, command->options, &arguments, &error);
  if (status == PLM_OK) {
    status = plm_command_run(command, &arguments, command_programs, &error);
    plm_arguments_deinit(&arguments);
  }
  if (status != PLM_OK && error.what[0] != '\0') plm_error_print("plm-pipeline", &error);
  return plm_status_exit_code(status);
}

int command_case(const char *const *words)
{
  captured_begin(STDOUT_FILENO);
  captured_begin(STDERR_FILENO);
  const int code = call(words);
  command_err = captured_end();
  command_out = captured_end();
  return code;
}

void command_case_refuses(int code, const char *what, const char *const *words)
{
  char said[1000], expected[1000];
  const int ended = command_case(words);
  snprintf(said, sizeof said, "%.*s", (int)strcspn(command_err, "\n"), command_err);
  snprintf(expected, sizeof expected, "plm-pipeline: %s", what);
  assert_string_equal(said, expected);
  assert_string_equal(command_out, "");
  assert_int_equal(ended, code);
}

void command_case_program(const char *name, const char *script)
{
  static char programs[PLM_PATH_SIZE];
  char path[PLM_PATH_SIZE];
  if (programs[0] == '\0') scratch_run(programs);
  PLM_ASSERT(plm_path_join(path, programs, name, NULL) == PLM_OK);
  scratch_write(path, script, strlen(script));
  PLM_ASSERT(chmod(path, 0755) == 0);
  command_programs = programs;
}

const char *command_case_prints(const char *line)
{
  static char script[2000];
  const int size =
      snprintf(script, sizeof script, "#!/bin/sh\ncat <<'the end'\n%s\nthe end\n", line);
  PLM_ASSERT(size >= 0 && (size_t)size < sizeof script);
  return script;
}

bool command_case_says(const char *text)
{
  struct stat info;
  for (int waited = 0; waited < LIMIT_MS; waited += 10) {
    /* before the call it may be a pipe, from which reading would wait */
    if (fstat(STDERR_FILENO, &info) == 0 && S_ISREG(info.st_mode) &&
        scratch_appears("/proc/self/fd/2", text, 0))
      return true;
    usleep(10000);
  }
  return false;
}

/* What arrives at the other side of a terminal until a mark, which is written last. */
static void read_terminal(int master, char *text, size_t room)
{
  static const char mark[] = "\001the end";
  size_t used = 0;
  char *end = NULL;
  fputs(mark, stdout);
  fflush(stdout);
  while (end == NULL) {
    struct pollfd item = {.fd = master, .events = POLLIN};
    PLM_ASSERT(poll(&item, 1, LIMIT_MS) == 1 && used + 1 < room);
    const ssize_t size = read(master, text + used, room - 1 - used);
    PLM_ASSERT(size > 0);
    used += (size_t)size;
    text[used] = '\0';
    end = strstr(text, mark);
  }
  *end = '\0';
}

int command_case_on_terminal(unsigned short columns, const char *const *words)
{
  static char text[1 << 16];
  const struct winsize window = {.ws_row = 24, .ws_col = columns};
  struct termios raw;
  int master, slave;
  PLM_ASSERT(openpty(&master, &slave, NULL, NULL, &window) == 0);
  tcgetattr(slave, &raw);
  cfmakeraw(&raw);
  tcsetattr(slave, TCSANOW, &raw);
  fflush(stdout);
  const int standard_output = dup(STDOUT_FILENO);
  PLM_ASSERT(standard_output >= 0 && dup2(slave, STDOUT_FILENO) == STDOUT_FILENO);
  close(slave);
  captured_begin(STDERR_FILENO);
  const int code = call(words);
  command_err = captured_end();
  read_terminal(master, text, sizeof text);
  PLM_ASSERT(dup2(standard_output, STDOUT_FILENO) == STDOUT_FILENO);
  close(standard_output);
  close(master);
  command_out = text;
  return code;
}
