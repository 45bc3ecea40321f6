/* The requests of a consumer: see link_requests.h. */
#include "packer/link_requests.h"

struct plm_header packer_link_header(const struct packer_link *link, enum plm_message_type type)
{
  return (struct plm_header){.type = type,
                             .run_id = link->run_id,
                             .consumer = link->consumer,
                             .packer = link->incarnation,
                             .plan = link->plan_hash};
}

/* ---- taking requests ------------------------------------------------------------------------- */

static void nack(struct packer_link *link, uint64_t request, enum plm_nack_reason reason,
                 const char *text)
{
  uint8_t payload[4 + PLM_WIRE_TEXT];
  struct plm_header header = packer_link_header(link, PLM_MESSAGE_NACK);
  header.request = request;
  (void)plm_message_send(link->socket, NULL, 0, &header, payload,
                         plm_nack_encode(reason, text, payload),
                         NULL); /* if it is lost, the request times out */
}

/* Why there is no window or proof. */
static enum plm_nack_reason reason_of(plm_status status)
{
  if (status == PLM_CORRUPT) return PLM_NACK_CORRUPT;
  return status == PLM_NOT_FOUND ? PLM_NACK_RANGE : PLM_NACK_FAILED;
}

void link_requests_get(struct packer_link *link, const struct plm_message *message, int64_t now)
{
  const struct plm_header *header = &message->header;
  struct plm_get get;
  const plm_status decoded = plm_get_decode(zmq_msg_data((zmq_msg_t *)&message->payload),
                                            (size_t)header->payload_bytes, &get, NULL);
  PLM_ASSERT(decoded == PLM_OK); /* any bytes are one, and it was received with its size */
  if (!plm_hash_equal(header->plan, link->plan_hash) || header->count == 0 ||
      header->first > UINT32_MAX)
    nack(link, header->request, PLM_NACK_RANGE, "no such plan, split or chunk");
  else if (link->pending_count == LINK_PENDING)
    nack(link, header->request, PLM_NACK_BUSY, "too many requests");
  else
    link->pending[link->pending_count++] = (struct link_request){.request = header->request,
                                                                 .epoch = header->epoch,
                                                                 .split = header->split,
                                                                 .window = get.window,
                                                                 .first = (uint32_t)header->first,
                                                                 .count = header->count,
                                                                 .until_ms = now + get.deadline_ms};
}

/* Windows that are to be made soon replace earlier ones that could not be begun. */
static void link_requests_prepare(struct packer_link *link, const struct plm_header *header)
{
  link->prepare[link->prepare_next++ % LINK_PREPARE] =
      (struct link_prepare){true, header->split, header->epoch, header->first};
}

void link_requests_prove(struct packer_link *link, struct packer_context *context,
                         const struct plm_message *message)
{
  const struct plm_header *header = &message->header;
  struct plm_prove prove;
  struct plm_error error;
  if (plm_prove_decode(zmq_msg_data((zmq_msg_t *)&message->payload), (size_t)header->payload_bytes,
                       &prove, &error) != PLM_OK) {
    context->counters.invalid++;
    return;
  }
  const struct store_proof ask = {.owner = link->incarnation,
                                  .request = header->request,
                                  .plan = link->plans[header->split],
                                  .split = (enum plm_split)header->split,
                                  .epoch = header->epoch,
                                  .window = header->first,
                                  .first = prove.group,
                                  .count = header->count};
  if (!plm_hash_equal(header->plan, link->plan_hash))
    nack(link, header->request, PLM_NACK_RANGE, "no such plan");
  else if (!window_store_ask_proof(context->store, &ask))
    nack(link, header->request, PLM_NACK_BUSY, "too many requests");
  else if (prove.soon)
    link_requests_prepare(link, header);
}

void packer_link_proof(struct packer_link *link, const struct store_proof *proof)
{
  if (proof->error.status != PLM_OK) {
    nack(link, proof->request, reason_of(proof->error.status), proof->error.what);
    return;
  }
  struct plm_header header = packer_link_header(link, PLM_MESSAGE_PROOF);
  header.request = proof->request;
  header.split = proof->split;
  header.epoch = proof->epoch;
  header.first = proof->window;
  header.count = proof->count;
  (void)plm_message_send(link->socket, NULL, 0, &header, proof->bytes, proof->size,
                         NULL); /* if it is lost, the request times out */
}

