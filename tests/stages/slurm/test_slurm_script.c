/* The job script of a run: what it asks for, what its steps get, and what is refused. */
#include "stages/slurm/slurm_script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "tests/support/expected/expected_file.h"
#include "tests/support/harness/cmocka_all.h"

static void load(const char *yaml, struct plm_config *config)
{
  struct plm_error error = {0};
  if (plm_config_load_text(yaml, strlen(yaml), config, &error) != PLM_OK)
    fail_msg("%s", error.what);
  config->path = plm_strdup("/home/pipeline.yaml");
}

static struct plm_slurm_job job_of(const struct plm_config *config)
{
  return (struct plm_slurm_job){.config = config,
                                .program_directory = "/opt/bin",
                                .working_directory = "/home",
                                .nodes = 1,
                                .cpus = 6,
                                .evaluator_cpus = 4,
                                .packer_cpus = 2,
                                .notice_s = 90,
                                .time = "1-00:00:00"};
}

static char *script_of(const struct plm_slurm_job *job)
{
  struct plm_text text = {0};
  struct plm_error error = {0};
  if (plm_slurm_script(job, &text, &error) != PLM_OK) fail_msg("%s", error.what);
  return text.data;
}

/* Whether a line of the script begins like this; a missing end of it may be anything. */
static bool has(const char *script, const char *line)
{
  const size_t length = strlen(line);
  for (const char *at = script; at != NULL; at = strchr(at, '\n')) {
    at += at != script;
    at += strspn(at, " ");
    if (strncmp(at, line, length) == 0) return true;
  }
  return false;
}

static void expect(const char *script, const char *const *lines, const char *const *missing)
{
  for (; *lines != NULL; lines++)
    if (!has(script, *lines)) fail_msg("no line \"%s\" in\n%s", *lines, script);
  for (; *missing != NULL; missing++)
    if (has(script, *missing)) fail_msg("a line \"%s\" in\n%s", *missing, script);
}

/* ---- what the job asks for
 * -----------------------------------------------------------------------
 */

static void one_node_has_everything(void **state)
{
  struct plm_config config;
  (void)state;
  load("run: /runs/First_run.1\ncorpus: /c\npacker: {instances: 3}\ntrainer: {ranks: 4}\n",
       &config);
  struct plm_slurm_job job = job_of(&config);
  char *script = script_of(&job);
  expect(script,
         (const char *const[]){
             "#SBATCH --job-name=First_run.1\n", "#SBATCH --chdir=/home\n",
             "#SBATCH --signal=B:USR1@90\n", "#SBATCH --time=1-00:00:00\n", "#SBATCH --nodes=1\n",
             "#SBATCH --ntasks=1\n", "#SBATCH --cpus-per-task=34\n", "run=/runs/First_run.1\n",
             "-c /home/pipeline.yaml --run", "here='' packers=' --relative=0'\n",
             "/opt/bin/plm-pipeline up ",
             "--launch trainer=\"$step$here --job-name=trainer --nodes=1 --ntasks=4 "
             "--ntasks-per-node=4 --cpus-per-task=6 --kill-on-bad-exit=1 --mpi=pmix\"\n",
             "--launch evaluator=\"$step$here --job-name=evaluator --nodes=1 --relative=0 "
             "--ntasks=1 --cpus-per-task=4\"\n",
             "--launch packer=\"$step$packers --job-name=packer --nodes=1 --ntasks=1 "
             "--cpus-per-task=2\"\n",
             "trainer evaluator packer\n", "--set 'network.feed=tcp://127.0.0.1:*'\n",
             "--set 'network.evaluation_feed=tcp://127.0.0.1:*'\n",
             "--set 'network.announcements=tcp://127.0.0.1:*'\n", NULL},
         (const char *const[]){"#SBATCH --gres", "#SBATCH --account", "#SBATCH --partition",
                               "#SBATCH hetjob", "address=", NULL});
  free(script);
  job.evaluator_cpus = 0;
  job.account = "lab 1";
  job.partition = "long";
  script = script_of(&job);
  expect(script,
         (const char *const[]){"#SBATCH --cpus-per-task=30\n", "#SBATCH --account='lab 1'\n",
                               "#SBATCH --partition=long\n", "trainer packer\n", NULL},
         (const char *const[]){"--launch evaluator", NULL});
  free(script);
  plm_config_deinit(&config);
}

