/* stale_engine.so: the MPI engine, except that one rank sends old values for a checkpoint. It takes
 * the engine's place (PLM_MPI_LIBRARY), loads it, and passes everything on to it.
 *
 *   PLM_STALE_ENGINE   the engine
 *   PLM_STALE_RANK     the rank
 *   PLM_STALE_SEND     N: the Nth thing that it sends to rank 0 in a row, from 0, has the bytes
 * that it had the time before
 *
 * Ranks send things in a row only for a checkpoint, always in the same order. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/collective/collective.h"

static plm_status (*open_engine)(plm_collective_say say, struct plm_collective **collective,
                                 struct plm_error *error);
static void (*start_transfer)(struct plm_collective *collective, struct plm_transfer *transfer);
static struct plm_collective_library library;
static uint32_t stale_rank, stale_send, sent; /* sent: so many in a row */
static void *before, *now;                    /* what was sent there */

static const char *told(const char *variable)
{
  const char *value = getenv(variable);
  if (value != NULL) return value;
  fprintf(stderr, "stale_engine.so: %s is not set\n", variable);
  _exit(1);
}

static void send_old(struct plm_transfer *transfer)
{
  free(before);
  before = now;
  now = malloc(transfer->bytes);
  if (now == NULL) abort();
  memcpy(now, transfer->from, transfer->bytes);
  if (before != NULL) transfer->from = before;
}

static void start(struct plm_collective *collective, struct plm_transfer *transfer)
{
  if (collective->place.rank == stale_rank && transfer->lane == PLM_LANE_STEP) {
    if (transfer->kind == PLM_SEND && sent == stale_send) send_old(transfer);
    sent = transfer->kind == PLM_SEND ? sent + 1 : 0;
  }
  start_transfer(collective, transfer);
}

static plm_status open_stale(plm_collective_say say, struct plm_collective **collective,
                             struct plm_error *error)
{
  const plm_status status = open_engine(say, collective, error);
  if (status != PLM_OK) return status;
  stale_rank = (uint32_t)strtoul(told("PLM_STALE_RANK"), NULL, 10);
  stale_send = (uint32_t)strtoul(told("PLM_STALE_SEND"), NULL, 10);
  start_transfer = (*collective)->start;
  (*collective)->start = start;
  return PLM_OK;
}

__attribute__((visibility("default"))) const struct plm_collective_library *
plm_collective_entry(void)
{
  plm_collective_entry_function entry = NULL;
  void *engine = dlopen(told("PLM_STALE_ENGINE"), RTLD_NOW | RTLD_GLOBAL);
  if (engine != NULL) *(void **)&entry = dlsym(engine, PLM_COLLECTIVE_ENTRY);
  if (entry == NULL) {
    fprintf(stderr, "stale_engine.so: %s\n", dlerror());
    _exit(1);
  }
  library = *entry();
  open_engine = library.open;
  library.open = open_stale;
  return &library;
}