/* ---- serving ------------------------------------------------------------------------------ */

static void sent(void *data, void *hint)
{
  (void)data;
  packed_window_release(hint);
}

/* False: the consumer does not read yet what it was sent before. */
static bool send_range(struct packer_link *link, struct packer_context *context,
                       const struct link_request *request, struct packed_window *packed)
{
  const uint32_t begin = request->first;
  if (begin >= packed->chunks || request->count > packed->chunks - begin) {
    nack(link, request->request, PLM_NACK_RANGE, "beyond the window's chunks");
    return true;
  }
  const uint32_t end = begin + request->count;
  PLM_ASSERT(begin < end && end <= packed->chunks);
  const uint8_t *bytes = packed->bytes + packed->offset[begin];
  struct plm_header header = packer_link_header(link, PLM_MESSAGE_DATA);
  header.request = request->request;
  header.split = request->split;
  header.epoch = request->epoch;
  header.first = request->first;
  header.count = request->count;
  header.max_length = packed->max_length;
  header.dtype = packed->token_bytes;
  header.real_tokens = packed->tokens[end] - packed->tokens[begin];
  header.payload_bytes = packed->offset[end] - packed->offset[begin];
  if (header.payload_bytes > PLM_WIRE_DATA_LIMIT) {
    nack(link, request->request, PLM_NACK_RANGE, "too much for one message");
    return true;
  }
  if (!plm_socket_can_send(link->socket)) return false;
  header.payload_hash = plm_hash_bytes(bytes, header.payload_bytes);
  packed_window_hold(packed);
  if (plm_message_send_shared(link->socket, &header, bytes, sent, packed, NULL) != PLM_OK)
    return false;
  struct plm_packer_counters *counters = &context->counters;
  if (window_store_served(context->store, packed)) counters->windows++;
  counters->chunks += request->count;
  counters->tokens += header.real_tokens;
  counters->padded_tokens += (uint64_t)request->count * packed->max_length;
  counters->documents += packed->documents[end] - packed->documents[begin];
  counters->bytes += header.payload_bytes;
  return true;
}

/* True: the request was answered, with DATA or NACK. */
static bool serve_request(struct packer_link *link, struct packer_context *context,
                          const struct link_request *request, int64_t now)
{
  struct packed_window *packed = NULL;
  struct plm_error error;
  if (now > request->until_ms) {
    nack(link, request->request, PLM_NACK_EXPIRED, "the deadline has passed");
    return true;
  }
  switch (window_store_get(context->store, link->plans[request->split], request->epoch,
                           request->window, true, &packed, &error)) {
  case WINDOW_READY: return send_range(link, context, request, packed);
  case WINDOW_FAILED:
    nack(link, request->request, reason_of(error.status), error.what);
    if (error.status == PLM_CORRUPT) context->fatal = error;
    return true;
  default: return false;
  }
}

void packer_link_serve(struct packer_link *link, struct packer_context *context, int64_t now)
{
  if (link->state != LINK_SERVING) return;
  uint32_t kept = 0;
  uint64_t windows[STORE_WINDOWS];
  uint32_t waiting =
      0; /* different windows that requests wait for, at most as many as the store holds */
  for (uint32_t i = 0; i < link->pending_count; i++) {
    const struct link_request request = link->pending[i];
    const uint64_t key = request.window;
    bool listed = false;
    for (uint32_t w = 0; w < waiting; w++) listed |= windows[w] == key;
    if ((waiting < STORE_WINDOWS || listed || now > request.until_ms) &&
        serve_request(link, context, &request, now))
      continue;
    if (!listed && waiting < STORE_WINDOWS) windows[waiting++] = key;
    link->pending[kept++] = request;
  }
  link->pending_count = kept;
  for (unsigned i = 0; i < LINK_PREPARE; i++) { /* the oldest first */
    struct link_prepare *next = &link->prepare[(link->prepare_next + i) % LINK_PREPARE];
    if (!next->wanted) continue;
    if (!window_store_prepare(context->store, link->plans[next->split], next->epoch, next->window))
      break;
    next->wanted = false;
  }
}
