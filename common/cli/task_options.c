/* The options of the one-shot tasks, for plm-evaluator and for plm-pipeline's help and completion.
 */
#include "common/cli/task_options.h"

#include <string.h>

#include "common/cli/sequence_options.h"

/* clang-format off */
#define WEIGHTS \
  {.name = "weights", .argument = "NAME", .help = "model or ema (default ema, if there are any)"}
#define MODEL "a checkpoint, an exported model, or published weights (ESM-2, ESM-C)"
#define LONGEST "(default: the model's max_length, which N may exceed; published weights: no limit)"
#define COMPUTING \
  {.name = "device", .argument = "NAME", .help = "auto (default: CUDA if present), cpu or cuda"}, \
  {.name = "threads", .argument = "N", .help = "CPU threads (default all)"}, \
  {.name = "precision", .argument = "NAME", .help = "fp32 (default), bf16, or int8 (CPU)"}
/* clang-format on */

const struct plm_option plm_evaluate_options[] = {
    {.name = "checkpoint", .argument = "DIR", .help = MODEL},
    {.name = "corpus", .argument = "DIR", .help = "the corpus"},
    {.name = "split", .argument = "NAME", .help = "train, valid (default) or test"},
    {.name = "labels",
     .argument = "COLUMN,...",
     .help = "of a model that predicts labels: the columns of the corpus's labels (default: those "
             "that fit the model)"},
    {.name = "mask-rate",
     .argument = "RATE",
     .help = "share of the residues that are masked (default 0.15)"},
    {.name = "max-tokens", .argument = "N", .help = "evaluate at most N real tokens (default all)"},
    {.name = "seed", .argument = "N", .help = "seed of the masks (default 0)"},
    {.name = "max-length",
     .argument = "N",
     .help = "a power of two: cut longer documents to N tokens (default: the model's max_length, "
             "rounded up to one)"},
    {.name = "elbo-rates",
     .argument = "K",
     .help = "also measure the ELBO of masked diffusion, with K mask rates for each document"},
    {.name = "pseudo-perplexity",
     .argument = "HOW",
     .help = "also measure pseudo-perplexity: exact (mask each residue by itself: slow), fast "
             "(estimate it from "
             "one pass) or both"},
    {.name = "random-fraction",
     .argument = "SHARE",
     .help = "for fast: trainer.masking.random_fraction of the training"},
    {.name = "keep-fraction",
     .argument = "SHARE",
     .help = "for fast: trainer.masking.keep_fraction of the training"},
    COMPUTING,
    {0},
};

const struct plm_option plm_embed_options[] = {
    {.name = "checkpoint", .argument = "DIR", .help = MODEL},
    {.name = "output",
     .argument = "FILE",
     .help = "FILE.safetensors, or FILE.npy (pooled); - or a pipe gets safetensors"},
    {.name = "pooling",
     .argument = "KINDS",
     .help = "one vector for each sequence: mean (default), cls, max, std, or several: mean,max"},
    {.name = "per-token", .help = "one vector for each token: the last hidden state"},
    {.name = "layers",
     .argument = "LIST",
     .help = "hidden states of these layers, concatenated: 4,8,last (default last; 0: embeddings)"},
    {.name = "logits", .help = "the logits of each token"},
    {.name = "attention",
     .argument = "LIST",
     .help =
         "attention maps of these layers or heads, counted from 1: 3:5,4 (layer 3's head 5, all of "
         "layer 4)"},
    {.name = "contacts",
     .help = "probabilities that residues are in contact, by the contact head of ESM-2"},
    {.name = "max-length", .argument = "N", .help = "cut longer sequences to N tokens " LONGEST},
    {.name = "separate-chains",
     .help = "ESM-C: chains of a protein, which | separates, do not see each other"},
    {.name = "strict", .help = "stop at the first bad record instead of skipping it"},
    {.name = "resume", .argument = "HOW", .help = "auto (default), or never: start over"},
    {.name = "batch-tokens",
     .argument = "N",
     .help = "tokens in one forward pass (default 4096; 2048 for maps), at least one chunk of "
             "max_length"},
    PLM_SEQUENCE_OPTIONS,
    WEIGHTS,
    COMPUTING,
    {0},
};

const struct plm_option plm_predict_options[] = {
    {.name = "checkpoint",
     .argument = "DIR",
     .help = "a checkpoint, an exported model or a folder of transformers that was fine-tuned with "
             "labels"},
    {.name = "output",
     .argument = "FILE",
     .help = "FILE.csv, FILE.tsv or FILE.jsonl; - or a pipe gets CSV"},
    {.name = "per-residue",
     .help = "a row for each residue, with the probability of its class, instead of one text"},
    {.name = "logits", .help = "the outputs of the model as they are, one column for each"},
    {.name = "max-length", .argument = "N", .help = "cut longer sequences to N tokens " LONGEST},
    {.name = "strict", .help = "stop at the first bad record instead of skipping it"},
    {.name = "resume", .argument = "HOW", .help = "auto (default), or never: start over"},
    {.name = "batch-tokens",
     .argument = "N",
     .help = "tokens in one forward pass (default 4096), at least one chunk of max_length"},
    PLM_SEQUENCE_OPTIONS,
    WEIGHTS,
    COMPUTING,
    {0},
};

