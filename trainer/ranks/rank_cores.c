/* Reads from sysfs which processors are near a device, and binds threads to them. */
#include "trainer/ranks/rank_cores.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"

bool plm_cores_parse(const char *list, cpu_set_t *processors)
{
  CPU_ZERO(processors);
  for (const char *at = list; *at != '\0' && *at != '\n';) {
    char *end;
    if (!isdigit((unsigned char)*at)) return false;
    const unsigned long first = strtoul(at, &end, 10);
    unsigned long last = first;
    if (*end == '-') {
      if (!isdigit((unsigned char)end[1])) return false;
      last = strtoul(end + 1, &end, 10);
    }
    if (last < first || last >= CPU_SETSIZE) return false;
    for (unsigned long i = first; i <= last; i++) CPU_SET(i, processors);
    if (*end == ',') end++;
    at = end;
  }
  return CPU_COUNT(processors) > 0;
}

bool plm_cores_near(const char *folder, const char *location, cpu_set_t *processors)
{
  char name[PLM_PCI_SIZE], path[PLM_PATH_SIZE], *list = NULL;
  size_t size, i = 0;
  for (; location[i] != '\0' && i + 1 < sizeof name; i++)
    name[i] = (char)tolower((unsigned char)location[i]);
  name[i] = '\0';
  if (snprintf(path, sizeof path, "%s/%s/local_cpulist", folder, name) >= (int)sizeof path)
    return false;
  if (plm_file_read(path, 1 << 16, &list, &size, NULL) != PLM_OK) return false;
  const bool said = plm_cores_parse(list, processors);
  free(list);
  return said;
}

int plm_cores_stay(const cpu_set_t *near)
{
  cpu_set_t mine, wanted;
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) return 0;
  CPU_AND(&wanted, &mine, near);
  const int count = CPU_COUNT(&wanted);
  if (count == 0 || CPU_EQUAL(&wanted, &mine)) return 0;
  DIR *threads = opendir("/proc/self/task");
  if (threads == NULL) return 0;
  for (const struct dirent *entry; (entry = readdir(threads)) != NULL;) {
    const pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10); /* "." and "..": 0, this one */
    (void)sched_setaffinity(thread, sizeof wanted, &wanted);     /* it may have ended */
  }
  closedir(threads);
  return count;
}
