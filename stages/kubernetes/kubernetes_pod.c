/* What the pods of all components have. */
#include <string.h>

#include "stages/kubernetes/kubernetes_internal.h"

enum { KILL_EXTRA_S = 30 };

static void put_container_security(struct plm_text *text)
{
  plm_text_puts(text, "      securityContext:\n"
                      "        allowPrivilegeEscalation: false\n"
                      "        readOnlyRootFilesystem: true\n"
                      "        capabilities: {drop: [ALL]}\n");
}

/* A volume of a Secret is a folder in which everybody may write, and with an fsGroup its files can
 * be read by a group. The programs refuse such keys, so they are copied. A Secret holds no folders:
 * clients.NAME.pub stands for clients/NAME.pub. */
static void put_key_copy(const struct plm_kubernetes_run *run, struct plm_text *text)
{
  plm_text_puts(text, "  initContainers:\n"
                      "    - name: keys\n"
                      "      image: ");
  plm_kubernetes_quote(text, run->image);
  plm_text_puts(text, "\n"
                      "      command:\n"
                      "        - /bin/sh\n"
                      "        - -c\n"
                      "        - |\n"
                      "          set -e\n"
                      "          umask 077\n"
                      "          mkdir -p " PLM_POD_KEYS "/clients\n"
                      "          for file in /secret/*; do\n"
                      "            name=${file##*/}\n"
                      "            case $name in clients.*) name=clients/${name#clients.} ;; esac\n"
                      "            cat \"$file\" >\"" PLM_POD_KEYS "/$name\"\n"
                      "          done\n"
                      "      resources:\n"
                      "        requests: {cpu: 100m, memory: 64Mi}\n"
                      "        limits: {cpu: 100m, memory: 64Mi}\n");
  put_container_security(text);
  plm_text_puts(text, "      volumeMounts:\n"
                      "        - {name: secret, mountPath: /secret, readOnly: true}\n"
                      "        - {name: keys, mountPath: /keys}\n");
}

static void put_volumes(const struct plm_kubernetes_run *run, const struct plm_pod *pod,
                        struct plm_text *text)
{
  plm_text_puts(text, "  volumes:\n"
                      "    - {name: temporary, emptyDir: {}}\n"
                      "    - {name: shared-memory, emptyDir: {medium: Memory}}\n");
  if (pod->data) {
    plm_text_printf(text, "    - name: config\n      configMap: {name: \"%s\"}\n", run->name);
    plm_text_puts(text, "    - name: data\n      persistentVolumeClaim:\n        claimName: ");
    plm_kubernetes_quote(text, run->claim);
    plm_text_puts(text, "\n");
  }
  if (pod->cache) plm_text_puts(text, "    - {name: cache, emptyDir: {}}\n");
  if (pod->secret == NULL) return;
  plm_text_puts(text, "    - {name: keys, emptyDir: {medium: Memory, sizeLimit: 16Mi}}\n");
  plm_text_printf(text,
                  "    - name: secret\n"
                  "      secret: {secretName: \"%s%s\", defaultMode: 0400}\n",
                  run->name, pod->secret);
}

static void put_mounts(const struct plm_pod *pod, struct plm_text *text)
{
  plm_text_puts(text, "      volumeMounts:\n"
                      "        - {name: temporary, mountPath: /tmp}\n"
                      "        - {name: shared-memory, mountPath: /dev/shm}\n");
  if (pod->data)
    plm_text_printf(text,
                    "        - {name: config, mountPath: /etc/plm, readOnly: true}\n"
                    "        - {name: data, mountPath: " PLM_POD_DATA ", readOnly: %s}\n",
                    pod->writes ? "false" : "true");
  if (pod->cache) plm_text_puts(text, "        - {name: cache, mountPath: /cache}\n");
  if (pod->secret != NULL)
    plm_text_puts(text, "        - {name: keys, mountPath: /keys, readOnly: true}\n");
}

