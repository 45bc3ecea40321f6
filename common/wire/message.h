/* Messages of the feed: a fixed-size header and a payload, two ZeroMQ frames.
 *
 * All integers are little-endian and written field by field. The header (PLM_HEADER_BYTES):
 *
 *     0 u32 magic            4 u16 version          6 u16 type
 *     8 u64[2] run id (low, high)                  24 u64 consumer's incarnation
 *    32 u64 packer's incarnation                   40 u64 request id
 *    48 u64[2] plan hash    64 u32 split           68 u32 max_length
 *    72 u64 epoch           80 u64 first           88 u32 count
 *    92 u32 dtype (token_bytes: 0 none, 1, 2)    96 u64 real tokens
 *   104 u64 payload length 112 u64[2] payload XXH3-128
 *   128 u64 header hash: XXH3-64 of bytes 0..127
 *
 * first and count are a range of a window's chunks (GET, DATA), or a window and a number of
 * its groups (PROVE, PROOF). A receiver drops and counts whatever fails a check.
 *
 * DATA's payload is described in wire/data.h, PROOF's in wire/tables.h, and all payloads in
 * doc/feed.md#payloads.
 */
#ifndef PLM_COMMON_WIRE_MESSAGE_H
#define PLM_COMMON_WIRE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zmq.h>

#include "common/base/numbers/hash.h"
#include "common/base/status.h"
#include "common/corpus/corpus.h"
#include "common/plan/plan.h"

enum {
  PLM_WIRE_VERSION = 4, /* of the protocol; HELLO states the versions that a packer speaks */
  PLM_HEADER_BYTES = 136,
  PLM_WIRE_PEERS = 8,        /* other consumers named in WELCOME */
  PLM_WIRE_TEXT = 512,       /* bytes of a reason */
  PLM_WIRE_ROUTING_ID = 256, /* bytes of a ROUTER's peer routing id */
  PLM_WIRE_CHUNKS = 1 << 20,
};
#define PLM_WIRE_MAGIC 0x464D4C50u                /* "PLMF" */
#define PLM_WIRE_DATA_LIMIT ((size_t)64 << 20)    /* the greatest payload of DATA */
#define PLM_WIRE_PROOF_LIMIT ((size_t)1 << 20)    /* the greatest payload of PROOF */
#define PLM_WIRE_CONTROL_LIMIT ((size_t)64 << 10) /* ZMQ_MAXMSGSIZE of a packer */
/* The greatest payload of HELLO, which has the schema of the labels. */
#define PLM_WIRE_HELLO_LIMIT (PLM_WIRE_CONTROL_LIMIT + PLM_LABEL_SCHEMA_LIMIT)
#define PLM_FILE_PART_BYTES ((size_t)1 << 20) /* of a file, in one FILE_PART */
enum { PLM_FILE_PART_HEAD = 24 };             /* bytes of a FILE_PART before those of the file */

/* Name, smallest and greatest payload in bytes. */
#define PLM_MESSAGE_LIST(X)              \
  X(HELLO, 64, PLM_WIRE_HELLO_LIMIT)     \
  X(WELCOME, 32, PLM_WIRE_CONTROL_LIMIT) \
  X(REJECT, 0, PLM_WIRE_TEXT)            \
  X(REHELLO, 0, 0)                       \
  X(PROVE, 8, 8)                         \
  X(PROOF, 1, PLM_WIRE_PROOF_LIMIT)      \
  X(GET, 8, 8)                           \
  X(DATA, 2, PLM_WIRE_DATA_LIMIT)        \
  X(NACK, 4, 4 + PLM_WIRE_TEXT)          \
  X(PING, 0, 0)                          \
  X(PONG, 0, 256)                        \
  X(BYE, 0, 0)                           \
  X(FETCH, 16, 16)                       \
  X(FILE_PART, PLM_FILE_PART_HEAD, PLM_FILE_PART_HEAD + PLM_FILE_PART_BYTES)

enum plm_message_type {
  PLM_MESSAGE_NONE,
#define PLM_MESSAGE_ENUM(name, least, most) PLM_MESSAGE_##name,
  PLM_MESSAGE_LIST(PLM_MESSAGE_ENUM)
#undef PLM_MESSAGE_ENUM
      PLM_MESSAGE_COUNT
};
const char *plm_message_name(enum plm_message_type type);

struct plm_header {
  enum plm_message_type type;
  struct plm_hash run_id;
  uint64_t consumer, packer; /* incarnations; in a HELLO, consumer is 0 until it has been heard */
  uint64_t request;
  struct plm_hash plan;
  uint32_t split, max_length;
  uint64_t epoch, first;
  uint32_t count, dtype;
  uint64_t real_tokens; /* of DATA, as its packer says; consumers count them themselves */
  uint64_t payload_bytes;
  struct plm_hash payload_hash;
};

void plm_header_encode(const struct plm_header *header, uint8_t bytes[PLM_HEADER_BYTES]);
/* PLM_PROTOCOL names what is wrong: size, magic, hash, type, payload length for the type, split,
 * dtype or count. PLM_UNSUPPORTED: another version of the protocol; header is not filled in. */
plm_status plm_header_decode(const void *bytes, size_t size, struct plm_header *header,
                             struct plm_error *error);

