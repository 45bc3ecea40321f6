/* Moves buckets between the ranks.
 *
 * A bucket makes two transfers: gradients go to the owners' places in the group, are summed, and go
 * along the rail to the owners; weights go the opposite way. Each call starts one bucket, and moves
 * the one before it to its second transfer; so both transfers run under what the caller computes
 * between two calls.
 *
 * In a message to a group, slices are ordered by the owner's place in its group, and those of one
 * place by the number of the owner's group. What a place receives is therefore, once added up, the
 * message to its rail. */
#include "common/base/clock.h"
#include "trainer/ranks/exchange_state.h"

/* ---- messages -------------------------------------------------------------------------------- */

/* Where a rank's slice is in a message to a group, in slices. */
static size_t slot_of(const struct plm_exchange *exchange, uint32_t rank)
{
  return (size_t)(rank % exchange->group_size) * exchange->groups + rank / exchange->group_size;
}

enum whose { OF_ALL, OF_THIS_RANK, OF_OTHERS };

/* How a bucket lies in a message. */
struct layout {
  enum whose whose;
  bool slices; /* a slice for each owner; else only one slice */
};

static bool is_in(const struct plm_exchange *exchange, enum whose whose, uint32_t owner)
{
  return whose == OF_ALL || (owner == exchange->ranks->rank) == (whose == OF_THIS_RANK);
}

/* Copies the gradients of a bucket from the arena to a message, or back. */
static void copy_entries(struct plm_exchange *exchange, const struct plm_bucket *bucket,
                         struct layout layout, float *arena, float *message, bool to_message)
{
  struct plm_ops *ops = exchange->ops;
  for (size_t i = bucket->first; i < bucket->first + bucket->count; i++) {
    const struct plm_bucket_entry *entry = &exchange->buckets.entries[i];
    const struct plm_parameter *parameter = &exchange->table[entry->parameter];
    if (!is_in(exchange, layout.whose, entry->owner)) continue;
    float *there = message + entry->offset, *here = arena + parameter->offset;
    if (layout.slices) there += slot_of(exchange, entry->owner) * bucket->slice;
    ops->copy(ops, to_message ? there : here, to_message ? here : there,
              parameter->count * sizeof(float));
  }
}

/* ---- moving ---------------------------------------------------------------------------------- */

/* The ranks that take part in a transfer of this scope. */
static uint32_t size_of(const struct plm_exchange *exchange, enum plm_scope scope)
{
  return scope == PLM_SCOPE_GROUP ? exchange->group_size : exchange->groups;
}

/* What a transfer moves. */
struct message {
  struct exchange_label label;
  enum plm_transfer_kind kind;
  enum plm_scope scope;
  size_t bytes; /* of a slice */
};

/* Starts to move a message from slot->packed to slot->received, or in the opposite direction if it
 * was rounded into slot->received. If the scope is only this rank, nothing is moved, and the
 * message stays in slot->packed. */
static void bucket_pipeline_start(struct plm_exchange *exchange, struct exchange_slot *slot,
                                  const struct message *message, bool rounded)
{
  struct plm_transport *transport = exchange->ranks->transport;
  if (size_of(exchange, message->scope) == 1) return;
  slot->rounded = rounded;
  slot->transfer = (struct plm_transfer){.kind = message->kind,
                                         .lane = PLM_LANE_STEP,
                                         .scope = message->scope,
                                         .to = rounded ? slot->packed : slot->received,
                                         .from = rounded ? slot->received : slot->packed,
                                         .bytes = message->bytes};
  slot->moving = true;
  slot->label = message->label;
  slot->started_ns = plm_profile_clock(exchange->profile);
  transport->start(transport, &slot->transfer);
}

/* The same for gradients, of which a slice has so many elements. The bytes of a slice follow from
 * whether they have to be rounded before they leave this rank. */
static void start_gradients(struct plm_exchange *exchange, struct exchange_slot *slot,
                            struct message message, size_t elements)
{
  const uint32_t ranks = size_of(exchange, message.scope);
  const bool is_first = message.scope == PLM_SCOPE_GROUP || exchange->group_size == 1;
  const bool rounded = exchange->rounds && is_first && ranks > 1;
  message.bytes = elements * (rounded ? sizeof(bf16) : sizeof(float));
  if (rounded)
    exchange->ops->float_to_bf16(exchange->ops, (bf16 *)slot->received, slot->packed,
                                 (message.kind == PLM_ALL_TO_ALL ? ranks : 1) * elements);
  bucket_pipeline_start(exchange, slot, &message, rounded);
}

/* A transfer that the rank has waited for since begun_ns, for the profile. */
static void tell_transfer(struct plm_exchange *exchange, const struct exchange_slot *slot,
                          uint64_t begun_ns)
{
  const uint64_t now_ns = plm_clock_ns(), ended_ns = slot->transfer.ended_ns;
  struct plm_profile_event event = {.track = PLM_TRACK_STEP,
                                    .kind = PLM_SPAN_EXCHANGE,
                                    .name = slot->label.what,
                                    .number = (int64_t)slot->label.n,
                                    .begin_ns = begun_ns,
                                    .end_ns = now_ns};
  plm_profile_record(exchange->profile, &event);
  event.track = PLM_TRACK_MOVES + (enum plm_track)(slot - exchange->slots);
  event.begin_ns = slot->started_ns;
  event.end_ns = ended_ns > 0 ? ended_ns : now_ns;
  event.bytes = (double)slot->transfer.bytes * size_of(exchange, slot->transfer.scope);
  plm_profile_record(exchange->profile, &event);
}

