/* Listens on the control socket of a run. */
#include "tests/support/cases/answering_supervisor.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stages/supervisor/control/supervisor_socket.h"
#include "tests/support/harness/must.h"

enum { LIMIT_MS = 60000 };

static struct {
  char path[PLM_SOCKET_PATH_SIZE], request[1024];
  const char *reply;
  int listener, requests;
  pthread_t thread;
} answering;

static void answer_client(int client)
{
  size_t used = 0;
  char *request = answering.request;
  while (used < sizeof answering.request - 1 && (used == 0 || request[used - 1] != '\n')) {
    const ssize_t size = read(client, request + used, sizeof answering.request - 1 - used);
    if (size <= 0) break;
    used += (size_t)size;
  }
  request[used > 0 ? used - 1 : 0] = '\0';
  if (write(client, answering.reply, strlen(answering.reply)) < 0 || write(client, "\n", 1) != 1)
    perror("answer");
  close(client);
}

static void *answer(void *nothing)
{
  struct pollfd item = {.fd = answering.listener, .events = POLLIN};
  (void)nothing;
  for (int left = answering.requests; left > 0; left--) {
    if (poll(&item, 1, LIMIT_MS) != 1) break; /* nothing was asked */
    const int client = accept(item.fd, NULL, NULL);
    if (left == 1) close(item.fd); /* before the answer: nobody answers another request */
    answer_client(client);
    if (left == 1) return NULL;
  }
  close(item.fd);
  return NULL;
}

void answering_begin(const char *run, const char *reply, int requests)
{
  struct plm_error error = {0};
  must_work(plm_socket_path(run, answering.path, &error), &error);
  must_work(plm_socket_listen(answering.path, &answering.listener, &error), &error);
  answering.reply = reply;
  answering.requests = requests;
  answering.request[0] = '\0';
  PLM_ASSERT(pthread_create(&answering.thread, NULL, answer, NULL) == 0);
}

const char *answering_end(void)
{
  pthread_join(answering.thread, NULL);
  unlink(answering.path);
  return answering.request;
}
