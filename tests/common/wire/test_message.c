/* Headers and payloads: what was encoded is decoded again, and everything else is refused. */
#include <string.h>

#include "common/corpus/tokenizer.h"
#include "common/wire/message.h"
#include "common/wire/security.h"
#include "tests/support/harness/cmocka_all.h"

static struct plm_header some_header(void)
{
  return (struct plm_header){
      .type = PLM_MESSAGE_DATA,
      .run_id = {0x1122334455667788u, 0x99aabbccddeeff00u},
      .consumer = 3,
      .packer = 4,
      .request = 5,
      .plan = {6, 7},
      .split = PLM_SPLIT_VALID,
      .max_length = 1024,
      .epoch = 8,
      .first = 1ull << 40,
      .count = 9,
      .dtype = 2,
      .real_tokens = 10,
      .payload_bytes = 11,
      .payload_hash = {12, 13},
  };
}

/* The layout must never change within a version of the protocol. */
static void header_layout_is_fixed(void **state)
{
  (void)state;
  static const uint8_t begin[] = {'P', 'L', 'M', 'F', 4, 0, PLM_MESSAGE_DATA, 0, 0x88, 0x77};
  const struct plm_header header = some_header();
  uint8_t bytes[PLM_HEADER_BYTES];
  plm_header_encode(&header, bytes);
  assert_memory_equal(bytes, begin, sizeof begin);
  assert_int_equal(bytes[24], 3);
  assert_int_equal(bytes[32], 4);
  assert_int_equal(bytes[40], 5);
  assert_int_equal(bytes[48], 6);
  assert_int_equal(bytes[56], 7);
  assert_int_equal(bytes[64], PLM_SPLIT_VALID);
  assert_int_equal(bytes[69], 4); /* 1024 */
  assert_int_equal(bytes[72], 8);
  assert_int_equal(bytes[85], 1); /* 2^40 */
  assert_int_equal(bytes[88], 9);
  assert_int_equal(bytes[92], 2);
  assert_int_equal(bytes[96], 10);
  assert_int_equal(bytes[104], 11);
  assert_int_equal(bytes[112], 12);
  assert_int_equal(bytes[120], 13);
}

static void header_round_trip_and_every_flipped_bit(void **state)
{
  (void)state;
  const struct plm_header header = some_header();
  struct plm_header back;
  struct plm_error error = {0};
  uint8_t bytes[PLM_HEADER_BYTES], again[PLM_HEADER_BYTES];
  plm_header_encode(&header, bytes);
  memset(&back, 0, sizeof back);
  assert_int_equal(plm_header_decode(bytes, sizeof bytes, &back, &error), PLM_OK);
  plm_header_encode(&back, again);
  assert_memory_equal(again, bytes, sizeof bytes);
  for (int bit = 0; bit < 8 * PLM_HEADER_BYTES; bit++) {
    bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    assert_int_equal(plm_header_decode(bytes, sizeof bytes, &back, &error),
                     bit / 16 == 2 ? PLM_UNSUPPORTED : PLM_PROTOCOL); /* the version's bits */
    bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
  }
  for (size_t size = 0; size < sizeof bytes; size++)
    assert_int_equal(plm_header_decode(bytes, size, &back, &error), PLM_PROTOCOL);
}

/* A matching hash does not make a message valid. */
static void limits_hold_under_a_right_hash(void **state)
{
  (void)state;
  enum { WRONG = 8, ALL = 11 };
  struct plm_header cases[ALL], back;
  struct plm_error error = {0};
  uint8_t bytes[PLM_HEADER_BYTES];
  for (int i = 0; i < ALL; i++) cases[i] = some_header();
  cases[0].type = PLM_MESSAGE_COUNT;
  cases[1].split = PLM_SPLIT_COUNT;
  cases[2].dtype = 3;
  cases[3].payload_bytes = PLM_WIRE_DATA_LIMIT + 1;
  cases[4].type = PLM_MESSAGE_PING; /* it must not have a payload */
  cases[5].count = PLM_WIRE_CHUNKS + 1;
  cases[6].payload_bytes = 1;
  cases[7].type = PLM_MESSAGE_NONE;
  cases[7].payload_bytes = 0;
  cases[8].payload_bytes = PLM_WIRE_DATA_LIMIT;
  cases[9].payload_bytes = 2;
  cases[10].count = PLM_WIRE_CHUNKS;
  for (int i = 0; i < ALL; i++) {
    plm_header_encode(&cases[i], bytes);
    assert_int_equal(plm_header_decode(bytes, sizeof bytes, &back, &error),
                     i < WRONG ? PLM_PROTOCOL : PLM_OK);
  }
}

