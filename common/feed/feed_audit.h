/* Sizes of windows that only one packer has stated, because no other one was connected or answered
 * in time. Another packer is asked for them as soon as there is one. */
#ifndef PLM_COMMON_FEED_FEED_AUDIT_H
#define PLM_COMMON_FEED_FEED_AUDIT_H

#include "common/feed/feed_state.h"

/* Called each turn. If two packers differ, a third one decides, and the odd one is banned. If wrong
 * sizes were not relied on yet, they are requested again; otherwise the feed fails, as it does
 * without a third packer. */
void feed_audit_tick(struct feed_state *feed, int64_t now);

#endif
