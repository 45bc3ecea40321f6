/* What Kubernetes takes as a name, an image or an amount, on both sides of each bound, and what the
 * configuration of a run becomes in the pods. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "stages/kubernetes/kubernetes_internal.h"

enum { LONGEST = 600 };

static void load(const char *yaml, struct plm_config *config)
{
  struct plm_error error = {0};
  if (plm_config_load_text(yaml, strlen(yaml), config, &error) != PLM_OK)
    fail_msg("%s", error.what);
}

/* So many times `a`, and then another text. */
static const char *repeated(size_t count, const char *more)
{
  static char text[LONGEST + 100];
  assert_true(count < LONGEST && strlen(more) < 100);
  memset(text, 'a', count);
  strcpy(text + count, more);
  return text;
}

/* ---- the name of a run -------------------------------------------------------------------------
 */

static void a_folder_becomes_a_name(void **state)
{
  static const struct {
    const char *run;
    const char *name; /* NULL: it gives none */
  } cases[] = {{"/runs/One_Run", "one-run"}, {"one", "one"},       {"/runs.d/a__B..c", "a-b-c"},
               {"/runs/__a--", "a"},         {"/runs/z9", "z9"},   {"/runs/\xc3\xa9t\xc3\xa9", "t"},
               {"/runs/a\xc3\xa9z", "a-z"},  {"/runs/9a", NULL},   {"/runs/_9", NULL},
               {"/runs/___", NULL},          {"/runs/", NULL},     {"/runs/AZ", "az"},
               {"/runs/a@[`{/:b", "b"},      {"/runs/@[`{:", NULL}};
  char name[PLM_KUBERNETES_NAME_SIZE];
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_error error = {0};
    const plm_status status = plm_kubernetes_name(cases[i].run, name, &error);
    if (cases[i].name != NULL) {
      assert_int_equal(status, PLM_OK);
      assert_string_equal(name, cases[i].name);
    } else {
      assert_int_equal(status, PLM_USAGE);
      assert_string_equal(error.hint, "name the objects with --name, for example --name my-run");
    }
  }
  /* 40 characters at most, of which the last is no hyphen */
  assert_int_equal(plm_kubernetes_name(repeated(41, ""), name, NULL), PLM_OK);
  assert_string_equal(name, repeated(40, ""));
  assert_int_equal(plm_kubernetes_name(repeated(39, "-b"), name, NULL), PLM_OK);
  assert_string_equal(name, repeated(39, ""));
  assert_int_equal(plm_kubernetes_name(repeated(39, "bc"), name, NULL), PLM_OK);
  assert_string_equal(name, repeated(39, "b"));
}

/* ---- checks ------------------------------------------------------------------------------------
 */

static struct plm_config config;

static int load_config(void **state)
{
  (void)state;
  load("corpus: /corpora/one\npacker: {instances: 3}\ntrainer: {ranks: 4}\n", &config);
  return 0;
}

static int free_config(void **state)
{
  (void)state;
  plm_config_deinit(&config);
  return 0;
}

static struct plm_kubernetes_run good(void)
{
  return (struct plm_kubernetes_run){.config = &config,
                                     .name = "run",
                                     .image = "registry/plm:1",
                                     .claim = "disk",
                                     .keys = "/keys",
                                     .memory = "16Gi",
                                     .nodes = 2,
                                     .cpus = 6,
                                     .max_packers = 3};
}

static void takes(const struct plm_kubernetes_run *run)
{
  struct plm_error error = {0};
  if (plm_kubernetes_check(run, &error) != PLM_OK) fail_msg("%s", error.what);
}

static void refuses(const struct plm_kubernetes_run *run, plm_status status, const char *what)
{
  struct plm_error error = {0};
  assert_int_equal(plm_kubernetes_check(run, &error), status);
  assert_int_equal(strncmp(error.what, what, strlen(what)), 0);
}

static void names_are_checked(void **state)
{
  static const char *const labels[] = {"a9", "a-b", "z", "a--0"};
  static const char *const none[] = {"",    "-a", "a-", "aB", "a_b", "a.b",
                                     "a b", "a`", "a{", "a/", "a:"};
  (void)state;
  for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
    struct plm_kubernetes_run run = good();
    run.name = run.namespace_ = run.claim = labels[i];
    takes(&run);
  }
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
    struct plm_kubernetes_run run = good();
    run.name = none[i];
    refuses(&run, PLM_USAGE, "--name ");
    run = good();
    run.namespace_ = none[i];
    refuses(&run, PLM_USAGE, "--namespace ");
    run = good();
    run.claim = none[i];
    if (strcmp(none[i], "a.b") == 0)
      takes(&run);
    else
      refuses(&run, PLM_USAGE, "--claim ");
  }
  struct plm_kubernetes_run run = good();
  run.name = "9a"; /* as a namespace or a claim it is one */
  refuses(&run, PLM_USAGE, "--name ");
  run = good();
  run.namespace_ = run.claim = "9a";
  takes(&run);
}

