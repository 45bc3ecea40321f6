/* The requests over the control socket, each with its whole reply, and what it does to the stages.
 */
#include "tests/support/harness/cmocka_all.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/clock.h"
#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "tests/support/cases/supervisor_case.h"
#include "tests/support/harness/scratch.h"

enum {
  READY = PLM_STAGE_READY,
  STARTING = PLM_STAGE_STARTING,
  STOPPING = PLM_STAGE_STOPPING,
  STOPPED = PLM_STAGE_STOPPED,
  AGAIN = PLM_STAGE_BACKOFF,
  DONE = PLM_STAGE_DONE,
  FATAL = PLM_STAGE_FATAL,
};

static int setup(void **state)
{
  *state = supervisor_case_open("trainer: {stop_timeout_s: 5}\n");
  return 0;
}

static int teardown(void **state)
{
  supervisor_case_close(*state);
  return 0;
}

static struct supervised *add(struct plm_supervisor *supervisor, enum plm_stage_index kind,
                              int state)
{
  return supervisor_case_add(supervisor, kind, (enum plm_stage_state)state);
}

/* A client that has connected; returns its end. */
static int connect_client(struct plm_supervisor *supervisor, struct client **client)
{
  int ends[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  *client = NULL;
  for (size_t i = 0; i < CLIENTS_MAX && *client == NULL; i++)
    if (supervisor->requests.clients[i].descriptor < 0) *client = &supervisor->requests.clients[i];
  assert_non_null(*client);
  **client = (struct client){.descriptor = ends[0]};
  return ends[1];
}

/* Reads what there is: a line without its end, "" if there is nothing yet, or "hung up". */
static const char *reply_at(int end)
{
  static char text[8192];
  const ssize_t size = recv(end, text, sizeof text - 1, 0);
  if (size == 0) return "hung up";
  text[size > 0 ? size : 0] = '\0';
  text[strcspn(text, "\n")] = '\0';
  return text;
}

/* Asks, and returns the reply; the client has been hung up afterwards. */
static const char *ask(struct plm_supervisor *supervisor, const char *request)
{
  struct client *client;
  const int end = connect_client(supervisor, &client);
  assert_int_equal(write(end, request, strlen(request)), strlen(request));
  assert_int_equal(write(end, "\n", 1), 1);
  requests_readable(&supervisor->requests, client);
  const char *reply = reply_at(end);
  assert_int_equal(client->descriptor, -1);
  close(end);
  return reply;
}

#define YES "{\"ok\":true}"
#define NO(reason) "{\"ok\":false,\"error\":\"" reason "\"}"

static void requests_that_nobody_knows(void **state)
{
  struct plm_supervisor *supervisor = *state;
  assert_string_equal(ask(supervisor, ""), NO("unknown request"));
  assert_string_equal(ask(supervisor, "[]"), NO("unknown request"));
  assert_string_equal(ask(supervisor, "{\"command\":7}"), NO("unknown request"));
  assert_string_equal(ask(supervisor, "{\"command\":\"pss\"}"), NO("unknown request"));
}

/* One client more than there is room for is hung up. */
static void a_client_without_room_is_hung_up(void **state)
{
  struct requests *requests = &((struct plm_supervisor *)*state)->requests;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  socklen_t size = sizeof address.sun_family; /* the system chooses a name */
  int ends[CLIENTS_MAX + 1];
  char byte;
  requests->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
  assert_int_equal(bind(requests->listen_fd, (struct sockaddr *)&address, size), 0);
  assert_int_equal(listen(requests->listen_fd, 1), 0);
  size = sizeof address;
  assert_int_equal(getsockname(requests->listen_fd, (struct sockaddr *)&address, &size), 0);
  for (int i = 0; i <= CLIENTS_MAX; i++) {
    ends[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(connect(ends[i], (struct sockaddr *)&address, size), 0);
    requests_accept(requests);
    assert_int_equal(recv(ends[i], &byte, 1, 0), i < CLIENTS_MAX ? -1 : 0);
    if (i < CLIENTS_MAX) assert_true(requests->clients[i].descriptor >= 0);
  }
  for (int i = 0; i <= CLIENTS_MAX; i++) close(ends[i]);
  close(requests->listen_fd);
}

/* A request may come in parts. One of CLIENT_LINE_SIZE - 1 bytes without an end is too long. */
static void a_request_is_a_line(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct client *client;
  char part[CLIENT_LINE_SIZE];
  int end = connect_client(supervisor, &client);
  requests_readable(&supervisor->requests, client); /* nothing yet */
  assert_true(client->descriptor >= 0);
  memset(part, ' ', sizeof part);
  for (size_t sent = 0; sent < CLIENT_LINE_SIZE - 2; sent += CLIENT_LINE_SIZE / 2 - 1) {
    assert_int_equal(write(end, part, CLIENT_LINE_SIZE / 2 - 1), CLIENT_LINE_SIZE / 2 - 1);
    requests_readable(&supervisor->requests, client);
    assert_string_equal(reply_at(end), "");
  }
  assert_int_equal(client->used, CLIENT_LINE_SIZE - 2);
  assert_int_equal(write(end, " ", 1), 1);
  requests_readable(&supervisor->requests, client);
  assert_string_equal(reply_at(end), NO("the request is too long"));
  assert_int_equal(client->descriptor, -1);
  close(end);
  end = connect_client(supervisor, &client); /* it leaves without a request */
  close(end);
  requests_readable(&supervisor->requests, client);
  assert_int_equal(client->descriptor, -1);
}

/* ---- ps -------------------------------------------------------------------------------------- */

static void ps_tells_of_each_stage(void **state)
{
  struct plm_supervisor *supervisor = *state;
  char host[256] = "", expected[2048], path[PLM_PATH_SIZE];
  gethostname(host, sizeof host - 1);
  struct supervised *trainer = add(supervisor, PLM_KIND_TRAINER, READY);
  struct supervised *evaluator = add(supervisor, PLM_KIND_EVALUATOR, AGAIN);
  struct supervised *leaving = add(supervisor, PLM_KIND_PACKER, STOPPING);
  struct supervised *gone = add(supervisor, PLM_KIND_PACKER, STOPPED);
  trainer->pid = 77;
  trainer->restarts = 2;
  trainer->gang = &supervisor->gang;
  ((struct plm_config *)supervisor->stages.config)->trainer.ranks = 6;
  trainer->started_ms = plm_clock_ms() - 5000000;
  assert_int_equal(plm_path_join(path, supervisor->stages.config->run, "trainer.lock", NULL),
                   PLM_OK);
  scratch_age(path, 5000);
  evaluator->started_ms = 1; /* without a process it has no age */
  leaving->removed = gone->removed = true;
  leaving->started_ms = plm_clock_ms() + 1000000;
  cJSON *reply = plm_json_line(ask(supervisor, "{\"command\":\"ps\"}"));
  cJSON *rows = cJSON_GetObjectItem(reply, "stages");
  const double age_s = plm_json_number(cJSON_GetArrayItem(rows, 0), "age_s", 0);
  if (age_s < 5000 || age_s > 5060) fail_msg("%g s", age_s);
  cJSON_SetNumberValue(cJSON_GetObjectItem(cJSON_GetArrayItem(rows, 0), "age_s"), 5);
  cJSON_SetNumberValue(cJSON_GetObjectItem(cJSON_GetArrayItem(rows, 2), "age_s"), 6);
  cJSON *sign_age = cJSON_GetObjectItem(cJSON_GetArrayItem(rows, 0), "sign_age_s");
  assert_true(sign_age->valuedouble >= 5000 && sign_age->valuedouble < 5060);
  cJSON_SetNumberValue(sign_age, 7);
  snprintf(expected, sizeof expected,
           "{\"ok\":true,\"stages\":["
           "{\"stage\":\"trainer\",\"instance\":0,\"node\":\"%s\",\"pid\":77,\"state\":\"ready\","
           "\"ready\":true,\"restarts\":2,\"age_s\":5,\"ranks\":6,\"sign_age_s\":7,"
           "\"activity\":\"no step for 1:23:20\"},"
           "{\"stage\":\"evaluator\",\"instance\":0,\"node\":\"%s\",\"pid\":0,"
           "\"state\":\"%s\",\"ready\":false,\"restarts\":0,\"age_s\":0},"
           "{\"stage\":\"packer\",\"instance\":0,\"node\":\"%s\",\"pid\":0,"
           "\"state\":\"stopping\",\"ready\":false,\"restarts\":0,\"age_s\":6}]}",
           host, host, plm_stage_state_name(PLM_STAGE_BACKOFF), host);
  char *text = cJSON_PrintUnformatted(reply);
  assert_string_equal(text, expected);
  free(text);
  cJSON_Delete(reply);
}

/* A packer that is ready, and that its consumers have not heard of for so long. */
static void ps_tells_of_a_packer_that_nobody_hears(void **state)
{
  static const struct {
    int state;
    bool listing; /* a consumer should list it */
    int64_t unheard_ms;
    const char *start; /* of the activity */
  } cases[] = {{READY, true, 9000, ""},
               {READY, true, 10000, "heard by no consumer for 0:1"},
               {AGAIN, true, 10000, ""},
               {PLM_STAGE_STARTING, false, 15000, ""},
               {PLM_STAGE_STARTING, false, 45000, "no sign for 0:4"}};
  enum { CASES = sizeof cases / sizeof *cases };
  struct plm_supervisor *supervisor = *state;
  for (size_t i = 0; i < CASES; i++) {
    struct supervised *packer =
        add(supervisor, PLM_KIND_PACKER, (enum plm_stage_state)cases[i].state);
    packer->pid = getpid() + 1000000 + (pid_t)i; /* no such process */
    packer->pulse = (struct plm_pulse){.begun = true, .mark = 7};
    packer->listing = cases[i].listing;
    packer->pulse.since_ms = plm_clock_ms() - cases[i].unheard_ms;
  }
  cJSON *reply = plm_json_line(ask(supervisor, "{\"command\":\"ps\"}"));
  cJSON *rows = cJSON_GetObjectItem(reply, "stages");
  for (int i = 0; i < CASES; i++) {
    const cJSON *row = cJSON_GetArrayItem(rows, i);
    const char *start = cases[i].start;
    assert_int_equal(
        strncmp(plm_json_string(row, "activity", ""), start, start[0] ? strlen(start) : 1), 0);
    const double unheard_s = 1e-3 * (double)cases[i].unheard_ms,
                 told_s = plm_json_number(row, "sign_age_s", -1);
    assert_true(i == 2 ? told_s == -1 : told_s >= unheard_s && told_s < unheard_s + 60);
  }
  cJSON_Delete(reply);
}

/* Why a stage is in back-off or has failed is told, but not of an earlier failure. */
static void ps_tells_why_a_stage_failed(void **state)
{
  static const int states[] = {AGAIN, PLM_STAGE_FATAL, READY};
  struct plm_supervisor *supervisor = *state;
  for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
    struct supervised *stage = add(supervisor, PLM_KIND_TRAINER, (enum plm_stage_state)states[i]);
    stage->failed_s = 1700000000;
    snprintf(stage->cause, sizeof stage->cause, "exited with 5: %0500d\n", 7);
  }
  struct supervised *packer = add(supervisor, PLM_KIND_PACKER, AGAIN);
  snprintf(packer->cause, sizeof packer->cause, "exited with 6: %0500d", 7);
  cJSON *reply = plm_json_line(ask(supervisor, "{\"command\":\"ps\"}"));
  cJSON *rows = cJSON_GetObjectItem(reply, "stages");
  for (int i = 0; i < 2; i++) {
    const cJSON *row = cJSON_GetArrayItem(rows, i);
    assert_true(plm_json_number(row, "failed_at", 0) == 1700000000);
    const char *cause = plm_json_string(row, "cause", "");
    assert_int_equal(strncmp(cause, "exited with 5: 0000", 19), 0);
    assert_null(strchr(cause, '\n'));
    assert_true(strlen(cause) > 500);
  }
  assert_false(cJSON_HasObjectItem(cJSON_GetArrayItem(rows, 2), "cause"));
  /* the causes of all packers must fit into one reply */
  assert_int_equal(strlen(plm_json_string(cJSON_GetArrayItem(rows, 3), "cause", "")), 159);
  cJSON_Delete(reply);
}

/* The command that goes on: `restart`, unless the run ends with the stage or already stops. */
static void ps_tells_how_a_failed_stage_goes_on(void **state)
{
  struct plm_supervisor *supervisor = *state;
  char up[PLM_PATH_SIZE + 64], remedy[REMEDY_SIZE];
  add(supervisor, PLM_KIND_TRAINER, PLM_STAGE_FATAL);
  struct supervised *evaluator = add(supervisor, PLM_KIND_EVALUATOR, PLM_STAGE_FATAL);
  add(supervisor, PLM_KIND_PACKER, AGAIN);
  snprintf(up, sizeof up, "plm-pipeline up %s/pipeline.yaml", supervisor->stages.config->run);
  cJSON *reply = plm_json_line(ask(supervisor, "{\"command\":\"ps\"}"));
  const cJSON *rows = cJSON_GetObjectItem(reply, "stages");
  assert_string_equal(plm_json_string(cJSON_GetArrayItem(rows, 0), "continue", ""), up);
  assert_string_equal(plm_json_string(cJSON_GetArrayItem(rows, 1), "continue", ""),
                      "plm-pipeline restart evaluator.0");
  assert_false(cJSON_HasObjectItem(cJSON_GetArrayItem(rows, 2), "continue"));
  cJSON_Delete(reply);
  supervisor->stages.draining = true;
  supervised_remedy(&supervisor->stages, evaluator, remedy);
  assert_string_equal(remedy, up);
  evaluator->state = PLM_STAGE_STOPPING;
  supervised_remedy(&supervisor->stages, evaluator, remedy);
  assert_string_equal(remedy, "");
}

/* ---- down and wait --------------------------------------------------------------------------- */

static int waiting(struct plm_supervisor *supervisor, const char *request, struct client **client)
{
  const int end = connect_client(supervisor, client);
  assert_int_equal(write(end, request, strlen(request)), strlen(request));
  requests_readable(&supervisor->requests, *client);
  return end;
}

static void down_stops_and_is_answered_at_the_end(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct client *client, *other;
  const int end = waiting(supervisor, "{\"command\":\"down\"}\n", &client);
  assert_true(supervisor->stages.draining && !supervisor->drain.killing);
  assert_int_equal(supervisor->drain.signal, SIGTERM);
  assert_int_equal(supervisor->drain.signals, 1);
  assert_string_equal(reply_at(end), "");
  assert_int_equal(write(end, "more\n", 5), 5); /* what comes after its request is not read */
  requests_readable(&supervisor->requests, client);
  assert_string_equal(reply_at(end), "");
  /* a second `down` is no second signal, but one that kills counts as two */
  const int second = waiting(supervisor, "{\"command\":\"down\"}\n", &other);
  assert_int_equal(supervisor->drain.signals, 1);
  const int third = waiting(supervisor, "{\"command\":\"down\",\"kill\":true}\n", &other);
  assert_true(supervisor->drain.killing);
  assert_int_equal(supervisor->drain.signals, 2);
  requests_answer_end(&supervisor->requests, 143, "");
  assert_string_equal(reply_at(end), "{\"ok\":true,\"exit\":143}");
  assert_string_equal(reply_at(second), "{\"ok\":true,\"exit\":143}");
  assert_string_equal(reply_at(third), "{\"ok\":true,\"exit\":143}");
  close(end), close(second), close(third);
}

static void down_may_kill_at_once(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct client *client;
  const int end = waiting(supervisor, "{\"command\":\"down\",\"kill\":true}\n", &client);
  assert_true(supervisor->stages.draining && supervisor->drain.killing);
  close(end);
}

static void wait_waits_for_the_end_or_for_all_stages(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct client *client, *silent_client;
  struct supervised *trainer = add(supervisor, PLM_KIND_TRAINER, STARTING);
  struct supervised *packer = add(supervisor, PLM_KIND_PACKER, READY);
  add(supervisor, PLM_KIND_PACKER, FATAL)->removed = true;
  const int ready = waiting(supervisor, "{\"command\":\"wait\",\"ready\":true}\n", &client);
  const int end = waiting(supervisor, "{\"command\":\"wait\"}\n", &client);
  const int silent = connect_client(supervisor, &silent_client);
  assert_string_equal(reply_at(ready), "");
  trainer->state = PLM_STAGE_DONE;
  packer->state = PLM_STAGE_BACKOFF;
  requests_answer_ready(&supervisor->requests);
  assert_string_equal(reply_at(ready), "");
  packer->state = PLM_STAGE_READY;
  requests_answer_ready(&supervisor->requests);
  assert_string_equal(reply_at(ready), YES);
  assert_string_equal(reply_at(end), "");
  /* who asks when all are ready is answered at once */
  const int late = waiting(supervisor, "{\"command\":\"wait\",\"ready\":true}\n", &client);
  assert_string_equal(reply_at(late), YES);
  requests_answer_end(&supervisor->requests, 2, "failed: it");
  assert_string_equal(reply_at(end), "{\"ok\":true,\"exit\":2,\"failure\":\"failed: it\"}");
  assert_string_equal(reply_at(silent), "hung up"); /* it has not asked */
  close(ready), close(end), close(silent), close(late);
}

/* ---- restart and scale ----------------------------------------------------------------------- */

/* The states of all stages, and whether each is to be started again, as letters. */
static const char *states_of(const struct plm_supervisor *supervisor)
{
  static char text[128];
  size_t used = 0;
  text[0] = '\0';
  for (size_t i = 0; i < supervisor->stages.count; i++)
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%s%s%s", i == 0 ? "" : " ",
                             plm_stage_state_name(supervisor->stages.all[i].state),
                             supervisor->stages.all[i].start_again ? "+" : "",
                             supervisor->stages.all[i].removed ? "-" : "");
  return text;
}

