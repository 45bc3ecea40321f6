/* The watchdog: which stages it kills, and what excuses a silence. Times are arguments. */
#include "tests/support/harness/cmocka_all.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/run/run.h"
#include "tests/support/cases/supervisor_case.h"
#include "tests/support/harness/scratch.h"

enum { SILENT_MS = 300000, START_MS = 1800000 };

/* The time of this program, in ms; -1: the real one. */
static int64_t own_ms = -1;

/* Takes the place of libc's function in this program. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
  if (own_ms < 0 || clock != CLOCK_MONOTONIC) return (int)syscall(SYS_clock_gettime, clock, now);
  *now = (struct timespec){.tv_sec = own_ms / 1000, .tv_nsec = own_ms % 1000 * 1000000};
  return 0;
}

static void a_sign_in_time_is_enough(void **state)
{
  struct plm_pulse pulse = {0};
  (void)state;
  assert_false(plm_pulse_is_lost(&pulse, 5000, 7, 100)); /* the first look */
  assert_false(plm_pulse_is_lost(&pulse, 5099, 7, 100));
  assert_true(plm_pulse_is_lost(&pulse, 5100, 7, 100));
  assert_false(plm_pulse_is_lost(&pulse, 5100, 7, 0));   /* off */
  assert_false(plm_pulse_is_lost(&pulse, 5100, 8, 100)); /* a sign */
  assert_false(plm_pulse_is_lost(&pulse, 5199, 8, 100));
  assert_true(plm_pulse_is_lost(&pulse, 5200, 8, 100));
}

/* ---- stages ---------------------------------------------------------------------------------- */

static int setup(void **state)
{
  *state = supervisor_case_open("supervisor: {silent_s: 300}\n");
  return 0;
}

static int teardown(void **state)
{
  struct plm_supervisor *supervisor = *state;
  own_ms = -1;
  for (size_t i = 0; i < supervisor->stages.count; i++) {
    if (supervisor->stages.all[i].pid <= 0) continue;
    kill(supervisor->stages.all[i].pid, SIGKILL);
    waitpid(supervisor->stages.all[i].pid, NULL, 0);
  }
  supervisor_case_close(supervisor);
  return 0;
}

/* It does nothing until it is killed. */
static pid_t start_process(void)
{
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
  }
  assert_true(pid > 0);
  return pid;
}

static struct supervised *add(struct plm_supervisor *supervisor, enum plm_stage_index kind)
{
  struct supervised *stage = supervisor_case_add(supervisor, kind, PLM_STAGE_READY);
  stage->pid = start_process();
  return stage;
}

static void write_in_run(const struct plm_supervisor *supervisor, const char *name,
                         const char *text)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, supervisor->stages.config->run, name, NULL), PLM_OK);
  assert_int_equal(plm_file_write(path, text, strlen(text), 0644, NULL), PLM_OK);
}

/* A step of the present process, and how many milliseconds it took. */
static void step(const struct plm_supervisor *supervisor, int number, int step_ms)
{
  char line[128], path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, supervisor->stages.config->run, "trainer.lock", NULL),
                   PLM_OK);
  scratch_age(path, 3600);
  snprintf(line, sizeof line, "{\"step\":%d,\"step_ms\":%d,\"time\":%.3f}\n", number, step_ms,
           plm_clock_wall_s() - 1);
  write_in_run(supervisor, PLM_RUN_TRAINER_METRICS, line);
}

/* Whether the stage is killed after so much silence, which begins at the first look. */
static bool is_killed_after(struct plm_supervisor *supervisor, struct supervised *stage,
                            int64_t silence_ms)
{
  const int64_t now_ms = plm_clock_ms();
  stage->pulse = (struct plm_pulse){.mark = stage->pulse.mark};
  supervisor->watchdog.looked_ms = 0;
  watchdog_turn(&supervisor->watchdog, now_ms);
  assert_false(stage->silent);
  watchdog_turn(&supervisor->watchdog, now_ms + silence_ms);
  return stage->silent;
}

