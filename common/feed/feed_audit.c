/* The audit of sizes: block by block, one block of each epoch at a time. */
#include "common/feed/feed_audit.h"

#include <stdio.h>
#include <string.h>

#include "common/feed/feed_peers.h"
#include "common/feed/feed_ranges.h"
#include "common/feed/feed_sizes.h"

enum { THIRD_MS = 1000 }; /* in which a third packer may join: at a start, all join one by one */

/* The first block that only one packer has stated. False: there is none. */
static bool find_block(struct feed_sizes *sizes, uint64_t *block)
{
  const uint64_t full = sizes->known / FEED_SIZES_BLOCK;
  const uint64_t blocks = full + (sizes->complete ? 1 : 0); /* the last one is short or empty */
  while (sizes->audited < blocks && sizes->sole[sizes->audited] == 0) sizes->audited++;
  *block = sizes->audited;
  return sizes->audited < blocks;
}

/* Whether an answer is what was accepted for the block. */
static bool confirms(const struct feed_sizes *sizes, const struct feed_sizes_ask *answer)
{
  const uint64_t left = sizes->known - answer->first;
  return answer->count == (left < FEED_SIZES_BLOCK ? left : FEED_SIZES_BLOCK) &&
         memcmp(answer->counts, sizes->counts + answer->first,
                answer->count * sizeof *answer->counts) == 0;
}

static void settle(struct feed_sizes *sizes)
{
  sizes->sole[sizes->audited++] = 0;
  memset(sizes->audits, 0, sizeof sizes->audits);
}

/* Forgets the sizes from a window on, and the ranges that were derived from them. */
static void forget(struct feed_state *feed, struct feed_sizes *sizes, uint64_t first)
{
  sizes->known = first;
  sizes->chunks = 0;
  for (uint64_t i = 0; i < first; i++) sizes->chunks += sizes->counts[i];
  sizes->complete = false;
  memset(sizes->asks, 0, sizeof sizes->asks);
  memset(sizes->audits, 0, sizeof sizes->audits);
  feed_ranges_clear(feed);
  feed->seeking = true;
}

/* The name of the packer that was the only one, also if it has left. */
static void name_sole(const struct feed_state *feed, const struct feed_sizes *sizes, char name[96])
{
  const uint64_t sole = sizes->sole[sizes->audited];
  snprintf(name, 96, "a packer that left (%016llx)", (unsigned long long)sole);
  for (int i = 0; i < FEED_PEERS; i++)
    if (feed->peers[i].used && feed->peers[i].packer_id == sole)
      snprintf(name, 96, "%s", feed->peers[i].name);
}

/* The third packer has answered; the second one had contradicted the accepted sizes. */
static void decide(struct feed_state *feed, struct feed_sizes *sizes)
{
  const struct feed_sizes_ask second = sizes->audits[0], third = sizes->audits[1];
  const uint64_t sole = sizes->sole[sizes->audited];
  char name[96];
  name_sole(feed, sizes, name);
  if (confirms(sizes, &third)) {
    feed_sizes_ban(feed, sizes, second.first, second.ask.packer_id, second.name);
    settle(sizes);
  } else if (third.count != second.count ||
             memcmp(third.counts, second.counts, second.count * sizeof *second.counts) != 0) {
    feed_sizes_disagree(feed, sizes, second.first, name, second.name,
                        "a third packer says something else");
  } else if (second.first < sizes->relied) {
    feed_sizes_disagree(
        feed, sizes, second.first, name, second.name,
        "a third packer agrees with the second, but the first one's sizes were used already");
  } else if (!feed->reading && !feed->dispute.open) { /* otherwise in a later turn */
    forget(feed, sizes, second.first);
    feed_sizes_ban(feed, sizes, second.first, sole, name);
  }
}

static void disagree_without_third(struct feed_state *feed, const struct feed_sizes *sizes,
                                   const struct feed_sizes_ask *second)
{
  char name[96];
  name_sole(feed, sizes, name);
  feed_sizes_disagree(feed, sizes, second->first, name, second->name,
                      "there is no third packer to decide");
}

/* Patiently, because a packer that is slow must not be asked faster than it answers. */
static void ask(struct feed_state *feed, const struct feed_sizes *sizes, struct feed_peer *peer,
                int64_t now, struct feed_sizes_ask *made)
{
  *made = (struct feed_sizes_ask){.first = sizes->audited * FEED_SIZES_BLOCK,
                                  .until_ms = now + FEED_DEADLINE_MS};
  (void)feed_sizes_ask_peer(feed, sizes, peer, now, made);
}

static void audit(struct feed_state *feed, struct feed_sizes *sizes, int64_t now)
{
  uint64_t block;
  if (!find_block(sizes, &block)) return;
  struct feed_sizes_ask *second = &sizes->audits[0], *third = &sizes->audits[1];
  const uint64_t excluded[2] = {sizes->sole[block], second->ask.packer_id};
  feed_sizes_expire(feed, second, now);
  feed_sizes_expire(feed, third, now);
  if (second->ask.request == 0) {
    struct feed_peer *peer = feed_peer_next(feed, excluded, 1);
    if (peer != NULL) ask(feed, sizes, peer, now, second);
  } else if (second->answered && confirms(sizes, second)) {
    settle(sizes);
  } else if (third->answered) {
    decide(feed, sizes);
  } else if (second->answered && third->ask.request == 0) {
    struct feed_peer *peer = feed_peer_next(feed, excluded, 2);
    if (peer != NULL)
      ask(feed, sizes, peer, now, third);
    else if (now - second->answered_ms >= THIRD_MS)
      disagree_without_third(feed, sizes, second);
  }
}

void feed_audit_tick(struct feed_state *feed, int64_t now)
{
  for (int i = 0; i < FEED_EPOCHS && feed->failed.status == PLM_OK; i++)
    if (feed->sizes[i].used) audit(feed, &feed->sizes[i], now);
}
