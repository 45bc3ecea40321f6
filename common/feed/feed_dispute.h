/* Two packers that sent different bytes for the same chunks: a third decides. */
#ifndef PLM_COMMON_FEED_FEED_DISPUTE_H
#define PLM_COMMON_FEED_FEED_DISPUTE_H

#include "common/feed/feed_state.h"

/* answered is the answer in use; message, which answers ask, differs from it. Takes over message's
 * payload. */
void feed_dispute_open(struct feed_state *feed, const struct feed_answered *answered,
                       const struct feed_ask *ask, struct plm_message *message,
                       uint64_t real_tokens);
/* Whether the request is the one that the third packer, which must be this peer, was sent. */
bool feed_dispute_asked(const struct feed_state *feed, const struct feed_peer *peer,
                        uint64_t request);
/* Takes the third packer's answer, whose chunks are those in dispute. */
void feed_dispute_answer(struct feed_state *feed, const struct plm_message *message);
/* Takes a NACK: if the third packer refuses, another one is asked. */
void feed_dispute_nack(struct feed_state *feed, const struct feed_peer *peer, uint64_t request);
/* Called each turn: asks a third packer, or another one if the last has left or was too slow. */
void feed_dispute_tick(struct feed_state *feed, int64_t now);
/* Requests again what a packer that was caught has answered, as far as nobody has used it. */
void feed_dispute_distrust(struct feed_state *feed, uint64_t packer_id);
/* Ends the dispute, if there is one. */
void feed_dispute_close(struct feed_state *feed);

#endif