static void a_trainer_without_steps_is_killed(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct supervised *trainer = add(supervisor, PLM_KIND_TRAINER);
  char text[96];
  int status;
  step(supervisor, 7, 100);
  write_in_run(supervisor, "peers.trainer.json", "[{}]");
  assert_false(is_killed_after(supervisor, trainer, SILENT_MS - 1));
  assert_true(is_killed_after(supervisor, trainer, SILENT_MS));
  assert_int_equal(waitpid(trainer->pid, &status, 0), trainer->pid);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  trainer->wait_status = status;
  supervised_ending(trainer, text);
  assert_string_equal(text, "gave no sign of life and was killed");
  supervised_reaped(&supervisor->launcher, trainer, status);
  assert_int_equal(trainer->state, PLM_STAGE_BACKOFF);
}

static void what_excuses_a_trainer(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct plm_config *config = (struct plm_config *)supervisor->stages.config;
  struct supervised *trainer = add(supervisor, PLM_KIND_TRAINER);
  write_in_run(supervisor, "peers.trainer.json", "[{}]");
  assert_false(is_killed_after(supervisor, trainer, START_MS - 1)); /* it starts or tunes */
  step(supervisor, 7, 20000);                                       /* twenty steps are 400 s */
  assert_false(is_killed_after(supervisor, trainer, 399999));
  step(supervisor, 7, 100);
  config->supervisor.silent_s = 0;
  assert_false(is_killed_after(supervisor, trainer, SILENT_MS));
  config->supervisor.silent_s = 0.5; /* any other number is a limit */
  supervisor->stages.draining = true;
  assert_false(is_killed_after(supervisor, trainer, SILENT_MS));
  supervisor->stages.draining = false;
  trainer->state = PLM_STAGE_STOPPING;
  assert_false(is_killed_after(supervisor, trainer, SILENT_MS));
  trainer->state = PLM_STAGE_READY;
  assert_true(is_killed_after(supervisor, trainer, SILENT_MS));
}

/* If nothing can be written into the run folder, a stage cannot show that it lives. */
static void a_broken_disk_excuses(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct supervised *trainer = add(supervisor, PLM_KIND_TRAINER);
  char path[PLM_PATH_SIZE];
  step(supervisor, 7, 100);
  write_in_run(supervisor, "peers.trainer.json", "[{}]");
  assert_int_equal(plm_path_join(path, supervisor->stages.config->run, "supervisor.probe", NULL),
                   PLM_OK);
  assert_int_equal(mkdir(path, 0755), 0);
  assert_false(is_killed_after(supervisor, trainer, SILENT_MS));
  assert_int_equal(rmdir(path), 0);
  const int64_t later_ms = supervisor->watchdog.looked_ms + SILENT_MS;
  watchdog_turn(&supervisor->watchdog, later_ms); /* its silence begins anew */
  assert_false(trainer->silent);
  assert_int_equal(trainer->pulse.since_ms, later_ms);
  assert_true(is_killed_after(supervisor, trainer, SILENT_MS));
  assert_int_equal(access(path, F_OK), -1); /* nothing is left of the probe */
}

/* What an evaluator or a starting trainer said last. */
static void pulse(const struct plm_supervisor *supervisor, const char *role, const char *json)
{
  char name[64], path[PLM_PATH_SIZE];
  snprintf(name, sizeof name, "%s.lock", role);
  assert_int_equal(plm_path_join(path, supervisor->stages.config->run, name, NULL), PLM_OK);
  scratch_age(path, 3600);
  snprintf(name, sizeof name, "pulse.%s.json", role);
  write_in_run(supervisor, name, json);
}

static void an_evaluator_tells_of_its_batches(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct supervised *evaluator = add(supervisor, PLM_KIND_EVALUATOR);
  assert_false(is_killed_after(supervisor, evaluator, START_MS - 1)); /* it has not begun */
  pulse(supervisor, "evaluator", "{\"doing\":\"loading\",\"patient\":true,\"written_ms\":1}");
  assert_false(is_killed_after(supervisor, evaluator, START_MS - 1));
  pulse(supervisor, "evaluator", "{\"doing\":\"evaluating\",\"pace_s\":20,\"written_ms\":2}");
  assert_false(is_killed_after(supervisor, evaluator, 399999)); /* twenty batches are 400 s */
  pulse(supervisor, "evaluator", "{\"doing\":\"evaluating\",\"pace_s\":1,\"written_ms\":3}");
  assert_false(is_killed_after(supervisor, evaluator, SILENT_MS - 1));
  write_in_run(supervisor, "peers.evaluator.json", "[{}]"); /* that it has packers is no sign */
  assert_true(is_killed_after(supervisor, evaluator, SILENT_MS));
}

