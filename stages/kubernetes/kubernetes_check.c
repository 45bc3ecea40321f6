/* Checks of what `plm-pipeline k8s` was given: names, the image, amounts, nodes. */
#include <ctype.h>
#include <string.h>

#include "stages/kubernetes/kubernetes_internal.h"

enum { LONGEST_CLAIM = 253, LONGEST_NAMESPACE = 63, LONGEST_IMAGE = 500 };

static const char lower[] = "abcdefghijklmnopqrstuvwxyz";
static const char digits[] = "0123456789";

static bool is_lower_or_digit(char c)
{
  return c != '\0' && (strchr(lower, c) != NULL || strchr(digits, c) != NULL);
}

/* A DNS-1123 label: lower-case letters, digits and hyphens, none of them at an end. */
static bool is_label(const char *text, size_t length, size_t longest)
{
  if (length == 0 || length > longest) return false;
  for (size_t i = 0; i < length; i++)
    if (!is_lower_or_digit(text[i]) && text[i] != '-') return false;
  return text[0] != '-' && text[length - 1] != '-';
}

/* A DNS-1123 subdomain: labels with dots between them. */
static bool is_subdomain(const char *text)
{
  if (strlen(text) > LONGEST_CLAIM) return false;
  for (const char *part = text;; part++) {
    const size_t length = strcspn(part, ".");
    if (!is_label(part, length, LONGEST_CLAIM)) return false;
    part += length;
    if (*part == '\0') return true;
  }
}

plm_status plm_kubernetes_name(const char *run, char name[PLM_KUBERNETES_NAME_SIZE],
                               struct plm_error *error)
{
  const char *slash = strrchr(run, '/');
  const char *from = slash != NULL ? slash + 1 : run;
  size_t used = 0;
  for (const char *c = from; *c != '\0' && used < PLM_KUBERNETES_NAME_SIZE - 1; c++) {
    const char one = isascii((unsigned char)*c) ? (char)tolower((unsigned char)*c) : '-';
    if (is_lower_or_digit(one))
      name[used++] = one;
    else if (used > 0 && name[used - 1] != '-')
      name[used++] = '-';
  }
  while (used > 0 && name[used - 1] == '-') used--;
  name[used] = '\0';
  if (used > 0 && strchr(lower, name[0]) != NULL) return PLM_OK;
  plm_error_set(error, PLM_USAGE, "the run folder \"%.80s\" gives no name for Kubernetes", from);
  return plm_error_hint(error, "name the objects with --name, for example --name my-run");
}

static plm_status check_names(const struct plm_kubernetes_run *run, struct plm_error *error)
{
  const size_t length = strlen(run->name);
  if (!is_label(run->name, length, PLM_KUBERNETES_NAME_SIZE - 1) ||
      strchr(lower, run->name[0]) == NULL) {
    plm_error_set(error, PLM_USAGE, "--name \"%.80s\" is not a name for Kubernetes", run->name);
    return plm_error_hint(error,
                          "use 1 to %d lower-case letters, digits and hyphens; begin with a "
                          "letter, and end with a letter or a digit",
                          PLM_KUBERNETES_NAME_SIZE - 1);
  }
  if (run->namespace_ != NULL &&
      !is_label(run->namespace_, strlen(run->namespace_), LONGEST_NAMESPACE)) {
    plm_error_set(error, PLM_USAGE, "--namespace \"%.80s\" is not a namespace of Kubernetes",
                  run->namespace_);
    return plm_error_hint(error,
                          "use at most %d lower-case letters, digits and hyphens; begin "
                          "and end with a letter or a digit",
                          LONGEST_NAMESPACE);
  }
  if (is_subdomain(run->claim)) return PLM_OK;
  plm_error_set(error, PLM_USAGE, "--claim \"%.80s\" is not the name of a PersistentVolumeClaim",
                run->claim);
  return plm_error_hint(error, "`kubectl get pvc` lists them");
}

static plm_status check_image(const char *image, struct plm_error *error)
{
  if (image == NULL) {
    plm_error_set(error, PLM_USAGE, "--image is missing: the container image with the programs");
    return plm_error_hint(error, "build one with stages/kubernetes/Dockerfile, and give its name, "
                                 "for example --image registry.example/plm-pipeline:1");
  }
  if (image[0] != '\0' && strlen(image) <= LONGEST_IMAGE && isalnum((unsigned char)image[0]) &&
      strspn(image, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/:@-") ==
          strlen(image))
    return PLM_OK;
  plm_error_set(error, PLM_USAGE, "--image \"%.80s\" is not the name of an image", image);
  return plm_error_hint(error, "for example registry.example/plm-pipeline:1");
}

static plm_status check_memory(const char *memory, struct plm_error *error)
{
  static const char *const units[] = {"", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"};
  const size_t number = strspn(memory, digits);
  if (number > 0 && number <= 12 && memory[0] != '0') {
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
      if (strcmp(memory + number, units[i]) == 0) return PLM_OK;
  }
  plm_error_set(error, PLM_USAGE, "--memory \"%.40s\" is not an amount of memory", memory);
  return plm_error_hint(error, "for example 16Gi");
}

static plm_status check_fit(const struct plm_kubernetes_run *run, struct plm_error *error)
{
  const struct plm_config *config = run->config;
  if (config->trainer.ranks % run->nodes != 0) {
    plm_error_set(error, PLM_USAGE, "--nodes %u does not divide trainer.ranks, which is %u",
                  run->nodes, config->trainer.ranks);
    return plm_error_hint(error, "every node has to hold the same number of ranks");
  }
  if (run->nodes > PLM_MAX_HOSTS)
    return plm_error_set(error, PLM_USAGE, "--nodes must be at most %d", PLM_MAX_HOSTS);
  if (run->max_packers < config->packer_instances)
    return plm_error_set(error, PLM_USAGE,
                         "--max-packers %u is below packer.instances, which is %u",
                         run->max_packers, config->packer_instances);
  if (config->corpus != NULL) return PLM_OK;
  return plm_error_set(error, PLM_CONFIG, "corpus: is not set, and the packers need it");
}

plm_status plm_kubernetes_check(const struct plm_kubernetes_run *run, struct plm_error *error)
{
  PLM_TRY(check_image(run->image, error));
  PLM_TRY(check_names(run, error));
  PLM_TRY(check_memory(run->memory, error));
  PLM_TRY(check_fit(run, error));
  if (run->keys != NULL) return PLM_OK;
  plm_error_set(
      error, PLM_CONFIG,
      "--keys is missing: pods reach each other over the network, which needs CURVE keys");
  return plm_error_hint(error, "create them with `plm-pipeline keys keys --client " PLM_POD_CLIENT
                               "`, and give --keys keys");
}
