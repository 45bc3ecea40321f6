/* Adds up the events of a profile by operator. */
#include "stages/views/profile_table.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text/json.h"
#include "stages/views/profile_events.h"

/* Tracks of a rank (trainer/profile/profile.h), by their number in the file. */
enum { TRACK_STEP, TRACK_PARTS, TRACK_DEVICE, TRACK_LIMIT = 1000 };

/* ---- what the file says -------------------------------------------------------------------- */

static void copy_word(char to[PLM_PROFILE_WORD_SIZE], const cJSON *json, const char *name)
{
  snprintf(to, PLM_PROFILE_WORD_SIZE, "%s", plm_json_string(json, name, ""));
}

static plm_status read_facts(const cJSON *json, struct plm_profile_table *table,
                             struct plm_error *error)
{
  const cJSON *facts = cJSON_GetObjectItemCaseSensitive(json, "otherData");
  if (strcmp(plm_json_string(facts, "format", ""), "plm-profile") != 0)
    return plm_no_profile(error, "otherData.format is not \"plm-profile\"");
  const int64_t first = plm_profile_whole(facts, "first_step", 1e15),
                ranks = plm_profile_whole(facts, "ranks", 65536);
  const int64_t last = plm_profile_whole(facts, "last_step", 1e15);
  const int64_t threads = plm_profile_whole(facts, "threads", 65536);
  if (first < 0 || last < 0 || ranks < 1)
    return plm_no_profile(error, "otherData has no first_step, last_step or ranks");
  table->first_step = (uint64_t)first;
  table->last_step = (uint64_t)last;
  table->ranks = (uint32_t)ranks;
  table->threads = threads > 0 ? (uint32_t)threads : 0;
  table->incomplete = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(facts, "incomplete"));
  table->flops_limit = plm_profile_work(facts, "product_flops_per_second");
  table->bytes_limit = plm_profile_work(facts, "copy_bytes_per_second");
  copy_word(table->device, facts, "device");
  copy_word(table->isa, facts, "isa");
  copy_word(table->precision, facts, "precision");
  return PLM_OK;
}

/* ---- adding up ----------------------------------------------------------------------------- */

static void profile_count(struct plm_profile_rows *rows, const struct plm_profiled *event,
                          bool shapes)
{
  char name[PLM_PROFILE_NAME_SIZE];
  const bool shaped = shapes && event->shape[0] != '\0';
  snprintf(name, sizeof name, "%s%s%s", event->name, shaped ? " " : "", shaped ? event->shape : "");
  size_t i = 0;
  while (i < rows->count && (strcmp(rows->rows[i].name, name) != 0 ||
                             strncmp(rows->rows[i].kind, event->kind, 15) != 0))
    i++;
  if (i == rows->count) {
    rows->rows = plm_realloc(rows->rows, (rows->count + 1) * sizeof *rows->rows);
    rows->rows[rows->count++] = (struct plm_profile_row){0};
    memcpy(rows->rows[i].name, name, sizeof name);
    snprintf(rows->rows[i].kind, sizeof rows->rows[i].kind, "%s", event->kind);
  }
  struct plm_profile_row *row = &rows->rows[i];
  row->calls++;
  row->ns += (uint64_t)(event->end_ns - event->begin_ns);
  row->bytes += event->bytes;
  row->flops += event->flops;
}

static bool is_kind(const struct plm_profiled *event, const char *kind)
{
  return strcmp(event->kind, kind) == 0;
}

/* Whether the rank computes on a device, whose track then says what its steps consist of. */
static bool has_device(const struct plm_profiled *events, size_t count)
{
  for (size_t i = 0; i < count; i++)
    if (events[i].track == TRACK_DEVICE) return true;
  return false;
}

static bool is_step(const struct plm_profiled *event)
{
  return event->track == TRACK_STEP && is_kind(event, "step");
}

/* The steps among the events of a rank. The caller frees them. */
static struct plm_profiled *list_steps(const struct plm_profiled *events, size_t count,
                                       size_t *step_count)
{
  size_t most = 0;
  for (size_t i = 0; i < count; i++) most += is_step(&events[i]);
  struct plm_profiled *steps = plm_alloc((most + 1) * sizeof *steps);
  *step_count = 0;
  for (size_t i = 0; i < count; i++)
    if (is_step(&events[i])) steps[(*step_count)++] = events[i];
  return steps;
}

/* The step in which the event is; NULL: it is in none. Steps are in the order of time. */
static const struct plm_profiled *step_of(const struct plm_profiled *steps, size_t count,
                                          const struct plm_profiled *event)
{
  for (size_t i = 0; i < count; i++)
    if (event->begin_ns >= steps[i].begin_ns && event->end_ns <= steps[i].end_ns) return &steps[i];
  return NULL;
}

