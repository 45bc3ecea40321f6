/* A temporary folder for a test program: $PLM_TMP under the runner, else one of its own that is
 * removed at exit. */
#ifndef PLM_TESTS_SUPPORT_SCRATCH_H
#define PLM_TESTS_SUPPORT_SCRATCH_H

#include <stdbool.h>

/* The folder; the same at each call. Aborts when none can be made. */
const char *scratch_directory(void);
/* "FOLDER/NAME"; valid until the eighth call after this one. */
const char *scratch_path(const char *name);

/* Whether a file has the text, within some time. */
bool scratch_appears(const char *path, const char *text, int timeout_ms);

#endif
