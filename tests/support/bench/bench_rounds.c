/* Reads the requests of the driver and prints the answers. */
#include "tests/support/bench/bench_rounds.h"

#include <stdio.h>
#include <stdlib.h>

static bool in_answer;

bool bench_request_read(struct bench_request *request)
{
  char line[128];
  if (fgets(line, sizeof line, stdin) == NULL) return false;
  if (sscanf(line, "%15s %u", request->verb, &request->count) == 2 && request->count > 0)
    return true;
  fprintf(stderr, "a round is asked for as VERB COUNT, this is: %s", line);
  exit(2);
}

void bench_answer_values(const char *key, const double *values, unsigned count)
{
  printf("%s\"%s\": [", in_answer ? ", " : "{", key);
  for (unsigned i = 0; i < count; i++) printf("%s%.9g", i > 0 ? ", " : "", values[i]);
  printf("]");
  in_answer = true;
}

void bench_answer_end(void)
{
  printf("%s}\n", in_answer ? "" : "{");
  (void)fflush(stdout);
  in_answer = false;
}
