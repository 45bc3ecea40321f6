/* The state of faults.so: which calls are watched, which of them fails, and what a power cut would
 * leave. See doc/faults.md.
 *
 * The environment says what to do. It is read when the library is loaded.
 *   PLM_FAULTS_BELOW    folder whose files are watched, without symbolic links in it
 *   PLM_FAULTS_LOG      file for the log; FILE.state and FILE.kept/ are beside it
 *   PLM_FAULTS_PROGRAM  the program whose calls are counted; all programs are logged
 *   PLM_FAULTS_CALL     CALL:PATTERN: only these calls are counted (fnmatch); not set: all
 *   PLM_FAULTS_AT       number of the call that fails, from 1; 0 only counts; `all`: each of them
 *                       fails; `now` cuts the power as soon as the library is loaded
 *   PLM_FAULTS_HOW      ENOSPC, EIO, EMFILE or cut
 *
 * The log has a line for each call and a line for each thing that became durable; fields are
 * separated by tabs:
 *   C NUMBER PROGRAM PID CALL PATH OTHER OUTCOME   number 0: not counted; outcome: ok or an errno
 *   S KEY KIND NAME       durable from here on: the file NAME in FILE.kept; kind f or d
 *   N PATH KIND KEY MODE TARGET    one entry of the folder at the moment of a power cut
 * A kept folder is a listing with the lines NAME KIND KEY MODE TARGET. A key identifies a file even
 * if its inode number is used again. */
#ifndef PLM_FAULT_LOG_H
#define PLM_FAULT_LOG_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct fault_call {
  const char *name;
  char path[PATH_MAX];  /* relative to the watched folder */
  char other[PATH_MAX]; /* second path of a rename or a link; target of a symbolic link */
  long number;
  int error; /* errno with which the call must fail, or 0 */
  bool half; /* a write that stores only the first half of its bytes */
};

/* Whether a path is in the watched folder. Follows a symbolic link at its end if asked to. Fills in
 * the path relative to the folder ("." for the folder itself). */
bool fault_path_is_watched(int directory, const char *path, bool follow, char relative[PATH_MAX]);
bool fault_descriptor_is_watched(int descriptor, char relative[PATH_MAX]);

/* Between fault_begin and fault_end no other watched call runs in any process, so the log has the
 * order of the calls. fault_begin numbers the call, decides whether it fails, and does not return
 * if the power is cut. fault_end logs the outcome (`failed` and errno) and preserves errno. */
void fault_begin(struct fault_call *call);
void fault_end(const struct fault_call *call, bool failed);

/* Between the two: keeps what has just become durable. */
void fault_keep(int descriptor);

/* Whether this thread is inside this library, so that its calls are not watched. */
bool fault_inside(void);

#endif