static void long_names_are_refused(void **state)
{
  (void)state;
  for (int more = 0; more < 2; more++) {
    struct plm_kubernetes_run run = good();
    run.name = repeated(40 + (size_t)more, "");
    if (more == 0) takes(&run);
    if (more == 1) refuses(&run, PLM_USAGE, "--name ");
    run = good();
    run.namespace_ = repeated(63 + (size_t)more, "");
    if (more == 0) takes(&run);
    if (more == 1) refuses(&run, PLM_USAGE, "--namespace ");
    run = good();
    run.claim = repeated(253 + (size_t)more, "");
    if (more == 0) takes(&run);
    if (more == 1) refuses(&run, PLM_USAGE, "--claim ");
    run.claim = repeated(251 + (size_t)more, ".b");
    if (more == 0) takes(&run);
    if (more == 1) refuses(&run, PLM_USAGE, "--claim ");
    run = good();
    run.image = repeated(500 + (size_t)more, "");
    if (more == 0) takes(&run);
    if (more == 1) refuses(&run, PLM_USAGE, "--image ");
  }
}

/* Each part between dots is a label. */
static void claims_may_have_dots(void **state)
{
  static const char *const claims[] = {"9.b", "a-b.c", "a.b.c.0"}, *const none[] = {
                                                                       ".",    "a.",   ".a",
                                                                       "a..b", "-a.b", "a-.b",
                                                                       "a.-b", "a.b-", "a.B"};
  (void)state;
  for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
    struct plm_kubernetes_run run = good();
    run.claim = claims[i];
    takes(&run);
  }
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
    struct plm_kubernetes_run run = good();
    run.claim = none[i];
    refuses(&run, PLM_USAGE, "--claim ");
  }
}

static void images_and_amounts_are_checked(void **state)
{
  static const char *const images[] = {"i", "9", "Z", "registry.example:5/Lab/a_b-c@sha256:0"};
  static const char *const no_images[] = {"", ".a", "/a", "a#b", "a b", "@a", "_a"};
  static const char *const memories[] = {
      "1", "16Gi", "10k", "1M", "1G", "1T", "1Ki", "1Mi", "1Ti", "999999999999", "100000000000Ti"};
  static const char *const no_memories[] = {
      "",     "0",     "01Gi", "16gi",          "16GiB",
      "Gi",   "1.5Gi", "-1Gi", "1000000000000", "1000000000000Ti",
      "1 Gi", "1K"};
  (void)state;
  for (size_t i = 0; i < sizeof images / sizeof *images; i++) {
    struct plm_kubernetes_run run = good();
    run.image = images[i];
    takes(&run);
  }
  for (size_t i = 0; i < sizeof no_images / sizeof *no_images; i++) {
    struct plm_kubernetes_run run = good();
    run.image = no_images[i];
    refuses(&run, PLM_USAGE, "--image \"");
  }
  for (size_t i = 0; i < sizeof memories / sizeof *memories; i++) {
    struct plm_kubernetes_run run = good();
    run.memory = memories[i];
    takes(&run);
  }
  for (size_t i = 0; i < sizeof no_memories / sizeof *no_memories; i++) {
    struct plm_kubernetes_run run = good();
    run.memory = no_memories[i];
    refuses(&run, PLM_USAGE, "--memory ");
  }
  struct plm_kubernetes_run run = good();
  run.image = NULL;
  refuses(&run, PLM_USAGE, "--image is missing");
  run = good();
  run.keys = NULL;
  refuses(&run, PLM_CONFIG, "--keys is missing");
}

