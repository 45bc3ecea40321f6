/* The command line of `plm-evaluator score`. */
#include <stdint.h>
#include <string.h>

#include "common/base/text/name_list.h"
#include "common/base/text/text.h"
#include "common/cli/output_file.h"
#include "common/cli/sequence_options.h"
#include "common/cli/task_options.h"
#include "evaluator/score/position_scores.h"
#include "evaluator/score/score_assays.h"
#include "evaluator/score/score_variants.h"
#include "evaluator/task/task.h"

/* The variants come from operands, --csv or --all, and only one of them may be given. */
static plm_status choose_reader(const struct plm_arguments *arguments,
                                struct plm_variant_reader_request *reader, struct plm_error *error)
{
  const bool all = plm_arguments_has(arguments, "all"), words = arguments->positional_count != 0;
  reader->csv = plm_arguments_get(arguments, "csv");
  reader->texts = words ? arguments->positionals : NULL;
  reader->text_count = arguments->positional_count;
  reader->mutations = plm_arguments_get(arguments, "mutations");
  reader->measured = plm_arguments_get(arguments, "measured");
  reader->added = plm_arguments_get(arguments, "score-column");
  if ((reader->csv != NULL) + all + words != 1) {
    plm_error_set(error, PLM_USAGE,
                  "give the variants in one of three ways: MUTATION..., --csv FILE or --all");
    return plm_error_hint(error, "for example A42G A42G:L7P, or --csv variants.csv, or --all; "
                                 "--per-position needs no variants");
  }
  const char *stray = reader->csv != NULL         ? NULL
                      : reader->mutations != NULL ? "mutations"
                      : reader->measured != NULL  ? "measured"
                                                  : NULL;
  if (stray != NULL)
    return plm_error_set(error, PLM_USAGE,
                         "--%s names a column of a CSV file, so it needs --csv FILE", stray);
  if (reader->mutations == NULL) reader->mutations = "mutant";
  if (reader->added == NULL) reader->added = "score";
  return PLM_OK;
}

static plm_status choose_masking(const struct plm_arguments *arguments,
                                 enum plm_score_masking *choice, struct plm_error *error)
{
  const char *masking = plm_arguments_get(arguments, "masking");
  *choice = PLM_SCORE_ADDITIVE;
  if (masking == NULL) return PLM_OK;
  const int found = plm_text_find(plm_score_masking_names, masking);
  if (found >= 0) {
    *choice = (enum plm_score_masking)found;
    return PLM_OK;
  }
  plm_error_set(error, PLM_USAGE, "--masking must be additive, joint or none, not \"%.80s\"",
                masking);
  return plm_error_hint(error, "what ESM's scripts call masked-marginals is additive, and "
                               "wt-marginals is none");
}

