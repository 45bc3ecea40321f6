/* Reads sequences from files, encodes them as the model takes them, and puts them into the spool.
 */
#include "evaluator/embed/sequence_intake.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "common/base/log/progress.h"
#include "common/base/text/text.h"
#include "common/sequences/sequence_files.h"

enum { LEAST_MAX_RESIDUES = 1 << 20 }; /* a line of JSONL may always hold this many */

struct intake {
  const struct plm_intake_options *options;
  struct plm_sequence_spool *spool;
  struct plm_intake_counts *counts;
  void *tokens;         /* (max_length) of token_bytes */
  struct plm_text line; /* a name, and the fields of a table behind it */
  bool any;             /* a record was taken */
};

static void put_token(const struct intake *intake, uint32_t place, uint16_t token)
{
  if (intake->options->tokenizer->token_bytes == 1)
    ((uint8_t *)intake->tokens)[place] = (uint8_t)token;
  else
    ((uint16_t *)intake->tokens)[place] = token;
}

static bool is_chain_break(const struct intake *intake, uint8_t residue)
{
  return intake->options->choices.chains && residue == PLM_SEQUENCE_CHAIN;
}

static void count_unknown(const struct intake *intake, const uint8_t *residues, uint32_t count)
{
  const struct plm_tokenizer *tokenizer = intake->options->tokenizer;
  uint64_t unknown = 0;
  for (uint32_t i = 0; i < count; i++)
    unknown += plm_tokenizer_encode(tokenizer, residues[i]) == tokenizer->unk &&
               !is_chain_break(intake, residues[i]);
  intake->counts->unknown_residues += unknown;
  intake->counts->unknown_sequences += unknown > 0;
}

/* Whether there is anything beside the name and the sequence, as there may be in a table. */
static bool has_more(const struct plm_sequence *sequence)
{
  return sequence->columns != NULL && strcmp(sequence->columns, "[]") != 0;
}

/* The columns are those of the first record, and every other one has them too. */
static plm_status take_columns(struct intake *intake, size_t file,
                               const struct plm_sequence *sequence, struct plm_error *error)
{
  const char *before = intake->counts->columns,
             *now = has_more(sequence) ? sequence->columns : NULL;
  if (!intake->any && now != NULL) intake->counts->columns = plm_strdup(now);
  const bool same = before == NULL || now == NULL ? before == now : strcmp(before, now) == 0;
  if (intake->any && !same) {
    plm_error_set(error, PLM_FORMAT, "%s has other columns than %s", intake->options->inputs[file],
                  intake->options->inputs[0]);
    return plm_error_hint(error, "run the command on each of them");
  }
  intake->any = true;
  return PLM_OK;
}

/* Adds what is in intake->tokens. */
static plm_status add_to_spool(struct intake *intake, const struct plm_sequence *sequence,
                               uint32_t tokens, struct plm_error *error)
{
  if (!has_more(sequence))
    return plm_sequence_spool_add(intake->spool, sequence->name, sequence->name_size,
                                  intake->tokens, tokens, error);
  plm_text_clear(&intake->line);
  plm_text_append(&intake->line, sequence->name, sequence->name_size);
  plm_text_printf(&intake->line, "\t%s", sequence->fields);
  return plm_sequence_spool_add(intake->spool, intake->line.data, intake->line.length,
                                intake->tokens, tokens, error);
}

