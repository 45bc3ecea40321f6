/* The metrics that a supervisor serves: which lines of the stages' files count, what the peers
 * files say of packers, and the state of each stage. */
#include "tests/support/harness/cmocka_all.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/run/run.h"
#include "tests/support/cases/supervisor_case.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/scratch.h"

enum { LIMIT_MS = 60000 };

static struct plm_supervisor *supervisor;
static struct plm_text answer; /* the last one */

static void open_exporter(void)
{
  struct plm_error error = {0};
  captured_begin(STDERR_FILENO);
  const plm_status status = exporter_open(&supervisor->exporter, &error);
  captured_end();
  if (status != PLM_OK) fail_msg("%s", error.what);
}

static int begin(void **state)
{
  (void)state;
  supervisor = supervisor_case_open("metrics: {prometheus: '127.0.0.1:0'}\n");
  return 0;
}

static int end(void **state)
{
  (void)state;
  exporter_close(&supervisor->exporter);
  supervisor_case_close(supervisor);
  plm_text_deinit(&answer);
  return 0;
}

static const char *path_of(const char *name)
{
  static char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, supervisor->stages.config->run, name, NULL), PLM_OK);
  return path;
}

/* Appends a line to a file of the run. */
static void append(const char *name, const char *line)
{
  FILE *file = fopen(path_of(name), "ae");
  assert_non_null(file);
  fprintf(file, "%s\n", line);
  fclose(file);
}

/* Asks for the page, and takes turns until it has come. */
static void scrape(void)
{
  static const char request[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
  const char *address = plm_http_address(supervisor->exporter.http);
  struct sockaddr_in to = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1)),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int64_t until_ms = plm_clock_ms() + LIMIT_MS;
  char bytes[4096];
  ssize_t size;
  assert_true(client >= 0);
  assert_int_equal(connect(client, (struct sockaddr *)&to, sizeof to), 0);
  assert_int_equal(send(client, request, sizeof request - 1, MSG_NOSIGNAL), sizeof request - 1);
  plm_text_clear(&answer);
  while ((size = recv(client, bytes, sizeof bytes, MSG_DONTWAIT)) != 0) {
    if (size > 0) {
      plm_text_append(&answer, bytes, (size_t)size);
      continue;
    }
    assert_true(errno == EAGAIN);
    struct pollfd items[PLM_HTTP_POLLS];
    plm_http_fill(supervisor->exporter.http, items);
    poll(items, PLM_HTTP_POLLS, 20);
    exporter_update(&supervisor->exporter);
    if (plm_clock_ms() > until_ms) fail_msg("the page has not come within %d ms", LIMIT_MS);
  }
  close(client);
}

/* The line of a sample of the last page up to its value; NULL if there is none. labels: those
 * after `run`. */
static const char *find(const char *stage, const char *instance, const char *name,
                        const char *labels)
{
  char start[400];
  snprintf(start, sizeof start, "\nplm_%s_%s{stage=\"%s\",instance=\"%s\",run=\"%s\"%s} ", stage,
           name, stage, instance, strrchr(supervisor->stages.config->run, '/') + 1, labels);
  const char *found = strstr(answer.data, start);
  return found != NULL ? found + strlen(start) : NULL;
}

static void shows(const char *stage, const char *instance, const char *name, const char *labels,
                  double value)
{
  const char *text = find(stage, instance, name, labels);
  if (text == NULL)
    fail_msg("there is no %s of %s.%s %s: %s", name, stage, instance, labels, answer.data);
  if (strtod(text, NULL) != value)
    fail_msg("%s of %s.%s is not %g: %.40s", name, stage, instance, value, text);
}