/* A byte or two of a payload that are changed, and whether it is still one. */
struct change {
  size_t at;
  unsigned value;
  bool good;
};

static void values_of_a_hello_have_limits(void **state)
{
  enum { TOKENIZER = 19, ENTRIES = TOKENIZER + 2 + 2 * 16 + 88, SECOND = ENTRIES + 2 + 10 };
  static const struct change changes[] = {
      {TOKENIZER - 1, ' ', true}, /* its host */
      {TOKENIZER - 1, '~', true},
      {TOKENIZER - 1, ' ' - 1, false},
      {TOKENIZER - 1, '~' + 1, false},
      {TOKENIZER, PLM_TOKENIZER_BYTE, true}, /* flags follow */
      {TOKENIZER, 2, false},
      {TOKENIZER, 4 << 8, false},
      {TOKENIZER, 2 << 8, false}, /* a schema, which is missing */
      {ENTRIES, 513, false},
      {ENTRIES + 4, 0, false}, /* how often the first token occurs */
      {SECOND, 4, true},
      {SECOND, 3, false}, /* the same token again */
      {SECOND, 2, false},
      {SECOND, 511, true},
      {SECOND, 512, false},
  };
  static struct plm_hello hello, back;
  static uint8_t bytes[PLM_WIRE_CONTROL_LIMIT];
  (void)state;
  hello = (struct plm_hello){.host = "h", .composition = {{[3] = 7, [4] = 8}}};
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    struct plm_error error = {0};
    const bool byte = changes[i].at == TOKENIZER && changes[i].value == PLM_TOKENIZER_BYTE;
    hello.fingerprint = plm_proof_corpus(byte, hello.splits, NULL);
    const size_t size = plm_hello_encode(&hello, bytes);
    bytes[changes[i].at] = (uint8_t)changes[i].value;
    bytes[changes[i].at + 1] = (uint8_t)(changes[i].value >> 8);
    const plm_status status = plm_hello_decode(bytes, size, &back, &error);
    if (changes[i].good != (status == PLM_OK)) fail_msg("change %zu: %s", i, error.what);
    if (!changes[i].good) assert_string_equal(error.what, "malformed payload of HELLO");
  }
}

static void values_of_other_messages_have_limits(void **state)
{
  enum { PACKING = 20 };
  static const struct change changes[] = {
      {PACKING, PLM_PACKING_NEXT_FIT, true},
      {PACKING, PLM_PACKING_NEXT_FIT + 1, false},
      {PACKING + 1, PLM_TRUNCATE_SPLIT, true},
      {PACKING + 1, PLM_TRUNCATE_SPLIT + 1, false},
      {PACKING + 2, PLM_TOKENIZER_BYTE, true},
      {PACKING + 2, PLM_TOKENIZER_BYTE + 1, false},
      {PACKING + 3, 7, true},
      {PACKING + 3, 8, false},
      {PACKING + 12, 0, false}, /* no hash of a mixture */
  };
  const struct plm_welcome welcome = {.plan = {.source = {5, 0}}};
  static struct plm_welcome back;
  uint8_t bytes[PLM_WIRE_CONTROL_LIMIT], *reason = bytes, *soon = bytes + 4;
  char text[PLM_WIRE_TEXT + 1];
  enum plm_nack_reason said;
  struct plm_prove prove;
  (void)state;
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    const size_t size = plm_welcome_encode(&welcome, bytes);
    bytes[changes[i].at] = (uint8_t)changes[i].value;
    assert_int_equal(plm_welcome_decode(bytes, size, &back, NULL) == PLM_OK, changes[i].good);
  }
  for (int wrong = 0; wrong < 2; wrong++) {
    const size_t size = plm_prove_encode(&(struct plm_prove){.group = 3}, bytes);
    *soon = (uint8_t)(1 + wrong);
    assert_int_equal(plm_prove_decode(bytes, size, &prove, NULL), wrong ? PLM_PROTOCOL : PLM_OK);
    assert_true(prove.group == 3 && (wrong || prove.soon));
    (void)plm_nack_encode(PLM_NACK_FAILED, "\x7f~\x1f ", bytes);
    *reason = (uint8_t)(PLM_NACK_FAILED + wrong);
    assert_int_equal(plm_nack_decode(bytes, 8, &said, text, NULL), wrong ? PLM_PROTOCOL : PLM_OK);
    assert_true(wrong || (said == PLM_NACK_FAILED && strcmp(text, "?~? ") == 0));
  }
}

