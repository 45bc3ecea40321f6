/* Mean and 1 / sqrt(variance + eps) of a row, in one precision. Two passes: the variance is that of
 * the differences from the mean, so that a large mean costs no accuracy. */
static inline void ACT(moments)(const ACT_TYPE *x, int64_t D, float eps, float *mean,
                                float *inverse)
{
  vfloat sum = {0}, square = {0};
  for (int64_t i = 0; i < D; i += SIMD_WIDTH) sum += act_load(x + i, D - i);
  *mean = vsum(sum) / (float)D;
  for (int64_t i = 0; i < D; i += SIMD_WIDTH) {
    const vfloat difference = vkeep(act_load(x + i, D - i) - *mean, D - i);
    square += difference * difference;
  }
  *inverse = 1.0f / __builtin_sqrtf(vsum(square) / (float)D + eps);
}