/* Whether an event of the host is not told: other rows say it, or it is nothing. If there is a
 * device, its tracks have the copies as well, and its step says what the host waits for. */
static bool is_told_elsewhere(const struct plm_profiled *event, bool inside, bool device)
{
  if (is_kind(event, "launch") || is_kind(event, "other") || is_kind(event, "data")) return true;
  if (!device || event->track != TRACK_STEP) return false;
  return is_kind(event, "copy") || (inside && is_kind(event, "wait"));
}

/* Adds up the events of one rank, unless it has no step. What lies within another event of its
 * track is a part of it. */
static void count_rank(const struct plm_profiled *events, size_t count, bool shapes,
                       struct plm_profile_table *table)
{
  size_t step_count;
  struct plm_profiled *steps = list_steps(events, count, &step_count);
  const bool device = has_device(events, count);
  const uint32_t main_track = device ? TRACK_DEVICE : TRACK_STEP;
  uint32_t track = TRACK_LIMIT;
  int64_t end_ns = 0;
  for (size_t i = 0; i < count && step_count > 0; i++) {
    const struct plm_profiled *event = &events[i];
    if (event->track == TRACK_PARTS || is_kind(event, "step")) continue;
    if (event->track != track) end_ns = 0;
    track = event->track;
    if (event->end_ns <= end_ns && event->begin_ns < end_ns) continue;
    end_ns = event->end_ns;
    const bool inside = step_of(steps, step_count, event) != NULL;
    if (event->track == main_track && inside)
      profile_count(&table->in, event, shapes);
    else if (!is_told_elsewhere(event, inside, device))
      profile_count(&table->beside, event, shapes);
  }
  for (size_t i = 0; i < step_count; i++)
    table->ns += (uint64_t)(steps[i].end_ns - steps[i].begin_ns);
  table->steps += step_count;
  free(steps);
}

static int longer(const void *a, const void *b)
{
  const struct plm_profile_row *x = a, *y = b;
  if (x->ns != y->ns) return x->ns < y->ns ? 1 : -1;
  return strcmp(x->name, y->name);
}

static void sort_rows(struct plm_profile_rows *rows)
{
  if (rows->rows != NULL) qsort(rows->rows, rows->count, sizeof *rows->rows, longer);
}

static plm_status add_up(const struct plm_profile_events *events,
                         const struct plm_profile_view *view, struct plm_profile_table *table,
                         struct plm_error *error)
{
  const struct plm_profiled *list = events->list;
  for (size_t first = 0, end = 0; first < events->count; first = end) {
    while (end < events->count && list[end].rank == list[first].rank) end++;
    if (view->rank < 0 || view->rank == list[first].rank)
      count_rank(list + first, end - first, view->shapes, table);
  }
  if (table->steps == 0 && view->rank >= 0)
    return plm_error_set(error, PLM_USAGE, "the profile has no rank %lld; its ranks are 0 to %u",
                         (long long)view->rank, table->ranks - 1);
  if (table->steps == 0) return plm_no_profile(error, "it has no step");
  sort_rows(&table->in);
  sort_rows(&table->beside);
  return PLM_OK;
}

plm_status plm_profile_table_read(FILE *file, const struct plm_profile_view *view,
                                  struct plm_profile_table *table, struct plm_error *error)
{
  struct plm_profile_events events = {0};
  cJSON *head;
  *table = (struct plm_profile_table){0};
  plm_status status = plm_profile_head_read(file, &head, error);
  if (status == PLM_OK) status = read_facts(head, table, error);
  if (status == PLM_OK) status = plm_profile_events_read(file, &events, error);
  if (status == PLM_OK) status = add_up(&events, view, table, error);
  plm_profile_events_deinit(&events);
  cJSON_Delete(head);
  return status;
}

void plm_profile_table_deinit(struct plm_profile_table *table)
{
  free(table->in.rows);
  free(table->beside.rows);
  *table = (struct plm_profile_table){0};
}

double plm_profile_of_limit(const struct plm_profile_table *table,
                            const struct plm_profile_row *row)
{
  const bool unknown =
      (row->flops > 0 && table->flops_limit == 0) || (row->bytes > 0 && table->bytes_limit == 0);
  if (unknown || row->ns == 0 || (row->flops == 0 && row->bytes == 0)) return NAN;
  const double computing_s = row->flops > 0 ? row->flops / table->flops_limit : 0;
  const double moving_s = row->bytes > 0 ? row->bytes / table->bytes_limit : 0;
  return fmax(computing_s, moving_s) / (1e-9 * (double)row->ns);
}
