/* Draws the picture in blocks of positions, one below the other, so that it stays readable. */
#include "evaluator/score/position_output.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/text/text.h"
#include "common/cli/output_file.h"
#include "evaluator/score/heat_map.h"
#include "evaluator/task/npy_header.h"

/* Lengths of the picture in pixels. */
enum { CELL = 12, MARGIN = 28, TOP = 56, HEAD = 30, GAP = 14, BLOCK = 60, NAME = 60 };
static const double DARKEST = 0, LIGHTEST = -6; /* log-probabilities; lower ones are white, too */

plm_status plm_position_check_output(const char *path, struct plm_error *error)
{
  if (!plm_text_ends_with(path, ".png")) return PLM_OK;
  plm_error_set(error, PLM_USAGE, "--per-position cannot write %.200s: PNG is not supported", path);
  return plm_error_hint(error, "name a .svg file for a picture, or .csv or .npy for the numbers");
}

static void write_csv(FILE *out, const struct plm_wild_type *wild_type, const double *scores)
{
  fputs("position,wild_type", out);
  for (const char *letter = PLM_POSITION_LETTERS; *letter != '\0'; letter++)
    fprintf(out, ",%c", *letter);
  for (uint32_t place = 0; place < wild_type->length; place++) {
    fprintf(out, "\n%lld,%c", (long long)wild_type->first + place, wild_type->residues[place]);
    for (int column = 0; column < PLM_POSITION_COLUMNS; column++) {
      const double score = scores[(size_t)place * PLM_POSITION_COLUMNS + (size_t)column];
      fprintf(out, ",%.6f", score > -5e-7 ? 0.0 : score); /* not -0 */
    }
  }
  fputs("\n", out);
}

static void write_npy(FILE *out, const struct plm_wild_type *wild_type, const double *scores)
{
  char header[PLM_NPY_HEADER_SIZE];
  plm_npy_header(header, wild_type->length, PLM_POSITION_COLUMNS);
  fwrite(header, 1, sizeof header, out);
  for (size_t i = 0; i < (size_t)wild_type->length * PLM_POSITION_COLUMNS; i++) {
    const float score = (float)scores[i];
    fwrite(&score, sizeof score, 1, out);
  }
}

/* A name as XML text, cut to NAME bytes. Bytes that are not UTF-8 and controls become "?". */
static void put_name(FILE *out, const char *name)
{
  size_t left = strlen(name), shown = 0;
  for (size_t size; left > 0 && shown < NAME; name += size, left -= size, shown += size) {
    size = plm_utf8_length((const unsigned char *)name, left);
    if (size == 0 || (unsigned char)*name < 0x20 || *name == 0x7f) {
      size = 1;
      fputc('?', out);
    } else if (*name == '<' || *name == '&') {
      fputs(*name == '<' ? "&lt;" : "&amp;", out);
    } else {
      fwrite(name, 1, size, out);
    }
  }
  if (left > 0) fputs("…", out);
}

/* White for LIGHTEST and below, through blue to a dark blue for DARKEST. */
static void put_color(FILE *out, double score)
{
  static const double stops[3][3] = {{255, 255, 255}, {86, 160, 211}, {8, 29, 88}};
  if (isnan(score)) {
    fputs("#bbb", out);
    return;
  }
  const double share = fmin(fmax((score - LIGHTEST) / (DARKEST - LIGHTEST), 0), 1) * 2;
  const int from = share < 1 ? 0 : 1;
  fputc('#', out);
  for (int c = 0; c < 3; c++) {
    const double mixed = stops[from][c] + (share - from) * (stops[from + 1][c] - stops[from][c]);
    fprintf(out, "%02x", (unsigned)lround(mixed));
  }
}

static void position_output_put_cell(FILE *out, uint32_t x, uint32_t y, double score)
{
  fprintf(out, "<rect x=\"%u\" y=\"%u\" width=\"%d\" height=\"%d\" fill=\"", x, y, CELL, CELL);
  put_color(out, score);
  fputs("\"/>", out);
}

