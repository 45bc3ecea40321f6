/* `plm-pipeline evaluate`, `embed`, `generate`, `score`, `predict` and `probe`. plm-pipeline links
 * no operators, so it becomes `plm-evaluator TASK` with the options that it was given. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/cli/task_options.h"
#include "stages/commands/command.h"

/* Writes the command line again, option by option, after plm-evaluator's name and the task. */
static plm_status exec_evaluator(const struct plm_command_context *context, const char *task,
                                 struct plm_error *error)
{
  const struct plm_arguments *arguments = context->arguments;
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(path, context->program_directory, "plm-evaluator", error));
  char **argv =
      plm_alloc_zeroed(arguments->value_count + arguments->positional_count + 4, sizeof *argv);
  size_t used = 0;
  argv[used++] = path;
  argv[used++] = (char *)task;
  for (size_t i = 0; i < arguments->value_count; i++) {
    const struct plm_option_value *value = &arguments->values[i];
    argv[used++] = value->value == NULL ? plm_format("--%s", value->option->name)
                                        : plm_format("--%s=%s", value->option->name, value->value);
  }
  const size_t made = used;
  argv[used++] = (char *)"--";
  for (size_t i = 0; i < arguments->positional_count; i++) {
    argv[used++] = (char *)arguments->positionals[i];
  }
  argv[used] = NULL;
  execv(path, argv);
  const plm_status status = plm_error_errno(error, "%s", path);
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
    .sets = true,
    .operands = "--checkpoint DIR --corpus DIR",
    .summary = "evaluate one checkpoint on a split, without a run",
    .details = "--json prints one object on one line, with the same metrics and names as a line of "
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
    .sets = true,
    .operands = "--checkpoint DIR IN... --output FILE",
    .summary = "compute embeddings of sequences, as safetensors or npy",
    .details =
        "IN is FASTA, JSONL, a table or text, plain, .gz or .zst, or - for stdin. The output keeps "
        "the order of the input. A bad record is reported and skipped, unless --strict is given; "
        "letters outside the alphabet become <unk>; a sequence longer than --max-length, or "
        "without "
        "it than the model's max_length, is cut to its first tokens, without <eos>. Published "
        "weights have no such limit. A record with <mask> is bad here; `generate` fills masks.\n\n"
        "With pooling there is one tensor \"embeddings\" of shape (N, width), computed over the "
        "residues without <cls> and <eos>. With --per-token or --logits there is one tensor for "
        "each sequence, named by its number from 0, and <cls> and <eos> are included; with "
        "--attention its shape is (maps, tokens, tokens), with --contacts (residues, residues). "
        "Values are fp32. The metadata \"names\" "
        "is a JSON array; for an npy file the names are in "
        "FILE.npy.names.json.\n\n"
        "FILE may also be - (standard output), a pipe or a device, which receives safetensors at "
        "the end. An existing regular file is replaced once the new one is complete. If the "
        "command is stopped or killed, it leaves FILE.partial and FILE.journal; the same command "
        "continues from there and writes the same bytes. Memory does not grow with the number of "
        "sequences, but while the command runs, it needs one or two bytes for each residue on the "
        "disk of FILE.",
    .options = plm_embed_options,
    .run = embed,
};

static plm_status generate(const struct plm_command_context *context, struct plm_error *error)
{
  return exec_evaluator(context, "generate", error);
}

const struct plm_command plm_command_generate = {
    .name = "generate",
    .sets = true,
    .operands = "--checkpoint DIR [IN] --output FILE",
    .summary = "fill masks, or sample new sequences",
    .details =
        "A masked model fills <mask> (or _) in the sequences of IN (FASTA, JSONL, a table or text) "
        "in --steps passes, the most certain residues first. Without IN it generates --count "
        "sequences of --length residues. A causal model continues each sequence of IN, or starts "
        "from nothing without IN, until it generates <eos> or reaches --max-tokens or max_length. "
        "The same seed gives the same sequences.\n\n"
        "An existing regular FILE is replaced once the new one is complete; a pipe or a device is "
        "written to.",
    .options = plm_generate_options,
    .run = generate,
};

static plm_status inference_score(const struct plm_command_context *context,
                                  struct plm_error *error)
{
  return exec_evaluator(context, "score", error);
}

