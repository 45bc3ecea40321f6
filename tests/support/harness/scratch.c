/* Makes and removes the temporary folder of a test program. */
#include "tests/support/harness/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/base/status.h"

static char folder[PLM_PATH_SIZE];

static void remove_folder(void)
{
  (void)plm_path_remove(folder, NULL);
}

const char *scratch_directory(void)
{
  if (folder[0] != '\0') return folder;
  const char *given = getenv("PLM_TMP");
  if (given != NULL) {
    snprintf(folder, sizeof folder, "%s", given);
  } else {
    snprintf(folder, sizeof folder, "/tmp/plm-test-XXXXXX");
    PLM_ASSERT(mkdtemp(folder) != NULL);
    atexit(remove_folder);
  }
  return folder;
}

const char *scratch_path(const char *name)
{
  static char paths[8][PLM_PATH_SIZE];
  static unsigned next;
  char *path = paths[next++ % 8];
  PLM_ASSERT(plm_path_join(path, scratch_directory(), name, NULL) == PLM_OK);
  return path;
}

void scratch_run(char *run)
{
  static unsigned number;
  char name[32];
  snprintf(name, sizeof name, "run-%u", number++);
  snprintf(run, PLM_PATH_SIZE, "%s", scratch_path(name));
  PLM_ASSERT(plm_directory_make(run, NULL) == PLM_OK);
}

void scratch_write(const char *path, const void *bytes, size_t size)
{
  FILE *file = fopen(path, "we");
  PLM_ASSERT(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

void scratch_age(const char *path, double age_s)
{
  const double changed_s = plm_clock_wall_s() - age_s;
  const double whole_s = floor(changed_s);
  const struct timespec changed = {.tv_sec = (time_t)whole_s,
                                   .tv_nsec = (long)(1e9 * (changed_s - whole_s))};
  const struct timespec times[2] = {changed, changed};
  FILE *file = fopen(path, "ae");
  PLM_ASSERT(file != NULL && fclose(file) == 0);
  PLM_ASSERT(utimensat(AT_FDCWD, path, times, 0) == 0);
}

const char *scratch_only_file(const char *parent)
{
  static char path[PLM_PATH_SIZE];
  int found = 0;
  DIR *directory = opendir(parent);
  PLM_ASSERT(directory != NULL);
  for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
    if (entry->d_name[0] == '.') continue;
    found++;
    PLM_ASSERT(plm_path_join(path, parent, entry->d_name, NULL) == PLM_OK);
  }
  closedir(directory);
  PLM_ASSERT(found == 1);
  return path;
}

unsigned scratch_mode(const char *parent, const char *name)
{
  char path[2 * PLM_PATH_SIZE];
  struct stat information;
  snprintf(path, sizeof path, "%s/%s", parent, name);
  if (stat(path, &information) != 0) {
    perror(path);
    exit(1);
  }
  return information.st_mode & 07777u;
}

const char *scratch_contents(const char *path)
{
  static char kept[4][1 << 14];
  static unsigned next;
  char *text, *copy = kept[next++ % 4];
  size_t size;
  if (!plm_file_exists(path)) return "";
  PLM_ASSERT(plm_file_read(path, sizeof kept[0] - 1, &text, &size, NULL) == PLM_OK);
  memcpy(copy, text, size + 1);
  free(text);
  return copy;
}

bool scratch_is_empty(const char *path)
{
  struct dirent **entries;
  const int count = scandir(path, &entries, NULL, alphasort);
  PLM_ASSERT(count >= 2); /* . and .. */
  for (int i = 0; i < count; i++) free(entries[i]);
  free(entries);
  return count == 2;
}

bool scratch_appears(const char *path, const char *text, int timeout_ms)
{
  for (int waited = 0; waited <= timeout_ms; waited += 50) {
    char *bytes;
    size_t size;
    if (plm_file_read(path, 1 << 20, &bytes, &size, NULL) == PLM_OK) {
      const bool found = strstr(bytes, text) != NULL;
      free(bytes);
      if (found) return true;
    }
    usleep(50000);
  }
  return false;
}
