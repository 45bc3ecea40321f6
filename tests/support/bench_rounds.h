/* Measuring in rounds beside a peer: the program says on stdout, in a line of JSON, what it has
 * ready, and then answers each line "VERB COUNT" on stdin with a line of JSON, until stdin ends.
 * So a driver lets both measure in turn, on a machine whose speed drifts (tests/bench/rounds.py).
 */
#ifndef PLM_TESTS_SUPPORT_BENCH_ROUNDS_H
#define PLM_TESTS_SUPPORT_BENCH_ROUNDS_H

#include <stdbool.h>
#include <stdint.h>

struct bench_request {
  char verb[16];
  unsigned count;
};

/* The next line of stdin; false when it has ended. A line that is none ends the program. */
bool bench_request_read(struct bench_request *request);

/* Answers with {"KEY": [values], ...}: _values as often as there are keys, then _end. */
void bench_answer_values(const char *key, const double *values, unsigned count);
void bench_answer_end(void);

#endif
