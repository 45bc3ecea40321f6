/* The progress bar, and numbers for people. */
#include "common/base/log/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "common/base/log/terminal.h"

enum { BAR_WIDTH = 24 };
static const uint64_t redraw_ns = 100000000u, plain_line_ns = 10000000000u;

const char *plm_format_count(uint64_t count, char text[32])
{
  char digits[32];
  const int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)count);
  char *out = text;
  for (int i = 0; i < length; i++) {
    if (i != 0 && (length - i) % 3 == 0) *out++ = ',';
    *out++ = digits[i];
  }
  *out = '\0';
  return text;
}

const char *plm_format_quantity(uint64_t count, const char *noun, char text[64])
{
  char number[32];
  const size_t length = strlen(noun);
  const char *plural = length > 0 && noun[length - 1] == 's' ? "es" : "s";
  snprintf(text, 64, "%s %s%s", plm_format_count(count, number), noun, count == 1 ? "" : plural);
  return text;
}

void plm_progress_begin(struct plm_progress *progress, const char *label)
{
  const uint64_t now = plm_clock_ns();
  *progress = (struct plm_progress){.label = label,
                                    .terminal = plm_terminal_can_redraw(STDERR_FILENO),
                                    .silent = plm_log_least() > PLM_LOG_INFO,
                                    .start_ns = now,
                                    .last_ns = now};
}

const char *plm_format_duration(double seconds, char text[32])
{
  const unsigned long long whole = (unsigned long long)(seconds + 0.5);
  if (whole >= 3600)
    snprintf(text, 32, "%llu:%02llu:%02llu", whole / 3600, whole / 60 % 60, whole % 60);
  else
    snprintf(text, 32, "%llu:%02llu", whole / 60, whole % 60);
  return text;
}

void plm_progress_update(struct plm_progress *progress, uint64_t done, uint64_t total,
                         uint64_t rated, uint64_t items, const char *noun)
{
  if (progress->silent) return;
  const uint64_t now = plm_clock_ns();
  if (now - progress->last_ns < (progress->terminal ? redraw_ns : plain_line_ns)) return;
  progress->last_ns = now;
  const double seconds = 1e-9 * (double)(now - progress->start_ns);
  const double share = total == 0 ? 0.0 : done >= total ? 1.0 : (double)done / (double)total;
  char bar[BAR_WIDTH + 16] = "", rest[64] = "", left[32], quantity[64];
  if (total != 0) {
    char cells[BAR_WIDTH + 1];
    const int full = (int)(share * BAR_WIDTH);
    memset(cells, '#', (size_t)full);
    memset(cells + full, '.', (size_t)(BAR_WIDTH - full));
    cells[BAR_WIDTH] = '\0';
    snprintf(bar, sizeof bar, " [%s] %3.0f %%", progress->terminal ? cells : "", 100.0 * share);
    if (!progress->terminal) snprintf(bar, sizeof bar, " %.0f %%", 100.0 * share);
    if (done > progress->done_before) {
      const double to_do = done >= total ? 0.0 : (double)(total - done);
      plm_format_duration(seconds * to_do / (double)(done - progress->done_before), left);
      snprintf(rest, sizeof rest, ", %s left", left);
    }
  }
  char line[256], rate[64], whole[32];
  if (progress->rate_unit == NULL)
    snprintf(rate, sizeof rate, "%.1f MB/s", 1e-6 * (double)rated / seconds);
  else
    snprintf(rate, sizeof rate, "%s %s/s",
             plm_format_count((uint64_t)((double)rated / seconds), whole), progress->rate_unit);
  snprintf(line, sizeof line, "%s%s  %s, %s%s", progress->label, bar,
           plm_format_quantity(items, noun, quantity), rate, rest);
  if (!progress->terminal) {
    plm_info("%s", line);
    return;
  }
  fprintf(stderr, "\r%s\033[K", line);
  fflush(stderr);
  progress->drawn = true;
}

void plm_progress_clear(struct plm_progress *progress)
{
  if (!progress->drawn) return;
  fputs("\r\033[K", stderr);
  fflush(stderr);
  progress->drawn = false;
}
