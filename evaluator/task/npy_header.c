/* Lays out the magic, the version, the length and the dictionary of an npy file. */
#include "evaluator/task/npy_header.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/status.h"

enum { ALIGNMENT = 64, PREFIX = 10 /* magic, version, length of the rest */ };

size_t plm_npy_header(char header[PLM_NPY_HEADER_SIZE], uint64_t rows, uint32_t columns)
{
  static const char magic[] = "\x93NUMPY\x01"; /* its NUL is the minor version */
  const int length =
      snprintf(header + PREFIX, PLM_NPY_HEADER_SIZE - PREFIX,
               "{'descr': '<f4', 'fortran_order': False, 'shape': (%" PRIu64 ", %" PRIu32 "), }",
               rows, columns);
  const size_t used = PREFIX + (size_t)length;
  const size_t whole = (used + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  PLM_ASSERT(length > 0 && whole <= PLM_NPY_HEADER_SIZE);
  memcpy(header, magic, sizeof magic);
  header[8] = (char)((whole - PREFIX) & 0xff);
  header[9] = (char)((whole - PREFIX) >> 8);
  memset(header + used, ' ', whole - used - 1);
  header[whole - 1] = '\n';
  return whole;
}
