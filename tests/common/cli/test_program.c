/* common/cli/program: what every stage's program answers, its manual page and its exit codes. */
#include "tests/support/harness/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/base/text/text.h"
#include "common/cli/program.h"
#include "tests/support/harness/captured.h"

static const struct plm_option options[] = {
    {'n', "number", "N", "a number"}, {0, "fail", NULL, "fail"}, {0, NULL, NULL, NULL}};

static plm_status run(const struct plm_arguments *arguments, struct plm_error *error)
{
  printf("ran with %zu operands\n", arguments->positional_count);
  plm_info("a message");
  if (plm_arguments_has(arguments, "number"))
    return plm_error_set(error, PLM_FAILURE, "%s", plm_arguments_get(arguments, "number"));
  if (plm_arguments_has(arguments, "fail"))
    return plm_error_set(error, PLM_NOT_RUNNING, "it failed");
  return PLM_OK;
}

static const struct plm_program embed = {
    .name = "plm-trainer embed",
    .summary = "writes embeddings",
    .usage =
        "usage: plm-trainer embed IN... [options]\n\nWrites embeddings\nof sequences. More of it.",
    .options = options};
static const struct plm_program other = {
    .name = "plm-trainer other", .usage = "usage: plm-trainer other [options]", .options = options};
static const struct plm_program *const tasks[] = {&embed, &other, NULL};
static const struct plm_program program = {
    .name = "plm-trainer",
    .summary = "trains it",
    .usage = "usage: plm-trainer [IN] [options]\n       plm-trainer --fail\n\nTrains a model.",
    .options = options,
    .more = "The end.",
    .stage = true,
    .operands = 1,
    .tasks = tasks,
    .run = run,
};

static int code;

/* What the program prints to the descriptor; `code` is its exit code. */
static const char *printed(const struct plm_program *of, int descriptor, const char *first,
                           const char *second)
{
  char *argv[] = {"program", (char *)first, (char *)second, NULL};
  const int argc = first == NULL ? 1 : second == NULL ? 2 : 3;
  captured_begin(descriptor);
  code = plm_program_main(of, argc, argv);
  return captured_end();
}

static const char common_help[] =
    "  -c, --config FILE         the configuration (default ./pipeline.yaml)\n"
    "      --run DIR             the run folder (default: the configuration's)\n"
    "      --set KEY=VALUE       change one key of the configuration; may be repeated\n"
    "      --json                print results as JSON\n"
    "  -q, --quiet               print no progress or information, only results, warnings and "
    "errors\n"
    "  -v, --verbose             print more messages\n"
    "      --color WHEN          auto, always or never (NO_COLOR is respected)\n"
    "  -h, --help                this help\n"
    "      --version             print the version\n";

static void help_names_all_options(void **state)
{
  (void)state;
  struct plm_text wanted = {0};
  plm_text_printf(&wanted, "%s%s\nThe end.\n",
                  "usage: plm-trainer [IN] [options]\n       plm-trainer --fail\n\nTrains a "
                  "model.\n\noptions:\n"
                  "  -n, --number N            a number\n"
                  "      --fail                fail\n",
                  common_help);
  setenv("COLUMNS", "200", 1);
  assert_string_equal(printed(&program, STDOUT_FILENO, "-h", NULL), wanted.data);
  assert_int_equal(code, 0);
  plm_text_clear(&wanted);
  plm_text_printf(&wanted, "%s%s",
                  "usage: plm-trainer other [options]\n\noptions:\n"
                  "  -n, --number N            a number\n"
                  "      --fail                fail\n",
                  common_help);
  assert_string_equal(printed(&other, STDOUT_FILENO, "--help", "--version"), wanted.data);
  assert_int_equal(code, 0);
  plm_text_deinit(&wanted);
}