static void fetch_and_file_part_come_back(void **state)
{
  (void)state;
  struct plm_error error;
  uint8_t bytes[PLM_FILE_PART_HEAD + 9] = {0};
  struct plm_fetch_request request = {
      .source = 3, .file = PLM_FETCH_DATA, .bytes = 1 << 20, .offset = UINT64_C(1) << 60};
  struct plm_fetch_request request_back;
  size_t size = plm_fetch_encode(&request, bytes);
  assert_int_equal(size, 16);
  assert_int_equal(plm_fetch_decode(bytes, size, &request_back, &error), PLM_OK);
  assert_memory_equal(&request, &request_back, sizeof request);
  assert_int_equal(plm_fetch_decode(bytes, size - 1, &request_back, &error), PLM_PROTOCOL);
  bytes[4] = 1; /* 2^20 + 1 bytes */
  assert_int_equal(plm_fetch_decode(bytes, size, &request_back, &error), PLM_PROTOCOL);
  memset(bytes + 4, 0, 4);
  assert_int_equal(plm_fetch_decode(bytes, size, &request_back, &error), PLM_PROTOCOL);
  request.offset++;
  (void)plm_fetch_encode(&request, bytes);
  assert_int_equal(plm_fetch_decode(bytes, size, &request_back, &error), PLM_PROTOCOL);
  request.offset = (UINT64_C(5) << 40) + 7;

  struct plm_file_part part = {.sources = 4, .of = request, .file_bytes = (UINT64_C(5) << 40) + 16};
  struct plm_file_part part_back;
  part.of.bytes = 9;
  plm_file_part_encode(&part, bytes);
  assert_int_equal(plm_file_part_decode(bytes, sizeof bytes, &part_back, &error), PLM_OK);
  assert_int_equal(part_back.sources, part.sources); /* a hole in the struct follows it */
  assert_memory_equal(&part_back.of, &part.of, sizeof part.of);
  assert_int_equal(part_back.file_bytes, part.file_bytes);
  /* one byte too few, a part beyond the file's end, a source that does not exist */
  assert_int_equal(plm_file_part_decode(bytes, sizeof bytes - 1, &part_back, &error), PLM_PROTOCOL);
  part.file_bytes--;
  plm_file_part_encode(&part, bytes);
  assert_int_equal(plm_file_part_decode(bytes, sizeof bytes, &part_back, &error), PLM_PROTOCOL);
  part.file_bytes++;
  part.sources = 3;
  plm_file_part_encode(&part, bytes);
  assert_int_equal(plm_file_part_decode(bytes, sizeof bytes, &part_back, &error), PLM_PROTOCOL);
}

