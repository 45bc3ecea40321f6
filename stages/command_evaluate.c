/* `plm-pipeline evaluate`: one evaluation without a run. plm-pipeline links no operators, so it
 * becomes plm-evaluator, which has the same options. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "stages/command.h"

static const struct plm_option options[] = {
    {.name = "checkpoint", .argument = "DIR", .help = "the checkpoint folder"},
    {.name = "corpus", .argument = "DIR", .help = "the corpus"},
    {.name = "split", .argument = "NAME", .help = "train, valid or test (default valid)"},
    {.name = "mask-rate", .argument = "RATE", .help = "share of the tokens that are masked"},
    {.name = "max-tokens", .argument = "N", .help = "real tokens to evaluate (default all)"},
    {.name = "threads", .argument = "N", .help = "CPU threads (default all)"},
    {0},
};

/* The command line again, option by option, behind the sibling's name. */
static plm_status exec_sibling(const struct plm_command_context *context, const char *name,
                               struct plm_error *error)
{
  const struct plm_arguments *arguments = context->arguments;
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(path, context->program_directory, name, error));
  char **argv = calloc(arguments->value_count + arguments->positional_count + 3, sizeof *argv);
  plm_status status = PLM_OK;
  size_t used = 0;
  if (argv == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  argv[used++] = path;
  for (size_t i = 0; i < arguments->value_count && status == PLM_OK; i++) {
    const struct plm_option_value *value = &arguments->values[i];
    const int length = value->value == NULL
                           ? asprintf(&argv[used], "--%s", value->option->name)
                           : asprintf(&argv[used], "--%s=%s", value->option->name, value->value);
    if (length < 0) status = plm_error_set(error, PLM_NO_MEMORY, "out of memory");
    used += length >= 0;
  }
  const size_t made = used;
  argv[used++] = (char *)"--";
  for (size_t i = 0; i < arguments->positional_count; i++) {
    argv[used++] = (char *)arguments->positionals[i];
  }
  argv[used] = NULL;
  if (status == PLM_OK) {
    execv(path, argv);
    status = plm_error_errno(error, "%s", path);
  }
  for (size_t i = 1; i < made; i++) free(argv[i]);
  free(argv);
  return status;
}

static plm_status evaluate(const struct plm_command_context *context, struct plm_error *error)
{
  if (!plm_arguments_has(context->arguments, "checkpoint")) {
    return plm_error_set(error, PLM_USAGE, "option \"--checkpoint\" is needed");
  }
  if (!plm_arguments_has(context->arguments, "corpus")) {
    return plm_error_set(error, PLM_USAGE, "option \"--corpus\" is needed");
  }
  return exec_sibling(context, "plm-evaluator", error);
}

const struct plm_command plm_command_evaluate = {
    .name = "evaluate",
    .operands = "--checkpoint DIR --corpus DIR",
    .summary = "evaluate one checkpoint on a split, without a run",
    .details =
        "With --json one object on one line, with the evaluator's metrics under the names of "
        "evaluator.jsonl.",
    .options = options,
    .run = evaluate,
};
