/* The work of proof_lanes.c for vectors of LANES words, which it includes once for each width, with
 * NAME and TARGET defined. GCC makes the processor's instructions of operations on whole vectors.
 */

typedef uint64_t NAME(words) __attribute__((vector_size(8 * LANES)));

/* To the right, by 32, 24, 16 or 63 bits. */
TARGET static inline NAME(words) NAME(rotate)(NAME(words) x, int n)
{
#if LANES == 4 /* AVX2 has no rotation, but it moves bytes in one instruction */
  const __m256i by_24 = _mm256_set_epi64x(0x0a09080f0e0d0c0b, 0x0201000706050403,
                                          0x0a09080f0e0d0c0b, 0x0201000706050403);
  const __m256i by_16 = _mm256_set_epi64x(0x09080f0e0d0c0b0a, 0x0100070605040302,
                                          0x09080f0e0d0c0b0a, 0x0100070605040302);
  if (n == 32) return (NAME(words))_mm256_shuffle_epi32((__m256i)x, 0xb1);
  if (n == 24) return (NAME(words))_mm256_shuffle_epi8((__m256i)x, by_24);
  if (n == 16) return (NAME(words))_mm256_shuffle_epi8((__m256i)x, by_16);
  return x >> 63 | (x + x);
#else
  return x >> n | x << (64 - n);
#endif
}

/* RFC 7693's mixing function G of words a, b, c and d of the state, with two words of the message.
 */
TARGET static inline void NAME(mix)(NAME(words) v[WORDS], int a, int b, int c, int d,
                                    const NAME(words) * x, const NAME(words) * y)
{
  v[a] = v[a] + v[b] + *x;
  v[d] = NAME(rotate)(v[d] ^ v[a], 32);
  v[c] = v[c] + v[d];
  v[b] = NAME(rotate)(v[b] ^ v[c], 24);
  v[a] = v[a] + v[b] + *y;
  v[d] = NAME(rotate)(v[d] ^ v[a], 16);
  v[c] = v[c] + v[d];
  v[b] = NAME(rotate)(v[b] ^ v[c], 63);
}

/* Compresses a block of each lane into its chaining value. */
TARGET static void NAME(compress)(NAME(words) value[8], const uint8_t *const blocks[LANES],
                                  const struct lane lanes[LANES])
{
  NAME(words) m[WORDS], v[WORDS], counter, last;
  for (int i = 0; i < WORDS; i++)
    for (int lane = 0; lane < LANES; lane++) m[i][lane] = load(blocks[lane] + 8 * i);
  for (int lane = 0; lane < LANES; lane++) {
    counter[lane] = lanes[lane].at;
    last[lane] = lanes[lane].last ? UINT64_MAX : 0;
  }
  for (int i = 0; i < 8; i++) {
    v[i] = value[i];
    v[8 + i] = (NAME(words)){0} + initial[i];
  }
  v[12] ^= counter;
  v[14] ^= last;
#pragma GCC unroll 12
  for (int r = 0; r < ROUNDS; r++) {
    const uint8_t *s = sigma[r];
    NAME(mix)(v, 0, 4, 8, 12, &m[s[0]], &m[s[1]]);
    NAME(mix)(v, 1, 5, 9, 13, &m[s[2]], &m[s[3]]);
    NAME(mix)(v, 2, 6, 10, 14, &m[s[4]], &m[s[5]]);
    NAME(mix)(v, 3, 7, 11, 15, &m[s[6]], &m[s[7]]);
    NAME(mix)(v, 0, 5, 10, 15, &m[s[8]], &m[s[9]]);
    NAME(mix)(v, 1, 6, 11, 12, &m[s[10]], &m[s[11]]);
    NAME(mix)(v, 2, 7, 8, 13, &m[s[12]], &m[s[13]]);
    NAME(mix)(v, 3, 4, 9, 14, &m[s[14]], &m[s[15]]);
  }
  for (int i = 0; i < 8; i++) value[i] ^= v[i] ^ v[8 + i];
}

TARGET static void NAME(write_out)(const NAME(words) value[8], int lane, uint8_t *out,
                                   size_t out_bytes)
{
  uint64_t hash[4];
  for (int i = 0; i < 4; i++) hash[i] = htole64(value[i][lane]);
  memcpy(out, hash, out_bytes);
}

/* A lane takes the next message as soon as its own is done. */
TARGET static void NAME(hash_tasks)(enum proof_tag tag, const struct proof_task *tasks,
                                    size_t count, size_t out_bytes)
{
  struct lane lanes[LANES];
  NAME(words) value[8] = {{0}};
  uint64_t first[8];
  size_t taken = 0, done = 0;
  PLM_ASSERT(out_bytes <= PLM_PROOF_HASH_BYTES);
  first_value(tag, out_bytes, first);
  for (int lane = 0; lane < LANES; lane++) lanes[lane].task = NULL;
  while (done < count) {
    const uint8_t *blocks[LANES];
    for (int lane = 0; lane < LANES; lane++) {
      if (lanes[lane].task == NULL) {
        lanes[lane].at = 0;
        if (taken < count) lanes[lane].task = &tasks[taken++];
        for (int i = 0; i < 8; i++) value[i][lane] = first[i];
      }
      blocks[lane] = next_block(&lanes[lane]);
    }
    NAME(compress)(value, blocks, lanes);
    for (int lane = 0; lane < LANES; lane++) {
      if (lanes[lane].task == NULL || !lanes[lane].last) continue;
      NAME(write_out)(value, lane, lanes[lane].task->out, out_bytes);
      lanes[lane].task = NULL;
      done++;
    }
  }
}