/* That no packer is listed, or that a checkpoint is being written, does not tell what the thread
 * does that computes: it may hang. If it waits, it says so. */
static void whoever_waits_has_to_say_so(void **state)
{
  static const enum plm_stage_index kinds[] = {PLM_KIND_TRAINER, PLM_KIND_EVALUATOR};
  struct plm_supervisor *supervisor = *state;
  char path[PLM_PATH_SIZE], name[64], json[128];
  assert_int_equal(
      plm_path_join(path, supervisor->stages.config->run, "checkpoints/.tmp-step_00000007", NULL),
      PLM_OK);
  assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
  for (size_t i = 0; i < 2; i++) {
    const char *role = plm_stage_kinds[kinds[i]].name;
    struct supervised *stage = add(supervisor, kinds[i]);
    const int64_t now_ms = plm_clock_ms();
    if (i == 0) step(supervisor, 7, 100);
    snprintf(name, sizeof name, "peers.%s.json", role);
    write_in_run(supervisor, name, "[]");
    for (int second = 0; second < 5; second++) { /* it says so, although seldom */
      snprintf(json, sizeof json,
               "{\"doing\":\"waiting for packers\",\"waits\":true,\"written_ms\":%d}", second + 1);
      pulse(supervisor, role, json);
      supervisor->watchdog.looked_ms = 0;
      watchdog_turn(&supervisor->watchdog, now_ms + second * (SILENT_MS - 1));
      assert_false(stage->silent);
    }
    assert_false(is_killed_after(supervisor, stage, SILENT_MS - 1));
    assert_true(is_killed_after(supervisor, stage, SILENT_MS));
  }
  assert_int_equal(rmdir(path), 0);
}

/* Each sign gives a start its whole time again. */
static void a_start_is_killed_only_without_signs(void **state)
{
  static const enum plm_stage_state states[] = {PLM_STAGE_STARTING, PLM_STAGE_READY};
  struct plm_supervisor *supervisor = *state;
  struct plm_config *config = (struct plm_config *)supervisor->stages.config;
  struct supervised *trainer = add(supervisor, PLM_KIND_TRAINER);
  const int64_t now_ms = plm_clock_ms();
  for (size_t i = 0; i < 2; i++) {
    trainer->state = states[i];
    trainer->pulse = (struct plm_pulse){0};
    for (int sign = 0; sign < 4; sign++) {
      char json[128];
      snprintf(json, sizeof json, "{\"doing\":\"loading\",\"patient\":true,\"written_ms\":%d}",
               sign + 1);
      pulse(supervisor, "trainer", json);
      supervisor->watchdog.looked_ms = 0;
      watchdog_turn(&supervisor->watchdog, now_ms + sign * (START_MS - 1));
      assert_false(trainer->silent);
    }
  }
  config->supervisor.silent_start_s = 0; /* a start is not watched */
  assert_false(is_killed_after(supervisor, trainer, 10 * START_MS));
  config->supervisor.silent_start_s = 1800;
  assert_true(is_killed_after(supervisor, trainer, START_MS));
}

/* A packer's sign of life, of this time; pid: who wrote it. */
static void speak(const struct plm_supervisor *supervisor, const char *doing, int pid, int time)
{
  char json[160];
  snprintf(json, sizeof json, "{\"doing\":\"%s\",\"written_ms\":%d,\"pid\":%d}", doing, time, pid);
  write_in_run(supervisor, "pulse.packer.0.json", json);
}

/* Whether it is killed although it speaks shortly before its time is up. */
static bool is_killed_although_it_speaks(struct plm_supervisor *supervisor,
                                         struct supervised *packer, int pid)
{
  const int64_t now_ms = plm_clock_ms();
  static int time;
  packer->pulse = (struct plm_pulse){.mark = packer->pulse.mark};
  for (int sign = 0; sign < 4 && !packer->silent; sign++) {
    speak(supervisor, "opening corpus 1 of 1 (3 %)", pid, ++time);
    supervisor->watchdog.looked_ms = 0;
    watchdog_turn(&supervisor->watchdog, now_ms + sign * (SILENT_MS - 1));
  }
  return packer->silent;
}

