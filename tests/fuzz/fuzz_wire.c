/* The wire's parsers on hostile bytes: the first byte chooses one. What a parser accepts must
 * survive being encoded again. */
#include <stdlib.h>
#include <string.h>

#include "common/corpus/tokenizer.h"
#include "common/wire/data.h"
#include "common/wire/message.h"
#include "tests/support/fuzz_seed.h"

/* This seed's hash is wrong; header() below corrects it. */
static const uint8_t header_seed[1 + PLM_HEADER_BYTES] = {0, 'P', 'L', 'M', 'F', 1, 0, 11};
static const uint8_t hello_seed[] = {
    1, 1, 0, 1, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 4, 0, 'h', 'o', 's', 't', 0, 0, 1, 0, 0,
    0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0,   0,   1,   0,   4, 0, 1, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,   0,   0,   0,   0, 0, 0};
static const uint8_t welcome_seed[64] = {2, 1, 0, 0, 0,  0, 0, 0, 0, 0, 2, 0, 0,
                                         1, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 1};
static const uint8_t data_seed[] = {4, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                    0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0,
                                    5, 6, 7, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
static const uint8_t piece_seed[] = {6, 0, 0, 1, 0, 2, 0, 0, 0, 8, 0, 0, 0, 0,
                                     0, 0, 0, 1, 0, 9, 1, 0, 0, 0, 0, 7, 7};
static const struct fuzz_seed fuzz_seeds[] = {
    {header_seed, sizeof header_seed},   {hello_seed, sizeof hello_seed},
    {welcome_seed, sizeof welcome_seed}, {data_seed, sizeof data_seed},
    {piece_seed, sizeof piece_seed},     FUZZ_TEXT("\003\0\0\0\0\0\0\0\0"),
    FUZZ_TEXT("\005\1\0\0\0text"),       {0}};

static void header(const uint8_t *bytes, size_t size)
{
  struct plm_header decoded;
  struct plm_error error;
  uint8_t repaired[PLM_HEADER_BYTES], again[PLM_HEADER_BYTES];
  (void)plm_header_decode(bytes, size, &decoded, &error);
  if (size != PLM_HEADER_BYTES) return;
  /* again with the correct hash, which a hostile peer could compute as well */
  memcpy(repaired, bytes, sizeof repaired);
  const uint64_t hash = plm_hash64_bytes(repaired, PLM_HEADER_BYTES - 8);
  for (int i = 0; i < 8; i++) repaired[PLM_HEADER_BYTES - 8 + i] = (uint8_t)(hash >> (8 * i));
  if (plm_header_decode(repaired, sizeof repaired, &decoded, &error) != PLM_OK) return;
  plm_header_encode(&decoded, again);
  PLM_ASSERT(memcmp(repaired, again, sizeof again) == 0);
}

static void hello(const uint8_t *bytes, size_t size)
{
  static struct plm_hello decoded;
  static uint8_t again[PLM_WIRE_CONTROL_LIMIT];
  struct plm_error error;
  if (plm_hello_decode(bytes, size, &decoded, &error) != PLM_OK) return;
  PLM_ASSERT(plm_hello_encode(&decoded, again) == size && memcmp(bytes, again, size) == 0);
}

static void welcome(const uint8_t *bytes, size_t size)
{
  struct plm_welcome decoded;
  static uint8_t again[PLM_WIRE_CONTROL_LIMIT];
  struct plm_error error;
  if (plm_welcome_decode(bytes, size, &decoded, &error) != PLM_OK) return;
  PLM_ASSERT(plm_welcome_encode(&decoded, again) == size && memcmp(bytes, again, size) == 0);
}

static void small(const uint8_t *bytes, size_t size)
{
  struct plm_packer_counters counters;
  struct plm_get get;
  enum plm_nack_reason reason;
  struct plm_error error;
  char text[PLM_WIRE_TEXT + 1];
  (void)plm_counters_decode(bytes, size, &counters, &error);
  (void)plm_get_decode(bytes, size, &get, &error);
  if (plm_nack_decode(bytes, size, &reason, text, &error) == PLM_OK) {
    PLM_ASSERT(reason < PLM_NACK_COUNT && strlen(text) <= PLM_WIRE_TEXT);
  }
}

static void fetch(const uint8_t *bytes, size_t size)
{
  struct plm_fetch_request request;
  struct plm_piece piece;
  struct plm_error error;
  uint8_t again[PLM_PIECE_HEAD];
  if (plm_fetch_decode(bytes, size, &request, &error) == PLM_OK)
    PLM_ASSERT(plm_fetch_encode(&request, again) == size && memcmp(bytes, again, size) == 0);
  if (plm_piece_decode(bytes, size, &piece, &error) != PLM_OK) return;
  plm_piece_encode(&piece, again);
  PLM_ASSERT(memcmp(bytes, again, sizeof again) == 0);
  PLM_ASSERT(piece.of.bytes + sizeof again == size && piece.of.source < piece.sources);
}

static void data(const uint8_t *bytes, size_t size, enum plm_tokenizer_kind kind)
{
  struct plm_error error;
  uint64_t real;
  const struct plm_data_shape shape = {plm_tokenizer_of(kind), 16, 1, size > 0 ? bytes[0] % 3u : 1};
  if (plm_data_check(&shape, bytes, size, &real, &error) == PLM_OK)
    PLM_ASSERT(real <= 16u * shape.chunks);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  if (size == 0) return 0;
  switch (bytes[0] % 7) {
  case 0: header(bytes + 1, size - 1); break;
  case 1: hello(bytes + 1, size - 1); break;
  case 2: welcome(bytes + 1, size - 1); break;
  case 3: data(bytes + 1, size - 1, PLM_TOKENIZER_BYTE); break;
  case 4: data(bytes + 1, size - 1, PLM_TOKENIZER_ESM); break;
  case 6: fetch(bytes + 1, size - 1); break;
  default: small(bytes + 1, size - 1); break;
  }
  return 0;
}

#include "tests/support/fuzz_main.h"
