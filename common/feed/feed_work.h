/* The threads that check what packers answer, so that the I/O thread need not. */
#ifndef PLM_COMMON_FEED_FEED_WORK_H
#define PLM_COMMON_FEED_FEED_WORK_H

#include "common/feed/feed_job.h"

struct feed_work;
/* Starts the threads: one for each four processors, from 1 to 4. wake: of plm_wake_open, woken
 * when a job is done. */
plm_status feed_work_open(int wake, struct feed_work **work, struct plm_error *error);
/* Joins the threads and frees all jobs. NULL is fine. */
void feed_work_close(struct feed_work *work);

/* Takes a job. Jobs begin in this order. */
void feed_work_submit(struct feed_work *work, struct feed_job *job);
/* The jobs that are done since the last call, in this order; the caller frees them. NULL: none. */
struct feed_job *feed_work_done(struct feed_work *work);

#endif
