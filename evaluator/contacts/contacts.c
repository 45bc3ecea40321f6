/* Fits the regression to the first proteins, and ranks the pairs of the others. */
#include "evaluator/contacts/contacts.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "common/base/log/progress.h"
#include "common/base/process/pool.h"
#include "common/run/stop.h"
#include "evaluator/contacts/contact_features.h"
#include "evaluator/contacts/sparse_logistic.h"

enum { LONG_RANGE = 24 };
static const double strength = 0.15; /* C of Rao et al. */
const char *const plm_contact_measure_names[] = {"precision_l", "precision_l2", "precision_l5",
                                                 NULL};

struct contacts_run {
  const struct plm_contacts_request *request;
  const struct plm_protein_folder *folder;
  struct plm_inference *inference;
  struct plm_contact_features *features;
  struct plm_contacts_results *results;
  uint32_t most; /* residues that the model sees */
  float *columns;
  uint8_t *labels;
  float *weights; /* (heads) */
  struct plm_progress progress;
  uint64_t residues_done, residues_all;
};

static plm_status run_check(void *context, struct plm_error *error)
{
  const struct plm_contacts_request *request = context;
  return request->check != NULL ? request->check(request->context, error)
                                : plm_stop_check(" while measuring contacts", error);
}

/* The residues of a protein that the model sees. */
static uint32_t seen_of(const struct contacts_run *run, size_t i)
{
  const uint32_t length = run->folder->proteins[i].length;
  return length < run->most ? length : run->most;
}

static void show_progress(struct contacts_run *run, size_t i)
{
  run->residues_done += seen_of(run, i);
  plm_progress_update(&run->progress, run->residues_done, run->residues_all, run->residues_done,
                      i + 1, "protein");
}

/* ---- training ---- */

/* Labels the pairs of a protein, in the order of its rows. Returns the number of contacts. */
static size_t label_pairs(const struct plm_contact_protein *protein, uint32_t n, uint8_t *labels)
{
  size_t contacts = 0, next = 0, row = 0;
  for (uint32_t i = 0; i < n; i++) {
    for (uint32_t j = i + PLM_CONTACT_SEPARATION; j < n; j++) {
      while (next < protein->count && (protein->pairs[next].i < i ||
                                       (protein->pairs[next].i == i && protein->pairs[next].j < j)))
        next++;
      const bool contact =
          next < protein->count && protein->pairs[next].i == i && protein->pairs[next].j == j;
      labels[row++] = contact;
      contacts += contact;
    }
  }
  return contacts;
}

static plm_status fit_heads(struct contacts_run *run, size_t rows, struct plm_error *error)
{
  const uint32_t heads = plm_contact_features_heads(run->features);
  const uint32_t threads = run->inference->ops->threads;
  struct plm_sparse_problem problem = {.columns = run->columns,
                                       .rows = rows,
                                       .width = heads,
                                       .labels = run->labels,
                                       .strength = strength,
                                       .check = run_check,
                                       .context = (void *)run->request};
  double *weights = plm_alloc_zeroed(heads, sizeof *weights), intercept;
  bool converged = true;
  plm_status status = plm_pool_open(threads > 0 ? threads : 1, &problem.pool, error);
  if (status == PLM_OK) {
    status = plm_sparse_logistic(&problem, weights, &intercept, &converged, error);
    plm_pool_close(problem.pool);
  }
  if (!converged)
    plm_warning("the regression of contacts on %u attention heads has not converged, so its "
                "precisions are not those of the best weights",
                heads);
  run->weights = plm_alloc_zeroed(heads, sizeof *run->weights);
  for (uint32_t h = 0; h < heads; h++) {
    run->weights[h] = (float)weights[h];
    run->results->used += weights[h] != 0;
  }
  run->results->heads = heads;
  free(weights);
  return status;
}