static void hello_and_welcome_come_back(void **state)
{
  (void)state;
  static struct plm_hello hello, hello_back;
  struct plm_welcome welcome = {0}, welcome_back;
  struct plm_error error = {0};
  static uint8_t bytes[PLM_WIRE_CONTROL_LIMIT];
  hello = (struct plm_hello){
      .protocol_least = 1,
      .protocol_most = 2,
      .packer_id = 77,
      .pid = 4711,
      .host = "node-17",
      .tokenizer = PLM_TOKENIZER_BYTE,
      .clustered = true,
      .upgraded_from = {6, 7},
      .splits = {{.documents = 9, .root = {1}},
                 {.documents = 4, .root = {2}, .clusters = 3, .sum = 4, .cluster_root = {3, 4}},
                 {.documents = 0}}};
  hello.fingerprint = plm_proof_corpus(PLM_TOKENIZER_BYTE, hello.splits, NULL);
  for (int i = 0; i < 512; i += 3) hello.composition[1][i] = (uint64_t)i + 1;
  size_t size = plm_hello_encode(&hello, bytes);
  assert_int_equal(plm_hello_decode(bytes, size, &hello_back, &error), PLM_OK);
  assert_memory_equal(&hello, &hello_back, sizeof hello);
  for (size_t cut = 0; cut < size; cut++)
    assert_int_equal(plm_hello_decode(bytes, cut, &hello_back, &error), PLM_PROTOCOL);
  assert_int_equal(plm_hello_decode(bytes, size + 1, &hello_back, &error), PLM_PROTOCOL);

  welcome.plan = (struct plm_plan_parameters){.seed = 1,
                                              .max_length = 512,
                                              .alignment = 4,
                                              .window_groups = 64,
                                              .packing = PLM_PACKING_NEXT_FIT,
                                              .truncate = PLM_TRUNCATE_SPLIT,
                                              .tokenizer = PLM_TOKENIZER_ESM,
                                              .shuffle = true,
                                              .token_limit = 9};
  welcome.peers = 1;
  for (int sampling = 0; sampling < 2; sampling++) {
    welcome.plan.sampling = (enum plm_sampling)sampling;
    size = plm_welcome_encode(&welcome, bytes);
    assert_int_equal(bytes[8 + 3 * 4 + 3], 1 + 2 * sampling); /* the byte of shuffle */
  }
  welcome.plan.source = (struct plm_hash){5, 6}; /* of a mixture */
  size = plm_welcome_encode(&welcome, bytes);
  assert_int_equal(plm_welcome_decode(bytes, size, &welcome_back, &error), PLM_OK);
  assert_true(plm_hash_equal(welcome_back.plan.source, welcome.plan.source));
  assert_true(plm_hash_equal(plm_plan_hash(&welcome.plan), plm_plan_hash(&welcome_back.plan)));
  welcome.plan.source = (struct plm_hash){0, 0};
  assert_false(plm_hash_equal(plm_plan_hash(&welcome.plan), plm_plan_hash(&welcome_back.plan)));
  strcpy(welcome.address[0], "tcp://10.0.0.1:5702");
  memset(welcome.key[0], 'a', 40);
  size = plm_welcome_encode(&welcome, bytes);
  assert_int_equal(plm_welcome_decode(bytes, size, &welcome_back, &error), PLM_OK);
  assert_true(plm_hash_equal(plm_plan_hash(&welcome.plan), plm_plan_hash(&welcome_back.plan)));
  assert_string_equal(welcome_back.address[0], welcome.address[0]);
  assert_string_equal(welcome_back.key[0], welcome.key[0]);
  for (size_t cut = 0; cut < size; cut++)
    assert_int_equal(plm_welcome_decode(bytes, cut, &welcome_back, &error), PLM_PROTOCOL);
}

/* Also the last one with its longest texts; a number or a length that is one too large is refused.
 */
static void welcome_names_other_consumers(void **state)
{
  (void)state;
  static struct plm_welcome welcome, back;
  static uint8_t bytes[PLM_WIRE_CONTROL_LIMIT];
  struct plm_error error = {0};
  welcome.plan = (struct plm_plan_parameters){.max_length = 512, .alignment = 4};
  const size_t empty = plm_welcome_encode(&welcome, bytes); /* it ends with the number, 0 */
  welcome.peers = PLM_WIRE_PEERS;
  for (int i = 0; i < PLM_WIRE_PEERS; i++) {
    memset(welcome.address[i], 'a' + i, i == 0 ? 1 : 255);
    if (i % 2 == 0) memset(welcome.key[i], 'A' + i, 40);
  }
  const size_t size = plm_welcome_encode(&welcome, bytes);
  assert_int_equal(plm_welcome_decode(bytes, size, &back, &error), PLM_OK);
  assert_int_equal(back.peers, PLM_WIRE_PEERS);
  assert_memory_equal(back.address, welcome.address, sizeof welcome.address);
  assert_memory_equal(back.key, welcome.key, sizeof welcome.key);

  bytes[empty - 2]++;
  assert_int_equal(plm_welcome_decode(bytes, size, &back, &error), PLM_PROTOCOL);
  welcome.key[0][39] = '\0'; /* a key of 39 characters */
  assert_int_equal(plm_welcome_decode(bytes, plm_welcome_encode(&welcome, bytes), &back, &error),
                   PLM_PROTOCOL);
}