/* There are no programs, so whatever is started becomes fatal at once. */
static void restart_names_stages_or_kinds(void **state)
{
  struct plm_supervisor *supervisor = *state;
  for (int kind = 0; kind < PLM_KIND_COUNT; kind++)
    add(supervisor, (enum plm_stage_index)kind, kind == PLM_KIND_EVALUATOR ? DONE : READY);
  struct supervised *fatal = add(supervisor, PLM_KIND_PACKER, FATAL);
  struct supervised *again = add(supervisor, PLM_KIND_PACKER, AGAIN);
  add(supervisor, PLM_KIND_PACKER, DONE)->removed = true;
  assert_string_equal(
      ask(supervisor, "{\"command\":\"restart\",\"stages\":[\"trainer.1\",\"packer.3\"]}"),
      NO("the run has no such stage"));
  assert_string_equal(ask(supervisor, "{\"command\":\"restart\",\"stages\":[\"evaluator\"]}"), YES);
  assert_string_equal(states_of(supervisor), "ready done ready fatal back-off done-");
  fatal->failures.deaths.count = 5;
  assert_string_equal(
      ask(supervisor, "{\"command\":\"restart\",\"stages\":[\"packer.0\",7,\"packer.1\"]}"), YES);
  assert_string_equal(states_of(supervisor), "ready done stopping+ fatal back-off done-");
  assert_int_equal(fatal->restarts, 1);
  assert_int_equal(fatal->failures.deaths.count, 0);
  assert_int_equal(supervisor->stages.all[2].restarts, 0); /* when it is started again */
  assert_string_equal(ask(supervisor, "{\"command\":\"restart\",\"stages\":[\"packer\"]}"), YES);
  assert_string_equal(states_of(supervisor), "ready done stopping+ fatal stopped+ done-");
  assert_int_equal(again->restarts, 0);
  assert_int_equal(fatal->restarts, 2);
  assert_string_equal(ask(supervisor, "{\"command\":\"restart\"}"), YES);
  assert_string_equal(states_of(supervisor), "stopping+ done stopping+ fatal fatal+ done-");
  supervisor->stages.draining = true;
  assert_string_equal(ask(supervisor, "{\"command\":\"restart\"}"),
                      NO("the run is already stopping"));
}

