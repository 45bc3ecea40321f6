/* Reads ranges of steps. */
#include "common/config/step_range.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_MOST = 18 }; /* they fit into 64 bits */

/* Reads the number that text begins with; *end is behind it. False if there is none. */
static bool read_step(const char *text, uint64_t *step, const char **end)
{
  const size_t digits = strspn(text, "0123456789");
  *end = text + digits;
  *step = strtoull(text, NULL, 10);
  return digits > 0 && digits <= DIGITS_MOST;
}

static bool read_range(const char *text, struct plm_step_range *steps)
{
  const char *end;
  if (!read_step(text, &steps->first, &end)) return false;
  steps->last = steps->first;
  if (*end == '-' && !read_step(end + 1, &steps->last, &end)) return false;
  return *end == '\0';
}

bool plm_step_range_parse(const char *text, struct plm_step_range *steps,
                          char message[PLM_STEP_RANGE_MESSAGE])
{
  struct plm_step_range read;
  message[0] = '\0';
  if (!read_range(text, &read))
    snprintf(message, PLM_STEP_RANGE_MESSAGE,
             "expected a step or FIRST-LAST, for example 10-12, found \"%.80s\"", text);
  else if (read.first == 0)
    snprintf(message, PLM_STEP_RANGE_MESSAGE, "there is no step 0; the first step is 1");
  else if (read.last < read.first)
    snprintf(message, PLM_STEP_RANGE_MESSAGE,
             "the last step, %llu, is before the first, %llu; write %llu-%llu",
             (unsigned long long)read.last, (unsigned long long)read.first,
             (unsigned long long)read.last, (unsigned long long)read.first);
  else if (read.last - read.first >= PLM_MAX_PROFILE_STEPS)
    snprintf(message, PLM_STEP_RANGE_MESSAGE, "%llu steps are too many; a profile has at most %d",
             1 + (unsigned long long)(read.last - read.first), PLM_MAX_PROFILE_STEPS);
  if (message[0] != '\0') return false;
  *steps = read;
  return true;
}

bool plm_step_range_store(const struct plm_scalar *scalar, struct plm_step_range *steps,
                          char message[PLM_STEP_RANGE_MESSAGE])
{
  if (!plm_scalar_is_null(scalar)) return plm_step_range_parse(scalar->text, steps, message);
  *steps = (struct plm_step_range){0};
  return true;
}
