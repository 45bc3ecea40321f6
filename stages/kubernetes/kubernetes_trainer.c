/* The trainer: a Job whose pod holds all ranks, or an MPIJob whose pods share them. */
#include "stages/kubernetes/kubernetes_internal.h"

unsigned plm_kubernetes_ranks_per_node(const struct plm_kubernetes_run *run)
{
  return run->config->trainer.ranks / run->nodes;
}

static void put_command(const struct plm_kubernetes_run *run, struct plm_text *text)
{
  plm_text_printf(text, "      command: [plm-pipeline, up, " PLM_POD_CONFIG ", trainer]\n"
                        "      env:\n"
                        "        - {name: HOME, value: /tmp}\n");
  if (run->nodes > 1)
    plm_text_printf(text,
                    "        - name: OMPI_MCA_plm_rsh_agent\n"
                    "          value: ssh -p %d -i " PLM_POD_HOME
                    "/.ssh/id_rsa -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null\n",
                    PLM_POD_SSH_PORT);
  plm_text_printf(text,
                  "      ports:\n"
                  "        - {name: feed, containerPort: %d}\n"
                  "        - {name: announcements, containerPort: %d}\n"
                  "        - {name: metrics, containerPort: %d}\n"
                  "      readinessProbe:\n"
                  "        httpGet: {path: /metrics, port: metrics}\n"
                  "      lifecycle:\n"
                  "        preStop:\n"
                  "          exec: {command: [plm-pipeline, down, -c, " PLM_POD_CONFIG "]}\n",
                  PLM_POD_FEED_PORT, PLM_POD_ANNOUNCEMENTS_PORT, PLM_POD_METRICS_PORT);
}

static struct plm_pod trainer_pod(const struct plm_kubernetes_run *run)
{
  const unsigned ranks = plm_kubernetes_ranks_per_node(run);
  return (struct plm_pod){
      .component = "trainer",
      .secret = "-server",
      .memory = run->memory,
      .restart = "Never",
      .cpus = ranks * run->cpus,
      .gpus = run->config->trainer.device == PLM_DEVICE_CUDA ? ranks : 0,
      .grace_s = plm_kubernetes_grace_s(run),
      .data = true,
      .writes = true,
  };
}

/* A pod of ranks that the launcher starts over ssh. It needs neither the data nor the keys, because
 * rank 0 reads them. */
static void put_workers(const struct plm_kubernetes_run *run, struct plm_text *text)
{
  struct plm_text container = {0};
  struct plm_pod pod = trainer_pod(run);
  plm_text_printf(&container,
                  "      command:\n"
                  "        - /usr/sbin/sshd\n"
                  "        - -De\n"
                  "        - -p%d\n"
                  "        - -oHostKey=" PLM_POD_HOME "/.ssh/id_rsa\n"
                  "        - -oAuthorizedKeysFile=" PLM_POD_HOME "/.ssh/authorized_keys\n"
                  "        - -oStrictModes=no\n"
                  "        - -oPasswordAuthentication=no\n"
                  "        - -oUsePAM=no\n"
                  "        - -oPidFile=none\n"
                  "      ports:\n"
                  "        - {name: ssh, containerPort: %d}\n",
                  PLM_POD_SSH_PORT, PLM_POD_SSH_PORT);
  pod.component = "rank";
  pod.container = container.failed ? "" : container.data;
  pod.secret = NULL;
  pod.data = false;
  pod.restart = NULL;
  plm_text_printf(text,
                  "    Worker:\n      replicas: %u\n      restartPolicy: OnFailure\n"
                  "      template:\n",
                  run->nodes - 1);
  plm_kubernetes_put_pod(run, &pod, 8, text);
  text->failed |= container.failed;
  plm_text_deinit(&container);
}

static void put_mpi_job(const struct plm_kubernetes_run *run, const struct plm_pod *pod,
                        struct plm_text *text)
{
  plm_kubernetes_head(run, "kubeflow.org/v2beta1", "MPIJob", "-trainer", "trainer", text);
  plm_text_printf(text,
                  "spec:\n"
                  "  slotsPerWorker: %u\n"
                  "  runLauncherAsWorker: true\n"
                  "  launcherCreationPolicy: WaitForWorkersReady\n"
                  "  sshAuthMountPath: " PLM_POD_HOME "/.ssh\n"
                  "  runPolicy: {cleanPodPolicy: Running, backoffLimit: %d}\n"
                  "  mpiReplicaSpecs:\n"
                  "    Launcher:\n"
                  "      replicas: 1\n"
                  "      restartPolicy: OnFailure\n"
                  "      template:\n",
                  plm_kubernetes_ranks_per_node(run), PLM_JOB_RETRIES);
  plm_kubernetes_put_pod(run, pod, 8, text);
  put_workers(run, text);
}

void plm_kubernetes_put_trainer(const struct plm_kubernetes_run *run, struct plm_text *text)
{
  struct plm_text container = {0};
  struct plm_pod pod = trainer_pod(run);
  put_command(run, &container);
  pod.container = container.failed ? "" : container.data;
  if (run->nodes > 1) {
    pod.restart = NULL; /* that of the replica */
    put_mpi_job(run, &pod, text);
  } else {
    plm_kubernetes_head(run, "batch/v1", "Job", "-trainer", "trainer", text);
    plm_kubernetes_put_failure_policy("trainer", text);
    plm_text_puts(text, "  template:\n");
    plm_kubernetes_put_pod(run, &pod, 4, text);
  }
  text->failed |= container.failed;
  plm_text_deinit(&container);
}
