/* Opens the backend and decides what the configuration leaves open. */
#include "trainer/open/open_device.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "common/ops/device.h"
#include "common/ops/open.h"
#include "trainer/checkpoint/resume.h"
#include "trainer/input/step_chunks.h"
#include "trainer/ranks/rank_cores.h"
#include "trainer/ranks/rank_start.h"
#include "trainer/trainer_options.h"
#include "trainer/tuning/product_rate.h"
#include "trainer/tuning/tuning.h"

/* Opens the backend of the request. If that is not supported here, falls back to another
 * instruction set and way of bf16 products. */
static plm_status open_ops(struct plm_ops_request *request, struct plm_ops **ops,
                           struct plm_error *error)
{
  const plm_status status = plm_ops_open(request, ops, error);
  const bool same = request->isa == NULL && request->bf16 == PLM_BF16_AUTO;
  if (status != PLM_UNSUPPORTED || same) return status;
  request->isa = NULL;
  request->bf16 = PLM_BF16_AUTO;
  return plm_ops_open(request, ops, error);
}

/* micro_chunks: of a micro-batch, for this number of shares */
static struct plm_resolved resolve_today(const struct plm_resume_options *options, uint32_t shares,
                                         uint32_t micro_chunks, const struct plm_ops *ops)
{
  struct plm_resolved today = {.threads = ops->threads,
                               .ranks = options->ranks,
                               .step_chunks = options->step_chunks,
                               .micro_chunks = micro_chunks,
                               .shares = shares,
                               .version = PLM_VERSION,
                               .build = PLM_BUILD_DIGEST};
  snprintf(today.device, sizeof today.device, "%s", ops->name);
  snprintf(today.isa, sizeof today.isa, "%s", ops->isa);
  if (plm_device_is_cpu(ops->name))
    snprintf(today.level, sizeof today.level, "%s", plm_ops_cpu_level());
  snprintf(today.precision, sizeof today.precision, "%s",
           plm_precision_name(ops->act_bytes == 2 ? PLM_PRECISION_BF16 : PLM_PRECISION_FP32));
  if (ops->products != NULL) snprintf(today.products, sizeof today.products, "%s", ops->products);
  if (ops->bf16_products != NULL)
    snprintf(today.bf16_products, sizeof today.bf16_products, "%s", ops->bf16_products);
  if (ops->kernels != NULL) snprintf(today.kernels, sizeof today.kernels, "%s", ops->kernels);
  if (ops->fallback != NULL) snprintf(today.fallback, sizeof today.fallback, "%s", ops->fallback);
  if (ops->processor != NULL)
    snprintf(today.processor, sizeof today.processor, "%s", ops->processor);
  else
    plm_processor_name(today.processor);
  return today;
}

static void stay_near_device(const struct plm_ops *ops)
{
  cpu_set_t near;
  if (ops->location == NULL || !plm_cores_near(PLM_PCI_DEVICES, ops->location, &near)) return;
  const int count = plm_cores_stay(&near);
  if (count > 0) plm_debug("runs on the %d processors near its GPU", count);
}

/* Makes sure that the ranks are alike, and connects their devices. */
static plm_status join_ranks(struct plm_trainer *trainer, struct plm_error *error)
{
  struct plm_ranks *ranks = trainer->ranks;
  const struct plm_resolved *resolved = &trainer->state.resolved;
  ranks->ops = trainer->ops;
  if (ranks->single) return PLM_OK;
  stay_near_device(trainer->ops);
  PLM_TRY(plm_rank_compare(ranks, resolved, error));
  const plm_status status =
      plm_transport_open(ranks->collective, trainer->ops, &ranks->transport, error);
  if (status == PLM_CONFIG) plm_ranks_agree(ranks);
  PLM_TRY(status);
  if (trainer->ops->open_nccl != NULL)
    PLM_TRY(trainer->ops->allocate_host(trainer->ops, PLM_RANK_ROOM, &ranks->room, error));
  plm_info("%u ranks, %u of them on this host; %u shares of a step", ranks->ranks,
           ranks->collective->place.on_this_host, resolved->shares);
  return PLM_OK;
}

static void leave_ranks(struct plm_ranks *ranks)
{
  if (ranks->room != NULL) ranks->ops->release_host(ranks->ops, ranks->room);
  if (ranks->transport != NULL) ranks->transport->close(ranks->transport);
  ranks->room = NULL;
  ranks->transport = NULL;
  ranks->ops = NULL; /* the caller closes them */
}

/* Says what computes. The table of bf16 products is only quoted if the run follows it. */
static void say_device(const struct plm_resolved *today)
{
  const char *by = today->bf16_products;
  const bool by_fp32 = strcmp(by, plm_bf16_products_names[PLM_BF16_BY_FP32]) == 0;
  plm_info("training on %s (%s), %s%s%s%s", today->device, today->isa, today->precision,
           by_fp32 ? " by fp32 products" : "", today->kernels[0] != '\0' ? "; " : "",
           today->kernels);
  if (!plm_device_is_cpu(today->device)) return;
  const enum plm_bf16_products usual = plm_ops_cpu_bf16_products();
  if (by[0] == '\0' || strcmp(by, plm_bf16_products_names[usual]) == 0)
    plm_info("%s", plm_ops_cpu_bf16_gain());
  else
    plm_info(
        "the run keeps its way of bf16 products, %s, although a new run in bf16 would take %s here",
        by_fp32 ? "fp32 products" : "bf16 instructions",
        by_fp32 ? "bf16 instructions" : "fp32 products");
}

plm_status plm_open_device(struct plm_trainer *trainer, bool resumed, struct plm_error *error)
{
  const struct plm_resume_options options = plm_resume_options_of(trainer->config);
  struct plm_trainer_state *state = &trainer->state;
  struct plm_ops_request request = {
      .device = options.device, .precision = options.precision, .threads = options.threads};
  if (resumed) plm_resume_request(&state->resolved, &options, &request);
  plm_rank_divide_threads(trainer->ranks, &request);
  request.ordinal = (int)trainer->ranks->collective->place.local;
  request.of_rank = !trainer->ranks->single;
  PLM_TRY(open_ops(&request, &trainer->ops, error));
  const uint32_t shares =
      resumed ? plm_resume_shares(&state->resolved, &options) : plm_resume_new_shares(&options);
  const uint32_t micro_chunks = plm_trainer_micro_chunks(trainer->config, shares);
  struct plm_resolved today = resolve_today(&options, shares, micro_chunks, trainer->ops);
  const bool same_device = resumed && strcmp(state->resolved.device, today.device) == 0;
  if (same_device) plm_resume_on_cpu(&state->resolved, &options, &today);
  if (resumed) plm_resume_compare(state, &options, &today);
  const bool same_rate = same_device && state->resolved.threads == today.threads &&
                         strcmp(state->resolved.precision, today.precision) == 0 &&
                         strcmp(state->resolved.bf16_products, today.bf16_products) == 0;
  today.product_flops =
      same_rate ? state->resolved.product_flops : plm_product_rate(trainer->ops, plm_clock_ns);
  state->resolved = today;
  PLM_TRY(join_ranks(trainer, error));
  say_device(&today);
  return plm_tuning_begin(state, trainer->ops, trainer->ranks, &trainer->tuning, error);
}

void plm_close_device(struct plm_trainer *trainer)
{
  leave_ranks(trainer->ranks);
  if (trainer->ops != NULL) trainer->ops->close(trainer->ops);
}
