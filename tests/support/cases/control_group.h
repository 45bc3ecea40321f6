/* A control group of this process, whose files the test writes. */
#ifndef PLM_TESTS_SUPPORT_CASES_CONTROL_GROUP_H
#define PLM_TESTS_SUPPORT_CASES_CONTROL_GROUP_H

#include "common/base/files/file.h"

extern char control_group_folder[PLM_PATH_SIZE];

/* From now on this process is in a new group, which has no files and hence no limits. */
void control_group_begin(void);
/* Writes one of its files, such as memory.max. */
void control_group_put(const char *file, const char *text);
/* From now on this process is where it really is. */
void control_group_end(void);

#endif
