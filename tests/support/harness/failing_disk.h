/* Lets disk calls of the code under test fail, one after another. */
#ifndef PLM_TESTS_SUPPORT_HARNESS_FAILING_DISK_H
#define PLM_TESTS_SUPPORT_HARNESS_FAILING_DISK_H

#include <stdbool.h>

#include "common/base/status.h"

/* Work on files below scratch_directory() that begins anew each time and releases everything. */
typedef plm_status failing_disk_work(void *context, struct plm_error *error);

/* Repeats the work: first its first call fails with EIO, then the second one, until all succeed.
 * Each attempt but the last has to end with an error whose message has the words for EIO, except
 * those that `unnoticed` lists up to a NULL (NULL: none), in which the work can do without the
 * call or says something else. Each is a pattern of one call and its path, such as "open *.lock",
 * in which * is any text; all of them have to come, in any order. One such as "+read *.txt" is of
 * any number of calls, or of none. At the end the work has to succeed once more while signals
 * interrupt its reading and writing, which come in pieces. */
void failing_disk_try(failing_disk_work *work, void *context, const char *const *unnoticed);

/* Within the work: no call fails, or is counted, until failing_disk_resume. */
long failing_disk_pause(void);
void failing_disk_resume(long at);

/* For a function that takes the place of libc's (failing_entries.h): counts a call with this path.
 * Whether it is the one that fails, with errno set. */
bool failing_disk_fails(const char *call, const char *path);

/* Within the work: whether a call has failed in this attempt, and its path is this one. */
bool failing_disk_failed(const char *path);

#endif
