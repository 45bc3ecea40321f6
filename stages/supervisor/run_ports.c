/* A port is tested by binding and releasing it. */
#include "stages/supervisor/run_ports.h"

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
    return false; /* the name of a network interface, which only ZeroMQ understands */
  }
  const bool taken = !can_bind(found);
  freeaddrinfo(found);
  return taken;
}

static void look_at(const char *endpoint, struct plm_run_port *port)
{
  if (strncmp(endpoint, "tcp://", 6) != 0) {
    port->taken = plm_port_owner(endpoint, port->owner);
    return;
  }
  port->taken = tcp_taken(endpoint);
  if (port->taken && !plm_port_owner(endpoint, port->owner))
    snprintf(port->owner, sizeof port->owner, "another user's process");
}

size_t plm_run_ports(const struct plm_config *config, const bool chosen[PLM_KIND_COUNT],
                     struct plm_run_port ports[PLM_RUN_PORTS])
{
  static const char any[] = "tcp://127.0.0.1:*";
  const struct plm_config_network *network = &config->network;
  const struct {
    enum plm_stage_index kind;
    const char *key, *address;
  } binds[] = {{PLM_KIND_TRAINER, "network.feed", network->feed},
               {PLM_KIND_TRAINER, "network.announcements", network->announcements},
               {PLM_KIND_EVALUATOR, "network.evaluation_feed", network->evaluation_feed}};
  size_t count = 0;
  for (size_t i = 0; i < sizeof binds / sizeof binds[0]; i++) {
    if (!chosen[binds[i].kind]) continue;
    ports[count] = (struct plm_run_port){binds[i].key, binds[i].address, any, false, ""};
    look_at(binds[i].address, &ports[count++]);
  }
  if (config->prometheus == NULL) return count;
  char endpoint[300];
  snprintf(endpoint, sizeof endpoint, "tcp://%s%s", config->prometheus[0] == ':' ? "*" : "",
           config->prometheus);
  ports[count] =
      (struct plm_run_port){"metrics.prometheus", config->prometheus, "127.0.0.1:0", false, ""};
  look_at(endpoint, &ports[count++]);
  return count;
}
