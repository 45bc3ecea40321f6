/* Writes and reads pulse.ROLE.json. */
#include "common/run/run_pulse.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "common/run/run.h"

enum { PULSE_LIMIT = 4096 };
static const uint64_t every_ns = 1000000000u;
static const double keep_pace = 0.9; /* part of the older signs in the pace */

static void file_name(const char *role, char name[64])
{
  snprintf(name, 64, "pulse.%.32s.json", role);
}

void plm_run_pulse_begin(struct plm_run_pulse *pulse, const char *run, const char *role)
{
  *pulse = (struct plm_run_pulse){.run = run, .role = role};
}

static void write_file(const struct plm_run_pulse *pulse, const char *doing)
{
  char name[64], host[256] = "";
  cJSON *json = cJSON_CreateObject();
  gethostname(host, sizeof host - 1);
  cJSON_AddStringToObject(json, "doing", doing);
  cJSON_AddBoolToObject(json, "patient", pulse->patient);
  cJSON_AddBoolToObject(json, "waits", pulse->waits);
  if (pulse->waits)
    cJSON_AddNumberToObject(json, "waited_s",
                            1e-9 * (double)(pulse->written_ns - pulse->waits_since_ns));
  cJSON_AddNumberToObject(json, "pace_s", pulse->pace_s);
  cJSON_AddNumberToObject(json, "written_ms", floor(1e3 * plm_clock_wall_s()));
  cJSON_AddStringToObject(json, "host", host);
  cJSON_AddNumberToObject(json, "pid", getpid());
  char *text = plm_json_bytes(json, false);
  cJSON_Delete(json);
  file_name(pulse->role, name);
  (void)plm_run_tell(pulse->run, name, text, NULL);
  free(text);
}

void plm_run_pulse(struct plm_run_pulse *pulse, bool patient, const char *format, ...)
{
  char doing[PLM_PULSE_DOING];
  if (pulse->run == NULL) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(doing, sizeof doing, format, arguments);
  va_end(arguments);
  const uint64_t now_ns = plm_clock_ns();
  const bool same = pulse->beat_ns != 0 && strcmp(doing, pulse->doing) == 0;
  if (same) {
    const double since_s = 1e-9 * (double)(now_ns - pulse->beat_ns);
    pulse->pace_s =
        pulse->pace_s > 0 ? keep_pace * pulse->pace_s + (1 - keep_pace) * since_s : since_s;
  }
  pulse->beat_ns = now_ns;
  pulse->waits_for = NULL;
  if (same && now_ns < pulse->written_ns + every_ns) return;
  pulse->waits = false;
  pulse->written_ns = now_ns;
  pulse->patient = patient;
  memcpy(pulse->doing, doing, sizeof doing);
  write_file(pulse, pulse->doing);
}

void plm_run_pulse_wait(struct plm_run_pulse *pulse, const char *what)
{
  if (pulse->run == NULL) return;
  const uint64_t now_ns = plm_clock_ns();
  if (pulse->waits_for == NULL || strcmp(pulse->waits_for, what) != 0) {
    pulse->waits_for = what;
    pulse->waits_since_ns = now_ns;
  }
  if (now_ns < pulse->waits_since_ns + every_ns) return;
  const bool same = pulse->waits && strcmp(pulse->doing, what) == 0;
  if (same && now_ns < pulse->written_ns + every_ns) return;
  pulse->written_ns = now_ns;
  pulse->patient = false;
  pulse->waits = true;
  snprintf(pulse->doing, sizeof pulse->doing, "%s", what);
  write_file(pulse, pulse->doing);
}

static void run_pulse_advance(void *context, uint64_t done, uint64_t total)
{
  struct plm_run_pulse *pulse = context;
  char doing[PLM_PULSE_DOING + 16];
  if (pulse->run == NULL) return;
  const uint64_t now_ns = plm_clock_ns();
  pulse->beat_ns = now_ns;
  if (now_ns < pulse->written_ns + every_ns) return;
  pulse->written_ns = now_ns;
  const double share = total == 0 ? 0.0 : fmin(1.0, (double)done / (double)total);
  snprintf(doing, sizeof doing, total == 0 ? "%s" : "%s (%.0f %%)", pulse->doing,
           floor(100.0 * share));
  write_file(pulse, doing);
}

struct plm_advance plm_run_pulse_reading(struct plm_run_pulse *pulse)
{
  return (struct plm_advance){.tell = run_pulse_advance, .context = pulse};
}

void plm_run_pulse_suspend(struct plm_run_pulse *pulse)
{
  if (pulse->written_ns != 0) plm_run_pulse_remove(pulse->run, pulse->role);
  *pulse = (struct plm_run_pulse){.run = pulse->run, .role = pulse->role};
}

void plm_run_pulse_end(struct plm_run_pulse *pulse)
{
  if (pulse->run != NULL) plm_run_pulse_remove(pulse->run, pulse->role);
  *pulse = (struct plm_run_pulse){0};
}

void plm_run_pulse_remove(const char *run, const char *role)
{
  char name[64], path[PLM_PATH_SIZE];
  file_name(role, name);
  if (plm_path_join(path, run, name, NULL) == PLM_OK) unlink(path);
}

/* Of whichever process. */
static bool run_pulse_read_file(const char *run, const char *role, struct plm_run_sign *sign)
{
  char name[64], path[PLM_PATH_SIZE], *text;
  size_t size;
  *sign = (struct plm_run_sign){0};
  file_name(role, name);
  if (plm_path_join(path, run, name, NULL) != PLM_OK) return false;
  sign->age_s = plm_file_age_s(path);
  if (plm_file_read(path, PULSE_LIMIT, &text, &size, NULL) != PLM_OK) return false;
  cJSON *json = plm_json_line(text);
  free(text);
  snprintf(sign->doing, sizeof sign->doing, "%s", plm_json_string(json, "doing", ""));
  sign->patient = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "patient"));
  sign->waits = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "waits"));
  if (sign->waits) sign->wait_s = plm_json_number(json, "waited_s", 0.0) + sign->age_s;
  sign->pace_s = plm_json_number(json, "pace_s", 0.0);
  sign->written_ms = plm_json_whole(json, "written_ms", UINT64_MAX, 0);
  snprintf(sign->host, sizeof sign->host, "%s", plm_json_string(json, "host", ""));
  sign->pid = (int)plm_json_whole(json, "pid", INT32_MAX, 0);
  cJSON_Delete(json);
  return sign->doing[0] != '\0';
}

bool plm_run_pulse_read(const char *run, const char *role, struct plm_run_sign *sign)
{
  if (run_pulse_read_file(run, role, sign) && sign->age_s <= plm_lock_age_s(run, role)) return true;
  *sign = (struct plm_run_sign){0};
  return false;
}

bool plm_run_pulse_read_of(const char *run, const char *role, int pid, struct plm_run_sign *sign)
{
  if (run_pulse_read_file(run, role, sign) && (pid == 0 || sign->pid == pid)) return true;
  *sign = (struct plm_run_sign){0};
  return false;
}
