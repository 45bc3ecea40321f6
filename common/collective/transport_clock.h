/* How long a rank computes without waiting for others. */
#ifndef PLM_COMMON_COLLECTIVE_TRANSPORT_CLOCK_H
#define PLM_COMMON_COLLECTIVE_TRANSPORT_CLOCK_H

#include <stdint.h>

enum plm_compute_mark { PLM_COMPUTE_BEGINS, PLM_COMPUTE_PAUSES, PLM_COMPUTE_RESUMES };

/* The clock of a transport whose wait makes the host wait. */
struct plm_transport_clock {
  uint64_t begun_ns, paused_ns;
  uint64_t pauses_ns; /* of all pauses since begun_ns */
};
void plm_transport_clock_mark(struct plm_transport_clock *clock, enum plm_compute_mark mark);
/* Seconds since PLM_COMPUTE_BEGINS, without the pauses. */
double plm_transport_clock_computed(const struct plm_transport_clock *clock);

#endif
