/* The folder of scores: its origin, its leftovers, and reading the scores of an assay. */
#include "evaluator/score/assay_scores.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/base/process/leftovers.h"
#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "common/sequences/csv_file.h"
#include "evaluator/score/variant_sample.h"

/* ---- the folder ---- */

static char *origin_text(const struct plm_assay_origin *origin)
{
  char weights[PLM_HASH_HEX_SIZE], max_length[16], max_variants[24];
  plm_hash_to_hex(origin->weights, weights);
  cJSON *json = cJSON_CreateObject();
  snprintf(max_length, sizeof max_length, "%u", origin->max_length);
  snprintf(max_variants, sizeof max_variants, "%llu", (unsigned long long)origin->max_variants);
  cJSON_AddStringToObject(json, "weights", weights);
  cJSON_AddStringToObject(json, "masking", origin->masking);
  cJSON_AddStringToObject(json, "precision", origin->precision);
  if (origin->max_length != 0) cJSON_AddStringToObject(json, "max_length", max_length);
  if (origin->max_variants != 0) cJSON_AddStringToObject(json, "max_variants", max_variants);
  char *text = plm_json_text(json, true);
  cJSON_Delete(json);
  return text;
}

/* *found: the first name in which both differ; NULL: none. */
static plm_status difference(const char *ours, const char *theirs, const char **found,
                             struct plm_error *error)
{
  static const char *const names[] = {"weights", "masking", "precision", "max_length",
                                      "max_variants"};
  *found = NULL;
  cJSON *a = plm_json_line(ours);
  bool no_memory = plm_json_no_memory();
  cJSON *b = plm_json_line(theirs);
  no_memory = no_memory || plm_json_no_memory();
  for (size_t i = 0; i < sizeof names / sizeof *names && *found == NULL; i++)
    if (strcmp(plm_json_string(a, names[i], ""), plm_json_string(b, names[i], "")) != 0)
      *found = names[i];
  cJSON_Delete(a);
  cJSON_Delete(b);
  return no_memory ? plm_error_set(error, PLM_NO_MEMORY, "no memory for scores.json") : PLM_OK;
}

static plm_status check_origin(const char *folder, const struct plm_assay_origin *origin,
                               struct plm_error *error)
{
  char path[PLM_PATH_SIZE], *theirs = NULL;
  size_t size;
  bool exists;
  PLM_TRY(plm_path_join(path, folder, "scores.json", error));
  PLM_TRY(plm_file_look(path, &exists, error));
  char *ours = origin_text(origin);
  plm_status status = PLM_OK;
  if (!exists) {
    status = plm_file_replace(path, ours, strlen(ours), 0666, error);
  } else {
    status = plm_file_read(path, 1 << 16, &theirs, &size, error);
    const char *other = NULL;
    if (status == PLM_OK) status = difference(ours, theirs, &other, error);
    if (status == PLM_OK && other != NULL) {
      plm_error_set(error, PLM_EXISTS, "%.1000s has scores made with other %s", folder, other);
      plm_error_hint(error, "name another folder with --scores");
      status = PLM_EXISTS;
    }
  }
  free(ours);
  free(theirs);
  return status;
}

/* Removes the unfinished files of killed commands: NAME.csv.tmp-PID. */
static plm_status remove_unfinished(const char *path, struct plm_error *error)
{
  DIR *folder = opendir(path);
  const struct dirent *entry = NULL;
  if (folder == NULL) return plm_error_errno(error, "cannot read %s", path);
  plm_status status;
  while ((status = plm_directory_next(folder, path, &entry, error)) == PLM_OK && entry != NULL) {
    char unfinished[PLM_PATH_SIZE];
    const char *ending = strstr(entry->d_name, ".csv.tmp-");
    if (ending == NULL || ending[9 + strspn(ending + 9, "0123456789")] != '\0') continue;
    status = plm_path_join(unfinished, path, entry->d_name, error);
    if (status == PLM_OK) status = plm_path_remove(unfinished, error);
    if (status != PLM_OK) break;
    plm_info("removing %s, which an interrupted command left", unfinished);
  }
  closedir(folder);
  return status;
}