static void it_runs_or_says_why_not(void **state)
{
  (void)state;
  assert_string_equal(printed(&program, STDOUT_FILENO, "--version", NULL),
                      "plm-trainer " PLM_VERSION "\n");
  assert_int_equal(code, 0);
  assert_string_equal(printed(&program, STDOUT_FILENO, NULL, NULL), "ran with 0 operands\n");
  assert_int_equal(code, 0);
  assert_string_equal(printed(&program, STDOUT_FILENO, "one", NULL), "ran with 1 operands\n");
  assert_int_equal(code, 0);
  assert_string_equal(printed(&program, STDERR_FILENO, "one", NULL), "plm-trainer: a message\n");
  assert_string_equal(printed(&program, STDERR_FILENO, "one", "-q"), "");
  assert_string_equal(printed(&program, STDERR_FILENO, "one", "two"),
                      "plm-trainer: unexpected argument \"two\"\n");
  assert_int_equal(code, 2);
  assert_string_equal(printed(&program, STDERR_FILENO, "-q", "--fail"), "plm-trainer: it failed\n");
  assert_int_equal(code, 3);
  assert_string_equal(printed(&program, STDERR_FILENO, "-q", "--number=7"), "plm-trainer: 7\n");
  assert_int_equal(code, 1);
  assert_string_equal(printed(&program, STDERR_FILENO, "-q", "--number="), ""); /* nothing to say */
  assert_int_equal(code, 1);
  assert_string_equal(printed(&program, STDERR_FILENO, "--numbe", "1"),
                      "plm-trainer: unknown option \"--numbe\"; did you mean \"--number\"?\n");
  assert_int_equal(code, 2);
}

static void the_manual_page_is_made_of_the_same_texts(void **state)
{
  (void)state;
  static const char common_options[] =
      ".TP\n\\fB\\-n\\fR, \\fB\\-\\-number\\fR \\fIN\\fR\na number\n"
      ".TP\n\\fB\\-\\-fail\\fR\nfail\n"
      ".TP\n\\fB\\-c\\fR, \\fB\\-\\-config\\fR \\fIFILE\\fR\nthe configuration (default "
      "./pipeline.yaml)\n"
      ".TP\n\\fB\\-\\-run\\fR \\fIDIR\\fR\nthe run folder (default: the configuration\\(aqs)\n"
      ".TP\n\\fB\\-\\-set\\fR \\fIKEY=VALUE\\fR\nchange one key of the configuration; may be "
      "repeated\n"
      ".TP\n\\fB\\-\\-json\\fR\nprint results as JSON\n"
      ".TP\n\\fB\\-q\\fR, \\fB\\-\\-quiet\\fR\nprint no progress or information, only results, "
      "warnings and errors\n"
      ".TP\n\\fB\\-v\\fR, \\fB\\-\\-verbose\\fR\nprint more messages\n"
      ".TP\n\\fB\\-\\-color\\fR \\fIWHEN\\fR\nauto, always or never (NO_COLOR is respected)\n"
      ".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nthis help\n"
      ".TP\n\\fB\\-\\-version\\fR\nprint the version\n";
  struct plm_text wanted = {0};
  plm_text_printf(&wanted, "%s%s%s",
                  ".\\\" Printed by `plm-pipeline manual`. Do not edit this page.\n"
                  ".TH \"PLM\\-TRAINER\" 1 \"\" \"plm\\-pipeline " PLM_VERSION
                  "\" \"plm\\-pipeline\"\n.SH NAME\nplm\\-trainer \\- trains it\n"
                  ".SH \"SYNOPSIS\"\n"
                  ".PP\n\\fBplm\\-trainer\\fR [IN] [options]\n"
                  ".PP\n\\fBplm\\-trainer\\fR \\-\\-fail\n"
                  ".SH \"DESCRIPTION\"\n.PP\nTrains a model.\n.SH \"OPTIONS\"\n",
                  common_options,
                  ".SH \"EXIT STATUS\"\n.PP\n" PLM_STAGE_EXIT_CODES "\n"
                  ".SH \"SEE ALSO\"\n\\fBplm\\-pipeline\\fR(1),\n\\fBplm\\-packer\\fR(1),\n"
                  "\\fBplm\\-evaluator\\fR(1),\n\\fBpipeline.yaml\\fR(5)\n");
  assert_string_equal(printed(&program, STDOUT_FILENO, "--manual-page", NULL), wanted.data);
  assert_int_equal(code, 0);
  plm_text_deinit(&wanted);
  static const struct plm_program brief = {
      .name = "plm-brief", .summary = "is brief", .usage = "usage: plm-brief", .options = options};
  assert_non_null(strstr(printed(&brief, STDOUT_FILENO, "--manual-page", NULL),
                         ".SH \"SYNOPSIS\"\n.SH \"DESCRIPTION\"\n.PP\nusage: plm\\-brief\n"));
  const char *page = printed(&embed, STDOUT_FILENO, "--manual-page", NULL);
  assert_non_null(strstr(page, ".SH \"EXIT STATUS\"\n.PP\n0 done, 1 failed, 2 wrong usage"));
  /* without a summary, or with another word, it is an option that does not exist */
  assert_string_equal(printed(&other, STDERR_FILENO, "--manual-page", NULL),
                      "plm-trainer other: unknown option \"--manual-page\"\n");
  assert_int_equal(code, 2);
  printed(&program, STDERR_FILENO, "--manual-page", "one");
  assert_int_equal(code, 2);
  printed(&other, STDERR_FILENO, "--completion", "bash");
  assert_int_equal(code, 2);
  printed(&program, STDERR_FILENO, "--completion", NULL);
  assert_int_equal(code, 2);
}