/* Waits for the slot's transfer. Returns in *moved whether there was one. */
static plm_status bucket_pipeline_await(struct plm_exchange *exchange, struct exchange_slot *slot,
                                        bool *moved, struct plm_error *error)
{
  struct plm_transport *transport = exchange->ranks->transport;
  *moved = slot->moving;
  if (!slot->moving) return PLM_OK;
  const uint64_t begun_ns = plm_profile_clock(exchange->profile);
  slot->moving = false;
  const plm_status status = transport->wait(transport, &slot->transfer, error);
  if (exchange->profile != NULL) tell_transfer(exchange, slot, begun_ns);
  return status;
}

/* Waits for the slot's transfer and adds up what it brought into slot->packed. */
static plm_status await_sum(struct plm_exchange *exchange, struct exchange_slot *slot,
                            struct plm_error *error)
{
  const float *parts[PLM_SUM_PARTS_MAX];
  bool moved;
  PLM_TRY(bucket_pipeline_await(exchange, slot, &moved, error));
  if (!moved) return PLM_OK;
  const uint32_t count = size_of(exchange, slot->transfer.scope);
  const size_t elements = slot->transfer.bytes / (slot->rounded ? sizeof(bf16) : sizeof(float));
  if (slot->rounded)
    exchange->ops->bf16_to_float(exchange->ops, slot->received, (const bf16 *)slot->packed,
                                 count * elements);
  for (uint32_t i = 0; i < count; i++) parts[i] = slot->received + i * elements;
  exchange->ops->sum_parts(exchange->ops, slot->packed, parts, count, elements);
  return PLM_OK;
}

/* Waits for the slot's transfer and takes what it brought as slot->packed. */
static plm_status await_all(struct plm_exchange *exchange, struct exchange_slot *slot,
                            struct plm_error *error)
{
  float *packed = slot->packed;
  bool moved;
  PLM_TRY(bucket_pipeline_await(exchange, slot, &moved, error));
  if (!moved) return PLM_OK;
  slot->packed = slot->received;
  slot->received = packed;
  return PLM_OK;
}

static struct exchange_slot *slot_at(struct plm_exchange *exchange, size_t n)
{
  return &exchange->slots[n % EXCHANGE_SLOTS];
}

/* ---- gradients ------------------------------------------------------------------------------- */

static plm_status gradients_to_rail(struct plm_exchange *exchange, size_t n,
                                    struct plm_error *error)
{
  struct exchange_slot *slot = slot_at(exchange, n);
  PLM_TRY(await_sum(exchange, slot, error));
  start_gradients(exchange, slot,
                  (struct message){.label = {"gradients on rail", n},
                                   .kind = PLM_ALL_TO_ALL,
                                   .scope = PLM_SCOPE_RAIL},
                  exchange->buckets.buckets[n].slice);
  return PLM_OK;
}

static plm_status gradients_to_arena(struct plm_exchange *exchange, size_t n,
                                     struct plm_error *error)
{
  struct exchange_slot *slot = slot_at(exchange, n);
  PLM_TRY(await_sum(exchange, slot, error));
  copy_entries(exchange, &exchange->buckets.buckets[n], (struct layout){OF_THIS_RANK, false},
               plm_model_gradient_arena(exchange->model), slot->packed, false);
  return PLM_OK;
}

plm_status exchange_next_gradients(struct plm_exchange *exchange, struct plm_error *error)
{
  const size_t n = exchange->started;
  struct exchange_slot *slot = slot_at(exchange, n);
  const struct plm_bucket *bucket = &exchange->buckets.buckets[n];
  if (n >= 2) PLM_TRY(gradients_to_arena(exchange, n - 2, error));
  if (n >= 1) PLM_TRY(gradients_to_rail(exchange, n - 1, error));
  copy_entries(exchange, bucket, (struct layout){OF_ALL, true},
               plm_model_gradient_arena(exchange->model), slot->packed, true);
  start_gradients(exchange, slot,
                  (struct message){.label = {"gradients in group", n},
                                   .kind = PLM_ALL_TO_ALL,
                                   .scope = PLM_SCOPE_GROUP},
                  exchange->groups * bucket->slice);
  exchange->started++;
  return PLM_OK;
}

plm_status exchange_end_gradients(struct plm_exchange *exchange, struct plm_error *error)
{
  const size_t n = exchange->started;
  if (n >= 2) PLM_TRY(gradients_to_arena(exchange, n - 2, error));
  if (n >= 1) {
    PLM_TRY(gradients_to_rail(exchange, n - 1, error));
    PLM_TRY(gradients_to_arena(exchange, n - 1, error));
  }
  exchange->started = 0;
  return PLM_OK;
}

