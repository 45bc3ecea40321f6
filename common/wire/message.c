/* Encoding and strict decoding of the feed's headers and control payloads. Nothing else reads them
 * before these checks. */
#include "common/wire/message.h"

#include <string.h>

#include "common/wire/wire_bytes.h"

static const struct {
  const char *name;
  size_t least, most;
} kinds[PLM_MESSAGE_COUNT] = {[PLM_MESSAGE_NONE] = {"none", 0, 0},
#define PLM_MESSAGE_ROW(name, least, most) [PLM_MESSAGE_##name] = {#name, least, most},
                              PLM_MESSAGE_LIST(PLM_MESSAGE_ROW)
#undef PLM_MESSAGE_ROW
};

const char *plm_message_name(enum plm_message_type type)
{
  return (unsigned)type < PLM_MESSAGE_COUNT ? kinds[type].name : "unknown";
}

static struct wire_writer payload_of(enum plm_message_type type, uint8_t *bytes)
{
  return (struct wire_writer){bytes, kinds[type].most, 0};
}

/* ---- texts -------------------------------------------------------------------------------- */

static void put_text(struct wire_writer *out, const char *text, size_t limit)
{
  const size_t size = strnlen(text, limit);
  wire_put(out, size, 2);
  wire_put_bytes(out, text, size);
}

/* Only printable ASCII is valid, because these texts end up in logs. */
static void get_text(struct wire_reader *in, char *text, size_t size)
{
  const size_t length = (size_t)wire_get(in, 2);
  text[0] = '\0';
  if (length >= size || length > in->left) {
    in->bad = true;
    return;
  }
  for (size_t i = 0; i < length; i++) {
    const uint8_t byte = in->bytes[i];
    if (byte < 0x20 || byte > 0x7e) in->bad = true;
    text[i] = byte < 0x20 || byte > 0x7e ? '?' : (char)byte;
  }
  text[length] = '\0';
  in->bytes += length;
  in->left -= length;
}

static plm_status message_finish(const struct wire_reader *in, const char *what,
                                 struct plm_error *error)
{
  if (in->bad || in->left != 0)
    return plm_error_set(error, PLM_PROTOCOL, "malformed payload of %s", what);
  return PLM_OK;
}

/* ---- header ------------------------------------------------------------------------------- */

void plm_header_encode(const struct plm_header *header, uint8_t bytes[PLM_HEADER_BYTES])
{
  struct wire_writer out = {bytes, PLM_HEADER_BYTES, 0};
  wire_put(&out, PLM_WIRE_MAGIC, 4);
  wire_put(&out, PLM_WIRE_VERSION, 2);
  wire_put(&out, header->type, 2);
  wire_put_hash(&out, header->run_id);
  wire_put(&out, header->consumer, 8);
  wire_put(&out, header->packer, 8);
  wire_put(&out, header->request, 8);
  wire_put_hash(&out, header->plan);
  wire_put(&out, header->split, 4);
  wire_put(&out, header->max_length, 4);
  wire_put(&out, header->epoch, 8);
  wire_put(&out, header->first, 8);
  wire_put(&out, header->count, 4);
  wire_put(&out, header->dtype, 4);
  wire_put(&out, header->real_tokens, 8);
  wire_put(&out, header->payload_bytes, 8);
  wire_put_hash(&out, header->payload_hash);
  wire_put(&out, plm_hash64_bytes(bytes, out.size), 8);
  PLM_ASSERT(out.size == PLM_HEADER_BYTES);
}

/* Magic and version stand at the beginning in every version of the protocol, so they are checked
 * first, and two programs of different versions can tell each other so. */