static void scale_changes_the_number_of_packers(void **state)
{
  static const char *const wrong[] = {
      "{\"command\":\"scale\"}", "{\"command\":\"scale\",\"packer\":\"2\"}",
      "{\"command\":\"scale\",\"packer\":-1}", "{\"command\":\"scale\",\"packer\":257}"};
  struct plm_supervisor *supervisor = *state;
  add(supervisor, PLM_KIND_TRAINER, READY);
  for (int i = 0; i < 4; i++)
    add(supervisor, PLM_KIND_PACKER, (int[]){READY, STOPPING, AGAIN, READY}[i]);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_string_equal(ask(supervisor, wrong[i]), NO("expected packer=N with N from 0 to 256"));
  supervisor->stages.all[1].start_again = true;
  assert_string_equal(ask(supervisor, "{\"command\":\"scale\",\"packer\":1}"), YES);
  assert_string_equal(states_of(supervisor), "ready ready+ stopping- stopped- stopping-");
  assert_string_equal(ask(supervisor, "{\"command\":\"scale\",\"packer\":3}"), YES);
  assert_string_equal(states_of(supervisor), "ready ready+ stopping+ fatal stopping-");
  assert_string_equal(ask(supervisor, "{\"command\":\"scale\",\"packer\":5}"), YES);
  assert_string_equal(states_of(supervisor), "ready ready+ stopping+ fatal stopping+ fatal");
  assert_int_equal(supervisor->stages.all[5].instance, 4);
  assert_string_equal(ask(supervisor, "{\"command\":\"scale\",\"packer\":0}"), YES);
  assert_string_equal(states_of(supervisor), "ready stopping- stopping- fatal- stopping- fatal-");
  supervisor->stages.draining = true;
  assert_string_equal(ask(supervisor, "{\"command\":\"scale\",\"packer\":1}"),
                      NO("the run is already stopping"));
}

