/* What the tests of attention's kernels for sm_90a share: cases in bf16 on the CUDA backend, and
 * planted faults. */
#ifndef PLM_TESTS_SUPPORT_ATTENTION_SM90_CASE_H
#define PLM_TESTS_SUPPORT_ATTENTION_SM90_CASE_H

#include "tests/emulation/planted_hopper.h"
#include "tests/support/attention_case.h"

/* Compares a case of `heads` heads of width K with the reference. */
void attention_sm90_check(const struct attention_batch *sample, unsigned kinds, uint32_t window,
                          uint32_t block, int32_t heads, int32_t K, float cap);
/* The same for two documents and two heads, of each of these widths. */
void attention_sm90_check_widths(const int32_t *widths, size_t count);
/* The same for two chunks of each of these lengths, in turn with a mask of documents and a causal
 * one. */
void attention_sm90_check_lengths(const uint32_t *lengths, size_t count);
/* Rows of padding have no output and no gradient, and their values are not used. */
void attention_sm90_check_padding(void);

/* Two chunks that differ, one head of width K. Each chunk has three pieces of work, so each of two
 * blocks takes three. Sums go over up to three turns of 128 keys. */
void attention_sm90_two_chunks(struct attention_case *p, int32_t K);

enum attention_pass { ATTENTION_FORWARD, ATTENTION_BACKWARD };
/* Whether a child that computes two_chunks with the fault in one pass, on two multiprocessors, ends
 * in an error or finds other bits than those of `sound` in the results of this pass only. `order`
 * is that of the emulation's threads. */
bool attention_sm90_fault_shows(const struct attention_case *sound, enum attention_pass pass,
                                enum plm_planted_everywhere fault, uint64_t order);

#endif
