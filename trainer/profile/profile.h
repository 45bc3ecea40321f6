/* A profile of some steps of a run (trainer.profile.steps): what every rank did in them and how
 * long it took, as RUN/profile.json in the trace-event format of Chrome, which ui.perfetto.dev and
 * chrome://tracing open. `plm-pipeline profile` prints it as a table. See doc/profile.md.
 *
 * A rank has several tracks. The events of the track of the step, and of the device if there is
 * one, do not overlap within a step: what no event covers becomes an event `other` (or `idle`), so
 * that their durations add up to the step's to the nanosecond.
 *
 * While nothing is profiled, operators are called as always (common/ops/observed.h), and these
 * functions do nothing with a profile of NULL. Only the thread that trains calls them. */
#ifndef PLM_TRAINER_PROFILE_PROFILE_H
#define PLM_TRAINER_PROFILE_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/clock.h"
#include "common/model/masks.h"
#include "common/ops/ops.h"
#include "trainer/ranks/ranks.h"

enum plm_track {
  PLM_TRACK_STEP,   /* the thread that trains; on the CPU also the operators */
  PLM_TRACK_PARTS,  /* micro-batches, and parts of the backward pass and of the update */
  PLM_TRACK_DEVICE, /* what the device computes; not on the CPU */
  PLM_TRACK_COPIES, /* its copies beside the computation; not on the CPU */
  PLM_TRACK_WRITER, /* writes checkpoints */
  PLM_TRACK_MOVES,  /* and the one after it: what moves between ranks at the same time */
  PLM_TRACK_COUNT = PLM_TRACK_MOVES + 2
};

/* What an event is, which is its category in the file. */
enum plm_span {
  PLM_SPAN_STEP,
  PLM_SPAN_OPERATOR,
  PLM_SPAN_LAUNCH, /* of an operator on a device, by the host */
  PLM_SPAN_COPY,
  PLM_SPAN_WAIT, /* for the device */
  PLM_SPAN_DATA, /* waiting for the step's input and for the other ranks to begin */
  PLM_SPAN_PART,
  PLM_SPAN_EXCHANGE,
  PLM_SPAN_CHECKPOINT,
  PLM_SPAN_REPORT,
  PLM_SPAN_OTHER, /* of the host, as no other event covers */
  PLM_SPAN_IDLE,  /* the device has nothing to do */
  PLM_SPAN_COUNT
};

/* What is written about the run. The strings are borrowed. */
struct plm_profile_facts {
  const char *device, *isa, *precision, *products, *processor;
  uint32_t threads;
  double product_flops; /* per second, of a large product on one rank; 0: unknown */
};

struct plm_profile_options {
  uint64_t first, last;          /* steps, from 1 */
  struct plm_ops *ops;           /* borrowed, like everything here */
  struct plm_ranks *ranks;       /* all of them make a profile */
  const struct plm_masks *masks; /* from which attention's FLOPs follow */
  const char *run;
  struct plm_profile_facts facts;
};

struct plm_profile;
plm_status plm_profile_open(const struct plm_profile_options *options, struct plm_profile **profile,
                            struct plm_error *error);
void plm_profile_close(struct plm_profile *profile); /* NULL is fine; writes nothing */

/* A step from 1 begins, or has ended; the times are plm_clock_ns. Between the two, and until
 * plm_profile_finish after the last one, everything is recorded if the step is one of those. A step
 * that does not end is left out, with everything since its beginning except written checkpoints. */
void plm_profile_step_begins(struct plm_profile *profile, uint64_t step, uint64_t now_ns);
void plm_profile_step_ended(struct plm_profile *profile, uint64_t now_ns);
/* Whether steps were recorded that are not written yet; and whether the last of them has ended. */
bool plm_profile_is_pending(const struct plm_profile *profile);
bool plm_profile_is_due(const struct plm_profile *profile);
/* Writes what was recorded; all ranks call it at the same place, also if the run is interrupted
 * before the last of the steps. Does nothing if nothing is pending. measure: rank 0 also measures
 * how fast memory is copied, which takes some tenths of a second. That the file cannot be written
 * is only a warning; an error is one of the exchange between ranks. */
plm_status plm_profile_finish(struct plm_profile *profile, bool measure, struct plm_error *error);

/* Removes what a trainer that was killed has left of a profile. */
void plm_profile_sweep(const char *run);

struct plm_profile_event {
  enum plm_track track;
  enum plm_span kind;
  const char *name;          /* kept by reference */
  int64_t number;            /* of those with the name; negative: it has none */
  uint64_t begin_ns, end_ns; /* plm_clock_ns */
  int64_t sizes[3];          /* plm_op_call.sizes */
  double bytes, flops;
  uint32_t mark; /* of a device: that of its beginning, before that of its end; 0: none */
};
/* Adds an event to a recording; does nothing at other times. */
void plm_profile_record(struct plm_profile *profile, const struct plm_profile_event *event);

/* The time at which something begins, 0 without a profile; and the event when it has ended. */
static inline uint64_t plm_profile_clock(const struct plm_profile *profile)
{
  return profile == NULL ? 0 : plm_clock_ns();
}

static inline void plm_profile_add(struct plm_profile *profile, enum plm_track track,
                                   enum plm_span kind, const char *name, int64_t number,
                                   uint64_t begin_ns)
{
  if (profile == NULL) return;
  plm_profile_record(profile, &(struct plm_profile_event){.track = track,
                                                          .kind = kind,
                                                          .name = name,
                                                          .number = number,
                                                          .begin_ns = begin_ns,
                                                          .end_ns = plm_clock_ns()});
}

#endif
