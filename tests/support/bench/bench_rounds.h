/* Lets a benchmark take turns with a peer. It prints one line of JSON that describes what it
 * measures, and then answers each line "VERB COUNT" on stdin with a line of JSON, until stdin ends.
 * In this way tests/bench/rounds.py can compare the two on a machine whose speed drifts. */
#ifndef PLM_TESTS_SUPPORT_BENCH_BENCH_ROUNDS_H
#define PLM_TESTS_SUPPORT_BENCH_BENCH_ROUNDS_H

#include <stdbool.h>
#include <stdint.h>

struct bench_request {
  char verb[16];
  unsigned count;
};

/* Reads the next line of stdin; false at its end. A malformed line ends the program. */
bool bench_request_read(struct bench_request *request);

/* Prints the answer {"KEY": [values], ...}: call _values for each key, and then _end. */
void bench_answer_values(const char *key, const double *values, unsigned count);
void bench_answer_end(void);

#endif
