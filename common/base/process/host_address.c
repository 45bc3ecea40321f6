/* An address comes before an interface, and an interface before a name, as in libzmq. */
#include "common/base/process/host_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static bool is_numeric(const char *host, int family)
{
  unsigned char bytes[sizeof(struct in6_addr)];
  return inet_pton(family, host, bytes) == 1;
}

static bool write_address(const struct sockaddr *address, const char *port, char *numeric)
{
  const bool six = address->sa_family == AF_INET6;
  char host[NI_MAXHOST];
  if (getnameinfo(address, six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in), host,
                  sizeof host, NULL, 0, NI_NUMERICHOST) != 0)
    return false;
  return snprintf(numeric, PLM_HOST_ADDRESS_SIZE, six ? "[%s]%s" : "%s%s", host, port) <
         PLM_HOST_ADDRESS_SIZE;
}

static bool from_interface(const char *name, const char *port, char *numeric)
{
  struct ifaddrs *all;
  bool found = false;
  if (if_nametoindex(name) == 0 || getifaddrs(&all) != 0) return false;
  for (int pass = 0; pass < 2 && !found; pass++)
    for (const struct ifaddrs *one = all; one != NULL && !found; one = one->ifa_next)
      if (one->ifa_addr != NULL && strcmp(one->ifa_name, name) == 0 &&
          one->ifa_addr->sa_family == (pass == 0 ? AF_INET : AF_INET6))
        found = write_address(one->ifa_addr, port, numeric);
  freeifaddrs(all);
  return found;
}

static plm_status from_name(const char *name, const char *port, char *numeric,
                            struct plm_error *error)
{
  struct addrinfo *all, hints = {.ai_socktype = SOCK_STREAM};
  bool found = false;
  const int failed = getaddrinfo(name, NULL, &hints, &all);
  if (failed == 0) {
    for (int pass = 0; pass < 2 && !found; pass++)
      for (const struct addrinfo *one = all; one != NULL && !found; one = one->ai_next)
        if (one->ai_family == (pass == 0 ? AF_INET : AF_INET6))
          found = write_address(one->ai_addr, port, numeric);
    freeaddrinfo(all);
  }
  if (found) return PLM_OK;
  plm_error_set(error, failed == EAI_AGAIN ? PLM_IO : PLM_CONFIG,
                "\"%.200s\" is not an address or a network interface of this host, and does not "
                "resolve: %s",
                name, failed != 0 ? gai_strerror(failed) : "it has no address");
  return plm_error_hint(error, "use 127.0.0.1 (only this host), * (all interfaces), or a name that "
                               "is in /etc/hosts or known to the name server");
}

plm_status plm_host_address(const char *address, char numeric[PLM_HOST_ADDRESS_SIZE],
                            struct plm_error *error)
{
  char host[PLM_HOST_ADDRESS_SIZE];
  const char *port = strrchr(address, ':');
  const size_t length = port != NULL ? (size_t)(port - address) : 0;
  if (port == NULL || strlen(address) >= sizeof host)
    return plm_error_set(error, PLM_CONFIG, "\"%.200s\" is not HOST:PORT", address);
  memcpy(host, address, length);
  host[length] = '\0';
  if (host[0] == '\0') {
    snprintf(numeric, PLM_HOST_ADDRESS_SIZE, "*%s", port);
    return PLM_OK;
  }
  if (strcmp(host, "*") == 0 || host[0] == '[' || is_numeric(host, AF_INET)) {
    snprintf(numeric, PLM_HOST_ADDRESS_SIZE, "%s", address);
    return PLM_OK;
  }
  if (is_numeric(host, AF_INET6)) {
    plm_error_set(error, PLM_CONFIG, "\"%.200s\": an IPv6 address needs brackets", address);
    return plm_error_hint(error, "write [%.100s]%.20s", host, port);
  }
  return from_interface(host, port, numeric) ? PLM_OK : from_name(host, port, numeric, error);
}
