/* `plm-pipeline ingest IN... --corpus DIR`: turns files of sequences into a corpus. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/base/log/progress.h"
#include "common/base/process/cgroup.h"
#include "common/cli/sequence_options.h"
#include "common/run/stop.h"
#include "stages/commands/command.h"
#include "stages/ingest/ingest.h"
#include "stages/views/corpus_summary.h"

enum { MOST_DEFAULT_JOBS = 8, MOST_JOBS = 256 };

static const struct plm_option options[] = {
    {0, "corpus", "DIR", "the corpus folder to write"},
    {0, "split", "NAME=SHARE,...", "default train=0.98,valid=0.01,test=0.01"},
    {0, "split-column", "COLUMN",
     "take the splits from this column of the table: train, valid or test; beside a column called "
     "set, rows of train that are true in the column validation are valid"},
    {0, "labels", "COLUMN,...",
     "keep these columns of the table as labels; COLUMN:KIND says number, class, classes or "
     "residues where the labels do not tell"},
    {0, "labels-table", "FILE",
     "beside FASTA: the table (CSV, TSV, JSONL) with the columns of --labels and --split-column; "
     "--name-column has the names of the sequences (default: name)"},
    {0, "clusters", "FILE.tsv",
     "lines of representative and member: each cluster stays in one split, and the corpus keeps "
     "the clusters"},
    {0, "unclustered", "SHARE",
     "with --clusters: the largest share of sequences that FILE.tsv may lack (default 0.01)"},
    {0, "deduplicate", NULL, "drop repeated sequences (takes up to 25 bytes of memory for each)"},
    {0, "min-length", "N", "drop sequences with fewer residues (default 1)"},
    {0, "max-residues", "N", "drop sequences with more residues (default 1048576)"},
    {0, "tokenizer", "NAME", "esm (default) for proteins, byte for any other text"},
    PLM_SEQUENCE_OPTIONS,
    {0, "strict", NULL, "stop at the first bad record instead of skipping it"},
    {0, "force", NULL, "replace the corpus in DIR once the new one is complete"},
    {0, "jobs", "N",
     "files that are read side by side (default: one for every two cores, at most 8); each beyond "
     "the first takes up to 128 MiB of memory. The corpus is the same"},
    {0, "threads", "N", "threads that compress (default: one for each core)"},
    {0, NULL, NULL, NULL},
};

static plm_status ingest_parse_numbers(const struct plm_arguments *arguments,
                                       struct plm_ingest_options *ingest, struct plm_error *error)
{
  unsigned long long min_length, max_residues, threads;
  PLM_TRY(plm_arguments_u64(arguments, "min-length", 1, &min_length, error));
  PLM_TRY(plm_arguments_u64(arguments, "max-residues", 1 << 20, &max_residues, error));
  PLM_TRY(plm_arguments_u64(arguments, "threads", 0, &threads, error));
  if (max_residues == 0 || max_residues > PLM_DOCUMENT_LIMIT)
    return plm_error_set(error, PLM_USAGE, "--max-residues must be from 1 to %d",
                         PLM_DOCUMENT_LIMIT);
  if (min_length > max_residues)
    return plm_error_set(error, PLM_USAGE, "--min-length %llu is above --max-residues %llu",
                         min_length, max_residues);
  if (threads > 256) return plm_error_set(error, PLM_USAGE, "--threads must be from 0 to 256");
  ingest->min_length = min_length;
  ingest->max_residues = max_residues;
  ingest->writer.threads = (unsigned)threads;
  const uint32_t pairs = plm_usable_cores() / 2; /* the other cores compress */
  ingest->jobs = pairs < 1 ? 1 : pairs > MOST_DEFAULT_JOBS ? MOST_DEFAULT_JOBS : pairs;
  return plm_arguments_within(arguments, "jobs", 1, MOST_JOBS, &ingest->jobs, error);
}

static plm_status parse_unclustered(const struct plm_arguments *arguments, double *share,
                                    struct plm_error *error)
{
  const char *text = plm_arguments_get(arguments, "unclustered");
  *share = 0.01;
  if (text == NULL) return PLM_OK;
  char *end;
  *share = strtod(text, &end);
  if (end == text || *end != '\0' || !(*share >= 0 && *share <= 1))
    return plm_error_set(error, PLM_USAGE, "--unclustered %.80s is not a share from 0 to 1", text);
  if (plm_arguments_has(arguments, "clusters")) return PLM_OK;
  return plm_error_set(error, PLM_USAGE, "--unclustered belongs to --clusters FILE.tsv");
}

