/* A packer's side of a connection, with a consumer in the same thread that says what ordinary ones
 * do not. The clock is the test's. */
#ifndef PLM_TESTS_SUPPORT_PEERS_LINK_SCENE_H
#define PLM_TESTS_SUPPORT_PEERS_LINK_SCENE_H

#include "packer/packer_link.h"

enum { LINK_CONSUMER = 77, LINK_WAIT_MS = 20000, LINK_TURN_MS = 5, LINK_DEADLINE_MS = 400 };

struct link_scene {
  struct plm_corpus *corpus;
  struct plm_plan_parameters parameters;
  uint32_t chunks[2];      /* of windows 0 and 1 */
  uint64_t real_tokens[2]; /* likewise */
  uint64_t windows;
  struct packer_context packer;
  struct packer_link link;
  void *consumer;
  struct plm_message hello;
  uint64_t requests; /* the newest request; they are numbered by the order of their calls */
  int64_t now;
};

/* The corpus stays for the next scene of the program. */
void link_begin(struct link_scene *s);
void link_end(struct link_scene *s);

/* The next message of a type that the consumer gets. Others are passed over. With `serve`, the
 * packer answers requests meanwhile. */
struct plm_message link_await(struct link_scene *s, enum plm_message_type type, bool serve);
/* Until HELLO of this incarnation: an earlier one may have said HELLO twice. */
void link_await_hello(struct link_scene *s);
/* Until the link has taken what was said. */
void link_until(struct link_scene *s, enum link_state state);

/* What the consumer says. */
struct plm_header link_header(const struct link_scene *s, enum plm_message_type type);
void link_say(struct link_scene *s, struct plm_header header, const void *payload, size_t bytes);
/* After HELLO; the link serves then. */
void link_welcome(struct link_scene *s);
void link_ask(struct link_scene *s, uint32_t window, uint64_t first, uint32_t count);

/* Asks; the number of real tokens of the answer. */
uint64_t link_served(struct link_scene *s, uint32_t window, uint64_t first, uint32_t count);
/* The newest request is refused. said: a part of the reason's text. */
void link_nacked(struct link_scene *s, enum plm_nack_reason want, const char *said, bool serve);

#endif