/* Fits the regression; the intercept does not matter to ranks. */
static plm_status train(struct contacts_run *run, struct plm_error *error)
{
  const struct plm_contact_protein *proteins = run->folder->proteins;
  const uint32_t heads = plm_contact_features_heads(run->features);
  size_t rows = 0, first = 0, contacts = 0;
  for (size_t i = 0; i < run->request->training; i++)
    rows += plm_contact_pairs(seen_of(run, i), PLM_CONTACT_SEPARATION);
  run->columns = calloc(rows * heads + 1, sizeof *run->columns);
  run->labels = calloc(rows + 1, sizeof *run->labels);
  if (run->columns == NULL || run->labels == NULL)
    return plm_error_set(error, PLM_NO_MEMORY,
                         "out of memory for the maps of %u heads at %zu pairs of residues", heads,
                         rows);
  for (size_t i = 0; i < run->request->training; i++) {
    const uint32_t n = seen_of(run, i);
    PLM_TRY(run_check((void *)run->request, error));
    contacts += label_pairs(&proteins[i], n, run->labels + first);
    PLM_TRY(plm_contact_features_write(run->features, &proteins[i], n, run->columns, rows, first,
                                       error));
    first += plm_contact_pairs(n, PLM_CONTACT_SEPARATION);
    run->results->trained++;
    show_progress(run, i);
  }
  if (contacts == 0 || contacts == rows) {
    plm_error_set(error, PLM_FORMAT,
                  "%s of the %zu pairs of residues at least %d apart in the training proteins are "
                  "contacts, so nothing can be learnt",
                  contacts == 0 ? "none" : "all", rows, PLM_CONTACT_SEPARATION);
    return plm_error_hint(error, "the training proteins are the first %u by name",
                          run->request->training);
  }
  return fit_heads(run, rows, error);
}

/* ---- testing ---- */

struct ranked_pair {
  float score;
  uint32_t i, j;
  bool contact;
};

/* The highest score first; of equal ones, the lowest residues. */
static int compare_ranks(const void *a, const void *b)
{
  const struct ranked_pair *x = a, *y = b;
  if (x->score != y->score) return x->score > y->score ? -1 : 1;
  if (x->i != y->i) return x->i < y->i ? -1 : 1;
  return x->j < y->j ? -1 : x->j > y->j;
}

static bool is_contact(const struct plm_contact_protein *protein, uint32_t i, uint32_t j)
{
  size_t low = 0, high = protein->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const struct plm_contact_pair *pair = &protein->pairs[middle];
    if (pair->i < i || (pair->i == i && pair->j < j))
      low = middle + 1;
    else
      high = middle;
  }
  return low < protein->count && protein->pairs[low].i == i && protein->pairs[low].j == j;
}

/* Adds the precisions of one protein, whose `count` pairs are sorted here. */
static void add_precisions(struct plm_contacts_results *results, struct ranked_pair *pairs,
                           size_t count, uint32_t n)
{
  static const uint32_t divisors[PLM_CONTACT_MEASURES] = {1, 2, 5};
  size_t contacts = 0;
  qsort(pairs, count, sizeof *pairs, compare_ranks);
  for (int m = 0; m < PLM_CONTACT_MEASURES; m++) {
    const size_t most = n / divisors[m] > 0 ? n / divisors[m] : 1;
    size_t right = 0;
    for (size_t k = 0; k < most && k < count; k++) right += pairs[k].contact;
    results->precision[m] += (double)right / (double)most;
  }
  for (size_t k = 0; k < count; k++) contacts += pairs[k].contact;
  results->chance += (double)contacts / (double)count;
  results->tested++;
}

static plm_status rank_pairs(struct contacts_run *run, const struct plm_contact_protein *protein,
                             const struct plm_contact_sum *sum, struct plm_error *error)
{
  const uint32_t n = (uint32_t)sum->residues;
  const size_t count = plm_contact_pairs(n, LONG_RANGE);
  struct ranked_pair *pairs = malloc(count * sizeof *pairs), *next = pairs;
  double total = 0;
  if (pairs == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for %zu pairs of residues", count);
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = i + LONG_RANGE; j < n; j++, next++) {
      const float here = sum->values[(size_t)i * n + j], there = sum->values[(size_t)j * n + i];
      *next = (struct ranked_pair){here + there, i, j, is_contact(protein, i, j)};
      total += (double)next->score;
    }
  plm_status status = PLM_OK;
  if (isfinite(total))
    add_precisions(run->results, pairs, count, n);
  else
    status = plm_error_set(error, PLM_NOT_FINITE, "the model's attention is not finite");
  free(pairs);
  return status;
}

