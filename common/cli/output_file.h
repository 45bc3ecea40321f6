/* Where a command writes its result, for every command that has an output.
 *
 * A regular file appears complete or not at all: it is written as PATH.tmp-PID and renamed at the
 * end. A symbolic link stays, and the file that it leads to is replaced. What exists and is not a
 * regular file (a pipe, a terminal, another device) is opened and written; a rename would put a
 * file in its place, which for /dev/null breaks the machine.
 *
 * "-", /dev/stdout, /dev/fd/1 and /proc/self/fd/1 are standard output, and /dev/fd/N is descriptor
 * N, even if it is a file that the shell has opened. */
#ifndef PLM_COMMON_CLI_OUTPUT_FILE_H
#define PLM_COMMON_CLI_OUTPUT_FILE_H

#include <stdbool.h>
#include <stdio.h>

#include "common/base/files/file.h"
#include "common/base/status.h"

struct plm_output_file;

/* Whether the path means standard output, so that nothing else may be printed there. */
bool plm_output_is_stdout(const char *path);
/* PLM_USAGE if --output names standard output, to which `option` ("--json") writes as well. output
 * NULL: it is not given. */
plm_status plm_output_check_stdout(const char *output, const char *option, struct plm_error *error);
/* PLM_USAGE if the output is a regular file that the command also reads, under whatever name or
 * link, for it would be replaced. `option` ("--output") names the output, which may be NULL: it is
 * not given. An input is a path, of which nothing need exist, or "-", standard input. */
plm_status plm_output_check_inputs(const char *option, const char *output,
                                   const char *const *inputs, size_t count,
                                   struct plm_error *error);
/* Whether the path means standard output, a descriptor, or something that exists and is not a
 * regular file. Such an output is written once from its beginning to its end. */
bool plm_output_is_stream(const char *path);
/* "standard output", or the path itself: for messages. */
const char *plm_output_name(const char *path);
/* Where the links at the end of path lead, for a path that is no stream: the file that is replaced.
 * It need not exist; PLM_EXISTS if it is a folder. */
plm_status plm_output_target(const char *path, char target[PLM_PATH_SIZE], struct plm_error *error);
/* The folder for temporary files of a command that writes to this path: the folder of a regular
 * file, and plm_temporary_folder for a stream. */
plm_status plm_output_folder(const char *path, char folder[PLM_PATH_SIZE], struct plm_error *error);

/* Opens the output. Opening a named pipe waits for its reader. */
plm_status plm_output_open(const char *path, struct plm_output_file **output,
                           struct plm_error *error);
/* Buffered; stdout itself if the output is that. Valid until _finish or _close. */
FILE *plm_output_stream(const struct plm_output_file *output);
/* The error after a write to the stream failed, from errno; that of the stop signal if one
 * interrupted the write. */
plm_status plm_output_failed(const struct plm_output_file *output, struct plm_error *error);
/* Opens the output, writes the bytes, and finishes and closes it. A regular file that holds secrets
 * can be read only by its owner, from its beginning. */
plm_status plm_output_write(const char *path, const void *bytes, size_t size, bool secret,
                            struct plm_error *error);
/* Flushes the output. A regular file is synced and gets its name, unless any write to the stream
 * has failed. */
plm_status plm_output_finish(struct plm_output_file *output, struct plm_error *error);
/* Removes a regular file that was not finished. NULL is fine. */
void plm_output_close(struct plm_output_file *output);

#endif
