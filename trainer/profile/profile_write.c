/* Writes a profile: rank 0 writes its own events and then what the other ranks send, a piece at a
 * time, so that a large gang needs no more memory than a small one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/base/text/json.h"
#include "common/run/run.h"
#include "common/run/run_profile.h"
#include "trainer/profile/profile_state.h"

#define UNFINISHED PLM_RUN_PROFILE ".tmp"

enum { PIECE = 1 << 20 };

static const char *const kind_names[PLM_SPAN_COUNT] = {[PLM_SPAN_STEP] = "step",
                                                       [PLM_SPAN_OPERATOR] = "operator",
                                                       [PLM_SPAN_LAUNCH] = "launch",
                                                       [PLM_SPAN_COPY] = "copy",
                                                       [PLM_SPAN_WAIT] = "wait",
                                                       [PLM_SPAN_DATA] = "data",
                                                       [PLM_SPAN_PART] = "part",
                                                       [PLM_SPAN_EXCHANGE] = "exchange",
                                                       [PLM_SPAN_CHECKPOINT] = "checkpoint",
                                                       [PLM_SPAN_REPORT] = "report",
                                                       [PLM_SPAN_OTHER] = "other",
                                                       [PLM_SPAN_IDLE] = "idle"};

static const char *const track_names[PLM_TRACK_COUNT] = {
    [PLM_TRACK_STEP] = "step",
    [PLM_TRACK_PARTS] = "parts of the step",
    [PLM_TRACK_DEVICE] = "device",
    [PLM_TRACK_COPIES] = "copies of the device",
    [PLM_TRACK_WRITER] = "writer of checkpoints",
    [PLM_TRACK_MOVES] = "transfers between ranks",
    [PLM_TRACK_MOVES + 1] = "transfers between ranks, under way at the same time"};

/* ---- clocks -------------------------------------------------------------------------------- */

static plm_status find_origin(const struct plm_profile *profile, uint64_t *zero_ns,
                              struct plm_error *error)
{
  struct plm_ranks *ranks = profile->options.ranks;
  struct plm_profile_origin origin = {.began_ns = profile->first_began_ns,
                                      .agreed_ns = profile->agreed_ns};
  memcpy(origin.host, ranks->collective->place.host, sizeof origin.host);
  PLM_TRY(
      plm_collective_broadcast(ranks->collective, PLM_LANE_STEP, &origin, sizeof origin, error));
  *zero_ns = strcmp(origin.host, ranks->collective->place.host) == 0
                 ? origin.began_ns
                 : origin.began_ns + (profile->agreed_ns - origin.agreed_ns);
  return PLM_OK;
}

/* Whether events of any rank are missing. All ranks ask. */
static plm_status find_incomplete(const struct plm_profile *profile, bool *incomplete,
                                  struct plm_error *error)
{
  struct plm_ranks *ranks = profile->options.ranks;
  int64_t failed = profile->failed;
  PLM_TRY(plm_collective_vote(ranks->collective, failed, &failed, error));
  *incomplete = failed != 0;
  return PLM_OK;
}

/* ---- where the text goes ------------------------------------------------------------------- */

struct sink {
  struct plm_profile *profile;
  bool incomplete; /* the profile of some rank is */
  int failure;     /* errno of the first write to the file that failed; 0: none did */
  FILE *file;      /* of rank 0; NULL: it could not be opened, or an earlier profile stays */
  struct plm_text text;
};

static void put_in_file(struct sink *sink, const void *bytes, size_t size)
{
  if (sink->file == NULL || fwrite(bytes, 1, size, sink->file) == size) return;
  if (sink->failure == 0) sink->failure = errno;
}

/* Sends a piece of text, or an empty one at the end. */
static plm_status send_piece(struct sink *sink, struct plm_error *error)
{
  struct plm_collective *collective = sink->profile->options.ranks->collective;
  uint64_t size = sink->text.length;
  PLM_TRY(plm_collective_send(collective, PLM_LANE_STEP, 0, &size, sizeof size, error));
  if (size == 0) return PLM_OK;
  return plm_collective_send(collective, PLM_LANE_STEP, 0, sink->text.data, size, error);
}

static plm_status flush(struct sink *sink, struct plm_error *error)
{
  if (sink->text.length == 0) return PLM_OK;
  plm_status status = PLM_OK;
  if (!plm_ranks_first(sink->profile->options.ranks))
    status = send_piece(sink, error);
  else
    put_in_file(sink, sink->text.data, sink->text.length);
  plm_text_clear(&sink->text);
  return status;
}

/* ---- events -------------------------------------------------------------------------------- */

/* Microseconds with three digits, so that durations add up exactly. */
static void put_us(struct plm_text *text, const char *name, uint64_t ns)
{
  plm_text_printf(text, ",\"%s\":%llu.%03u", name, (unsigned long long)(ns / 1000),
                  (unsigned)(ns % 1000));
}

