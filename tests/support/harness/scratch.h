/* A temporary folder for a test program: $PLM_TMP under the runner, otherwise a new one that is
 * removed at exit. */
#ifndef PLM_TESTS_SUPPORT_HARNESS_SCRATCH_H
#define PLM_TESTS_SUPPORT_HARNESS_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the folder, the same at each call. Ends the process if it cannot be made. */
const char *scratch_directory(void);
/* "FOLDER/NAME"; valid until the eighth call after this one. */
const char *scratch_path(const char *name);

/* Makes another empty folder there, for a run; its path goes to `run` (PLM_PATH_SIZE). */
void scratch_run(char *run);

/* Writes a file there, without waiting for the disk. */
void scratch_write(const char *path, const void *bytes, size_t size);

/* Says that a file, which is made if it is missing, was last changed age_s seconds ago (fewer
 * than 0: in the future). */
void scratch_age(const char *path, double age_s);

/* The permissions of FOLDER/NAME (or of the folder, if name is ""), with set-id and sticky bits.
 * Ends the process if there is no such file. */
unsigned scratch_mode(const char *folder, const char *name);

/* The text of a file; "" if there is none. Valid until the fourth call after this one. */
const char *scratch_contents(const char *path);
/* The path of the only file of a folder, besides hidden ones; valid until the next call. */
const char *scratch_only_file(const char *folder);

/* Whether nothing is in a folder, which must be there. */
bool scratch_is_empty(const char *path);

/* Waits until a file contains the text; false if that takes longer than timeout_ms. */
bool scratch_appears(const char *path, const char *text, int timeout_ms);

#endif
