/* From files to a spool. */
#include "evaluator/embed/sequence_intake.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/sequences/bad_record.h"
#include "common/sequences/sequence_reader.h"
#include "evaluator/task.h"

enum {
  RECORDS_BETWEEN_LOOKS = 64,  /* at the clock */
  LEAST_MAX_RESIDUES = 1 << 20 /* what a line of JSONL may hold in any case */
};

struct intake {
  const struct plm_intake_options *options;
  struct plm_sequence_spool *spool;
  struct plm_intake_counts *counts;
  struct plm_progress progress;
  uint64_t bytes; /* of the files before this one, uncompressed */
  void *tokens;   /* (max_length) of token_bytes */
};

static void put_token(const struct intake *intake, uint32_t place, uint16_t token)
{
  if (intake->options->tokenizer->token_bytes == 1)
    ((uint8_t *)intake->tokens)[place] = (uint8_t)token;
  else
    ((uint16_t *)intake->tokens)[place] = token;
}

static void count_unknown(const struct intake *intake, const uint8_t *residues, uint32_t count)
{
  const struct plm_tokenizer *tokenizer = intake->options->tokenizer;
  uint64_t unknown = 0;
  for (uint32_t i = 0; i < count; i++)
    unknown += plm_tokenizer_encode(tokenizer, residues[i]) == tokenizer->unk;
  intake->counts->unknown_residues += unknown;
  intake->counts->unknown_sequences += unknown > 0;
}

static plm_status take_record(struct intake *intake, const struct plm_sequence *sequence,
                              struct plm_error *error)
{
  const struct plm_tokenizer *tokenizer = intake->options->tokenizer;
  const uint32_t limit = intake->options->max_length;
  const bool whole = sequence->length + 2 <= limit;
  const uint32_t residues =
      sequence->size < limit - 1 ? (uint32_t)sequence->size : limit - 1; /* beside <cls> */
  put_token(intake, 0, tokenizer->cls);
  plm_tokenizer_encode_all(tokenizer, sequence->residues, residues,
                           (char *)intake->tokens + tokenizer->token_bytes);
  if (whole) put_token(intake, residues + 1, tokenizer->eos);
  count_unknown(intake, sequence->residues, residues);
  intake->counts->cut += !whole;
  return plm_sequence_spool_add(intake->spool, sequence->name, sequence->name_size, intake->tokens,
                                residues + 1 + whole, error);
}

static plm_status read_records(struct intake *intake, struct plm_sequence_reader *reader,
                               struct plm_error *error)
{
  const struct plm_byte_stream *stream = plm_sequence_reader_stream(reader);
  for (uint64_t records = 0;;) {
    struct plm_sequence sequence;
    struct plm_error local = {0}; /* a bad record is no failure yet */
    plm_status status = PLM_OK;
    PLM_TRY(plm_task_stopped(" while reading; nothing was written", error));
    switch (plm_sequence_reader_next(reader, &sequence, &local)) {
    case PLM_SEQUENCE_READ: status = take_record(intake, &sequence, &local); break;
    case PLM_SEQUENCE_BAD:
      status =
          plm_bad_record(intake->options->strict, &intake->counts->bad, &intake->progress, &local);
      break;
    case PLM_SEQUENCE_FAILED: status = local.status; break;
    case PLM_SEQUENCE_AGAIN: continue;
    case PLM_SEQUENCE_END: return PLM_OK;
    }
    if (status != PLM_OK) {
      if (error != NULL) *error = local;
      return status;
    }
    if (++records % RECORDS_BETWEEN_LOOKS == 0)
      plm_progress_update(&intake->progress, plm_byte_stream_consumed(stream),
                          plm_byte_stream_total(stream),
                          intake->bytes + plm_byte_stream_produced(stream),
                          plm_sequence_spool_count(intake->spool), "sequences");
  }
}

static plm_status read_file(struct intake *intake, const char *path, struct plm_error *error)
{
  const struct plm_intake_options *options = intake->options;
  const uint64_t bad_before = intake->counts->bad;
  const uint64_t good_before = plm_sequence_spool_count(intake->spool);
  const uint64_t most =
      options->max_length > LEAST_MAX_RESIDUES ? options->max_length : LEAST_MAX_RESIDUES;
  struct plm_byte_stream *stream;
  struct plm_sequence_reader *reader;
  PLM_TRY(plm_byte_stream_open(path, &stream, error));
  PLM_TRY(plm_sequence_reader_open(stream, options->tokenizer->kind, most, &reader, error));
  plm_sequence_reader_keep_heads(reader);
  plm_status status = read_records(intake, reader, error);
  const uint64_t produced = plm_byte_stream_produced(stream);
  intake->bytes += produced;
  if (status == PLM_OK && plm_sequence_spool_count(intake->spool) == good_before) {
    const char *name = plm_byte_stream_name(stream);
    if (produced == 0)
      status = plm_error_set(error, PLM_FORMAT, "%s is empty", name);
    else
      status = plm_error_set(error, PLM_FORMAT, "%s has no good record, %" PRIu64 " bad", name,
                             intake->counts->bad - bad_before);
    plm_error_hint(error, "formats: .fasta .fa .faa .fas, .jsonl, .txt, each also .gz or .zst");
  }
  plm_sequence_reader_close(reader);
  return status;
}

/* What the result does not show by itself. */
static void warn(const struct intake *intake)
{
  const struct plm_intake_counts *counts = intake->counts;
  char number[32], sequences[32];
  if (counts->bad > 0)
    plm_warning("bad records skipped: %s", plm_format_count(counts->bad, number));
  if (counts->cut > 0)
    plm_warning("sequences longer than the model's max_length of %u tokens, cut to their first "
                "%u: %s",
                intake->options->max_length, intake->options->max_length,
                plm_format_count(counts->cut, number));
  if (counts->unknown_residues > 0)
    plm_warning("residues outside the alphabet, taken as <unk>: %s, in %s sequences",
                plm_format_count(counts->unknown_residues, number),
                plm_format_count(counts->unknown_sequences, sequences));
}

plm_status plm_sequence_intake(const struct plm_intake_options *options,
                               struct plm_sequence_spool *spool, struct plm_intake_counts *counts,
                               struct plm_error *error)
{
  struct intake intake = {.options = options, .spool = spool, .counts = counts};
  *counts = (struct plm_intake_counts){0};
  PLM_ASSERT(options->max_length >= 2);
  intake.tokens = malloc((size_t)options->max_length * options->tokenizer->token_bytes);
  if (intake.tokens == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  plm_progress_begin(&intake.progress, "read");
  plm_status status = PLM_OK;
  for (size_t i = 0; i < options->input_count && status == PLM_OK; i++)
    status = read_file(&intake, options->inputs[i], error);
  if (status == PLM_OK) status = plm_sequence_spool_finish(spool, error);
  plm_progress_clear(&intake.progress);
  if (status == PLM_OK) warn(&intake);
  free(intake.tokens);
  return status;
}