static void put_arguments(struct plm_text *text, const struct plm_profile_event *event)
{
  const char *before = "";
  plm_text_puts(text, ",\"args\":{");
  if (event->sizes[0] > 0) {
    plm_text_puts(text, "\"shape\":\"");
    for (int i = 0; i < PLM_OP_SIZES && event->sizes[i] > 0; i++)
      plm_text_printf(text, "%s%lld", i == 0 ? "" : " x ", (long long)event->sizes[i]);
    plm_text_puts(text, "\"");
    before = ",";
  }
  if (event->bytes > 0) plm_text_printf(text, "%s\"bytes\":%.0f", before, event->bytes);
  if (event->bytes > 0) before = ",";
  if (event->flops > 0) plm_text_printf(text, "%s\"flops\":%.0f", before, event->flops);
  plm_text_puts(text, "}");
}

/* What began before the profile is shown from its beginning. */
static void put_event(struct plm_text *text, const struct plm_profile *profile,
                      const struct plm_profile_event *event, uint64_t zero_ns)
{
  const uint64_t begin_ns = event->begin_ns > zero_ns ? event->begin_ns : zero_ns;
  const uint64_t end_ns = event->end_ns > begin_ns ? event->end_ns : begin_ns;
  plm_text_printf(text, ",\n{\"name\":\"%s", event->name);
  if (event->number >= 0) plm_text_printf(text, " %lld", (long long)event->number);
  plm_text_printf(text, "\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%u,\"tid\":%d",
                  kind_names[event->kind], profile->options.ranks->rank, (int)event->track);
  put_us(text, "ts", begin_ns - zero_ns);
  put_us(text, "dur", end_ns - begin_ns);
  if (event->bytes > 0 || event->flops > 0 || event->sizes[0] > 0) put_arguments(text, event);
  plm_text_puts(text, "}");
}

/* Metadata of the rank (track < 0) or of one of its tracks. */
static void put_name(struct plm_text *text, uint32_t rank, const char *what, int track,
                     const char *name)
{
  const bool first = rank == 0 && track < 0; /* of the file */
  plm_text_printf(text, "%s\n{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%u", first ? "" : ",", what,
                  rank);
  if (track >= 0) plm_text_printf(text, ",\"tid\":%d", track);
  plm_text_puts(text, ",\"args\":{\"name\":");
  plm_json_put_string(text, name, strlen(name));
  plm_text_puts(text, "}}");
}

/* Names the rank, and those of its tracks that have events. */
static void put_names(struct plm_text *text, const struct plm_profile *profile)
{
  const struct plm_ranks *ranks = profile->options.ranks;
  char name[PLM_HOST_NAME_SIZE + 40];
  int last = -1;
  snprintf(name, sizeof name, "rank %u%s%s", ranks->rank, ranks->single ? "" : " on ",
           ranks->single ? "" : ranks->collective->place.host);
  put_name(text, ranks->rank, "process_name", -1, name);
  for (size_t i = 0; i < profile->count; i++) {
    const int track = (int)profile->events[i].track;
    if (track != last) put_name(text, ranks->rank, "thread_name", track, track_names[track]);
    last = track;
  }
}

static plm_status put_events(struct sink *sink, uint64_t zero_ns, struct plm_error *error)
{
  const struct plm_profile *profile = sink->profile;
  put_names(&sink->text, profile);
  for (size_t i = 0; i < profile->count; i++) {
    put_event(&sink->text, profile, &profile->events[i], zero_ns);
    if (sink->text.length >= PIECE) PLM_TRY(flush(sink, error));
  }
  return flush(sink, error);
}

/* ---- the file ------------------------------------------------------------------------------ */

static void put_word(struct plm_text *text, const char *name, const char *value)
{
  if (value == NULL || value[0] == '\0') return;
  plm_text_printf(text, ",\"%s\":", name);
  plm_json_put_string(text, value, strlen(value));
}

/* What the file begins with, up to its first event. */
static void put_head(struct sink *sink)
{
  struct plm_text *text = &sink->text;
  const struct plm_profile *profile = sink->profile;
  const struct plm_profile_facts *facts = &profile->options.facts;
  plm_text_printf(text,
                  "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"format\":\"plm-profile\","
                  "\"version\":\"%s\",\"first_step\":%llu,\"last_step\":%llu,\"ranks\":%u,"
                  "\"threads\":%u",
                  PLM_VERSION, (unsigned long long)profile->first_step,
                  (unsigned long long)profile->last_step, profile->options.ranks->ranks,
                  facts->threads);
  put_word(text, "device", facts->device);
  put_word(text, "isa", facts->isa);
  put_word(text, "precision", facts->precision);
  put_word(text, "products", facts->products);
  put_word(text, "processor", facts->processor);
  if (facts->product_flops > 0)
    plm_text_printf(text, ",\"product_flops_per_second\":%.0f", facts->product_flops);
  if (profile->copy_rate > 0)
    plm_text_printf(text, ",\"copy_bytes_per_second\":%.0f", profile->copy_rate);
  if (sink->incomplete) plm_text_puts(text, ",\"incomplete\":true");
  plm_text_puts(text, "},\"traceEvents\":[");
}

