/* The feed's state machine on a network that only notes what is sent, and a clock that the test
 * turns. Packer number n is on connection n, in incarnation 1000 + n. */
#ifndef PLM_TESTS_SUPPORT_PEERS_MACHINE_SCENE_H
#define PLM_TESTS_SUPPORT_PEERS_MACHINE_SCENE_H

#include "common/feed/feed_machine.h"

enum { SCENE_SENT = 512, SCENE_START_MS = 5000, SCENE_CONSUMER = 4243 };

struct scene_message {
  struct plm_header header;
  unsigned route; /* number of the connection */
  char text[PLM_WIRE_TEXT + 1];
  uint8_t payload[PLM_WIRE_CONTROL_LIMIT];
  size_t bytes;
};

struct machine_scene {
  struct feed_state feed;
  struct scene_message *sent; /* since the last machine_scene_expect */
  int sent_count, changed, dismissed, last_dismissed;
  plm_status send_status;  /* what sending returns */
  const char *removed_key; /* the one that may no longer connect; packer n has "key n" */
};

/* Of a trainer that does not know the corpus yet. */
struct plm_feed_options machine_scene_options(void);
void machine_scene_open(struct machine_scene *scene, const struct plm_feed_options *options,
                        bool keyed);
void machine_scene_close(struct machine_scene *scene);

/* A test's setup and teardown: opens the static `scene` with the options above, without keys. */
int machine_scene_begin(void **state);
int machine_scene_end(void **state);
#define SCENE_TEST(name) \
  cmocka_unit_test_prestate_setup_teardown(name, machine_scene_begin, machine_scene_end, &scene)

/* Of a packer whose corpus has this number of documents. */
struct plm_hello machine_scene_hello(uint64_t packer, uint64_t documents);
/* Gives the machine a message from a connection, `after` milliseconds after the start. */
void machine_scene_give(struct machine_scene *scene, unsigned route,
                        const struct plm_header *header, const void *payload, size_t bytes,
                        int64_t after);
/* A message without payload, to this consumer. */
void machine_scene_say(struct machine_scene *scene, unsigned route, enum plm_message_type type,
                       uint64_t packer, int64_t after);
void machine_scene_greet(struct machine_scene *scene, unsigned route, const struct plm_hello *hello,
                         uint64_t incarnation, int64_t after);
/* Packer n says HELLO. */
void machine_scene_join(struct machine_scene *scene, unsigned n, int64_t after);

/* Checks that the machine has sent only this since the last call; PLM_MESSAGE_NONE: nothing.
 * Returns it. */
const struct scene_message *machine_scene_expect(struct machine_scene *scene,
                                                 enum plm_message_type type, unsigned route);
void machine_scene_counters(const struct machine_scene *scene, uint64_t dropped, uint64_t invalid,
                            uint64_t refused, uint64_t peers);

#endif
