/* packer/packer_exporter: the whole page of a packer, and how its rate is measured. */
#include "packer/packer_exporter.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"

static int port; /* of the exporter */

static struct packer_exporter *open_exporter(const char *run)
{
  struct packer_exporter *exporter;
  captured_begin(STDERR_FILENO);
  const plm_status status = packer_exporter_open("127.0.0.1:0", run, &exporter, NULL);
  const char *said = captured_end();
  assert_int_equal(status, PLM_OK);
  assert_int_equal(sscanf(said, "test: metrics at http://127.0.0.1:%d/metrics\n", &port), 1);
  return exporter;
}

/* The page after a tick at `now`, without comments. */
static const char *page_at(struct packer_exporter *exporter,
                           const struct plm_packer_counters *counters, int64_t now)
{
  static const char request[] = "GET /metrics HTTP/1.0\r\n\r\n";
  static char text[16384], lines[16384];
  const struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_port = htons((uint16_t)port),
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int64_t until = plm_clock_ms() + 60000;
  size_t size = 0;
  assert_int_equal(connect(client, (const struct sockaddr *)&address, sizeof address), 0);
  assert_int_equal(send(client, request, sizeof request - 1, 0), sizeof request - 1);
  for (ssize_t got = -1; got != 0;) {
    if (plm_clock_ms() > until) fail_msg("no answer within a minute");
    packer_exporter_tick(exporter, counters, now);
    got = recv(client, text + size, sizeof text - 1 - size, MSG_DONTWAIT);
    if (got > 0) size += (size_t)got;
  }
  close(client);
  text[size] = '\0';
  char *body = strstr(text, "\r\n\r\n");
  assert_non_null(body);
  lines[0] = '\0';
  for (char *line = strtok(body, "\r\n"); line != NULL; line = strtok(NULL, "\r\n"))
    if (line[0] != '#') strcat(strcat(lines, line), "\n");
  return lines;
}

enum { LINES = 7 };

/* values: of ready, windows, documents, tokens, tokens a second, padding and queue. */
static void expect(struct packer_exporter *exporter, const struct plm_packer_counters *counters,
                   const char *run, const char *const values[LINES])
{
  static const char *const names[LINES] = {"ready",        "windows_total",     "documents_total",
                                           "tokens_total", "tokens_per_second", "padding_fraction",
                                           "queue"};
  char wanted[2048];
  size_t used = 0;
  for (int i = 0; i < LINES; i++)
    used += (size_t)snprintf(wanted + used, sizeof wanted - used,
                             "plm_packer_%s{stage=\"packer\",instance=\"0\",run=\"%s\"} %s\n",
                             names[i], run, values[i]);
  assert_string_equal(page_at(exporter, counters, 5000), wanted);
}

static void the_page_has_every_counter(void **state)
{
  struct plm_packer_counters counters = {.windows = 2,
                                         .chunks = 3,
                                         .documents = 50,
                                         .tokens = 600,
                                         .padded_tokens = 800,
                                         .bytes = 9000,
                                         .queue = 4};
  (void)state;
  struct packer_exporter *exporter = open_exporter("/runs/first");
  static const char *const values[] = {"1", "2", "50", "600", "0", "0.25", "4"};
  expect(exporter, &counters, "first", values);
  packer_exporter_close(exporter);
  static const char *const nothing[] = {"1", "0", "0", "0", "0", "0", "0"};
  exporter = open_exporter(NULL);
  expect(exporter, &(struct plm_packer_counters){0}, "", nothing);
  packer_exporter_close(exporter);
}

/* The rate in the page. */
static double rate_at(struct packer_exporter *exporter, uint64_t tokens, int64_t now)
{
  const struct plm_packer_counters counters = {.tokens = tokens};
  const char *line = strstr(page_at(exporter, &counters, now), "plm_packer_tokens_per_second");
  assert_non_null(line);
  return strtod(strchr(line, ' '), NULL);
}

/* What was served before the first look counts in no rate; a rate is over a second at least. */
static void rates_are_measured_over_a_second(void **state)
{
  (void)state;
  struct packer_exporter *exporter = open_exporter("first");
  assert_true(rate_at(exporter, 700, 5000) == 0);
  assert_true(rate_at(exporter, 900, 5999) == 0);
  assert_true(rate_at(exporter, 900, 6000) == 200);
  assert_true(rate_at(exporter, 2000, 6999) == 200);
  assert_true(rate_at(exporter, 2000, 8000) == 550);
  assert_true(rate_at(exporter, 2000, 9000) == 0);
  packer_exporter_close(exporter);
  packer_exporter_tick(NULL, NULL, 0);
  packer_exporter_close(NULL);
}

static void a_bad_address_is_refused(void **state)
{
  struct packer_exporter *exporter;
  struct plm_error error = {0};
  (void)state;
  assert_int_not_equal(packer_exporter_open("nowhere", NULL, &exporter, &error), PLM_OK);
  assert_non_null(strstr(error.what, "nowhere"));
}

int main(void)
{
  plm_log_init("test", PLM_LOG_INFO);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_page_has_every_counter),
      cmocka_unit_test(rates_are_measured_over_a_second),
      cmocka_unit_test(a_bad_address_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
