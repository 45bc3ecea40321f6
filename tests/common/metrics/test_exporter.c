/* common/metrics/exporter: what a stage without a supervisor serves about its metrics file. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "common/base/files/file.h"
#include "common/metrics/exporter.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/scratch.h"

/* Opens the exporter and returns its port, which it prints. */
static int open_exporter(const char *run, struct plm_exporter **exporter)
{
  struct plm_error error = {0};
  captured_begin(STDERR_FILENO);
  const plm_status status =
      plm_exporter_open("127.0.0.1:0", run, "trainer.jsonl", PLM_STAGE_TRAINER, exporter, &error);
  const char *said = captured_end(), *address = strstr(said, "metrics at http://127.0.0.1:");
  if (status != PLM_OK) fail_msg("%s", error.what);
  assert_non_null(address);
  assert_non_null(strstr(address, "/metrics\n"));
  return atoi(address + strlen("metrics at http://127.0.0.1:"));
}

/* The body of the page, until the next call. */
static const char *scrape(int port)
{
  static char text[65536];
  const struct sockaddr_in to = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const char request[] = "GET /metrics HTTP/1.1\r\n\r\n";
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  size_t used = 0;
  assert_int_equal(connect(client, (const struct sockaddr *)&to, sizeof to), 0);
  assert_int_equal(send(client, request, sizeof request - 1, MSG_NOSIGNAL), sizeof request - 1);
  for (ssize_t got; (got = recv(client, text + used, sizeof text - 1 - used, 0)) > 0;)
    used += (size_t)got;
  text[used] = '\0';
  close(client);
  const char *body = strstr(text, "\r\n\r\n");
  assert_non_null(body);
  return body + 4;
}

static void assert_value(const char *page, const char *name, const char *value)
{
  char line[256];
  snprintf(line, sizeof line, "plm_trainer_%s{stage=\"trainer\",instance=\"0\",run=\"one\"} %s\n",
           name, value);
  if (strstr(page, line) == NULL) fail_msg("no %s in: %s", line, page);
}

static void append(const char *path, const char *line)
{
  FILE *file = fopen(path, "a");
  assert_non_null(file);
  fputs(line, file);
  fclose(file);
}

/* The last line of an earlier process shows the position, but is not counted. */
static void lines_of_this_process_are_counted(void **state)
{
  (void)state;
  char run[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  struct plm_exporter *exporter;
  snprintf(run, sizeof run, "%s", scratch_path("one"));
  assert_int_equal(plm_directory_make(run, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, run, "trainer.jsonl", NULL), PLM_OK);
  append(path, "{\"step\":7,\"loss\":4,\"grad_norm\":9}\n{\"step\":8,\"loss\":3}\n");
  const int port = open_exporter(run, &exporter);
  const char *page = scrape(port);
  assert_value(page, "step", "8");
  assert_value(page, "loss", "3");
  assert_value(page, "steps_total", "0");
  assert_null(strstr(page, "grad_norm")); /* only the last line was read */
  append(path, "{\"step\":9,\"loss\":2.5}\n{\"step\":10,\"loss\":2.25}\n{\"step\":11,");
  page = scrape(port);
  assert_value(page, "step", "10");
  assert_value(page, "loss", "2.25");
  assert_value(page, "steps_total", "2");
  append(path, "\"loss\":2}\n");
  assert_value(scrape(port), "steps_total", "3");
  plm_exporter_close(exporter);
}

static void without_an_address_nothing_is_served(void **state)
{
  (void)state;
  int other;
  struct plm_exporter *exporter = (struct plm_exporter *)&other;
  struct plm_error error = {0};
  assert_int_equal(
      plm_exporter_open(NULL, "one", "trainer.jsonl", PLM_STAGE_TRAINER, &exporter, &error),
      PLM_OK);
  assert_null(exporter);
  plm_exporter_close(NULL);
  assert_int_equal(
      plm_exporter_open("nonsense", "one", "trainer.jsonl", PLM_STAGE_TRAINER, &exporter, &error),
      PLM_USAGE);
  assert_null(exporter);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lines_of_this_process_are_counted),
      cmocka_unit_test(without_an_address_nothing_is_served),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
