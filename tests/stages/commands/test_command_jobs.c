/* `plm-pipeline slurm` and `k8s`: which values of options and of the configuration come into the
 * job script and the objects, what is refused, and what is advised. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/harness/scratch.h"

static char folder[PLM_PATH_SIZE];

static int setup(void **state)
{
  static const char yaml[] = "run: runs/one\ncorpus: /data/c\nnetwork: {keys: keys}\n"
                             "trainer: {device: cpu}\npacker: {instances: 3}\n";
  (void)state;
  scratch_run(folder);
  assert_int_equal(chdir(folder), 0);
  scratch_write("its.yaml", yaml, strlen(yaml));
  assert_int_equal(COMMAND("keys", "keys", "--client", "packer"), 0);
  return 0;
}

static void has(const char *text)
{
  if (strstr(command_out, text) == NULL) fail_msg("\"%s\" is not in: %s", text, command_out);
}

static void has_not(const char *text)
{
  if (strstr(command_out, text) != NULL) fail_msg("\"%s\" is in: %s", text, command_out);
}

static void advises(const char *text)
{
  if (strstr(command_err, text) == NULL) fail_msg("\"%s\" is not in: %s", text, command_err);
}

/* ---- slurm ------------------------------------------------------------------------------------
 */

#define SLURM(...) COMMAND("slurm", "its.yaml", __VA_ARGS__)

static void a_job_has_its_usual_size(void **state)
{
  (void)state;
  assert_int_equal(SLURM("-q"), 0);
  has("\n#SBATCH --time=24:00:00\n#SBATCH --nodes=1\n");
  has("\n#SBATCH --signal=B:USR1@120\n");
  has(" --job-name=trainer --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=8 ");
  has(" --job-name=evaluator --nodes=1 --relative=0 --ntasks=1 --cpus-per-task=2\"\n");
  has(" --job-name=packer --nodes=1 --ntasks=1 --cpus-per-task=2\"\n");
  has("\n  /nowhere/plm-pipeline up ");
  has_not("--account");
  has_not("--partition");
  char line[PLM_PATH_SIZE + 100];
  snprintf(line, sizeof line, "#SBATCH --chdir=%s\n", folder);
  has(line);
  assert_string_equal(command_err, "");
  assert_int_equal(SLURM("--set", "trainer.threads=5", "--set", "evaluator.threads=3", "--set",
                         "trainer.stop_timeout_s=60"),
                   0);
  has("--ntasks-per-node=1 --cpus-per-task=5 ");
  has("--relative=0 --ntasks=1 --cpus-per-task=3\"\n");
  has("@120\n");
  has(" --set trainer.threads=5\n");
  assert_int_equal(SLURM("--set", "trainer.stop_timeout_s=61"), 0);
  has("@121\n");
  assert_int_equal(SLURM("--set", "trainer.stop_timeout_s=65475"), 0);
  has("@65535\n");
  assert_int_equal(SLURM("--set", "trainer.stop_timeout_s=65476"), 0);
  has("@65535\n");
}

static void options_change_the_job(void **state)
{
  (void)state;
  assert_int_equal(SLURM("--time", "1-00:00:00", "--account", "them", "--partition", "here",
                         "--nodes", "2", "--cpus", "6", "--evaluator-cpus", "4", "--packer-cpus",
                         "7", "--notice", "99", "--sbatch", "--mem=64G", "--sbatch", "--qos=x",
                         "--setup", "module load a", "--setup", "true", "--set", "trainer.ranks=4"),
                   0);
  has("\n#SBATCH --time=1-00:00:00\n");
  has("\n#SBATCH --account=them\n");
  has("\n#SBATCH --partition=here\n");
  has("\n#SBATCH --nodes=2\n");
  has("\n#SBATCH --mem=64G\n#SBATCH --qos=x\n");
  has("USR1@99\n");
  has(" --ntasks-per-node=2 --cpus-per-task=6 ");
  has("--ntasks=1 --cpus-per-task=4\"");
  has("--ntasks=1 --cpus-per-task=7\"");
  has("\nmodule load a");
  has("\ntrue");
  assert_int_equal(SLURM("--packer-nodes", "3", "--packer-partition", "there", "--packer-sbatch",
                         "--mem=1G", "--no-evaluator"),
                   0);
  has("\n#SBATCH hetjob\n");
  has("\n#SBATCH --partition=there\n");
  has("\n#SBATCH --nodes=3\n");
  has("\n#SBATCH --mem=1G\n");
  has_not("--job-name=evaluator");
  has("\n  trainer packer\n");
}

