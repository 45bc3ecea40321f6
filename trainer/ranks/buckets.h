/* How gradients and weights lie in the messages of an exchange.
 *
 * Parameters with an owner are divided into buckets: runs of parameters in the order in which the
 * backward pass finishes them, each as short as possible while what its owners receive is balanced
 * (the largest part at most 1.25 times the mean). In a message, every owner has a slice of the same
 * size, with its parameters one after another: their gradients, in fp32, or what passes read of
 * them (plm_model_used). */
#ifndef PLM_TRAINER_RANKS_BUCKETS_H
#define PLM_TRAINER_RANKS_BUCKETS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/model/model.h"

struct plm_bucket_entry {
  size_t parameter;
  uint32_t owner;
  size_t offset;      /* elements, in the owner's slice of gradients */
  size_t used_offset; /* bytes, in its slice of weights */
};

struct plm_bucket {
  size_t first, count; /* entries */
  size_t slice;        /* elements of gradients for each owner; a multiple of 32 */
  size_t used_slice;   /* bytes of weights for each owner; a multiple of 64, at most 4 * slice */
  uint32_t final_at;   /* block of the backward pass after which all its gradients are final */
};

struct plm_buckets {
  struct plm_bucket_entry *entries; /* owned parameters, then those that all ranks update */
  struct plm_bucket *buckets;
  size_t count;
  struct plm_bucket small; /* the parameters that all ranks update */
  size_t largest_slice;
};

struct plm_bucket_request {
  const struct plm_parameter *table; /* (count) */
  size_t count;
  const uint32_t *owners; /* (count) */
  uint32_t ranks;
  size_t act_bytes; /* of the weights as used */
};
void plm_buckets_init(struct plm_buckets *buckets, const struct plm_bucket_request *request);
void plm_buckets_deinit(struct plm_buckets *buckets);

#endif
