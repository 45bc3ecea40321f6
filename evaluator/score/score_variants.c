/* Reads the variants twice: first to check all of them and to learn which positions have to be
 * masked, then to score and write them block by block. */
#include "evaluator/score/score_variants.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "common/base/log/progress.h"
#include "evaluator/measures/rank_correlation.h"
#include "evaluator/score/heat_map.h"
#include "evaluator/score/score_output.h"
#include "evaluator/score/wild_type_file.h"

enum { BLOCK = 16384, SHOWN_ERRORS = 20 };

struct scoring {
  const struct plm_score_request *request;
  struct plm_inference *inference;
  const struct plm_wild_type *wild_type;
  struct plm_variant_reader *reader;
  struct plm_variant_scorer *scorer;
  struct plm_score_output *output;
  uint64_t variants, wrong, read; /* checked, wrong ones of them, and read again */
  struct plm_numbering numbering;
  struct plm_error first_wrong;
  /* the block at hand */
  struct plm_variant *block; /* (BLOCK); their memory is reused */
  double *scores, *measured; /* (BLOCK) */
  struct plm_text fields;    /* of each entry: what its row has before the score, then its text */
  size_t *ends;              /* (BLOCK, 2) offsets in fields: the end of either */
  /* scores and measurements to compare */
  double *x, *y; /* (variants), if there are measurements */
  size_t pairs;
  double *map; /* (length of the wild type, PLM_HEAT_MAP_ROWS), for --plot; else NULL */
};

/* ---- checking ---- */

static void
log_without_hint(const struct plm_error *error) /* the hint is printed once, at the end */
{
  struct plm_error shown = *error;
  shown.hint[0] = '\0';
  plm_log_error(&shown);
}

/* The first error is not printed at once: if it remains the only one, the command ends with it. */
static void score_variants_report(struct scoring *scoring, struct plm_error *error)
{
  plm_variant_reader_where(scoring->reader, error);
  if (scoring->wrong++ == 0) {
    scoring->first_wrong = *error;
    return;
  }
  if (scoring->wrong == 2) log_without_hint(&scoring->first_wrong);
  if (scoring->wrong <= SHOWN_ERRORS) log_without_hint(error);
}

/* Checks one entry, and reports if it is wrong. */
static void check_entry(struct scoring *scoring, const struct plm_variant_entry *entry,
                        struct plm_variant *variant, struct plm_error *error)
{
  plm_status status =
      plm_variant_parse(scoring->wild_type, entry->text, entry->size, variant, error);
  if (status == PLM_OK) status = plm_variant_scorer_expect(scoring->scorer, variant, error);
  if (status != PLM_OK) score_variants_report(scoring, error);
  plm_numbering_add(&scoring->numbering, scoring->wild_type->tokenizer, entry->text, entry->size);
}

static plm_status score_variants_explain(struct scoring *scoring, struct plm_error *error)
{
  char wrong[32], all[32];
  int64_t fit;
  const bool fits = plm_numbering_fit(&scoring->numbering, scoring->wild_type, &fit);
  if (scoring->variants > 1) { /* else the error is that of the only one */
    if (scoring->wrong == 1) log_without_hint(&scoring->first_wrong);
    plm_error_set(error, PLM_FORMAT, "%s of %s variants cannot be scored, so none was scored",
                  plm_format_count(scoring->wrong, wrong),
                  plm_format_count(scoring->variants, all));
    memcpy(error->hint, scoring->first_wrong.hint, sizeof error->hint);
  }
  if (fits && fit != scoring->wild_type->first && !scoring->request->fixed_first)
    plm_error_hint(error, "all variants fit with --offset %lld", (long long)fit);
  return error->status;
}

static plm_status score_variants_check_all(struct scoring *scoring, struct plm_error *error)
{
  struct plm_variant variant = {0};
  plm_status status;
  for (;;) {
    struct plm_variant_entry entry;
    bool ended;
    status = plm_variant_reader_next(scoring->reader, &entry, &ended, error);
    if (ended) break;
    scoring->variants++;
    if (status == PLM_OK)
      check_entry(scoring, &entry, &variant, error);
    else
      score_variants_report(scoring, error);
  }
  plm_variant_deinit(&variant);
  if (status != PLM_OK) return status;
  if (scoring->wrong != 0) return score_variants_explain(scoring, error);
  if (scoring->variants == 0) {
    plm_error_set(error, PLM_FORMAT, "there are no variants to score");
    return plm_error_hint(error, "the wild type or the CSV file has no rows");
  }
  return PLM_OK;
}

/* ---- scoring ---- */

static void keep_pair(struct scoring *scoring, double score, double measured)
{
  if (isnan(measured)) return;
  scoring->x[scoring->pairs] = score;
  scoring->y[scoring->pairs++] = measured;
}

static void keep_in_map(struct scoring *scoring, const struct plm_variant *variant, double score)
{
  const int row = variant->count == 1 ? plm_heat_map_row(variant->items[0].mutant) : -1;
  if (row < 0) return;
  scoring->map[(size_t)variant->items[0].place * PLM_HEAT_MAP_ROWS + (size_t)row] = score;
}