static void trainer_shows(const char *name, double value)
{
  shows("trainer", "0", name, "", value);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void lines_from_before_the_start_are_not_counted(void **state)
{
  (void)state;
  append(PLM_RUN_TRAINER_METRICS, "{\"step\":9,\"loss\":3.5,\"step_ms\":4000}");
  append(PLM_RUN_TRAINER_METRICS, "{\"step\":10,\"loss\":3.25,\"step_ms\":4000}");
  append(PLM_RUN_EVALUATOR_METRICS, "{\"step\":8,\"split\":\"valid\",\"loss\":3,\"seconds\":5}");
  open_exporter();
  scrape();
  trainer_shows("step", 10);
  trainer_shows("loss", 3.25);
  shows("evaluator", "0", "loss", ",split=\"valid\"", 3);
  assert_null(find("trainer", "0", "steps_total", ""));
  assert_null(find("evaluator", "0", "evaluations_total", ""));
  append(PLM_RUN_TRAINER_METRICS, "{\"step\":11,\"loss\":3,\"step_ms\":2000}");
  append(PLM_RUN_TRAINER_METRICS, "{\"step\":12,\"loss\":2.75,\"step_ms\":1500}");
  append(PLM_RUN_EVALUATOR_METRICS, "{\"step\":9,\"split\":\"valid\",\"loss\":2,\"seconds\":7}");
  append(PLM_RUN_EVALUATOR_METRICS, "{\"step\":9,\"skipped\":\"x\"}");
  scrape();
  trainer_shows("step", 12);
  trainer_shows("loss", 2.75);
  trainer_shows("steps_total", 2);
  trainer_shows("step_seconds_total", 3.5);
  shows("evaluator", "0", "loss", ",split=\"valid\"", 2);
  shows("evaluator", "0", "evaluation_seconds_total", "", 7);
}

/* The file of a new run is there only later, and its first line counts. */
static void the_first_line_of_a_new_file_counts(void **state)
{
  (void)state;
  open_exporter();
  scrape();
  assert_null(find("trainer", "0", "step", ""));
  append(PLM_RUN_TRAINER_METRICS, "{\"step\":1,\"step_ms\":500}");
  scrape();
  trainer_shows("step", 1);
  trainer_shows("steps_total", 1);
}

/* A resume cuts the file: the lines that are left were counted, and what comes then counts. */
static void what_a_resume_leaves_is_not_counted_again(void **state)
{
  (void)state;
  open_exporter();
  for (int step = 1; step <= 5; step++) {
    char line[64];
    snprintf(line, sizeof line, "{\"step\":%d,\"step_ms\":1000}", step);
    append(PLM_RUN_TRAINER_METRICS, line);
  }
  scrape();
  trainer_shows("steps_total", 5);
  const char *path = path_of(PLM_RUN_TRAINER_METRICS);
  assert_int_equal(truncate(path, 3 * (off_t)strlen("{\"step\":1,\"step_ms\":1000}\n")), 0);
  scrape();
  trainer_shows("step", 3);
  trainer_shows("steps_total", 5);
  append(PLM_RUN_TRAINER_METRICS, "{\"step\":4,\"step_ms\":1000}");
  scrape();
  trainer_shows("step", 4);
  trainer_shows("steps_total", 6);
}

static void counters_begin_with_the_process(void **state)
{
  (void)state;
  struct supervised *trainer = supervisor_case_add(supervisor, PLM_KIND_TRAINER, PLM_STAGE_READY),
                    *packer = supervisor_case_add(supervisor, PLM_KIND_PACKER, PLM_STAGE_READY);
  exporter_started(&supervisor->exporter, trainer); /* before there is an exporter */
  open_exporter();
  append(PLM_RUN_TRAINER_METRICS, "{\"step\":1,\"step_ms\":1000}");
  scrape();
  trainer_shows("steps_total", 1);
  append(PLM_RUN_TRAINER_METRICS, "{\"step\":2,\"step_ms\":1000}"); /* of the process before */
  exporter_started(&supervisor->exporter, trainer);
  exporter_started(&supervisor->exporter, packer);
  scrape();
  trainer_shows("step", 2);
  trainer_shows("steps_total", 0);
  assert_null(find("evaluator", "0", "evaluations_total", ""));
  append(PLM_RUN_TRAINER_METRICS, "{\"step\":3,\"step_ms\":1000}");
  scrape();
  trainer_shows("steps_total", 1);
}

/* The run's own supervisor exports the rest. */
static void beside_a_supervisor_only_the_evaluator_is_exported(void **state)
{
  (void)state;
  supervisor->stages.apart = true;
  supervisor_case_add(supervisor, PLM_KIND_EVALUATOR, PLM_STAGE_READY);
  open_exporter();
  append(PLM_RUN_TRAINER_METRICS, "{\"step\":3,\"step_ms\":1000}");
  append(PLM_RUN_EVALUATOR_METRICS, "{\"step\":2,\"split\":\"valid\",\"loss\":2.5}");
  assert_int_equal(plm_peers_write(supervisor->stages.config->run, "trainer",
                                   "[{\"host\":\"far\",\"pid\":12,\"tokens\":5}]", NULL),
                   PLM_OK);
  scrape();
  shows("evaluator", "0", "ready", "", 1);
  shows("evaluator", "0", "loss", ",split=\"valid\"", 2.5);
  assert_null(strstr(answer.data, "stage=\"trainer\""));
  assert_null(strstr(answer.data, "stage=\"packer\""));
}

/* ---- packers --------------------------------------------------------------------------------- */

static void packers_are_those_of_the_peers_files(void **state)
{
  (void)state;
  char here[256] = "", json[1000];
  struct supervised *packer;
  supervisor_case_add(supervisor, PLM_KIND_PACKER, PLM_STAGE_STOPPED);
  packer = supervisor_case_add(supervisor, PLM_KIND_PACKER, PLM_STAGE_READY);
  packer->pid = getpid();
  gethostname(here, sizeof here - 1);
  open_exporter();
  snprintf(json, sizeof json,
           "[{\"host\":\"%s\",\"pid\":%d,\"windows\":3,\"documents\":70,\"tokens\":900,"
           "\"padded_tokens\":1200,\"rate\":55.5,\"queue\":2,\"standby\":true,"
           "\"corpora\":[\"/data/one\",7,\"/data/two\"]},"
           "{\"host\":\"far\",\"pid\":12,\"tokens\":5,\"padded_tokens\":0,\"corpora\":[]}]",
           here, (int)getpid());
  assert_int_equal(plm_peers_write(supervisor->stages.config->run, "trainer", json, NULL), PLM_OK);
  assert_int_equal(plm_peers_write(supervisor->stages.config->run, "evaluator",
                                   "[{\"host\":\"far\",\"pid\":12,\"tokens\":4},"
                                   "{\"host\":\"other\",\"pid\":13,\"tokens\":6}]",
                                   NULL),
                   PLM_OK);
  scrape();
  static const struct {
    const char *name;
    double value;
  } values[] = {{"windows_total", 3},  {"documents_total", 70},
                {"tokens_total", 900}, {"tokens_per_second", 55.5},
                {"queue", 2},          {"padding_fraction", 0.25},
                {"standby", 1},        {"ready", 1}};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++)
    shows("packer", "1", values[i].name, "", values[i].value);
  shows("packer", "1", "corpus", ",corpus=\"/data/one,/data/two\"", 1);
  shows("packer", "0", "ready", "", 0);
  shows("packer", "far:12", "tokens_total", "", 5); /* as the trainer says */
  shows("packer", "far:12", "padding_fraction", "", 0);
  shows("packer", "far:12", "standby", "", 0);
  shows("packer", "far:12", "ready", "", 1);
  shows("packer", "other:13", "tokens_total", "", 6);
  assert_null(strstr(answer.data, "instance=\"far:12\",run=\"run\",corpus"));
  /* one that has gone is no longer shown */
  assert_int_equal(plm_peers_write(supervisor->stages.config->run, "evaluator", "[]", NULL),
                   PLM_OK);
  scrape();
  assert_null(strstr(answer.data, "other:13"));
  shows("packer", "far:12", "tokens_total", "", 5);
  plm_peers_remove(supervisor->stages.config->run, "trainer");
  scrape();
  assert_null(strstr(answer.data, "far:12"));
  packer->pid = 0;
}

