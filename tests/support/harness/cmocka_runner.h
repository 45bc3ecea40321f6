/* How every test program runs its tests (cmocka_all.h redirects cmocka's macros to here):
 *
 *   - only tests whose names match PLM_TEST_FILTER, a pattern (* and ?), are run;
 *   - a test that has not ended after some minutes is ended, and the program says which one it was
 *     and in which line of which function it waits;
 *   - a test fails that leaves a descriptor, a mapped file, a child or memory behind, or that has
 *     written behind the end of a block (checked_memory.h);
 *   - a test that is skipped says why in a line "skipped test: NAME: REASON", which the runner
 *     (tests/support/runner) counts. */
#ifndef PLM_TESTS_SUPPORT_HARNESS_CMOCKA_RUNNER_H
#define PLM_TESTS_SUPPORT_HARNESS_CMOCKA_RUNNER_H

#include <stddef.h>

struct CMUnitTest;

/* As _cmocka_run_group_tests. A test may take a quarter of PLM_TEST_LIMIT_S, which is the limit of
 * the whole program: 900 s, 7200 s under a sanitizer. */
int test_run_group(const char *group, const struct CMUnitTest *tests, size_t count,
                   int (*setup)(void **state), int (*teardown)(void **state));

/* Ends the test, which counts as skipped. */
void test_skip(const char *reason, const char *file, int line) __attribute__((noreturn));

#endif
