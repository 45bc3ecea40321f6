/* Trying a port by binding it, and letting it go. */
#include "stages/supervisor/port_taken.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/wire/socket.h"

static bool can_bind(const struct addrinfo *address)
{
  const int yes = 1;
  const int descriptor = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return true;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes); /* as ZeroMQ does */
  const bool free =
      bind(descriptor, address->ai_addr, address->ai_addrlen) == 0 || errno != EADDRINUSE;
  close(descriptor);
  return free;
}

static bool tcp_taken(const char *endpoint)
{
  char text[256], *host = text;
  struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
  snprintf(text, sizeof text, "%s", endpoint + strlen("tcp://"));
  char *colon = strrchr(text, ':');
  if (colon == NULL || strcmp(colon, ":*") == 0 || strcmp(colon, ":0") == 0) return false;
  *colon = '\0';
  if (host[0] == '[' && colon > host + 1 && colon[-1] == ']') {
    colon[-1] = '\0';
    host++;
  }
  if (getaddrinfo(strcmp(host, "*") == 0 ? NULL : host, colon + 1, &hints, &found) != 0) {
    return false; /* the name of a network interface: only ZeroMQ can tell */
  }
  const bool taken = !can_bind(found);
  freeaddrinfo(found);
  return taken;
}

bool plm_port_taken(const char *endpoint, char owner[128])
{
  if (strncmp(endpoint, "tcp://", 6) != 0) return plm_port_owner(endpoint, owner);
  if (!tcp_taken(endpoint)) return false;
  if (!plm_port_owner(endpoint, owner)) snprintf(owner, 128, "another user's process");
  return true;
}