const struct plm_command plm_command_score = {
    .name = "score",
    .sets = true,
    .operands = "--checkpoint DIR --wild-type FILE MUTATION...|--csv FILE|--all|--per-position",
    .summary = "score variants of a protein, and compare with measurements",
    .details =
        "A variant is one substitution, such as A42G, or several, such as A42G:L7P. Positions "
        "count from 1, or from --offset. A masked model scores it by the log-probability of the "
        "new residues minus that of the old ones, with each position masked separately (--masking "
        "joint masks all positions of a variant together, --masking none masks nothing and scores "
        "everything in one pass); a causal model scores it by the "
        "log-likelihood of the variant minus that of the wild type. A higher score means that the "
        "variant is more likely to be tolerated.\n\n"
        "A CSV file keeps its columns and gains the column `score`; its header line decides "
        "whether commas, semicolons or tabs separate the fields. With --measured COLUMN, "
        "Spearman's rank correlation is printed to stderr. --json prints one object with "
        "`variants` and `spearman`. An existing regular file is replaced once the new one is "
        "complete; a pipe or a device is written to. If the wild type is longer than --max-length, "
        "or without it than the model's max_length (published weights: no limit), the model sees a "
        "window around each position.\n\n"
        "--per-position takes no variants. It masks each position separately and writes the "
        "natural "
        "logarithms of the probabilities of the 20 amino acids there: as CSV, as an array "
        "(positions, 20) in the order ACDEFGHIKLMNPQRSTVWY if the output ends in .npy, or as a "
        "heat map if it ends in .svg.\n\n"
        "--assays DIR --reference FILE --scores DIR scores all assays of a benchmark in "
        "ProteinGym's format, substitutions and indels, without a wild type. It prints a row of "
        "statistics for each assay; their means go to stderr and into the object of --json. "
        "--ids and --max-variants score a part of it. The "
        "scores of each finished assay stay in the folder of --scores, where the same command "
        "continues after it was interrupted.",
    .options = plm_score_options,
    .run = inference_score,
};

static plm_status predict(const struct plm_command_context *context, struct plm_error *error)
{
  return exec_evaluator(context, "predict", error);
}

const struct plm_command plm_command_predict = {
    .name = "predict",
    .sets = true,
    .operands = "--checkpoint DIR IN... --output FILE",
    .summary = "predict labels with a model that was fine-tuned to do so",
    .details =
        "DIR is a checkpoint or an exported model with a head for labels, or a folder that "
        "transformers wrote: of EsmForSequenceClassification, EsmForTokenClassification, the same "
        "classes of ESM-C, or those of modeling_plm.py. IN is FASTA, JSONL, a table or text, "
        "plain, .gz or .zst, or - for stdin; bad records and long sequences are treated as `embed` "
        "does. FILE has a row for each sequence, in the order of the input, with its name.\n\n"
        "A model that predicts numbers gives one column for each, in the units of the labels; one "
        "that predicts a class gives `prediction` and its `probability`; one that predicts several "
        "classes gives the probability of each. For labels of residues, `prediction` has one class "
        "for each residue, and with --per-residue there is a row for each. --logits gives the "
        "outputs of the model as they are.\n\n"
        "If the command is stopped or killed, it leaves FILE.partial and FILE.journal; the same "
        "command continues from there and writes the same bytes. Memory does not grow with the "
        "number of sequences.",
    .options = plm_predict_options,
    .run = predict,
};

static plm_status probe(const struct plm_command_context *context, struct plm_error *error)
{
  return exec_evaluator(context, "probe", error);
}

const struct plm_command plm_command_probe = {
    .name = "probe",
    .sets = true,
    .operands = "--checkpoint DIR TABLE --target COLUMN",
    .summary = "measure how well embeddings predict the labels of a table",
    .details =
        "TABLE is CSV, TSV or JSONL, plain, .gz or .zst, or - for stdin, with a column of "
        "sequences and a column to predict: numbers, classes, or one class for each residue. The "
        "model stays as it is. Ridge regression (numbers) or logistic regression (classes) is "
        "fitted to the embeddings of the training part, and measured on the test part: spearman, "
        "pearson, r2 and rmse, or accuracy, macro_f1, mcc and auroc, each with a 95 % interval. "
        "The row `(composition and length only)` has the same for a model that sees nothing but "
        "how often each residue occurs and how long the sequence is. For classes of residues, the "
        "row is called `(composition only)`, and its model sees only which residue it is. A model "
        "that is no better has learnt nothing of use for that column.\n\n"
        "The column of --split says train, valid and test, or has the number of a fold; then each "
        "fold is predicted by a probe of the others. FLIP's columns `set` and `validation` are "
        "known: --split set. Rows without a label or a split are counted and left out. A wrong "
        "row is an error with its line and column.\n\n"
        "--json prints one object on one line, with `spearman` and so on as objects of value, low, "
        "high and count, and the baseline in `baseline`. Several --checkpoint are then in "
        "`checkpoints`, and with --layers all every layer is in `layers`. --output writes the "
        "predictions of the test part, of the best layer, as CSV.\n\n"
        "With --task contacts, TABLE is a folder with NAME.fasta and NAME.contacts for each "
        "protein, a line of which names two residues in contact. A logistic regression on the "
        "attention maps learns from the first proteins, and its precision at L, L/2 and L/5 for "
        "residues at least 24 apart is measured on the others.",
    .options = plm_probe_options,
    .run = probe,
};