/* --per-position takes no variants, and every other option that concerns them is refused. */
static plm_status check_per_position(const struct plm_arguments *arguments,
                                     const struct plm_score_request *request,
                                     struct plm_error *error)
{
  static const char *const others[] = {"csv",          "all",  "mutations", "measured",
                                       "score-column", "plot", "json"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (plm_arguments_has(arguments, others[i]))
      return plm_error_set(error, PLM_USAGE, "--per-position cannot be combined with --%s",
                           others[i]);
  if (arguments->positional_count != 0) {
    plm_error_set(error, PLM_USAGE,
                  "--per-position scores every position, so it takes no variants");
    return plm_error_hint(error, "leave out %.80s, or leave out --per-position",
                          arguments->positionals[0]);
  }
  if (request->masking == PLM_SCORE_JOINT)
    return plm_error_set(error, PLM_USAGE,
                         "--per-position masks one position at a time: leave out --masking joint");
  return PLM_OK;
}

static plm_status run_task(const struct plm_arguments *arguments,
                           const struct plm_score_request *request, bool per_position,
                           struct plm_error *error)
{
  struct plm_ops *ops;
  PLM_TRY(plm_task_open_ops(arguments, (struct plm_ops_request){0}, &ops, error));
  const plm_status status = per_position ? plm_score_positions(request, ops, error)
                                         : plm_score_variants(request, ops, error);
  ops->close(ops);
  return status;
}

/* ---- --assays ---- */

/* --assays brings its own proteins and variants, so options that concern others are refused. */
static plm_status check_assays(const struct plm_arguments *arguments, struct plm_error *error)
{
  static const char *const others[] = {"wild-type",    "csv",      "all",
                                       "mutations",    "measured", "plot",
                                       "per-position", "offset",   "score-column"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (plm_arguments_has(arguments, others[i]))
      return plm_error_set(error, PLM_USAGE, "--assays cannot be combined with --%s", others[i]);
  if (arguments->positional_count != 0)
    return plm_error_set(error, PLM_USAGE,
                         "--assays brings its own variants: leave out %.80s, or --assays",
                         arguments->positionals[0]);
  PLM_TRY(plm_task_needs(arguments, plm_score_options, "reference",
                         "the list of assays, for example DMS_substitutions.csv", error));
  return plm_task_needs(arguments, plm_score_options, "scores",
                        "a folder for the scores, where an interrupted command continues", error);
}

/* --ids and --max-variants; ids is to be freed even after an error. */
static plm_status choose_assays(const struct plm_arguments *arguments, struct plm_name_list *ids,
                                struct plm_assay_choice *choice, struct plm_error *error)
{
  unsigned long long most;
  plm_name_list_init(ids, plm_arguments_get(arguments, "ids"));
  PLM_TRY(plm_arguments_u64(arguments, "max-variants", 0, &most, error));
  if (most == 0 && plm_arguments_has(arguments, "max-variants"))
    return plm_error_set(error, PLM_USAGE, "--max-variants must be at least 1");
  if (ids->count == 0 && plm_arguments_has(arguments, "ids"))
    return plm_error_set(error, PLM_USAGE, "--ids names no assay");
  *choice =
      (struct plm_assay_choice){.ids = ids->names, .id_count = ids->count, .max_variants = most};
  return PLM_OK;
}

static plm_status score_chosen(const struct plm_arguments *arguments,
                               struct plm_assays_request *request, struct plm_error *error)
{
  struct plm_name_list ids;
  struct plm_ops *ops;
  plm_status status = choose_assays(arguments, &ids, &request->choice, error);
  if (status == PLM_OK)
    status = plm_task_open_ops(arguments, (struct plm_ops_request){0}, &ops, error);
  if (status == PLM_OK) {
    status = plm_score_assays(request, ops, error);
    ops->close(ops);
  }
  plm_name_list_deinit(&ids);
  return status;
}

static plm_status run_assays(const struct plm_arguments *arguments, struct plm_error *error)
{
  struct plm_assays_request request = {
      .checkpoint = plm_arguments_get(arguments, "checkpoint"),
      .weights = plm_arguments_get(arguments, "weights"),
      .reference = plm_arguments_get(arguments, "reference"),
      .assays = plm_arguments_get(arguments, "assays"),
      .scores = plm_arguments_get(arguments, "scores"),
      .masking_given = plm_arguments_has(arguments, "masking"),
      .output = plm_arguments_get(arguments, "output"),
      .json = plm_arguments_has(arguments, "json"),
  };
  PLM_TRY(check_assays(arguments, error));
  PLM_TRY(plm_output_check_inputs("--output", request.output, &request.reference, 1, error));
  PLM_TRY(plm_task_max_length(arguments, &request.max_length, error));
  PLM_TRY(choose_masking(arguments, &request.masking, error));
  if (request.json) PLM_TRY(plm_output_check_stdout(request.output, "--json", error));
  return score_chosen(arguments, &request, error);
}

static plm_status task_score_run(const struct plm_arguments *arguments, struct plm_error *error)
{
  const bool per_position = plm_arguments_has(arguments, "per-position");
  struct plm_score_request request = {
      .checkpoint = plm_arguments_get(arguments, "checkpoint"),
      .weights = plm_arguments_get(arguments, "weights"),
      .wild_type = plm_arguments_get(arguments, "wild-type"),
      .output = plm_arguments_get(arguments, "output"),
      .masking_given = plm_arguments_has(arguments, "masking"),
      .json = plm_arguments_has(arguments, "json"),
      .plot = plm_arguments_has(arguments, "plot"),
  };
  long long first;
  PLM_TRY(plm_task_needs(arguments, plm_score_options, "checkpoint",
                         "a checkpoint, for example runs/demo/checkpoints/latest", error));
  if (plm_arguments_has(arguments, "assays")) return run_assays(arguments, error);
  for (size_t i = 0; i < 4; i++) {
    static const char *const only[] = {"reference", "scores", "ids", "max-variants"};
    if (plm_arguments_has(arguments, only[i]))
      return plm_error_set(error, PLM_USAGE, "--%s belongs to --assays DIR", only[i]);
  }
  PLM_TRY(plm_task_needs(arguments, plm_score_options, "wild-type",
                         "a FASTA file with one sequence, or its letters", error));
  /* --csv may also be the output: its columns stay */
  PLM_TRY(plm_output_check_inputs("--output", request.output, &request.wild_type, 1, error));
  PLM_TRY(plm_task_max_length(arguments, &request.max_length, error));
  PLM_TRY(plm_sequence_options_parse(arguments, &request.choices, error));
  PLM_TRY(choose_masking(arguments, &request.masking, error));
  if (per_position) {
    PLM_TRY(check_per_position(arguments, &request, error));
    if (request.output == NULL) request.output = "-";
  } else {
    PLM_TRY(choose_reader(arguments, &request.reader, error));
  }
  PLM_TRY(plm_arguments_color(arguments, &request.color, error));
  if (request.plot && (!plm_arguments_has(arguments, "all") || request.json))
    return plm_error_set(error, PLM_USAGE,
                         "--plot needs --all, and cannot be combined with --json");
  if (request.json || request.plot)
    PLM_TRY(plm_output_check_stdout(request.output, request.json ? "--json" : "--plot", error));
  PLM_TRY(plm_arguments_i64(arguments, "offset", 1, &first, error));
  request.first = first;
  if (first > 1000000000 || first < -1000000000)
    return plm_error_set(error, PLM_USAGE, "--offset %lld is not within -1000000000 to 1000000000",
                         first);
  if (request.reader.csv != NULL && strcmp(request.reader.csv, "-") == 0 &&
      strcmp(request.wild_type, "-") == 0)
    return plm_error_set(error, PLM_USAGE, "--wild-type and --csv cannot both be standard input");
  return run_task(arguments, &request, per_position, error);
}

const struct plm_program plm_task_score = {
    .name = "plm-evaluator score",
    .usage = "usage: plm-evaluator score --checkpoint DIR --wild-type FILE MUTATION... [options]\n"
             "       plm-evaluator score --checkpoint DIR --wild-type FILE --csv FILE [options]\n"
             "       plm-evaluator score --checkpoint DIR --wild-type FILE --all [options]\n"
             "       plm-evaluator score --checkpoint DIR --wild-type FILE --per-position "
             "[options]\n"
             "       plm-evaluator score --checkpoint DIR --assays DIR --reference FILE --scores "
             "DIR [options]\n\n"
             "Scores substitutions by how likely the model finds them at their positions.\n",
    .options = plm_score_options,
    .operands = SIZE_MAX,
    .run = task_score_run,
};