static void put_legend(FILE *out)
{
  enum { STEPS = 24, Y = 32 };
  for (uint32_t i = 0; i <= STEPS; i++)
    position_output_put_cell(out, MARGIN + i * CELL / 2, Y,
                             LIGHTEST + (DARKEST - LIGHTEST) * i / STEPS);
  const uint32_t end = MARGIN + (STEPS + 2) * CELL / 2 + 6;
  fprintf(out,
          "\n<text x=\"%u\" y=\"%d\">log-probability, from %.0f or less to %.0f; a ring marks the "
          "residue of the sequence</text>\n",
          end, Y + 10, LIGHTEST, DARKEST);
}

/* The positions from begin to end, whose first row of cells is at y. */
static void put_block(FILE *out, const struct plm_wild_type *wild_type, const double *scores,
                      uint32_t begin, uint32_t end, uint32_t y)
{
  for (const char *letter = PLM_POSITION_LETTERS; *letter != '\0'; letter++) {
    const uint32_t row = y + (uint32_t)plm_heat_map_row((uint8_t)*letter) * CELL;
    const size_t column = (size_t)(letter - PLM_POSITION_LETTERS);
    fprintf(out, "<text x=\"%d\" y=\"%u\" class=\"m\">%c</text>", MARGIN - 10, row + 10, *letter);
    for (uint32_t place = begin; place < end; place++)
      position_output_put_cell(out, MARGIN + (place - begin) * CELL, row,
                               scores[place * (size_t)PLM_POSITION_COLUMNS + column]);
    fputc('\n', out);
  }
  for (uint32_t place = begin; place < end; place++) {
    const uint32_t x = MARGIN + (place - begin) * CELL + CELL / 2;
    const uint8_t residue = wild_type->residues[place];
    const int row = plm_heat_map_row(residue);
    fprintf(out, "<text x=\"%u\" y=\"%u\" class=\"m\">%c</text>", x, y - 4, residue);
    if ((place - begin) % 10 == 0)
      fprintf(out, "<text x=\"%u\" y=\"%u\">%lld</text>", x - CELL / 2, y - 17,
              (long long)wild_type->first + place);
    if (row >= 0)
      fprintf(out, "<circle cx=\"%u\" cy=\"%u\" r=\"3\"/>", x, y + (uint32_t)row * CELL + CELL / 2);
  }
  fprintf(out,
          "\n<rect x=\"%d\" y=\"%u\" width=\"%u\" height=\"%d\" fill=\"none\" stroke=\"#888\"/>\n",
          MARGIN, y, (end - begin) * CELL, PLM_HEAT_MAP_ROWS * CELL);
}

static void write_svg(FILE *out, const struct plm_wild_type *wild_type, const double *scores)
{
  const uint32_t blocks = (wild_type->length + BLOCK - 1) / BLOCK;
  const uint32_t step = HEAD + PLM_HEAT_MAP_ROWS * CELL + GAP;
  const uint32_t width = 2 * MARGIN + BLOCK * CELL, height = TOP + blocks * step;
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %u %u\" width=\"%u\" "
          "height=\"%u\">\n<style>text{font:10px sans-serif;fill:#222}.t{font:bold 13px "
          "sans-serif}.m{text-anchor:middle}circle{fill:#fff;stroke:#d95f02;stroke-width:1.5}"
          "</style>\n<rect width=\"%u\" height=\"%u\" fill=\"#fff\"/>\n<text x=\"%d\" y=\"20\" "
          "class=\"t\">",
          width, height, width, height, width, height, MARGIN);
  put_name(out, wild_type->name);
  fputs("</text>\n", out);
  put_legend(out);
  for (uint32_t b = 0; b < blocks; b++) {
    const uint32_t begin = b * BLOCK;
    const uint32_t end = wild_type->length - begin < BLOCK ? wild_type->length : begin + BLOCK;
    put_block(out, wild_type, scores, begin, end, TOP + b * step + HEAD);
  }
  fputs("</svg>\n", out);
}

plm_status plm_position_write(const char *path, const struct plm_wild_type *wild_type,
                              const double *scores, struct plm_error *error)
{
  struct plm_output_file *output;
  PLM_TRY(plm_output_open(path, &output, error));
  FILE *out = plm_output_stream(output);
  if (plm_text_ends_with(path, ".npy"))
    write_npy(out, wild_type, scores);
  else if (plm_text_ends_with(path, ".svg"))
    write_svg(out, wild_type, scores);
  else
    write_csv(out, wild_type, scores);
  const plm_status status =
      ferror(out) ? plm_output_failed(output, error) : plm_output_finish(output, error);
  plm_output_close(output);
  return status;
}
