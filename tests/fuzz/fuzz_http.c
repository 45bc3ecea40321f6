/* Fuzzes the exporter of metrics: whatever a client sends, it gets one complete answer or none, and
 * the server serves the next client. */
#include "tests/support/harness/fuzz_seed.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/metrics/http.h"

static const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    FUZZ_TEXT("HEAD /metrics?x=1 HTTP/1.0\r\n\r\n"),
    FUZZ_TEXT("GET / HTTP/1.1\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n"),
    FUZZ_TEXT("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"),
    {0},
};

static void page(void *context, struct plm_text *text)
{
  (void)context;
  plm_text_puts(text, "plm_step 1\n");
}

static int connect_to(const char *address)
{
  const int port = atoi(strrchr(address, ':') + 1);
  const struct sockaddr_in to = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  PLM_ASSERT(descriptor >= 0);
  (void)connect(descriptor, (const struct sockaddr *)&to, sizeof to);
  return descriptor;
}

/* Sends the bytes and takes turns until the server has nothing left to do with the client. */
static size_t exchange(struct plm_http *http, const uint8_t *bytes, size_t size, char answer[4096])
{
  size_t sent = 0, got = 0;
  bool closed = false;
  const int client = connect_to(plm_http_address(http));
  for (int turn = 0; turn < 200 && !closed; turn++) {
    if (sent < size) {
      const ssize_t put = send(client, bytes + sent, size - sent, MSG_NOSIGNAL);
      if (put > 0) sent += (size_t)put;
    }
    if (sent == size) shutdown(client, SHUT_WR);
    plm_http_turn(http);
    const ssize_t read_now = recv(client, answer + got, 4095 - got, 0);
    if (read_now > 0) got += (size_t)read_now;
    closed = read_now == 0;
  }
  answer[got] = '\0';
  close(client);
  plm_http_turn(http);
  return got;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  static struct plm_http *http;
  static char answer[4096];
  static const char good[] = "GET /metrics HTTP/1.1\r\n\r\n";
  if (http == NULL) PLM_ASSERT(plm_http_open("127.0.0.1:0", page, NULL, &http, NULL) == PLM_OK);
  if (exchange(http, bytes, size, answer) > 0) {
    PLM_ASSERT(strncmp(answer, "HTTP/1.1 ", 9) == 0);
    PLM_ASSERT(strstr(answer, "\r\n\r\n") != NULL);
  }
  exchange(http, (const uint8_t *)good, sizeof good - 1, answer);
  PLM_ASSERT(strstr(answer, "\r\n\r\nplm_step 1\n") != NULL);
  return 0;
}

#include "tests/support/harness/fuzz_main.h"