static void assert_says(const char *text, const char *words)
{
  if (strstr(text, words) == NULL) fail_msg("no \"%s\" in: %s", words, text);
}

static void completion_reads_the_usage_of_tasks(void **state)
{
  (void)state;
  const char *script = printed(&program, STDOUT_FILENO, "--completion", "fish");
  assert_int_equal(code, 0);
  assert_says(script, "complete -c plm-trainer -n '__plm_trainer_in \"\"' -f -a embed -d 'Writes "
                      "embeddings of sequences'\n");
  assert_says(script, "complete -c plm-trainer -n '__plm_trainer_in \"\"' -f -a other -d ''\n");
  assert_says(script, "complete -c plm-trainer -n '__plm_trainer_in other' -f\n");
  assert_says(script, "complete -c plm-trainer -n '__plm_trainer_in embed' -l fail -d 'fail'\n");
  assert_says(script, "complete -c plm-trainer -n '__plm_trainer_in \"\"' -l fail -d 'fail'\n");
  assert_null(strstr(script, "__plm_trainer_in embed' -f\n")); /* it reads files */
  script = printed(&embed, STDOUT_FILENO, "--completion", "fish");
  assert_says(script, "complete -c plm-trainer embed -f\n"); /* no tasks of its own */
  assert_string_equal(printed(&program, STDERR_FILENO, "--completion", "csh"),
                      "plm-trainer: \"csh\" is not bash, zsh or fish\n");
  assert_int_equal(code, 2);
}

/* Runs `begin` in a child in which the descriptors are closed; the child answers with its exit
 * code. */
static int in_a_child(int (*begin)(void))
{
  int status;
  fflush(stdout);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) _exit(begin());
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int closed_descriptors(void)
{
  close(STDIN_FILENO);
  close(STDOUT_FILENO);
  close(STDERR_FILENO);
  plm_program_begin();
  char byte;
  const bool input = read(STDIN_FILENO, &byte, 1) < 0 && errno == EBADF;
  const bool output = write(STDOUT_FILENO, "x", 1) < 0 && errno == EBADF;
  const bool errors = write(STDERR_FILENO, "x", 1) < 0 && errno == EBADF;
  const bool open = fcntl(STDIN_FILENO, F_GETFD) >= 0 && fcntl(STDOUT_FILENO, F_GETFD) >= 0 &&
                    fcntl(STDERR_FILENO, F_GETFD) >= 0;
  return input && output && errors && open ? 0 : 1;
}

static int open_descriptors(void)
{
  int ends[2];
  char byte = 0;
  if (pipe(ends) != 0 || dup2(ends[0], STDIN_FILENO) < 0 || dup2(ends[1], STDOUT_FILENO) < 0)
    return 2;
  plm_program_begin();
  return write(STDOUT_FILENO, "x", 1) == 1 && read(STDIN_FILENO, &byte, 1) == 1 && byte == 'x' ? 0
                                                                                               : 1;
}

