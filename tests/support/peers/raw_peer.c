/* The hand-written client, and what it costs the process that it connects to. */
#include "tests/support/peers/raw_peer.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/status.h"

int raw_peer_connect(const char *endpoint)
{
  struct sockaddr_in address = {.sin_family = AF_INET};
  const char *port = strrchr(endpoint, ':');
  if (port == NULL) return -1;
  address.sin_port = htons((uint16_t)strtoul(port + 1, NULL, 10));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return -1;
  if (connect(descriptor, (struct sockaddr *)&address, sizeof address) == 0) return descriptor;
  close(descriptor);
  return -1;
}

bool raw_peer_send(int descriptor, const void *bytes, size_t size)
{
  const char *at = bytes;
  while (size > 0) {
    const ssize_t sent = send(descriptor, at, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    size -= (size_t)sent;
  }
  return true;
}

static bool receive(int descriptor, void *bytes, size_t size)
{
  char *at = bytes;
  while (size > 0) {
    const ssize_t got = recv(descriptor, at, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    size -= (size_t)got;
  }
  return true;
}

bool raw_peer_send_frame(int descriptor, bool more, const void *bytes, size_t size)
{
  unsigned char head[9] = {(unsigned char)(2 | (more ? 1 : 0))};
  for (int i = 0; i < 8; i++) head[8 - i] = (unsigned char)((uint64_t)size >> (8 * i));
  return raw_peer_send(descriptor, head, sizeof head) && raw_peer_send(descriptor, bytes, size);
}

bool raw_peer_greet_as(int descriptor, size_t size)
{
  static const char properties[] = "\x05READY\x0bSocket-Type\0\0\0\x06"
                                   "DEALER\x08Identity\0\0";
  enum { HEADER = 9, FIXED = sizeof properties - 1 + 2 };
  unsigned char greeting[64] = {0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0, 'N', 'U', 'L', 'L'};
  unsigned char ready[HEADER + FIXED + 1000] = {0x06}, theirs[256]; /* a long command */
  PLM_ASSERT(size <= 1000);
  ready[7] = (unsigned char)((FIXED + size) >> 8);
  ready[8] = (unsigned char)(FIXED + size);
  memcpy(ready + HEADER, properties, sizeof properties - 1);
  ready[HEADER + FIXED - 2] = (unsigned char)(size >> 8);
  ready[HEADER + FIXED - 1] = (unsigned char)size;
  memset(ready + HEADER + FIXED, 'x', size);
  if (!raw_peer_send(descriptor, greeting, sizeof greeting)) return false;
  if (!receive(descriptor, theirs, sizeof greeting)) return false;
  if (!raw_peer_send(descriptor, ready, HEADER + FIXED + size)) return false;
  return receive(descriptor, theirs, 2) && receive(descriptor, theirs + 2, theirs[1]);
}

bool raw_peer_greet(int descriptor)
{
  return raw_peer_greet_as(descriptor, 0);
}

bool raw_peer_hung_up(int descriptor, int timeout_ms)
{
  const int64_t until = plm_clock_ms() + timeout_ms;
  char bytes[65536];
  for (;;) {
    const ssize_t got = recv(descriptor, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return true;
    if (got > 0) continue;
    const int64_t left = until - plm_clock_ms();
    if (left <= 0) return false;
    struct pollfd item = {.fd = descriptor, .events = POLLIN};
    (void)poll(&item, 1, (int)left);
  }
}

pid_t raw_peer_start(void (*body)(void *context), void *context)
{
  const pid_t child = fork();
  if (child != 0) return child;
  struct rlimit limit;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
  }
  body(context);
  _exit(0);
}

void raw_peer_stop(pid_t child)
{
  int status;
  kill(child, SIGKILL);
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
}

size_t raw_peer_resident_bytes(void)
{
  unsigned long all = 0, resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%lu %lu", &all, &resident) != 2) abort();
  fclose(file);
  return resident * (size_t)sysconf(_SC_PAGESIZE);
}

unsigned raw_peer_descriptors(void)
{
  unsigned count = 0;
  DIR *folder = opendir("/proc/self/fd");
  if (folder == NULL) return UINT_MAX;
  while (readdir(folder) != NULL) count++;
  closedir(folder);
  return count - 3; /* ".", ".." and the folder itself */
}
