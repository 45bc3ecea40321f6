/* Fills in the documents of a run. Their templates are run.yaml.in and, for the pods in it,
 * pod.yaml.in. */
#include "stages/kubernetes/kubernetes_files.h"

#include "common/base/files/embedded_file.h"
#include "stages/kubernetes/kubernetes_internal.h"

extern const char plm_kubernetes_run_template[];
PLM_EMBED(plm_kubernetes_run_template, "stages/kubernetes/run.yaml.in");
extern const char plm_kubernetes_pod_template[];
PLM_EMBED(plm_kubernetes_pod_template, "stages/kubernetes/pod.yaml.in");

enum {
  RETRIES = 5,
  KILL_EXTRA_S = 30, /* more than the supervisor takes to kill a stage */
  PACKER_GRACE_S = 30,
  PACKER_CPUS = 1,
};

/* What the pod of a component is made of. */
struct pod {
  const char *flag;      /* the template's name for it */
  const char *component; /* trainer, rank, evaluator or packer */
  const char *secret;    /* suffix of the Secret with its keys; NULL: it has none */
  const char *memory;
  const char *restart;   /* restartPolicy; NULL: that of what it is part of */
  const char *read_only; /* of the volume with the data; NULL: it has none */
  unsigned cpus, gpus, grace_s;
};

/* A value that may be missing. */
static void give(struct plm_template_values *values, const char *name, const char *value)
{
  plm_template_declare(values, name);
  if (value != NULL) plm_text_puts(plm_template_add(values, name), value);
}

/* 0: there is none. */
static void give_count(struct plm_template_values *values, const char *name, unsigned count)
{
  plm_template_declare(values, name);
  if (count > 0) plm_text_printf(plm_template_add(values, name), "%u", count);
}

static void give_ports(struct plm_template_values *values)
{
  give_count(values, "FEED_PORT", PLM_POD_FEED_PORT);
  give_count(values, "EVALUATION_PORT", PLM_POD_EVALUATION_PORT);
  give_count(values, "ANNOUNCEMENTS_PORT", PLM_POD_ANNOUNCEMENTS_PORT);
  give_count(values, "METRICS_PORT", PLM_POD_METRICS_PORT);
}

unsigned plm_kubernetes_ranks_per_node(const struct plm_kubernetes_run *run)
{
  return run->config->trainer.ranks / run->nodes;
}

/* ---- pods ---------------------------------------------------------------------------------- */

/* The addresses to which a packer connects. */
static void give_feeds(const struct plm_kubernetes_run *run, struct plm_template_values *values)
{
  struct plm_text *feeds = plm_template_add(values, "FEEDS");
  plm_text_printf(feeds, "tcp://%s:%d", run->name, PLM_POD_FEED_PORT);
  if (run->evaluator_cpus > 0)
    plm_text_printf(feeds, ",tcp://%s-evaluator:%d", run->name, PLM_POD_EVALUATION_PORT);
}

/* Gives the documents the lines of a pod, under the name. */
static void give_pod(const struct plm_kubernetes_run *run, const struct pod *pod, const char *name,
                     struct plm_template_values *documents)
{
  static const char *const flags[] = {"TRAINER", "RANK", "EVALUATOR", "PACKER"};
  struct plm_template_values values = {0};
  struct plm_text lines = {0};
  for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
    plm_template_declare(&values, flags[i]);
  give(&values, pod->flag, pod->component);
  give(&values, "COMPONENT", pod->component);
  give(&values, "NAME", run->name);
  give(&values, "IMAGE", run->image);
  give(&values, "CLAIM", run->claim);
  give(&values, "MEMORY", pod->memory);
  give(&values, "RESTART", pod->restart);
  give(&values, "READ_ONLY", pod->read_only);
  plm_template_declare(&values, "SECRET");
  if (pod->secret != NULL)
    plm_text_printf(plm_template_add(&values, "SECRET"), "%s%s", run->name, pod->secret);
  give_count(&values, "CPUS", pod->cpus);
  give_count(&values, "GPUS", pod->gpus);
  give_count(&values, "GRACE_S", pod->grace_s);
  give_count(&values, "SSH_PORT", run->nodes > 1 ? PLM_POD_SSH_PORT : 0);
  give_ports(&values);
  give_feeds(run, &values);
  plm_template_fill(plm_kubernetes_pod_template, &values, &lines);
  plm_template_add_lines(documents, name, lines.data);
  plm_text_deinit(&lines);
  plm_template_deinit(&values);
}

