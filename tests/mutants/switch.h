/* Which of the faults of a program is on. instrument.py includes this in each source that has some.
 * The variables are weak, so that each program and shared library has its own, and without switch.c
 * it has no fault. */
#pragma once

#ifdef __cplusplus
extern "C" {
#else
/* What an author would see at once is no fault to look for. */
#pragma GCC diagnostic error "-Wint-conversion"
#pragma GCC diagnostic error "-Wincompatible-pointer-types"
#pragma GCC diagnostic error "-Wimplicit-function-declaration"
#endif
/* The number of the fault, 0 for none, and -1 while the functions that are reached are recorded. */
__attribute__((weak, visibility("hidden"))) int plm_mutant;
__attribute__((weak, visibility("hidden"))) unsigned char *plm_mutants_reached;
#ifdef __cplusplus
}
#endif
