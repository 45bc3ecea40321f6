/* Messages at their limits, and the bytes of each payload. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/wire/message.h"

static const struct {
  enum plm_message_type type;
  const char *name;
  uint64_t least, most;
} types[] = {
    {PLM_MESSAGE_HELLO, "HELLO", 64, 589824},
    {PLM_MESSAGE_WELCOME, "WELCOME", 32, 65536},
    {PLM_MESSAGE_REJECT, "REJECT", 0, 512},
    {PLM_MESSAGE_REHELLO, "REHELLO", 0, 0},
    {PLM_MESSAGE_PROVE, "PROVE", 8, 8},
    {PLM_MESSAGE_PROOF, "PROOF", 1, 1048576},
    {PLM_MESSAGE_GET, "GET", 8, 8},
    {PLM_MESSAGE_DATA, "DATA", 2, 67108864},
    {PLM_MESSAGE_NACK, "NACK", 4, 516},
    {PLM_MESSAGE_PING, "PING", 0, 0},
    {PLM_MESSAGE_PONG, "PONG", 0, 256},
    {PLM_MESSAGE_BYE, "BYE", 0, 0},
    {PLM_MESSAGE_FETCH, "FETCH", 16, 16},
    {PLM_MESSAGE_FILE_PART, "FILE_PART", PLM_FILE_PART_HEAD,
     PLM_FILE_PART_HEAD + PLM_FILE_PART_BYTES},
};

static plm_status decode(struct plm_header header, struct plm_error *error)
{
  uint8_t bytes[PLM_HEADER_BYTES], again[PLM_HEADER_BYTES];
  struct plm_header back = {0};
  plm_header_encode(&header, bytes);
  const plm_status status = plm_header_decode(bytes, sizeof bytes, &back, error);
  plm_header_encode(&back, again);
  if (status == PLM_OK) assert_memory_equal(again, bytes, sizeof bytes);
  return status;
}

static void each_type_has_a_range_of_payloads(void **state)
{
  (void)state;
  assert_int_equal(sizeof types / sizeof *types, PLM_MESSAGE_COUNT - 1);
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    struct plm_header header;
    struct plm_error error = {0};
    char expected[100];
    memset(&header, 0, sizeof header);
    header.type = types[i].type;
    assert_string_equal(plm_message_name(types[i].type), types[i].name);
    header.payload_bytes = types[i].least;
    assert_int_equal(decode(header, NULL), PLM_OK);
    header.payload_bytes = types[i].most;
    assert_int_equal(decode(header, NULL), PLM_OK);
    header.payload_bytes = types[i].most + 1;
    assert_int_equal(decode(header, &error), PLM_PROTOCOL);
    snprintf(expected, sizeof expected, "%s with a payload of %llu bytes", types[i].name,
             (unsigned long long)types[i].most + 1);
    assert_string_equal(error.what, expected);
    header.payload_bytes = types[i].least - 1;
    if (types[i].least > 0) assert_int_equal(decode(header, NULL), PLM_PROTOCOL);
  }
}

static void fields_have_limits(void **state)
{
  (void)state;
  struct plm_header header;
  struct plm_error error = {0};
  memset(&header, 0xff, sizeof header); /* each field has all its bits */
  header.type = PLM_MESSAGE_PING;
  header.payload_bytes = 0;
  header.split = PLM_SPLIT_COUNT - 1;
  header.dtype = 2;
  header.count = 1 << 20;
  assert_int_equal(decode(header, NULL), PLM_OK);
  header.count++;
  assert_int_equal(decode(header, &error), PLM_PROTOCOL);
  assert_string_equal(error.what, "a range of 1048577");
  header.dtype = 3;
  assert_int_equal(decode(header, &error), PLM_PROTOCOL);
  assert_string_equal(error.what, "unknown dtype 3");
  header.split = PLM_SPLIT_COUNT;
  assert_int_equal(decode(header, &error), PLM_PROTOCOL);
  assert_string_equal(error.what, "unknown split 3");
  header.type = PLM_MESSAGE_NONE;
  assert_int_equal(decode(header, &error), PLM_PROTOCOL);
  assert_string_equal(error.what, "unknown message type 0");
}

