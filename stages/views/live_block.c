/* Composes the live block. */
#include "stages/views/live_block.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log/progress.h"
#include "common/base/text/text.h"

enum { BAR_LEAST = 8, BAR_MOST = 30, LEVELS = 8 };
static const char green[] = "\033[32m", yellow[] = "\033[33m", cyan[] = "\033[36m";

void plm_live_curve_add(struct plm_live_curve *curve, uint64_t step, uint64_t steps, double value)
{
  if (!isfinite(value) || step == 0 || step > steps) return;
  const size_t bucket = (size_t)((double)(step - 1) / (double)steps * PLM_LIVE_BUCKETS);
  curve->sums[bucket] += value;
  curve->counts[bucket]++;
}

/* ---- a line ---------------------------------------------------------------------------------- */

static size_t columns_of(const char *text)
{
  size_t columns = 0;
  for (; *text != '\0'; text++) columns += ((unsigned char)*text & 0xc0) != 0x80;
  return columns;
}

/* Cuts the text behind its first `columns` characters. */
static void live_block_cut(char *text, size_t columns)
{
  for (; *text != '\0'; text++) {
    if (((unsigned char)*text & 0xc0) == 0x80) continue;
    if (columns == 0) {
      *text = '\0';
      return;
    }
    columns--;
  }
}

static void live_block_finish(struct plm_live_line *line, const char *label, const char *color,
                              size_t columns)
{
  live_block_cut(line->text, columns);
  line->columns = columns_of(line->text);
  const size_t length = strlen(line->text), wanted = strlen(label);
  line->label = length < wanted ? length : wanted;
  line->color = color;
}

/* Appends to text, which has PLM_LIVE_LINE_SIZE bytes; what does not fit is left out. */
__attribute__((format(printf, 2, 3))) static void live_block_append(char *text, const char *format,
                                                                    ...)
{
  const size_t used = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + used, PLM_LIVE_LINE_SIZE - used, format, arguments);
  va_end(arguments);
}

/* ---- the lines ------------------------------------------------------------------------------- */

/* The bar takes what the figures leave; without room for it, it is left out. */
static void progress_line(const struct plm_live_facts *facts, size_t columns,
                          struct plm_live_line *line)
{
  char rest[PLM_LIVE_LINE_SIZE] = "", left[32];
  const uint64_t steps = facts->steps > facts->step ? facts->steps : facts->step; /* not 0 */
  live_block_append(rest, "%3llu %%  step %llu/%llu",
                    (unsigned long long)(100 * facts->step / steps),
                    (unsigned long long)facts->step, (unsigned long long)facts->steps);
  if (facts->activity[0] != '\0') live_block_append(rest, "  %s", facts->activity);
  const bool trains = facts->activity[0] == '\0';
  if (trains && isfinite(facts->left_s))
    live_block_append(rest, "  %s left", plm_format_duration(facts->left_s, left));
  if (trains && isfinite(facts->tokens_per_second))
    live_block_append(rest, "  %.1fk tokens/s", 1e-3 * facts->tokens_per_second);
  const size_t needed = strlen(rest) + strlen("[]  ");
  size_t room = columns > needed ? columns - needed : 0;
  if (room > BAR_MOST) room = BAR_MOST;
  char bar[BAR_MOST + 8] = "";
  if (room >= BAR_LEAST) {
    const size_t full = (size_t)(room * facts->step / steps);
    bar[0] = '[';
    memset(bar + 1, '#', full);
    memset(bar + 1 + full, '.', room - full);
    memcpy(bar + 1 + room, "]", 2);
  }
  live_block_append(line->text, "%s%s%s", bar, bar[0] != '\0' ? " " : "", rest);
  live_block_finish(line, bar, green, columns);
}

/* Each character is the mean of a part of the run, between the smallest and the largest mean. The
 * root of its place is shown, because a loss falls fast at first and slowly from then on. */
static void append_curve(const struct plm_live_curve *curve, bool unicode, char *text)
{
  static const char *const blocks[LEVELS] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                             "\u2585", "\u2586", "\u2587", "\u2588"};
  static const char *const ascii[LEVELS] = {"_", ".", ",", "-", "=", "+", "*", "#"};
  double least = INFINITY, most = -INFINITY;
  for (size_t i = 0; i < PLM_LIVE_BUCKETS; i++) {
    if (curve->counts[i] == 0) continue;
    const double mean = curve->sums[i] / (double)curve->counts[i];
    least = fmin(least, mean);
    most = fmax(most, mean);
  }
  for (size_t i = 0; i < PLM_LIVE_BUCKETS; i++) {
    if (curve->counts[i] == 0) {
      live_block_append(text, " ");
      continue;
    }
    const double mean = curve->sums[i] / (double)curve->counts[i];
    const double place = most > least ? sqrt((mean - least) / (most - least)) : 0;
    live_block_append(text, "%s", (unicode ? blocks : ascii)[(size_t)(place * (LEVELS - 1) + 0.5)]);
  }
}

static void loss_line(const struct plm_live_facts *facts, size_t columns, bool unicode,
                      struct plm_live_line *line)
{
  if (isfinite(facts->loss))
    live_block_append(line->text, "loss %.4f  ", facts->loss);
  else
    live_block_append(line->text, "loss unknown  ");
  if (facts->warning[0] != '\0') {
    live_block_append(line->text, "WARNING: %s", facts->warning);
    live_block_finish(line, line->text, yellow, columns);
    return;
  }
  append_curve(&facts->curve, unicode, line->text);
  if (facts->epoch > 0) live_block_append(line->text, "  epoch %.2f", facts->epoch);
  live_block_finish(line, "loss", green, columns);
}

static void packers_line(const struct plm_live_facts *facts, size_t columns,
                         struct plm_live_line *line)
{
  live_block_append(line->text, "packers %s",
                    facts->packers[0] != '\0' ? facts->packers : "none serves");
  live_block_finish(line, "packers", yellow, columns);
}

/* The checkpoint comes first, because the line may be cut. */
static void checkpoint_line(const struct plm_live_facts *facts, size_t columns,
                            struct plm_live_line *line)
{
  if (facts->has_checkpoint)
    live_block_append(line->text, "checkpoint step %llu",
                      (unsigned long long)facts->checkpoint_step);
  else
    live_block_append(line->text, "checkpoint none yet");
  if (facts->evaluator[0] != '\0')
    live_block_append(line->text, " | evaluator: %s", facts->evaluator);
  if (facts->evaluation[0] != '\0') live_block_append(line->text, " | %s", facts->evaluation);
  live_block_finish(line, "checkpoint", cyan, columns);
}

size_t plm_live_compose(const struct plm_live_facts *facts, size_t columns, bool unicode,
                        struct plm_live_line lines[PLM_LIVE_LINES])
{
  memset(lines, 0, PLM_LIVE_LINES * sizeof *lines);
  if (facts->step == 0) {
    live_block_append(lines[0].text, "starting: %zu of %zu stages are ready", facts->ready,
                      facts->stages);
    if (facts->activity[0] != '\0') live_block_append(lines[0].text, ", %s", facts->activity);
    live_block_finish(&lines[0], "starting", yellow, columns);
    return 1;
  }
  progress_line(facts, columns, &lines[0]);
  loss_line(facts, columns, unicode, &lines[1]);
  packers_line(facts, columns, &lines[2]);
  checkpoint_line(facts, columns, &lines[3]);
  return PLM_LIVE_LINES;
}