/* ---- states ---------------------------------------------------------------------------------- */

static void each_stage_shows_its_state_and_restarts(void **state)
{
  (void)state;
  struct supervised *trainer = supervisor_case_add(supervisor, PLM_KIND_TRAINER, PLM_STAGE_READY),
                    *evaluator =
                        supervisor_case_add(supervisor, PLM_KIND_EVALUATOR, PLM_STAGE_FATAL),
                    *first = supervisor_case_add(supervisor, PLM_KIND_PACKER, PLM_STAGE_STARTING),
                    *last = supervisor_case_add(supervisor, PLM_KIND_PACKER, PLM_STAGE_READY);
  char cause[100];
  trainer->restarts = 4;
  trainer->failed_s = 1700000000;
  snprintf(trainer->cause, sizeof trainer->cause, "it was\ntired");
  snprintf(evaluator->cause, sizeof evaluator->cause, "no reason"); /* it has no time */
  first->removed = true;
  last->restarts = 2;
  open_exporter();
  scrape();
  shows("trainer", "0", "ready", "", 1);
  shows("trainer", "0", "restarts_total", "", 4);
  shows("trainer", "0", "state", ",state=\"ready\"", 1);
  shows("trainer", "0", "fatal", ",continue=\"\"", 0);
  const char *said = strstr(answer.data, "cause=\"");
  assert_non_null(said);
  snprintf(cause, sizeof cause, "%.40s", said);
  if (strncmp(cause, "cause=\"it was", 12) != 0 || strstr(cause, "tired\"} 1700000000") == NULL)
    fail_msg("%s", cause);
  assert_null(strstr(said + 1, "cause=\""));
  shows("evaluator", "0", "ready", "", 0);
  shows("evaluator", "0", "restarts_total", "", 0);
  shows("evaluator", "0", "state", ",state=\"fatal\"", 1);
  shows("evaluator", "0", "fatal", ",continue=\"plm-pipeline restart evaluator.0\"", 1);
  shows("packer", "1", "ready", "", 1);
  shows("packer", "1", "restarts_total", "", 2);
  assert_null(find("packer", "0", "ready", ""));
  trainer->state = PLM_STAGE_BACKOFF;
  scrape();
  shows("trainer", "0", "ready", "", 0);
  shows("trainer", "0", "state", ",state=\"back-off\"", 1);
}

