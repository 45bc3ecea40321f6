/* Who listens on a port: the kernel's table names the socket, /proc the process that holds it. */
#include "stages/port_owner.h"

#include <dirent.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STATE_LISTEN = 10 };

/* The inode of the socket that listens on the port, 0: none. */
static unsigned long listening_inode(unsigned port)
{
  static const char *const tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};
  unsigned long found = 0;
  for (size_t i = 0; i < 2 && found == 0; i++) {
    char line[512];
    FILE *table = fopen(tables[i], "re");
    while (table != NULL && found == 0 && fgets(line, sizeof line, table) != NULL) {
      unsigned local, state;
      unsigned long inode;
      /* sl local:port remote:port state queues timer retransmits uid timeout inode */
      if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*s %*s %lu",
                 &local, &state, &inode) == 3 &&
          local == port && state == STATE_LISTEN) {
        found = inode;
      }
    }
    if (table != NULL) fclose(table);
  }
  return found;
}

static bool holds(const char *pid, const char *wanted)
{
  char folder[300], path[600], target[64];
  bool found = false;
  snprintf(folder, sizeof folder, "/proc/%s/fd", pid);
  DIR *descriptors = opendir(folder);
  if (descriptors == NULL) return false;
  for (const struct dirent *item; !found && (item = readdir(descriptors)) != NULL;) {
    snprintf(path, sizeof path, "%s/%s", folder, item->d_name);
    const ssize_t size = readlink(path, target, sizeof target - 1);
    if (size <= 0) continue;
    target[size] = '\0';
    found = strcmp(target, wanted) == 0;
  }
  closedir(descriptors);
  return found;
}

static void name_owner(unsigned port, char owner[256])
{
  char wanted[64];
  snprintf(owner, 256, "another user's process");
  const unsigned long inode = listening_inode(port);
  if (inode == 0) return;
  snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
  DIR *processes = opendir("/proc");
  for (const struct dirent *item; processes != NULL && (item = readdir(processes)) != NULL;) {
    if (item->d_name[0] < '0' || item->d_name[0] > '9' || !holds(item->d_name, wanted)) continue;
    char path[300], name[64] = "a program";
    snprintf(path, sizeof path, "/proc/%s/comm", item->d_name);
    FILE *file = fopen(path, "re");
    if (file != NULL && fgets(name, sizeof name, file) != NULL) name[strcspn(name, "\n")] = '\0';
    if (file != NULL) fclose(file);
    snprintf(owner, 256, "%s (process %.20s)", name, item->d_name);
    break;
  }
  if (processes != NULL) closedir(processes);
}

bool plm_port_taken(const char *endpoint, char owner[256])
{
  char host[256];
  struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
  if (strncmp(endpoint, "tcp://", 6) != 0) return false;
  snprintf(host, sizeof host, "%s", endpoint + 6);
  char *colon = strrchr(host, ':');
  if (colon == NULL || strcmp(colon, ":*") == 0 || strcmp(colon, ":0") == 0) return false;
  *colon = '\0';
  char *bare = host;
  if (bare[0] == '[' && colon > host + 1 && colon[-1] == ']') {
    colon[-1] = '\0';
    bare++;
  }
  if (getaddrinfo(strcmp(bare, "*") == 0 ? NULL : bare, colon + 1, &hints, &found) != 0) {
    return false; /* a network interface's name: only binding can tell */
  }
  const int descriptor = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  bool taken = false;
  if (descriptor >= 0) {
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes); /* as ZeroMQ does */
    taken = bind(descriptor, found->ai_addr, found->ai_addrlen) != 0 && errno == EADDRINUSE;
    close(descriptor);
  }
  freeaddrinfo(found);
  if (taken) name_owner((unsigned)strtoul(colon + 1, NULL, 10), owner);
  return taken;
}
