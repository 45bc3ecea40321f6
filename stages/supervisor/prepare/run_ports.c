/* A port is tested by binding and releasing it. */
#include "stages/supervisor/prepare/run_ports.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/process/host_address.h"
#include "common/wire/socket.h"

/* 0, or the errno of binding. */
static int try_bind(const struct addrinfo *address)
{
  const int yes = 1;
  const int descriptor = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return errno;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes); /* as ZeroMQ does */
  const int failed = bind(descriptor, address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno;
  close(descriptor);
  return failed;
}

/* Sets taken or wrong. The system chooses port 0, so its host can be tried too. */
static void look_at_tcp(const char *endpoint, struct plm_run_port *port)
{
  char text[PLM_HOST_ADDRESS_SIZE], *host = text;
  struct plm_error error = {0};
  struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
  if (plm_host_address(endpoint + strlen("tcp://"), text, &error) != PLM_OK) {
    snprintf(port->wrong, sizeof port->wrong, "%.255s", error.what);
    return;
  }
  char *colon = strrchr(text, ':');
  *colon = '\0';
  if (host[0] == '[' && colon > host + 1 && colon[-1] == ']') {
    colon[-1] = '\0';
    host++;
  }
  const char *number = strcmp(colon + 1, "*") == 0 ? "0" : colon + 1;
  const int unknown = getaddrinfo(strcmp(host, "*") == 0 ? NULL : host, number, &hints, &found);
  if (unknown != 0) {
    snprintf(port->wrong, sizeof port->wrong, "%.60s: %s", host, gai_strerror(unknown));
    return;
  }
  const int failed = try_bind(found);
  freeaddrinfo(found);
  port->taken = failed == EADDRINUSE;
  if (failed == EADDRNOTAVAIL)
    snprintf(port->wrong, sizeof port->wrong, "this host does not have the address %.200s", host);
  else if (failed != 0 && !port->taken)
    snprintf(port->wrong, sizeof port->wrong, "%s", strerror(failed));
}

static void look_at(const char *endpoint, struct plm_run_port *port)
{
  if (strncmp(endpoint, "tcp://", 6) != 0) {
    port->taken = plm_port_owner(endpoint, port->owner);
    return;
  }
  look_at_tcp(endpoint, port);
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
    ports[count] = (struct plm_run_port){binds[i].key, binds[i].address, any, false, "", ""};
    look_at(binds[i].address, &ports[count++]);
  }
  if (config->prometheus == NULL) return count;
  char endpoint[300];
  snprintf(endpoint, sizeof endpoint, "tcp://%s%s", config->prometheus[0] == ':' ? "*" : "",
           config->prometheus);
  ports[count] =
      (struct plm_run_port){"metrics.prometheus", config->prometheus, "127.0.0.1:0", false, "", ""};
  look_at(endpoint, &ports[count++]);
  return count;
}
