/* The small part of HTTP that a scraper needs. */
#include "common/metrics/http.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/process/host_address.h"

enum { REQUEST_SIZE = 4096, DEADLINE_MS = 5000, PAUSE_MS = 1000, BACKLOG = 8 };

/* A connection. Its request is read and the answer sent; then it is read until the other side
 * closes it, because closing it first could make the kernel discard the answer. */
struct http_client {
  int descriptor; /* -1: free */
  size_t used;
  char request[REQUEST_SIZE];
  struct plm_text answer;
  size_t sent;
  bool answered;
  int64_t deadline_ms;
};

struct plm_http {
  int descriptor;
  int64_t accept_at_ms; /* after a failure: the time of the next attempt */
  char address[300];
  void (*page)(void *context, struct plm_text *text);
  void *context;
  struct http_client clients[PLM_HTTP_CLIENTS];
};

/* ---- listening ----------------------------------------------------------------------------- */

static plm_status look_up(const char *address, struct addrinfo **found, struct plm_error *error)
{
  char text[PLM_HOST_ADDRESS_SIZE], *host = text;
  const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
  if (plm_host_address(address, text, error) != PLM_OK) goto wrong;
  char *colon = strrchr(text, ':');
  *colon = '\0';
  if (colon[-1] == ']') { /* only what begins with [ may end so */
    colon[-1] = '\0';
    host++;
  }
  const char *port = strcmp(colon + 1, "*") == 0 ? "0" : colon + 1;
  char *end; /* getaddrinfo accepts any number and uses its lowest 16 bits */
  if (port[0] < '0' || port[0] > '9' || strtoul(port, &end, 10) > 65535 || *end != '\0') goto wrong;
  const bool everywhere = host[0] == '\0' || strcmp(host, "*") == 0;
  if (getaddrinfo(everywhere ? NULL : host, port, &hints, found) == 0) return PLM_OK;
wrong:
  plm_error_set(error, PLM_USAGE, "cannot serve metrics on \"%.200s\", which is not an address",
                address);
  return plm_error_hint(error, "use HOST:PORT, for example 127.0.0.1:9464");
}

static plm_status listen_on(const char *address, const struct addrinfo *found, int *descriptor,
                            struct plm_error *error)
{
  const int yes = 1;
  const int made = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) return plm_error_errno(error, "%s", address);
  setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(made, found->ai_addr, found->ai_addrlen) == 0 && listen(made, BACKLOG) == 0) {
    *descriptor = made;
    return PLM_OK;
  }
  plm_status status;
  if (errno == EADDRINUSE) {
    plm_error_set(error, PLM_BUSY, "cannot serve metrics on %s: the port is in use", address);
    status = plm_error_hint(error, "choose another port, or 0 to let the system choose");
  } else {
    status = plm_error_errno(error, "cannot serve metrics on %s", address);
  }
  close(made);
  return status;
}

static void name_address(struct plm_http *http)
{
  struct sockaddr_storage bound;
  socklen_t size = sizeof bound;
  char host[256] = "?", port[32] = "?";
  getsockname(http->descriptor, (struct sockaddr *)&bound, &size);
  getnameinfo((struct sockaddr *)&bound, size, host, sizeof host, port, sizeof port,
              NI_NUMERICHOST | NI_NUMERICSERV);
  const bool v6 = strchr(host, ':') != NULL;
  snprintf(http->address, sizeof http->address, v6 ? "[%s]:%s" : "%s:%s", host, port);
}

plm_status plm_http_open(const char *address, void (*page)(void *context, struct plm_text *text),
                         void *context, struct plm_http **http, struct plm_error *error)
{
  struct addrinfo *found;
  PLM_TRY(look_up(address, &found, error));
  struct plm_http *made = plm_alloc_zeroed(1, sizeof *made);
  const plm_status status = listen_on(address, found, &made->descriptor, error);
  freeaddrinfo(found);
  if (status != PLM_OK) {
    free(made);
    return status;
  }
  made->page = page;
  made->context = context;
  for (size_t i = 0; i < PLM_HTTP_CLIENTS; i++) made->clients[i].descriptor = -1;
  name_address(made);
  *http = made;
  return PLM_OK;
}

const char *plm_http_address(const struct plm_http *http)
{
  return http->address;
}

/* ---- clients ------------------------------------------------------------------------------- */

static void hang_up(struct http_client *client)
{
  close(client->descriptor);
  client->descriptor = -1;
  plm_text_deinit(&client->answer);
}