/* The packers may have nodes of their own, which need an address and keys. */
static void packers_on_other_nodes(void **state)
{
  struct plm_config config;
  (void)state;
  load("run: /runs/a b\ncorpus: /c\npacker: {instances: 3}\ntrainer: {ranks: 4}\n"
       "network: {keys: /keys}\n",
       &config);
  struct plm_slurm_job job = job_of(&config);
  job.nodes = 2;
  job.packer_nodes = 3;
  job.partition = "gpu";
  job.packer_partition = "cpu";
  job.sbatch = (const char *const[]){"--exclusive", "--mem=0", NULL};
  job.packer_sbatch = (const char *const[]){"--mem=1G", NULL};
  job.setup = (const char *const[]){"module load x", "export A=b", NULL};
  char *script = script_of(&job);
  expect(
      script,
      (const char *const[]){"#SBATCH --job-name=a_b\n",
                            "#SBATCH --nodes=2\n",
                            "#SBATCH --ntasks=2\n",
                            "#SBATCH --cpus-per-task=16\n",
                            "#SBATCH --partition=gpu\n",
                            "#SBATCH --exclusive\n",
                            "#SBATCH --mem=0\n",
                            "#SBATCH hetjob\n",
                            "#SBATCH --partition=cpu\n",
                            "#SBATCH --nodes=3\n",
                            "#SBATCH --ntasks=3\n",
                            "#SBATCH --cpus-per-task=2\n",
                            "#SBATCH --mem=1G\n",
                            "module load x\n",
                            "export A=b\n",
                            "run='/runs/a b'\n",
                            "--set \"network.feed=tcp://$address:*\"\n",
                            "--set \"network.evaluation_feed=tcp://$address:*\"\n",
                            "--set 'network.announcements=tcp://127.0.0.1:*'\n",
                            "here=' --het-group=0' packers=' --het-group=1'\n",
                            "--launch trainer=\"$step$here --job-name=trainer --nodes=2 --ntasks=4 "
                            "--ntasks-per-node=2 --cpus-per-task=6 ",
                            NULL},
      (const char *const[]){"here='' ", NULL});
  free(script);
  job.packer_partition = NULL; /* then it is that of the trainer */
  script = script_of(&job);
  const char *second = strstr(script, "#SBATCH hetjob\n");
  assert_non_null(second);
  assert_true(has(second, "#SBATCH --partition=gpu\n"));
  free(script);
  plm_config_deinit(&config);
}

/* A step without a GPU says so if the job has one. */
static void each_step_gets_its_gpus(void **state)
{
  static const struct {
    const char *trainer, *evaluator;
    unsigned evaluator_cpus, packer_nodes;
    const char *asked, *of_trainer, *of_evaluator, *of_packer; /* NULL: nothing */
  } cases[] = {
      {"cpu", "cpu", 1, 0, NULL, NULL, NULL, NULL},
      {"cuda", "cpu", 1, 0, "gpu:2", "gpu:2", "none", "none"},
      {"cuda", "cuda", 1, 0, "gpu:3", "gpu:2", "gpu:1", "none"},
      {"cpu", "cuda", 1, 0, "gpu:1", NULL, "gpu:1", "none"},
      {"cpu", "cuda", 0, 0, NULL, NULL, NULL, NULL},
      {"cuda", "cuda", 0, 0, "gpu:2", "gpu:2", NULL, "none"},
      {"cuda", "cpu", 1, 1, "gpu:2", "gpu:2", "none", NULL},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_config config;
    char yaml[300], line[200];
    snprintf(yaml, sizeof yaml,
             "run: /runs/r\ncorpus: /c\npacker: {instances: 1}\nnetwork: {keys: /k}\n"
             "trainer: {ranks: 4, device: %s}\nevaluator: {device: %s}\n",
             cases[i].trainer, cases[i].evaluator);
    load(yaml, &config);
    struct plm_slurm_job job = job_of(&config);
    job.nodes = 2;
    job.evaluator_cpus = cases[i].evaluator_cpus;
    job.packer_nodes = cases[i].packer_nodes;
    char *script = script_of(&job);
    assert_int_equal(has(script, "#SBATCH --gres="), cases[i].asked != NULL);
    if (cases[i].asked != NULL) {
      snprintf(line, sizeof line, "#SBATCH --gres=%s\n", cases[i].asked);
      assert_true(has(script, line));
    }
    snprintf(line, sizeof line,
             "--launch trainer=\"$step$here --job-name=trainer --nodes=2 --ntasks=4 "
             "--ntasks-per-node=2 --cpus-per-task=6 --kill-on-bad-exit=1 --mpi=pmix%s%s\"\n",
             cases[i].of_trainer != NULL ? " --gres=" : "",
             cases[i].of_trainer != NULL ? cases[i].of_trainer : "");
    if (!has(script, line)) fail_msg("case %zu: no line \"%s\" in\n%s", i, line, script);
    snprintf(line, sizeof line,
             "--launch evaluator=\"$step$here --job-name=evaluator --nodes=1 --relative=0 "
             "--ntasks=1 --cpus-per-task=1%s%s\"\n",
             cases[i].of_evaluator != NULL ? " --gres=" : "",
             cases[i].of_evaluator != NULL ? cases[i].of_evaluator : "");
    assert_int_equal(has(script, line), cases[i].evaluator_cpus > 0);
    snprintf(line, sizeof line,
             "--launch packer=\"$step$packers --job-name=packer --nodes=1 --ntasks=1 "
             "--cpus-per-task=2%s%s\"\n",
             cases[i].of_packer != NULL ? " --gres=" : "",
             cases[i].of_packer != NULL ? cases[i].of_packer : "");
    if (!has(script, line)) fail_msg("case %zu: no line \"%s\" in\n%s", i, line, script);
    free(script);
    plm_config_deinit(&config);
  }
}

