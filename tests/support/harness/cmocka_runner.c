/* See cmocka_runner.h. The limit of a test is a timer that signals the thread of the tests, so what
 * that thread does is what the test waits for. */
#include "tests/support/harness/cmocka_runner.h"

#include <execinfo.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/harness/captured.h"
#include "tests/support/harness/checked_memory.h"
#include "tests/support/harness/cmocka_all.h"

#ifdef PLM_SANITIZED
enum { PROGRAM_LIMIT_S = 7200 };
#else
enum { PROGRAM_LIMIT_S = 900 };
#endif
enum { TESTS_IN_LIMIT = 4, FRAMES = 40 };
#define LIMIT_SIGNAL SIGRTMAX /* no test uses it */

static struct CMUnitTest *chosen;   /* tests that the filter lets through */
static const struct CMUnitTest *at; /* the one that runs */
static size_t begun;                /* so many of them */
static int (*group_setup)(void **state), (*group_teardown)(void **state);
static const char *what = "before the first test";
static int limit_s;
static timer_t timer;

/* ---- the limit ------------------------------------------------------------------------------- */

extern char __executable_start, etext; /* of the linker */

/* Prints the functions of this program at these addresses, with their lines; without addr2line,
 * only addresses. */
static void print_functions(void *const *addresses, int count)
{
  char texts[FRAMES][24], program[32];
  char *words[FRAMES + 9] = {"addr2line", "-p", "-f", "-s", "-i", "-e", program};
  int known = 7;
  snprintf(program, sizeof program, "/proc/%d/exe", (int)getpid());
  for (int i = 0; i < count && i < FRAMES; i++) {
    const char *address = addresses[i];
    if (address < &__executable_start || address > &etext) continue; /* a library */
    snprintf(texts[i], sizeof texts[i], "%#tx", address - &__executable_start - 1);
    words[known++] = texts[i];
  }
  const pid_t child = fork();
  if (child == 0) {
    dup2(STDERR_FILENO, STDOUT_FILENO);
    execvp(words[0], words);
    backtrace_symbols_fd(addresses, count, STDERR_FILENO);
    _exit(0);
  }
  (void)waitpid(child, NULL, 0);
}

/* Without this function and the handler. */
static void print_stack(void)
{
  void *frames[FRAMES];
  const int depth = backtrace(frames, FRAMES);
  if (depth > 2) print_functions(frames + 2, depth - 2);
}

static void end_program(int number)
{
  (void)number;
  captured_abandon();
  fprintf(stderr, "FAILED: %s has not ended within %d s; it waits here:\n", what, limit_s);
  print_stack();
  signal(SIGABRT, SIG_DFL);
  abort();
}

static struct sigaction fault_before; /* cmocka's */

/* What SIGSEGV calls. If the address belongs to a block of the program, it is told which. */
static void tell_fault(int number, siginfo_t *information, void *context)
{
  struct checked_memory_place place;
  (void)context;
  if (information->si_code <= 0 || !checked_memory_find(information->si_addr, &place)) {
    sigaction(number, &fault_before, NULL);       /* the instruction runs again */
    if (information->si_code <= 0) raise(number); /* a process has sent it */
    return;
  }
  captured_abandon();
  fprintf(stderr, "FAILED: %s uses byte %td of a block of %zu bytes%s, here:\n", what, place.byte,
          place.size, place.released ? " that is released" : "");
  print_stack();
  fputs("The block was taken in\n", stderr);
  print_functions(&place.caller, 1);
  signal(SIGABRT, SIG_DFL);
  abort();
}

/* For each function of a test again, because cmocka sets handlers of its own before it. */
static void watch_faults(void)
{
  struct sigaction now;
  struct sigaction action = {.sa_sigaction = tell_fault, .sa_flags = SA_SIGINFO};
  sigaction(SIGSEGV, NULL, &now);
  if (!CHECKED_MEMORY || ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == tell_fault))
    return;
  fault_before = now;
  sigaction(SIGSEGV, &action, NULL);
}

static void make_timer(void)
{
  const char *given = getenv("PLM_TEST_LIMIT_S");
  const int program_s = given != NULL && atoi(given) > 0 ? atoi(given) : PROGRAM_LIMIT_S;
  struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = LIMIT_SIGNAL};
  const struct sigaction action = {.sa_handler = end_program};
  limit_s = program_s / TESTS_IN_LIMIT > 0 ? program_s / TESTS_IN_LIMIT : 1;
  event._sigev_un._tid = gettid();
  if (sigaction(LIMIT_SIGNAL, &action, NULL) == 0 &&
      timer_create(CLOCK_MONOTONIC, &event, &timer) == 0)
    return;
  perror("the limit of a test");
  exit(1);
}

static void limit(const char *of)
{
  const struct itimerspec seconds = {.it_value = {.tv_sec = limit_s}};
  what = of;
  timer_settime(timer, 0, &seconds, NULL);
}

/* ---- what a test leaves behind --------------------------------------------------------------- */

enum { DESCRIPTORS = 1024 };
static bool was_open[DESCRIPTORS];
static int was_mapped;
static uint64_t was_taken; /* blocks of memory */
static bool passed;

