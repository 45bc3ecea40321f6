/* One operation of the reference tape, for the files that define them. */
#ifndef PLM_TESTS_SUPPORT_REFERENCE_REFERENCE_OPERATION_H
#define PLM_TESTS_SUPPORT_REFERENCE_REFERENCE_OPERATION_H

#include "tests/support/reference/reference_tape.h"

struct operation {
  struct tensor out;
  struct tensor *in[4];
  void (*backward)(struct operation *operation);
  const int32_t *ids;
  const float *weights;
  const bool *allowed;
  double *saved;
  double number[2];
  int64_t size[3];
  bool flag;
  struct operation *before;
};

/* n zeros, which the tape or the caller frees. */
double *tape_zeros(int64_t n);
/* An operation on the tape whose output is (rows, width) and 0. Inputs that it lacks are NULL. */
struct operation *tape_push(struct tape *tape, int64_t rows, int64_t width,
                            void (*backward)(struct operation *), struct tensor *a,
                            struct tensor *b);

#endif
