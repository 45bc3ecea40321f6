/* Checks of the programs, and of what computes: processor, oneDNN, GPU and its driver, Open MPI. */
#include <dirent.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/process/cgroup.h"
#include "common/base/process/library_path.h"
#include "common/base/text/json.h"
#include "stages/doctor/doctor.h"
#include "stages/supervisor/gang/gang_command.h"
#include "stages/supervisor/prepare/trainer_estimate.h"

static void check_programs(struct plm_doctor *doctor)
{
  static const char *const names[] = {"plm-packer", "plm-trainer", "plm-evaluator"};
  size_t good = 0;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    char path[PLM_PATH_SIZE];
    if (plm_path_join(path, doctor->program_directory, names[i], NULL) != PLM_OK) continue;
    if (access(path, X_OK) == 0) {
      good++;
      continue;
    }
    plm_doctor_add(doctor, "programs", PLM_GRADE_PROBLEM, "%.300s is missing or not executable",
                   path);
    plm_doctor_fix(doctor, "build it with `make`, and keep the four programs in one folder");
  }
  if (good == sizeof names / sizeof names[0])
    plm_doctor_add(doctor, "programs", PLM_GRADE_OK, "plm-pipeline %s, with its stages in %.300s",
                   PLM_VERSION, doctor->program_directory);
}

/* ---- GPU ------------------------------------------------------------------------------------ */

/* Reads the first line of a file of the system; false if it cannot be read. */
static bool first_line(const struct plm_doctor *doctor, const char *name, char *line, size_t size)
{
  char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s%s", doctor->root, name);
  FILE *file = fopen(path, "re");
  const bool got = file != NULL && fgets(line, (int)size, file) != NULL;
  if (file != NULL) fclose(file);
  if (got) line[strcspn(line, "\n")] = '\0';
  return got;
}

#define PCI "/sys/bus/pci/devices"

/* How many display or 3D controllers of NVIDIA are on the PCI bus. */
static unsigned pci_cards(const struct plm_doctor *doctor)
{
  unsigned count = 0;
  char path[PLM_PATH_SIZE], vendor[32], class[32];
  snprintf(path, sizeof path, "%s" PCI, doctor->root);
  DIR *folder = opendir(path);
  if (folder == NULL) return 0;
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    snprintf(path, sizeof path, PCI "/%s/vendor", entry->d_name);
    if (!first_line(doctor, path, vendor, sizeof vendor) || strcmp(vendor, "0x10de") != 0) continue;
    snprintf(path, sizeof path, PCI "/%s/class", entry->d_name);
    if (first_line(doctor, path, class, sizeof class) && strncmp(class, "0x03", 4) == 0) count++;
  }
  closedir(folder);
  return count;
}

/* The nodes through which programs reach the cards, and how many of them are closed to this user.
 */
static unsigned device_nodes(const struct plm_doctor *doctor, unsigned *closed)
{
  glob_t nodes;
  unsigned count = 0;
  char pattern[PLM_PATH_SIZE];
  *closed = 0;
  snprintf(pattern, sizeof pattern, "%s/dev/nvidia[0-9]*", doctor->root);
  if (glob(pattern, 0, NULL, &nodes) != 0) return 0;
  for (; count < nodes.gl_pathc; count++)
    if (access(nodes.gl_pathv[count], R_OK | W_OK) != 0) ++*closed;
  globfree(&nodes);
  return count;
}

static void check_library(struct plm_doctor *doctor)
{
  char path[PLM_PATH_SIZE];
  if (plm_library_path("libplm_cuda.so", "PLM_CUDA_LIBRARY", path, NULL) != PLM_OK ||
      access(path, R_OK) == 0)
    return;
  plm_doctor_add(doctor, "driver", PLM_GRADE_WARNING,
                 "there is a GPU, but the CUDA backend %.300s is missing", path);
  plm_doctor_fix(doctor, "install the CUDA Toolkit (nvcc) and run `make` again");
}