static bool is_open(int descriptor)
{
  return fcntl(descriptor, F_GETFD) != -1;
}

static void note_descriptors(void)
{
  for (int i = 0; i < DESCRIPTORS; i++) was_open[i] = is_open(i);
}

/* The mappings of files that tests have made, which lie in PLM_TMP or have "plm-test" in their
 * path. name: says which there are; NULL: nothing is said. */
static int count_mapped(const char *name)
{
  const char *scratch = getenv("PLM_TMP");
  char line[4200];
  int count = 0;
  FILE *maps = fopen("/proc/self/maps", "re");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    const char *path = strchr(line, '/');
    if (path == NULL || (strstr(path, "plm-test") == NULL &&
                         (scratch == NULL || strncmp(path, scratch, strlen(scratch)) != 0)))
      continue;
    if (name != NULL && count >= was_mapped)
      fprintf(stderr, "FAILED: %s has not released the mapping of %s", name, path);
    count++;
  }
  if (maps != NULL) fclose(maps);
  return count;
}

/* Says which memory the test has not released, and which functions took it. */
static int count_memory(const char *name)
{
  void *callers[FRAMES];
  size_t sizes[FRAMES];
  const long count = checked_memory_origins(was_taken + 1, callers, sizes, FRAMES);
  if (count == 0) return 0;
  fprintf(stderr, "FAILED: %s has not released %ld blocks of memory:", name, count);
  const int shown = count < FRAMES ? (int)count : FRAMES;
  for (int i = 0; i < shown; i++) fprintf(stderr, "%s%zu", i == 0 ? " " : ", ", sizes[i]);
  fprintf(stderr, " bytes, taken in\n");
  print_functions(callers, shown);
  return 1;
}

/* Says what the test has left: descriptors, mapped files, a child, and, unless it was left in the
 * middle, memory. Returns their number. */
static int count_left(const char *name)
{
  int left = passed ? count_memory(name) : 0, status;
  for (int i = 0; i < DESCRIPTORS; i++) {
    char link[32], target[200] = "";
    if (was_open[i] || !is_open(i)) continue;
    snprintf(link, sizeof link, "/proc/self/fd/%d", i);
    if (readlink(link, target, sizeof target - 1) < 0) continue;
    if (strcmp(target, "/dev/null") == 0)
      continue; /* the spare ones of common/base/files/descriptors */
    fprintf(stderr, "FAILED: %s has not closed descriptor %d, %s\n", name, i, target);
    left++;
  }
  left += count_mapped(name) - was_mapped;
  const pid_t child = waitpid(-1, &status, WNOHANG);
  if (child == -1) return left;
  fprintf(stderr, "FAILED: %s has a child %s\n", name,
          child == 0 ? "that still runs" : "that it has not waited for");
  return left + 1;
}

/* ---- what cmocka calls ----------------------------------------------------------------------- */

static int begin_group(void **state)
{
  limit("the preparation of all tests");
  watch_faults();
  return group_setup != NULL ? group_setup(state) : 0;
}

static int end_group(void **state)
{
  limit("the end of all tests");
  watch_faults();
  return group_teardown != NULL ? group_teardown(state) : 0;
}

/* cmocka calls it for each test, in their order. */
static int begin(void **state)
{
  at = &chosen[begun++];
  limit(at->name);
  watch_faults();
  checked_memory_begin_test();
  note_descriptors();
  was_mapped = count_mapped(NULL);
  was_taken = checked_memory_taken();
  passed = false;
  return at->setup_func != NULL ? at->setup_func(state) : 0;
}

static void run(void **state)
{
  watch_faults();
  at->test_func(state);
  passed = true;
}

static int end(void **state)
{
  watch_faults();
  const int failed = at->teardown_func != NULL ? at->teardown_func(state) : 0;
  return failed != 0 ? failed : count_left(at->name);
}

int test_run_group(const char *group, const struct CMUnitTest *tests, size_t count,
                   int (*setup)(void **state), int (*teardown)(void **state))
{
  const char *filter = getenv("PLM_TEST_FILTER");
  struct CMUnitTest *wrapped = calloc(count, sizeof *wrapped);
  size_t n = 0;
  free(chosen);
  chosen = calloc(count, sizeof *chosen);
  if (wrapped == NULL || chosen == NULL) abort();
  for (size_t i = 0; i < count; i++) {
    if (filter != NULL && fnmatch(filter, tests[i].name, 0) != 0) continue;
    chosen[n] = tests[i];
    wrapped[n++] = (struct CMUnitTest){.name = tests[i].name,
                                       .test_func = run,
                                       .setup_func = begin,
                                       .teardown_func = end,
                                       .initial_state = tests[i].initial_state};
  }
  group_setup = setup;
  group_teardown = teardown;
  begun = 0;
  if (limit_s == 0) make_timer();
  const int failed = _cmocka_run_group_tests(group, wrapped, n, begin_group, end_group);
  free(wrapped);
  return failed;
}

void test_skip(const char *reason, const char *file, int line)
{
  printf("skipped test: %s: %s\n", at->name, reason);
  fflush(stdout);
  _skip(file, line);
  abort(); /* it does not return */
}