plm_status plm_assay_scores_open(const char *folder, const struct plm_assay_origin *origin,
                                 struct plm_assay_scores *scores, struct plm_error *error)
{
  char inside[PLM_PATH_SIZE]; /* which is no link, even if the folder is one */
  PLM_TRY(plm_directory_make(folder, error));
  PLM_TRY(plm_path_join(scores->folder, ".", folder, error));
  PLM_TRY(plm_path_join(inside, scores->folder, ".", error));
  scores->lock = plm_leftovers_lock(inside);
  if (scores->lock < 0) {
    if (errno != EWOULDBLOCK) return plm_error_errno(error, "cannot lock %s", folder);
    plm_error_set(error, PLM_BUSY, "another command writes scores into %.1000s", folder);
    return plm_error_hint(error, "wait for it, or name another folder with --scores");
  }
  plm_status status = check_origin(scores->folder, origin, error);
  if (status == PLM_OK) status = remove_unfinished(scores->folder, error);
  if (status != PLM_OK) plm_assay_scores_close(scores);
  return status;
}

void plm_assay_scores_close(struct plm_assay_scores *scores)
{
  if (scores->lock >= 0) close(scores->lock);
  scores->lock = -1;
}

plm_status plm_assay_scores_path(const struct plm_assay_scores *scores,
                                 const struct plm_assay *assay, char path[PLM_PATH_SIZE],
                                 struct plm_error *error)
{
  char name[PLM_PATH_SIZE];
  if (snprintf(name, sizeof name, "%s.csv", assay->id) >= (int)sizeof name)
    return plm_error_set(error, PLM_LIMIT, "DMS_id %.200s is too long", assay->id);
  return plm_path_join(path, scores->folder, name, error);
}

/* ---- reading ---- */

struct pair {
  struct plm_csv_file *assay, *scored;
  struct plm_variant_sample sample; /* of the assay's rows, which the scored file has */
  struct plm_csv_row a, s;
  size_t measured, fit; /* columns; fit: SIZE_MAX if there is none */
  size_t capacity;
};

void plm_assay_values_deinit(struct plm_assay_values *values)
{
  free(values->score);
  free(values->measured);
  free(values->fit);
  *values = (struct plm_assay_values){0};
}

/* The next row of both files, or the headers, which must be the same except for the last field of
 * the scored one. */
static plm_status next_rows(struct pair *pair, bool headers, struct plm_error *error)
{
  do PLM_TRY(plm_csv_next(pair->assay, &pair->a, error));
  while (!headers && pair->a.count > 0 && !plm_variant_sample_takes(&pair->sample));
  PLM_TRY(plm_csv_next(pair->scored, &pair->s, error));
  bool same = pair->s.count == (pair->a.count > 0 ? pair->a.count + 1 : 0);
  for (size_t i = 0; i < pair->a.count && same; i++)
    same = pair->a.fields[i].size == pair->s.fields[i].size &&
           memcmp(pair->a.fields[i].text, pair->s.fields[i].text, pair->a.fields[i].size) == 0;
  if (same) return PLM_OK;
  plm_error_set(error, PLM_EXISTS, "%.400s was not made from %.400s: line %llu differs",
                plm_csv_name(pair->scored), plm_csv_name(pair->assay),
                (unsigned long long)(pair->a.count > 0 ? pair->a.line : pair->s.line));
  return plm_error_hint(error, "remove it to score the assay again, or name another folder with "
                               "--scores");
}

/* A number; NaN for an empty field and what pandas takes for one. */
static plm_status assay_scores_number_of(const struct pair *pair, size_t column, double *value,
                                         struct plm_error *error)
{
  const char *text = pair->s.fields[column].text;
  char *end;
  *value = strtod(text, &end);
  if (end == text) *value = NAN;
  const bool missing = text[0] == '\0' || strcmp(text, "NA") == 0;
  if (missing || (end != text && *end == '\0' && !isinf(*value))) return PLM_OK;
  plm_error_set(error, PLM_FORMAT, "field %zu is \"%.80s\", not a number", column + 1, text);
  return plm_error_where(error, "%s:%llu", plm_csv_name(pair->scored),
                         (unsigned long long)pair->s.line);
}

