/* The header of an npy file, for every task that writes one. */
#ifndef PLM_EVALUATOR_TASK_NPY_HEADER_H
#define PLM_EVALUATOR_TASK_NPY_HEADER_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of a header: a multiple of 64, with room for any number of rows and columns. */
enum { PLM_NPY_HEADER_SIZE = 128 };

/* Writes the header of an array (rows, columns) of little-endian fp32 values in C order. The format
 * is described in numpy.lib.format, version 1.0. */
void plm_npy_header(char header[PLM_NPY_HEADER_SIZE], uint64_t rows, uint32_t columns);

#endif
