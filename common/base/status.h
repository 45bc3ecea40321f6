/* Errors: every function that can fail returns a plm_status and fills the caller's struct
 * plm_error.
 *
 * One list defines the enum, the texts and the exit codes. An error says what happened, where
 * (file, line, key, record, endpoint) and how to fix it. Bad data, files and peers always lead to
 * such an error, never to an assertion. PLM_ASSERT is for programming errors and stays on in
 * production.
 */
#ifndef PLM_COMMON_BASE_STATUS_H
#define PLM_COMMON_BASE_STATUS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/* name, exit code of a command that ends with this status, exit code of a stage that does, text.
 * 6 and 7 tell the supervisor whether the cause may pass by itself. */
#define PLM_STATUS_LIST(X)                          \
  X(OK, 0, 0, "success")                            \
  X(FAILURE, 1, 1, "failure")                       \
  X(IO, 1, 6, "input/output error")                 \
  X(NO_SPACE, 1, 6, "no space left on the device")  \
  X(NO_MEMORY, 1, 1, "out of memory")               \
  X(NO_DESCRIPTORS, 1, 6, "too many open files")    \
  X(CORRUPT, 1, 1, "corrupt data")                  \
  X(FORMAT, 1, 7, "malformed input")                \
  X(NOT_FOUND, 1, 1, "not found")                   \
  X(EXISTS, 1, 1, "already exists")                 \
  X(LIMIT, 1, 1, "limit exceeded")                  \
  X(UNSUPPORTED, 1, 7, "not supported")             \
  X(PROTOCOL, 1, 1, "protocol violation")           \
  X(BUSY, 1, 6, "in use by another process")        \
  X(USAGE, 2, 2, "usage error")                     \
  X(CONFIG, 2, 2, "configuration error")            \
  X(NOT_RUNNING, 3, 3, "not running")               \
  X(TIMEOUT, 4, 4, "timed out")                     \
  X(NOT_FINITE, 5, 5, "a value that is not finite") \
  X(UNAVAILABLE, 6, 6, "not available at present")  \
  X(PERMANENT, 7, 7, "a cause that stays")          \
  X(INTERRUPTED, 130, 130, "interrupted")           \
  X(TERMINATED, 143, 143, "terminated")             \
  X(AGAIN, 1, 1, "nothing ready yet")

typedef enum {
#define PLM_STATUS_ENUM(name, exit_code, stage_code, text) PLM_##name,
  PLM_STATUS_LIST(PLM_STATUS_ENUM)
#undef PLM_STATUS_ENUM
      PLM_STATUS_COUNT
} plm_status;

/* The caller owns it; it holds no allocated memory. Initialise it with {0}. */
struct plm_error {
  plm_status status;
  char what[512];  /* what happened, with the offending value */
  char where[512]; /* file:line, record, key or endpoint; "" if there is none */
  char hint[512];  /* how to fix it; "" if there is nothing to say */
};

/* Codes by which the supervisor decides what a failure of a stage means. */
enum {
  PLM_EXIT_CONFIG = 2,
  PLM_EXIT_TIMEOUT = 4,
  PLM_EXIT_NOT_FINITE = 5,
  PLM_EXIT_MAY_PASS = 6,
  PLM_EXIT_STAYS = 7,
};

/* The text of a status ("corrupt data"), and the exit code of a command or of a stage (plm-packer,
 * plm-trainer, the watching plm-evaluator) that ends with it. */
const char *plm_status_text(plm_status status);
int plm_status_exit_code(plm_status status);
int plm_status_stage_code(plm_status status);
/* Whether the same attempt may succeed later without any change by the user: after an error of
 * input or output, or a lack of memory, descriptors or space. */
bool plm_status_may_pass(plm_status status);

/* Fills error (may be NULL), clears where and hint, and returns status, for
 * `return plm_error_set(...)`. */
plm_status plm_error_set(struct plm_error *error, plm_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same with errno's text appended; ENOSPC and EDQUOT become PLM_NO_SPACE, ENOENT becomes
 * PLM_NOT_FOUND, ENOMEM becomes PLM_NO_MEMORY, EMFILE and ENFILE become PLM_NO_DESCRIPTORS, EFBIG
 * becomes PLM_LIMIT with a hint, everything else PLM_IO. */
plm_status plm_error_errno(struct plm_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Add the place, or the remedy, to an error that was just set. They return error->status (or
 * PLM_FAILURE when error is NULL), for chaining in a return statement. */
plm_status plm_error_where(struct plm_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
plm_status plm_error_hint(struct plm_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Passes an error on: returns from the calling function, or jumps to its cleanup label. */
#define PLM_TRY(call)                                      \
  do {                                                     \
    plm_status plm_try_status_ = (call);                   \
    if (plm_try_status_ != PLM_OK) return plm_try_status_; \
  } while (0)

#define PLM_TRY_GOTO(status_variable, call, label) \
  do {                                             \
    (status_variable) = (call);                    \
    if ((status_variable) != PLM_OK) goto label;   \
  } while (0)

/* For programming errors only; never compiled out. */
#define PLM_ASSERT(condition)                                            \
  do {                                                                   \
    if (!(condition)) plm_assert_failed(#condition, __FILE__, __LINE__); \
  } while (0)
void plm_assert_failed(const char *condition, const char *file, int line) __attribute__((noreturn));

/* The static analyser reads one file at a time and cannot know that these never return PLM_OK.
 * Inside its own macro, each name refers to the function. */
#ifdef __clang_analyzer__
#define plm_error_set(error, status, ...) (plm_error_set(error, status, __VA_ARGS__), (status))
#define plm_error_errno(...) (plm_error_errno(__VA_ARGS__), PLM_IO)
#define plm_error_where(...) (plm_error_where(__VA_ARGS__), PLM_FAILURE)
#define plm_error_hint(...) (plm_error_hint(__VA_ARGS__), PLM_FAILURE)
#endif

#endif
