/* Measuring by turns with a peer. The program prints one line of JSON that says what it can
 * measure, and then answers each line "VERB COUNT" on stdin with a line of JSON, until stdin ends.
 * A driver (tests/bench/rounds.py) thus lets both measure by turns on a machine whose speed drifts.
 */
#ifndef PLM_TESTS_SUPPORT_BENCH_ROUNDS_H
#define PLM_TESTS_SUPPORT_BENCH_ROUNDS_H

#include <stdbool.h>
#include <stdint.h>

struct bench_request {
  char verb[16];
  unsigned count;
};

/* Reads the next line of stdin; false at its end. A malformed line ends the program. */
bool bench_request_read(struct bench_request *request);

/* Answers with {"KEY": [values], ...}: call _values for each key, then _end. */
void bench_answer_values(const char *key, const double *values, unsigned count);
void bench_answer_end(void);

#endif