static void draw_map(const struct scoring *scoring)
{
  enum { COLUMNS = 100 }; /* if stdout is no terminal */
  struct winsize window = {0};
  (void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &window);
  if (window.ws_col == 0) window.ws_col = COLUMNS;
  plm_heat_map_draw(stdout, scoring->wild_type, scoring->map, window.ws_col,
                    scoring->request->color);
}

static plm_status has_changed(const struct scoring *scoring, struct plm_error *error)
{
  return plm_error_set(error, PLM_FORMAT, "%s changed while it was read",
                       scoring->request->reader.csv);
}

/* Reads the next entries, which have been checked, up to the size of a block. The file is opened
 * again, but there have to be as many as were checked, with the same positions, because memory was
 * taken for them. */
static plm_status read_block(struct scoring *scoring, size_t *count, struct plm_error *error)
{
  plm_text_clear(&scoring->fields);
  for (*count = 0; *count < BLOCK; ++*count) {
    struct plm_variant_entry entry;
    bool ended;
    PLM_TRY(plm_variant_reader_next(scoring->reader, &entry, &ended, error));
    if (ended && scoring->read == scoring->variants) break;
    if (ended || scoring->read++ == scoring->variants) return has_changed(scoring, error);
    struct plm_variant *variant = &scoring->block[*count];
    PLM_TRY(plm_variant_parse(scoring->wild_type, entry.text, entry.size, variant, error));
    if (!plm_variant_scorer_expects(scoring->scorer, variant)) return has_changed(scoring, error);
    plm_variant_reader_fields(scoring->reader, &entry, &scoring->fields);
    scoring->ends[2 * *count] = scoring->fields.length;
    plm_text_append(&scoring->fields, entry.text, entry.size);
    scoring->ends[2 * *count + 1] = scoring->fields.length;
    scoring->measured[*count] = entry.measured;
  }
  return PLM_OK;
}

static plm_status write_block(struct scoring *scoring, size_t count, struct plm_error *error)
{
  size_t begin = 0;
  for (size_t i = 0; i < count; i++) {
    const char *text = scoring->fields.data;
    const size_t fields = scoring->ends[2 * i], end = scoring->ends[2 * i + 1];
    const struct plm_score_row row = {
        .fields = text + begin,
        .fields_size = fields - begin,
        .mutant = text + fields,
        .mutant_size = end - fields,
        .score = scoring->scores[i],
        .measured = scoring->measured[i],
    };
    double written;
    PLM_TRY(plm_score_output_add(scoring->output, &row, &written, error));
    keep_pair(scoring, written, scoring->measured[i]);
    if (scoring->map != NULL) keep_in_map(scoring, &scoring->block[i], written);
    begin = end;
  }
  return PLM_OK;
}

static plm_status score_all(struct scoring *scoring, struct plm_error *error)
{
  const struct plm_score_request *request = scoring->request;
  size_t count;
  struct plm_text header = {0};
  if (request->reader.measured != NULL) {
    scoring->x = malloc(scoring->variants * sizeof *scoring->x);
    scoring->y = malloc(scoring->variants * sizeof *scoring->y);
    if (scoring->x == NULL || scoring->y == NULL)
      return plm_error_set(error, PLM_NO_MEMORY, "out of memory for %llu measurements",
                           (unsigned long long)scoring->variants);
  }
  PLM_TRY(plm_variant_reader_rewind(scoring->reader, error));
  plm_variant_reader_header(scoring->reader, &header);
  const plm_status status =
      plm_score_output_open(request->output, !request->json && !request->plot, request->json,
                            header.data, header.length, &scoring->output, error);
  plm_text_deinit(&header);
  if (status != PLM_OK) return status;
  for (;;) {
    PLM_TRY(read_block(scoring, &count, error));
    if (count == 0) return PLM_OK;
    PLM_TRY(plm_variant_scorer_run(scoring->scorer, scoring->block, count, scoring->scores, error));
    PLM_TRY(write_block(scoring, count, error));
  }
}

static plm_status score_variants_compare(struct scoring *scoring, struct plm_error *error)
{
  char variants[64], pairs[64];
  const char *measured = scoring->request->reader.measured;
  struct plm_rank_correlation correlation;
  plm_format_quantity(scoring->variants, "variant", variants);
  if (measured == NULL) {
    plm_info("%s of %s", variants, scoring->wild_type->name);
    return plm_score_output_finish(scoring->output, NULL, error);
  }
  PLM_TRY(plm_rank_correlate(scoring->x, scoring->y, scoring->pairs, &correlation, error));
  PLM_TRY(plm_score_output_finish(scoring->output, &correlation, error));
  char interval[80] = ""; /* three pairs or fewer have none */
  if (!isnan(correlation.low))
    snprintf(interval, sizeof interval, ", 95 %% interval %.4f to %.4f", correlation.low,
             correlation.high);
  if (isnan(correlation.value))
    plm_info("%s of %s; no correlation with %s, which has %s: too few, or all equal", variants,
             scoring->wild_type->name, measured,
             plm_format_quantity(scoring->pairs, "number", pairs));
  else
    plm_info("%s of %s; Spearman's correlation with %s (n = %s): %.4f%s", variants,
             scoring->wild_type->name, measured, plm_format_count(scoring->pairs, pairs),
             correlation.value, interval);
  return PLM_OK;
}

