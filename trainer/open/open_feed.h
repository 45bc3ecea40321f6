/* The sockets of rank 0: the feed, where packers connect, and the announcements. */
#ifndef PLM_TRAINER_OPEN_OPEN_FEED_H
#define PLM_TRAINER_OPEN_OPEN_FEED_H

#include "trainer/trainer.h"

/* Binds both, moves the feed to the position of the run, and writes the endpoints into the run
 * folder. */
plm_status plm_open_feed(struct plm_trainer *trainer, struct plm_error *error);
/* Closes what is open, and removes its endpoints. */
void plm_close_feed(struct plm_trainer *trainer);
/* Removes what a trainer that was killed after its last checkpoint has left in the run folder:
 * nobody is bound any more. */
void plm_remove_endpoints(const struct plm_trainer *trainer);

#endif