/* The pod of all ranks, or of the first ones, which starts the others over ssh. Those need neither
 * the data nor the keys, because rank 0 reads them. */
static void give_trainer(const struct plm_kubernetes_run *run, struct plm_template_values *values)
{
  const unsigned ranks = plm_kubernetes_ranks_per_node(run);
  struct pod pod = {
      .flag = "TRAINER",
      .component = "trainer",
      .secret = "-server",
      .memory = run->memory,
      .restart = run->nodes > 1 ? NULL : "Never",
      .read_only = "false",
      .cpus = ranks * run->cpus,
      .gpus = run->config->trainer.device == PLM_DEVICE_CUDA ? ranks : 0,
      .grace_s = (unsigned)run->config->trainer.stop_timeout_s + KILL_EXTRA_S,
  };
  give_pod(run, &pod, "TRAINER_POD", values);
  plm_template_declare(values, "RANK_POD");
  if (run->nodes == 1) return;
  pod.flag = "RANK";
  pod.component = "rank";
  pod.secret = NULL;
  pod.read_only = NULL;
  give_pod(run, &pod, "RANK_POD", values);
}

static void give_evaluator(const struct plm_kubernetes_run *run, struct plm_template_values *values)
{
  const struct pod pod = {
      .flag = "EVALUATOR",
      .component = "evaluator",
      .secret = "-server",
      .memory = run->memory,
      .restart = "Never",
      .read_only = "false",
      .cpus = run->evaluator_cpus,
      .gpus = run->config->evaluator.device == PLM_DEVICE_CUDA ? 1 : 0,
      .grace_s = (unsigned)run->config->trainer.stop_timeout_s + KILL_EXTRA_S,
  };
  plm_template_declare(values, "EVALUATOR_POD");
  if (run->evaluator_cpus > 0) give_pod(run, &pod, "EVALUATOR_POD", values);
}

static void give_packers(const struct plm_kubernetes_run *run, struct plm_template_values *values)
{
  const unsigned packers = run->config->packer_instances;
  const struct pod pod = {
      .flag = "PACKER",
      .component = "packer",
      .secret = "-client",
      .memory = "2Gi",
      .read_only = "true",
      .cpus = PACKER_CPUS,
      .grace_s = PACKER_GRACE_S,
  };
  plm_template_declare(values, "PACKER_POD");
  give_count(values, "PACKERS", packers);
  give_count(values, "MOST_PACKERS",
             packers > 0 && run->max_packers > packers ? run->max_packers : 0);
  if (packers > 0) give_pod(run, &pod, "PACKER_POD", values);
}

/* ---- all documents ------------------------------------------------------------------------- */

plm_status plm_kubernetes_files(const struct plm_kubernetes_run *run, struct plm_text *text,
                                struct plm_error *error)
{
  struct plm_template_values values = {0};
  plm_status status = plm_kubernetes_give_config(run, &values, error);
  if (status == PLM_OK) status = plm_kubernetes_give_keys(run, &values, error);
  if (status == PLM_OK) {
    give(&values, "NAME", run->name);
    give(&values, "NAMESPACE", run->namespace_);
    give_count(&values, "RETRIES", RETRIES);
    give_count(&values, "NODE_RANKS", plm_kubernetes_ranks_per_node(run));
    give_count(&values, "WORKERS", run->nodes - 1);
    give_ports(&values);
    give_trainer(run, &values);
    give_evaluator(run, &values);
    give_packers(run, &values);
    plm_template_fill(plm_kubernetes_run_template, &values, text);
  }
  plm_template_deinit(&values);
  return status;
}