/* A packer that hangs before it is ready, or before any consumer has heard it. What it does at its
 * start, and that it waits for a consumer, are signs of life. */
static void a_packer_that_says_nothing_is_killed(void **state)
{
  static const enum plm_stage_state states[] = {PLM_STAGE_STARTING, PLM_STAGE_READY};
  struct plm_supervisor *supervisor = *state;
  struct supervised *packer = add(supervisor, PLM_KIND_PACKER);
  struct supervised_trouble trouble;
  for (int i = 0; i < 2; i++) {
    packer->state = states[i];
    packer->silent = packer->heard = false;
    plm_run_pulse_remove(supervisor->stages.config->run, "packer.0");
    assert_false(is_killed_after(supervisor, packer, SILENT_MS - 1));
    assert_false(is_killed_although_it_speaks(supervisor, packer, packer->pid));
    assert_false(is_killed_after(supervisor, packer, SILENT_MS - 1));
    own_ms = plm_clock_ms();
    packer->pulse.since_ms = own_ms - 29999;
    supervised_trouble(&supervisor->stages, packer, &trouble);
    assert_string_equal(trouble.text, "");
    packer->pulse.since_ms = own_ms - 3600000;
    supervised_trouble(&supervisor->stages, packer, &trouble);
    own_ms = -1;
    assert_string_equal(trouble.text, "no sign for 1:00:00: opening corpus 1 of 1 (3 %)");
    assert_string_equal(trouble.word, "no sign for: opening corpus 1 of 1 (3 %)");
    struct supervised gone = *packer; /* what it has left behind may still live */
    gone.pid = 0;
    supervised_trouble(&supervisor->stages, &gone, &trouble);
    assert_string_equal(trouble.text, "");
    assert_string_equal(trouble.word, "");
    assert_true(is_killed_after(supervisor, packer, SILENT_MS));
    assert_int_equal(waitpid(packer->pid, NULL, 0), packer->pid);
    packer->pid = start_process();
  }
}

/* A process that was stopped, a packer that no consumer hears, or one that says nothing. */
static void what_troubles_a_stage_is_said(void **state)
{
  static const struct {
    enum plm_stage_index kind;
    bool listing;
    int unheard_ms;
    const char *text, *word;
  } rows[] = {
      {PLM_KIND_PACKER, true, 9999, "", ""},
      {PLM_KIND_PACKER, true, 10000, "heard by no consumer for 0:10", "heard by no consumer"},
      {PLM_KIND_PACKER, true, 3600000, "heard by no consumer for 1:00:00", "heard by no consumer"},
      {PLM_KIND_PACKER, false, 29999, "", ""},
      {PLM_KIND_PACKER, false, 30000, "no sign for 0:30: starting", "no sign for: starting"},
      {PLM_KIND_TRAINER, false, 3600000, "", ""},
      {PLM_KIND_TRAINER, true, 3600000, "", ""},
  };
  struct plm_supervisor *supervisor = *state;
  struct supervised_trouble trouble;
  own_ms = plm_clock_ms();
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct supervised stage = {.kind = rows[i].kind,
                               .state = PLM_STAGE_READY,
                               .pid = getpid(),
                               .listing = rows[i].listing};
    stage.pulse.begun = true;
    stage.pulse.since_ms = own_ms - rows[i].unheard_ms;
    supervised_trouble(&supervisor->stages, &stage, &trouble);
    if (strcmp(trouble.text, rows[i].text) != 0 || strcmp(trouble.word, rows[i].word) != 0)
      fail_msg("row %zu: \"%s\", \"%s\"", i, trouble.text, trouble.word);
  }
  own_ms = -1;
  struct supervised *packer = add(supervisor, PLM_KIND_PACKER);
  assert_int_equal(kill(packer->pid, SIGSTOP), 0);
  assert_int_equal(waitpid(packer->pid, NULL, WUNTRACED), packer->pid);
  supervised_trouble(&supervisor->stages, packer, &trouble);
  assert_string_equal(trouble.text, "stopped by a signal; `kill -CONT` continues it");
  assert_string_equal(trouble.word, "stopped by a signal");
  assert_int_equal(kill(packer->pid, SIGCONT), 0);
}