static double age_of(const char *stage, const char *instance, const char *name, const char *labels)
{
  const char *text = find(stage, instance, name, labels);
  if (text == NULL) fail_msg("no %s of %s.%s%s: %s", name, stage, instance, labels, answer.data);
  return strtod(text, NULL);
}

/* Only of a stage that is ready, and each kind has its own sign of life. */
static void each_stage_shows_what_it_does(void **state)
{
  (void)state;
  struct supervised *trainer = supervisor_case_add(supervisor, PLM_KIND_TRAINER, PLM_STAGE_READY),
                    *evaluator =
                        supervisor_case_add(supervisor, PLM_KIND_EVALUATOR, PLM_STAGE_READY),
                    *packer = supervisor_case_add(supervisor, PLM_KIND_PACKER, PLM_STAGE_READY);
  scratch_age(path_of("trainer.lock"), 400);
  scratch_age(path_of("evaluator.lock"), 500);
  packer->pulse = (struct plm_pulse){.begun = true, .since_ms = plm_clock_ms() - 15000};
  packer->listing = true;
  packer->pid = getpid();
  open_exporter();
  scrape();
  static const char no_step[] = ",activity=\"no step for\"",
                    unheard[] = ",activity=\"heard by no consumer\"", nothing[] = ",activity=\"\"",
                    stopped[] = ",activity=\"stopped by a signal\"";
  const double step_s = age_of("trainer", "0", "step_age_seconds", no_step);
  assert_true(step_s >= 400 && step_s < 400 + LIMIT_MS);
  assert_true(age_of("trainer", "0", "sign_age_seconds", no_step) >= 400);
  assert_true(age_of("evaluator", "0", "sign_age_seconds", nothing) >= 500);
  const double unheard_s = age_of("packer", "0", "sign_age_seconds", unheard);
  assert_true(unheard_s >= 15 && unheard_s < 15 + LIMIT_MS);
  assert_null(strstr(answer.data, "plm_evaluator_step_age_seconds{"));
  packer->pulse.since_ms = plm_clock_ms();
  trainer->state = evaluator->state = PLM_STAGE_STOPPING;
  scrape();
  assert_true(age_of("packer", "0", "sign_age_seconds", nothing) < PACKER_UNHEARD_S);
  shows("trainer", "0", "sign_age_seconds", nothing, 0);
  shows("trainer", "0", "step_age_seconds", nothing, 0);
  shows("evaluator", "0", "sign_age_seconds", nothing, 0);
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  packer->pid = child;
  scrape();
  assert_non_null(find("packer", "0", "sign_age_seconds", nothing));
  int status;
  assert_int_equal(kill(child, SIGSTOP), 0);
  assert_int_equal(waitpid(child, &status, WUNTRACED), child);
  scrape();
  assert_non_null(find("packer", "0", "sign_age_seconds", stopped));
  assert_int_equal(kill(child, SIGKILL), 0);
  assert_int_equal(waitpid(child, NULL, 0), child);
  packer->pid = 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void the_address_is_told_as_long_as_it_is_served(void **state)
{
  (void)state;
  char bound[512];
  open_exporter();
  assert_int_equal(plm_endpoint_read(supervisor->stages.config->run, "prometheus", bound, NULL),
                   PLM_OK);
  assert_string_equal(bound, plm_http_address(supervisor->exporter.http));
  exporter_close(&supervisor->exporter);
  assert_int_equal(plm_endpoint_read(supervisor->stages.config->run, "prometheus", bound, NULL),
                   PLM_NOT_FOUND);
  supervisor->exporter = (struct exporter){0}; /* `end` closes it again */
}

static void without_an_address_nothing_is_served(void **state)
{
  (void)state;
  supervisor = supervisor_case_open("metrics: {tensorboard: false}\n");
  struct supervised *trainer = supervisor_case_add(supervisor, PLM_KIND_TRAINER, PLM_STAGE_READY);
  assert_int_equal(exporter_open(&supervisor->exporter, NULL), PLM_OK);
  assert_null(supervisor->exporter.http);
  exporter_started(&supervisor->exporter, trainer);
  exporter_update(&supervisor->exporter);
  end(NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
      TEST(lines_from_before_the_start_are_not_counted),
      TEST(the_first_line_of_a_new_file_counts),
      TEST(what_a_resume_leaves_is_not_counted_again),
      TEST(counters_begin_with_the_process),
      TEST(beside_a_supervisor_only_the_evaluator_is_exported),
      TEST(packers_are_those_of_the_peers_files),
      TEST(each_stage_shows_its_state_and_restarts),
      TEST(each_stage_shows_what_it_does),
      TEST(the_address_is_told_as_long_as_it_is_served),
      cmocka_unit_test(without_an_address_nothing_is_served),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
