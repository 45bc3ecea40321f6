/* XXH3 hashes, of bytes, streams and files. As text, a 128-bit hash is 32 lower-case hex digits in
 * the canonical (big-endian) order that `xxhsum -H2` prints. */
#ifndef PLM_COMMON_BASE_NUMBERS_HASH_H
#define PLM_COMMON_BASE_NUMBERS_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/files/advance.h"
#include "common/base/status.h"

#define PLM_HASH_HEX_SIZE 33 /* 32 digits and the NUL */

struct plm_hash {
  uint64_t low, high;
};

/* The state of a stream. _open never returns NULL. */
struct plm_hasher;
struct plm_hasher *plm_hasher_open(void);
void plm_hasher_reset(struct plm_hasher *hasher);
void plm_hasher_update(struct plm_hasher *hasher, const void *bytes, size_t size);
struct plm_hash plm_hasher_digest(const struct plm_hasher *hasher);
void plm_hasher_close(struct plm_hasher *hasher); /* NULL is fine */

struct plm_hash plm_hash_bytes(const void *bytes, size_t size);
uint64_t plm_hash64_bytes(const void *bytes, size_t size); /* XXH3-64 */
uint32_t plm_hash32_name(const char *name);                /* XXH32(name, seed 0) */
bool plm_hash_equal(struct plm_hash a, struct plm_hash b);
/* Whether it is not zero, which stands for a hash that is not known. */
bool plm_hash_known(struct plm_hash hash);

void plm_hash_to_hex(struct plm_hash hash, char hex[PLM_HASH_HEX_SIZE]);
/* PLM_FORMAT if hex is not exactly 32 lower-case hex digits. */
plm_status plm_hash_from_hex(const char *hex, struct plm_hash *hash, struct plm_error *error);

/* Hash and size (size_bytes may be NULL) of a file, which is read in parts of bounded size. Of a
 * large file, up to four threads (no more than processors) read parts ahead. advance (may be NULL):
 * told of each part, in the calling thread; the caller has begun it. */
plm_status plm_hash_file(const char *path, struct plm_hash *hash, uint64_t *size_bytes,
                         struct plm_advance *advance, struct plm_error *error);

#endif