static void check_driver(struct plm_doctor *doctor)
{
  char version[256] = "";
  unsigned closed;
  const unsigned cards = pci_cards(doctor), nodes = device_nodes(doctor, &closed);
  const bool driver = first_line(doctor, "/proc/driver/nvidia/version", version, sizeof version);
  const bool wanted = doctor->config->trainer.device == PLM_DEVICE_CUDA ||
                      doctor->config->evaluator.device == PLM_DEVICE_CUDA;
  if (cards == 0 && nodes == 0) {
    plm_doctor_add(doctor, "driver", wanted ? PLM_GRADE_PROBLEM : PLM_GRADE_OK, "no NVIDIA GPU%s",
                   wanted ? ", but the configuration asks for cuda" : "");
    if (wanted) plm_doctor_fix(doctor, "set trainer.device and evaluator.device to auto or cpu");
    return;
  }
  if (!driver || nodes == 0) {
    plm_doctor_add(doctor, "driver", wanted ? PLM_GRADE_PROBLEM : PLM_GRADE_WARNING,
                   "%u NVIDIA GPU%s, but %s", cards > nodes ? cards : nodes, cards > 1 ? "s" : "",
                   driver ? "/dev/nvidia0 is missing" : "no driver is loaded");
    plm_doctor_fix(doctor, driver
                               ? "run `nvidia-modprobe -c 0 -u` as root; give a container its "
                                 "GPUs (--gpus all)"
                               : "install the NVIDIA driver (Debian: nvidia-driver) and restart");
    return;
  }
  if (closed > 0) {
    plm_doctor_add(doctor, "driver", wanted ? PLM_GRADE_PROBLEM : PLM_GRADE_WARNING,
                   "you may not open %u of %u device nodes /dev/nvidia*", closed, nodes);
    plm_doctor_fix(doctor, "add yourself to the group that owns them: ls -l /dev/nvidia0");
    return;
  }
  plm_doctor_add(doctor, "driver", PLM_GRADE_OK, "%u GPU%s; %.300s", nodes, nodes > 1 ? "s" : "",
                 version);
  check_library(doctor);
}

/* ---- what the trainer says ------------------------------------------------------------------ */

static void check_device(struct plm_doctor *doctor, const cJSON *estimate)
{
  const char *device = plm_json_string(estimate, "device", "cpu");
  const char *level = plm_json_string(estimate, "level", "");
  const char *precision = plm_json_string(estimate, "precision", "");
  const char *limit = getenv("PLM_CPU_ISA");
  if (strcmp(device, "cpu") != 0) {
    plm_doctor_add(doctor, "device", PLM_GRADE_OK, "the trainer computes on %.40s in %.20s", device,
                   precision);
    return;
  }
  const bool slow = strcmp(level, "portable") == 0;
  const bool limited = limit != NULL && limit[0] != '\0';
  plm_doctor_add(doctor, "device", slow || limited ? PLM_GRADE_WARNING : PLM_GRADE_OK,
                 "the trainer computes on the CPU (%.40s) in %.20s, with %u cores", level,
                 precision, plm_usable_cores());
  if (limited)
    plm_doctor_fix(doctor, "PLM_CPU_ISA=%.40s chooses these instructions: unset it", limit);
  else if (slow)
    plm_doctor_fix(doctor, "this processor has no AVX2: training works, but use a newer one");
  const char *gain = plm_json_string(estimate, "bf16_gain", "");
  if (gain[0] != '\0') plm_doctor_add(doctor, "precision", PLM_GRADE_OK, "%.300s", gain);
  const char *int8 = plm_json_string(estimate, "int8_gain", "");
  if (int8[0] != '\0') plm_doctor_add(doctor, "inference", PLM_GRADE_OK, "%.300s", int8);
}

static void check_products(struct plm_doctor *doctor, const cJSON *estimate)
{
  const char *products = plm_json_string(estimate, "products", "");
  const char *variables[] = {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"};
  if (products[0] == '\0') return;
  for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
    const char *value = getenv(variables[i]);
    if (value == NULL || value[0] == '\0') continue;
    plm_doctor_add(doctor, "oneDNN", PLM_GRADE_WARNING, "%.100s; %s=%.40s is set", products,
                   variables[i], value);
    plm_doctor_fix(doctor, "unset %s, so that oneDNN uses all instructions of the processor",
                   variables[i]);
    return;
  }
  const bool found = strncmp(products, "oneDNN", 6) == 0;
  plm_doctor_add(doctor, "oneDNN", found ? PLM_GRADE_OK : PLM_GRADE_WARNING, "%.100s%s", products,
                 found ? "" : ", which has no bf16 instructions");
  if (!found) plm_doctor_fix(doctor, "install libdnnl-dev, then `make clean` and `make`");
}

