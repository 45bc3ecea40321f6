/* Adds shares as they come, as a binary counter carries: held[l] is the sum of 2^l shares and waits
 * for its right neighbour. */
#include "trainer/optimizer/share_sums.h"

#include <stdlib.h>

#include "common/config/config.h"

_Static_assert(PLM_MAX_SHARES <= 1 << PLM_SHARE_LEVELS_MAX,
               "struct plm_share_sums has a sum per level");

struct plm_share_sums {
  struct plm_ops *ops;
  uint32_t shares;
  float *gradient;
  size_t n;
  double *loss_sum;
  double *losses; /* device: one for each share */
  float *held[PLM_SHARE_LEVELS_MAX];
};

uint32_t plm_share_levels(uint32_t shares)
{
  uint32_t levels = 0;
  while ((uint32_t)1 << levels < shares) levels++;
  return levels;
}

static plm_status share_sums_allocate(struct plm_share_sums *sums, struct plm_error *error)
{
  struct plm_ops *ops = sums->ops;
  PLM_TRY(ops->allocate(ops, sums->shares * sizeof *sums->losses, (void **)&sums->losses, error));
  for (uint32_t l = 0; l < plm_share_levels(sums->shares); l++)
    PLM_TRY(ops->allocate(ops, sums->n * sizeof **sums->held, (void **)&sums->held[l], error));
  return PLM_OK;
}

plm_status plm_share_sums_open(struct plm_ops *ops, uint32_t shares, float *gradient, size_t n,
                               double *loss_sum, struct plm_share_sums **out,
                               struct plm_error *error)
{
  PLM_ASSERT(shares > 0 && shares <= PLM_MAX_SHARES);
  struct plm_share_sums *sums = calloc(1, sizeof *sums);
  if (sums == NULL) return plm_error_set(error, PLM_NO_MEMORY, "no memory for the sums of shares");
  *sums = (struct plm_share_sums){
      .ops = ops, .shares = shares, .gradient = gradient, .n = n, .loss_sum = loss_sum};
  const plm_status status = share_sums_allocate(sums, error);
  if (status != PLM_OK) {
    plm_share_sums_close(sums);
    return status;
  }
  *out = sums;
  return PLM_OK;
}

void plm_share_sums_close(struct plm_share_sums *sums)
{
  if (sums == NULL) return;
  for (int l = 0; l < PLM_SHARE_LEVELS_MAX; l++)
    if (sums->held[l] != NULL) sums->ops->release(sums->ops, sums->held[l]);
  if (sums->losses != NULL) sums->ops->release(sums->ops, sums->losses);
  free(sums);
}

/* Adds a held sum to the elements [first, first + count). */
static void add_held(struct plm_share_sums *sums, uint32_t level, size_t first, size_t count)
{
  float *to = sums->gradient + first;
  const float *parts[2] = {sums->held[level] + first, to};
  sums->ops->sum_parts(sums->ops, to, parts, 2, count);
}

void plm_share_sums_add(struct plm_share_sums *sums, uint32_t share)
{
  struct plm_ops *ops = sums->ops;
  uint32_t level = 0;
  PLM_ASSERT(share + 1 < sums->shares);
  for (; (share >> level & 1) != 0; level++) add_held(sums, level, 0, sums->n);
  ops->copy(ops, &sums->losses[share], sums->loss_sum, sizeof *sums->losses);
  ops->copy(ops, sums->held[level], sums->gradient, sums->n * sizeof *sums->gradient);
  ops->zero(ops, sums->gradient, sums->n * sizeof *sums->gradient);
  ops->zero(ops, sums->loss_sum, sizeof *sums->loss_sum);
}

void plm_share_sums_finish(struct plm_share_sums *sums, size_t first, size_t count)
{
  const uint32_t last = sums->shares - 1;
  uint32_t level = 0;
  if (sums->shares == 1) return;
  for (; (last >> level & 1) != 0; level++) add_held(sums, level, first, count);
  /* what still waits for a neighbour that does not exist */
  for (level++; sums->shares >> level != 0; level++)
    if ((sums->shares >> level & 1) != 0) add_held(sums, level, first, count);
}

void plm_share_sums_finish_loss(struct plm_share_sums *sums)
{
  struct plm_ops *ops = sums->ops;
  if (sums->shares == 1) return;
  ops->copy(ops, &sums->losses[sums->shares - 1], sums->loss_sum, sizeof *sums->losses);
  ops->sum_in_order(ops, sums->loss_sum, sums->losses, sums->shares);
}

const double *plm_share_sums_losses(const struct plm_share_sums *sums)
{
  return sums->shares == 1 ? sums->loss_sum : sums->losses;
}