static void accept_all(struct plm_http *http)
{
  for (size_t i = 0; i < PLM_HTTP_CLIENTS; i++) {
    struct http_client *client = &http->clients[i];
    if (client->descriptor >= 0) continue;
    const int descriptor = accept4(http->descriptor, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (descriptor < 0) {
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
        http->accept_at_ms = plm_clock_ms() + PAUSE_MS; /* no descriptors, or no memory */
      return;
    }
    client->descriptor = descriptor;
    client->used = client->sent = 0;
    client->answered = false;
    client->answer = (struct plm_text){0};
    client->deadline_ms = plm_clock_ms() + DEADLINE_MS;
  }
}

static void http_compose(struct plm_http *http, struct http_client *client)
{
  static const char prometheus[] = "text/plain; version=0.0.4; charset=utf-8";
  const char *status = "200 OK", *type = prometheus;
  struct plm_text body = {0};
  const bool head = strncmp(client->request, "HEAD ", 5) == 0;
  const char *path = client->request + (head ? 5 : 4);
  const size_t length = strcspn(path, " ?\r\n");
  if (!head && strncmp(client->request, "GET ", 4) != 0) {
    status = "405 Method Not Allowed";
    type = "text/plain";
    plm_text_puts(&body, "GET /metrics\n");
  } else if (length == 8 && strncmp(path, "/metrics", 8) == 0) {
    http->page(http->context, &body);
  } else {
    status = "404 Not Found";
    type = "text/plain";
    plm_text_puts(&body, "the metrics are at /metrics\n");
  }
  plm_text_printf(&client->answer,
                  "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                  "Connection: close\r\n\r\n",
                  status, type, body.length);
  if (!head) plm_text_append(&client->answer, body.data, body.length);
  plm_text_deinit(&body);
  client->answered = true;
}

/* Returns false if the connection is to be closed. */
static bool read_request(struct plm_http *http, struct http_client *client)
{
  if (client->answered) client->used = 0; /* only the end of the stream is of interest */
  char *room = client->request + client->used;
  const ssize_t size = read(client->descriptor, room, REQUEST_SIZE - 1 - client->used);
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  if (size == 0) return false;
  if (client->answered) return true;
  client->used += (size_t)size;
  client->request[client->used] = '\0';
  if (strstr(client->request, "\r\n\r\n") != NULL) {
    http_compose(http, client);
    return true;
  }
  return client->used < REQUEST_SIZE - 1;
}

static bool send_answer(struct http_client *client)
{
  while (client->sent < client->answer.length) {
    const ssize_t size = send(client->descriptor, client->answer.data + client->sent,
                              client->answer.length - client->sent, MSG_NOSIGNAL);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    client->sent += (size_t)size;
    if (client->sent == client->answer.length) shutdown(client->descriptor, SHUT_WR);
  }
  return true;
}

/* Otherwise the connections that wait to be accepted would end each poll at once. */
static bool can_accept(const struct plm_http *http)
{
  if (plm_clock_ms() < http->accept_at_ms) return false;
  for (size_t i = 0; i < PLM_HTTP_CLIENTS; i++)
    if (http->clients[i].descriptor < 0) return true;
  return false;
}

void plm_http_fill(const struct plm_http *http, struct pollfd items[PLM_HTTP_POLLS])
{
  items[0] = (struct pollfd){.fd = can_accept(http) ? http->descriptor : -1, .events = POLLIN};
  for (size_t i = 0; i < PLM_HTTP_CLIENTS; i++) {
    const struct http_client *client = &http->clients[i];
    const bool sending = client->sent < client->answer.length;
    items[1 + i] = (struct pollfd){.fd = client->descriptor,
                                   .events = (short)(sending ? POLLIN | POLLOUT : POLLIN)};
  }
}

void plm_http_turn(struct plm_http *http)
{
  accept_all(http);
  const int64_t now_ms = plm_clock_ms();
  for (size_t i = 0; i < PLM_HTTP_CLIENTS; i++) {
    struct http_client *client = &http->clients[i];
    if (client->descriptor < 0) continue;
    const bool lives = now_ms < client->deadline_ms && read_request(http, client);
    if (!lives || !send_answer(client)) hang_up(client);
  }
}

void plm_http_close(struct plm_http *http)
{
  if (http == NULL) return;
  for (size_t i = 0; i < PLM_HTTP_CLIENTS; i++) {
    if (http->clients[i].descriptor >= 0) hang_up(&http->clients[i]);
  }
  close(http->descriptor);
  free(http);
}