/* What an earlier process has written is no sign of this one. */
static void a_packer_speaks_for_itself(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct supervised *packer = add(supervisor, PLM_KIND_PACKER);
  assert_true(is_killed_although_it_speaks(supervisor, packer, packer->pid + 1));
}

static void a_packer_is_listed_by_its_consumers(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct supervised *packer = add(supervisor, PLM_KIND_PACKER);
  char host[256] = "", text[400];
  gethostname(host, sizeof host - 1);
  write_in_run(supervisor, "peers.trainer.json", "[]");
  assert_false(is_killed_although_it_speaks(supervisor, packer, packer->pid)); /* never listed */
  snprintf(text, sizeof text, "[{\"host\":\"%s\",\"pid\":%d}]", host, (int)packer->pid);
  write_in_run(supervisor, "peers.trainer.json", text);
  assert_false(is_killed_after(supervisor, packer, SILENT_MS));
  write_in_run(supervisor, "peers.trainer.json", "[{\"host\":\"another\",\"pid\":1}]");
  assert_false(is_killed_after(supervisor, packer, SILENT_MS - 1));
  plm_peers_remove(supervisor->stages.config->run, "trainer"); /* nobody could list it */
  assert_false(is_killed_although_it_speaks(supervisor, packer, packer->pid));
  assert_false(is_killed_after(supervisor, packer, SILENT_MS - 1));
  write_in_run(supervisor, "peers.evaluator.json", "[]"); /* which should have heard it */
  assert_true(is_killed_although_it_speaks(supervisor, packer, packer->pid));
}

/* Each of the two consumers that lists it is enough. What lies behind the last stage is none. */
static void either_consumer_may_list_a_packer(void **state)
{
  static const char *const roles[] = {"trainer", "evaluator"};
  struct plm_supervisor *supervisor = *state;
  struct stages *stages = &supervisor->stages;
  struct supervised *packer = add(supervisor, PLM_KIND_PACKER);
  char host[256] = "", text[400], name[40];
  gethostname(host, sizeof host - 1);
  snprintf(text, sizeof text, "[{\"host\":\"%s\",\"pid\":%d}]", host, (int)packer->pid);
  for (int i = 0; i < 2; i++) {
    for (int k = 0; k < 2; k++) {
      snprintf(name, sizeof name, "peers.%s.json", roles[k]);
      write_in_run(supervisor, name, i == k ? text : "[]");
    }
    assert_false(is_killed_after(supervisor, packer, SILENT_MS));
  }
  stages->all[stages->count] = *packer;
  stages->all[stages->count].heard = false;
  supervisor->watchdog.looked_ms = 0;
  watchdog_turn(&supervisor->watchdog, plm_clock_ms());
  assert_true(packer->heard);
  assert_false(stages->all[stages->count].heard);
}

/* A packer that a signal stopped before it was listed. */
static void a_stopped_packer_is_not_excused(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct supervised *packer = add(supervisor, PLM_KIND_PACKER);
  int status;
  kill(packer->pid, SIGSTOP);
  assert_int_equal(waitpid(packer->pid, &status, WUNTRACED), packer->pid);
  assert_false(is_killed_after(supervisor, packer, SILENT_MS - 1));
  assert_true(is_killed_after(supervisor, packer, SILENT_MS));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_sign_in_time_is_enough),
      TEST(a_trainer_without_steps_is_killed),
      TEST(what_excuses_a_trainer),
      TEST(a_broken_disk_excuses),
      TEST(an_evaluator_tells_of_its_batches),
      TEST(whoever_waits_has_to_say_so),
      TEST(a_start_is_killed_only_without_signs),
      TEST(a_packer_that_says_nothing_is_killed),
      TEST(what_troubles_a_stage_is_said),
      TEST(a_packer_speaks_for_itself),
      TEST(a_packer_is_listed_by_its_consumers),
      TEST(either_consumer_may_list_a_packer),
      TEST(a_stopped_packer_is_not_excused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
