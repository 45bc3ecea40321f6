/* File descriptors: how many a process may open, and some that are kept for its own files.
 *
 * Connections from outside can use up the descriptors of a process. A checkpoint must be written
 * all the same, so a stage reserves a few when it starts, and lends them for the time in which it
 * opens files. */
#ifndef PLM_COMMON_BASE_FILES_DESCRIPTORS_H
#define PLM_COMMON_BASE_FILES_DESCRIPTORS_H

#include <sys/types.h>

enum { PLM_DESCRIPTORS_RESERVED = 16 };

/* Raises the soft limit on descriptors to the hard one. */
void plm_descriptors_raise(void);

/* Opens /dev/null on up to PLM_DESCRIPTORS_RESERVED descriptors, as many as there are. */
void plm_descriptors_reserve(void);
/* Closes the reserved descriptors, so that files can be opened in their places. Each call is
 * followed by one of plm_descriptors_reclaim, which reserves them again once nobody needs them.
 * Any thread may call these; without a reserve they do nothing. */
void plm_descriptors_lend(void);
void plm_descriptors_reclaim(void);

/* As open(2), with O_CLOEXEC, for a file of the process itself. If there is no descriptor left and
 * some are reserved, the file is opened in the place of one of those. If connections have taken
 * even these, it is tried again for up to 5 seconds, because such connections are broken soon.
 * `mode` is used only with O_CREAT or O_TMPFILE. */
int plm_descriptors_open(const char *path, int flags, mode_t mode);

#endif
