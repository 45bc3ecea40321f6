/* Collects the losses of a step's chunks. */
#include "trainer/step/chunk_losses.h"

#include <stdlib.h>

struct plm_chunk_losses {
  struct plm_ops *ops;
  struct plm_ranks *ranks;
  uint32_t step_chunks;
  double *micro, *step;              /* device (micro_chunks), (step_chunks) */
  double *host;                      /* (step_chunks) */
  struct plm_chunk_loss *mine, *all; /* (step_chunks) of this rank and of each; of one, the same */
};

/* Host bytes for each chunk: of `host` and `mine`. */
enum { OWN_BYTES = sizeof(double) + sizeof(struct plm_chunk_loss) };

void plm_chunk_losses_memory(uint32_t ranks, uint32_t step_chunks, uint32_t micro_chunks,
                             uint64_t *device, uint64_t *host)
{
  *device = ((uint64_t)micro_chunks + step_chunks) * sizeof(double);
  *host = (uint64_t)step_chunks * OWN_BYTES;
  if (ranks > 1) *host += (uint64_t)ranks * step_chunks * sizeof(struct plm_chunk_loss);
}

static plm_status chunk_losses_allocate(struct plm_chunk_losses *losses, uint32_t micro_chunks,
                                        struct plm_error *error)
{
  struct plm_ops *ops = losses->ops;
  const size_t chunks = losses->step_chunks;
  losses->host = calloc(chunks, sizeof *losses->host);
  losses->mine = calloc(chunks, sizeof *losses->mine);
  losses->all = losses->ranks->ranks == 1
                    ? losses->mine
                    : calloc(chunks * losses->ranks->ranks, sizeof *losses->all);
  if (losses->host == NULL || losses->mine == NULL || losses->all == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the losses of %zu chunks", chunks);
  PLM_TRY(ops->allocate(ops, micro_chunks * sizeof *losses->micro, (void **)&losses->micro, error));
  return ops->allocate(ops, chunks * sizeof *losses->step, (void **)&losses->step, error);
}

plm_status plm_chunk_losses_open(struct plm_ops *ops, struct plm_ranks *ranks, uint32_t step_chunks,
                                 uint32_t micro_chunks, struct plm_chunk_losses **out,
                                 struct plm_error *error)
{
  struct plm_chunk_losses *losses = calloc(1, sizeof *losses);
  if (losses == NULL) return plm_error_set(error, PLM_NO_MEMORY, "no memory for losses");
  *losses = (struct plm_chunk_losses){.ops = ops, .ranks = ranks, .step_chunks = step_chunks};
  const plm_status status = chunk_losses_allocate(losses, micro_chunks, error);
  if (status != PLM_OK) {
    plm_chunk_losses_close(losses);
    return status;
  }
  *out = losses;
  return PLM_OK;
}

void plm_chunk_losses_close(struct plm_chunk_losses *losses)
{
  if (losses == NULL) return;
  if (losses->micro != NULL) losses->ops->release(losses->ops, losses->micro);
  if (losses->step != NULL) losses->ops->release(losses->ops, losses->step);
  if (losses->all != losses->mine) free(losses->all);
  free(losses->mine);
  free(losses->host);
  free(losses);
}

void plm_chunk_losses_begin(struct plm_chunk_losses *losses)
{
  losses->ops->zero(losses->ops, losses->step, losses->step_chunks * sizeof *losses->step);
}

double *plm_chunk_losses_micro(struct plm_chunk_losses *losses)
{
  return losses->micro;
}

void plm_chunk_losses_keep(struct plm_chunk_losses *losses, const struct plm_micro_input *micro)
{
  PLM_ASSERT(micro->first + micro->chunks <= losses->step_chunks);
  losses->ops->copy(losses->ops, losses->step + micro->first, losses->micro,
                    micro->chunks * sizeof *losses->step);
}

plm_status plm_chunk_losses_finish(struct plm_chunk_losses *losses,
                                   const struct plm_objective_totals *chunks,
                                   const struct plm_chunk_loss **all, struct plm_error *error)
{
  struct plm_ops *ops = losses->ops;
  const uint32_t count = losses->step_chunks;
  ops->download(ops, losses->host, losses->step, count * sizeof *losses->host);
  PLM_TRY(ops->synchronize(ops, error));
  for (uint32_t c = 0; c < count; c++)
    losses->mine[c] = (struct plm_chunk_loss){.loss = losses->host[c], .totals = chunks[c]};
  *all = losses->all;
  if (losses->all == losses->mine) return PLM_OK;
  return plm_collective_gather(losses->ranks->collective, PLM_LANE_STEP, losses->all, losses->mine,
                               count * sizeof *losses->mine, error);
}