plm_status plm_header_decode(const void *bytes, size_t size, struct plm_header *header,
                             struct plm_error *error)
{
  struct wire_reader in = {bytes, size, false};
  if (size < 6 || wire_get(&in, 4) != PLM_WIRE_MAGIC)
    return plm_error_set(error, PLM_PROTOCOL, "not a message of the feed (magic)");
  const unsigned version = (unsigned)wire_get(&in, 2);
  if (version != PLM_WIRE_VERSION) {
    (void)plm_error_set(error, PLM_UNSUPPORTED, "protocol version %u, not %d", version,
                        PLM_WIRE_VERSION);
    (void)plm_error_hint(error, "install the same version of plm-pipeline on all hosts");
    return PLM_UNSUPPORTED;
  }
  if (size != PLM_HEADER_BYTES)
    return plm_error_set(error, PLM_PROTOCOL, "header of %zu bytes, not %d", size,
                         PLM_HEADER_BYTES);
  const unsigned type = (unsigned)wire_get(&in, 2);
  header->run_id = wire_get_hash(&in);
  header->consumer = wire_get(&in, 8);
  header->packer = wire_get(&in, 8);
  header->request = wire_get(&in, 8);
  header->plan = wire_get_hash(&in);
  header->split = (uint32_t)wire_get(&in, 4);
  header->max_length = (uint32_t)wire_get(&in, 4);
  header->epoch = wire_get(&in, 8);
  header->first = wire_get(&in, 8);
  header->count = (uint32_t)wire_get(&in, 4);
  header->dtype = (uint32_t)wire_get(&in, 4);
  header->real_tokens = wire_get(&in, 8);
  header->payload_bytes = wire_get(&in, 8);
  header->payload_hash = wire_get_hash(&in);
  if (wire_get(&in, 8) != plm_hash64_bytes(bytes, PLM_HEADER_BYTES - 8))
    return plm_error_set(error, PLM_PROTOCOL, "header hash does not match");
  if (type == PLM_MESSAGE_NONE || type >= PLM_MESSAGE_COUNT)
    return plm_error_set(error, PLM_PROTOCOL, "unknown message type %u", type);
  header->type = (enum plm_message_type)type;
  if (header->payload_bytes < kinds[type].least || header->payload_bytes > kinds[type].most)
    return plm_error_set(error, PLM_PROTOCOL, "%s with a payload of %llu bytes", kinds[type].name,
                         (unsigned long long)header->payload_bytes);
  if (header->split >= PLM_SPLIT_COUNT)
    return plm_error_set(error, PLM_PROTOCOL, "unknown split %u", header->split);
  if (header->dtype > 2)
    return plm_error_set(error, PLM_PROTOCOL, "unknown dtype %u", header->dtype);
  if (header->count > PLM_WIRE_CHUNKS)
    return plm_error_set(error, PLM_PROTOCOL, "a range of %u", header->count);
  return PLM_OK;
}

/* ---- HELLO -------------------------------------------------------------------------------- */

bool plm_hello_is(const struct plm_hello *hello, struct plm_hash fingerprint)
{
  return plm_hash_known(fingerprint) && (plm_hash_equal(hello->fingerprint, fingerprint) ||
                                         plm_hash_equal(hello->upgraded_from, fingerprint));
}

static void put_split(struct wire_writer *out, const struct plm_proof_split *split)
{
  wire_put(out, split->documents, 8);
  wire_put_bytes(out, split->root, sizeof split->root);
  wire_put(out, split->clusters, 8);
  wire_put(out, split->sum, 8);
  wire_put_bytes(out, split->cluster_root, sizeof split->cluster_root);
}

static void get_split(struct wire_reader *in, struct plm_proof_split *split)
{
  split->documents = wire_get(in, 8);
  wire_get_bytes(in, split->root, sizeof split->root);
  split->clusters = wire_get(in, 8);
  split->sum = wire_get(in, 8);
  wire_get_bytes(in, split->cluster_root, sizeof split->cluster_root);
  if (split->documents > UINT64_C(1) << 48 || split->clusters > split->documents ||
      split->sum != (split->clusters == 0 ? 0 : split->documents))
    in->bad = true;
}

size_t plm_hello_encode(const struct plm_hello *hello, uint8_t *bytes)
{
  struct wire_writer out = payload_of(PLM_MESSAGE_HELLO, bytes);
  wire_put(&out, hello->protocol_least, 2);
  wire_put(&out, hello->protocol_most, 2);
  wire_put(&out, hello->packer_id, 8);
  wire_put(&out, hello->pid, 4);
  put_text(&out, hello->host, sizeof hello->host - 1);
  wire_put(&out, hello->tokenizer, 1);
  wire_put(&out, (uint64_t)hello->clustered + 2 * (uint64_t)(hello->schema_bytes != 0), 1);
  wire_put_hash(&out, hello->fingerprint);
  wire_put_hash(&out, hello->upgraded_from);
  for (int split = 0; split < PLM_SPLIT_COUNT; split++) {
    put_split(&out, &hello->splits[split]);
    unsigned entries = 0;
    for (int token = 0; token < 512; token++) entries += hello->composition[split][token] != 0;
    wire_put(&out, entries, 2);
    for (unsigned token = 0; token < 512; token++) {
      if (hello->composition[split][token] == 0) continue;
      wire_put(&out, token, 2);
      wire_put(&out, hello->composition[split][token], 8);
    }
  }
  if (hello->schema_bytes != 0) {
    wire_put(&out, hello->schema_bytes, 4);
    wire_put_bytes(&out, hello->schema, hello->schema_bytes);
  }
  PLM_ASSERT(out.size <= PLM_WIRE_CONTROL_LIMIT + hello->schema_bytes);
  return out.size;
}