/* One rank needs no MPI, and without packers there is no step for them. */
static void a_small_job(void **state)
{
  struct plm_config config;
  (void)state;
  load("run: r\ncorpus: /c\npacker: {instances: 0}\nnetwork: {keys: /k, feed: 'tcp://10.0.0.1:5', "
       "evaluation_feed: 'ipc:///tmp/e', announcements: 'tcp://127.0.0.1:7'}\n",
       &config);
  free(config.run);
  config.run = plm_strdup("r");
  const struct plm_config_override overrides[] = {
      {"seed", "5"}, {"run", "other"}, {"trainer.steps", "a b"}};
  struct plm_slurm_job job = job_of(&config);
  job.overrides = overrides;
  job.override_count = 3;
  char *script = script_of(&job);
  expect(script,
         (const char *const[]){
             "#SBATCH --job-name=r\n", "#SBATCH --cpus-per-task=10\n", "run=r\n", "--set seed=5\n",
             "--set 'trainer.steps=a b'\n", "--set 'network.announcements=tcp://127.0.0.1:*'\n",
             "--launch trainer=\"$step$here --job-name=trainer --nodes=1 --ntasks=1 "
             "--ntasks-per-node=1 --cpus-per-task=6 --kill-on-bad-exit=1\"\n",
             "trainer evaluator\n", NULL},
         (const char *const[]){"--launch packer", "--set run", "--set 'network.feed",
                               "--set 'network.evaluation_feed", NULL});
  free(script);
  plm_config_deinit(&config);
}

/* Every value is another one, so the whole scripts show where each of them goes. */
static void whole_scripts(void **state)
{
  struct plm_config config;
  struct plm_text both = {0};
  (void)state;
  load("run: /runs/whole\ncorpus: /c\npacker: {instances: 4}\ntrainer: {ranks: 6, device: cuda, "
       "batch_tokens: 6144, micro_batch_tokens: 512}\n"
       "evaluator: {device: cuda}\nnetwork: {keys: /keys}\n",
       &config);
  const struct plm_config_override overrides[] = {{"seed", "8"}, {"trainer.steps", "11"}};
  struct plm_slurm_job job = {.config = &config,
                              .program_directory = "/opt/the bin",
                              .working_directory = "/home/me",
                              .nodes = 2,
                              .cpus = 5,
                              .evaluator_cpus = 7,
                              .packer_nodes = 3,
                              .packer_cpus = 13,
                              .notice_s = 90,
                              .time = "2:00:00",
                              .account = "lab",
                              .partition = "gpu",
                              .packer_partition = "cpu",
                              .sbatch = (const char *const[]){"--exclusive", "--mem=0", NULL},
                              .packer_sbatch = (const char *const[]){"--mem=1G", "--hold", NULL},
                              .setup = (const char *const[]){"module load x", "export A=b", NULL},
                              .overrides = overrides,
                              .override_count = 2};
  for (int i = 0; i < 2; i++) {
    char *script = script_of(&job);
    const char *end = strstr(script, "\nsay() {"); /* nothing varies from here on */
    assert_non_null(end);
    plm_text_printf(&both, "%.*s====\n", (int)(end - script), script);
    free(script);
    job.packer_nodes = 0;
    job.account = job.partition = job.packer_partition = NULL;
    job.sbatch = job.packer_sbatch = job.setup = NULL;
    job.override_count = 0;
  }
  expected_file("stages/slurm/expected/scripts", both.data);
  plm_text_deinit(&both);
  plm_config_deinit(&config);
}

