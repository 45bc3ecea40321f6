/* A page over HTTP/1.1, for whoever scrapes metrics: GET answers with a text made at that moment, a
 * connection serves one request. No thread of its own: the caller polls. At most PLM_HTTP_CLIENTS
 * at once, each for five seconds; a slow or rude one is hung up, nobody waits for it. */
#ifndef PLM_COMMON_METRICS_HTTP_H
#define PLM_COMMON_METRICS_HTTP_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text.h"

enum { PLM_HTTP_CLIENTS = 8, PLM_HTTP_POLLS = 1 + PLM_HTTP_CLIENTS };

struct plm_http;
/* address: HOST:PORT, [IPV6]:PORT or :PORT for all interfaces; PORT 0 or * is the system's choice.
 * page fills the text of GET /metrics. PLM_USAGE for an address that is none, PLM_BUSY when the
 * port is taken (by whom). The caller closes. */
plm_status plm_http_open(const char *address, void (*page)(void *context, struct plm_text *text),
                         void *context, struct plm_http **http, struct plm_error *error);
/* What was bound: HOST:PORT. */
const char *plm_http_address(const struct plm_http *http);
/* Descriptors to poll, PLM_HTTP_POLLS of them; unused ones are -1. */
void plm_http_fill(const struct plm_http *http, struct pollfd items[PLM_HTTP_POLLS]);
/* Accepts, reads, answers and hangs up; never blocks. Call after each poll. */
void plm_http_turn(struct plm_http *http);
void plm_http_close(struct plm_http *http); /* NULL is fine */

#endif
