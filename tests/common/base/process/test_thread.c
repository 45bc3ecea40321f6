/* Threads: which signals they take, their names, and what a failed start says; and conditions. */
#include "tests/support/harness/cmocka_all.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/process/thread.h"

enum { STARTS = 500 };

struct seen {
  sigset_t blocked;
};

static atomic_uint handled_here, handled_elsewhere;

static void note(int number)
{
  (void)number;
  atomic_fetch_add(gettid() == getpid() ? &handled_here : &handled_elsewhere, 1);
}

static void *look(void *context)
{
  struct seen *seen = context;
  pthread_sigmask(SIG_BLOCK, NULL, &seen->blocked);
  return NULL;
}

static void *return_at_once(void *context)
{
  return context;
}

static void a_thread_takes_no_signals_but_its_own_faults(void **state)
{
  (void)state;
  static const int blocked[] = {SIGTERM, SIGINT, SIGUSR1, SIGPIPE, SIGCHLD, SIGALRM};
  static const int open[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL};
  struct seen seen = {0};
  struct plm_error error = {0};
  sigset_t before, after;
  pthread_t thread;
  pthread_sigmask(SIG_BLOCK, NULL, &before);
  assert_int_equal(plm_thread_start(&thread, "look", look, &seen, &error), PLM_OK);
  pthread_join(thread, NULL);
  pthread_sigmask(SIG_BLOCK, NULL, &after);
  for (size_t i = 0; i < sizeof blocked / sizeof blocked[0]; i++) {
    assert_true(sigismember(&seen.blocked, blocked[i]));
    assert_int_equal(sigismember(&after, blocked[i]), sigismember(&before, blocked[i]));
  }
  for (size_t i = 0; i < sizeof open / sizeof open[0]; i++)
    assert_false(sigismember(&seen.blocked, open[i]));
}

/* Another process sends signals without a pause while threads start and end. A thread that blocked
 * them only in its body would take some. */
static void a_signal_during_a_start_goes_to_the_main_thread(void **state)
{
  (void)state;
  struct sigaction action = {.sa_handler = note}, before;
  struct plm_error error = {0};
  sigemptyset(&action.sa_mask);
  sigaction(SIGUSR1, &action, &before);
  const pid_t parent = getpid(), sender = fork();
  assert_true(sender >= 0);
  while (sender == 0)
    if (kill(parent, SIGUSR1) != 0 || getppid() != parent) _exit(0);
  while (atomic_load(&handled_here) == 0) usleep(100);
  for (int i = 0; i < STARTS; i++) {
    pthread_t thread;
    assert_int_equal(plm_thread_start(&thread, "short", return_at_once, NULL, &error), PLM_OK);
    pthread_join(thread, NULL);
  }
  kill(sender, SIGKILL);
  while (waitpid(sender, NULL, 0) < 0) {
  }
  sigaction(SIGUSR1, &before, NULL);
  assert_int_equal(atomic_load(&handled_elsewhere), 0);
}

static void *wait_for_byte(void *context)
{
  char byte;
  return read(*(int *)context, &byte, 1) == 1 ? context : NULL;
}

static void a_thread_has_its_name(void **state)
{
  (void)state;
  int ends[2];
  char name[32] = "";
  struct plm_error error = {0};
  pthread_t thread;
  assert_int_equal(pipe(ends), 0);
  assert_int_equal(plm_thread_start(&thread, "fifteen letters", wait_for_byte, &ends[0], &error),
                   PLM_OK);
  assert_int_equal(pthread_getname_np(thread, name, sizeof name), 0);
  assert_string_equal(name, "fifteen letters");
  assert_int_equal(write(ends[1], "x", 1), 1);
  pthread_join(thread, NULL);
  close(ends[0]);
  close(ends[1]);
}

/* There is no address space for another stack. A child does it, because the limit stays. */
static void a_start_that_fails_names_the_thread(void **state)
{
  (void)state;
  int status = 0;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  skip("the limit also applies to the sanitizer's own memory");
#endif
  const pid_t child = fork();
  if (child == 0) {
    const struct rlimit none = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    struct plm_error error = {0};
    pthread_t thread;
    if (setrlimit(RLIMIT_AS, &none) != 0) _exit(2);
    if (plm_thread_start(&thread, "no room", return_at_once, NULL, &error) == PLM_OK) _exit(3);
    _exit(strstr(error.what, "cannot start the thread \"no room\": ") == NULL ? 4 : 0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

/* A deadline of another clock would be over at once, or never. */
static void a_condition_waits_by_the_monotonic_clock(void **state)
{
  enum { WAIT_MS = 30, LONGEST_MS = 5000 };
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t condition;
  int waited = 0;
  (void)state;
  plm_condition_init(&condition);
  const int64_t begin = plm_clock_ms();
  const struct timespec until = plm_clock_after_ms(WAIT_MS);
  pthread_mutex_lock(&mutex);
  while (waited == 0) waited = pthread_cond_timedwait(&condition, &mutex, &until);
  pthread_mutex_unlock(&mutex);
  assert_int_equal(waited, ETIMEDOUT);
  assert_in_range(plm_clock_ms() - begin, WAIT_MS, LONGEST_MS);
  pthread_cond_destroy(&condition);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_start_that_fails_names_the_thread),
      cmocka_unit_test(a_thread_takes_no_signals_but_its_own_faults),
      cmocka_unit_test(a_thread_has_its_name),
      cmocka_unit_test(a_signal_during_a_start_goes_to_the_main_thread),
      cmocka_unit_test(a_condition_waits_by_the_monotonic_clock),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
