/* Opens an exchange, cuts the backward pass and the update into parts, and adds up the numbers. */
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/numbers/size.h"
#include "trainer/ranks/exchange_state.h"

enum {
  WORK_NUMBERS = 3,      /* hits, FLOPs and seconds */
  MESSAGE_ELEMENTS = 64, /* messages begin at multiples of 256 bytes */
};

/* Elements of a slot's packed and of its received. */
static size_t buffer_elements(const struct plm_buckets *buckets, uint32_t ranks)
{
  const size_t small = buckets->small.slice, large = buckets->largest_slice;
  return plm_size_round_up(ranks * (large > small ? large : small), MESSAGE_ELEMENTS);
}

/* Numbers that each rank contributes to plm_exchange_sums. */
static size_t number_count(const struct plm_exchange *exchange)
{
  return exchange->local_shares + exchange->parameters + WORK_NUMBERS;
}

/* Ends a part of the backward pass wherever buckets become final. The last part ends the pass. */
static void gradient_exchange_cut(struct plm_exchange *exchange)
{
  const size_t count = exchange->buckets.count;
  uint32_t end = plm_model_whole_pass(exchange->model).end;
  exchange->parts = plm_alloc_zeroed(count + 1, sizeof *exchange->parts);
  for (size_t b = 0; b < count; b++) {
    const uint32_t first = exchange->buckets.buckets[b].final_at;
    if (first < end) {
      exchange->parts[exchange->part_count++].blocks = (struct plm_backward_part){first, end};
      end = first;
    }
    if (exchange->part_count > 0) exchange->parts[exchange->part_count - 1].buckets = b + 1;
  }
  if (exchange->part_count == 0 || end > 0)
    exchange->parts[exchange->part_count++] =
        (struct exchange_part){.blocks = {0, end}, .buckets = count};
}

static plm_status exchange_allocate(struct plm_exchange *exchange, struct plm_error *error)
{
  struct plm_ops *ops = exchange->ops;
  const uint32_t ranks = exchange->ranks->ranks;
  const size_t elements = buffer_elements(&exchange->buckets, ranks);
  const size_t numbers = number_count(exchange);
  exchange->mine = plm_alloc_zeroed(numbers, sizeof *exchange->mine);
  exchange->all = plm_alloc_zeroed(numbers * ranks, sizeof *exchange->all);
  exchange->gradients = plm_alloc_zeroed(exchange->parameters, sizeof *exchange->gradients);
  PLM_TRY(ops->allocate(ops, 2 * EXCHANGE_SLOTS * elements * sizeof(float),
                        (void **)&exchange->messages, error));
  /* the gaps are sent too */
  ops->zero(ops, exchange->messages, 2 * EXCHANGE_SLOTS * elements * sizeof(float));
  for (size_t i = 0; i < EXCHANGE_SLOTS; i++) {
    exchange->slots[i].packed = exchange->messages + 2 * i * elements;
    exchange->slots[i].received = exchange->slots[i].packed + elements;
  }
  return ops->allocate(ops, exchange->parameters * sizeof(double), (void **)&exchange->squares,
                       error);
}

/* The gradients that this rank holds; the others have no elements, so that their norm is 0. */
static void list_gradients(struct plm_exchange *exchange)
{
  const struct plm_held held = {exchange->owners, exchange->ranks->rank};
  const float *arena = plm_model_gradient_arena(exchange->model);
  for (size_t i = 0; i < exchange->parameters; i++)
    exchange->gradients[i] =
        (struct plm_array){.x = arena + exchange->table[i].offset,
                           .n = plm_is_held(&held, i) ? exchange->table[i].count : 0};
}