static plm_status assay_scores_grow(struct plm_assay_values *values, struct pair *pair,
                                    struct plm_error *error)
{
  const size_t capacity = 2 * pair->capacity + 1024;
  double **const columns[] = {&values->score, &values->measured, &values->fit};
  for (size_t i = 0; i < 3; i++) {
    double *grown = realloc(*columns[i], capacity * sizeof *grown);
    if (grown == NULL)
      return plm_error_set(error, PLM_NO_MEMORY, "out of memory for %zu variants", capacity);
    *columns[i] = grown;
  }
  pair->capacity = capacity;
  return PLM_OK;
}

static plm_status assay_scores_parse_row(struct pair *pair, const struct plm_assay *assay,
                                         struct plm_assay_values *values, struct plm_error *error)
{
  double score, measured, fit = NAN;
  if (pair->measured >= pair->a.count || (pair->fit != SIZE_MAX && pair->fit >= pair->a.count))
    return plm_error_set(error, PLM_FORMAT, "%s:%llu: the row has only %zu fields",
                         plm_csv_name(pair->assay), (unsigned long long)pair->a.line,
                         pair->a.count);
  PLM_TRY(assay_scores_number_of(pair, pair->a.count, &score, error));
  PLM_TRY(assay_scores_number_of(pair, pair->measured, &measured, error));
  if (pair->fit != SIZE_MAX)
    PLM_TRY(assay_scores_number_of(pair, pair->fit, &fit, error));
  else if (!isnan(assay->cutoff))
    fit = measured >= assay->cutoff;
  if (!isnan(fit) && fit != 0 && fit != 1) {
    plm_error_set(error, PLM_FORMAT, "DMS_score_bin is %g, not 0 or 1", fit);
    return plm_error_where(error, "%s:%llu", plm_csv_name(pair->assay),
                           (unsigned long long)pair->a.line);
  }
  if (isnan(measured) || isnan(score)) return PLM_OK;
  if (values->count == pair->capacity) PLM_TRY(assay_scores_grow(values, pair, error));
  values->score[values->count] = score;
  values->measured[values->count] = measured;
  values->fit[values->count++] = fit;
  return PLM_OK;
}

static plm_status read_pair(struct pair *pair, const struct plm_assay *assay,
                            struct plm_assay_values *values, struct plm_error *error)
{
  PLM_TRY(next_rows(pair, true, error));
  pair->measured = plm_csv_column(&pair->a, "DMS_score");
  pair->fit = plm_csv_column(&pair->a, "DMS_score_bin");
  for (;;) {
    PLM_TRY(next_rows(pair, false, error));
    if (pair->a.count == 0) return PLM_OK;
    PLM_TRY(assay_scores_parse_row(pair, assay, values, error));
  }
}

plm_status plm_assay_scores_read(const char *path, const struct plm_assay *assay,
                                 uint64_t max_variants, struct plm_assay_values *values,
                                 struct plm_error *error)
{
  struct pair pair = {0};
  *values = (struct plm_assay_values){0};
  plm_status status =
      plm_variant_sample_read(assay->file, assay->indels ? "mutated_sequence" : "mutant",
                              max_variants, &pair.sample, error);
  if (status == PLM_OK) status = plm_csv_open(assay->file, &pair.assay, error);
  if (status == PLM_OK) status = plm_csv_open(path, &pair.scored, error);
  if (status == PLM_OK) status = read_pair(&pair, assay, values, error);
  plm_csv_close(pair.assay);
  plm_csv_close(pair.scored);
  plm_variant_sample_deinit(&pair.sample);
  if (status != PLM_OK) plm_assay_values_deinit(values);
  return status;
}
