/* The main function that plm-packer, plm-trainer and plm-evaluator share: options, help, version,
 * log level, stop signals, exit code, and loading the configuration. */
#ifndef PLM_COMMON_CLI_PROGRAM_H
#define PLM_COMMON_CLI_PROGRAM_H

#include "common/base/status.h"
#include "common/cli/options.h"
#include "common/config/config.h"

/* The exit codes that all programs share, for their help and manual pages. */
#define PLM_EXIT_CODES                                                                        \
  "0 done, 1 failed, 2 wrong usage or configuration, 3 the run is not running, 4 timed out, " \
  "5 a value was not finite, 6 a cause that may pass did not pass in time, 7 a stage failed " \
  "for a cause that stays, 130 or 143 stopped by a signal."

/* The same for the stages: plm-packer, plm-trainer and the watching plm-evaluator. */
#define PLM_STAGE_EXIT_CODES                                                                       \
  "0 nothing is left to do, 1 failed, 2 wrong usage or configuration, 4 timed out, 5 a "           \
  "value was not finite, 6 failed for a cause that may pass (disk, port, corpus, memory, another " \
  "process), 7 failed for a cause that stays (malformed or unsupported input), 130 or "            \
  "143 stopped by a signal."

struct plm_program {
  const char *name;    /* "plm-trainer" */
  const char *summary; /* for the manual page: one line, with a verb; NULL: it has no page */
  const char *usage;   /* text before the options in --help */
  const struct plm_option *options;
  const char *more;                       /* text after the options; NULL: none */
  bool stage;                             /* its exit codes are PLM_STAGE_EXIT_CODES */
  size_t operands;                        /* largest number of arguments that are not options */
  const struct plm_program *const *tasks; /* what the first word can choose, named "NAME TASK", for
                                           * completion; ends with NULL; NULL: none */
  plm_status (*run)(const struct plm_arguments *arguments, struct plm_error *error);
};

/* What every program does first, before it opens anything. A descriptor of 0, 1 and 2 that is
 * closed would be given to the next file, and messages would be written into that file; so each is
 * opened on /dev/null, in the mode in which reading or writing still fails as it does on a closed
 * one. SIGXFSZ is ignored: beyond the limit on the size of a file, a write fails with EFBIG
 * instead. The soft limit on descriptors is raised to the hard one. As process 1 of a container,
 * the program ends by a stop signal also before it catches them: the kernel gives that process no
 * signal that it does not handle. */
void plm_program_begin(void);

/* Writes what is left of standard output. Returns status, but instead of PLM_OK it returns PLM_IO
 * if any of the output was lost, now or earlier. It is no error if the reader left, as `head` does.
 */
plm_status plm_program_flush_output(plm_status status, struct plm_error *error);

/* Parses the options, answers --help and --version or runs the program, prints an error and returns
 * the exit code. Stop signals are caught from the beginning. `plm-pipeline manual` gives it
 * --manual-page, as the only argument and without a line in the help, to print its page, and
 * `plm-pipeline completion` gives it --completion SHELL. */
int plm_program_main(const struct plm_program *program, int argc, char **argv);

/* plm_arguments_load_config for a stage: without -c and PLM_CONFIG, the pipeline.yaml of the folder
 * given by --run comes before ./pipeline.yaml. On PLM_OK the caller calls plm_config_deinit. */
plm_status plm_program_config(const struct plm_arguments *arguments, struct plm_config *config,
                              struct plm_error *error);

#endif