static void put_resources(const struct plm_pod *pod, struct plm_text *text)
{
  plm_text_puts(text, "      resources:\n");
  for (int i = 0; i < 2; i++) {
    plm_text_printf(text, "        %s: {cpu: %u, memory: ", i == 0 ? "requests" : "limits",
                    pod->cpus);
    plm_kubernetes_quote(text, pod->memory);
    if (pod->gpus > 0) plm_text_printf(text, ", nvidia.com/gpu: %u", pod->gpus);
    plm_text_puts(text, "}\n");
  }
}

static void put_container(const struct plm_kubernetes_run *run, const struct plm_pod *pod,
                          struct plm_text *text)
{
  plm_text_printf(text, "  containers:\n    - name: %s\n      image: ", pod->component);
  plm_kubernetes_quote(text, run->image);
  plm_text_printf(text, "\n%s", pod->container);
  put_resources(pod, text);
  put_container_security(text);
  put_mounts(pod, text);
}

/* Without enableServiceLinks: false, a service called plm-trainer would put PLM_TRAINER_PORT into
 * the environment, which the programs would take for a setting. */
static void put_pod(const struct plm_kubernetes_run *run, const struct plm_pod *pod,
                    struct plm_text *text)
{
  plm_text_puts(text, "metadata:\n  labels:\n");
  plm_kubernetes_labels(run, pod->component, 4, text);
  plm_text_puts(text, "spec:\n");
  if (pod->restart != NULL) plm_text_printf(text, "  restartPolicy: %s\n", pod->restart);
  plm_text_printf(text,
                  "  terminationGracePeriodSeconds: %u\n"
                  "  automountServiceAccountToken: false\n"
                  "  enableServiceLinks: false\n"
                  "  securityContext:\n"
                  "    runAsNonRoot: true\n"
                  "    runAsUser: %d\n"
                  "    runAsGroup: %d\n"
                  "    fsGroup: %d\n"
                  "    fsGroupChangePolicy: OnRootMismatch\n"
                  "    seccompProfile: {type: RuntimeDefault}\n",
                  pod->grace_s, PLM_POD_USER, PLM_POD_USER, PLM_POD_USER);
  if (pod->secret != NULL) put_key_copy(run, text);
  put_container(run, pod, text);
  put_volumes(run, pod, text);
}

void plm_kubernetes_put_pod(const struct plm_kubernetes_run *run, const struct plm_pod *pod,
                            unsigned indent, struct plm_text *text)
{
  struct plm_text lines = {0};
  put_pod(run, pod, &lines);
  text->failed |= lines.failed;
  for (const char *line = lines.data; line != NULL && *line != '\0';) {
    const int length = (int)strcspn(line, "\n");
    plm_text_printf(text, "%*s%.*s\n", (int)indent, "", length, line);
    line += length + 1;
  }
  plm_text_deinit(&lines);
}

unsigned plm_kubernetes_grace_s(const struct plm_kubernetes_run *run)
{
  return (unsigned)run->config->trainer.stop_timeout_s + KILL_EXTRA_S;
}

/* An eviction, and the stop before it, are not failures. Exit codes 2 (a mistake in the
 * configuration) and 4 (no packer came) are final, as under the supervisor. */
void plm_kubernetes_put_failure_policy(const char *container, struct plm_text *text)
{
  plm_text_printf(text,
                  "spec:\n"
                  "  backoffLimit: %d\n"
                  "  podFailurePolicy:\n"
                  "    rules:\n"
                  "      - action: Ignore\n"
                  "        onPodConditions: [{type: DisruptionTarget, status: \"True\"}]\n"
                  "      - action: Ignore\n"
                  "        onExitCodes: {containerName: %s, operator: In, values: [143]}\n"
                  "      - action: FailJob\n"
                  "        onExitCodes: {containerName: %s, operator: In, values: [2, 4, 5, 7]}\n",
                  PLM_JOB_RETRIES, container, container);
}
