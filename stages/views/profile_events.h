/* The events of a profile (RUN/profile.json), which are read a line at a time: the profile of 100
 * steps of many ranks has millions. */
#ifndef PLM_STAGES_VIEWS_PROFILE_EVENTS_H
#define PLM_STAGES_VIEWS_PROFILE_EVENTS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/status.h"

struct cJSON;

struct plm_profiled {
  uint32_t rank, track;
  int64_t begin_ns, end_ns;
  /* Of the events' words. The name is without the number that it may end with: "weights on rail" of
   * "weights on rail 3". The shape may be "". */
  const char *name, *kind, *shape;
  double bytes, flops;
};

/* {0} before plm_profile_events_read. */
struct plm_profile_events {
  struct plm_profiled *list; /* (count), by rank, track and time; longer ones first */
  size_t count, room;
  struct plm_profile_word **words; /* each once */
};

/* Sets what is wrong with a file that is no profile. PLM_FORMAT. */
plm_status plm_no_profile(struct plm_error *error, const char *what);

/* Reads what the file says about the run (otherData and more), up to the first event. The caller
 * frees *head with cJSON_Delete. PLM_FORMAT, PLM_IO. */
plm_status plm_profile_head_read(FILE *file, struct cJSON **head, struct plm_error *error);
/* Then reads the events. PLM_FORMAT, PLM_IO, PLM_NO_MEMORY. */
plm_status plm_profile_events_read(FILE *file, struct plm_profile_events *events,
                                   struct plm_error *error);
void plm_profile_events_deinit(struct plm_profile_events *events);

/* Numbers of an object: a whole one below a limit, negative if it is none; and an amount of work, 0
 * if it is none. */
int64_t plm_profile_whole(const struct cJSON *item, const char *name, double limit);
double plm_profile_work(const struct cJSON *item, const char *name);

#endif
