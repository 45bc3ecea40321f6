/* Reads a profile and adds up its events by operator. */
#include "stages/views/profile_table.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"

/* Tracks of a rank (trainer/profile/profile.h), by their number in the file. */
enum { TRACK_STEP, TRACK_PARTS, TRACK_DEVICE, TRACK_LIMIT = 1000 };
enum { VALUES_MAX = 1 << 25 };

struct event {
  uint32_t rank, track;
  int64_t begin_ns, end_ns;
  const char *name, *kind, *shape; /* of the JSON; shape may be "" */
  double bytes, flops;
};

struct events {
  struct event *list; /* (count) */
  size_t count;
};

/* ---- reading ------------------------------------------------------------------------------- */

static plm_status no_profile(struct plm_error *error, const char *what)
{
  return plm_error_set(error, PLM_FORMAT, "this is no profile of plm-pipeline: %s", what);
}

/* A number of microseconds as nanoseconds; negative if it is none. */
static int64_t ns_of(const cJSON *item, const char *name)
{
  const double us = plm_json_number(item, name, -1);
  return us >= 0 && us < 1e15 ? (int64_t)llround(1e3 * us) : -1;
}

/* A whole number below a limit; negative if it is none. */
static int64_t whole_of(const cJSON *item, const char *name, double limit)
{
  const double value = plm_json_number(item, name, -1);
  return value >= 0 && value < limit && value == floor(value) ? (int64_t)value : -1;
}

static double work_of(const cJSON *item, const char *name)
{
  const double work = plm_json_number(item, name, 0);
  return work > 0 && work < 1e30 ? work : 0;
}

static bool read_event(const cJSON *item, struct event *event)
{
  const cJSON *arguments = cJSON_GetObjectItemCaseSensitive(item, "args");
  const int64_t rank = whole_of(item, "pid", 65536), track = whole_of(item, "tid", TRACK_LIMIT);
  const int64_t begin_ns = ns_of(item, "ts"), took_ns = ns_of(item, "dur");
  if (rank < 0 || track < 0 || begin_ns < 0 || took_ns < 0) return false;
  *event = (struct event){.rank = (uint32_t)rank,
                          .track = (uint32_t)track,
                          .begin_ns = begin_ns,
                          .end_ns = begin_ns + took_ns,
                          .name = plm_json_string(item, "name", ""),
                          .kind = plm_json_string(item, "cat", ""),
                          .shape = plm_json_string(arguments, "shape", ""),
                          .bytes = work_of(arguments, "bytes"),
                          .flops = work_of(arguments, "flops")};
  return true;
}

static int by_time(const void *a, const void *b)
{
  const struct event *x = a, *y = b;
  if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
  if (x->track != y->track) return x->track < y->track ? -1 : 1;
  if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
  return (x->end_ns < y->end_ns) - (x->end_ns > y->end_ns);
}

static plm_status read_events(const cJSON *json, struct events *events, struct plm_error *error)
{
  const cJSON *array = cJSON_GetObjectItemCaseSensitive(json, "traceEvents"), *item;
  if (!cJSON_IsArray(array)) return no_profile(error, "it has no list traceEvents");
  events->list = calloc((size_t)cJSON_GetArraySize(array) + 1, sizeof *events->list);
  if (events->list == NULL) return plm_error_set(error, PLM_NO_MEMORY, "no memory for the events");
  cJSON_ArrayForEach(item, array)
  {
    if (strcmp(plm_json_string(item, "ph", ""), "X") != 0) continue;
    if (!read_event(item, &events->list[events->count]))
      return no_profile(error, "an event has no place or no time");
    events->count++;
  }
  qsort(events->list, events->count, sizeof *events->list, by_time);
  return PLM_OK;
}

static void copy_word(char to[PLM_PROFILE_WORD_SIZE], const cJSON *json, const char *name)
{
  snprintf(to, PLM_PROFILE_WORD_SIZE, "%s", plm_json_string(json, name, ""));
}

static plm_status read_facts(const cJSON *json, struct plm_profile_table *table,
                             struct plm_error *error)
{
  const cJSON *facts = cJSON_GetObjectItemCaseSensitive(json, "otherData");
  if (strcmp(plm_json_string(facts, "format", ""), "plm-profile") != 0)
    return no_profile(error, "otherData.format is not \"plm-profile\"");
  const int64_t first = whole_of(facts, "first_step", 1e15),
                ranks = whole_of(facts, "ranks", 65536);
  const int64_t last = whole_of(facts, "last_step", 1e15);
  const int64_t threads = whole_of(facts, "threads", 65536);
  if (first < 0 || last < 0 || ranks < 1)
    return no_profile(error, "otherData has no first_step, last_step or ranks");
  table->first_step = (uint64_t)first;
  table->last_step = (uint64_t)last;
  table->ranks = (uint32_t)ranks;
  table->threads = threads > 0 ? (uint32_t)threads : 0;
  table->incomplete = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(facts, "incomplete"));
  table->flops_limit = work_of(facts, "product_flops_per_second");
  table->bytes_limit = work_of(facts, "copy_bytes_per_second");
  copy_word(table->device, facts, "device");
  copy_word(table->isa, facts, "isa");
  copy_word(table->precision, facts, "precision");
  return PLM_OK;
}

