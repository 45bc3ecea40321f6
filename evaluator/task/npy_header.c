/* Lays out the magic, the version, the length and the dictionary of an npy file. */
#include "evaluator/task/npy_header.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PREFIX = 10 /* magic, version, length of the rest */ };

void plm_npy_header(char header[PLM_NPY_HEADER_SIZE], uint64_t rows, uint32_t columns)
{
  static const char magic[] = "\x93NUMPY\x01"; /* its NUL is the minor version */
  memset(header, ' ', PLM_NPY_HEADER_SIZE);
  memcpy(header, magic, sizeof magic);
  header[8] = PLM_NPY_HEADER_SIZE - PREFIX;
  header[9] = 0;
  const int length =
      snprintf(header + PREFIX, PLM_NPY_HEADER_SIZE - PREFIX,
               "{'descr': '<f4', 'fortran_order': False, 'shape': (%" PRIu64 ", %" PRIu32 "), }",
               rows, columns);
  header[PREFIX + length] = ' '; /* in place of the NUL */
  header[PLM_NPY_HEADER_SIZE - 1] = '\n';
}