static void there_is_room_for_256_packers(void **state)
{
  struct plm_supervisor *supervisor = *state;
  add(supervisor, PLM_KIND_TRAINER, READY);
  add(supervisor, PLM_KIND_EVALUATOR, READY);
  for (int i = 0; i < 255; i++) add(supervisor, PLM_KIND_PACKER, READY);
  assert_string_equal(ask(supervisor, "{\"command\":\"scale\",\"packer\":256}"), YES);
  assert_int_equal(supervisor->stages.count, 258);
  assert_int_equal(supervisor->stages.all[257].instance, 255);
}

/* ---- names ----------------------------------------------------------------------------------- */

static void packers_have_a_number_or_a_place(void **state)
{
  struct plm_supervisor *supervisor = *state;
  static const struct {
    bool here;
    int pid;
    const char *name;
  } rows[] = {{true, 8, "1"}, {true, 7, "0"}, {false, 8, "elsewhere:8"}, {true, 9, NULL}};
  char host[256] = "", here[512];
  gethostname(host, sizeof host - 1);
  add(supervisor, PLM_KIND_TRAINER, READY)->pid = 9;
  add(supervisor, PLM_KIND_PACKER, READY)->pid = 7;
  add(supervisor, PLM_KIND_PACKER, READY)->pid = 8;
  snprintf(here, sizeof here, "%.80s:9", host);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char name[96];
    cJSON *packer = cJSON_CreateObject();
    cJSON_AddStringToObject(packer, "host", rows[i].here ? host : "elsewhere");
    cJSON_AddNumberToObject(packer, "pid", rows[i].pid);
    stages_name_packer(&supervisor->stages, packer, name);
    assert_string_equal(name, rows[i].name != NULL ? rows[i].name : here);
    cJSON_Delete(packer);
  }
  char name[96];
  cJSON *nothing = cJSON_CreateObject();
  stages_name_packer(&supervisor->stages, nothing, name);
  assert_string_equal(name, "?:0");
  cJSON_Delete(nothing);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(requests_that_nobody_knows),
      TEST(a_request_is_a_line),
      TEST(a_client_without_room_is_hung_up),
      TEST(ps_tells_of_each_stage),
      TEST(down_stops_and_is_answered_at_the_end),
      TEST(ps_tells_of_a_packer_that_nobody_hears),
      TEST(ps_tells_why_a_stage_failed),
      TEST(ps_tells_how_a_failed_stage_goes_on),
      TEST(down_may_kill_at_once),
      TEST(wait_waits_for_the_end_or_for_all_stages),
      TEST(restart_names_stages_or_kinds),
      TEST(scale_changes_the_number_of_packers),
      TEST(there_is_room_for_256_packers),
      TEST(packers_have_a_number_or_a_place),
  };
  return cmocka_run_group_tests_name("supervisor requests", tests, NULL, NULL);
}
