/* Checks of the folders that a run uses: space, file systems, and whether files can be made. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "common/corpus/corpus.h"
#include "common/corpus/corpus_description.h"
#include "stages/doctor/doctor.h"
#include "stages/supervisor/control/supervisor_socket.h"
#include "stages/supervisor/prepare/run_corpora.h"
#include "stages/supervisor/prepare/trainer_estimate.h"

enum { TMPFS = 0x01021994, CLOCK_SKEW_S = 60, FEW_INODES = 10000 };

/* Makes a file in the folder, locks and syncs it as the stages do, and removes it. Returns its time
 * of change, 0 if something failed, which `why` names. */
static time_t try_file(const char *folder, char why[256])
{
  char path[PLM_PATH_SIZE];
  struct stat info;
  snprintf(path, sizeof path, "%.4000s/.plm-doctor-XXXXXX", folder);
  const int file = mkostemp(path, O_CLOEXEC);
  if (file < 0) {
    snprintf(why, 256, "no file can be made: %s", strerror(errno));
    return 0;
  }
  time_t changed = 0;
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  if (write(file, "x", 1) != 1 || fsync(file) != 0)
    snprintf(why, 256, "no file can be written: %s", strerror(errno));
  else if (fcntl(file, F_OFD_SETLK, &lock) != 0 || flock(file, LOCK_EX | LOCK_NB) != 0)
    snprintf(why, 256, "files cannot be locked: %s", strerror(errno));
  else if (fstat(file, &info) == 0)
    changed = info.st_mtime;
  unlink(path);
  close(file);
  return changed;
}

static void check_clock_of_files(struct plm_doctor *doctor, const char *folder, time_t changed)
{
  const long skew = (long)difftime(changed, time(NULL));
  if (labs(skew) <= CLOCK_SKEW_S) return;
  plm_doctor_add(doctor, "clock", PLM_GRADE_WARNING,
                 "the clock of the file server of %.300s is %ld s %s this host's", folder,
                 labs(skew), skew > 0 ? "ahead of" : "behind");
  plm_doctor_fix(doctor, "synchronise both clocks (chrony or systemd-timesyncd)");
}

static void check_run_folder(struct plm_doctor *doctor)
{
  char folder[PLM_PATH_SIZE], why[256] = "";
  struct statvfs space;
  struct statfs kind;
  plm_nearest_folder(doctor->config->run, folder);
  const time_t changed = try_file(folder, why);
  if (changed == 0) {
    plm_doctor_add(doctor, "run folder", PLM_GRADE_PROBLEM, "in %.200s, %.200s", folder, why);
    plm_doctor_fix(doctor, "make it writable, or choose another place with `run` or --run DIR");
    return;
  }
  const char *remote = plm_corpus_remote_kind(folder);
  const bool memory = statfs(folder, &kind) == 0 && (uint32_t)kind.f_type == TMPFS;
  plm_doctor_add(doctor, "run folder", memory ? PLM_GRADE_WARNING : PLM_GRADE_OK,
                 "files in %.200s can be made, locked and synced (%s)", folder,
                 remote != NULL ? remote
                 : memory       ? "in memory"
                                : "a local disk");
  if (memory)
    plm_doctor_fix(doctor, "a restart of this host loses the run: choose a folder on a disk");
  check_clock_of_files(doctor, folder, changed);
  if (statvfs(folder, &space) != 0 || space.f_files == 0 || space.f_favail > FEW_INODES) return;
  plm_doctor_add(doctor, "disk", PLM_GRADE_WARNING, "only %llu files can still be made at %.300s",
                 (unsigned long long)space.f_favail, folder);
  plm_doctor_fix(doctor, "remove files there, or put `run` on another disk");
}

/* What packers do with a corpus on a remote file system. */
static const char *told(const struct plm_config *config)
{
  if (!plm_run_corpora_may_be_remote(config)) return ", where packers refuse it";
  if (config->packer_instances == 0) return ", but no packer is started here";
  return config->packer_cache != NULL ? ", and packers copy it (packer.cache)"
                                      : ", and packers read it there (packer.allow_remote)";
}

static void doctor_files_check_corpus(struct plm_doctor *doctor, const char *corpus)
{
  struct plm_corpus_description description;
  struct plm_error error = {0};
  if (plm_corpus_description_read(corpus, &description, &error) != PLM_OK) {
    plm_doctor_add(doctor, "corpus", PLM_GRADE_PROBLEM, "%.400s", error.what);
    plm_doctor_fix(doctor, "make it with `plm-pipeline ingest FILE --corpus DIR`, or correct "
                           "`corpus` in the configuration");
    return;
  }
  plm_corpus_description_deinit(&description);
  const char *remote = plm_corpus_remote_kind(corpus);
  const bool refused = remote != NULL && !plm_run_corpora_may_be_remote(doctor->config);
  plm_doctor_add(doctor, "corpus", refused ? PLM_GRADE_PROBLEM : PLM_GRADE_OK, "%.300s is on %s%s",
                 corpus, remote != NULL ? remote : "a local disk",
                 remote != NULL ? told(doctor->config) : "");
  if (refused)
    plm_doctor_fix(doctor, "set packer.cache to a folder on a local disk, or packer.allow_remote "
                           "to true");
}

static void doctor_files_check_corpora(struct plm_doctor *doctor)
{
  const struct plm_config *config = doctor->config;
  /* Without a configuration there is only the default name, which nobody may have used. */
  if (config->corpus == NULL || (config->path == NULL && !plm_file_exists(config->corpus))) return;
  for (uint32_t k = 0; k < plm_config_source_count(config); k++)
    doctor_files_check_corpus(doctor, plm_config_source(config, k).path);
}

static void check_control_socket(struct plm_doctor *doctor)
{
  char folder[PLM_PATH_SIZE], path[PLM_SOCKET_PATH_SIZE];
  struct plm_error error = {0};
  plm_nearest_folder(doctor->config->run, folder);
  if (plm_socket_path(folder, path, &error) != PLM_OK) {
    plm_doctor_add(doctor, "control socket", PLM_GRADE_PROBLEM, "%.400s", error.what);
    plm_doctor_fix(doctor, "%.400s", error.hint);
    return;
  }
  *strrchr(path, '/') = '\0';
  plm_doctor_add(doctor, "control socket", PLM_GRADE_OK, "sockets can be made in %.100s", path);
}

static void check_temporary(struct plm_doctor *doctor)
{
  char why[256] = "";
  const char *folder = plm_temporary_folder();
  if (try_file(folder, why) != 0) return;
  plm_doctor_add(doctor, "temporary files", PLM_GRADE_PROBLEM, "in %.200s, %.200s", folder, why);
  plm_doctor_fix(doctor, "set TMPDIR to a folder that you can write to");
}

void plm_doctor_files(struct plm_doctor *doctor)
{
  check_run_folder(doctor);
  doctor_files_check_corpora(doctor);
  check_control_socket(doctor);
  check_temporary(doctor);
}
