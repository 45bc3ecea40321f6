/* A reader of a metrics file that goes on as the file grows, and goes back when it was cut: after a
 * resume the lines beyond the checkpoint are written anew. */
#ifndef PLM_STAGES_VIEWS_FOLLOW_H
#define PLM_STAGES_VIEWS_FOLLOW_H

#include <stdbool.h>

#include "common/base/status.h"

struct plm_follower;
/* The file may not exist yet. */
plm_status plm_follower_open(const char *path, struct plm_follower **follower,
                             struct plm_error *error);
/* The next whole line without its newline, valid until the next call; NULL: none for now. */
plm_status plm_follower_next(struct plm_follower *follower, const char **line,
                             struct plm_error *error);
void plm_follower_close(struct plm_follower *follower);

#endif
