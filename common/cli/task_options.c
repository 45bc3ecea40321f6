/* The tables of the one-shot tasks, for plm-pipeline's help and completion and for plm-evaluator.
 */
#include "common/cli/task_options.h"

#include <string.h>

/* clang-format off: an option a line */
#define WEIGHTS                                                                                   \
  {                                                                                               \
    .name = "weights", .argument = "NAME", .help = "model, or ema (default: ema where there are)" \
  }
#define COMPUTING                                                                             \
  {.name = "device", .argument = "NAME", .help = "auto (default: CUDA if any), cpu or cuda"}, \
      {.name = "threads", .argument = "N", .help = "CPU threads (default all)"},              \
  {                                                                                           \
    .name = "precision", .argument = "NAME", .help = "fp32 (default) or bf16"                 \
  }
/* clang-format on */

const struct plm_option plm_evaluate_options[] = {
    {.name = "checkpoint", .argument = "DIR", .help = "the checkpoint, or an exported model"},
    {.name = "corpus", .argument = "DIR", .help = "the corpus"},
    {.name = "split", .argument = "NAME", .help = "train, valid (default) or test"},
    {.name = "mask-rate",
     .argument = "RATE",
     .help = "share of the residues that is hidden (default 0.15)"},
    {.name = "max-tokens",
     .argument = "N",
     .help = "real tokens to evaluate at most (default all)"},
    {.name = "seed", .argument = "N", .help = "seed of the masks (default 0)"},
    COMPUTING,
    {0},
};

const struct plm_option plm_embed_options[] = {
    {.name = "checkpoint", .argument = "DIR", .help = "the checkpoint, or an exported model"},
    {.name = "output", .argument = "FILE", .help = "FILE.safetensors, or FILE.npy (pooled)"},
    {.name = "pooling",
     .argument = "KINDS",
     .help = "a vector a sequence: mean (default), cls, max, std, or several: mean,max"},
    {.name = "per-token", .help = "a vector a token: last hidden states"},
    {.name = "logits", .help = "logits of each token"},
    {.name = "strict", .help = "stop at the first bad record instead of skipping it"},
    {.name = "resume", .argument = "HOW", .help = "auto (default), never: begin anew"},
    {.name = "batch-tokens",
     .argument = "N",
     .help = "tokens of one forward pass (default 8192), one chunk of max_length at least"},
    WEIGHTS,
    COMPUTING,
    {0},
};

const struct plm_option plm_generate_options[] = {
    {.name = "checkpoint", .argument = "DIR", .help = "the checkpoint, or an exported model"},
    {.name = "output", .argument = "FILE", .help = "where the FASTA goes (- is standard output)"},
    {.name = "count",
     .argument = "N",
     .help = "sequences from each of IN's, or in all without IN (default 1)"},
    {.name = "temperature",
     .argument = "T",
     .help = "0 takes the most probable residue (default 1)"},
    {.name = "top-p",
     .argument = "P",
     .help = "choose among the most probable that reach P together (default 1)"},
    {.name = "seed", .argument = "N", .help = "seed of the choices (default 0)"},
    {.name = "steps",
     .argument = "N",
     .help = "masked model: passes in which the masks are filled (default 20)"},
    {.name = "length",
     .argument = "N",
     .help = "masked model without IN: residues of each sequence"},
    {.name = "max-tokens",
     .argument = "N",
     .help = "causal model: tokens to generate at most (default up to max_length)"},
    WEIGHTS,
    COMPUTING,
    {0},
};

const struct plm_option plm_score_options[] = {
    {.name = "checkpoint", .argument = "DIR", .help = "the checkpoint, or an exported model"},
    {.name = "wild-type",
     .argument = "FILE",
     .help = "FASTA file with one sequence (- for stdin), or its letters"},
    {.name = "csv",
     .argument = "FILE",
     .help = "variants in a column of a CSV or TSV file (- for stdin)"},
    {.name = "mutations", .argument = "COLUMN", .help = "that column (default mutant)"},
    {.name = "measured",
     .argument = "COLUMN",
     .help = "numbers to compare with: Spearman's rank correlation"},
    {.name = "all", .help = "every single substitution of the wild type"},
    {.name = "plot", .help = "draw them as a map; the CSV is written with --output alone"},
    {.name = "masking",
     .argument = "NAME",
     .help = "additive (default): each position masked on its own; joint: a variant's together"},
    {.name = "offset",
     .argument = "N",
     .help = "number of the first residue, which may be negative (default 1)"},
    {.name = "output", .argument = "FILE", .help = "write the CSV there (default stdout)"},
    {.name = "score-column",
     .argument = "NAME",
     .help = "name of the added column (default score)"},
    WEIGHTS,
    COMPUTING,
    {0},
};

plm_status plm_task_needs(const struct plm_arguments *arguments, const struct plm_option *table,
                          const char *name, const char *purpose, struct plm_error *error)
{
  if (plm_arguments_has(arguments, name)) return PLM_OK;
  const struct plm_option *option = table;
  while (option->name != NULL && strcmp(option->name, name) != 0) option++;
  return plm_error_set(error, PLM_USAGE, "--%s %s is needed: %s", name,
                       option->argument != NULL ? option->argument : "", purpose);
}
