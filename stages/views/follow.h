/* A reader that follows a metrics file as it grows, and goes back when it was truncated: after a
 * resume, the lines after the checkpoint are written again. */
#ifndef PLM_STAGES_VIEWS_FOLLOW_H
#define PLM_STAGES_VIEWS_FOLLOW_H

#include <stdbool.h>

#include "common/base/status.h"

struct plm_follower;
/* Opens a follower; the file need not exist yet. */
plm_status plm_follower_open(const char *path, struct plm_follower **follower,
                             struct plm_error *error);
/* *line is the next whole line without its newline, valid until the next call; NULL if there is
 * none for now. */
plm_status plm_follower_next(struct plm_follower *follower, const char **line,
                             struct plm_error *error);
void plm_follower_close(struct plm_follower *follower);

#endif
