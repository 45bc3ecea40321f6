/* Checks of the host: ports, limits of this process, names, locale and clock. */
#include <langinfo.h>
#include <locale.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#include "common/run/run.h"
#include "stages/doctor/doctor.h"
#include "stages/supervisor/prepare/run_ports.h"

enum { LEAST_DESCRIPTORS = 1024, LEAST_PROCESSES = 256 };

/* A run that is running holds its own ports. */
static bool is_running(const char *run)
{
  struct plm_lock_holder holder;
  return plm_lock_holder(run, "supervisor", &holder, NULL) == PLM_OK ||
         plm_lock_holder(run, "trainer", &holder, NULL) == PLM_OK;
}

static void check_ports(struct plm_doctor *doctor)
{
  static const bool all[PLM_KIND_COUNT] = {true, true, true};
  struct plm_run_port ports[PLM_RUN_PORTS];
  if (is_running(doctor->config->run)) {
    plm_doctor_add(doctor, "ports", PLM_GRADE_OK, "the run is running and has its ports");
    return;
  }
  const size_t count = plm_run_ports(doctor->config, all, ports);
  size_t taken = 0;
  for (size_t i = 0; i < count; i++) {
    if (ports[i].wrong[0] != '\0') {
      taken++;
      plm_doctor_add(doctor, "ports", PLM_GRADE_PROBLEM, "%s: %.100s cannot be bound: %s",
                     ports[i].key, ports[i].address, ports[i].wrong);
      plm_doctor_fix(doctor,
                     "use an address of this host: --set '%s=%s'; the key for the address "
                     "that others use ends with _address",
                     ports[i].key, ports[i].any);
    }
    if (!ports[i].taken) continue;
    taken++;
    plm_doctor_add(doctor, "ports", PLM_GRADE_PROBLEM, "%s: %.200s is in use by %.120s",
                   ports[i].key, ports[i].address, ports[i].owner);
    plm_doctor_fix(doctor, "stop that process, or let the system choose: --set '%s=%s'",
                   ports[i].key, ports[i].any);
  }
  if (taken == 0) plm_doctor_add(doctor, "ports", PLM_GRADE_OK, "all %zu are free", count);
}

static void check_limits(struct plm_doctor *doctor)
{
  struct rlimit files, processes, space, size;
  const size_t before = doctor->count;
  getrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_NPROC, &processes);
  getrlimit(RLIMIT_AS, &space);
  getrlimit(RLIMIT_FSIZE, &size);
  if (files.rlim_max != RLIM_INFINITY && files.rlim_max < LEAST_DESCRIPTORS) {
    plm_doctor_add(doctor, "limits", PLM_GRADE_WARNING, "a process may open only %llu files",
                   (unsigned long long)files.rlim_max);
    plm_doctor_fix(doctor, "raise the hard limit: nofile in /etc/security/limits.conf, or "
                           "LimitNOFILE= of the service");
  }
  if (processes.rlim_cur != RLIM_INFINITY && processes.rlim_cur < LEAST_PROCESSES) {
    plm_doctor_add(doctor, "limits", PLM_GRADE_WARNING, "you may have only %llu processes",
                   (unsigned long long)processes.rlim_cur);
    plm_doctor_fix(doctor, "raise nproc in /etc/security/limits.conf, or TasksMax= of the service");
  }
  if (space.rlim_cur != RLIM_INFINITY) {
    plm_doctor_add(doctor, "limits", PLM_GRADE_WARNING,
                   "the address space of a process is limited to %.1f GB, and the corpus is mapped "
                   "into it",
                   1e-9 * (double)space.rlim_cur);
    plm_doctor_fix(doctor, "ulimit -v unlimited");
  }
  if (size.rlim_cur != RLIM_INFINITY) {
    plm_doctor_add(doctor, "limits", PLM_GRADE_WARNING, "a file may have only %.3f GB",
                   1e-9 * (double)size.rlim_cur);
    plm_doctor_fix(doctor, "ulimit -f unlimited");
  }
  if (doctor->count == before)
    plm_doctor_add(doctor, "limits", PLM_GRADE_OK,
                   "files, processes, address space and file sizes suffice");
}

static bool resolves(const char *name)
{
  struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM};
  if (getaddrinfo(name, NULL, &hints, &found) != 0) return false;
  freeaddrinfo(found);
  return true;
}

static void check_names(struct plm_doctor *doctor)
{
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  const bool known = resolves(name), several = doctor->config->trainer.ranks > 1;
  if (known) {
    plm_doctor_add(doctor, "host name", PLM_GRADE_OK, "%s resolves", name);
    return;
  }
  plm_doctor_add(doctor, "host name", several ? PLM_GRADE_PROBLEM : PLM_GRADE_OK,
                 "%s does not resolve%s", name,
                 several ? ", which Open MPI needs" : "; only several ranks need it");
  if (several) plm_doctor_fix(doctor, "add a line for it to /etc/hosts: 127.0.1.1 %s", name);
}

/* The programs themselves always print numbers with a point: they never call setlocale. */
static void check_locale(struct plm_doctor *doctor)
{
  const locale_t locale = newlocale(LC_ALL_MASK, "", (locale_t)0);
  if (locale == (locale_t)0) {
    plm_doctor_add(doctor, "locale", PLM_GRADE_WARNING,
                   "the locale that LC_ALL or LANG names is not installed");
    plm_doctor_fix(doctor, "export LC_ALL=C.UTF-8, or run `dpkg-reconfigure locales`");
    return;
  }
  const char *characters = nl_langinfo_l(CODESET, locale);
  const bool unicode = strcmp(characters, "UTF-8") == 0;
  plm_doctor_add(doctor, "locale", unicode ? PLM_GRADE_OK : PLM_GRADE_WARNING,
                 "characters are %.40s", characters);
  if (!unicode)
    plm_doctor_fix(doctor, "export LC_ALL=C.UTF-8, because curves in the terminal are drawn with "
                           "Unicode characters");
  freelocale(locale);
}

static void check_clock(struct plm_doctor *doctor)
{
  enum { MADE = 1735689600 }; /* 2025-01-01: a clock before it is certainly wrong */
  struct timex state = {0};
  struct tm utc;
  char text[64] = "";
  const time_t now = time(NULL);
  if (gmtime_r(&now, &utc) != NULL) strftime(text, sizeof text, "%F %H:%M:%S UTC", &utc);
  if (now < MADE) {
    plm_doctor_add(doctor, "clock", PLM_GRADE_WARNING, "it says %s", text);
    plm_doctor_fix(doctor, "set it: logs and metrics carry its time");
    return;
  }
  const int answer = adjtimex(&state);
  plm_doctor_add(doctor, "clock", PLM_GRADE_OK, "%s%s", text,
                 answer < 0 ? ""
                 : answer != TIME_ERROR
                     ? ", synchronised"
                     : ", not synchronised, which matters only for several hosts");
}

void plm_doctor_host(struct plm_doctor *doctor)
{
  check_ports(doctor);
  check_limits(doctor);
  check_names(doctor);
  check_locale(doctor);
  check_clock(doctor);
}
