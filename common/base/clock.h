/* Clocks. Deadlines and durations use the monotonic one; wall time only marks lines for people. */
#ifndef PLM_COMMON_BASE_CLOCK_H
#define PLM_COMMON_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t plm_clock_ns(void) /* monotonic */
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline int64_t plm_clock_ms(void) /* monotonic */
{
  return (int64_t)(plm_clock_ns() / 1000000u);
}

/* The time in ms milliseconds, for pthread_cond_timedwait with the monotonic clock. */
static inline struct timespec plm_clock_after_ms(int64_t ms)
{
  const uint64_t then = plm_clock_ns() + (uint64_t)ms * 1000000u;
  return (struct timespec){.tv_sec = (time_t)(then / 1000000000u),
                           .tv_nsec = (long)(then % 1000000000u)};
}

/* Seconds since a time that plm_clock_ns returned. */
static inline double plm_clock_seconds_since(uint64_t started_ns)
{
  return 1e-9 * (double)(plm_clock_ns() - started_ns);
}

static inline double plm_clock_wall_s(void) /* seconds since 1970 */
{
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
