/* Packs, exchanges, adds up, and unpacks.
 *
 * In a message to a group, pieces are ordered by the owner's place in its group, and those of one
 * place by the number of the owner's group. What a place receives is therefore, once added up, the
 * message to its rail. */
#include "trainer/ranks/gradient_exchange.h"

#include <stdlib.h>

#include "trainer/ranks/buckets.h"

enum { WORK_NUMBERS = 2 }; /* FLOPs and seconds */

struct plm_exchange {
  struct plm_ranks *ranks;
  struct plm_ops *ops;
  struct plm_model *model;
  const struct plm_parameter *table;
  size_t parameters;
  const uint32_t *owners;
  uint32_t local_shares;
  uint32_t group_size, groups; /* ranks of a group; number of groups */
  struct plm_buckets buckets;
  float *packed, *received; /* device: pieces of all owners */
  /* Numbers of this rank and of all: losses of the shares, squared norms of the parameters, flops.
   */
  double *mine, *all; /* host */
  double *squares;    /* device (parameters) */
  struct plm_array *gradients;
};

/* Where a rank's piece is in a message to a group, in pieces. */
static size_t slot_of(const struct plm_exchange *exchange, uint32_t rank)
{
  return (size_t)(rank % exchange->group_size) * exchange->groups + rank / exchange->group_size;
}

/* Elements of packed and of received. */
static size_t buffer_elements(const struct plm_buckets *buckets, uint32_t ranks)
{
  const size_t small = buckets->small.piece, large = buckets->largest_piece;
  return ranks * (large > small ? large : small);
}

/* Numbers that each rank contributes to plm_exchange_sums. */
static size_t number_count(const struct plm_exchange *exchange)
{
  return exchange->local_shares + exchange->parameters + WORK_NUMBERS;
}