static int limits(void)
{
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 2;
  limit.rlim_cur = 32;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 2;
  plm_program_begin();
  struct sigaction action;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || sigaction(SIGXFSZ, NULL, &action) != 0) return 2;
  return limit.rlim_cur == limit.rlim_max && action.sa_handler == SIG_IGN ? 0 : 1;
}

/* The main function begins so, too. */
static int begun(void)
{
  char *argv[] = {"program", "-q", NULL};
  struct sigaction action;
  close(STDIN_FILENO);
  if (plm_program_main(&program, 2, argv) != 0 || sigaction(SIGXFSZ, NULL, &action) != 0) return 2;
  return fcntl(STDIN_FILENO, F_GETFD) >= 0 && action.sa_handler == SIG_IGN ? 0 : 1;
}

static void a_program_begins_with_three_descriptors(void **state)
{
  (void)state;
  assert_int_equal(in_a_child(closed_descriptors), 0);
  assert_int_equal(in_a_child(open_descriptors), 0);
  assert_int_equal(in_a_child(limits), 0);
  assert_int_equal(in_a_child(begun), 0);
}

/* The program's exit code when its results cannot be written. */
static int full_output(void)
{
  char *argv[] = {"program", NULL};
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (full < 0 || dup2(full, STDOUT_FILENO) < 0) return 77;
  return plm_program_main(&program, 1, argv);
}

/* The same if each write fails at once, so that nothing is left to be written at the end. */
static int full_unbuffered(void)
{
  return setvbuf(stdout, NULL, _IONBF, 0) == 0 ? full_output() : 1;
}

/* Its exit code if nobody reads the results any more, from a pipe or a socket. */
static int left(const int ends[2])
{
  char *argv[] = {"program", NULL};
  if (dup2(ends[1], STDOUT_FILENO) < 0) return 1;
  close(ends[0]);
  close(ends[1]);
  signal(SIGPIPE, SIG_IGN);
  if (setvbuf(stdout, NULL, _IONBF, 0) != 0) return 1;
  return plm_program_main(&program, 1, argv);
}

static int left_pipe(void)
{
  int ends[2];
  return pipe2(ends, O_CLOEXEC) == 0 ? left(ends) : 1;
}

static int left_socket(void)
{
  int ends[2];
  return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0 ? left(ends) : 1;
}

static void results_that_were_lost_before_the_end_are_an_error(void **state)
{
  (void)state;
  captured_begin(STDERR_FILENO);
  const int full = in_a_child(full_unbuffered), piped = in_a_child(left_pipe),
            sent = in_a_child(left_socket);
  const char *said = captured_end();
  assert_true(piped == 0 && sent == 0);
  if (full == 77) skip("there is no /dev/full");
  assert_int_equal(full, 6);
  assert_string_equal(said, "plm-trainer: a message\n"
                            "plm-trainer: a part of standard output could not be written\n"
                            "plm-trainer: a message\nplm-trainer: a message\n");
}

static void results_that_cannot_be_written_are_an_error(void **state)
{
  (void)state;
  captured_begin(STDERR_FILENO);
  const int result = in_a_child(full_output);
  const char *said = captured_end();
  if (result == 77) skip("there is no /dev/full");
  assert_int_equal(result, 6); /* of a stage: space may be made */
  assert_string_equal(said, "plm-trainer: a message\n"
                            "plm-trainer: cannot write standard output: No space left on device\n");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(help_names_all_options),
      cmocka_unit_test(it_runs_or_says_why_not),
      cmocka_unit_test(the_manual_page_is_made_of_the_same_texts),
      cmocka_unit_test(completion_reads_the_usage_of_tasks),
      cmocka_unit_test(a_program_begins_with_three_descriptors),
      cmocka_unit_test(results_that_cannot_be_written_are_an_error),
      cmocka_unit_test(results_that_were_lost_before_the_end_are_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
