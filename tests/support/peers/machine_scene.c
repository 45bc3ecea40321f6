/* Notes what the state machine asks of its network. */
#include "tests/support/peers/machine_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"

static const struct plm_hash run_id = {1, 2};

static plm_status scene_send(void *context, const uint8_t *routing_id, size_t routing_id_bytes,
                             struct plm_header *header, const void *payload, size_t bytes,
                             struct plm_error *error)
{
  struct machine_scene *scene = context;
  assert_int_equal(routing_id_bytes, 2);
  if (scene->send_status != PLM_OK) return plm_error_set(error, scene->send_status, "no way");
  assert_true(scene->sent_count < SCENE_SENT && bytes <= PLM_WIRE_CONTROL_LIMIT);
  struct scene_message *sent = &scene->sent[scene->sent_count++];
  *sent = (struct scene_message){
      .header = *header, .route = routing_id[0] + 256u * routing_id[1], .bytes = bytes};
  if (bytes == 0) return PLM_OK;
  memcpy(sent->payload, payload, bytes);
  snprintf(sent->text, sizeof sent->text, "%.*s", (int)bytes, (const char *)payload);
  return PLM_OK;
}

static void scene_dismiss(void *context, int connection)
{
  struct machine_scene *scene = context;
  scene->dismissed++;
  scene->last_dismissed = connection;
}

static bool scene_allows(void *context, const char *user)
{
  const struct machine_scene *scene = context;
  return scene->removed_key == NULL || strcmp(user, scene->removed_key) != 0;
}

static uint64_t scene_draw(void *context)
{
  (void)context;
  return SCENE_CONSUMER - 1; /* an incarnation is odd in any case */
}

static void scene_submit(void *context, struct feed_job *job)
{
  (void)context, (void)job;
  fail();
}

static void scene_changed(void *context)
{
  struct machine_scene *scene = context;
  scene->changed++;
}

struct plm_feed_options machine_scene_options(void)
{
  return (struct plm_feed_options){.role = "trainer",
                                   .run_id = run_id,
                                   .plan = {.max_length = 64,
                                            .alignment = 4,
                                            .window_groups = 2,
                                            .packing = PLM_PACKING_BEST_FIT,
                                            .truncate = PLM_TRUNCATE_HEAD,
                                            .tokenizer = PLM_TOKENIZER_ESM,
                                            .shuffle = true},
                                   .split = PLM_SPLIT_TRAIN,
                                   .credit_bytes = 8 << 20};
}

void machine_scene_open(struct machine_scene *scene, const struct plm_feed_options *options,
                        bool keyed)
{
  const struct feed_network network = {.context = scene,
                                       .send = scene_send,
                                       .dismiss = scene_dismiss,
                                       .allows = keyed ? scene_allows : NULL,
                                       .draw = scene_draw,
                                       .submit = scene_submit,
                                       .changed = scene_changed};
  memset(scene, 0, sizeof *scene);
  scene->sent = must(calloc(SCENE_SENT, sizeof *scene->sent));
  const struct plm_feed_source_options source = {
      .plan = options->plan, .fingerprint = options->fingerprint, .root = options->root};
  feed_machine_init(&scene->feed, options, &source, &network, SCENE_START_MS);
}

void machine_scene_close(struct machine_scene *scene)
{
  feed_machine_deinit(&scene->feed);
  free(scene->sent);
}

int machine_scene_begin(void **state)
{
  const struct plm_feed_options options = machine_scene_options();
  machine_scene_open(*state, &options, false);
  return 0;
}

int machine_scene_end(void **state)
{
  machine_scene_close(*state);
  return 0;
}

struct plm_hello machine_scene_hello(uint64_t packer, uint64_t documents)
{
  struct plm_hello hello = {.protocol_least = PLM_WIRE_VERSION,
                            .protocol_most = PLM_WIRE_VERSION,
                            .packer_id = packer,
                            .pid = 70 + (uint32_t)packer,
                            .host = "host",
                            .tokenizer = PLM_TOKENIZER_ESM};
  hello.splits[0].documents = documents;
  hello.splits[0].root[0] = 9;
  hello.fingerprint = plm_proof_corpus(0, hello.splits, NULL);
  return hello;
}

void machine_scene_give(struct machine_scene *scene, unsigned route,
                        const struct plm_header *header, const void *payload, size_t bytes,
                        int64_t after)
{
  struct plm_message message = {.routing_id = {(uint8_t)route, (uint8_t)(route >> 8)},
                                .routing_id_bytes = 2,
                                .header = *header,
                                .connection = 100 + (int)route};
  snprintf(message.user, sizeof message.user, "key %u", route);
  message.header.payload_bytes = bytes;
  assert_int_equal(zmq_msg_init_size(&message.payload, bytes), 0);
  if (bytes > 0) memcpy(zmq_msg_data(&message.payload), payload, bytes);
  feed_machine_handle(&scene->feed, &message, SCENE_START_MS + after);
  zmq_msg_close(&message.payload);
}

void machine_scene_say(struct machine_scene *scene, unsigned route, enum plm_message_type type,
                       uint64_t packer, int64_t after)
{
  const struct plm_header header = {
      .type = type, .run_id = run_id, .consumer = SCENE_CONSUMER, .packer = packer};
  machine_scene_give(scene, route, &header, NULL, 0, after);
}

void machine_scene_greet(struct machine_scene *scene, unsigned route, const struct plm_hello *hello,
                         uint64_t incarnation, int64_t after)
{
  const struct plm_header header = {.type = PLM_MESSAGE_HELLO, .packer = incarnation};
  uint8_t payload[PLM_WIRE_CONTROL_LIMIT];
  const size_t bytes = plm_hello_encode(hello, payload);
  machine_scene_give(scene, route, &header, payload, bytes, after);
}

void machine_scene_join(struct machine_scene *scene, unsigned n, int64_t after)
{
  const struct plm_hello hello = machine_scene_hello(n, 30);
  machine_scene_greet(scene, n, &hello, 1000 + n, after);
}

const struct scene_message *machine_scene_expect(struct machine_scene *scene,
                                                 enum plm_message_type type, unsigned route)
{
  const int count = scene->sent_count;
  scene->sent_count = 0;
  assert_int_equal(count, type != PLM_MESSAGE_NONE);
  if (count == 0) return NULL;
  assert_int_equal(scene->sent[0].header.type, type);
  assert_int_equal(scene->sent[0].route, route);
  assert_int_equal(scene->sent[0].header.consumer, SCENE_CONSUMER);
  assert_true(plm_hash_equal(scene->sent[0].header.run_id, run_id));
  return &scene->sent[0];
}

void machine_scene_counters(const struct machine_scene *scene, uint64_t dropped, uint64_t invalid,
                            uint64_t refused, uint64_t peers)
{
  const struct plm_feed_counters *counters = &scene->feed.counters;
  assert_int_equal(counters->dropped, dropped);
  assert_int_equal(counters->invalid, invalid);
  assert_int_equal(counters->refused, refused);
  assert_int_equal(counters->peers, peers);
}
