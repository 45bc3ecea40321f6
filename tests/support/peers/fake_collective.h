/* A collective of one process. It writes down what is asked of it, and answers what the test says
 * the other ranks have sent. Nothing waits. */
#ifndef PLM_TESTS_SUPPORT_PEERS_FAKE_COLLECTIVE_H
#define PLM_TESTS_SUPPORT_PEERS_FAKE_COLLECTIVE_H

#include "common/base/text/text.h"
#include "common/collective/collective.h"

enum { FAKE_MESSAGES = 128 };

struct fake_collective {
  struct plm_collective base;
  struct plm_text told, taken; /* a line for each call, except waits */
  /* PLM_ALL_GATHER and PLM_ALL_TO_ALL: what rank i of the scope sends is at `answers` + i * bytes,
   * but this rank's slice is its own. NULL: the others send this rank's first slice. */
  const void *answers;
  /* Of PLM_SEND, PLM_ALL_GATHER and rank 0's PLM_BROADCAST: copies of what was sent, in order. Of
   * PLM_RECEIVE and the other PLM_BROADCAST: they are received in order, from `received` on. */
  struct {
    void *data;
    size_t bytes;
  } sent[FAKE_MESSAGES];
  size_t sent_count, received;
  int32_t failed_by;     /* what `speaker` says */
  plm_status wait_fails; /* else PLM_OK */
};

/* A group of all ranks, on host "here". */
void fake_collective_init(struct fake_collective *fake, uint32_t rank, uint32_t ranks);
/* What was told since the last call of this function; "" if nothing was. Valid until the next call.
 */
const char *fake_collective_told(struct fake_collective *fake);
void fake_collective_deinit(struct fake_collective *fake);

#endif