static void expect_bytes(const uint8_t *bytes, size_t size, const char *expected)
{
  char hex[1000] = "";
  for (size_t i = 0; i < size; i++) snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
  assert_string_equal(hex, expected);
}

static void counters_and_requests_have_one_form(void **state)
{
  (void)state;
  uint8_t bytes[512] = {0};
  struct plm_error error = {0};
  const struct plm_packer_counters counters = {.windows = 1,
                                               .chunks = 2,
                                               .documents = 3,
                                               .tokens = 4,
                                               .padded_tokens = 5,
                                               .bytes = 6,
                                               .invalid = 7,
                                               .queue = 8,
                                               .standby = 9,
                                               .age_ms = UINT64_C(0x0102030405060708)};
  struct plm_packer_counters counters_back;
  size_t size = plm_counters_encode(&counters, bytes);
  expect_bytes(bytes, size,
               "0100000000000000020000000000000003000000000000000400000000000000"
               "0500000000000000060000000000000007000000000000000800000000000000"
               "09000000000000000807060504030201");
  assert_int_equal(plm_counters_decode(bytes, size, &counters_back, NULL), PLM_OK);
  assert_memory_equal(&counters_back, &counters, sizeof counters);
  assert_int_equal(plm_counters_decode(bytes, size - 1, &counters_back, &error), PLM_PROTOCOL);
  assert_string_equal(error.what, "malformed payload of PONG");
  assert_int_equal(plm_counters_decode(bytes, size + 1, &counters_back, NULL), PLM_PROTOCOL);

  const struct plm_get get = {.deadline_ms = 1, .window = 0x05040302};
  struct plm_get get_back;
  size = plm_get_encode(&get, bytes);
  expect_bytes(bytes, size, "0100000002030405");
  assert_int_equal(plm_get_decode(bytes, size, &get_back, NULL), PLM_OK);
  assert_memory_equal(&get_back, &get, sizeof get);
  assert_int_equal(plm_get_decode(bytes, size - 1, &get_back, &error), PLM_PROTOCOL);
  assert_string_equal(error.what, "malformed payload of GET");

  struct plm_prove prove = {.group = 0x04030201, .soon = true}, prove_back;
  size = plm_prove_encode(&prove, bytes);
  expect_bytes(bytes, size, "0102030401000000");
  assert_int_equal(plm_prove_decode(bytes, size, &prove_back, NULL), PLM_OK);
  assert_int_equal(prove_back.group, prove.group);
  assert_true(prove_back.soon);
  bytes[4] = 2;
  assert_int_equal(plm_prove_decode(bytes, size, &prove_back, NULL), PLM_PROTOCOL);
  bytes[4] = 0;
  assert_int_equal(plm_prove_decode(bytes, size, &prove_back, NULL), PLM_OK);
  assert_false(prove_back.soon);
  assert_int_equal(plm_prove_decode(bytes, size - 1, &prove_back, &error), PLM_PROTOCOL);
  assert_string_equal(error.what, "malformed payload of PROVE");
}

static void a_refusal_has_a_reason_and_a_text(void **state)
{
  (void)state;
  uint8_t bytes[4 + PLM_WIRE_TEXT + 8];
  char text[PLM_WIRE_TEXT + 1], longest[PLM_WIRE_TEXT + 10];
  enum plm_nack_reason reason;
  struct plm_error error = {0};
  size_t size = plm_nack_encode(PLM_NACK_FAILED, "why", bytes);
  expect_bytes(bytes, size, "05000000776879");
  assert_int_equal(plm_nack_decode(bytes, size, &reason, text, NULL), PLM_OK);
  assert_int_equal(reason, PLM_NACK_FAILED);
  assert_string_equal(text, "why");
  assert_int_equal(plm_nack_decode(bytes, 4, &reason, text, NULL), PLM_OK);
  assert_string_equal(text, "");
  assert_int_equal(plm_nack_decode(bytes, 3, &reason, text, &error), PLM_PROTOCOL);
  assert_string_equal(error.what, "malformed payload of NACK");
  bytes[0] = PLM_NACK_COUNT;
  assert_int_equal(plm_nack_decode(bytes, size, &reason, text, NULL), PLM_PROTOCOL);
  memset(longest, 'x', sizeof longest);
  longest[sizeof longest - 1] = '\0';
  size = plm_nack_encode(PLM_NACK_NONE, longest, bytes);
  assert_int_equal(size, 4 + PLM_WIRE_TEXT);
  assert_int_equal(plm_nack_decode(bytes, size, &reason, text, NULL), PLM_OK);
  assert_int_equal(strlen(text), PLM_WIRE_TEXT);
  plm_reject_decode("\x1f ~\x7f", 4, text);
  assert_string_equal(text, "? ~?");
  plm_reject_decode(longest, PLM_WIRE_TEXT + 1, text);
  assert_int_equal(strlen(text), PLM_WIRE_TEXT);
}

