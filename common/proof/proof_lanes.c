/* BLAKE2b in lanes, and choosing how many. lanes_body.h has the work, once for each width. */
#include "common/proof/proof_lanes.h"

#if defined(__x86_64__)
#include <endian.h>
#include <immintrin.h>
#include <string.h>

enum { BLOCK = 128, ROUNDS = 12, WORDS = 16 }; /* of BLAKE2b */

static const uint64_t initial[8] = {UINT64_C(0x6a09e667f3bcc908), UINT64_C(0xbb67ae8584caa73b),
                                    UINT64_C(0x3c6ef372fe94f82b), UINT64_C(0xa54ff53a5f1d36f1),
                                    UINT64_C(0x510e527fade682d1), UINT64_C(0x9b05688c2b3e6c1f),
                                    UINT64_C(0x1f83d9abfb41bd6b), UINT64_C(0x5be0cd19137e2179)};

/* The order of the message's words in each round. */
static const uint8_t sigma[ROUNDS][WORDS] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3}};

static uint64_t load(const uint8_t *bytes)
{
  uint64_t word;
  memcpy(&word, bytes, sizeof word);
  return le64toh(word);
}

/* The chaining value before the first block: the parameter block of RFC 7693 (digest length, fanout
 * 1, depth 1), with the personalisation in its last 16 bytes. */
static void first_value(enum proof_tag tag, size_t out_bytes, uint64_t value[8])
{
  uint8_t personal[16] = "plm-proof";
  personal[sizeof personal - 1] = (uint8_t)tag;
  memcpy(value, initial, sizeof initial);
  value[0] ^= UINT64_C(0x01010000) ^ out_bytes;
  value[6] ^= load(personal);
  value[7] ^= load(personal + 8);
}

/* A message in a lane. */
struct lane {
  const struct proof_task *task; /* NULL: none */
  size_t at;                     /* bytes of the message in earlier blocks */
  bool last;                     /* the block is the message's last one */
  uint8_t padded[BLOCK];         /* the last block, if it is not full */
};

/* The lane's next block; lanes without a message get zeros. */
static const uint8_t *next_block(struct lane *lane)
{
  const struct proof_task *task = lane->task;
  const size_t left = task == NULL ? 0 : task->size - lane->at;
  lane->last = left <= BLOCK;
  if (left >= BLOCK) {
    lane->at += BLOCK;
    return (const uint8_t *)task->message + lane->at - BLOCK;
  }
  if (left != 0) memcpy(lane->padded, (const uint8_t *)task->message + lane->at, left);
  memset(lane->padded + left, 0, BLOCK - left);
  lane->at += left;
  return lane->padded;
}

#define LANES 4
#define NAME(name) name##_avx2
#define TARGET __attribute__((target("avx2")))
#include "common/proof/lanes_body.h"
#undef LANES
#undef NAME
#undef TARGET

#define LANES 8
#define NAME(name) name##_avx512
#define TARGET __attribute__((target("avx512f")))
#include "common/proof/lanes_body.h"
#endif

static void hash_one_by_one(enum proof_tag tag, const struct proof_task *tasks, size_t count,
                            size_t out_bytes)
{
  for (size_t i = 0; i < count; i++)
    proof_hash(tag, tasks[i].message, tasks[i].size, tasks[i].out, out_bytes);
}

bool proof_hash_many_form(enum proof_lanes form, enum proof_tag tag, const struct proof_task *tasks,
                          size_t count, size_t out_bytes)
{
  switch (form) {
  case PROOF_ONE: hash_one_by_one(tag, tasks, count, out_bytes); return true;
#if defined(__x86_64__)
  case PROOF_AVX2:
    if (!__builtin_cpu_supports("avx2")) return false;
    hash_tasks_avx2(tag, tasks, count, out_bytes);
    return true;
  case PROOF_AVX512:
    if (!__builtin_cpu_supports("avx512f")) return false;
    hash_tasks_avx512(tag, tasks, count, out_bytes);
    return true;
#endif
  default: return false;
  }
}

void proof_hash_many(enum proof_tag tag, const struct proof_task *tasks, size_t count,
                     size_t out_bytes)
{
  if (count > 2) /* one or two messages are faster without lanes */
    for (int form = PROOF_LANES_FORMS - 1; form > PROOF_ONE; form--)
      if (proof_hash_many_form((enum proof_lanes)form, tag, tasks, count, out_bytes)) return;
  hash_one_by_one(tag, tasks, count, out_bytes);
}
