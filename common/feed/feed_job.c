/* Checking answers of packers, and planning windows. */
#include "common/feed/feed_job.h"

#include <stdlib.h>

#include "common/base/alloc.h"

/* ---- windows ------------------------------------------------------------------------------ */

struct feed_planned *feed_planned_open(const struct feed_planned *of)
{
  struct feed_planned *planned = plm_alloc(sizeof *planned);
  *planned = *of;
  atomic_store(&planned->references, 1);
  return planned;
}

void feed_planned_hold(struct feed_planned *planned)
{
  atomic_fetch_add_explicit(&planned->references, 1, memory_order_relaxed);
}

void feed_planned_release(struct feed_planned *planned)
{
  if (atomic_fetch_sub_explicit(&planned->references, 1, memory_order_acq_rel) != 1) return;
  plm_tables_deinit(&planned->tables);
  plm_window_deinit(&planned->window);
  free(planned->digests);
  free(planned->labels);
  free(planned->offset);
  free(planned);
}

/* Leaves out the documents beyond the plan's token limit. */
static void apply_limit(struct feed_planned *planned)
{
  struct plm_tables *tables = &planned->tables;
  planned->tokens_after = planned->tokens;
  for (uint32_t g = 0; g < tables->groups; g++) {
    const uint32_t begin = tables->begin[g], count = tables->begin[g + 1] - begin;
    const uint32_t within = plm_plan_within(plm_plan_parameters(planned->plan),
                                            tables->lengths + begin, count, &planned->tokens_after);
    if (within == count) continue;
    planned->last = true;
    for (uint32_t after = g + 1; after <= tables->groups; after++)
      tables->begin[after] = begin + within;
    return;
  }
}

/* Brings the hashes into the order of the window's documents. Tables are in the order of the plan's
 * groups, and so are the window's places; a document has a place for each of its pieces. */
static void order_digests(struct feed_planned *planned)
{
  const struct plm_tables *tables = &planned->tables;
  const struct plm_window *window = &planned->window;
  uint32_t document = 0;
  for (uint32_t i = 0; i < window->document_count; i++) {
    const uint32_t at = window->places[i].document;
    while (tables->numbers[document] != window->documents[at].number) document++;
    planned->digests[at] = tables->digests[document];
    if (planned->labels != NULL) planned->labels[at] = tables->labels[document];
  }
}

static plm_status plan_window(struct feed_planned *planned, struct plm_error *error)
{
  struct plm_window *window = &planned->window;
  const struct plm_plan_parameters *parameters = plm_plan_parameters(planned->plan);
  if (parameters->token_limit != 0) apply_limit(planned);
  if (planned->tables.begin[planned->tables.groups] == 0) { /* all are beyond the limit */
    if (planned->index > 0) return PLM_OK;
    return plm_error_set(error, PLM_CONFIG,
                         "a limit of %llu tokens is too small for the first document (%u residues)",
                         (unsigned long long)parameters->token_limit, planned->tables.lengths[0]);
  }
  PLM_TRY(plm_plan_window(planned->plan, planned->epoch, planned->index, plm_tables_group,
                          &planned->tables, window, error));
  planned->digests = malloc(window->document_count * sizeof *planned->digests);
  planned->offset = malloc(((size_t)window->chunks + 1) * sizeof *planned->offset);
  if (planned->schema != NULL)
    planned->labels = malloc(window->document_count * sizeof *planned->labels);
  if (planned->digests == NULL || planned->offset == NULL ||
      (planned->schema != NULL && planned->labels == NULL))
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for a window of %u documents",
                         window->document_count);
  order_digests(planned);
  plm_data_layout(planned->tokenizer, parameters->max_length, planned->schema, window,
                  planned->offset);
  plm_tables_deinit(&planned->tables);
  return PLM_OK;
}

/* ---- jobs --------------------------------------------------------------------------------- */

static plm_status check_tables(struct feed_job *job, struct plm_error *error)
{
  struct feed_planned *planned = job->planned;
  const struct plm_tables_window of = {planned->plan, planned->epoch, planned->index,
                                       planned->schema != NULL};
  PLM_TRY(plm_tables_read(&of, planned->split, job->count, zmq_msg_data(&job->payload),
                          zmq_msg_size(&job->payload), &planned->tables, error));
  if (planned->tables.groups < planned->groups) return PLM_OK;
  PLM_TRY(plan_window(planned, error));
  planned->complete = true;
  return PLM_OK;
}

static plm_status check_chunks(struct feed_job *job, struct plm_data_scratch *scratch,
                               struct plm_error *error)
{
  const struct plm_window *window = &job->planned->window;
  const struct plm_data_known known = {
      .tokenizer = job->planned->tokenizer,
      .max_length = plm_plan_parameters(job->planned->plan)->max_length,
      .window = window,
      .digests = job->planned->digests,
      .offset = job->planned->offset,
      .schema = job->planned->schema,
      .labels = job->planned->labels,
  };
  PLM_TRY(plm_data_check(&known, job->first, job->count, zmq_msg_data(&job->payload),
                         zmq_msg_size(&job->payload), scratch, error));
  for (uint32_t i = window->chunk_begin[job->first];
       i < window->chunk_begin[job->first + job->count]; i++)
    job->real_tokens += window->documents[i].tokens;
  return PLM_OK;
}

void feed_job_do(struct feed_job *job, struct plm_data_scratch *scratch)
{
  struct plm_error error = {0};
  const plm_status status =
      job->tables ? check_tables(job, &error) : check_chunks(job, scratch, &error);
  job->error = error;
  job->error.status = status;
}

void feed_job_free(struct feed_job *job)
{
  zmq_msg_close(&job->payload);
  feed_planned_release(job->planned);
  free(job);
}