static void check_memory(struct plm_doctor *doctor, const cJSON *estimate)
{
  const double total = plm_json_number(estimate, "total", 0),
               most = plm_json_number(estimate, "free_bytes", 0);
  const double largest = plm_json_number(estimate, "largest_micro_batch_tokens", 0);
  if (most <= 0) return;
  const bool fits = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(estimate, "fits"));
  const bool cpu = strcmp(plm_json_string(estimate, "device", "cpu"), "cpu") == 0;
  char limit[64] = "";
  struct plm_cgroup_limits limits;
  plm_cgroup_read(&limits);
  if (cpu && limits.memory_bytes != UINT64_MAX)
    snprintf(limit, sizeof limit, " of the %.2f GB of the control group",
             1e-9 * (double)limits.memory_bytes);
  plm_doctor_add(doctor, "memory", fits ? PLM_GRADE_OK : PLM_GRADE_PROBLEM,
                 "the trainer takes %.2f GB, and %.2f GB%s are free", 1e-9 * total, 1e-9 * most,
                 limit);
  if (fits) return;
  if (largest > 0)
    plm_doctor_fix(doctor, "set trainer.micro_batch_tokens to %.0f, or trainer.recompute: block",
                   largest);
  else
    plm_doctor_fix(doctor, "use a smaller model, or a %s with more memory",
                   limit[0] != '\0' ? "container" : "machine");
}

/* The trainer's last line is its error; the ones before may be warnings. */
static void trainer_failed(struct plm_doctor *doctor, struct plm_text *said)
{
  while (said->length > 0 && said->data[said->length - 1] == '\n')
    said->data[--said->length] = '\0';
  for (char *c = said->data; c != NULL && *c != '\0'; c++)
    if (*c == '\n') *c = ' ';
  plm_doctor_add(doctor, "device", PLM_GRADE_PROBLEM,
                 "plm-trainer cannot estimate this run: %.400s",
                 said->length > 0 ? said->data : "it gave no answer");
  plm_doctor_fix(doctor, "`plm-trainer --dry-run` says more");
}

static void ask_trainer(struct plm_doctor *doctor)
{
  struct plm_text said = {0};
  cJSON *estimate = plm_trainer_estimate_ask(doctor->program_directory, doctor->config, &said);
  if (estimate == NULL) {
    trainer_failed(doctor, &said);
  } else {
    check_device(doctor, estimate);
    check_products(doctor, estimate);
    check_memory(doctor, estimate);
    const double needed =
        plm_checkpoint_bytes(doctor->config, estimate) * plm_checkpoints_kept(doctor->config);
    const double most = plm_disk_free_bytes(doctor->config->run);
    const bool fits = needed < most;
    plm_doctor_add(doctor, "disk", fits ? PLM_GRADE_OK : PLM_GRADE_PROBLEM,
                   "checkpoints take at most %.2f GB, and %.2f GB are free at %.300s",
                   1e-9 * needed, 1e-9 * most, doctor->config->run);
    if (!fits)
      plm_doctor_fix(doctor, "free some space, lower trainer.checkpoint.keep_last and "
                             "max_unevaluated, or put `run` on another disk");
  }
  cJSON_Delete(estimate);
  plm_text_deinit(&said);
}

/* ---- ranks ---------------------------------------------------------------------------------- */

static void check_ranks(struct plm_doctor *doctor)
{
  struct plm_error error = {0};
  if (doctor->config->trainer.ranks <= 1) return;
  if (plm_gang_check(doctor->config, &error) == PLM_OK) {
    plm_doctor_add(doctor, "ranks", PLM_GRADE_OK, "Open MPI and its engine are here, for %u ranks",
                   doctor->config->trainer.ranks);
    return;
  }
  plm_doctor_add(doctor, "ranks", PLM_GRADE_PROBLEM, "%.500s", error.what);
  plm_doctor_fix(doctor, "%.500s", error.hint);
}

void plm_doctor_programs(struct plm_doctor *doctor)
{
  check_programs(doctor);
  check_driver(doctor);
  ask_trainer(doctor);
  check_ranks(doctor);
}
