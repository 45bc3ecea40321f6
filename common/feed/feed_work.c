/* A queue of jobs, threads that do them, and a queue of those that are done. */
#include "common/feed/feed_work.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/process/thread.h"
#include "common/base/process/wake.h"

enum { THREADS_MOST = 4, PROCESSORS_A_THREAD = 4 };

struct queue {
  struct feed_job *head, **tail;
};

struct feed_work {
  int wake;
  pthread_t threads[THREADS_MOST];
  unsigned thread_count;
  pthread_mutex_t mutex; /* guards everything below */
  pthread_cond_t submitted;
  struct queue waiting, done;
  bool closing;
};

static void queue_init(struct queue *queue)
{
  queue->head = NULL;
  queue->tail = &queue->head;
}

static void queue_add(struct queue *queue, struct feed_job *job)
{
  job->next = NULL;
  *queue->tail = job;
  queue->tail = &job->next;
}

static struct feed_job *queue_next(struct queue *queue)
{
  struct feed_job *job = queue->head;
  if (job == NULL) return NULL;
  queue->head = job->next;
  if (queue->head == NULL) queue->tail = &queue->head;
  return job;
}

static void *check_answers(void *argument)
{
  struct feed_work *work = argument;
  struct plm_data_scratch scratch = {0};
  pthread_mutex_lock(&work->mutex);
  while (!work->closing) {
    struct feed_job *job = queue_next(&work->waiting);
    if (job == NULL) {
      pthread_cond_wait(&work->submitted, &work->mutex);
      continue;
    }
    pthread_mutex_unlock(&work->mutex);
    feed_job_do(job, &scratch);
    pthread_mutex_lock(&work->mutex);
    queue_add(&work->done, job);
    plm_wake(work->wake);
  }
  pthread_mutex_unlock(&work->mutex);
  plm_data_scratch_deinit(&scratch);
  return NULL;
}

static unsigned threads_wanted(void)
{
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  const long wanted = processors / PROCESSORS_A_THREAD;
  return wanted < 1 ? 1 : wanted > THREADS_MOST ? THREADS_MOST : (unsigned)wanted;
}

plm_status feed_work_open(int wake, struct feed_work **work, struct plm_error *error)
{
  struct feed_work *made = plm_alloc_zeroed(1, sizeof *made);
  made->wake = wake;
  queue_init(&made->waiting);
  queue_init(&made->done);
  pthread_mutex_init(&made->mutex, NULL);
  pthread_cond_init(&made->submitted, NULL);
  plm_status status = PLM_OK;
  for (const unsigned wanted = threads_wanted(); made->thread_count < wanted && status == PLM_OK;) {
    status =
        plm_thread_start(&made->threads[made->thread_count], "check", check_answers, made, error);
    made->thread_count += status == PLM_OK;
  }
  if (status == PLM_OK)
    *work = made;
  else
    feed_work_close(made);
  return status;
}

static void free_jobs(struct queue *queue)
{
  for (struct feed_job *job; (job = queue_next(queue)) != NULL;) feed_job_free(job);
}

void feed_work_close(struct feed_work *work)
{
  if (work == NULL) return;
  pthread_mutex_lock(&work->mutex);
  work->closing = true;
  pthread_cond_broadcast(&work->submitted);
  pthread_mutex_unlock(&work->mutex);
  for (unsigned i = 0; i < work->thread_count; i++) pthread_join(work->threads[i], NULL);
  free_jobs(&work->waiting);
  free_jobs(&work->done);
  pthread_mutex_destroy(&work->mutex);
  pthread_cond_destroy(&work->submitted);
  free(work);
}

void feed_work_submit(struct feed_work *work, struct feed_job *job)
{
  pthread_mutex_lock(&work->mutex);
  queue_add(&work->waiting, job);
  pthread_cond_signal(&work->submitted);
  pthread_mutex_unlock(&work->mutex);
}

struct feed_job *feed_work_done(struct feed_work *work)
{
  pthread_mutex_lock(&work->mutex);
  struct feed_job *jobs = work->done.head;
  queue_init(&work->done);
  pthread_mutex_unlock(&work->mutex);
  return jobs;
}