/* ---- adding up ----------------------------------------------------------------------------- */

/* Length of the name without the number that it may end with: "weights on rail 3". */
static size_t bare_length(const char *name)
{
  size_t length = strlen(name), end = length;
  while (end > 0 && name[end - 1] >= '0' && name[end - 1] <= '9') end--;
  return end < length && end > 1 && name[end - 1] == ' ' ? end - 1 : length;
}

static void profile_count(struct plm_profile_rows *rows, const struct event *event, bool shapes)
{
  char name[PLM_PROFILE_NAME_SIZE];
  const bool shaped = shapes && event->shape[0] != '\0';
  snprintf(name, sizeof name, "%.*s%s%s", (int)bare_length(event->name), event->name,
           shaped ? " " : "", shaped ? event->shape : "");
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

static bool is_kind(const struct event *event, const char *kind)
{
  return strcmp(event->kind, kind) == 0;
}

/* Whether the rank computes on a device, whose track then says what its steps consist of. */
static bool has_device(const struct events *events, uint32_t rank)
{
  for (size_t i = 0; i < events->count; i++)
    if (events->list[i].rank == rank && events->list[i].track == TRACK_DEVICE) return true;
  return false;
}

/* The step in which the event is; NULL: it is in none. Steps are in the order of time. */
static const struct event *step_of(const struct event *steps, size_t count,
                                   const struct event *event)
{
  for (size_t i = 0; i < count; i++)
    if (event->begin_ns >= steps[i].begin_ns && event->end_ns <= steps[i].end_ns) return &steps[i];
  return NULL;
}

/* Whether an event of the host is not told: other rows say it, or it is nothing. If there is a
 * device, its tracks have the copies as well, and its step says what the host waits for. */
static bool is_told_elsewhere(const struct event *event, bool inside, bool device)
{
  if (is_kind(event, "launch") || is_kind(event, "other") || is_kind(event, "data")) return true;
  if (!device || event->track != TRACK_STEP) return false;
  return is_kind(event, "copy") || (inside && is_kind(event, "wait"));
}

/* Adds up the events of one rank. What lies within another event of its track is a part of it. */
static void count_rank(const struct events *events, const struct event *steps, size_t step_count,
                       bool shapes, struct plm_profile_table *table)
{
  const uint32_t rank = steps[0].rank;
  const bool device = has_device(events, rank);
  const uint32_t main_track = device ? TRACK_DEVICE : TRACK_STEP;
  uint32_t track = TRACK_LIMIT;
  int64_t end_ns = 0;
  for (size_t i = 0; i < events->count; i++) {
    const struct event *event = &events->list[i];
    if (event->rank != rank || event->track == TRACK_PARTS || is_kind(event, "step")) continue;
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
}

static int longer(const void *a, const void *b)
{
  const struct plm_profile_row *x = a, *y = b;
  if (x->ns != y->ns) return x->ns < y->ns ? 1 : -1;
  return strcmp(x->name, y->name);
}

static void sort_rows(struct plm_profile_rows *rows)
{
  if (rows->count > 0) qsort(rows->rows, rows->count, sizeof *rows->rows, longer);
}

static plm_status add_up(const struct events *events, const struct plm_profile_view *view,
                         struct plm_profile_table *table, struct plm_error *error)
{
  struct event *steps = plm_alloc((events->count + 1) * sizeof *steps);
  size_t count = 0;
  for (size_t i = 0; i < events->count; i++)
    if (is_kind(&events->list[i], "step") && events->list[i].track == TRACK_STEP &&
        (view->rank < 0 || view->rank == events->list[i].rank))
      steps[count++] = events->list[i];
  for (size_t first = 0, end = 0; first < count; first = end) {
    while (end < count && steps[end].rank == steps[first].rank) end++;
    count_rank(events, steps + first, end - first, view->shapes, table);
  }
  free(steps);
  if (count == 0 && view->rank >= 0)
    return plm_error_set(error, PLM_USAGE, "the profile has no rank %lld; its ranks are 0 to %u",
                         (long long)view->rank, table->ranks - 1);
  if (count == 0) return no_profile(error, "it has no step");
  sort_rows(&table->in);
  sort_rows(&table->beside);
  return PLM_OK;
}

plm_status plm_profile_table_read(const char *text, size_t size,
                                  const struct plm_profile_view *view,
                                  struct plm_profile_table *table, struct plm_error *error)
{
  struct events events = {0};
  *table = (struct plm_profile_table){0};
  cJSON *json = plm_json_bounded(text, size, VALUES_MAX);
  if (json == NULL && plm_json_no_memory())
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for a profile of %zu bytes", size);
  if (json == NULL) return no_profile(error, "it is not JSON, or too long");
  plm_status status = read_facts(json, table, error);
  if (status == PLM_OK) status = read_events(json, &events, error);
  if (status == PLM_OK) status = add_up(&events, view, table, error);
  free(events.list);
  cJSON_Delete(json);
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
