/* Finds the mounted hierarchies, then walks from the group of the process to the mount point. */
#include "common/base/process/cgroup.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"

/* The hierarchies that are read: those of v1 by the name of their controller, and that of v2. */
enum hierarchy { MEMORY_V1, CPU_V1, UNIFIED, HIERARCHIES };
static const char *const controllers[] = {"memory", "cpu", ""};

struct place {
  char mount[PLM_CGROUP_PATH_SIZE]; /* where the hierarchy is mounted, below ROOT; "" if nowhere */
  char top[PLM_CGROUP_PATH_SIZE];   /* the group that is mounted there */
  char group[PLM_CGROUP_PATH_SIZE]; /* of this process */
};

/* ---- where the groups are -------------------------------------------------------------------- */

/* Whether a list "a,b,c" has the word. */
static bool lists(const char *list, const char *word)
{
  const size_t length = strlen(word);
  for (const char *at = list; *at != '\0'; at += strcspn(at, ","), at += *at == ',')
    if (strncmp(at, word, length) == 0 && (at[length] == ',' || at[length] == '\0')) return true;
  return false;
}

/* Spaces in the paths of mountinfo are written as \040, and other characters likewise. */
static void cgroup_decode(char *text)
{
  char *to = text;
  for (const char *from = text; *from != '\0'; to++) {
    unsigned code;
    if (*from == '\\' && sscanf(from + 1, "%3o", &code) == 1) {
      *to = (char)code;
      from += 4;
    } else {
      *to = *from++;
    }
  }
  *to = '\0';
}

/* Takes a line of mountinfo: ID PARENT DEVICE ROOT MOUNT-POINT OPTIONS [FIELDS] - TYPE SOURCE
 * OPTIONS. */
static void parse_mount(const char *below, char *line, struct place places[HIERARCHIES])
{
  char top[PLM_CGROUP_PATH_SIZE], mount[PLM_CGROUP_PATH_SIZE], type[32], options[512];
  const char *rest = strstr(line, " - ");
  if (rest == NULL || sscanf(line, "%*s %*s %*s %4095s %4095s", top, mount) != 2 ||
      sscanf(rest, " - %31s %*s %511s", type, options) != 2)
    return;
  cgroup_decode(top);
  cgroup_decode(mount);
  for (int h = 0; h < HIERARCHIES; h++) {
    struct place *place = &places[h];
    const bool found = h == UNIFIED ? strcmp(type, "cgroup2") == 0
                                    : strcmp(type, "cgroup") == 0 && lists(options, controllers[h]);
    if (!found || place->mount[0] != '\0') continue;
    if (snprintf(place->mount, sizeof place->mount, "%s%s", below, mount) >=
        (int)sizeof place->mount)
      place->mount[0] = '\0';
    snprintf(place->top, sizeof place->top, "%s", top);
  }
}

/* Takes a line of /proc/self/cgroup: NUMBER:CONTROLLERS:GROUP. */
static void parse_group(const char *below, char *line, struct place places[HIERARCHIES])
{
  (void)below;
  char *list = strchr(line, ':'), *group = list != NULL ? strchr(list + 1, ':') : NULL;
  if (group == NULL) return;
  list++;
  *group++ = '\0';
  for (int h = 0; h < HIERARCHIES; h++)
    if (h == UNIFIED ? *list == '\0' : lists(list, controllers[h]))
      snprintf(places[h].group, sizeof places[h].group, "%s", group);
}

static void each_line(const char *below, const char *name,
                      void (*parse)(const char *, char *, struct place *), struct place *places)
{
  char path[PLM_CGROUP_PATH_SIZE], *line = NULL;
  size_t room = 0;
  if (snprintf(path, sizeof path, "%s%s", below, name) >= (int)sizeof path) return;
  FILE *file = fopen(path, "re");
  if (file == NULL) return;
  while (getline(&line, &room, file) > 0) {
    line[strcspn(line, "\n")] = '\0';
    parse(below, line, places);
  }
  free(line);
  fclose(file);
}

/* The folder of the group of this process. A container without a namespace for groups mounts only
 * its own group, so that the first part of the name, which is that of the host, is not there. */
static bool cgroup_folder_of(const struct place *place, char folder[PLM_CGROUP_PATH_SIZE])
{
  const char *group = place->group;
  const size_t length = strcmp(place->top, "/") == 0 ? 0 : strlen(place->top);
  const bool below = strncmp(group, place->top, length) == 0 &&
                     (group[length] == '/' || group[length] == '\0') && strstr(group, "..") == NULL;
  if (place->mount[0] == '\0') return false;
  const int size =
      snprintf(folder, PLM_CGROUP_PATH_SIZE, "%s%s", place->mount, below ? group + length : "");
  if (size >= PLM_CGROUP_PATH_SIZE) return false;
  for (int end = size; end > 0 && folder[end - 1] == '/'; end--) folder[end - 1] = '\0';
  return true;
}

/* ---- what they say --------------------------------------------------------------------------- */