static void options_of_a_job_have_bounds(void **state)
{
  static const struct {
    const char *option, *least, *most, *below, *beyond;
  } cases[] = {
      {"--cpus", "1", "4096", "0", "4097"},        {"--evaluator-cpus", "1", "4096", "0", "4097"},
      {"--packer-cpus", "1", "4096", "0", "4097"}, {"--packer-nodes", "0", "3", "-1", "4097"},
      {"--notice", "1", "65535", "0", "65536"},    {"--nodes", "1", "1", "0", "4097"}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(SLURM(cases[i].option, cases[i].least), 0);
    if (SLURM(cases[i].option, cases[i].most) != 0)
      fail_msg("%s: %s", cases[i].option, command_err);
    assert_int_equal(SLURM(cases[i].option, cases[i].below), 2);
    assert_int_equal(SLURM(cases[i].option, cases[i].beyond), 2);
  }
  COMMAND_REFUSES(2, "--time \"1d\" is not a time limit", "slurm", "its.yaml", "--time", "1d");
  COMMAND_REFUSES(2, "--packer-partition needs --packer-nodes N", "slurm", "its.yaml",
                  "--packer-partition", "x");
  COMMAND_REFUSES(2, "--packer-sbatch needs --packer-nodes N", "slurm", "its.yaml",
                  "--packer-sbatch", "x");
  COMMAND_REFUSES(2, "--no-evaluator and --evaluator-cpus contradict each other", "slurm",
                  "its.yaml", "--no-evaluator", "--evaluator-cpus", "2");
  COMMAND_REFUSES(2, "unexpected argument \"other\"", "slurm", "its.yaml", "other");
  COMMAND_REFUSES(2, "--output its.yaml is also the input", "slurm", "its.yaml", "--output",
                  "its.yaml");
}

static void a_script_is_written_with_advice(void **state)
{
  char *text;
  size_t size;
  (void)state;
  assert_int_equal(COMMAND("slurm", "-c", "its.yaml", "--output", "job.sh"), 0);
  assert_string_equal(command_out, "");
  assert_string_equal(command_err, "plm-pipeline: submit it with `sbatch job.sh`\n");
  assert_int_equal(plm_file_read("job.sh", 1 << 16, &text, &size, NULL), PLM_OK);
  assert_int_equal(strncmp(text, "#!/bin/bash\n", 12), 0);
  free(text);
  assert_int_equal(SLURM("--set", "trainer.device=auto", "--output", "-"), 0);
  has("#!/bin/bash\n");
  assert_string_equal(command_err, "plm-pipeline: warning: trainer.device is auto, so the job asks "
                                   "for no GPU: set it to cuda for one for each rank, or to cpu\n");
  assert_int_equal(SLURM("--set", "packer.instances=0"), 0);
  assert_string_equal(command_err,
                      "plm-pipeline: warning: packer.instances is 0, so the job starts "
                      "no packer\n");
}

/* Both are about a configuration, which has to be there. */
static void a_configuration_is_needed(void **state)
{
  (void)state;
  assert_int_equal(unlink("its.yaml"), 0);
  assert_int_equal(COMMAND("slurm"), 2);
  assert_non_null(strstr(command_err, "pipeline.yaml"));
  assert_int_equal(COMMAND("k8s", "--image", "i", "--keys", "keys"), 2);
  assert_non_null(strstr(command_err, "pipeline.yaml"));
}

/* ---- k8s --------------------------------------------------------------------------------------
 */

#define K8S(...) COMMAND("k8s", "its.yaml", "--image", "registry/plm:1", __VA_ARGS__)

static void objects_have_their_usual_size(void **state)
{
  (void)state;
  assert_int_equal(K8S("-q"), 0);
  has("\n  name: \"one-evaluator\"\n");
  has("\n          image: \"registry/plm:1\"\n");
  has("            claimName: \"one\"\n");
  has("            requests: {cpu: 8, memory: \"8Gi\"}\n");
  has("            requests: {cpu: 2, memory: \"8Gi\"}\n");
  has("\n  replicas: 3\n");
  has("\n  minReplicas: 3\n  maxReplicas: 6\n");
  has_not("namespace:");
  has_not("kind: MPIJob");
  assert_string_equal(command_err, "");
  assert_int_equal(K8S("--set", "trainer.threads=5", "--set", "evaluator.threads=3", "--set",
                       "packer.instances=129"),
                   0);
  has("            requests: {cpu: 5, memory: \"8Gi\"}\n");
  has("            requests: {cpu: 3, memory: \"8Gi\"}\n");
  has("\n  maxReplicas: 256\n");
  assert_int_equal(K8S("--set", "packer.instances=128"), 0);
  has("\n  maxReplicas: 256\n");
  assert_int_equal(K8S("--set", "packer.instances=127"), 0);
  has("\n  maxReplicas: 254\n");
}

