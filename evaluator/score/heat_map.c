/* Draws the map in blocks of as many columns as fit. */
#include "evaluator/score/heat_map.h"

#include <math.h>
#include <string.h>

#include "common/base/text/printable.h"

enum { MARGIN = 4, LEAST_COLUMNS = 10, SHADES = 8 };

static const char order[PLM_HEAT_MAP_ROWS + 1] = "GAVLIMCPFYWSTNQHKRDE";
static const unsigned char red[SHADES] = {224, 217, 210, 203, 196, 160, 124, 88};
static const unsigned char blue[SHADES] = {189, 153, 117, 75, 33, 27, 21, 18};

int plm_heat_map_row(uint8_t letter)
{
  const char *found = letter == '\0' ? NULL : strchr(order, letter);
  return found != NULL ? (int)(found - order) : -1;
}

static double largest(const double *scores, size_t count)
{
  double most = 0;
  for (size_t i = 0; i < count; i++)
    if (fabs(scores[i]) > most) most = fabs(scores[i]); /* a comparison with NaN is false */
  return most;
}

/* From 0, about as likely as the wild type, to SHADES for the largest score. */
static int shade_of(double score, double most)
{
  return most > 0 && !isnan(score) ? (int)lround(fabs(score) / most * SHADES) : 0;
}

static void draw_plain(FILE *out, double score, double most)
{
  static const char *const marks[] = {" ", "\u2591", "\u2592", "\u2593", "\u2588"};
  const int shade = shade_of(score, most);
  if (isnan(score))
    fputs("\u00b7", out);
  else if (score > 0)
    fputs(shade > 0 ? "+" : " ", out);
  else
    fputs(marks[(shade + 1) / 2], out);
}

static void draw_colored(FILE *out, double score, double most)
{
  const int shade = shade_of(score, most);
  if (isnan(score))
    fputs("\x1b[0m\u00b7", out);
  else if (shade == 0)
    fputs("\x1b[48;5;255m ", out);
  else
    fprintf(out, "\x1b[48;5;%dm ", score > 0 ? blue[shade - 1] : red[shade - 1]);
}

/* Position numbers above every tenth column, then the residues. */
static void draw_head(FILE *out, const struct plm_wild_type *wild_type, uint32_t begin,
                      uint32_t end)
{
  fprintf(out, "\n%*s", MARGIN, "");
  for (uint32_t place = begin; place < end; place += 10) {
    const long long number = wild_type->first + place;
    fprintf(out, "%-10lld", number);
  }
  fprintf(out, "\n%*s%.*s\n", MARGIN, "", (int)(end - begin),
          (const char *)wild_type->residues + begin);
}

void plm_heat_map_draw(FILE *out, const struct plm_wild_type *wild_type, const double *scores,
                       int columns, bool color)
{
  const uint32_t length = wild_type->length;
  const double most = largest(scores, (size_t)length * PLM_HEAT_MAP_ROWS);
  const int room = (columns - MARGIN) / 10 * 10;
  const uint32_t width = (uint32_t)(room > LEAST_COLUMNS ? room : LEAST_COLUMNS);
  plm_print(out, "%s, scores from %.2f (%s) to %.2f (%s)\n", wild_type->name, -most,
            color ? "red" : "\u2588", most, color ? "blue" : "+");
  for (uint32_t begin = 0; begin < length; begin += width) {
    const uint32_t end = length - begin < width ? length : begin + width;
    draw_head(out, wild_type, begin, end);
    for (int row = 0; row < PLM_HEAT_MAP_ROWS; row++) {
      fprintf(out, "%*c ", MARGIN - 1, order[row]);
      for (uint32_t place = begin; place < end; place++) {
        const double score = scores[(size_t)place * PLM_HEAT_MAP_ROWS + (size_t)row];
        if (color)
          draw_colored(out, score, most);
        else
          draw_plain(out, score, most);
      }
      fputs(color ? "\x1b[0m\n" : "\n", out);
    }
  }
}