/* HELLO: what a packer says about itself and its corpus. */
struct plm_hello {
  uint16_t protocol_least, protocol_most;
  uint64_t packer_id; /* of the process; reconnecting does not change it */
  uint32_t pid;
  char host[64];
  enum plm_tokenizer_kind tokenizer;
  bool clustered;
  struct plm_hash fingerprint;
  struct plm_hash upgraded_from;                  /* the fingerprint in an older format, or zero */
  struct plm_proof_split splits[PLM_SPLIT_COUNT]; /* with the schema, they give the fingerprint */
  uint64_t composition[PLM_SPLIT_COUNT][512];
  /* The schema of the labels as bytes, which are borrowed, and after decoding from the payload;
   * NULL and 0: the corpus has no labels. */
  const uint8_t *schema;
  uint32_t schema_bytes;
};
/* Whether the packer's corpus is the one with this fingerprint, which may be one from before an
 * upgrade. */
bool plm_hello_is(const struct plm_hello *hello, struct plm_hash fingerprint);

struct plm_welcome {
  struct plm_plan_parameters plan;
  uint32_t peers; /* number of the run's other consumers */
  char address[PLM_WIRE_PEERS][256];
  char key[PLM_WIRE_PEERS][41]; /* z85, "" for none */
};

/* A packer's PONG: its counters since it started. queue and standby are current values. */
struct plm_packer_counters {
  uint64_t windows, chunks, documents, tokens, padded_tokens, bytes, invalid, queue, standby,
      age_ms;
};

enum plm_nack_reason {
  PLM_NACK_NONE,
  PLM_NACK_RANGE,   /* no such split, window or chunk */
  PLM_NACK_EXPIRED, /* the deadline had passed */
  PLM_NACK_BUSY,    /* too many requests are waiting */
  PLM_NACK_CORRUPT, /* its corpus is damaged */
  PLM_NACK_FAILED,
  PLM_NACK_COUNT
};

/* Encoders write to the start of the caller's buffer, which has room for the greatest payload of
 * the type, and return the size. Decoders account for every byte and check every value:
 * PLM_PROTOCOL. */
size_t plm_hello_encode(const struct plm_hello *hello, uint8_t *bytes);
plm_status plm_hello_decode(const void *bytes, size_t size, struct plm_hello *hello,
                            struct plm_error *error);
size_t plm_welcome_encode(const struct plm_welcome *welcome, uint8_t *bytes);
plm_status plm_welcome_decode(const void *bytes, size_t size, struct plm_welcome *welcome,
                              struct plm_error *error);
size_t plm_counters_encode(const struct plm_packer_counters *counters, uint8_t *bytes);
plm_status plm_counters_decode(const void *bytes, size_t size, struct plm_packer_counters *counters,
                               struct plm_error *error);

/* PROVE: asks for the tables of groups of a window (the header's first). PROOF answers for as many
 * of them as fit into a message, at least one; its header's count says how many. */
struct plm_prove {
  uint32_t group; /* the first one, counted from the window's first group */
  bool soon;      /* the window's chunks will be asked for soon */
};
size_t plm_prove_encode(const struct plm_prove *prove, uint8_t *bytes);
plm_status plm_prove_decode(const void *bytes, size_t size, struct plm_prove *prove,
                            struct plm_error *error);

/* GET: asks for chunks [first, first + count) of a window. */
struct plm_get {
  uint32_t deadline_ms; /* after its arrival, the answer is worthless */
  uint32_t window;
};
size_t plm_get_encode(const struct plm_get *get, uint8_t *bytes);
plm_status plm_get_decode(const void *bytes, size_t size, struct plm_get *get,
                          struct plm_error *error);

/* FETCH: asks for bytes of a file of one of the run's corpora. */
enum plm_fetch_file { PLM_FETCH_DESCRIPTION, PLM_FETCH_DATA, PLM_FETCH_FILES };
struct plm_fetch_request {
  uint16_t source; /* of the mixture, else 0 */
  enum plm_fetch_file file;
  uint32_t bytes; /* 1 to PLM_FILE_PART_BYTES */
  uint64_t offset;
};
size_t plm_fetch_encode(const struct plm_fetch_request *request, uint8_t *bytes);
plm_status plm_fetch_decode(const void *bytes, size_t size, struct plm_fetch_request *request,
                            struct plm_error *error);

/* FILE_PART: the answer. The bytes of the file follow the head; at its end there are fewer than
 * were asked for. */
struct plm_file_part {
  uint16_t sources; /* how many corpora the run has */
  struct plm_fetch_request of;
  uint64_t file_bytes; /* size of the whole file */
};
void plm_file_part_encode(const struct plm_file_part *part, uint8_t head[PLM_FILE_PART_HEAD]);
/* part->of.bytes is the number of bytes that follow. */
plm_status plm_file_part_decode(const void *bytes, size_t size, struct plm_file_part *part,
                                struct plm_error *error);

/* The kinds of REJECT, which are its request id. */
enum plm_reject_kind {
  PLM_REJECT_REFUSED,
  PLM_REJECT_NOT_NEEDED, /* the consumer needs no chunks of this corpus, but another one may */
  PLM_REJECT_FALSE_DATA, /* the packer's data is not what the corpus's fingerprint proves */
};

size_t plm_nack_encode(enum plm_nack_reason reason, const char *text, uint8_t *bytes);
/* text has room for PLM_WIRE_TEXT + 1 bytes. Unprintable bytes become '?'. */
plm_status plm_nack_decode(const void *bytes, size_t size, enum plm_nack_reason *reason, char *text,
                           struct plm_error *error);
void plm_reject_decode(const void *bytes, size_t size, char *text);

#endif