/* The bytes of a HELLO with a damage at `at`, which is refused. */
static void a_greeting_has_limits(void **state)
{
  (void)state;
  static struct {
    struct plm_hello hello;
    uint8_t guard;
  } back;
  static uint8_t bytes[PLM_WIRE_CONTROL_LIMIT];
  static struct plm_hello hello;
  struct plm_error error;
  hello = (struct plm_hello){.protocol_least = 0x0201,
                             .protocol_most = 0x0403,
                             .packer_id = 5,
                             .pid = 6,
                             .host = "ab",
                             .tokenizer = PLM_TOKENIZER_BYTE,
                             .clustered = true,
                             .upgraded_from = {11, 12},
                             .splits = {{.documents = 9, .root = {1, [31] = 2}},
                                        {.documents = UINT64_C(1) << 48,
                                         .root = {3},
                                         .clusters = 5,
                                         .sum = UINT64_C(1) << 48,
                                         .cluster_root = {4, [31] = 5}}}};
  hello.fingerprint = plm_proof_corpus(PLM_TOKENIZER_BYTE, hello.splits, NULL);
  hello.composition[0][511] = 10;
  const size_t size = plm_hello_encode(&hello, bytes);
  expect_bytes(bytes, size,
               "01020304050000000000000006000000020061620101"
               "3638220c329451a1c060e70ce1961673" /* of these splits */
               "0b000000000000000c00000000000000"
               "0900000000000000"
               "0100000000000000000000000000000000000000000000000000000000000002"
               "00000000000000000000000000000000"
               "0000000000000000000000000000000000000000000000000000000000000000"
               "0100ff010a00000000000000"
               "0000000000000100"
               "0300000000000000000000000000000000000000000000000000000000000000"
               "05000000000000000000000000000100"
               "0400000000000000000000000000000000000000000000000000000000000005"
               "0000"
               "0000000000000000"
               "0000000000000000000000000000000000000000000000000000000000000000"
               "00000000000000000000000000000000"
               "0000000000000000000000000000000000000000000000000000000000000000"
               "0000");
  back.guard = 77;
  assert_int_equal(plm_hello_decode(bytes, size, &back.hello, NULL), PLM_OK);
  assert_memory_equal(&back.hello, &hello, sizeof hello);
  assert_int_equal(back.guard, 77);
  static const struct {
    size_t at;
    uint8_t value;
  } damages[] = {
      {18, 0x1f}, /* the host is not printable */
      {19, 0x7f}, /* nor is this */
      {20, 2},    /* no such tokenizer */
      {21, 2},    /* a schema would follow */
      {21, 4},    /* no such flag */
      {142, 2},   /* an entry that is not there */
      {145, 2},   /* token 767 */
      {146, 0},   /* a count of 0 */
      {160, 2},   /* 2^49 documents */
      {201, 2},   /* clusters of 2^49 documents */
  };
  for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
    const uint8_t kept = bytes[damages[i].at];
    bytes[damages[i].at] = damages[i].value;
    if (plm_hello_decode(bytes, size, &back.hello, &error) != PLM_PROTOCOL)
      fail_msg("byte %zu may be %u", damages[i].at, damages[i].value);
    assert_string_equal(error.what, "malformed payload of HELLO");
    bytes[damages[i].at] = kept;
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_type_has_a_range_of_payloads),
      cmocka_unit_test(fields_have_limits),
      cmocka_unit_test(counters_and_requests_have_one_form),
      cmocka_unit_test(a_refusal_has_a_reason_and_a_text),
      cmocka_unit_test(a_greeting_has_limits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