static plm_status receive_from(struct sink *sink, uint32_t rank, char *piece,
                               struct plm_error *error)
{
  struct plm_collective *collective = sink->profile->options.ranks->collective;
  for (;;) {
    uint64_t size = 0;
    PLM_TRY(plm_collective_receive(collective, PLM_LANE_STEP, rank, &size, sizeof size, error));
    if (size == 0) return PLM_OK;
    PLM_ASSERT(size <= 2 * PIECE);
    PLM_TRY(plm_collective_receive(collective, PLM_LANE_STEP, rank, piece, size, error));
    put_in_file(sink, piece, size);
  }
}

/* Receives what the other ranks send. */
static plm_status receive_all(struct sink *sink, struct plm_error *error)
{
  const struct plm_ranks *ranks = sink->profile->options.ranks;
  if (ranks->ranks == 1) return PLM_OK;
  char *piece = malloc((size_t)2 * PIECE);
  if (piece == NULL) return plm_error_set(error, PLM_NO_MEMORY, "no memory for a profile");
  plm_status status = PLM_OK;
  for (uint32_t r = 1; r < ranks->ranks && status == PLM_OK; r++)
    status = receive_from(sink, r, piece, error);
  free(piece);
  return status;
}

/* whole: the file has what all ranks have sent. Otherwise an earlier profile stays as it is. */
static void close_file(struct sink *sink, bool whole, const char *path, const char *unfinished)
{
  static const char end[] = "\n]}\n";
  const struct plm_profile *profile = sink->profile;
  put_in_file(sink, end, strlen(end));
  if (fclose(sink->file) != 0 && sink->failure == 0) sink->failure = errno;
  if (!whole) {
    (void)remove(unfinished);
    return;
  }
  if (sink->failure == 0 && rename(unfinished, path) != 0) sink->failure = errno;
  if (sink->failure != 0) {
    plm_warning("the profile %s cannot be written: %s", path, strerror(sink->failure));
    (void)remove(unfinished);
    return;
  }
  plm_info("the profile of steps %llu to %llu is %s; `plm-pipeline profile` shows it as a table",
           (unsigned long long)profile->first_step, (unsigned long long)profile->last_step, path);
}

/* How many of the steps that are to be profiled lie between two steps. */
static uint64_t steps_within(const struct plm_profile *profile, uint64_t first, uint64_t last)
{
  if (first < profile->options.first) first = profile->options.first;
  if (last > profile->options.last) last = profile->options.last;
  return last < first ? 0 : last - first + 1;
}

/* Whether the run has a profile of as many of these steps, or of more. After a crash, a run may
 * meet only the last of them again. */
static bool is_profiled(const struct plm_profile *profile, const char *path)
{
  uint64_t first, last;
  if (!plm_run_profile_steps(path, &first, &last) ||
      steps_within(profile, first, last) <
          steps_within(profile, profile->first_step, profile->last_step))
    return false;
  plm_info("the profile %s of steps %llu to %llu stays, because this start has only recorded steps "
           "%llu to %llu",
           path, (unsigned long long)first, (unsigned long long)last,
           (unsigned long long)profile->first_step, (unsigned long long)profile->last_step);
  return true;
}

static plm_status write_as_first(struct sink *sink, uint64_t zero_ns, struct plm_error *error)
{
  const struct plm_profile *profile = sink->profile;
  char path[PLM_PATH_SIZE], unfinished[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(path, profile->options.run, PLM_RUN_PROFILE, error));
  PLM_TRY(plm_path_join(unfinished, profile->options.run, UNFINISHED, error));
  if (!is_profiled(profile, path)) {
    sink->file = fopen(unfinished, "we");
    if (sink->file == NULL)
      plm_warning("the profile %s cannot be written: %s", path, strerror(errno));
  }
  put_head(sink);
  plm_status status = put_events(sink, zero_ns, error);
  if (status == PLM_OK) status = receive_all(sink, error);
  if (sink->file != NULL) close_file(sink, status == PLM_OK, path, unfinished);
  return status;
}

plm_status plm_profile_write(struct plm_profile *profile, struct plm_error *error)
{
  struct sink sink = {.profile = profile};
  uint64_t zero_ns = 0;
  plm_status status = find_origin(profile, &zero_ns, error);
  if (status == PLM_OK) status = find_incomplete(profile, &sink.incomplete, error);
  if (status == PLM_OK && plm_ranks_first(profile->options.ranks)) {
    status = write_as_first(&sink, zero_ns, error);
  } else if (status == PLM_OK) {
    status = put_events(&sink, zero_ns, error);
    if (status == PLM_OK) status = send_piece(&sink, error); /* the end */
  }
  plm_text_deinit(&sink.text);
  return status;
}

void plm_profile_sweep(const char *run)
{
  char path[PLM_PATH_SIZE];
  if (plm_path_join(path, run, UNFINISHED, NULL) == PLM_OK) (void)unlink(path);
}
