/* The packers of a feed: HELLO, WELCOME and REJECT, silence, and those that are dropped. */
#include "common/feed/feed_peers.h"

#include <stdio.h>
#include <string.h>

struct feed_peer *feed_peer_find(struct feed_state *feed, const uint8_t *routing_id, size_t bytes)
{
  for (int i = 0; i < FEED_PEERS; i++) {
    struct feed_peer *peer = &feed->peers[i];
    if (peer->used && peer->routing_id_bytes == bytes &&
        memcmp(peer->routing_id, routing_id, bytes) == 0)
      return peer;
  }
  return NULL;
}

struct feed_peer *feed_peer_serial(struct feed_state *feed, uint64_t serial)
{
  for (int i = 0; serial != 0 && i < FEED_PEERS; i++)
    if (feed->peers[i].used && feed->peers[i].serial == serial) return &feed->peers[i];
  return NULL;
}

static struct feed_greeted *greeted_find(struct feed_state *feed, const uint8_t *routing_id,
                                         size_t bytes)
{
  for (int i = 0; i < FEED_GREETED; i++)
    if (feed->greeted[i].bytes == bytes &&
        memcmp(feed->greeted[i].routing_id, routing_id, bytes) == 0)
      return &feed->greeted[i];
  return NULL;
}

/* The same, or a new entry in place of the oldest. */
static struct feed_greeted *greeted_of(struct feed_state *feed, const uint8_t *routing_id,
                                       size_t bytes)
{
  struct feed_greeted *greeted = greeted_find(feed, routing_id, bytes);
  if (greeted != NULL) return greeted;
  greeted = &feed->greeted[feed->greeted_next++ % FEED_GREETED];
  *greeted = (struct feed_greeted){.bytes = bytes, .answered_ms = feed->now_ms - FEED_GREET_MS};
  memcpy(greeted->routing_id, routing_id, bytes);
  return greeted;
}

bool feed_peer_dropped(struct feed_state *feed, const uint8_t *routing_id, size_t bytes)
{
  const struct feed_greeted *greeted = greeted_find(feed, routing_id, bytes);
  return greeted != NULL && greeted->dropped;
}

void feed_peer_send(struct feed_state *feed, struct feed_peer *peer, struct plm_header *header,
                    const void *payload, size_t bytes)
{
  struct plm_error error;
  if (feed->network.send(feed->network.context, peer->routing_id, peer->routing_id_bytes, header,
                         payload, bytes, &error) == PLM_OK)
    return;
  if (error.status == PLM_AGAIN) feed->network.dismiss(feed->network.context, peer->connection);
  feed_peer_gone(feed, peer, error.what);
}

void feed_peer_gone(struct feed_state *feed, struct feed_peer *peer, const char *why)
{
  if (why != NULL && feed_may_log(feed)) plm_info("packer %s is gone: %s", peer->name, why);
  peer->used = false;
  feed->counters.peers = --feed->peer_count;
  if (feed->home == peer->serial) feed->home = 0;
  if (feed->prepared == peer->serial) feed->prepared = 0;
  if (feed->peer_count == 0 && feed->lie[0] == '\0')
    feed->progress_ms = feed->now_ms; /* the wait for one begins */
}

static void drop(struct feed_state *feed, struct feed_peer *peer, enum plm_reject_kind kind,
                 const char *why)
{
  struct plm_header header = feed_header(feed, PLM_MESSAGE_REJECT, peer);
  greeted_of(feed, peer->routing_id, peer->routing_id_bytes)->dropped = true;
  if (feed_may_log(feed)) plm_warning("packer %s is dropped: %s", peer->name, why);
  header.request = kind;
  (void)feed->network.send(feed->network.context, peer->routing_id, peer->routing_id_bytes, &header,
                           why, strnlen(why, PLM_WIRE_TEXT), NULL); /* it may have left already */
  feed->counters.refused++;
  feed->network.dismiss(feed->network.context, peer->connection);
  feed_peer_gone(feed, peer, NULL);
}

