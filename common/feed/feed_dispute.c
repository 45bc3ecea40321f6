/* Disputes: the packer that a third one contradicts is banned. If there is no third packer, or the
 * wrong chunks were already used, the feed fails. */
#include "common/feed/feed_dispute.h"

#include <stdio.h>
#include <string.h>

#include "common/feed/feed_peers.h"

void feed_dispute_close(struct feed_state *feed)
{
  if (feed->dispute.open) zmq_msg_close(&feed->dispute.other);
  memset(&feed->dispute, 0, sizeof feed->dispute);
}

static void describe(const struct feed_state *feed, const struct feed_dispute *dispute,
                     struct plm_error *error, const char *why)
{
  char hash[2][PLM_HASH_HEX_SIZE];
  plm_hash_to_hex(dispute->hashes[0], hash[0]);
  plm_hash_to_hex(dispute->hashes[1], hash[1]);
  (void)plm_error_set(error, PLM_CORRUPT,
                      "packers disagree on chunks %llu..%llu of epoch %llu (%s): %s sent %s, %s "
                      "sent %s; %s",
                      (unsigned long long)dispute->span.first,
                      (unsigned long long)(dispute->span.first + dispute->span.count - 1),
                      (unsigned long long)dispute->span.epoch, plm_split_name(feed->split),
                      dispute->names[0], hash[0], dispute->names[1], hash[1], why);
  (void)plm_error_hint(error, "verify the corpus on both hosts: plm-pipeline corpus DIR --verify");
}

static void give_up(struct feed_state *feed, const char *why)
{
  struct plm_error error;
  describe(feed, &feed->dispute, &error, why);
  feed_fail(feed, &error);
}

static void ask_third(struct feed_state *feed, int64_t now)
{
  struct feed_dispute *dispute = &feed->dispute;
  const uint64_t excluded[2] = {dispute->sides[0].packer_id, dispute->sides[1].packer_id};
  struct feed_peer *peer = feed_peer_next(feed, excluded, 2);
  if (peer == NULL) {
    give_up(feed, "there is no third packer to decide");
    return;
  }
  (void)feed_peer_get(feed, peer, &dispute->span, now, &dispute->third);
}

static void name_of(struct feed_state *feed, const struct feed_ask *ask, char name[96])
{
  const struct feed_peer *peer = feed_peer_serial(feed, ask->peer);
  if (peer != NULL)
    snprintf(name, 96, "%s", peer->name);
  else
    snprintf(name, 96, "a packer that left (%016llx)", (unsigned long long)ask->packer_id);
}

void feed_dispute_open(struct feed_state *feed, const struct feed_answered *answered,
                       const struct feed_ask *ask, struct plm_message *message,
                       uint64_t real_tokens)
{
  struct feed_dispute *dispute = &feed->dispute;
  struct plm_error error;
  dispute->open = true;
  dispute->span = answered->span;
  dispute->sides[0] = answered->first;
  dispute->sides[1] = *ask;
  dispute->hashes[0] = answered->hash;
  dispute->hashes[1] = message->header.payload_hash;
  name_of(feed, &dispute->sides[0], dispute->names[0]);
  name_of(feed, &dispute->sides[1], dispute->names[1]);
  zmq_msg_init(&dispute->other);
  zmq_msg_move(&dispute->other, &message->payload);
  dispute->other_tokens = real_tokens;
  describe(feed, dispute, &error, "a third packer is asked");
  plm_log_error(&error);
  ask_third(feed, feed->now_ms);
}

/* Whether the user has nothing of a range yet. */
static bool is_unused(const struct feed_state *feed, const struct feed_range *range)
{
  return range->taken == 0 && !(feed->reading && range == feed->head);
}

/* The disputed range; NULL once a part of it was handed out. */
static struct feed_range *unused_range(struct feed_state *feed)
{
  for (struct feed_range *range = feed->head; range != NULL; range = range->next)
    if (range->span.epoch == feed->dispute.span.epoch &&
        range->span.first == feed->dispute.span.first &&
        range->span.count == feed->dispute.span.count)
      return is_unused(feed, range) ? range : NULL;
  return NULL;
}

void feed_dispute_distrust(struct feed_state *feed, uint64_t packer_id)
{
  for (struct feed_range *range = feed->head; range != NULL; range = range->next) {
    if (range->state != RANGE_READY || range->answered.packer_id != packer_id ||
        !is_unused(feed, range))
      continue;
    zmq_msg_close(&range->payload);
    range->state = RANGE_WANTED;
    range->answered = (struct feed_ask){0};
  }
  for (int i = 0; i < FEED_HISTORY; i++)
    if (feed->history[i].first.packer_id == packer_id) feed->history[i] = (struct feed_answered){0};
}

static void drop_side(struct feed_state *feed, int side)
{
  plm_warning("packer %s gave wrong bytes for chunk %llu of epoch %llu", feed->dispute.names[side],
              (unsigned long long)feed->dispute.span.first,
              (unsigned long long)feed->dispute.span.epoch);
  feed_peer_ban(feed, feed->dispute.sides[side].packer_id,
                "its chunks differ from those of two other packers");
  feed_dispute_distrust(feed, feed->dispute.sides[side].packer_id);
}

bool feed_dispute_asked(const struct feed_state *feed, const struct feed_peer *peer,
                        uint64_t request)
{
  const struct feed_ask *third = &feed->dispute.third;
  return feed->dispute.open && third->request != 0 && third->request == request &&
         third->peer == peer->serial;
}

void feed_dispute_answer(struct feed_state *feed, const struct plm_message *message)
{
  struct feed_dispute *dispute = &feed->dispute;
  const struct plm_hash hash = message->header.payload_hash;
  if (plm_hash_equal(hash, dispute->hashes[0])) {
    drop_side(feed, 1);
  } else if (plm_hash_equal(hash, dispute->hashes[1])) {
    struct feed_range *range = unused_range(feed);
    if (range == NULL) {
      give_up(
          feed,
          "a third packer agrees with the second, but the first one's chunks were used already");
      return;
    }
    feed->in_flight += zmq_msg_size(&dispute->other) - range->bytes;
    range->bytes = zmq_msg_size(&dispute->other);
    zmq_msg_move(&range->payload, &dispute->other);
    range->hash = hash;
    range->answered = dispute->sides[1];
    range->real_tokens = dispute->other_tokens;
    drop_side(feed, 0);
  } else {
    give_up(feed, "a third packer sent something else");
    return;
  }
  feed_dispute_close(feed);
  feed->network.changed(feed->network.context);
}

void feed_dispute_nack(struct feed_state *feed, const struct feed_peer *peer, uint64_t request)
{
  if (feed_dispute_asked(feed, peer, request)) feed->dispute.third.request = 0;
}

void feed_dispute_tick(struct feed_state *feed, int64_t now)
{
  const struct feed_ask *third = &feed->dispute.third;
  if (!feed->dispute.open || feed->failed.status != PLM_OK) return;
  const bool waiting = third->request != 0 && feed_peer_serial(feed, third->peer) != NULL;
  const int64_t patience = waiting ? FEED_DEADLINE_MS + 1000 : FEED_RETRY_MS;
  if (now - third->sent_ms > patience) ask_third(feed, now);
}
