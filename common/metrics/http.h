/* A page over HTTP/1.1, for programs that scrape metrics. GET is answered with a text made at that
 * moment; each connection serves one request. There is no thread: the caller polls. At most
 * PLM_HTTP_CLIENTS are served at once, and each is disconnected after five seconds, so a slow
 * client delays nobody. */
#ifndef PLM_COMMON_METRICS_HTTP_H
#define PLM_COMMON_METRICS_HTTP_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text/text.h"

enum { PLM_HTTP_CLIENTS = 8, PLM_HTTP_POLLS = 1 + PLM_HTTP_CLIENTS };

struct plm_http;
/* address: HOST:PORT, [IPV6]:PORT or :PORT for all interfaces; for PORT 0 or *, the system chooses.
 * page fills the text of GET /metrics. PLM_USAGE: not an address. PLM_BUSY: the port is in use. */
plm_status plm_http_open(const char *address, void (*page)(void *context, struct plm_text *text),
                         void *context, struct plm_http **http, struct plm_error *error);
/* The address that was bound: HOST:PORT. */
const char *plm_http_address(const struct plm_http *http);
/* Fills the descriptors to poll; unused ones are -1. While no client can be accepted, the listening
 * one is unused, so poll with a timeout. */
void plm_http_fill(const struct plm_http *http, struct pollfd items[PLM_HTTP_POLLS]);
/* Accepts, reads, answers and disconnects without ever blocking. Call it after each poll. */
void plm_http_turn(struct plm_http *http);
void plm_http_close(struct plm_http *http); /* NULL is fine */

#endif
