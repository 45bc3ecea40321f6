/* The head of a run as `join --fetch` sees it: a thread with the real fetch server, which serves
 * small corpora. Errors end the test. */
#ifndef PLM_TESTS_SUPPORT_PEERS_FETCH_HEAD_H
#define PLM_TESTS_SUPPORT_PEERS_FETCH_HEAD_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "common/base/files/file.h"
#include "common/config/config.h"
#include "common/fetch/fetch_server.h"

enum { FETCH_HEAD_CORPORA = 3 };

/* 1: each part that is sent begins with another byte; more: it states this size of the file */
extern atomic_ulong fetch_head_lies;
extern atomic_ulong fetch_head_data_bytes; /* a size of data.mdb that is stated; 0: its own */
extern atomic_long fetch_head_parts;       /* that were sent */

struct fetch_head {
  char folders[FETCH_HEAD_CORPORA][PLM_PATH_SIZE];
  const char *paths[PLM_MAX_SOURCES + 1];
  struct plm_fetch_server *server;
  void *context, *router;
  char bound[256];
  pthread_t thread;
  sem_t ready;
  atomic_bool stop;
};

/* The run has `count` corpora. The third one is not there. More than three are the first two again
 * and again. */
void fetch_head_open(struct fetch_head *head, uint32_t count);
void fetch_head_close(struct fetch_head *head);

#endif
