/* See fake_collective.h. */
#include "tests/support/peers/fake_collective.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/harness/must.h"

static struct fake_collective *fake_of(struct plm_collective *collective)
{
  return (struct fake_collective *)collective;
}

static const char *kind_of(const struct plm_transfer *transfer)
{
  static const char *const names[] = {[PLM_ALL_TO_ALL] = "all to all",
                                      [PLM_ALL_GATHER] = "gather",
                                      [PLM_BROADCAST] = "broadcast",
                                      [PLM_SEND] = "send",
                                      [PLM_RECEIVE] = "receive"};
  return names[transfer->kind];
}

static void start(struct plm_collective *collective, struct plm_transfer *transfer)
{
  static const char *const scopes[] = {"", " in group", " on rail"};
  struct fake_collective *fake = fake_of(collective);
  const bool names_peer = transfer->kind == PLM_SEND || transfer->kind == PLM_RECEIVE;
  plm_text_printf(&fake->told, "%s%s of %zu on lane %d", kind_of(transfer), scopes[transfer->scope],
                  transfer->bytes, (int)transfer->lane);
  if (names_peer) plm_text_printf(&fake->told, ", rank %u", transfer->peer);
  plm_text_puts(&fake->told, "\n");
}

static void keep(struct fake_collective *fake, const void *data, size_t bytes)
{
  PLM_ASSERT(fake->sent_count < FAKE_MESSAGES);
  fake->sent[fake->sent_count].data = must(malloc(bytes + 1));
  fake->sent[fake->sent_count].bytes = bytes;
  memcpy(fake->sent[fake->sent_count++].data, data, bytes);
}

static void gather(struct fake_collective *fake, const struct plm_transfer *transfer)
{
  const struct plm_rank_place *place = &fake->base.place;
  const size_t bytes = transfer->bytes;
  const uint32_t size = place->group_size;
  uint32_t count = place->ranks, mine = place->rank;
  if (transfer->scope == PLM_SCOPE_GROUP) count = size, mine = place->rank % size;
  if (transfer->scope == PLM_SCOPE_RAIL) count = place->ranks / size, mine = place->rank / size;
  char *to = transfer->to;
  for (uint32_t i = 0; i < count; i++) {
    const char *slice =
        fake->answers != NULL ? (const char *)fake->answers + i * bytes : transfer->from;
    if (i == mine)
      slice = (const char *)transfer->from + (transfer->kind == PLM_ALL_TO_ALL ? i * bytes : 0);
    memcpy(to + i * bytes, slice, bytes);
  }
}

static plm_status wait(struct plm_collective *collective, struct plm_transfer *transfer,
                       struct plm_error *error)
{
  struct fake_collective *fake = fake_of(collective);
  const bool first = collective->place.rank == 0;
  if (fake->wait_fails != PLM_OK)
    return plm_error_set(error, fake->wait_fails, "the exchange has failed");
  if (transfer->kind == PLM_ALL_GATHER) keep(fake, transfer->from, transfer->bytes);
  if (transfer->kind == PLM_ALL_GATHER || transfer->kind == PLM_ALL_TO_ALL) {
    gather(fake, transfer);
  } else if (transfer->kind == PLM_SEND || (transfer->kind == PLM_BROADCAST && first)) {
    keep(fake, first && transfer->kind == PLM_BROADCAST ? transfer->to : transfer->from,
         transfer->bytes);
  } else {
    PLM_ASSERT(fake->received < fake->sent_count);
    PLM_ASSERT(fake->sent[fake->received].bytes == transfer->bytes);
    memcpy(transfer->to, fake->sent[fake->received++].data, transfer->bytes);
  }
  return PLM_OK;
}

static void note(struct plm_collective *collective, const char *phase, uint64_t step, bool patient)
{
  plm_text_printf(&fake_of(collective)->told, "note %s, step %llu%s\n", phase,
                  (unsigned long long)step, patient ? ", patient" : "");
}

static void set_timeout(struct plm_collective *collective, double seconds)
{
  plm_text_printf(&fake_of(collective)->told, "timeout %g\n", seconds);
}

static void fail(struct plm_collective *collective, const struct plm_error *error)
{
  plm_text_printf(&fake_of(collective)->told, "fail: %s (%s) [%s]\n", error->what, error->where,
                  plm_status_text(error->status));
}

static int32_t speaker(struct plm_collective *collective)
{
  return fake_of(collective)->failed_by;
}

static void close_fake(struct plm_collective *collective)
{
  plm_text_puts(&fake_of(collective)->told, "close\n");
}

void fake_collective_init(struct fake_collective *fake, uint32_t rank, uint32_t ranks)
{
  *fake = (struct fake_collective){.base = {.name = "fake",
                                            .place = {.rank = rank,
                                                      .ranks = ranks,
                                                      .group_size = ranks,
                                                      .local = rank,
                                                      .on_this_host = ranks,
                                                      .host = "here"},
                                            .start = start,
                                            .wait = wait,
                                            .note = note,
                                            .set_timeout = set_timeout,
                                            .fail = fail,
                                            .speaker = speaker,
                                            .close = close_fake},
                                   .failed_by = -1};
}

const char *fake_collective_told(struct fake_collective *fake)
{
  plm_text_deinit(&fake->taken);
  fake->taken = fake->told;
  fake->told = (struct plm_text){0};
  return fake->taken.length > 0 ? fake->taken.data : "";
}

void fake_collective_deinit(struct fake_collective *fake)
{
  for (size_t i = 0; i < fake->sent_count; i++) free(fake->sent[i].data);
  plm_text_deinit(&fake->told);
  plm_text_deinit(&fake->taken);
}