/* The schema of the labels is part of what the fingerprint proves. */
static void a_schema_belongs_to_the_fingerprint(void **state)
{
  (void)state;
  static struct plm_hello hello, back;
  static uint8_t bytes[PLM_WIRE_CONTROL_LIMIT];
  static const uint8_t schema[] = "a schema, which is decoded elsewhere";
  const struct plm_proof_digest digest = plm_proof_schema(schema, sizeof schema);
  struct plm_error error = {0};
  hello = (struct plm_hello){.splits = {{.documents = 9, .root = {1}}},
                             .clustered = true,
                             .schema = schema,
                             .schema_bytes = sizeof schema};
  hello.fingerprint = plm_proof_corpus(PLM_TOKENIZER_ESM, hello.splits, &digest);
  const size_t size = plm_hello_encode(&hello, bytes);
  assert_int_equal(plm_hello_decode(bytes, size, &back, NULL), PLM_OK);
  assert_true(back.clustered);
  assert_int_equal(back.schema_bytes, sizeof schema);
  assert_memory_equal(back.schema, schema, sizeof schema);
  for (size_t cut = 1; cut < sizeof schema + 5; cut++)
    assert_int_equal(plm_hello_decode(bytes, size - cut, &back, &error), PLM_PROTOCOL);
  bytes[size - 2] ^= 1;
  assert_int_equal(plm_hello_decode(bytes, size, &back, &error), PLM_PROTOCOL);
  assert_string_equal(error.what, "HELLO states roots that do not give its fingerprint");
  const struct plm_proof_digest none = plm_proof_schema(schema, 0);
  hello.fingerprint = plm_proof_corpus(PLM_TOKENIZER_ESM, hello.splits, &none);
  (void)plm_hello_encode(&hello, bytes); /* and a schema of no bytes, which it would prove */
  bytes[size - sizeof schema - 1] = bytes[size - sizeof schema - 2] = 0;
  bytes[size - sizeof schema - 3] = bytes[size - sizeof schema - 4] = 0;
  assert_int_equal(plm_hello_decode(bytes, size - sizeof schema, &back, &error), PLM_PROTOCOL);
  hello.schema_bytes = 0; /* the same roots, but a corpus without labels */
  hello.schema = NULL;
  assert_int_equal(plm_hello_decode(bytes, plm_hello_encode(&hello, bytes), &back, &error),
                   PLM_PROTOCOL);
}

/* Whoever believes the fingerprint believes the splits, so they must belong together. */
static void the_splits_give_the_fingerprint(void **state)
{
  (void)state;
  static struct plm_hello hello, back;
  static uint8_t bytes[PLM_WIRE_CONTROL_LIMIT];
  struct plm_error error = {0};
  hello = (struct plm_hello){.splits = {{.documents = 9, .root = {1}}}};
  hello.fingerprint = plm_proof_corpus(PLM_TOKENIZER_ESM, hello.splits, NULL);
  assert_int_equal(plm_hello_decode(bytes, plm_hello_encode(&hello, bytes), &back, NULL), PLM_OK);
  for (int wrong = 0; wrong < 4; wrong++) {
    struct plm_hello other = hello;
    if (wrong == 0) other.fingerprint.low ^= 1;
    if (wrong == 1) other.tokenizer = PLM_TOKENIZER_BYTE;
    if (wrong == 2) other.splits[0].documents--;
    if (wrong == 3) other.splits[2].root[31] = 1;
    const size_t size = plm_hello_encode(&other, bytes);
    assert_int_equal(plm_hello_decode(bytes, size, &back, &error), PLM_PROTOCOL);
    assert_string_equal(error.what, "HELLO states roots that do not give its fingerprint");
  }
}

/* Each document is in one cluster, in splits that keep clusters; and there is a limit. */
static void clusters_have_all_documents(void **state)
{
  enum { MOST = 48 };
  static const struct {
    uint64_t documents, clusters, sum;
    plm_status status;
  } cases[] = {
      {9, 0, 0, PLM_OK},
      {9, 9, 9, PLM_OK},
      {9, 1, 9, PLM_OK},
      {9, 10, 9, PLM_PROTOCOL},
      {9, 3, 8, PLM_PROTOCOL},
      {9, 3, 10, PLM_PROTOCOL},
      {9, 0, 9, PLM_PROTOCOL},
      {1ull << MOST, 0, 0, PLM_OK},
      {(1ull << MOST) + 1, 0, 0, PLM_PROTOCOL},
  };
  static struct plm_hello hello, back;
  static uint8_t bytes[PLM_WIRE_CONTROL_LIMIT];
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hello = (struct plm_hello){.splits = {[1] = {.documents = cases[i].documents,
                                                 .clusters = cases[i].clusters,
                                                 .sum = cases[i].sum}}};
    hello.fingerprint = plm_proof_corpus(PLM_TOKENIZER_ESM, hello.splits, NULL);
    const size_t size = plm_hello_encode(&hello, bytes);
    assert_int_equal(plm_hello_decode(bytes, size, &back, NULL), cases[i].status);
  }
}