static void options_change_the_objects(void **state)
{
  (void)state;
  assert_int_equal(rename("keys", "others"), 0);
  assert_int_equal(K8S("-q"), 2); /* the keys of the configuration are not there */
  assert_int_equal(K8S("--keys", "others", "--name", "two", "--namespace", "space", "--claim",
                       "disk", "--cpus", "6", "--memory", "16Gi", "--max-packers", "3",
                       "--no-evaluator"),
                   0);
  has("\n  namespace: \"space\"\n");
  has("\n  name: \"two-packer\"\n");
  has("            claimName: \"disk\"\n");
  has("            requests: {cpu: 6, memory: \"16Gi\"}\n");
  has_not("maxReplicas");
  has_not("\"two-evaluator\"");
  advises("the volume of the claim disk must hold the corpus as c; ");
  assert_int_equal(
      K8S("--keys", "others", "--max-packers", "7", "--nodes", "2", "--set", "trainer.ranks=4"), 0);
  has("\n  maxReplicas: 7\n");
  has("kind: MPIJob\n");
}

static void options_of_objects_have_bounds(void **state)
{
  (void)state;
  static const struct {
    const char *option, *good[2], *bad[2];
  } cases[] = {{"--cpus", {"1", "4096"}, {"0", "4097"}},
               {"--max-packers", {"3", "256"}, {"0", "257"}},
               {"--nodes", {"1", "1"}, {"0", "100000"}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int k = 0; k < 2; k++) {
      assert_int_equal(K8S(cases[i].option, cases[i].good[k]), 0);
      assert_int_equal(K8S(cases[i].option, cases[i].bad[k]), 2);
      assert_string_equal(command_out, "");
    }
  assert_int_equal(K8S("--cpus", "x"), 2);
  assert_int_equal(K8S("--set", "run=runs/9"), 2); /* it gives no name */
  assert_string_equal(command_out, "");
  COMMAND_REFUSES(2, "--image is missing: the container image with the programs", "k8s",
                  "its.yaml");
  COMMAND_REFUSES(2, "unexpected argument \"other\"", "k8s", "its.yaml", "other", "--image", "i");
  COMMAND_REFUSES(2, "--output its.yaml is also the input", "k8s", "its.yaml", "--image", "i",
                  "--output", "its.yaml");
}

/* Only its owner may read what holds the keys. */
static void objects_are_written_with_advice(void **state)
{
  struct stat info;
  (void)state;
  assert_int_equal(K8S("--output", "objects.yaml"), 0);
  assert_string_equal(command_out, "");
  assert_string_equal(
      command_err, "plm-pipeline: the volume of the claim one must hold the corpus as c; the run "
                   "folder will be runs/one there\n"
                   "plm-pipeline: start the run with `kubectl apply -f objects.yaml`\n");
  assert_int_equal(stat("objects.yaml", &info), 0);
  assert_int_equal(info.st_mode & 0777, 0600);
  assert_int_equal(K8S("--set", "trainer.device=auto"), 0);
  advises(
      "plm-pipeline: warning: trainer.device is auto, so the trainer asks for no GPU: set it to "
      "cuda for one for each rank, or to cpu\n");
  assert_null(strstr(command_err, "packer.instances"));
  assert_int_equal(
      K8S("--set", "packer.instances=0", "--set", "corpus=[{path: /data/a}, {path: /data/b}]"), 0);
  advises("plm-pipeline: warning: packer.instances is 0, so no packer is started\n");
  advises("must hold the corpora as a, b; ");
  assert_null(strstr(command_err, "trainer.device"));
  assert_null(strstr(command_err, "kubectl"));
}

int main(void)
{
  unsetenv("PLM_CONFIG");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(a_job_has_its_usual_size, setup),
      cmocka_unit_test_setup(options_change_the_job, setup),
      cmocka_unit_test_setup(options_of_a_job_have_bounds, setup),
      cmocka_unit_test_setup(a_script_is_written_with_advice, setup),
      cmocka_unit_test_setup(a_configuration_is_needed, setup),
      cmocka_unit_test_setup(objects_have_their_usual_size, setup),
      cmocka_unit_test_setup(options_change_the_objects, setup),
      cmocka_unit_test_setup(options_of_objects_have_bounds, setup),
      cmocka_unit_test_setup(objects_are_written_with_advice, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
