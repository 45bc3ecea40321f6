/* `plm-pipeline evaluate` and what else a checkpoint is used for. plm-pipeline links no operators,
 * so it becomes `plm-evaluator TASK` with the options that it was given. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/cli/task_options.h"
#include "stages/commands/command.h"

/* The command line again, option by option, behind plm-evaluator's name and the task. */
static plm_status exec_evaluator(const struct plm_command_context *context, const char *task,
                                 struct plm_error *error)
{
  const struct plm_arguments *arguments = context->arguments;
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(path, context->program_directory, "plm-evaluator", error));
  char **argv = calloc(arguments->value_count + arguments->positional_count + 4, sizeof *argv);
  plm_status status = PLM_OK;
  size_t used = 0;
  if (argv == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  argv[used++] = path;
  argv[used++] = (char *)task;
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
  for (size_t i = 2; i < made; i++) free(argv[i]);
  free(argv);
  return status;
}

static plm_status evaluate(const struct plm_command_context *context, struct plm_error *error)
{
  return exec_evaluator(context, "evaluate", error);
}

const struct plm_command plm_command_evaluate = {
    .name = "evaluate",
    .operands = "--checkpoint DIR --corpus DIR",
    .summary = "evaluate one checkpoint on a split, without a run",
    .details =
        "With --json one object on one line, with the evaluator's metrics under the names of "
        "evaluator.jsonl.",
    .options = plm_evaluate_options,
    .run = evaluate,
};

static plm_status embed(const struct plm_command_context *context, struct plm_error *error)
{
  return exec_evaluator(context, "embed", error);
}

const struct plm_command plm_command_embed = {
    .name = "embed",
    .operands = "--checkpoint DIR IN... --output FILE",
    .summary = "embeddings of sequences as safetensors or npy",
    .details =
        "IN is FASTA, JSONL or text, plain, .gz or .zst, or - for stdin. The result has its order. "
        "A bad record is reported and skipped (--strict stops); letters outside the alphabet "
        "become <unk>; a sequence longer than the model's max_length is cut to its first "
        "max_length tokens, <eos> not among them. <mask> is no residue here: generate fills "
        "it.\n\n"
        "Pooled: one tensor \"embeddings\" (N, width) over the residues, without <cls> and <eos>. "
        "--per-token\nand --logits: one tensor a sequence, named by its number from 0, with <cls> "
        "and <eos>. fp32.\nThe metadata \"names\" is a JSON array; beside FILE.npy the names are "
        "in FILE.npy.names.json.\n\n"
        "A FILE that is there is replaced once the new one is whole. A run that was stopped or "
        "killed leaves\nFILE.partial and FILE.journal: the same command goes on from there and "
        "ends "
        "with the same bytes.\nMemory does not depend on the number of sequences; while it works, "
        "they take a byte a residue on\ndisk beside FILE.",
    .options = plm_embed_options,
    .run = embed,
};

static plm_status generate(const struct plm_command_context *context, struct plm_error *error)
{
  return exec_evaluator(context, "generate", error);
}

const struct plm_command plm_command_generate = {
    .name = "generate",
    .operands = "--checkpoint DIR [IN] --output FILE",
    .summary = "fill masks, or sample new sequences",
    .details =
        "A masked model fills <mask> (or _) in the sequences of IN (FASTA, JSONL or text), the "
        "residues\nit is surest of first, in --steps passes; without IN it makes --count sequences "
        "of --length.\nA causal model continues each sequence of IN, or starts anew, to an end, "
        "--max-tokens or\nmax_length. The same seed gives the same sequences.",
    .options = plm_generate_options,
    .run = generate,
};

static plm_status score(const struct plm_command_context *context, struct plm_error *error)
{
  return exec_evaluator(context, "score", error);
}

const struct plm_command plm_command_score = {
    .name = "score",
    .operands = "--checkpoint DIR --wild-type FILE MUTATION...|--csv FILE|--all",
    .summary = "score variants of a protein, and compare with measurements",
    .details =
        "A variant is one substitution, A42G, or several, A42G:L7P; positions count from 1, or "
        "from --offset. Its score is the log-probability of the new residues minus that of the "
        "wild type's, each position masked on its own (--masking joint: a variant's together); a "
        "causal model's, the log-likelihood of the variant minus the wild type's. Higher is "
        "likelier to be tolerated.\n\n"
        "A CSV file, whose fields its header line separates by commas, semicolons or tabs, keeps "
        "its columns and gains one, `score`. With --measured COLUMN Spearman's "
        "rank correlation is printed on stderr. With --json one object with `variants` and "
        "`spearman`. Wild types longer than the model's max_length are seen through a window "
        "around each position.",
    .options = plm_score_options,
    .run = score,
};
