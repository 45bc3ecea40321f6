/* Many hashes at once: BLAKE2b (RFC 7693) of independent messages, one in each lane of the
 * processor's vectors. Private to common/proof. */
#ifndef PLM_COMMON_PROOF_PROOF_LANES_H
#define PLM_COMMON_PROOF_PROOF_LANES_H

#include <stdbool.h>

#include "common/proof/proof_hash.h"

struct proof_task {
  const void *message; /* NULL if size is 0 */
  size_t size;
  uint8_t *out;
};

/* The same as proof_hash with each task, whose outputs have out_bytes bytes. */
void proof_hash_many(enum proof_tag tag, const struct proof_task *tasks, size_t count,
                     size_t out_bytes);

/* From the slowest to the fastest. Processors other than x86-64 have only PROOF_ONE. */
enum proof_lanes { PROOF_ONE, PROOF_AVX2, PROOF_AVX512, PROOF_LANES_FORMS };
/* The same with a given form, for tests. False: the processor does not have it. */
bool proof_hash_many_form(enum proof_lanes form, enum proof_tag tag, const struct proof_task *tasks,
                          size_t count, size_t out_bytes);

#endif
