/* Fuzzes the control socket: a supervisor that is stopping, so that no request starts anything,
 * answers each line with one line of JSON, or lets the client wait. */
#include "tests/support/harness/fuzz_seed.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/text/strict_json.h"
#include "stages/supervisor/supervisor_internal.h"
#include "tests/support/harness/scratch.h"

static const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("{\"command\":\"ps\"}\n"),
    FUZZ_TEXT("{\"command\":\"wait\",\"ready\":true}\n"),
    FUZZ_TEXT("{\"command\":\"down\",\"kill\":true}\n"),
    FUZZ_TEXT("{\"command\":\"scale\",\"packer\":3}\n"),
    FUZZ_TEXT("{\"command\":\"restart\",\"stages\":[\"packer.0\",\"trainer\"]}\n"),
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  static struct plm_supervisor supervisor;
  static struct plm_config config;
  static char answer[PLM_SOCKET_LINE_SIZE];
  int ends[2];
  config.run = (char *)(uintptr_t)scratch_directory();
  supervisor_init(&supervisor, &(struct plm_supervisor_options){.config = &config}, NULL);
  supervisor.stages.draining = supervisor.drain.killing = true;
  supervisor.drain.signals = 2;
  PLM_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  struct client *client = &supervisor.requests.clients[0];
  client->descriptor = ends[0];
  for (size_t sent = 0; sent < size && client->descriptor >= 0;) {
    const ssize_t put = send(ends[1], bytes + sent, size - sent, MSG_NOSIGNAL);
    if (put > 0) sent += (size_t)put;
    requests_readable(&supervisor.requests, client);
  }
  if (client->descriptor >= 0) {
    shutdown(ends[1], SHUT_WR);
    requests_readable(&supervisor.requests, client);
  }
  const ssize_t got = recv(ends[1], answer, sizeof answer - 1, 0);
  if (got > 0) {
    answer[got] = '\0';
    PLM_ASSERT(answer[got - 1] == '\n' && strchr(answer, '\n') == answer + got - 1);
    cJSON *json = plm_json_line(answer);
    PLM_ASSERT(cJSON_IsBool(cJSON_GetObjectItemCaseSensitive(json, "ok")));
    cJSON_Delete(json);
  }
  if (client->descriptor >= 0) close(client->descriptor);
  close(ends[1]);
  return 0;
}

#include "tests/support/harness/fuzz_main.h"
