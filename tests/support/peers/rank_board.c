/* See rank_board.h. */
#include "tests/support/peers/rank_board.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/harness/must.h"

enum { SCOPES = 3, MOST_MAILS = 200 };

struct mail {
  enum plm_transfer_kind kind;
  size_t bytes;
  char *data; /* what was sent, all slices */
};

static struct board {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  struct mail mails[RANK_BOARD_RANKS][SCOPES][MOST_MAILS];
  size_t count[RANK_BOARD_RANKS][SCOPES];
  uint64_t sent[RANK_BOARD_RANKS][SCOPES]; /* bytes, to other ranks */
} board = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* The ranks of a scope: how many there are, and member i. */
static uint32_t scope_size(const struct plm_rank_place *place, enum plm_scope scope)
{
  if (scope == PLM_SCOPE_GROUP) return place->group_size;
  return scope == PLM_SCOPE_RAIL ? place->ranks / place->group_size : place->ranks;
}

static uint32_t member(const struct plm_rank_place *place, enum plm_scope scope, uint32_t i)
{
  if (scope == PLM_SCOPE_GROUP) return place->rank / place->group_size * place->group_size + i;
  return scope == PLM_SCOPE_RAIL ? i * place->group_size + place->rank % place->group_size : i;
}

static size_t sent_slices(const struct plm_rank_place *place, const struct plm_transfer *transfer)
{
  return transfer->kind == PLM_ALL_TO_ALL ? scope_size(place, transfer->scope) : 1;
}

void rank_board_post(const struct plm_rank_place *place, struct plm_transfer *transfer)
{
  const uint32_t size = scope_size(place, transfer->scope);
  const size_t bytes = sent_slices(place, transfer) * transfer->bytes;
  struct mail mail = {transfer->kind, transfer->bytes, must(malloc(bytes + 1))};
  PLM_ASSERT(transfer->lane == PLM_LANE_STEP);
  memcpy(mail.data, transfer->from, bytes);
  memset(transfer->to, 0xff, size * transfer->bytes);
  pthread_mutex_lock(&board.mutex);
  transfer->moved = board.count[place->rank][transfer->scope]++;
  PLM_ASSERT(transfer->moved < MOST_MAILS);
  board.mails[place->rank][transfer->scope][transfer->moved] = mail;
  board.sent[place->rank][transfer->scope] += (size - 1) * transfer->bytes;
  pthread_cond_broadcast(&board.changed);
  pthread_mutex_unlock(&board.mutex);
}

void rank_board_take(const struct plm_rank_place *place, struct plm_transfer *transfer)
{
  const uint32_t size = scope_size(place, transfer->scope);
  const size_t bytes = transfer->bytes, number = transfer->moved;
  pthread_mutex_lock(&board.mutex);
  for (uint32_t i = 0; i < size; i++) {
    const uint32_t from = member(place, transfer->scope, i);
    while (board.count[from][transfer->scope] <= number)
      pthread_cond_wait(&board.changed, &board.mutex);
    const struct mail *mail = &board.mails[from][transfer->scope][number];
    PLM_ASSERT(mail->kind == transfer->kind && mail->bytes == bytes);
    uint32_t slice = 0;
    for (uint32_t j = 0; j < size && transfer->kind == PLM_ALL_TO_ALL; j++)
      if (member(place, transfer->scope, j) == place->rank) slice = j;
    if (from == place->rank) /* nothing has written to it */
      PLM_ASSERT(memcmp(mail->data, transfer->from, sent_slices(place, transfer) * bytes) == 0);
    memcpy((char *)transfer->to + i * bytes, mail->data + slice * bytes, bytes);
  }
  pthread_mutex_unlock(&board.mutex);
}

void rank_board_start(struct plm_collective *collective, struct plm_transfer *transfer)
{
  rank_board_post(&collective->place, transfer);
}

plm_status rank_board_wait(struct plm_collective *collective, struct plm_transfer *transfer,
                           struct plm_error *error)
{
  (void)error;
  rank_board_take(&collective->place, transfer);
  return PLM_OK;
}

uint64_t rank_board_sent(uint32_t rank, enum plm_scope scope)
{
  return board.sent[rank][scope];
}

void rank_board_clear(void)
{
  for (uint32_t r = 0; r < RANK_BOARD_RANKS; r++)
    for (int s = 0; s < SCOPES; s++)
      for (size_t i = 0; i < board.count[r][s]; i++) free(board.mails[r][s][i].data);
  memset(board.count, 0, sizeof board.count);
  memset(board.sent, 0, sizeof board.sent);
}
