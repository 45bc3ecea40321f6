/* `plm-pipeline doctor`: checks whether a run can work on this host. */
#include <cjson/cJSON.h>
#include <stdio.h>

#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "stages/commands/command.h"
#include "stages/doctor/doctor.h"

static plm_status doctor_print_json(const struct plm_doctor *doctor, struct plm_error *error)
{
  cJSON *list = cJSON_CreateArray();
  for (size_t i = 0; i < doctor->count; i++) {
    const struct plm_finding *finding = &doctor->findings[i];
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "check", finding->check);
    cJSON_AddStringToObject(row, "grade", plm_grade_name(finding->grade));
    cJSON_AddStringToObject(row, "found", finding->found);
    if (finding->fix[0] != '\0') cJSON_AddStringToObject(row, "fix", finding->fix);
    plm_json_append(list, row);
  }
  return plm_json_print(list, error);
}

static void doctor_print_table(const struct plm_doctor *doctor, bool color, bool quiet)
{
  static const char *const paints[] = {"\033[32m", "\033[33m", "\033[31m"};
  for (size_t i = 0; i < doctor->count; i++) {
    const struct plm_finding *finding = &doctor->findings[i];
    if (quiet && finding->grade == PLM_GRADE_OK) continue;
    printf("%s%-8s%s", color ? paints[finding->grade] : "", plm_grade_name(finding->grade),
           color ? "\033[0m" : "");
    plm_print(stdout, "%-16s %s\n", finding->check, finding->found);
    if (finding->fix[0] != '\0') plm_print(stdout, "%25sfix: %s\n", "", finding->fix);
  }
}

static plm_status examine(const struct plm_command_context *context,
                          const struct plm_config *config, struct plm_error *error)
{
  static struct plm_doctor doctor;
  doctor = (struct plm_doctor){
      .config = config, .program_directory = context->program_directory, .root = ""};
  plm_doctor_programs(&doctor);
  plm_doctor_files(&doctor);
  plm_doctor_host(&doctor);
  plm_doctor_run(&doctor);
  if (context->json)
    PLM_TRY(doctor_print_json(&doctor, error));
  else
    doctor_print_table(&doctor, context->color, context->quiet);
  if (plm_doctor_worst(&doctor) < PLM_GRADE_PROBLEM) return PLM_OK;
  return plm_error_set(error, PLM_FAILURE, "%s", ""); /* the table says it all */
}

static plm_status doctor_run(const struct plm_command_context *context, struct plm_error *error)
{
  struct plm_config config;
  const struct plm_arguments *arguments = context->arguments;
  PLM_TRY(plm_command_operands(context, 1, error));
  const char *file = arguments->positionals[0]; /* or NULL */
  PLM_TRY(plm_arguments_load_config(arguments, file, false, &config, error));
  const plm_status status = examine(context, &config, error);
  plm_config_deinit(&config);
  return status;
}

const struct plm_command plm_command_doctor = {
    .name = "doctor",
    .sets = true,
    .operands = "[FILE]",
    .summary = "check this host for a run; each problem with its fix",
    .details =
        "Checks the programs, GPU and driver, processor and oneDNN, memory, disk, file systems, "
        "corpus, ports, limits, host name, locale and clock, for the configuration in FILE "
        "(default ./pipeline.yaml; without one, for the defaults), and the run itself if it is "
        "running or has failed. It changes nothing.\n\n"
        "Exits with 1 if there is a problem with which the run would fail; a warning does not "
        "change the exit code. -q leaves out what is in order. --json prints an array of {check, "
        "grade, found, "
        "fix}; grade is ok, warning or problem.",
    .run = doctor_run,
};