/* Refuses a process from now on, and drops it if it is connected. */
static void ban(struct feed_state *feed, uint64_t packer_id, enum plm_reject_kind kind,
                const char *why)
{
  feed->banned_packers[feed->banned_packers_next++ % FEED_BANNED] = packer_id;
  for (int i = 0; i < FEED_PEERS; i++)
    if (feed->peers[i].used && feed->peers[i].packer_id == packer_id)
      drop(feed, &feed->peers[i], kind, why);
}

void feed_peer_breaks_protocol(struct feed_state *feed, uint64_t packer_id)
{
  ban(feed, packer_id, PLM_REJECT_REFUSED, "it breaks the protocol");
}

static bool packer_banned(const struct feed_state *feed, uint64_t packer_id)
{
  const unsigned count =
      feed->banned_packers_next < FEED_BANNED ? feed->banned_packers_next : FEED_BANNED;
  for (unsigned i = 0; i < count; i++)
    if (feed->banned_packers[i] == packer_id) return true;
  return false;
}

void feed_peer_lied(struct feed_state *feed, uint64_t packer_id, const char *name,
                    const struct plm_error *error)
{
  char why[256];
  feed->counters.invalid++;
  if (packer_banned(feed, packer_id)) return; /* it sent this before */
  snprintf(why, sizeof why, "false data: %.200s", error->what);
  snprintf(feed->lie, sizeof feed->lie, "packer %s was dropped for %s", name, why);
  ban(feed, packer_id, PLM_REJECT_FALSE_DATA, why);
}

/* ---- HELLO -------------------------------------------------------------------------------- */

/* Whether a packer is refused only because another consumer of the run needs its corpus. */
static bool is_of_others(const struct feed_state *feed, const struct plm_hello *hello)
{
  return feed->one_of_several && plm_hash_known(feed->fingerprint) &&
         hello->protocol_least <= PLM_WIRE_VERSION && hello->protocol_most >= PLM_WIRE_VERSION &&
         !plm_hello_is(hello, feed->fingerprint);
}

void feed_peer_reply(struct feed_state *feed, const struct plm_message *message,
                     enum plm_message_type type, uint64_t request, const char *text)
{
  struct plm_header header = feed_header(feed, type, NULL);
  header.packer = message->header.packer;
  header.request = request;
  (void)feed->network.send(feed->network.context, message->routing_id, message->routing_id_bytes,
                           &header, text, strlen(text),
                           NULL); /* if this is lost, the packer says HELLO again */
}

static void feed_peers_refuse(struct feed_state *feed, const struct plm_message *message,
                              const char *name, const char *why)
{
  feed->counters.refused++;
  if (feed_is_time(feed, &feed->logged_refusal_ms, FEED_LOG_SOME_MS)) {
    char ours[PLM_HASH_HEX_SIZE] = "not known yet";
    if (plm_hash_known(feed->fingerprint)) plm_hash_to_hex(feed->fingerprint, ours);
    plm_warning("refused packer %s: %s (the fingerprint of the run's corpus: %s)", name, why, ours);
  }
  feed_peer_reply(feed, message, PLM_MESSAGE_REJECT, PLM_REJECT_REFUSED, why);
}

static bool keeps_clusters(const struct plm_hello *hello)
{
  for (int split = 0; split < PLM_SPLIT_COUNT; split++)
    if (hello->splits[split].clusters != 0) return true;
  return false;
}

/* Says why a packer is refused; "" if it is admitted. The packer is told this, so it states nothing
 * of the run that would help an unidentified peer to be admitted. */
static void feed_peers_objection(const struct feed_state *feed, const struct plm_hello *hello,
                                 char why[256])
{
  char theirs[PLM_HASH_HEX_SIZE];
  why[0] = '\0';
  if (hello->protocol_least > PLM_WIRE_VERSION || hello->protocol_most < PLM_WIRE_VERSION) {
    snprintf(why, 256, "the packer speaks protocols %u to %u, and this %s speaks %d",
             hello->protocol_least, hello->protocol_most, feed->role, PLM_WIRE_VERSION);
  } else if (hello->tokenizer != feed->plan.tokenizer) {
    snprintf(why, 256, "the packer's corpus was made for another tokenizer than data.tokenizer");
  } else if (feed->plan.sampling == PLM_SAMPLING_CLUSTERS && !keeps_clusters(hello)) {
    snprintf(why, 256,
             "data.sampling is clusters, but the packer's corpus keeps no clusters; "
             "ingest its sources again with --clusters");
  } else if (plm_hash_known(feed->root)
                 ? !plm_hash_equal(hello->fingerprint, feed->root)
                 : plm_hash_known(feed->fingerprint) && !plm_hello_is(hello, feed->fingerprint)) {
    plm_hash_to_hex(hello->fingerprint, theirs);
    snprintf(why, 256, "another corpus than the run's: its fingerprint is %s", theirs);
  } else if (packer_banned(feed, hello->packer_id)) {
    snprintf(why, 256, "it gave a false answer or broke the protocol before; see the %s's log",
             feed->role);
  } else if (feed->peer_count >= FEED_PEERS) {
    snprintf(why, 256, "%d packers are connected already", FEED_PEERS);
  }
}

