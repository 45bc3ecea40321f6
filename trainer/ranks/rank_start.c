/* Texts that rank 0 sends, and the comparison of the ranks. */
#include "trainer/ranks/rank_start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/process/cgroup.h"

plm_status plm_rank_share_text(struct plm_ranks *ranks, char **text, struct plm_error *error)
{
  uint64_t size = plm_ranks_first(ranks) ? strlen(*text) + 1 : 0;
  PLM_TRY(plm_collective_broadcast(ranks->collective, PLM_LANE_STEP, &size, sizeof size, error));
  if (!plm_ranks_first(ranks)) *text = plm_alloc_zeroed(1, size);
  return plm_collective_broadcast(ranks->collective, PLM_LANE_STEP, *text, size, error);
}

static plm_status check_count(uint32_t wanted, uint32_t processes, struct plm_error *error)
{
  if (wanted == processes) return PLM_OK;
  plm_error_set(error, PLM_CONFIG, "trainer.ranks is %u, but %u process%s started", wanted,
                processes, processes == 1 ? " was" : "es were");
  return plm_error_hint(error,
                        "`plm-pipeline up` starts the right number; by hand: mpirun -np %u "
                        "plm-trainer ...",
                        wanted);
}

static plm_status send_config(struct plm_ranks *ranks, struct plm_config *config,
                              struct plm_error *error)
{
  char *yaml = NULL;
  if (ranks->ranks == 1) return PLM_OK;
  if (plm_ranks_first(ranks)) yaml = plm_config_print(config);
  plm_status status = plm_rank_share_text(ranks, &yaml, error);
  if (status == PLM_OK && !plm_ranks_first(ranks))
    status = plm_config_load_text(yaml, strlen(yaml), config, error);
  free(yaml);
  return status;
}

plm_status plm_rank_share_config(struct plm_ranks *ranks, struct plm_config *config,
                                 struct plm_error *error)
{
  PLM_TRY(send_config(ranks, config, error));
  ranks->collective->set_timeout(ranks->collective, config->trainer.rank_timeout_s);
  const plm_status status = check_count(config->trainer.ranks, ranks->ranks, error);
  if (status != PLM_OK) plm_ranks_agree(ranks);
  return status;
}

static plm_status read_state(const char *text, struct plm_trainer_state *state,
                             struct plm_error *error)
{
  char *configuration = NULL;
  const plm_status status =
      plm_trainer_state_parse(text, strlen(text), state, &configuration, error);
  free(configuration);
  return status;
}

plm_status plm_rank_share_state(struct plm_ranks *ranks, const struct plm_config *config,
                                struct plm_rank_found *found, struct plm_trainer_state *state,
                                struct plm_error *error)
{
  static const struct plm_hash no_id = {0}; /* only rank 0 needs it */
  char *text = NULL;
  if (ranks->ranks == 1) return PLM_OK;
  PLM_TRY(plm_collective_broadcast(ranks->collective, PLM_LANE_STEP, found, sizeof *found, error));
  if (found->complete || !found->resumed) return PLM_OK;
  if (plm_ranks_first(ranks)) text = plm_trainer_state_print(state, config, no_id);
  plm_status status = plm_rank_share_text(ranks, &text, error);
  if (status == PLM_OK && !plm_ranks_first(ranks)) status = read_state(text, state, error);
  free(text);
  return status;
}

void plm_rank_divide_threads(const struct plm_ranks *ranks, struct plm_ops_request *request)
{
  if (ranks->single || request->threads != 0) return;
  const uint32_t part = plm_usable_cores() / ranks->collective->place.on_this_host;
  request->threads = part > 0 ? part : 1;
}

/* ---- comparing the ranks --------------------------------------------------------------------- */

enum { TRAITS = 11, KERNELS = 3, TRAIT_SIZE = 128 };
struct traits {
  char host[PLM_HOST_NAME_SIZE];
  char of[TRAITS][TRAIT_SIZE];
};
static const char *const trait_names[TRAITS] = {
    "build",        "device",          "precision",
    "CUDA kernels", "instruction set", "level of instructions",
    "threads",      "product library", "bf16 products",
    "processor",    "driver"};

static struct traits traits_of(const struct plm_ranks *ranks, const struct plm_resolved *resolved)
{
  struct traits traits = {0};
  char threads[16];
  const char *driver = ranks->ops->driver != NULL ? ranks->ops->driver : "";
  snprintf(threads, sizeof threads, "%u", resolved->threads);
  const char *const texts[TRAITS] = {resolved->build,
                                     resolved->device,
                                     resolved->precision,
                                     resolved->kernels,
                                     resolved->isa,
                                     resolved->level,
                                     threads,
                                     resolved->products,
                                     resolved->bf16_products,
                                     resolved->processor,
                                     driver};
  snprintf(traits.host, sizeof traits.host, "%s", ranks->collective->place.host);
  for (int i = 0; i < TRAITS; i++) snprintf(traits.of[i], TRAIT_SIZE, "%s", texts[i]);
  return traits;
}

static plm_status rank_start_compare(const struct traits *all, uint32_t ranks,
                                     struct plm_error *error)
{
  for (uint32_t r = 1; r < ranks; r++)
    for (int i = 0; i < TRAITS; i++) {
      if (strncmp(all[0].of[i], all[r].of[i], TRAIT_SIZE) == 0) continue;
      plm_error_set(error, PLM_CONFIG,
                    "rank 0 on %.63s has %s %.100s, but rank %u on %.63s has %.100s", all[0].host,
                    trait_names[i], all[0].of[i], r, all[r].host, all[r].of[i]);
      return plm_error_hint(error, i == KERNELS
                                       ? "set PLM_CUDA_ATTENTION=mma and PLM_CUDA_RELU2=library "
                                         "for all ranks; the log says which check failed"
                                       : "all ranks need the same build, libraries and kind of "
                                         "machine");
    }
  return PLM_OK;
}

plm_status plm_rank_compare(struct plm_ranks *ranks, const struct plm_resolved *mine,
                            struct plm_error *error)
{
  const struct traits traits = traits_of(ranks, mine);
  struct traits *all = plm_alloc_zeroed(ranks->ranks, sizeof *all);
  plm_status status =
      plm_collective_gather(ranks->collective, PLM_LANE_STEP, all, &traits, sizeof traits, error);
  if (status == PLM_OK) status = rank_start_compare(all, ranks->ranks, error);
  if (status == PLM_CONFIG) plm_ranks_agree(ranks);
  free(all);
  return status;
}
