/* The engine of a group of one. It has no state, so it is one for all threads. */
#include <string.h>

#include "common/collective/collective.h"

static void collective_single_start(struct plm_collective *collective,
                                    struct plm_transfer *transfer)
{
  (void)collective;
  PLM_ASSERT(transfer->kind != PLM_SEND && transfer->kind != PLM_RECEIVE); /* there is no peer */
  if (transfer->kind != PLM_BROADCAST) memcpy(transfer->to, transfer->from, transfer->bytes);
}

static plm_status collective_single_wait(struct plm_collective *collective,
                                         struct plm_transfer *transfer, struct plm_error *error)
{
  (void)collective;
  (void)transfer;
  (void)error;
  return PLM_OK;
}

static void do_nothing(struct plm_collective *collective)
{
  (void)collective;
}

static void collective_single_note(struct plm_collective *collective, const char *phase,
                                   uint64_t step, bool patient)
{
  (void)collective;
  (void)phase;
  (void)step;
  (void)patient;
}

static void set_timeout(struct plm_collective *collective, double seconds)
{
  (void)collective;
  (void)seconds;
}

static void collective_single_fail(struct plm_collective *collective, const struct plm_error *error)
{
  (void)collective;
  (void)error;
}

static int32_t collective_single_speaker(struct plm_collective *collective)
{
  (void)collective;
  return -1;
}

struct plm_collective *plm_collective_single(void)
{
  static struct plm_collective single = {
      .name = "single",
      .place = {.ranks = 1, .group_size = 1, .on_this_host = 1},
      .start = collective_single_start,
      .wait = collective_single_wait,
      .began_elsewhere = do_nothing,
      .ended_elsewhere = do_nothing,
      .note = collective_single_note,
      .set_timeout = set_timeout,
      .fail = collective_single_fail,
      .speaker = collective_single_speaker,
      .close = do_nothing,
  };
  return &single;
}
