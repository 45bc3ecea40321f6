/* Checks of a host, for `doctor`: whether a run with this configuration can work here, and what to
 * do where it cannot. Nothing is changed; files that are made for a check are removed. */
#ifndef PLM_STAGES_DOCTOR_DOCTOR_H
#define PLM_STAGES_DOCTOR_DOCTOR_H

#include <stddef.h>

#include "common/config/config.h"

enum plm_grade {
  PLM_GRADE_OK,
  PLM_GRADE_WARNING, /* it works, but slowly, or something may go wrong later */
  PLM_GRADE_PROBLEM, /* the run would fail */
};
const char *plm_grade_name(enum plm_grade grade); /* "ok", "warning", "problem" */

struct plm_finding {
  const char *check; /* "disk" */
  enum plm_grade grade;
  char found[512];
  char fix[512]; /* "" if nothing has to be done */
};

enum { PLM_MAX_FINDINGS = 64 };

struct plm_doctor {
  const struct plm_config *config; /* with the defaults where there is no pipeline.yaml */
  const char *program_directory;
  const char *root; /* where /sys, /proc and /dev are looked at for a GPU; "" or a test's folder */
  struct plm_finding findings[PLM_MAX_FINDINGS];
  size_t count;
};

/* Adds a finding; the text is cut to its size. */
void plm_doctor_add(struct plm_doctor *doctor, const char *check, enum plm_grade grade,
                    const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Says how to fix the last finding. */
void plm_doctor_fix(struct plm_doctor *doctor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
enum plm_grade plm_doctor_worst(const struct plm_doctor *doctor);

/* Groups of checks. The first asks plm-trainer, which takes up to 20 s. */
void plm_doctor_programs(struct plm_doctor *doctor); /* programs, driver, device, oneDNN, ranks */
void plm_doctor_files(struct plm_doctor *doctor);    /* disk, file systems, control socket */
void plm_doctor_host(struct plm_doctor *doctor);     /* ports, limits, names, locale, clock */
void plm_doctor_run(struct plm_doctor *doctor);      /* the run, if it is running or has failed */

#endif
