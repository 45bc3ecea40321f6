/* A profile, as its files see it: profile.c, which records, and profile_write.c. */
#ifndef PLM_TRAINER_PROFILE_PROFILE_STATE_H
#define PLM_TRAINER_PROFILE_PROFILE_STATE_H

#include <stddef.h>

#include "common/collective/collective.h"
#include "common/ops/observed.h"
#include "trainer/profile/profile.h"

struct plm_profile {
  struct plm_profile_options options;
  bool on_device; /* operators may still run when they return */
  bool recording; /* since the beginning of the first step that was met */
  bool written;
  bool settling; /* waits are the profile's own */
  bool failed;   /* there was no memory: what follows is missing, and the file says so */
  struct plm_profile_event *events; /* (count) */
  size_t count, room;
  uint64_t step, step_began_ns; /* of the running step; step 0: none */
  size_t before_step;           /* events that were recorded before it */
  uint64_t first_step, last_step, first_began_ns, agreed_ns; /* agreed_ns: all ranks began it */
  uint64_t op_began_ns;
  /* Marks are used again after each step, when their times are known (profile_settle). Mark 0 is
   * set at a time that the host knows. */
  uint32_t marks, marks_room, op_mark;
  uint64_t mark_0_ns;
  size_t settled;   /* events before it have their times */
  double copy_rate; /* bytes per second of a copy in memory, read and written; 0: not measured */
};

/* What rank 0 tells the others: when it began, and all ranks agreed to begin, the first step. The
 * clocks of ranks on other hosts are set by the latter. */
struct plm_profile_origin {
  uint64_t began_ns, agreed_ns;
  char host[PLM_HOST_NAME_SIZE];
};

/* Appends an event. */
void plm_profile_put(struct plm_profile *profile, const struct plm_profile_event *event);

/* Orders the events by track and time, and adds the events `other` and `idle`. */
void plm_profile_complete(struct plm_profile *profile);

/* Writes the file, from what all ranks send. */
plm_status plm_profile_write(struct plm_profile *profile, struct plm_error *error);

#endif
