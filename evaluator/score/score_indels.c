/* Checks all sequences of a table, then scores and writes them one by one. */
#include "evaluator/score/score_indels.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

#include "common/base/log/progress.h"
#include "common/run/stop.h"
#include "evaluator/score/indel_scorer.h"
#include "evaluator/score/score_output.h"
#include "evaluator/score/wild_type_file.h"

struct work {
  const char *table;
  struct plm_variant_reader *reader;
  struct plm_indel_scorer *scorer;
  struct plm_score_output *output;
  struct plm_text fields, letters; /* of one row */
  struct plm_progress progress;
  uint32_t longest;                   /* residues */
  uint64_t sequences, residues, done; /* residues: the passes of all sequences */
};

static plm_status check_letters(const struct plm_variant_entry *entry, struct plm_error *error)
{
  if (entry->size == 0) return plm_error_set(error, PLM_FORMAT, "there is no sequence");
  if (entry->size > PLM_WILD_TYPE_LIMIT)
    return plm_error_set(error, PLM_LIMIT, "a sequence has at most %d residues, not %zu",
                         PLM_WILD_TYPE_LIMIT, entry->size);
  for (size_t i = 0; i < entry->size; i++)
    if (!isalpha((unsigned char)entry->text[i]))
      return plm_error_set(error, PLM_FORMAT, "letter %zu of the sequence is not a residue", i + 1);
  return PLM_OK;
}

static plm_status score_indels_check_all(struct work *work, struct plm_error *error)
{
  for (;;) {
    struct plm_variant_entry entry;
    bool ended;
    plm_status status = plm_variant_reader_next(work->reader, &entry, &ended, error);
    if (ended) return status;
    if (status == PLM_OK) status = check_letters(&entry, error);
    if (status != PLM_OK) {
      plm_variant_reader_where(work->reader, error);
      return status;
    }
    work->sequences++;
    work->residues += entry.size;
    if (entry.size > work->longest) work->longest = (uint32_t)entry.size;
  }
}

static plm_status score_row(struct work *work, const struct plm_variant_entry *entry,
                            struct plm_error *error)
{
  double score, written;
  if (check_letters(entry, error) != PLM_OK || entry->size > work->longest)
    return plm_error_set(error, PLM_FORMAT, "%s changed while it was read", work->table);
  plm_text_clear(&work->fields);
  plm_text_clear(&work->letters);
  plm_variant_reader_fields(work->reader, entry, &work->fields);
  plm_text_append(&work->letters, entry->text, entry->size);
  for (size_t i = 0; i < work->letters.length; i++)
    work->letters.data[i] = (char)toupper((unsigned char)work->letters.data[i]);
  const plm_status status = plm_indel_scorer_run(work->scorer, work->letters.data,
                                                 (uint32_t)work->letters.length, &score, error);
  if (status == PLM_NOT_FINITE && error->where[0] == '\0')
    plm_variant_reader_where(work->reader, error);
  PLM_TRY(status);
  const struct plm_score_row row = {
      .fields = work->fields.data,
      .fields_size = work->fields.length,
      .mutant = work->letters.data,
      .mutant_size = work->letters.length,
      .score = score,
      .measured = NAN,
  };
  return plm_score_output_add(work->output, &row, &written, error);
}

static plm_status score_all(struct work *work, const char *output, struct plm_error *error)
{
  struct plm_text header = {0};
  uint64_t scored = 0;
  PLM_TRY(plm_variant_reader_rewind(work->reader, error));
  plm_variant_reader_header(work->reader, &header);
  plm_status status =
      plm_score_output_open(output, false, false, header.data, header.length, &work->output, error);
  plm_text_deinit(&header);
  while (status == PLM_OK) {
    struct plm_variant_entry entry;
    bool ended;
    status = plm_variant_reader_next(work->reader, &entry, &ended, error);
    if (ended) break;
    if (status == PLM_OK) status = score_row(work, &entry, error);
    work->done += entry.size;
    plm_progress_update(&work->progress, work->done, work->residues, work->done, ++scored,
                        "sequence");
  }
  return status == PLM_OK ? plm_score_output_finish(work->output, NULL, error) : status;
}

static plm_status make_room(struct plm_inference *inference, const struct plm_wild_type *wild_type,
                            uint32_t longest, struct plm_error *error)
{
  const uint32_t most = plm_inference_most(inference);
  const uint32_t tokens = (longest > wild_type->length ? longest : wild_type->length) + 2;
  return plm_inference_make_room(inference, tokens < most ? tokens : most, error);
}

plm_status plm_score_indels(const struct plm_variant_reader_request *reader, const char *output,
                            enum plm_score_masking masking, struct plm_inference *inference,
                            const struct plm_wild_type *wild_type, struct plm_error *error)
{
  struct work work = {0};
  plm_progress_begin(&work.progress, "score");
  work.progress.rate_unit = "residues";
  work.table = reader->csv;
  plm_status status = plm_variant_reader_open(reader, wild_type, &work.reader, error);
  if (status == PLM_OK) status = score_indels_check_all(&work, error);
  if (status == PLM_OK) status = make_room(inference, wild_type, work.longest, error);
  if (status == PLM_OK)
    status = plm_indel_scorer_open(inference, wild_type, masking, &work.scorer, error);
  if (status == PLM_OK) status = score_all(&work, output, error);
  plm_progress_clear(&work.progress);
  plm_score_output_close(work.output);
  plm_indel_scorer_close(work.scorer);
  plm_variant_reader_close(work.reader);
  plm_text_deinit(&work.fields);
  plm_text_deinit(&work.letters);
  return status;
}