plm_status plm_exchange_open(struct plm_ranks *ranks, struct plm_model *model,
                             const uint32_t *owners, uint32_t local_shares,
                             enum plm_compress compress, struct plm_profile *profile,
                             struct plm_exchange **out, struct plm_error *error)
{
  const struct plm_rank_place *place = &ranks->collective->place;
  struct plm_exchange *exchange = plm_alloc(sizeof *exchange);
  *exchange = (struct plm_exchange){.ranks = ranks,
                                    .ops = plm_model_ops(model),
                                    .model = model,
                                    .owners = owners,
                                    .local_shares = local_shares,
                                    .rounds = compress == PLM_COMPRESS_BF16,
                                    .profile = profile,
                                    .group_size = place->group_size,
                                    .groups = place->ranks / place->group_size};
  exchange->table = plm_model_table(model, &exchange->parameters);
  plm_status status = PLM_OK;
  if (exchange->group_size > PLM_SUM_PARTS_MAX || exchange->groups > PLM_SUM_PARTS_MAX)
    status = plm_error_set(error, PLM_LIMIT,
                           "%u groups of %u ranks are too many: %d of either are possible",
                           exchange->groups, exchange->group_size, PLM_SUM_PARTS_MAX);
  const struct plm_bucket_request request = {.table = exchange->table,
                                             .count = exchange->parameters,
                                             .owners = owners,
                                             .ranks = ranks->ranks,
                                             .act_bytes = exchange->ops->act_bytes};
  plm_buckets_init(&exchange->buckets, &request);
  gradient_exchange_cut(exchange);
  if (status == PLM_OK) status = exchange_allocate(exchange, error);
  if (status != PLM_OK) {
    plm_exchange_close(exchange);
    return status;
  }
  list_gradients(exchange);
  *out = exchange;
  return PLM_OK;
}

void plm_exchange_close(struct plm_exchange *exchange)
{
  if (exchange == NULL) return;
  struct plm_ops *ops = exchange->ops;
  if (exchange->messages != NULL) ops->release(ops, exchange->messages);
  if (exchange->squares != NULL) ops->release(ops, exchange->squares);
  plm_buckets_deinit(&exchange->buckets);
  free(exchange->parts);
  free(exchange->gradients);
  free(exchange->mine);
  free(exchange->all);
  free(exchange);
}

/* ---- gradients ------------------------------------------------------------------------------- */

uint32_t plm_exchange_backward_parts(const struct plm_exchange *exchange)
{
  return exchange->part_count;
}

struct plm_backward_part plm_exchange_backward_part(const struct plm_exchange *exchange,
                                                    uint32_t part)
{
  return exchange->parts[part].blocks;
}

plm_status plm_exchange_gradients(struct plm_exchange *exchange, uint32_t part,
                                  struct plm_error *error)
{
  while (exchange->started < exchange->parts[part].buckets)
    PLM_TRY(exchange_next_gradients(exchange, error));
  return PLM_OK;
}

plm_status plm_exchange_finish_gradients(struct plm_exchange *exchange, struct plm_error *error)
{
  PLM_TRY(exchange_end_gradients(exchange, error));
  return exchange_small_gradients(exchange, error);
}

void plm_exchange_mark(struct plm_exchange *exchange, enum plm_compute_mark mark)
{
  exchange->ranks->transport->mark(exchange->ranks->transport, mark);
}

double plm_exchange_computed(struct plm_exchange *exchange)
{
  return exchange->ranks->transport->computed(exchange->ranks->transport);
}

/* ---- weights --------------------------------------------------------------------------------- */

uint32_t plm_exchange_update_parts(const struct plm_exchange *exchange)
{
  return exchange->buckets.count == 0 ? 1 : (uint32_t)exchange->buckets.count;
}

/* The end of a part: behind its bucket's last parameter. The last part has what remains. */
static size_t update_end(const struct plm_exchange *exchange, uint32_t part)
{
  if (part + 1 == plm_exchange_update_parts(exchange)) return exchange->parameters;
  const struct plm_buckets *buckets = &exchange->buckets;
  const struct plm_bucket *bucket = &buckets->buckets[buckets->count - 1 - part];
  return buckets->entries[bucket->first].parameter + 1;
}

struct plm_parameter_range plm_exchange_update_part(const struct plm_exchange *exchange,
                                                    uint32_t part)
{
  return (struct plm_parameter_range){part == 0 ? 0 : update_end(exchange, part - 1),
                                      update_end(exchange, part)};
}

plm_status plm_exchange_weights(struct plm_exchange *exchange, struct plm_error *error)
{
  return exchange->buckets.count == 0 ? PLM_OK : exchange_next_weights(exchange, error);
}