static void nodes_and_packers_fit_the_configuration(void **state)
{
  (void)state;
  struct plm_kubernetes_run run = good();
  for (run.nodes = 1; run.nodes <= 5; run.nodes++) {
    if (run.nodes == 3 || run.nodes == 5)
      refuses(&run, PLM_USAGE,
              run.nodes == 3 ? "--nodes 3 does not divide trainer.ranks, which is 4"
                             : "--nodes 5 does not divide trainer.ranks, which is 4");
    else
      takes(&run);
  }
  run = good();
  run.max_packers = 2;
  refuses(&run, PLM_USAGE, "--max-packers 2 is below packer.instances, which is 3");
  run.max_packers = 4;
  takes(&run);
  struct plm_config without;
  load("corpus: null\ntrainer: {ranks: 1}\n", &without);
  run = good();
  run.nodes = 1;
  run.config = &without;
  refuses(&run, PLM_CONFIG, "corpus: is not set");
  plm_config_deinit(&without);
}

/* One host a node at most. */
static void nodes_have_a_limit(void **state)
{
  struct plm_config many;
  char yaml[200];
  (void)state;
  for (int more = 0; more < 2; more++) {
    struct plm_kubernetes_run run = good();
    load("corpus: /corpora/one\npacker: {instances: 3}\n", &many);
    many.trainer.ranks = run.nodes = (unsigned)(PLM_MAX_HOSTS + more);
    run.config = &many;
    snprintf(yaml, sizeof yaml, "--nodes must be at most %d", PLM_MAX_HOSTS);
    if (more == 0) takes(&run);
    if (more == 1) refuses(&run, PLM_USAGE, yaml);
    plm_config_deinit(&many);
  }
}

/* ---- in the pods -------------------------------------------------------------------------------
 */

static void paths_lie_in_the_volume(void **state)
{
  struct plm_config moved;
  (void)state;
  load("run: /home/runs/first\ncorpus: [{path: /a/one}, {path: /b/two}]\n"
       "trainer: {init_from: /models/esm2, ranks: 6, threads: 3, batch_tokens: 6144, "
       "micro_batch_tokens: 512}\n"
       "evaluator: {sets: [{name: o, corpus: /c/three, split: test}, {name: p, split: test, "
       "corpus: /a/one}], tasks: [{name: t, kind: contacts, path: /d/proteins}, "
       "{name: u, kind: assays, path: /d/assays, reference: /d/list.csv}]}\n",
       &moved);
  struct plm_kubernetes_run run = good();
  struct plm_error error = {0};
  run.config = &moved;
  run.nodes = 3;
  run.name = "first";
  if (plm_kubernetes_config(&run, &error) != PLM_OK) fail_msg("%s", error.what);
  assert_string_equal(moved.run, "/data/runs/first");
  assert_string_equal(moved.corpus, "/data/one");
  assert_string_equal(moved.sources[0].path, "/data/one");
  assert_string_equal(moved.sources[1].path, "/data/two");
  assert_string_equal(moved.trainer.init_from, "/data/esm2");
  assert_string_equal(moved.evaluator.sets[0].corpus, "/data/three");
  assert_string_equal(moved.evaluator.sets[1].corpus, "/data/one");
  assert_string_equal(moved.evaluator.tasks[0].path, "/data/proteins");
  assert_null(moved.evaluator.tasks[0].reference);
  assert_string_equal(moved.evaluator.tasks[1].path, "/data/assays");
  assert_string_equal(moved.evaluator.tasks[1].reference, "/data/list.csv");
  assert_string_equal(moved.network.feed, "tcp://0.0.0.0:5701");
  assert_string_equal(moved.network.feed_address, "tcp://first:5701");
  assert_string_equal(moved.network.evaluation_feed, "tcp://0.0.0.0:5702");
  assert_string_equal(moved.network.evaluation_feed_address, "tcp://first-evaluator:5702");
  assert_string_equal(moved.network.announcements, "tcp://0.0.0.0:5703");
  assert_string_equal(moved.network.announcements_address, "tcp://first:5703");
  assert_string_equal(moved.network.keys, "/keys/run");
  assert_string_equal(moved.prometheus, "0.0.0.0:9464");
  assert_int_equal(moved.trainer.host_count, 3);
  assert_string_equal(moved.trainer.hosts[0], "first-trainer-launcher:2");
  assert_string_equal(moved.trainer.hosts[1], "first-trainer-worker-0.first-trainer:2");
  assert_string_equal(moved.trainer.hosts[2], "first-trainer-worker-1.first-trainer:2");
  assert_int_equal(moved.trainer.threads, 6);
  assert_int_not_equal(moved.evaluator.threads, 5);
  plm_config_deinit(&moved);
}

