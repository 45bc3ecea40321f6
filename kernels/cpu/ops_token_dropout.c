/* The factors of ESM-2's token dropout. Tiles are chunks. */
#include "kernels/cpu/cpu_ops.h"

struct job {
  float *factors;
  const struct plm_token_dropout *of;
};

static float factor_of(const struct plm_token_dropout *of, const int32_t *tokens, int64_t begin,
                       int64_t end)
{
  int64_t masks = 0;
  for (int64_t i = begin; i < end; i++) masks += tokens[i] == of->mask_token;
  const int64_t length = end - begin;
  /* if all are masks, no row uses the factor */
  return masks < length ? PLM_TOKEN_DROPOUT_KEPT / ((float)(length - masks) / (float)length) : 0;
}

static void chunk_tile(void *context, int64_t chunk, uint32_t thread)
{
  const struct job *job = context;
  const struct plm_token_dropout *of = job->of;
  (void)thread;
  const int64_t first = chunk * of->L;
  const int32_t *tokens = of->tokens + first, *begin = of->begin + first, *end = of->end + first;
  float factor = 0;
  for (int64_t i = 0; i < of->L; i++) {
    /* the rows of a document follow each other, and no other document ends where it does */
    if (i == 0 || end[i] != end[i - 1]) factor = factor_of(of, tokens, begin[i], end[i]);
    job->factors[first + i] = tokens[i] == of->mask_token ? 0 : factor;
  }
}

static void token_dropout(struct plm_ops *ops, float *factors, const struct plm_token_dropout *of)
{
  struct job job = {factors, of};
  plm_pool_tiles(plm_cpu_of(ops)->pool, of->B, chunk_tile, &job);
}

void plm_cpu_token_dropout_register(struct plm_cpu *cpu)
{
  cpu->ops.token_dropout = token_dropout;
}
