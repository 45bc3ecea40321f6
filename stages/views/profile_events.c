/* Reads the lines of a profile. */
#include "stages/views/profile_events.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/numbers/hash.h"
#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "common/run/run_profile.h"

enum { LINE_SIZE = 1 << 16, BUCKETS = 1 << 12, FIRST_ROOM = 1 << 12 };
enum { TRACK_LIMIT = 1000, RANK_LIMIT = 65536 };

/* A word that events have, for example a name. */
struct plm_profile_word {
  struct plm_profile_word *next; /* of the same bucket */
  char text[];
};

plm_status plm_no_profile(struct plm_error *error, const char *what)
{
  return plm_error_set(error, PLM_FORMAT, "this is no profile of plm-pipeline: %s", what);
}

/* ---- words --------------------------------------------------------------------------------- */

static const char *keep_word(struct plm_profile_events *events, const char *text, size_t length)
{
  struct plm_profile_word **bucket = &events->words[plm_hash64_bytes(text, length) % BUCKETS];
  for (struct plm_profile_word *word = *bucket; word != NULL; word = word->next)
    if (strncmp(word->text, text, length) == 0 && word->text[length] == '\0') return word->text;
  struct plm_profile_word *word = plm_alloc(sizeof *word + length + 1);
  memcpy(word->text, text, length);
  word->text[length] = '\0';
  word->next = *bucket;
  *bucket = word;
  return word->text;
}

static const char *keep_string(struct plm_profile_events *events, const cJSON *item,
                               const char *name)
{
  const char *text = plm_json_string(item, name, "");
  return keep_word(events, text, strlen(text));
}

/* Length of the name without the number that it may end with. */
static size_t bare_length(const char *name)
{
  size_t length = strlen(name), end = length;
  while (end > 0 && name[end - 1] >= '0' && name[end - 1] <= '9') end--;
  return end < length && end > 1 && name[end - 1] == ' ' ? end - 1 : length;
}

/* ---- an event ------------------------------------------------------------------------------ */

/* A number of microseconds as nanoseconds; negative if it is none. */
static int64_t ns_of(const cJSON *item, const char *name)
{
  const double us = plm_json_number(item, name, -1);
  return us >= 0 && us < 1e15 ? (int64_t)llround(1e3 * us) : -1;
}

int64_t plm_profile_whole(const cJSON *item, const char *name, double limit)
{
  const double value = plm_json_number(item, name, -1);
  return value >= 0 && value < limit && value == floor(value) ? (int64_t)value : -1;
}

double plm_profile_work(const cJSON *item, const char *name)
{
  const double work = plm_json_number(item, name, 0);
  return work > 0 && work < 1e30 ? work : 0;
}

static plm_status make_room(struct plm_profile_events *events, struct plm_error *error)
{
  if (events->count < events->room) return PLM_OK;
  const size_t room = events->room == 0 ? FIRST_ROOM : 2 * events->room;
  struct plm_profiled *list = realloc(events->list, room * sizeof *list);
  if (list == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu events of a profile", room);
  events->list = list;
  events->room = room;
  return PLM_OK;
}

static plm_status read_event(const cJSON *item, struct plm_profile_events *events,
                             struct plm_error *error)
{
  if (strcmp(plm_json_string(item, "ph", ""), "X") != 0) return PLM_OK; /* it names something */
  const cJSON *arguments = cJSON_GetObjectItemCaseSensitive(item, "args");
  const int64_t rank = plm_profile_whole(item, "pid", RANK_LIMIT),
                track = plm_profile_whole(item, "tid", TRACK_LIMIT);
  const int64_t begin_ns = ns_of(item, "ts"), took_ns = ns_of(item, "dur");
  if (rank < 0 || track < 0 || begin_ns < 0 || took_ns < 0)
    return plm_no_profile(error, "an event has no place or no time");
  PLM_TRY(make_room(events, error));
  const char *name = plm_json_string(item, "name", "");
  events->list[events->count++] =
      (struct plm_profiled){.rank = (uint32_t)rank,
                            .track = (uint32_t)track,
                            .begin_ns = begin_ns,
                            .end_ns = begin_ns + took_ns,
                            .name = keep_word(events, name, bare_length(name)),
                            .kind = keep_string(events, item, "cat"),
                            .shape = keep_string(events, arguments, "shape"),
                            .bytes = plm_profile_work(arguments, "bytes"),
                            .flops = plm_profile_work(arguments, "flops")};
  return PLM_OK;
}

/* ---- lines --------------------------------------------------------------------------------- */

/* Reads a line with its end. *ended: there is none. */
static plm_status read_line(FILE *file, char line[LINE_SIZE], bool *ended, struct plm_error *error)
{
  errno = 0;
  *ended = fgets(line, LINE_SIZE, file) == NULL;
  if (*ended && ferror(file)) return plm_error_errno(error, "cannot read");
  if (*ended || strchr(line, '\n') != NULL || feof(file)) return PLM_OK;
  return plm_no_profile(error, "a line is too long, but the trainer writes an event in each");
}

plm_status plm_profile_head_read(FILE *file, cJSON **head, struct plm_error *error)
{
  bool ended;
  *head = NULL;
  char *line = plm_alloc(LINE_SIZE);
  plm_status status = read_line(file, line, &ended, error);
  if (status == PLM_OK && !ended) *head = plm_run_profile_head(line);
  if (status == PLM_OK && *head == NULL)
    status = plm_no_profile(error, "its first line is not that of a profile");
  free(line);
  return status;
}

/* Reads the event of a line. *last: it is the line after the last one. */
static plm_status take_line(struct plm_profile_events *events, char *line, bool *last,
                            struct plm_error *error)
{
  const size_t length = strcspn(line, "\n");
  *last = strncmp(line, "]}", length) == 0 && length == 2;
  if (*last) return PLM_OK;
  line[length] = '\0';
  cJSON *item = plm_json_line(line); /* a comma after it is passed over */
  if (item == NULL && plm_json_no_memory())
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for an event of a profile");
  const plm_status status = cJSON_IsObject(item)
                                ? read_event(item, events, error)
                                : plm_no_profile(error, "a line is not an event as JSON");
  cJSON_Delete(item);
  return status;
}

static int by_time(const void *a, const void *b)
{
  const struct plm_profiled *x = a, *y = b;
  if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
  if (x->track != y->track) return x->track < y->track ? -1 : 1;
  if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
  return (x->end_ns < y->end_ns) - (x->end_ns > y->end_ns);
}

plm_status plm_profile_events_read(FILE *file, struct plm_profile_events *events,
                                   struct plm_error *error)
{
  bool ended = false, last = false;
  char *line = plm_alloc(LINE_SIZE);
  events->words = plm_alloc_zeroed(BUCKETS, sizeof(struct plm_profile_word *));
  plm_status status = PLM_OK;
  while (status == PLM_OK && !last) {
    status = read_line(file, line, &ended, error);
    if (status == PLM_OK && ended) status = plm_no_profile(error, "it ends before its last line");
    if (status == PLM_OK) status = take_line(events, line, &last, error);
  }
  free(line);
  if (status == PLM_OK && events->count > 0)
    qsort(events->list, events->count, sizeof *events->list, by_time);
  return status;
}

void plm_profile_events_deinit(struct plm_profile_events *events)
{
  for (size_t i = 0; i < BUCKETS && events->words != NULL; i++)
    for (struct plm_profile_word *word = events->words[i], *next; word != NULL; word = next) {
      next = word->next;
      free(word);
    }
  free(events->words);
  free(events->list);
  *events = (struct plm_profile_events){0};
}