plm_status plm_exchange_finish_weights(struct plm_exchange *exchange, struct plm_error *error)
{
  return exchange_end_weights(exchange, error);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Adds in the order of the shares; ranks have consecutive ones. */
static double sum_losses(const struct plm_exchange *exchange)
{
  double total = 0;
  for (uint32_t r = 0; r < exchange->ranks->ranks; r++)
    for (uint32_t i = 0; i < exchange->local_shares; i++)
      total += exchange->all[r * number_count(exchange) + i];
  return total;
}

static double sum_squares(const struct plm_exchange *exchange)
{
  double total = 0;
  for (size_t i = 0; i < exchange->parameters; i++) {
    const uint32_t from = plm_speaker(exchange->owners[i]);
    total += exchange->all[from * number_count(exchange) + exchange->local_shares + i];
  }
  return total;
}

/* These are whole numbers, so their order does not matter. */
static double sum_hits(const struct plm_exchange *exchange)
{
  double total = 0;
  for (uint32_t r = 0; r < exchange->ranks->ranks; r++)
    total += exchange->all[(r + 1) * number_count(exchange) - WORK_NUMBERS];
  return total;
}

static void add_work(const struct plm_exchange *exchange, struct plm_exchange_work *work)
{
  *work = (struct plm_exchange_work){0};
  for (uint32_t r = 0; r < exchange->ranks->ranks; r++) {
    const double *of_rank = &exchange->all[(r + 1) * number_count(exchange) - WORK_NUMBERS];
    work->flops += of_rank[1];
    if (of_rank[2] <= work->compute_s) continue;
    work->compute_s = of_rank[2];
    work->slowest_rank = r;
  }
}

plm_status plm_exchange_sums(struct plm_exchange *exchange, const double *losses,
                             struct plm_update_sums *sums, struct plm_exchange_work *work,
                             struct plm_error *error)
{
  struct plm_ops *ops = exchange->ops;
  const size_t numbers = number_count(exchange), shares = exchange->local_shares;
  ops->sum_squares(ops, exchange->squares, exchange->gradients, exchange->parameters);
  ops->download(ops, exchange->mine, losses, shares * sizeof(double));
  ops->download(ops, exchange->mine + shares, exchange->squares,
                exchange->parameters * sizeof(double));
  ops->download(ops, exchange->mine + numbers - WORK_NUMBERS, &sums->hits, sizeof(double));
  PLM_TRY(ops->synchronize(ops, error));
  exchange->mine[numbers - 2] = work->flops;
  exchange->mine[numbers - 1] = work->compute_s;
  const uint64_t begun_ns = plm_profile_clock(exchange->profile);
  PLM_TRY(plm_collective_gather(exchange->ranks->collective, PLM_LANE_STEP, exchange->all,
                                exchange->mine, numbers * sizeof(double), error));
  plm_profile_add(exchange->profile, PLM_TRACK_STEP, PLM_SPAN_EXCHANGE, "losses and norms", -1,
                  begun_ns);
  const struct plm_update_sums total = {
      .loss = sum_losses(exchange), .hits = sum_hits(exchange), .squares = sum_squares(exchange)};
  add_work(exchange, work);
  ops->upload(ops, sums, &total, sizeof total);
  return PLM_OK;
}

void plm_exchange_count(const struct plm_bucket_request *request, uint32_t group_size,
                        enum plm_compress compress, struct plm_exchange_bytes *bytes)
{
  const uint32_t ranks = request->ranks;
  struct plm_buckets buckets;
  *bytes = (struct plm_exchange_bytes){0};
  if (ranks == 1) return;
  plm_buckets_init(&buckets, request);
  const uint64_t groups = ranks / group_size, small = buckets.small.slice;
  uint64_t slices = 0, used = 0;
  for (size_t b = 0; b < buckets.count; b++) {
    slices += buckets.buckets[b].slice;
    used += buckets.buckets[b].used_slice;
  }
  bytes->device = 2 * EXCHANGE_SLOTS * buffer_elements(&buckets, ranks) * sizeof(float);
  /* gradients and weights of the owned parameters, and the gradients of the small ones */
  const uint64_t rounded = compress == PLM_COMPRESS_BF16 ? sizeof(bf16) : sizeof(float);
  const uint64_t in_group = rounded, on_rail = group_size == 1 ? rounded : sizeof(float);
  bytes->sent_in_group =
      (group_size - 1) * (groups * (slices * in_group + used) + small * in_group);
  bytes->sent_on_rail = (groups - 1) * (slices * on_rail + used + small * on_rail);
  plm_buckets_deinit(&buckets);
}