/* ---- opening and running ---- */

static plm_status score_variants_check_model(const struct plm_score_request *request,
                                             const struct plm_inference *inference,
                                             struct plm_error *error)
{
  const enum plm_tokenizer_kind tokenizer = inference->tokenizer->kind;
  const bool scan = request->reader.csv == NULL && request->reader.texts == NULL;
  if (inference->objective == PLM_OBJECTIVE_CAUSAL && request->masking_given) {
    plm_error_set(error, PLM_USAGE, "--masking: %s is a causal model, which masks nothing",
                  request->checkpoint);
    return plm_error_hint(
        error, "leave --masking out: a causal model compares the likelihoods of whole sequences");
  }
  if (scan && tokenizer == PLM_TOKENIZER_BYTE) {
    plm_error_set(error, PLM_USAGE, "--all: this model's letters are bytes, not amino acids");
    return plm_error_hint(error, "name the variants, or give them with --csv");
  }
  return PLM_OK;
}

static plm_status score_variants_open_all(struct scoring *scoring, struct plm_error *error)
{
  const struct plm_score_request *request = scoring->request;
  PLM_TRY(plm_variant_reader_open(&request->reader, scoring->wild_type, &scoring->reader, error));
  PLM_TRY(plm_variant_scorer_open(scoring->inference, scoring->wild_type, request->masking,
                                  &scoring->scorer, error));
  const size_t cells = (size_t)scoring->wild_type->length * PLM_HEAT_MAP_ROWS;
  if (request->plot) scoring->map = plm_alloc(cells * sizeof *scoring->map);
  for (size_t i = 0; i < cells && scoring->map != NULL; i++) scoring->map[i] = NAN;
  scoring->block = plm_alloc_zeroed(BLOCK, sizeof *scoring->block);
  scoring->scores = plm_alloc_zeroed(BLOCK, sizeof *scoring->scores);
  scoring->measured = plm_alloc_zeroed(BLOCK, sizeof *scoring->measured);
  scoring->ends = plm_alloc_zeroed(BLOCK, 2 * sizeof *scoring->ends);
  return PLM_OK;
}

static void score_variants_close_all(struct scoring *scoring)
{
  plm_score_output_close(scoring->output);
  plm_variant_scorer_close(scoring->scorer);
  plm_variant_reader_close(scoring->reader);
  plm_numbering_deinit(&scoring->numbering);
  for (size_t i = 0; i < BLOCK && scoring->block != NULL; i++)
    plm_variant_deinit(&scoring->block[i]);
  plm_text_deinit(&scoring->fields);
  free(scoring->block);
  free(scoring->scores);
  free(scoring->measured);
  free(scoring->ends);
  free(scoring->map);
  free(scoring->x);
  free(scoring->y);
}

plm_status plm_score_table(const struct plm_score_request *request, struct plm_inference *inference,
                           const struct plm_wild_type *wild_type, struct plm_error *error)
{
  struct scoring scoring = {.request = request, .inference = inference, .wild_type = wild_type};
  plm_status status = score_variants_open_all(&scoring, error);
  if (status == PLM_OK) status = score_variants_check_all(&scoring, error);
  if (status == PLM_OK) status = score_all(&scoring, error);
  if (status == PLM_OK) status = score_variants_compare(&scoring, error);
  if (status == PLM_OK && request->plot) draw_map(&scoring);
  score_variants_close_all(&scoring);
  return status;
}

plm_status plm_score_opened(
    const struct plm_score_request *request, struct plm_ops *ops,
    plm_status (*check)(const struct plm_score_request *request,
                        const struct plm_inference *inference, struct plm_error *error),
    plm_status (*score)(const struct plm_score_request *request, struct plm_inference *inference,
                        const struct plm_wild_type *wild_type, struct plm_error *error),
    struct plm_error *error)
{
  struct plm_inference *inference;
  struct plm_wild_type wild_type;
  PLM_TRY(plm_inference_open_verified(request->checkpoint, request->weights, ops,
                                      PLM_INFERENCE_BATCH_TOKENS, &inference, NULL, error));
  plm_status status = plm_inference_set_limit(inference, request->max_length, error);
  if (status == PLM_OK) status = check(request, inference, error);
  if (status == PLM_OK)
    status = plm_wild_type_read(request->wild_type, &request->choices, inference->tokenizer->kind,
                                request->first, &wild_type, error);
  if (status == PLM_OK) {
    status = score(request, inference, &wild_type, error);
    plm_wild_type_deinit(&wild_type);
  }
  plm_inference_close(inference);
  return status;
}

plm_status plm_score_variants(const struct plm_score_request *request, struct plm_ops *ops,
                              struct plm_error *error)
{
  return plm_score_opened(request, ops, score_variants_check_model, plm_score_table, error);
}