static plm_status test_protein(struct contacts_run *run, size_t i, struct plm_error *error)
{
  const struct plm_contact_protein *protein = &run->folder->proteins[i];
  const uint32_t n = seen_of(run, i);
  struct plm_contact_sum sum;
  PLM_TRY(run_check((void *)run->request, error));
  PLM_TRY(plm_contact_sum_init(&sum, (int32_t)n, error));
  plm_status status =
      plm_contact_features_sum(run->features, protein, n, run->weights, &sum, error);
  if (status == PLM_OK) status = rank_pairs(run, protein, &sum, error);
  plm_contact_sum_deinit(&sum);
  return status;
}

static plm_status test_proteins(struct contacts_run *run, struct plm_error *error)
{
  struct plm_contacts_results *results = run->results;
  for (size_t i = run->request->training; i < run->folder->count; i++) {
    if (plm_contact_pairs(seen_of(run, i), LONG_RANGE) == 0) continue;
    PLM_TRY(test_protein(run, i, error));
    show_progress(run, i);
  }
  if (results->tested == 0)
    return plm_error_set(error, PLM_FORMAT,
                         "no protein after the first %u has residues that are %d apart",
                         run->request->training, LONG_RANGE);
  for (int m = 0; m < PLM_CONTACT_MEASURES; m++) results->precision[m] /= results->tested;
  results->chance /= results->tested;
  return PLM_OK;
}

/* ---- both ---- */

static plm_status run_all(struct contacts_run *run, struct plm_error *error)
{
  const struct plm_protein_folder *folder = run->folder;
  uint32_t longest = 0;
  PLM_TRY(plm_inference_set_limit(run->inference, run->request->max_length, error));
  run->most = plm_inference_most(run->inference) - 2;
  for (size_t i = 0; i < folder->count; i++) {
    const uint32_t n = seen_of(run, i);
    longest = n > longest ? n : longest;
    run->results->cut += n < folder->proteins[i].length;
    run->residues_all += n;
  }
  PLM_TRY(plm_inference_make_room(run->inference, longest + 2, error));
  PLM_TRY(plm_contact_features_open(run->inference, longest, &run->features, error));
  PLM_TRY(train(run, error));
  free(run->columns);
  run->columns = NULL;
  return test_proteins(run, error);
}

static bool has_long_range(const struct plm_contact_protein *protein)
{
  size_t k = 0;
  while (k < protein->count && protein->pairs[k].j - protein->pairs[k].i < LONG_RANGE) k++;
  return k < protein->count;
}

static void warn_without_contacts(const struct plm_protein_folder *folder, uint32_t training)
{
  char number[64];
  uint64_t without = 0;
  const char *first = NULL;
  for (size_t i = training; i < folder->count; i++) {
    const struct plm_contact_protein *protein = &folder->proteins[i];
    if (protein->length <= LONG_RANGE || has_long_range(protein)) continue;
    if (without++ == 0) first = protein->name;
  }
  if (without > 0)
    plm_warning("proteins of the test without contacts at least %d apart, which count with a "
                "precision of 0: %s; the first is %s",
                LONG_RANGE, plm_format_count(without, number), first);
}

plm_status plm_contacts_check(const struct plm_protein_folder *folder, uint32_t training,
                              const char *option, struct plm_error *error)
{
  if (folder->count > training) {
    warn_without_contacts(folder, training);
    return PLM_OK;
  }
  plm_error_set(error, PLM_FORMAT,
                "%zu proteins are too few: %u for training%s and at least one for the test",
                folder->count, training, option);
  return plm_error_hint(error, "each is a pair of files, NAME.fasta and NAME.contacts");
}

plm_status plm_contacts_run(const struct plm_contacts_request *request,
                            const struct plm_protein_folder *folder,
                            struct plm_inference *inference, struct plm_contacts_results *results,
                            struct plm_error *error)
{
  struct contacts_run run = {
      .request = request, .folder = folder, .inference = inference, .results = results};
  *results = (struct plm_contacts_results){0};
  PLM_ASSERT(folder->count > request->training);
  plm_progress_begin(&run.progress, "contacts");
  run.progress.rate_unit = "residues";
  const plm_status status = run_all(&run, error);
  plm_progress_clear(&run.progress);
  plm_contact_features_close(run.features);
  free(run.columns);
  free(run.labels);
  free(run.weights);
  return status;
}
