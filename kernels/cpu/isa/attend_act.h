/* The attention of one query in one precision; attend.c includes it once for each. */

/* scores[i] = scale q . key i */
static void ACT(score_keys)(const struct plm_attended_keys *keys)
{
  const int64_t K = keys->K;
  const ACT_TYPE *key = keys->keys;
  float q[PLM_HEAD_WIDTH_LIMIT];
  for (int64_t d = 0; d < K; d += SIMD_WIDTH)
    vstore_float(q + d, act_load((const ACT_TYPE *)keys->q + d, K - d) * keys->scale, K - d);
  int64_t i = 0;
  for (; i + KEYS_AT_ONCE <= keys->count; i += KEYS_AT_ONCE, key += KEYS_AT_ONCE * K) {
    vfloat sum[KEYS_AT_ONCE] = {{0}};
    for (int64_t d = 0; d < K; d += SIMD_WIDTH) {
      const vfloat part = vload_float(q + d, K - d);
#pragma GCC unroll 4
      for (int j = 0; j < KEYS_AT_ONCE; j++) sum[j] += part * act_load(key + j * K + d, K - d);
    }
    for (int j = 0; j < KEYS_AT_ONCE; j++) keys->scores[i + j] = vsum(sum[j]);
  }
  for (; i < keys->count; i++, key += K) {
    vfloat sum = {0};
    for (int64_t d = 0; d < K; d += SIMD_WIDTH)
      sum += vload_float(q + d, K - d) * act_load(key + d, K - d);
    keys->scores[i] = vsum(sum);
  }
}

/* Replaces the scores by e^(score - largest) and returns the sum of the results. */
static float ACT(exponents)(const struct plm_attended_keys *keys)
{
  float largest = keys->scores[0];
  for (int64_t i = 1; i < keys->count; i++)
    if (keys->scores[i] > largest) largest = keys->scores[i];
  float sum = 0;
  for (int64_t i = 0; i < keys->count; i += SIMD_WIDTH) {
    const int64_t left = keys->count - i;
    vstore_float(keys->scores + i, vexp(vload_float(keys->scores + i, left) - largest), left);
    for (int64_t j = i; j < i + SIMD_WIDTH && j < keys->count; j++) sum += keys->scores[j];
  }
  return sum;
}

static void ACT(attend)(void *out, const struct plm_attended_keys *keys)
{
  const int64_t K = keys->K;
  ACT(score_keys)(keys);
  const float inverse = 1.0f / ACT(exponents)(keys);
  for (int64_t first = 0; first < K; first += VECTORS_AT_ONCE * SIMD_WIDTH) {
    const ACT_TYPE *value = (const ACT_TYPE *)keys->values + first;
    const int64_t left = K - first;
    vfloat sum[VECTORS_AT_ONCE] = {{0}};
    if (left >= VECTORS_AT_ONCE * SIMD_WIDTH) {
      for (int64_t i = 0; i < keys->count; i++, value += K)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS_AT_ONCE; v++)
          sum[v] += keys->scores[i] * act_load(value + v * SIMD_WIDTH, SIMD_WIDTH);
    } else {
      for (int64_t i = 0; i < keys->count; i++, value += K)
        for (int v = 0; v * SIMD_WIDTH < left; v++)
          sum[v] += keys->scores[i] * act_load(value + v * SIMD_WIDTH, left - v * SIMD_WIDTH);
    }
    for (int v = 0; v < VECTORS_AT_ONCE && v * SIMD_WIDTH < left; v++)
      act_store((ACT_TYPE *)out + first + v * SIMD_WIDTH, sum[v] * inverse, left - v * SIMD_WIDTH);
  }
}

static void ACT(fill_attend)(struct plm_cpu_vector *vector)
{
  vector->attend = ACT(attend);
}
