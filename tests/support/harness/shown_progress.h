/* The progress that a long call shows (common/base/log/progress.h): time passes so fast meanwhile
 * that each update is a line. One source of a test program includes this. */
#ifndef PLM_TESTS_SUPPORT_HARNESS_SHOWN_PROGRESS_H
#define PLM_TESTS_SUPPORT_HARNESS_SHOWN_PROGRESS_H

#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"

static atomic_int shown_each_s, shown_ahead_s; /* at each look; of the monotonic clock */

/* Takes the place of libc's function in this program. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
  const int failed = (int)syscall(SYS_clock_gettime, clock, now);
  if (clock == CLOCK_MONOTONIC) now->tv_sec += shown_ahead_s += shown_each_s;
  return failed;
}

static inline void shown_progress_begin(void)
{
  plm_log_init("t", PLM_LOG_INFO);
  captured_begin(STDERR_FILENO);
  shown_each_s = 10;
}

/* Fails the test unless, since then, there was a line of progress for each line of `expected`, in
 * the same order, which begins so: "embed 50 %  3 sequences". */
static inline void shown_progress_end(const char *expected)
{
  shown_each_s = 0;
  plm_log_init("t", PLM_LOG_ERROR);
  const char *said = captured_end(), *at = said;
  int lines = 0;
  for (const char *line = expected; *line != '\0'; lines++) {
    char begin[200];
    const size_t length = strcspn(line, "\n");
    assert_true(length < sizeof begin);
    memcpy(begin, line, length);
    begin[length] = '\0';
    at = strstr(at, begin);
    if (at == NULL) fail_msg("not \"%s\" in its place: %s", begin, said);
    at += length;
    line += length + (line[length] == '\n');
  }
  const int others = captured_times(said, " %  ") - lines;
  if (others != 0) fail_msg("%d lines more: %s", others, said);
}

#endif