/* A corpus is known by its fingerprint, and by that from before an upgrade if there was one. */
static void a_hello_answers_to_two_fingerprints(void **state)
{
  (void)state;
  static struct plm_hello hello;
  hello = (struct plm_hello){.fingerprint = {1, 2}};
  assert_true(plm_hello_is(&hello, (struct plm_hash){1, 2}));
  assert_false(plm_hello_is(&hello, (struct plm_hash){1, 3}));
  assert_false(plm_hello_is(&hello, (struct plm_hash){0, 0})); /* "not upgraded" is no corpus */
  hello.upgraded_from = (struct plm_hash){6, 7};
  assert_true(plm_hello_is(&hello, (struct plm_hash){1, 2}));
  assert_true(plm_hello_is(&hello, (struct plm_hash){6, 7}));
  assert_false(plm_hello_is(&hello, (struct plm_hash){6, 2}));
}

static void endpoints_are_judged(void **state)
{
  (void)state;
  struct plm_error error;
  static const char *const local[] = {
      "tcp://127.0.0.1:*", "tcp://127.8.9.1:5", "tcp://localhost:80", "tcp://[::1]:70",
      "tcp://::1:70",      "tcp://lo:5701",     "ipc:///tmp/x"};
  static const char *const far[] = {
      "tcp://0.0.0.0:1",    "tcp://*:5701",       "tcp://127.0.0.1.evil.org:1",
      "tcp://10.0.0.1:5",   "tcp://[::]:5",       "tcp://126.0.0.1:5",
      "tcp://128.0.0.1:5",  "tcp://127.0.0.1.:5", "tcp://127.0.0:5",
      "tcp://localhost2:5", "tcp://l:5",          "tcp://lo0:5"};
  static const char *const wrong[] = {"",
                                      "tcp://",
                                      "udp://127.0.0.1:5",
                                      "tcp://127.0.0.1",
                                      "tcp://127.0.0.1:",
                                      "127.0.0.1:5",
                                      "ip",
                                      "tcp://:5",
                                      "ipc:/x",
                                      "inproc://x"};
  char longest[202] = "ipc:///";
  for (size_t i = 0; i < sizeof local / sizeof *local; i++)
    assert_int_equal(plm_endpoint_check(local[i], NULL, &error), PLM_OK);
  for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
    assert_int_equal(plm_endpoint_check(far[i], NULL, &error), PLM_CONFIG);
    assert_int_equal(plm_endpoint_check(far[i], "/keys", &error), PLM_OK);
  }
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_int_equal(plm_endpoint_check(wrong[i], "/keys", &error), PLM_CONFIG);
  assert_string_equal(error.what, "\"inproc://x\" is not an endpoint");
  assert_string_equal(error.hint, "tcp://HOST:PORT, tcp://127.0.0.1:* or ipc://PATH");
  assert_true(plm_endpoint_is_local("inproc://x")); /* between threads, never in a configuration */
  assert_false(plm_endpoint_is_local("udp://127.0.0.1:5"));
  assert_int_equal(plm_endpoint_check("tcp://10.0.0.1:5", NULL, &error), PLM_CONFIG);
  assert_string_equal(error.what, "tcp://10.0.0.1:5 reaches beyond this host and has no keys");
  assert_string_equal(error.hint, "make keys with: plm-pipeline keys DIR --client NAME; then set "
                                  "network.keys: DIR (packers: --keys DIR)");
  memset(longest + 7, 'x', 194);
  assert_int_equal(strlen(longest), 201);
  assert_int_equal(plm_endpoint_check(longest, NULL, &error), PLM_CONFIG);
  longest[200] = '\0';
  assert_int_equal(plm_endpoint_check(longest, NULL, &error), PLM_OK);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(header_layout_is_fixed),
      cmocka_unit_test(header_round_trip_and_every_flipped_bit),
      cmocka_unit_test(limits_hold_under_a_right_hash),
      cmocka_unit_test(values_of_a_hello_have_limits),
      cmocka_unit_test(values_of_other_messages_have_limits),
      cmocka_unit_test(hello_and_welcome_come_back),
      cmocka_unit_test(welcome_names_other_consumers),
      cmocka_unit_test(a_schema_belongs_to_the_fingerprint),
      cmocka_unit_test(the_splits_give_the_fingerprint),
      cmocka_unit_test(clusters_have_all_documents),
      cmocka_unit_test(a_hello_answers_to_two_fingerprints),
      cmocka_unit_test(fetch_and_file_part_come_back),
      cmocka_unit_test(endpoints_are_judged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