/* ---- what is refused
 * -----------------------------------------------------------------------------
 */

static void refuses(const struct plm_slurm_job *job, plm_status status, const char *what)
{
  struct plm_text text = {0};
  struct plm_error error = {0};
  assert_int_equal(plm_slurm_script(job, &text, &error), status);
  assert_string_equal(error.what, what);
  assert_int_equal(text.length, 0);
  plm_text_deinit(&text);
}

static void nodes_must_fit(void **state)
{
  struct plm_config config;
  (void)state;
  load("run: /runs/r\ncorpus: /c\npacker: {instances: 2}\ntrainer: {ranks: 4}\n", &config);
  struct plm_slurm_job job = job_of(&config);
  job.nodes = 3;
  refuses(&job, PLM_USAGE, "--nodes 3 does not divide trainer.ranks, which is 4");
  job.nodes = 8;
  refuses(&job, PLM_USAGE, "--nodes 8 does not divide trainer.ranks, which is 4");
  job.nodes = 4;
  free(script_of(&job));
  job.packer_nodes = 3;
  refuses(&job, PLM_USAGE, "--packer-nodes 3 is above packer.instances, which is 2");
  job.packer_nodes = 1;
  refuses(&job, PLM_CONFIG, "packers on other nodes need CURVE keys, but network.keys is not set");
  job.packer_nodes = 2;
  refuses(&job, PLM_CONFIG, "packers on other nodes need CURVE keys, but network.keys is not set");
  config.network.keys = plm_strdup("/keys");
  free(script_of(&job));
  plm_config_deinit(&config);
}

/* A line break would end a line of the script, and srun replaces what follows a %. */
static void control_characters_are_refused(void **state)
{
  static const char *const bad[] = {"a\nb", "\x1f", "a\x7f"}, *const good[] = {"a b", "~",
                                                                               "\xc3\xa9"};
  static const char *const what[] = {"the path of the configuration",
                                     "the path of the programs",
                                     "the path of the working directory",
                                     "--time",
                                     "--account",
                                     "--partition",
                                     "--packer-partition",
                                     "--set",
                                     "--sbatch",
                                     "--packer-sbatch",
                                     "--setup",
                                     "the path of the run folder"};
  struct plm_config config;
  (void)state;
  load("run: /runs/r\ncorpus: /c\npacker: {instances: 2}\n", &config);
  for (size_t w = 0; w < sizeof what / sizeof *what; w++)
    for (size_t i = 0; i < 6; i++) {
      const char *text = i < 3 ? bad[i] : good[i - 3];
      const char *const list[] = {"first", text, NULL};
      const struct plm_config_override overrides[] = {{"seed", "1"}, {"seed", text}};
      struct plm_config given = config;
      struct plm_slurm_job job = job_of(&given);
      char expected[100];
      if (w == 0) given.path = (char *)text;
      if (w == 1) job.program_directory = text;
      if (w == 2) job.working_directory = text;
      if (w == 3) job.time = text;
      if (w == 4) job.account = text;
      if (w == 5) job.partition = text;
      if (w == 6) job.packer_partition = text;
      if (w == 7) {
        job.overrides = overrides;
        job.override_count = 2;
      }
      if (w == 8) job.sbatch = list;
      if (w == 9) job.packer_sbatch = list;
      if (w == 10) job.setup = list;
      if (w == 11) given.run = (char *)text;
      snprintf(expected, sizeof expected, "%s has a line break or another control character",
               what[w]);
      if (i < 3)
        refuses(&job, PLM_USAGE, expected);
      else
        free(script_of(&job));
    }
  struct plm_config given = config;
  struct plm_slurm_job job = job_of(&given);
  given.run = (char *)"/runs/50%";
  refuses(&job, PLM_USAGE, "the path of the run folder has a %: /runs/50%");
  plm_config_deinit(&config);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(whole_scripts),
      cmocka_unit_test(one_node_has_everything),
      cmocka_unit_test(packers_on_other_nodes),
      cmocka_unit_test(each_step_gets_its_gpus),
      cmocka_unit_test(a_small_job),
      cmocka_unit_test(nodes_must_fit),
      cmocka_unit_test(control_characters_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