/* The schema, if the payload has one, and its hash. */
static void get_schema(struct wire_reader *in, struct plm_hello *hello,
                       struct plm_proof_digest *digest)
{
  hello->schema_bytes = wire_get_below(in, 4, PLM_LABEL_SCHEMA_LIMIT + 1);
  hello->schema = wire_take(in, hello->schema_bytes);
  if (hello->schema == NULL || hello->schema_bytes == 0) {
    in->bad = true;
    return;
  }
  *digest = plm_proof_schema(hello->schema, hello->schema_bytes);
}

plm_status plm_hello_decode(const void *bytes, size_t size, struct plm_hello *hello,
                            struct plm_error *error)
{
  struct wire_reader in = {bytes, size, false};
  memset(hello, 0, sizeof *hello);
  hello->protocol_least = (uint16_t)wire_get(&in, 2);
  hello->protocol_most = (uint16_t)wire_get(&in, 2);
  hello->packer_id = wire_get(&in, 8);
  hello->pid = (uint32_t)wire_get(&in, 4);
  get_text(&in, hello->host, sizeof hello->host);
  hello->tokenizer = (enum plm_tokenizer_kind)wire_get_below(&in, 1, PLM_TOKENIZER_BYTE + 1);
  const unsigned flags = wire_get_below(&in, 1, 4);
  const bool labelled = flags >= 2;
  struct plm_proof_digest schema;
  hello->clustered = flags % 2 != 0;
  hello->fingerprint = wire_get_hash(&in);
  hello->upgraded_from = wire_get_hash(&in);
  for (int split = 0; split < PLM_SPLIT_COUNT; split++) {
    get_split(&in, &hello->splits[split]);
    const unsigned entries = wire_get_below(&in, 2, 513);
    unsigned next = 0; /* tokens ascend, so none is repeated */
    for (unsigned i = 0; i < entries && !in.bad; i++) {
      const unsigned token = wire_get_below(&in, 2, 512);
      const uint64_t count = wire_get(&in, 8);
      if (token < next || count == 0) in.bad = true;
      next = token + 1;
      hello->composition[split][token] = count;
    }
  }
  if (labelled) get_schema(&in, hello, &schema);
  PLM_TRY(message_finish(&in, "HELLO", error));
  if (!plm_hash_equal(hello->fingerprint,
                      plm_proof_corpus(hello->tokenizer == PLM_TOKENIZER_BYTE, hello->splits,
                                       labelled ? &schema : NULL)))
    return plm_error_set(error, PLM_PROTOCOL,
                         "HELLO states roots that do not give its fingerprint");
  return PLM_OK;
}

/* ---- WELCOME ------------------------------------------------------------------------------ */

size_t plm_welcome_encode(const struct plm_welcome *welcome, uint8_t *bytes)
{
  struct wire_writer out = payload_of(PLM_MESSAGE_WELCOME, bytes);
  const struct plm_plan_parameters *plan = &welcome->plan;
  wire_put(&out, plan->seed, 8);
  wire_put(&out, plan->max_length, 4);
  wire_put(&out, plan->alignment, 4);
  wire_put(&out, plan->window_groups, 4);
  wire_put(&out, plan->packing, 1);
  wire_put(&out, plan->truncate, 1);
  wire_put(&out, plan->tokenizer, 1);
  const bool of_mixture = plm_hash_known(plan->source);
  wire_put(&out, (uint64_t)plan->shuffle + 2 * (uint64_t)plan->sampling + 4 * (uint64_t)of_mixture,
           1);
  wire_put(&out, plan->token_limit, 8);
  if (of_mixture) wire_put_hash(&out, plan->source);
  PLM_ASSERT(welcome->peers <= PLM_WIRE_PEERS);
  wire_put(&out, welcome->peers, 2);
  for (uint32_t i = 0; i < welcome->peers; i++) {
    put_text(&out, welcome->address[i], sizeof welcome->address[i] - 1);
    put_text(&out, welcome->key[i], sizeof welcome->key[i] - 1);
  }
  return out.size;
}

