/* The emulation ends the process where a kernel breaks a rule of the device, and says which one. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cuda/cuda.h"
#include "tests/emulation/controls.h"
#include "tests/emulation/planted_rules.h"

enum { N = PLM_RULES_SIDE, OUTPUTS = 128, ORDERS = 4, TEXT_BYTES = 4096 };

static const char *const messages[] = {
#define PLM_RULE(name, message) message,
    PLM_PLANTED_RULES(PLM_RULE)
#undef PLM_RULE
};
static const char *const names[] = {
#define PLM_RULE(name, message) #name,
    PLM_PLANTED_RULES(PLM_RULE)
#undef PLM_RULE
};

/* Row i is i % 3. */
static _Alignas(16) uint16_t a[N * N + 8];
static float out[OUTPUTS];

static void fill(void)
{
  static const uint16_t numbers[] = {0, 0x3f80, 0x4000};
  for (int i = 0; i < N * N; i++) a[i] = numbers[i / N % 3];
}

/* A thread's first element of d, the sum over 16 columns of a row times another, whose values are
 * all alike; the sum of the first 16 rows' first elements, 0 + 1 + 2 + 0 + ...; and nothing for the
 * first row, which is 0. */
static float expected(int thread)
{
  const int row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
  return (float)(16 * (row % 3) * (column % 3)) + 15;
}

static void a_sound_kernel_runs(void **state)
{
  (void)state;
  fill();
  for (int order = 1; order <= ORDERS; order++) {
    memset(out, 0xff, sizeof out);
    plm_emulation_order((uint64_t)order);
    plm_cuda_planted_rule_run(PLM_RULE_COUNT, out, a);
    for (int i = 0; i < OUTPUTS; i++) assert_float_equal(out[i], expected(i), 0);
  }
}

/* Runs the kernel in a child and reads what it says. Returns whether it ended by itself. */
static int ends(enum plm_planted_rule fault, char text[TEXT_BYTES])
{
  int ends_of_pipe[2], status;
  assert_int_equal(pipe(ends_of_pipe), 0);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(ends_of_pipe[1], STDERR_FILENO);
    plm_cuda_planted_rule_run(fault, out, a);
    _exit(0);
  }
  close(ends_of_pipe[1]);
  size_t length = 0;
  ssize_t got;
  while (length < TEXT_BYTES - 1 &&
         (got = read(ends_of_pipe[0], text + length, TEXT_BYTES - 1 - length)) > 0)
    length += (size_t)got;
  text[length] = 0;
  close(ends_of_pipe[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void each_broken_rule_is_found(void **state)
{
  (void)state;
  int missed = 0;
  fill();
  for (int fault = 0; fault < PLM_RULE_COUNT; fault++) {
    char text[TEXT_BYTES];
#ifdef __SANITIZE_THREAD__ /* then nobody looks at alignment */
    if (fault == PLM_RULE_PAIR_OF_4 || fault == PLM_RULE_PAIR_OF_8) continue;
#endif
    plm_emulation_order(1);
    const int ended = ends((enum plm_planted_rule)fault, text);
    if (!ended && strstr(text, messages[fault]) != NULL) continue;
    printf("%s: expected \"%s\", got \"%s\"\n", names[fault], messages[fault], text);
    missed++;
  }
  assert_int_equal(missed, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_sound_kernel_runs),
      cmocka_unit_test(each_broken_rule_is_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
