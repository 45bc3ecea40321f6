/* Reads one sequence from a file or from the command line. */
#include "evaluator/score/wild_type_file.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/sequences/sequence_reader.h"

/* The name that messages use for letters on the command line. */
#define LETTERS "--wild-type"

void plm_wild_type_deinit(struct plm_wild_type *wild_type)
{
  free((void *)wild_type->name);
  free((void *)wild_type->residues);
  *wild_type = (struct plm_wild_type){0};
}

static bool is_letters(const char *text)
{
  while (isalpha((unsigned char)*text)) text++;
  return *text == '\0';
}

static plm_status open_reader(const char *text, const struct plm_sequence_choices *choices,
                              enum plm_tokenizer_kind tokenizer,
                              struct plm_sequence_reader **reader, struct plm_error *error)
{
  struct plm_byte_stream *stream;
  const bool letters = strcmp(text, "-") != 0 && !plm_file_exists(text);
  if (!letters) {
    PLM_TRY(plm_byte_stream_open(text, &stream, error));
  } else if (text[0] != '\0' && (tokenizer == PLM_TOKENIZER_BYTE || is_letters(text))) {
    PLM_TRY(plm_byte_stream_open_memory(LETTERS, text, strlen(text), &stream, error));
  } else {
    plm_error_set(error, PLM_NOT_FOUND, "--wild-type %.200s: no such file, and not a sequence",
                  text);
    if (strchr(text, PLM_SEQUENCE_CHAIN) != NULL)
      return plm_error_hint(error, "`|` separates the chains of a protein, which only embed with "
                                   "ESM-C takes; score each chain by itself");
    return plm_error_hint(error, "give a FASTA file with one sequence, or the letters themselves");
  }
  *reader = plm_sequence_reader_open(stream, tokenizer, PLM_WILD_TYPE_LIMIT);
  static const struct plm_sequence_choices any = {.gaps = PLM_GAPS_KEEP, .nucleotides = true};
  if (letters) plm_sequence_reader_read_as_text(*reader);
  plm_sequence_reader_choose(*reader, letters ? &any : choices);
  return PLM_OK;
}

static plm_status next_sequence(struct plm_sequence_reader *reader, struct plm_sequence *sequence,
                                bool *ended, struct plm_error *error)
{
  const enum plm_sequence_result result =
      plm_sequence_reader_next_unless_stopped(reader, " while reading", sequence, error);
  *ended = result == PLM_SEQUENCE_END;
  return result == PLM_SEQUENCE_READ || *ended ? PLM_OK : error->status;
}

static plm_status read_one(struct plm_sequence_reader *reader, struct plm_wild_type *wild_type,
                           struct plm_error *error)
{
  const char *file = plm_byte_stream_name(plm_sequence_reader_stream(reader));
  struct plm_sequence sequence;
  bool ended;
  PLM_TRY(next_sequence(reader, &sequence, &ended, error));
  if (ended) return plm_error_set(error, PLM_FORMAT, "%s has no sequence", file);
  if (sequence.too_long)
    return plm_error_set(error, PLM_LIMIT, "%s: a wild type has at most %d residues, not %llu",
                         file, PLM_WILD_TYPE_LIMIT, (unsigned long long)sequence.length);
  uint8_t *residues = plm_alloc(sequence.size);
  wild_type->name = strcmp(file, LETTERS) == 0 ? plm_strdup("the sequence given")
                                               : plm_strndup(sequence.name, sequence.name_size);
  wild_type->residues = residues;
  wild_type->length = (uint32_t)sequence.size;
  memcpy(residues, sequence.residues, sequence.size);
  PLM_TRY(next_sequence(reader, &sequence, &ended, error));
  if (ended) return PLM_OK;
  plm_error_set(error, PLM_FORMAT, "%s has more than one sequence", file);
  return plm_error_hint(error, "variants are scored against one wild type: give a file with only "
                               "that, or its letters");
}

plm_status plm_wild_type_read(const char *text, const struct plm_sequence_choices *choices,
                              enum plm_tokenizer_kind tokenizer, int64_t first,
                              struct plm_wild_type *wild_type, struct plm_error *error)
{
  struct plm_sequence_reader *reader = NULL;
  struct plm_error unseen;
  if (error == NULL) error = &unseen;
  *wild_type = (struct plm_wild_type){.first = first, .tokenizer = tokenizer};
  PLM_TRY(open_reader(text, choices, tokenizer, &reader, error));
  const plm_status status = read_one(reader, wild_type, error);
  plm_sequence_reader_close(reader);
  if (status != PLM_OK) plm_wild_type_deinit(wild_type);
  return status;
}
