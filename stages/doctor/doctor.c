/* Collects the findings of `doctor`. */
#include "stages/doctor/doctor.h"

#include <stdio.h>

const char *plm_grade_name(enum plm_grade grade)
{
  static const char *const names[] = {"ok", "warning", "problem"};
  return names[grade];
}

void plm_doctor_add(struct plm_doctor *doctor, const char *check, enum plm_grade grade,
                    const char *format, ...)
{
  PLM_ASSERT(doctor->count < PLM_MAX_FINDINGS);
  struct plm_finding *finding = &doctor->findings[doctor->count++];
  va_list arguments;
  *finding = (struct plm_finding){.check = check, .grade = grade};
  va_start(arguments, format);
  vsnprintf(finding->found, sizeof finding->found, format, arguments);
  va_end(arguments);
}

void plm_doctor_fix(struct plm_doctor *doctor, const char *format, ...)
{
  PLM_ASSERT(doctor->count > 0);
  struct plm_finding *finding = &doctor->findings[doctor->count - 1];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(finding->fix, sizeof finding->fix, format, arguments);
  va_end(arguments);
}

enum plm_grade plm_doctor_worst(const struct plm_doctor *doctor)
{
  enum plm_grade worst = PLM_GRADE_OK;
  for (size_t i = 0; i < doctor->count; i++)
    if (doctor->findings[i].grade > worst) worst = doctor->findings[i].grade;
  return worst;
}