plm_status plm_welcome_decode(const void *bytes, size_t size, struct plm_welcome *welcome,
                              struct plm_error *error)
{
  struct wire_reader in = {bytes, size, false};
  memset(welcome, 0, sizeof *welcome);
  struct plm_plan_parameters *plan = &welcome->plan;
  plan->seed = wire_get(&in, 8);
  plan->max_length = (uint32_t)wire_get(&in, 4);
  plan->alignment = (uint32_t)wire_get(&in, 4);
  plan->window_groups = (uint32_t)wire_get(&in, 4);
  plan->packing = (enum plm_packing)wire_get_below(&in, 1, PLM_PACKING_NEXT_FIT + 1);
  plan->truncate = (enum plm_truncate)wire_get_below(&in, 1, PLM_TRUNCATE_SPLIT + 1);
  plan->tokenizer = (enum plm_tokenizer_kind)wire_get_below(&in, 1, PLM_TOKENIZER_BYTE + 1);
  const uint32_t order = wire_get_below(&in, 1, 8);
  plan->shuffle = order % 2 != 0;
  plan->sampling = (enum plm_sampling)(order / 2 % 2);
  plan->token_limit = wire_get(&in, 8);
  if (order >= 4) {
    plan->source = wire_get_hash(&in);
    if (!plm_hash_known(plan->source)) in.bad = true;
  }
  welcome->peers = wire_get_below(&in, 2, PLM_WIRE_PEERS + 1);
  for (uint32_t i = 0; i < welcome->peers; i++) {
    get_text(&in, welcome->address[i], sizeof welcome->address[i]);
    get_text(&in, welcome->key[i], sizeof welcome->key[i]);
    const size_t key = strlen(welcome->key[i]);
    if (key != 0 && key != 40) in.bad = true;
  }
  return message_finish(&in, "WELCOME", error);
}

/* ---- PONG, PROVE, GET, NACK, REJECT ------------------------------------------------------- */

/* The order of the fields on the wire. */
static const size_t counter_offsets[] = {
    offsetof(struct plm_packer_counters, windows),
    offsetof(struct plm_packer_counters, chunks),
    offsetof(struct plm_packer_counters, documents),
    offsetof(struct plm_packer_counters, tokens),
    offsetof(struct plm_packer_counters, padded_tokens),
    offsetof(struct plm_packer_counters, bytes),
    offsetof(struct plm_packer_counters, invalid),
    offsetof(struct plm_packer_counters, queue),
    offsetof(struct plm_packer_counters, standby),
    offsetof(struct plm_packer_counters, age_ms),
};
enum { COUNTERS = sizeof counter_offsets / sizeof counter_offsets[0] };

size_t plm_counters_encode(const struct plm_packer_counters *counters, uint8_t *bytes)
{
  struct wire_writer out = payload_of(PLM_MESSAGE_PONG, bytes);
  for (int i = 0; i < COUNTERS; i++)
    wire_put(&out, *(const uint64_t *)((const char *)counters + counter_offsets[i]), 8);
  return out.size;
}

plm_status plm_counters_decode(const void *bytes, size_t size, struct plm_packer_counters *counters,
                               struct plm_error *error)
{
  struct wire_reader in = {bytes, size, false};
  for (int i = 0; i < COUNTERS; i++)
    *(uint64_t *)((char *)counters + counter_offsets[i]) = wire_get(&in, 8);
  return message_finish(&in, "PONG", error);
}

size_t plm_prove_encode(const struct plm_prove *prove, uint8_t *bytes)
{
  struct wire_writer out = payload_of(PLM_MESSAGE_PROVE, bytes);
  wire_put(&out, prove->group, 4);
  wire_put(&out, prove->soon, 4);
  return out.size;
}

plm_status plm_prove_decode(const void *bytes, size_t size, struct plm_prove *prove,
                            struct plm_error *error)
{
  struct wire_reader in = {bytes, size, false};
  prove->group = (uint32_t)wire_get(&in, 4);
  prove->soon = wire_get_below(&in, 4, 2) != 0;
  return message_finish(&in, "PROVE", error);
}

