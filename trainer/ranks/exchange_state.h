/* An exchange, as its two files see it: gradient_exchange.c, and bucket_pipeline.c, which moves the
 * messages. */
#ifndef PLM_TRAINER_RANKS_EXCHANGE_STATE_H
#define PLM_TRAINER_RANKS_EXCHANGE_STATE_H

#include "trainer/ranks/gradient_exchange.h"

/* A bucket on its way takes a slot for both transfers. While the one before it makes its second
 * transfer, a bucket makes its first, so two slots suffice. */
enum { EXCHANGE_SLOTS = 2 };

/* A message, for the profile: number n of its kind in a step. */
struct exchange_label {
  const char *what;
  size_t n;
};

struct exchange_slot {
  float *packed, *received; /* device, in exchange->messages: slices of all owners */
  struct plm_transfer transfer;
  bool moving;  /* the transfer was started and not yet waited for */
  bool rounded; /* what it moves is bf16, from received to packed */
  struct exchange_label label;
  uint64_t started_ns;
};

/* A part of the last micro-batch's backward pass. */
struct exchange_part {
  struct plm_backward_part blocks;
  size_t buckets; /* that are final after it */
};

struct plm_exchange {
  struct plm_ranks *ranks;
  struct plm_ops *ops;
  struct plm_model *model;
  const struct plm_parameter *table;
  size_t parameters;
  const uint32_t *owners;
  uint32_t local_shares;
  uint32_t group_size, groups; /* ranks of a group; number of groups */
  bool rounds;                 /* gradients are bf16 in their first transfer */
  struct plm_buckets buckets;
  struct exchange_part *parts;
  uint32_t part_count;
  float *messages; /* device */
  struct exchange_slot slots[EXCHANGE_SLOTS];
  struct plm_profile *profile; /* NULL: none */
  size_t started;              /* buckets whose first transfer was started */
  /* Numbers of this rank and of all: losses of the shares, squared norms of the parameters, hits,
   * flops and seconds. */
  double *mine, *all; /* host */
  double *squares;    /* device (parameters) */
  struct plm_array *gradients;
};

/* Starts the exchange of the next bucket of gradients, in the order of the backward pass, or of
 * weights, in the order of the forward pass. Moves the two buckets before it on. */
plm_status exchange_next_gradients(struct plm_exchange *exchange, struct plm_error *error);
plm_status exchange_next_weights(struct plm_exchange *exchange, struct plm_error *error);
/* Ends the exchange of all started buckets. */
plm_status exchange_end_gradients(struct plm_exchange *exchange, struct plm_error *error);
plm_status exchange_end_weights(struct plm_exchange *exchange, struct plm_error *error);
/* Sums the gradients of the parameters that all ranks update. */
plm_status exchange_small_gradients(struct plm_exchange *exchange, struct plm_error *error);

#endif