static plm_status ingest_parse_labels(const struct plm_arguments *arguments,
                                      struct plm_ingest_options *ingest, struct plm_error *error)
{
  struct plm_label_options *labels = &ingest->labels;
  labels->columns = plm_arguments_get(arguments, "labels");
  labels->table = plm_arguments_get(arguments, "labels-table");
  labels->split_column = plm_arguments_get(arguments, "split-column");
  labels->sequence_column = ingest->choices.sequence_column;
  labels->name_column = ingest->choices.name_column;
  if (!plm_label_options_any(labels)) {
    if (labels->table == NULL) return PLM_OK;
    return plm_error_set(error, PLM_USAGE,
                         "--labels-table %.80s needs --labels COLUMN or --split-column COLUMN",
                         labels->table);
  }
  if (ingest->clusters != NULL && labels->split_column != NULL)
    return plm_error_set(
        error, PLM_USAGE,
        "--clusters does not go with --split-column: each cluster is in one split");
  if (labels->split_column != NULL && plm_arguments_has(arguments, "split"))
    return plm_error_set(error, PLM_USAGE,
                         "--split does not go with --split-column, which has the "
                         "split of each sequence");
  if (labels->table != NULL) { /* its columns, not those of the input */
    ingest->choices.sequence_column = ingest->choices.name_column = NULL;
    return PLM_OK;
  }
  if (ingest->input_count == 1) return PLM_OK;
  plm_error_set(error, PLM_USAGE, "--labels and --split-column need one table, not %zu files",
                ingest->input_count);
  return plm_error_hint(error, "with FASTA, name a table beside it: --labels-table FILE");
}

static plm_status ingest_parse_options(const struct plm_arguments *arguments,
                                       struct plm_ingest_options *ingest, struct plm_error *error)
{
  const char *split = plm_arguments_get(arguments, "split");
  const char *tokenizer = plm_arguments_get(arguments, "tokenizer");
  ingest->inputs = arguments->positionals;
  ingest->input_count = arguments->positional_count;
  ingest->writer.directory = plm_arguments_get(arguments, "corpus");
  ingest->clusters = plm_arguments_get(arguments, "clusters");
  ingest->writer.clustered = ingest->clusters != NULL;
  ingest->writer.force = plm_arguments_has(arguments, "force");
  ingest->deduplicate = plm_arguments_has(arguments, "deduplicate");
  ingest->strict = plm_arguments_has(arguments, "strict");
  if (ingest->input_count == 0)
    return plm_error_set(error, PLM_USAGE, "nothing to ingest: name files, or - for stdin");
  if (ingest->writer.directory == NULL || ingest->writer.directory[0] == '\0')
    return plm_error_set(error, PLM_USAGE, "--corpus DIR is needed: the folder of the new corpus");
  if (strcmp(ingest->writer.directory, "-") == 0) {
    plm_error_set(error, PLM_USAGE, "--corpus - does not name a folder");
    return plm_error_hint(error,
                          "a corpus is a folder, so it cannot be written to standard output; "
                          "name a folder, or --corpus ./- for one that is called -");
  }
  PLM_TRY(plm_sequence_options_parse(arguments, &ingest->choices, error));
  PLM_TRY(ingest_parse_labels(arguments, ingest, error));
  PLM_TRY(parse_unclustered(arguments, &ingest->unclustered, error));
  PLM_TRY(plm_split_rule_parse(split != NULL ? split : "train=0.98,valid=0.01,test=0.01",
                               &ingest->splits, error));
  if (tokenizer == NULL || strcmp(tokenizer, "esm") == 0)
    ingest->writer.tokenizer = PLM_TOKENIZER_ESM;
  else if (strcmp(tokenizer, "byte") == 0)
    ingest->writer.tokenizer = PLM_TOKENIZER_BYTE;
  else
    return plm_error_set(error, PLM_USAGE, "--tokenizer must be esm or byte, not \"%.40s\"",
                         tokenizer);
  return ingest_parse_numbers(arguments, ingest, error);
}