static plm_status intake_on_record(void *context, size_t file, const struct plm_sequence *sequence,
                                   struct plm_error *error)
{
  struct intake *intake = context;
  const struct plm_tokenizer *tokenizer = intake->options->tokenizer;
  const uint32_t limit = intake->options->max_length;
  const bool whole = sequence->length + 2 <= limit;
  const bool ends = whole || intake->options->keep_eos;
  const uint32_t most = limit - 1 - ends; /* beside <cls> and <eos> */
  const uint32_t residues = sequence->size < most ? (uint32_t)sequence->size : most;
  PLM_TRY(take_columns(intake, file, sequence, error));
  put_token(intake, 0, tokenizer->cls);
  plm_tokenizer_encode_all(tokenizer, sequence->residues, residues,
                           (char *)intake->tokens + tokenizer->token_bytes);
  for (uint32_t i = 0; i < residues && intake->options->choices.chains; i++)
    if (is_chain_break(intake, sequence->residues[i]))
      put_token(intake, i + 1, intake->options->chain_break);
  if (ends) put_token(intake, residues + 1, tokenizer->eos);
  count_unknown(intake, sequence->residues, residues);
  intake->counts->cut += !whole;
  const uint32_t trained = intake->options->trained;
  intake->counts->longer += whole && trained != 0 && sequence->length + 2 > trained;
  if (residues + 1 + ends > intake->counts->longest) intake->counts->longest = residues + 1 + ends;
  return add_to_spool(intake, sequence, residues + 1 + ends, error);
}

static plm_status sequence_intake_read_files(struct intake *intake, struct plm_error *error)
{
  const struct plm_intake_options *options = intake->options;
  struct plm_progress progress;
  struct plm_sequence_files files = {.paths = options->inputs,
                                     .path_count = options->input_count,
                                     .tokenizer = options->tokenizer->kind,
                                     .max_residues = options->max_length > LEAST_MAX_RESIDUES
                                                         ? options->max_length
                                                         : LEAST_MAX_RESIDUES,
                                     .keep_heads = true,
                                     .strict = options->strict,
                                     .choices = options->choices,
                                     .progress = &progress,
                                     .stop_consequence = " while reading; nothing was written",
                                     .context = intake,
                                     .on_record = intake_on_record};
  struct plm_sequence_file_counts counts;
  PLM_TRY(plm_sequence_files_check(files.paths, files.path_count, &files.total_bytes, error));
  plm_progress_begin(&progress, "read");
  const plm_status status = plm_sequence_files_read(&files, &counts, NULL, error);
  plm_progress_clear(&progress);
  intake->counts->bad = counts.bad;
  return status;
}

/* Warns about what the result does not show. */
static void sequence_intake_warn(const struct intake *intake)
{
  const struct plm_intake_counts *counts = intake->counts;
  char number[32], sequences[64];
  if (counts->bad > 0)
    plm_warning("bad records skipped: %s", plm_format_count(counts->bad, number));
  if (counts->cut > 0)
    plm_warning("sequences longer than the max_length of %u tokens, cut to their first %u: %s",
                intake->options->max_length, intake->options->max_length,
                plm_format_count(counts->cut, number));
  if (counts->longer > 0)
    plm_warning("sequences longer than the %u tokens that the model was trained with, read whole: "
                "%s; --max-length %u cuts them",
                intake->options->trained, plm_format_count(counts->longer, number),
                intake->options->trained);
  if (counts->unknown_residues > 0)
    plm_warning("residues outside the alphabet, taken as <unk>: %s, in %s",
                plm_format_count(counts->unknown_residues, number),
                plm_format_quantity(counts->unknown_sequences, "sequence", sequences));
}

plm_status plm_sequence_intake(const struct plm_intake_options *options,
                               struct plm_sequence_spool *spool, struct plm_intake_counts *counts,
                               struct plm_error *error)
{
  struct intake intake = {.options = options, .spool = spool, .counts = counts};
  *counts = (struct plm_intake_counts){0};
  PLM_ASSERT(options->max_length >= 2);
  intake.tokens = plm_alloc((size_t)options->max_length * options->tokenizer->token_bytes);
  plm_status status = sequence_intake_read_files(&intake, error);
  if (status == PLM_OK) status = plm_sequence_spool_finish(spool, error);
  if (status == PLM_OK) sequence_intake_warn(&intake);
  free(intake.tokens);
  plm_text_deinit(&intake.line);
  return status;
}