/* One node has no hosts, whatever the configuration says. */
static void one_node_has_no_hosts(void **state)
{
  struct plm_config moved;
  (void)state;
  load("run: /r/first\ncorpus: /a/one\ntrainer: {ranks: 4, hosts: ['a:2', 'b:2']}\nevaluator: "
       "{threads: 5}\n",
       &moved);
  struct plm_kubernetes_run run = good();
  run.config = &moved;
  run.nodes = 1;
  run.evaluator_cpus = 1;
  assert_int_equal(plm_kubernetes_config(&run, NULL), PLM_OK);
  assert_int_equal(moved.trainer.host_count, 0);
  assert_null(moved.trainer.hosts[0]);
  assert_null(moved.trainer.hosts[1]);
  assert_int_equal(moved.evaluator.threads, 1);
  plm_config_deinit(&moved);
}

/* The longest name, at both places of a host and in all addresses. */
static void long_names_stay_whole(void **state)
{
  struct plm_config moved;
  char name[PLM_KUBERNETES_NAME_SIZE], expected[200];
  (void)state;
  snprintf(name, sizeof name, "%s", repeated(40, ""));
  load("run: /r/first\ncorpus: /a/one\ntrainer: {ranks: 4}\n", &moved);
  struct plm_kubernetes_run run = good();
  run.config = &moved;
  run.name = name;
  assert_int_equal(plm_kubernetes_config(&run, NULL), PLM_OK);
  snprintf(expected, sizeof expected, "%s-trainer-launcher:2", name);
  assert_string_equal(moved.trainer.hosts[0], expected);
  snprintf(expected, sizeof expected, "%s-trainer-worker-0.%s-trainer:2", name, name);
  assert_string_equal(moved.trainer.hosts[1], expected);
  snprintf(expected, sizeof expected, "tcp://%s:5701", name);
  assert_string_equal(moved.network.feed_address, expected);
  snprintf(expected, sizeof expected, "tcp://%s-evaluator:5702", name);
  assert_string_equal(moved.network.evaluation_feed_address, expected);
  plm_config_deinit(&moved);
}

static void two_folders_of_one_name_are_refused(void **state)
{
  static const struct {
    const char *yaml;
    const char *what; /* NULL: they may lie there */
  } cases[] = {
      {"corpus: /a/one\ntrainer: {init_from: /b/one}\n",
       "corpus and trainer.init_from are different folders called \"one\""},
      {"corpus: [{path: /a/one}, {path: /b/two}, {path: /c/one}]\n",
       "corpus and corpus are different folders called \"one\""},
      {"corpus: /a/one\nevaluator: {sets: [{name: x, corpus: /c/one, split: test}]}\n",
       "corpus and evaluator.sets are different folders called \"one\""},
      {"corpus: /a/one\nevaluator: {tasks: [{name: x, kind: contacts, path: /c/one}]}\n",
       "corpus and evaluator.tasks are different folders called \"one\""},
      {"corpus: /a/runs\n", "corpus: a folder called \"runs\" cannot lie in the volume"},
      {"corpus: /a/one\ntrainer: {init_from: /b/runs}\n",
       "trainer.init_from: a folder called \"runs\" cannot lie in the volume"},
      {"corpus: /\n", "corpus: a folder called \"\" cannot lie in the volume"},
      {"corpus: /a/one\nevaluator: {sets: [{name: x, corpus: /a/one, split: test}]}\n", NULL},
      {"corpus: /a/run\n", NULL},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_config moved;
    struct plm_error error = {0};
    load(cases[i].yaml, &moved);
    struct plm_kubernetes_run run = good();
    run.config = &moved;
    run.nodes = 1;
    const plm_status status = plm_kubernetes_config(&run, &error);
    assert_int_equal(status, cases[i].what == NULL ? PLM_OK : PLM_CONFIG);
    if (cases[i].what != NULL) assert_string_equal(error.what, cases[i].what);
    plm_config_deinit(&moved);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_folder_becomes_a_name),
      cmocka_unit_test(names_are_checked),
      cmocka_unit_test(long_names_are_refused),
      cmocka_unit_test(claims_may_have_dots),
      cmocka_unit_test(images_and_amounts_are_checked),
      cmocka_unit_test(nodes_and_packers_fit_the_configuration),
      cmocka_unit_test(nodes_have_a_limit),
      cmocka_unit_test(paths_lie_in_the_volume),
      cmocka_unit_test(one_node_has_no_hosts),
      cmocka_unit_test(long_names_stay_whole),
      cmocka_unit_test(two_folders_of_one_name_are_refused),
  };
  return cmocka_run_group_tests(tests, load_config, free_config);
}
