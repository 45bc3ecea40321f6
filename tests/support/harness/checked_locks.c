/* Every test program replaces pthread_mutex_lock and _unlock by functions that end the program if
 * the thread locks a mutex that it holds, or unlocks one that it does not hold: so a lock that was
 * forgotten is found although no other thread comes in between, and one that is never unlocked does
 * not hang. Nobody may hold a mutex that is destroyed. A sanitizer brings its own: then nothing is
 * replaced. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(PLM_SANITIZED)
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef int function(pthread_mutex_t *mutex);
static function *real_lock, *real_unlock, *real_destroy;

__attribute__((constructor)) static void find(void)
{
  real_lock = (function *)dlsym(RTLD_NEXT, "pthread_mutex_lock");
  real_unlock = (function *)dlsym(RTLD_NEXT, "pthread_mutex_unlock");
  real_destroy = (function *)dlsym(RTLD_NEXT, "pthread_mutex_destroy");
}

/* Only of a plain mutex is it known what its fields mean. */
static int holds(const pthread_mutex_t *mutex)
{
  return mutex->__data.__kind == PTHREAD_MUTEX_TIMED_NP && mutex->__data.__owner == gettid();
}

static _Noreturn void end(const char *fault)
{
  fprintf(stderr, "FAILED: a thread %s\n", fault);
  abort();
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
  if (real_lock == NULL) find();
  if (holds(mutex)) end("locks a mutex that it holds");
  return real_lock(mutex);
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
  if (real_unlock == NULL) find();
  if (mutex->__data.__kind == PTHREAD_MUTEX_TIMED_NP && !holds(mutex))
    end("unlocks a mutex that it does not hold");
  return real_unlock(mutex);
}

int pthread_mutex_destroy(pthread_mutex_t *mutex)
{
  if (real_destroy == NULL) find();
  if (mutex->__data.__kind == PTHREAD_MUTEX_TIMED_NP && mutex->__data.__owner != 0)
    end("destroys a mutex that somebody holds");
  return real_destroy(mutex);
}
#endif
