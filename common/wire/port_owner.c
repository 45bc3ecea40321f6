/* Who listens on a port: /proc/net has the socket's inode, and /proc/PID/fd its owner. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/wire/socket.h"

/* The columns are "sl local_address rem_address st ... inode"; ports are hexadecimal, and state 0A
 * means listening. */
static unsigned long tcp_inode(const char *table, unsigned port)
{
  FILE *file = fopen(table, "re");
  if (file == NULL) return 0;
  char line[512];
  unsigned long found = 0;
  while (found == 0 && fgets(line, sizeof line, file) != NULL) {
    unsigned local, state;
    unsigned long inode;
    if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*x:%*x %*x:%*x %*x %*d %*d %lu",
               &local, &state, &inode) == 3 &&
        local == port && state == 0x0A)
      found = inode;
  }
  fclose(file);
  return found;
}

/* The columns are "Num RefCount Protocol Flags Type St Inode Path"; flag 0x10000 means listening.
 */
static unsigned long unix_inode(const char *path)
{
  FILE *file = fopen("/proc/net/unix", "re");
  if (file == NULL) return 0;
  char line[512];
  unsigned long found = 0;
  while (found == 0 && fgets(line, sizeof line, file) != NULL) {
    unsigned flags;
    unsigned long inode;
    char name[256];
    if (sscanf(line, "%*[^:]: %*x %*x %x %*x %*x %lu %255s", &flags, &inode, name) == 3 &&
        (flags & 0x10000u) != 0 && strcmp(name, path) == 0)
      found = inode;
  }
  fclose(file);
  return found;
}

static bool port_owner_holds(const char *pid, unsigned long inode)
{
  char path[64], want[64], target[64];
  snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
  snprintf(want, sizeof want, "socket:[%lu]", inode);
  DIR *folder = opendir(path);
  if (folder == NULL) return false;
  bool found = false;
  const struct dirent *entry;
  while (!found && (entry = readdir(folder)) != NULL) {
    char link[96];
    snprintf(link, sizeof link, "%s/%.20s", path, entry->d_name);
    const ssize_t size = readlink(link, target, sizeof target - 1);
    if (size <= 0) continue;
    target[size] = '\0';
    found = strcmp(target, want) == 0;
  }
  closedir(folder);
  return found;
}

static void port_owner_describe(const char *pid, char owner[128])
{
  char path[64], name[64] = "?";
  snprintf(path, sizeof path, "/proc/%.20s/comm", pid);
  FILE *file = fopen(path, "re");
  if (file != NULL) {
    if (fgets(name, sizeof name, file) != NULL) name[strcspn(name, "\n")] = '\0';
    fclose(file);
  }
  snprintf(owner, 128, "pid %.20s (%s)", pid, name);
}

bool plm_port_owner(const char *endpoint, char owner[128])
{
  unsigned long inode = 0;
  if (strncmp(endpoint, "ipc://", 6) == 0) {
    inode = unix_inode(endpoint + 6);
  } else {
    const char *colon = strrchr(endpoint, ':');
    const long port = colon != NULL ? strtol(colon + 1, NULL, 10) : 0;
    if (port <= 0 || port > 65535) return false;
    inode = tcp_inode("/proc/net/tcp", (unsigned)port);
    if (inode == 0) inode = tcp_inode("/proc/net/tcp6", (unsigned)port);
  }
  if (inode == 0) return false;
  DIR *processes = opendir("/proc");
  if (processes == NULL) return false;
  bool found = false;
  const struct dirent *entry;
  while (!found && (entry = readdir(processes)) != NULL) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9' || !port_owner_holds(entry->d_name, inode))
      continue;
    port_owner_describe(entry->d_name, owner);
    found = true;
  }
  closedir(processes);
  return found;
}
