/* The header of an npy file, for every task that writes one. */
#ifndef PLM_EVALUATOR_TASK_NPY_HEADER_H
#define PLM_EVALUATOR_TASK_NPY_HEADER_H

#include <stddef.h>
#include <stdint.h>

enum { PLM_NPY_HEADER_SIZE = 256 }; /* bytes, at most */

/* Writes the header of an array (rows, columns) of little-endian fp32 values in C order, and
 * returns its length, a multiple of 64. The format is described in numpy.lib.format, version 1.0.
 */
size_t plm_npy_header(char header[PLM_NPY_HEADER_SIZE], uint64_t rows, uint32_t columns);

#endif