/* The number after `key` ("" : the first one) in a file of a group. False: "max", or none there. */
static bool number_in(const char *folder, const char *name, const char *key, uint64_t *number)
{
  char path[PLM_CGROUP_PATH_SIZE + 32], line[256];
  bool found = false;
  const size_t length = strlen(key);
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "re");
  if (file == NULL) return false;
  while (!found && fgets(line, sizeof line, file) != NULL) {
    unsigned long long value;
    if (strncmp(line, key, length) != 0 || (length > 0 && line[length] != ' ')) continue;
    found = line[length] != '-' && sscanf(line + length, "%llu", &value) == 1;
    if (found) *number = value;
    if (length == 0) break;
  }
  fclose(file);
  return found;
}

static void read_memory_level(const char *folder, bool unified, struct plm_cgroup_limits *limits)
{
  static const uint64_t unlimited = UINT64_C(1)
                                    << 62; /* v1 writes the largest multiple of a page */
  uint64_t limit, high, used, inactive = 0, active = 0;
  bool limited = number_in(folder, unified ? "memory.max" : "memory.limit_in_bytes", "", &limit);
  if (unified && number_in(folder, "memory.high", "", &high) && (!limited || high < limit)) {
    limit = high;
    limited = true;
  }
  if (!limited || limit >= unlimited ||
      !number_in(folder, unified ? "memory.current" : "memory.usage_in_bytes", "", &used))
    return;
  number_in(folder, "memory.stat", unified ? "inactive_file" : "total_inactive_file", &inactive);
  number_in(folder, "memory.stat", unified ? "active_file" : "total_active_file", &active);
  const uint64_t files = inactive + active, kept = used > files ? used - files : 0;
  const uint64_t left = limit > kept ? limit - kept : 0;
  if (limits->memory_bytes != UINT64_MAX && left >= limits->memory_free_bytes) return;
  limits->memory_bytes = limit;
  limits->memory_free_bytes = left;
  snprintf(limits->memory_folder, sizeof limits->memory_folder, "%s", folder);
}

static void read_cpu_level(const char *folder, bool unified, struct plm_cgroup_limits *limits)
{
  uint64_t quota, period;
  if (unified) {
    char path[PLM_CGROUP_PATH_SIZE + 32];
    unsigned long long a, b;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    FILE *file = fopen(path, "re");
    if (file == NULL) return;
    const bool limited = fscanf(file, "%llu %llu", &a, &b) == 2; /* not "max 100000" */
    fclose(file);
    if (!limited) return;
    quota = a;
    period = b;
  } else if (!number_in(folder, "cpu.cfs_quota_us", "", &quota) ||
             !number_in(folder, "cpu.cfs_period_us", "", &period)) {
    return;
  }
  if (quota == 0 || period == 0 || quota / period >= UINT32_MAX) return;
  const uint32_t cores = (uint32_t)((quota + period - 1) / period);
  if (limits->cores == 0 || cores < limits->cores) limits->cores = cores;
}

static const char *root = "";

void plm_cgroup_read_below(const char *folder)
{
  root = folder;
}

void plm_cgroup_read(struct plm_cgroup_limits *limits)
{
  struct place *places = plm_alloc_zeroed(HIERARCHIES, sizeof *places);
  *limits = (struct plm_cgroup_limits){.memory_bytes = UINT64_MAX, .memory_free_bytes = UINT64_MAX};
  each_line(root, "/proc/self/mountinfo", parse_mount, places);
  each_line(root, "/proc/self/cgroup", parse_group, places);
  for (int h = 0; h < HIERARCHIES; h++) {
    char folder[PLM_CGROUP_PATH_SIZE];
    const size_t mount = strlen(places[h].mount);
    const bool unified = h == UNIFIED;
    if (!cgroup_folder_of(&places[h], folder)) continue;
    if (h != CPU_V1 && number_in(folder, unified ? "memory.events" : "memory.oom_control",
                                 "oom_kill", &limits->kills))
      limits->counts_kills = true;
    for (;;) {
      if (h != CPU_V1) read_memory_level(folder, unified, limits);
      if (h != MEMORY_V1) read_cpu_level(folder, unified, limits);
      char *slash = strrchr(folder, '/');
      if (strlen(folder) <= mount || slash == NULL) break;
      *slash = '\0';
    }
  }
  free(places);
  char proc[PLM_CGROUP_PATH_SIZE];
  snprintf(proc, sizeof proc, "%s/proc", root);
  if (!limits->counts_kills) number_in(proc, "vmstat", "oom_kill", &limits->kills);
}

uint32_t plm_usable_cores(void)
{
  cpu_set_t set;
  struct plm_cgroup_limits limits;
  const long all = sysconf(_SC_NPROCESSORS_ONLN);
  uint32_t cores = sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set)
                   : all > 0                                   ? (uint32_t)all
                                                               : 1;
  plm_cgroup_read(&limits);
  return limits.cores != 0 && limits.cores < cores ? limits.cores : cores;
}