/* The first packer that is admitted determines the corpus, unless its fingerprint is known. False:
 * the schema of its labels is malformed. */
static bool feed_peers_learn_corpus(struct feed_state *feed, const struct plm_hello *hello)
{
  if (feed->corpus_known) return true;
  if (hello->schema_bytes > 0 &&
      plm_label_schema_decode(hello->schema, hello->schema_bytes, &feed->labels, NULL) != PLM_OK)
    return false;
  if (!plm_hash_known(feed->fingerprint)) feed->fingerprint = hello->fingerprint;
  feed->root = hello->fingerprint;
  feed->corpus_known = true;
  memcpy(feed->splits, hello->splits, sizeof feed->splits);
  feed->corpus.fingerprint = hello->fingerprint;
  feed->corpus.clustered = hello->clustered;
  for (int split = 0; split < PLM_SPLIT_COUNT; split++)
    feed->corpus.documents[split] = hello->splits[split].documents;
  feed->corpus.labels = feed->labels.count > 0 ? &feed->labels : NULL;
  memcpy(feed->corpus.composition, hello->composition, sizeof hello->composition);
  feed->network.changed(feed->network.context);
  return true;
}

static struct feed_peer *feed_peers_admit(struct feed_state *feed,
                                          const struct plm_message *message,
                                          const struct plm_hello *hello)
{
  const int64_t now = feed->now_ms;
  struct feed_peer *peer = NULL;
  for (int i = 0; i < FEED_PEERS;
       i++) { /* the newest connection of a process replaces the others */
    struct feed_peer *other = &feed->peers[i];
    if (other->used && other->packer_id == hello->packer_id) feed_peer_gone(feed, other, NULL);
  }
  for (int i = 0; i < FEED_PEERS && peer == NULL; i++)
    if (!feed->peers[i].used) peer = &feed->peers[i];
  memset(peer, 0, sizeof *peer);
  peer->used = true;
  peer->serial = ++feed->next_serial;
  memcpy(peer->routing_id, message->routing_id, message->routing_id_bytes);
  peer->routing_id_bytes = message->routing_id_bytes;
  peer->connection = message->connection;
  memcpy(peer->user, message->user, sizeof peer->user);
  snprintf(peer->name, sizeof peer->name, "%s:%u", hello->host, hello->pid);
  memcpy(peer->host, hello->host, sizeof peer->host);
  peer->pid = hello->pid;
  peer->packer_id = hello->packer_id;
  peer->incarnation = message->header.packer;
  peer->heard_ms = peer->pinged_ms = peer->progress_ms = peer->joined_ms = now;
  feed->counters.peers = ++feed->peer_count;
  if (feed->lie[0] == '\0') feed->progress_ms = now; /* a liar that comes back is no progress */
  return peer;
}

static void welcome(struct feed_state *feed, struct feed_peer *peer)
{
  uint8_t bytes[PLM_WIRE_CONTROL_LIMIT];
  struct plm_header header = feed_header(feed, PLM_MESSAGE_WELCOME, peer);
  const size_t size = plm_welcome_encode(&feed->welcome, bytes);
  feed_peer_send(feed, peer, &header, bytes, size);
}

void feed_peers_welcome(struct feed_state *feed)
{
  for (int i = 0; i < FEED_PEERS; i++)
    if (feed->peers[i].used) welcome(feed, &feed->peers[i]);
}