size_t plm_get_encode(const struct plm_get *request, uint8_t *bytes)
{
  struct wire_writer out = payload_of(PLM_MESSAGE_GET, bytes);
  wire_put(&out, request->deadline_ms, 4);
  wire_put(&out, request->window, 4);
  return out.size;
}

plm_status plm_get_decode(const void *bytes, size_t size, struct plm_get *request,
                          struct plm_error *error)
{
  struct wire_reader in = {bytes, size, false};
  request->deadline_ms = (uint32_t)wire_get(&in, 4);
  request->window = (uint32_t)wire_get(&in, 4);
  return message_finish(&in, "GET", error);
}

size_t plm_nack_encode(enum plm_nack_reason reason, const char *text, uint8_t *bytes)
{
  struct wire_writer out = payload_of(PLM_MESSAGE_NACK, bytes);
  wire_put(&out, reason, 4);
  const size_t size = strnlen(text, PLM_WIRE_TEXT);
  wire_put_bytes(&out, text, size);
  return out.size;
}

void plm_reject_decode(const void *bytes, size_t size, char *text)
{
  if (size > PLM_WIRE_TEXT) size = PLM_WIRE_TEXT;
  for (size_t i = 0; i < size; i++) {
    const uint8_t byte = ((const uint8_t *)bytes)[i];
    text[i] = byte < 0x20 || byte > 0x7e ? '?' : (char)byte;
  }
  text[size] = '\0';
}

plm_status plm_nack_decode(const void *bytes, size_t size, enum plm_nack_reason *reason, char *text,
                           struct plm_error *error)
{
  struct wire_reader in = {bytes, size, false};
  *reason = (enum plm_nack_reason)wire_get_below(&in, 4, PLM_NACK_COUNT);
  if (in.bad) return message_finish(&in, "NACK", error);
  plm_reject_decode(in.bytes, in.left, text);
  return PLM_OK;
}

/* ---- FETCH, FILE_PART -------------------------------------------------------------------------
 */

static void put_fetch(struct wire_writer *out, const struct plm_fetch_request *request)
{
  wire_put(out, request->source, 2);
  wire_put(out, request->file, 2);
  wire_put(out, request->bytes, 4);
  wire_put(out, request->offset, 8);
}

static void get_fetch(struct wire_reader *in, struct plm_fetch_request *request)
{
  request->source = (uint16_t)wire_get(in, 2);
  request->file = (enum plm_fetch_file)wire_get_below(in, 2, PLM_FETCH_FILES);
  request->bytes = wire_get_below(in, 4, (unsigned)PLM_FILE_PART_BYTES + 1);
  request->offset = wire_get(in, 8);
  if (request->offset > UINT64_C(1) << 60) in->bad = true;
}

size_t plm_fetch_encode(const struct plm_fetch_request *request, uint8_t *bytes)
{
  struct wire_writer out = payload_of(PLM_MESSAGE_FETCH, bytes);
  put_fetch(&out, request);
  return out.size;
}

plm_status plm_fetch_decode(const void *bytes, size_t size, struct plm_fetch_request *request,
                            struct plm_error *error)
{
  struct wire_reader in = {bytes, size, false};
  get_fetch(&in, request);
  if (request->bytes == 0) in.bad = true;
  return message_finish(&in, "FETCH", error);
}

void plm_file_part_encode(const struct plm_file_part *part, uint8_t head[PLM_FILE_PART_HEAD])
{
  struct wire_writer out = {head, PLM_FILE_PART_HEAD, 0};
  put_fetch(&out, &part->of);
  wire_put(&out, part->sources, 2);
  wire_put(&out, part->file_bytes, 6);
  PLM_ASSERT(out.size == PLM_FILE_PART_HEAD);
}

plm_status plm_file_part_decode(const void *bytes, size_t size, struct plm_file_part *part,
                                struct plm_error *error)
{
  struct wire_reader in = {bytes, size, false};
  get_fetch(&in, &part->of);
  part->sources = (uint16_t)wire_get(&in, 2);
  part->file_bytes = wire_get(&in, 6);
  if (in.left != part->of.bytes || part->of.source >= part->sources ||
      part->of.offset + part->of.bytes > part->file_bytes)
    in.bad = true;
  in.left = 0;
  return message_finish(&in, "FILE_PART", error);
}
