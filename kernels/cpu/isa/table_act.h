/* The token tables in one precision; table.c includes it once for each. */
static void ACT(token_mean_forward)(void *out, const float *table,
                                    const struct plm_token_groups *groups, int64_t begin,
                                    int64_t end)
{
  const int64_t D = groups->D;
  struct histogram histogram = {0};
  for (int64_t n = begin; n < end; n++) {
    ACT_TYPE *to = (ACT_TYPE *)out + n * D;
    count_group(&histogram, groups, n);
    for (int64_t i = 0; i < D; i += SIMD_WIDTH) {
      vfloat sum = {0};
      for (int j = 0; j < histogram.distinct; j++)
        sum += histogram.share[j] * vload_float(table + histogram.token[j] * D + i, D - i);
      act_store(to + i, sum, D - i);
    }
  }
}

static void ACT(token_mean_backward)(float *dtable, const void *dout,
                                     const struct plm_token_groups *groups, int64_t begin,
                                     int64_t end)
{
  const int64_t D = groups->D;
  struct histogram histogram = {0};
  for (int64_t n = 0; n < groups->N; n++) {
    const ACT_TYPE *from = (const ACT_TYPE *)dout + n * D;
    count_group(&histogram, groups, n);
    for (int j = 0; j < histogram.distinct; j++) {
      float *to = dtable + histogram.token[j] * D;
      const float share = histogram.share[j];
      for (int64_t i = begin; i < end; i += SIMD_WIDTH)
        vstore_float(to + i, vload_float(to + i, end - i) + share * act_load(from + i, end - i),
                     end - i);
    }
  }
}

static void ACT(fill_table)(struct plm_cpu_vector *vector)
{
  vector->token_mean_forward = ACT(token_mean_forward);
  vector->token_mean_backward = ACT(token_mean_backward);
}