plm_status exchange_small_gradients(struct plm_exchange *exchange, struct plm_error *error)
{
  const struct plm_bucket *small = &exchange->buckets.small;
  struct exchange_slot *slot = slot_at(exchange, 0);
  float *arena = plm_model_gradient_arena(exchange->model);
  if (small->count == 0) return PLM_OK;
  copy_entries(exchange, small, (struct layout){OF_ALL, false}, arena, slot->packed, true);
  start_gradients(exchange, slot,
                  (struct message){.label = {.what = "small gradients in group"},
                                   .kind = PLM_ALL_GATHER,
                                   .scope = PLM_SCOPE_GROUP},
                  small->slice);
  PLM_TRY(await_sum(exchange, slot, error));
  start_gradients(exchange, slot,
                  (struct message){.label = {.what = "small gradients on rail"},
                                   .kind = PLM_ALL_GATHER,
                                   .scope = PLM_SCOPE_RAIL},
                  small->slice);
  PLM_TRY(await_sum(exchange, slot, error));
  copy_entries(exchange, small, (struct layout){OF_ALL, false}, arena, slot->packed, false);
  return PLM_OK;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Weights go in the order of the forward pass. */
static const struct plm_bucket *weights_at(const struct plm_exchange *exchange, size_t n)
{
  return &exchange->buckets.buckets[exchange->buckets.count - 1 - n];
}

/* Writes the weights of a bucket that this rank owns to a message, as passes read them. */
static void pack_weights(struct plm_exchange *exchange, const struct plm_bucket *bucket,
                         char *message)
{
  struct plm_ops *ops = exchange->ops;
  for (size_t i = bucket->first; i < bucket->first + bucket->count; i++) {
    const struct plm_bucket_entry *entry = &exchange->buckets.entries[i];
    const size_t p = entry->parameter;
    const float *value = plm_model_parameter(exchange->model, p);
    if (!is_in(exchange, OF_THIS_RANK, entry->owner)) continue;
    if (plm_model_used(exchange->model, p) == value)
      ops->copy(ops, message + entry->used_offset, value, exchange->table[p].count * sizeof(float));
    else
      ops->round_weights(ops, message + entry->used_offset, value, exchange->table[p].count);
  }
}

/* Takes the weights of a bucket that other ranks own from a message. */
static void unpack_weights(struct plm_exchange *exchange, const struct plm_bucket *bucket,
                           const char *message)
{
  struct plm_ops *ops = exchange->ops;
  for (size_t i = bucket->first; i < bucket->first + bucket->count; i++) {
    const struct plm_bucket_entry *entry = &exchange->buckets.entries[i];
    if (!is_in(exchange, OF_OTHERS, entry->owner)) continue;
    const char *from =
        message + slot_of(exchange, entry->owner) * bucket->used_slice + entry->used_offset;
    ops->copy(ops, plm_model_used(exchange->model, entry->parameter), from,
              plm_parameter_used_bytes(&exchange->table[entry->parameter], ops->act_bytes));
  }
}

static plm_status weights_to_group(struct plm_exchange *exchange, size_t n, struct plm_error *error)
{
  struct exchange_slot *slot = slot_at(exchange, n);
  PLM_TRY(await_all(exchange, slot, error));
  bucket_pipeline_start(exchange, slot,
                        &(struct message){{"weights in group", n},
                                          PLM_ALL_GATHER,
                                          PLM_SCOPE_GROUP,
                                          exchange->groups * weights_at(exchange, n)->used_slice},
                        false);
  return PLM_OK;
}

static plm_status weights_to_model(struct plm_exchange *exchange, size_t n, struct plm_error *error)
{
  struct exchange_slot *slot = slot_at(exchange, n);
  PLM_TRY(await_all(exchange, slot, error));
  unpack_weights(exchange, weights_at(exchange, n), (const char *)slot->packed);
  return PLM_OK;
}

plm_status exchange_next_weights(struct plm_exchange *exchange, struct plm_error *error)
{
  const size_t n = exchange->started;
  struct exchange_slot *slot = slot_at(exchange, n);
  const struct plm_bucket *bucket = weights_at(exchange, n);
  if (n >= 2) PLM_TRY(weights_to_model(exchange, n - 2, error));
  if (n >= 1) PLM_TRY(weights_to_group(exchange, n - 1, error));
  pack_weights(exchange, bucket, (char *)slot->packed);
  bucket_pipeline_start(
      exchange, slot,
      &(struct message){{"weights on rail", n}, PLM_ALL_GATHER, PLM_SCOPE_RAIL, bucket->used_slice},
      false);
  exchange->started++;
  return PLM_OK;
}

plm_status exchange_end_weights(struct plm_exchange *exchange, struct plm_error *error)
{
  const size_t n = exchange->started;
  if (n >= 2) PLM_TRY(weights_to_model(exchange, n - 2, error));
  if (n >= 1) {
    PLM_TRY(weights_to_group(exchange, n - 1, error));
    PLM_TRY(weights_to_model(exchange, n - 1, error));
  }
  exchange->started = 0;
  return PLM_OK;
}
