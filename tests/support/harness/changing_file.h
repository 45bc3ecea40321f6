/* A file that is another one when it is opened again. */
#ifndef PLM_TESTS_SUPPORT_HARNESS_CHANGING_FILE_H
#define PLM_TESTS_SUPPORT_HARNESS_CHANGING_FILE_H

/* From now on, the second time that the file at `path` is opened, it first gets this text. NULL: it
 * stays as it is. */
void changing_file(const char *path, const char *text);

/* Before a file is opened. The open of failing_disk.c, which takes the place of libc's, calls it.
 */
void changing_file_opens(const char *path);

#endif