/* Reports what happened to the records, and how fast. */
static void narrate(const struct plm_ingest_result *result, const char *directory)
{
  const struct {
    uint64_t count;
    const char *what;
  } dropped[] = {
      {result->bad, "bad records skipped"},
      {result->too_short, "sequences shorter than --min-length, dropped"},
      {result->too_long, "sequences longer than --max-residues, dropped"},
      {result->duplicates, "repeated sequences dropped"},
  };
  char count[32], residues[32];
  for (size_t i = 0; i < sizeof dropped / sizeof dropped[0]; i++)
    if (dropped[i].count != 0)
      plm_info("%s: %s", dropped[i].what, plm_format_count(dropped[i].count, count));
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    const struct plm_corpus_split *split = &result->info.splits[s];
    plm_info("%s: %s documents, %s residues", plm_split_name((enum plm_split)s),
             plm_format_count(split->documents, count),
             plm_format_count(split->residues, residues));
    if (plm_corpus_keeps_clusters(&result->info))
      plm_info("%s: %s clusters", plm_split_name((enum plm_split)s),
               plm_format_count(split->clusters, count));
  }
  plm_info("%s: %.1f MB in %.2f s, %.0f MB/s (%.0f MB/s per core)", directory,
           1e-6 * (double)result->bytes, result->seconds,
           1e-6 * (double)result->bytes / result->seconds,
           1e-6 * (double)result->bytes / result->cpu_seconds);
}

static plm_status command_ingest_run(const struct plm_command_context *context,
                                     struct plm_error *error)
{
  struct plm_ingest_options ingest = {0};
  struct plm_ingest_result result;
  PLM_TRY(ingest_parse_options(context->arguments, &ingest, error));
  plm_stop_signals_install();
  PLM_TRY(plm_ingest(&ingest, &result, error));
  narrate(&result, ingest.writer.directory);
  if (!context->json) return PLM_OK;
  struct plm_corpus_description description;
  PLM_TRY(plm_corpus_description_read(ingest.writer.directory, &description, error));
  const plm_status status = plm_corpus_summary_json(&description, error);
  plm_corpus_description_deinit(&description);
  return status;
}

const struct plm_command plm_command_ingest = {
    .name = "ingest",
    .operands = "IN... --corpus DIR",
    .summary = "turn FASTA, JSONL, tables or text (plain, .gz, .zst, or - for stdin) into a corpus",
    .details =
        "A file's name determines its format (.fasta .fa .faa .fas, .jsonl, .csv .tsv, then "
        ".gz or .zst); for -, .txt and other names, the first byte does. An object of JSONL has "
        "\"sequence\" and optionally \"name\" or \"id\". The first line of a table names its "
        "columns, of which --sequence-column and --name-column choose two; with one of these "
        "options, every file is a table. Text has one sequence on each line, without names: other "
        "tables, alignments and flat files of databases are refused. Letters become upper case; "
        "blanks, empty lines and one * at the end are dropped; letters outside the alphabet become "
        "<unk>. Any other character makes a record bad: it is reported and skipped.\n\n"
        "The hash of a sequence decides its split, so a sequence is always in the same one. "
        "Homologous proteins may be in different splits; --clusters keeps each cluster in one "
        "split and places its sequences next to each other. `mmseqs easy-cluster IN.fasta NAME "
        "TEMPORARY` writes such a file, NAME_cluster.tsv; the names that MMseqs2 shortens are "
        "found. "
        "A sequence that FILE.tsv does not name "
        "is a cluster of its own; if there are more than --unclustered allows, ingest stops. A "
        "sequence that it puts into several clusters stays in the "
        "first; "
        "with --strict, it is an error. --clusters needs room on the disk for the sequences as "
        "text.\n\n"
        "--labels keeps columns of a table as labels, for models that predict them: numbers, "
        "classes, "
        "several classes (a;b), or one class for each residue; fields may be empty. Beside FASTA, "
        "--labels-table names the table, whose rows belong to the sequences with the same names. A "
        "label that does not fit its column is an error with line and column. --split-column takes "
        "the splits from the table.\n\n"
        "The corpus is written beside DIR, read back, compared and then renamed, so that DIR holds "
        "a complete corpus or nothing. Until then, it needs twice its size on the disk.",
    .options = options,
    .run = command_ingest_run,
};