static plm_status take(struct plm_exchange *exchange, struct plm_error *error)
{
  struct plm_ops *ops = exchange->ops;
  const uint32_t ranks = exchange->ranks->ranks;
  const size_t elements = buffer_elements(&exchange->buckets, ranks);
  const size_t numbers = number_count(exchange);
  exchange->mine = calloc(numbers, sizeof *exchange->mine);
  exchange->all = calloc(numbers * ranks, sizeof *exchange->all);
  exchange->gradients = calloc(exchange->parameters, sizeof *exchange->gradients);
  if (exchange->mine == NULL || exchange->all == NULL || exchange->gradients == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the exchange between ranks");
  PLM_TRY(ops->allocate(ops, elements * sizeof(float), (void **)&exchange->packed, error));
  PLM_TRY(ops->allocate(ops, elements * sizeof(float), (void **)&exchange->received, error));
  ops->zero(ops, exchange->packed, elements * sizeof(float)); /* the gaps are sent too */
  return ops->allocate(ops, exchange->parameters * sizeof(double), (void **)&exchange->squares,
                       error);
}

/* The gradients that this rank holds; the others have no elements, so that their norm is 0. */
static void list_gradients(struct plm_exchange *exchange)
{
  const struct plm_held held = {exchange->owners, exchange->ranks->rank};
  const float *arena = plm_model_gradient_arena(exchange->model);
  for (size_t i = 0; i < exchange->parameters; i++)
    exchange->gradients[i] = (struct plm_array){
        arena + exchange->table[i].offset, plm_is_held(&held, i) ? exchange->table[i].count : 0};
}

plm_status plm_exchange_open(struct plm_ranks *ranks, struct plm_model *model,
                             const uint32_t *owners, uint32_t local_shares,
                             struct plm_exchange **out, struct plm_error *error)
{
  const struct plm_rank_place *place = &ranks->collective->place;
  struct plm_exchange *exchange = calloc(1, sizeof *exchange);
  if (exchange == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the exchange between ranks");
  *exchange = (struct plm_exchange){.ranks = ranks,
                                    .ops = plm_model_ops(model),
                                    .model = model,
                                    .owners = owners,
                                    .local_shares = local_shares,
                                    .group_size = place->group_size,
                                    .groups = place->ranks / place->group_size};
  exchange->table = plm_model_table(model, &exchange->parameters);
  plm_status status = PLM_OK;
  if (exchange->group_size > PLM_SUM_PARTS_MAX || exchange->groups > PLM_SUM_PARTS_MAX)
    status = plm_error_set(error, PLM_LIMIT,
                           "%u groups of %u ranks are too many: %d of either are possible",
                           exchange->groups, exchange->group_size, PLM_SUM_PARTS_MAX);
  if (status == PLM_OK)
    status = plm_buckets_init(&exchange->buckets, exchange->table, exchange->parameters, owners,
                              ranks->ranks, error);
  if (status == PLM_OK) status = take(exchange, error);
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
  if (exchange->packed != NULL) ops->release(ops, exchange->packed);
  if (exchange->received != NULL) ops->release(ops, exchange->received);
  if (exchange->squares != NULL) ops->release(ops, exchange->squares);
  plm_buckets_deinit(&exchange->buckets);
  free(exchange->gradients);
  free(exchange->mine);
  free(exchange->all);
  free(exchange);
}

/* ---- moving ---------------------------------------------------------------------------------- */

static plm_status move(struct plm_exchange *exchange, enum plm_transfer_kind kind,
                       enum plm_scope scope, float *to, const float *from, size_t elements,
                       struct plm_error *error)
{
  struct plm_transport *transport = exchange->ranks->transport;
  struct plm_transfer transfer = {.kind = kind,
                                  .lane = PLM_LANE_STEP,
                                  .scope = scope,
                                  .to = to,
                                  .from = from,
                                  .bytes = elements * sizeof(float)};
  transport->start(transport, &transfer);
  return transport->wait(transport, &transfer, error);
}

static void swap(struct plm_exchange *exchange)
{
  float *packed = exchange->packed;
  exchange->packed = exchange->received;
  exchange->received = packed;
}

/* to = the sum of `count` parts, which follow each other in `received` */
static void add_up(struct plm_exchange *exchange, float *to, const float *first, uint32_t count,
                   size_t stride, size_t n)
{
  const float *parts[PLM_SUM_PARTS_MAX];
  for (uint32_t i = 0; i < count; i++) parts[i] = first + i * stride;
  exchange->ops->sum_parts(exchange->ops, to, parts, count, n);
}

/* Sums over one scope. `packed` holds what this rank has for each of the `count` ranks; afterwards
 * it holds the sum of what they had for this one. */
static plm_status reduce(struct plm_exchange *exchange, enum plm_transfer_kind kind,
                         enum plm_scope scope, uint32_t count, size_t elements,
                         struct plm_error *error)
{
  if (count == 1) return PLM_OK;
  PLM_TRY(move(exchange, kind, scope, exchange->received, exchange->packed, elements, error));
  add_up(exchange, exchange->packed, exchange->received, count, elements, elements);
  return PLM_OK;
}

/* ---- gradients ------------------------------------------------------------------------------- */

static void pack_gradients(struct plm_exchange *exchange, const struct plm_bucket *bucket)
{
  struct plm_ops *ops = exchange->ops;
  const float *arena = plm_model_gradient_arena(exchange->model);
  for (size_t i = bucket->first; i < bucket->first + bucket->count; i++) {
    const struct plm_bucket_entry *entry = &exchange->buckets.entries[i];
    const struct plm_parameter *parameter = &exchange->table[entry->parameter];
    const size_t piece =
        entry->owner == PLM_OWNED_BY_ALL ? 0 : slot_of(exchange, entry->owner) * bucket->piece;
    ops->copy(ops, exchange->packed + piece + entry->offset, arena + parameter->offset,
              parameter->count * sizeof(float));
  }
}

/* Copies the sums of what this rank holds to the model's gradients. */
static void unpack_gradients(struct plm_exchange *exchange, const struct plm_bucket *bucket)
{
  struct plm_ops *ops = exchange->ops;
  float *arena = plm_model_gradient_arena(exchange->model);
  for (size_t i = bucket->first; i < bucket->first + bucket->count; i++) {
    const struct plm_bucket_entry *entry = &exchange->buckets.entries[i];
    const struct plm_parameter *parameter = &exchange->table[entry->parameter];
    if (entry->owner == PLM_OWNED_BY_ALL || entry->owner == exchange->ranks->rank)
      ops->copy(ops, arena + parameter->offset, exchange->packed + entry->offset,
                parameter->count * sizeof(float));
  }
}

plm_status plm_exchange_gradients(struct plm_exchange *exchange, struct plm_error *error)
{
  const uint32_t group = exchange->group_size, groups = exchange->groups;
  for (size_t b = 0; b < exchange->buckets.count; b++) {
    const struct plm_bucket *bucket = &exchange->buckets.buckets[b];
    pack_gradients(exchange, bucket);
    PLM_TRY(
        reduce(exchange, PLM_ALL_TO_ALL, PLM_SCOPE_GROUP, group, groups * bucket->piece, error));
    PLM_TRY(reduce(exchange, PLM_ALL_TO_ALL, PLM_SCOPE_RAIL, groups, bucket->piece, error));
    unpack_gradients(exchange, bucket);
  }
  const struct plm_bucket *small = &exchange->buckets.small;
  if (small->count == 0) return PLM_OK;
  pack_gradients(exchange, small);
  PLM_TRY(reduce(exchange, PLM_ALL_GATHER, PLM_SCOPE_GROUP, group, small->piece, error));
  PLM_TRY(reduce(exchange, PLM_ALL_GATHER, PLM_SCOPE_RAIL, groups, small->piece, error));
  unpack_gradients(exchange, small);
  return PLM_OK;
}

/* ---- weights --------------------------------------------------------------------------------- */

static void pack_weights(struct plm_exchange *exchange, const struct plm_bucket *bucket)
{
  struct plm_ops *ops = exchange->ops;
  const float *arena = plm_model_parameter_arena(exchange->model);
  for (size_t i = bucket->first; i < bucket->first + bucket->count; i++) {
    const struct plm_bucket_entry *entry = &exchange->buckets.entries[i];
    const struct plm_parameter *parameter = &exchange->table[entry->parameter];
    if (entry->owner == exchange->ranks->rank)
      ops->copy(ops, exchange->packed + entry->offset, arena + parameter->offset,
                parameter->count * sizeof(float));
  }
}

static void unpack_weights(struct plm_exchange *exchange, const struct plm_bucket *bucket)
{
  struct plm_ops *ops = exchange->ops;
  float *arena = plm_model_parameter_arena(exchange->model);
  for (size_t i = bucket->first; i < bucket->first + bucket->count; i++) {
    const struct plm_bucket_entry *entry = &exchange->buckets.entries[i];
    const struct plm_parameter *parameter = &exchange->table[entry->parameter];
    const size_t piece = slot_of(exchange, entry->owner) * bucket->piece;
    if (entry->owner != exchange->ranks->rank)
      ops->copy(ops, arena + parameter->offset, exchange->packed + piece + entry->offset,
                parameter->count * sizeof(float));
  }
}

/* Gathers over one scope: `packed` has this rank's piece, and afterwards those of all. */
static plm_status gather(struct plm_exchange *exchange, enum plm_scope scope, uint32_t count,
                         size_t elements, struct plm_error *error)
{
  if (count == 1) return PLM_OK;
  PLM_TRY(
      move(exchange, PLM_ALL_GATHER, scope, exchange->received, exchange->packed, elements, error));
  swap(exchange);
  return PLM_OK;
}

plm_status plm_exchange_weights(struct plm_exchange *exchange, struct plm_error *error)
{
  for (size_t b = exchange->buckets.count; b-- > 0;) { /* in the order of the forward pass */
    const struct plm_bucket *bucket = &exchange->buckets.buckets[b];
    pack_weights(exchange, bucket);
    PLM_TRY(gather(exchange, PLM_SCOPE_RAIL, exchange->groups, bucket->piece, error));
    PLM_TRY(gather(exchange, PLM_SCOPE_GROUP, exchange->group_size,
                   exchange->groups * bucket->piece, error));
    unpack_weights(exchange, bucket);
  }
  return PLM_OK;
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
    const uint32_t owner = exchange->owners[i], from = owner == PLM_OWNED_BY_ALL ? 0 : owner;
    total += exchange->all[from * number_count(exchange) + exchange->local_shares + i];
  }
  return total;
}

static void add_work(const struct plm_exchange *exchange, struct plm_exchange_work *work)
{
  *work = (struct plm_exchange_work){0};
  for (uint32_t r = 0; r < exchange->ranks->ranks; r++) {
    const double *of_rank = &exchange->all[(r + 1) * number_count(exchange) - WORK_NUMBERS];
    work->flops += of_rank[0];
    if (of_rank[1] <= work->compute_s) continue;
    work->compute_s = of_rank[1];
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
  PLM_TRY(ops->synchronize(ops, error));
  exchange->mine[numbers - 2] = work->flops;
  exchange->mine[numbers - 1] = work->compute_s;
  PLM_TRY(plm_collective_gather(exchange->ranks->collective, PLM_LANE_STEP, exchange->all,
                                exchange->mine, numbers * sizeof(double), error));
  const struct plm_update_sums total = {.loss = sum_losses(exchange),
                                        .squares = sum_squares(exchange)};
  add_work(exchange, work);
  ops->upload(ops, sums, &total, sizeof total);
  return PLM_OK;
}

plm_status plm_exchange_count(const struct plm_parameter *table, size_t count,
                              const uint32_t *owners, uint32_t ranks, uint32_t group_size,
                              struct plm_exchange_bytes *bytes, struct plm_error *error)
{
  struct plm_buckets buckets;
  *bytes = (struct plm_exchange_bytes){0};
  if (ranks == 1) return PLM_OK;
  PLM_TRY(plm_buckets_init(&buckets, table, count, owners, ranks, error));
  const uint64_t groups = ranks / group_size, small = buckets.small.piece;
  uint64_t pieces = 0;
  for (size_t b = 0; b < buckets.count; b++) pieces += buckets.buckets[b].piece;
  bytes->device = 2 * buffer_elements(&buckets, ranks) * sizeof(float);
  /* gradients and weights of the owned parameters, and the gradients of the small ones */
  bytes->sent_in_group = (group_size - 1) * (2 * groups * pieces + small) * sizeof(float);
  bytes->sent_on_rail = (groups - 1) * (2 * pieces + small) * sizeof(float);
  plm_buckets_deinit(&buckets);
  return PLM_OK;
}