const struct plm_option plm_generate_options[] = {
    {.name = "checkpoint", .argument = "DIR", .help = MODEL},
    {.name = "output", .argument = "FILE", .help = "the FASTA file to write; - is standard output"},
    {.name = "count",
     .argument = "N",
     .help = "sequences made from each one in IN, or in total without IN (default 1)"},
    {.name = "temperature",
     .argument = "T",
     .help = "0 takes the most probable residue (default 1)"},
    {.name = "top-p",
     .argument = "P",
     .help = "choose among the most probable residues, up to a total of P (default 1)"},
    {.name = "top-k",
     .argument = "N",
     .help = "choose among the N most probable residues at most (default all)"},
    {.name = "seed", .argument = "N", .help = "seed of the random choices (default 0)"},
    {.name = "steps",
     .argument = "N",
     .help = "masked model: number of passes that fill the masks (default 20)"},
    {.name = "remask",
     .argument = "SHARE",
     .help = "masked model: after each pass, mask this share of the filled residues again, the "
             "least certain ones (default 0, at most 0.99); the last pass masks none"},
    {.name = "length",
     .argument = "N",
     .help = "masked model without IN: residues in each sequence"},
    {.name = "max-tokens",
     .argument = "N",
     .help = "causal model: generate at most N tokens (default: up to max_length)"},
    {.name = "max-length",
     .argument = "N",
     .help = "masked model: cut longer sequences to N tokens; causal model: end sequences at N "
             "tokens " LONGEST},
    {.name = "trace",
     .argument = "FILE",
     .help = "write each choice, and each residue that is masked again, as a JSON line: sequence, "
             "step, position, token, residue, probability"},
    PLM_SEQUENCE_OPTIONS,
    WEIGHTS,
    COMPUTING,
    {0},
};

const struct plm_option plm_score_options[] = {
    {.name = "checkpoint", .argument = "DIR", .help = MODEL},
    {.name = "wild-type",
     .argument = "FILE",
     .help = "FASTA file with one sequence (- for stdin), or the sequence itself"},
    {.name = "csv",
     .argument = "FILE",
     .help = "CSV or TSV file with a column of variants (- for stdin)"},
    {.name = "mutations", .argument = "COLUMN", .help = "the column of variants (default mutant)"},
    {.name = "measured",
     .argument = "COLUMN",
     .help = "column of measured values, for Spearman's rank correlation"},
    {.name = "all", .help = "score every single substitution of the wild type"},
    {.name = "per-position",
     .help = "log-probabilities of the 20 amino acids at each position; --output FILE.csv, .npy or "
             ".svg (a heat map)"},
    {.name = "assays",
     .argument = "DIR",
     .help = "score all assays of a benchmark in ProteinGym's format, whose CSV files are in DIR"},
    {.name = "reference",
     .argument = "FILE",
     .help = "for --assays: the list of assays, for example DMS_substitutions.csv"},
    {.name = "scores",
     .argument = "DIR",
     .help = "for --assays: keep the scores of each assay there, and continue there"},
    {.name = "ids",
     .argument = "ID[,ID...]",
     .help = "for --assays: only these assays, by their DMS_id (default all)"},
    {.name = "max-variants",
     .argument = "N",
     .help = "for --assays: a fixed random sample of N variants of each assay (default all)"},
    {.name = "plot",
     .help = "draw a map in the terminal; the CSV is then written only with --output"},
    {.name = "masking",
     .argument = "NAME",
     .help =
         "additive (default): mask each position separately; joint: mask all of a variant; none: "
         "one pass without masks (wild-type marginals)"},
    {.name = "max-length",
     .argument = "N",
     .help = "tokens that the model sees around a position of a longer protein " LONGEST},
    {.name = "offset",
     .argument = "N",
     .help = "number of the first residue; may be negative (default 1)"},
    {.name = "output",
     .argument = "FILE",
     .help = "the file to write (default: -, standard output)"},
    {.name = "score-column",
     .argument = "NAME",
     .help = "name of the added column (default score)"},
    PLM_SEQUENCE_OPTIONS,
    WEIGHTS,
    COMPUTING,
    {0},
};

const struct plm_option plm_probe_options[] = {
    {.name = "checkpoint",
     .argument = "DIR",
     .help = MODEL "; give it several times to compare models"},
    {.name = "target", .argument = "COLUMN", .help = "the column to predict"},
    {.name = "split",
     .argument = "COLUMN",
     .help = "the column that says train, valid or test, or the number of a fold (default: the "
             "hash of the sequence decides, 8 : 1 : 1)"},
    {.name = "task",
     .argument = "NAME",
     .help = "regression, classification, residues: one class for each residue (default: what the "
             "column looks like), or contacts: TABLE is then a folder of proteins with contacts"},
    {.name = "train",
     .argument = "N",
     .help = "for --task contacts: fit to the first N proteins by name (default 20), and test with "
             "the others"},
    {.name = "layers",
     .argument = "LIST",
     .help = "hidden states of these layers, side by side: 8, or 4,8,last (default last); all: "
             "probe each layer, and show which is best"},
    {.name = "pooling",
     .argument = "KINDS",
     .help = "one vector for each sequence: mean (default), cls, max, std, or several: mean,max"},
    {.name = "alpha",
     .argument = "A",
     .help = "strength of the regularisation (default: chosen on the validation part or by "
             "cross-validation)"},
    {.name = "sequence-column",
     .argument = "COLUMN",
     .help = "the column of sequences (default: sequence, seq, protein_sequence or "
             "mutated_sequence)"},
    {.name = "max-length", .argument = "N", .help = "cut longer sequences to N tokens " LONGEST},
    {.name = "output", .argument = "FILE", .help = "write the predictions there as CSV"},
    WEIGHTS,
    COMPUTING,
    {0},
};

plm_status plm_task_needs(const struct plm_arguments *arguments, const struct plm_option *table,
                          const char *name, const char *purpose, struct plm_error *error)
{
  if (plm_arguments_has(arguments, name)) return PLM_OK;
  const struct plm_option *option = table;
  while (strcmp(option->name, name) != 0) option++;
  return plm_error_set(error, PLM_USAGE, "--%s %s is needed: %s", name, option->argument, purpose);
}