/* Whether HELLO on this connection was answered just now. A packer repeats it once a second. */
static bool greeted(struct feed_state *feed, const struct plm_message *message)
{
  struct feed_greeted *of = greeted_of(feed, message->routing_id, message->routing_id_bytes);
  return !feed_is_time(feed, &of->answered_ms, FEED_GREET_MS);
}

bool feed_peer_hello(struct feed_state *feed, const struct plm_message *message)
{
  struct plm_hello hello;
  struct plm_error error;
  char why[256], name[96];
  void *payload = zmq_msg_data((zmq_msg_t *)&message->payload);
  if (plm_hello_decode(payload, zmq_msg_size(&message->payload), &hello, &error) != PLM_OK) {
    return false;
  }
  struct feed_peer *peer = feed_peer_find(feed, message->routing_id, message->routing_id_bytes);
  if (peer != NULL && peer->incarnation != message->header.packer)
    return false; /* a packer opens a new connection for a new incarnation */
  if (greeted(feed, message)) {
    feed->counters.dropped++;
    return true;
  }
  if (is_of_others(feed, &hello)) {
    feed_peer_reply(feed, message, PLM_MESSAGE_REJECT, PLM_REJECT_NOT_NEEDED,
                    "another consumer of the run takes the chunks of this corpus");
    return true;
  }
  snprintf(name, sizeof name, "%s:%u", hello.host, hello.pid);
  feed_peers_objection(feed, &hello, why);
  if (why[0] != '\0') {
    feed_peers_refuse(feed, message, name, why);
    return true;
  }
  if (peer == NULL) {
    if (!feed_peers_learn_corpus(feed, &hello)) return false;
    peer = feed_peers_admit(feed, message, &hello);
    if (feed_may_log(feed)) plm_info("packer %s joined", peer->name);
  }
  welcome(feed, peer);
  return true;
}

void feed_peer_other_version(struct feed_state *feed, const struct plm_message *message,
                             const char *what)
{
  char why[256];
  feed->counters.invalid++;
  if (greeted(feed, message)) return;
  snprintf(why, sizeof why, "%s; install the same version of plm-pipeline on all hosts", what);
  feed->counters.refused++;
  if (feed_may_log(feed)) plm_warning("refused a packer: %s", why);
  feed_peer_reply(feed, message, PLM_MESSAGE_REJECT, PLM_REJECT_REFUSED, why);
}

/* ---- time --------------------------------------------------------------------------------- */

static void ping(struct feed_state *feed, struct feed_peer *peer, int64_t now)
{
  struct plm_header header = feed_header(feed, PLM_MESSAGE_PING, peer);
  peer->pinged_ms = now;
  feed_peer_send(feed, peer, &header, NULL, 0);
}

void feed_peers_probe(struct feed_state *feed, int64_t now)
{
  for (int i = 0; i < FEED_PEERS; i++)
    if (feed->peers[i].used) ping(feed, &feed->peers[i], now);
}

void feed_peers_tick(struct feed_state *feed, int64_t now)
{
  const bool check_keys =
      feed->network.allows != NULL && feed_is_time(feed, &feed->allowed_checked_ms, 1000);
  for (int i = 0; i < FEED_PEERS; i++) {
    struct feed_peer *peer = &feed->peers[i];
    if (!peer->used) continue;
    if (check_keys && !feed->network.allows(feed->network.context, peer->user))
      drop(feed, peer, PLM_REJECT_REFUSED, "its key is no longer on the list");
    else if (now - peer->heard_ms > FEED_SILENCE_MS)
      feed_peer_gone(feed, peer, "silent for 3 s");
    else if (now - peer->pinged_ms >= FEED_PING_MS)
      ping(feed, peer, now);
  }
}

struct feed_peer *feed_peer_next(struct feed_state *feed, const uint64_t *excluded, int count)
{
  for (int step = 0; step < FEED_PEERS; step++) {
    struct feed_peer *peer = &feed->peers[++feed->rotation % FEED_PEERS];
    if (!peer->used) continue;
    bool skip = false;
    for (int i = 0; i < count; i++) skip |= peer->packer_id == excluded[i];
    if (!skip) return peer;
  }
  return NULL;
}
