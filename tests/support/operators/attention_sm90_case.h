/* What the tests of attention's kernels for sm_90a share: a case in bf16, and planted faults. */
#ifndef PLM_TESTS_SUPPORT_OPERATORS_ATTENTION_SM90_CASE_H
#define PLM_TESTS_SUPPORT_OPERATORS_ATTENTION_SM90_CASE_H

#include "tests/emulation/planted_hopper.h"
#include "tests/support/operators/attention_case.h"

/* Two chunks that differ, one head of width K. Each chunk has three work items, so each of two
 * blocks takes three. Sums go over up to three turns of 128 keys. */
void attention_sm90_two_chunks(struct attention_case *p, int32_t K);

enum attention_pass { ATTENTION_FORWARD, ATTENTION_BACKWARD };
/* Whether a child that computes two_chunks with the fault in one pass, on two multiprocessors, ends
 * in an error or finds other bits than those of `sound` in the results of this pass only. `order`
 * is that of the emulation's threads. */
bool attention_sm90_fault_shows(const struct attention_case *sound, enum attention_pass pass,
                                enum plm_planted_everywhere fault, uint64_t order);

#endif
