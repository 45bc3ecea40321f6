/* The table of --per-position in each of its forms: CSV, npy, and a picture whose cells, rings and
 * letters are where they belong. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "evaluator/score/heat_map.h"
#include "evaluator/score/position_output.h"
#include "tests/support/harness/scratch.h"

enum { LENGTH = 130 };
static const char letters[] = "ACDEFGHIKLMNPQRSTVWY";

static uint8_t residues[LENGTH];
static double scores[LENGTH * PLM_POSITION_COLUMNS];

/* Scores that say where they are. Some are above 0 or below the lightest colour. */
static double score_at(uint32_t place, uint32_t column)
{
  return 0.5 - 0.05 * (double)(7 * place % 40) - 0.25 * column;
}

static struct plm_wild_type wild_type_of(uint32_t length, const char *name)
{
  for (uint32_t i = 0; i < length; i++) {
    residues[i] = (uint8_t)(i == 3 ? 'X' : letters[11 * i % 20]);
    for (uint32_t c = 0; c < PLM_POSITION_COLUMNS; c++)
      scores[i * PLM_POSITION_COLUMNS + c] = score_at(i, c);
  }
  return (struct plm_wild_type){name, residues, length, -2, PLM_TOKENIZER_ESM};
}

static char *written(const char *name, const struct plm_wild_type *wild_type, size_t *size)
{
  char *text;
  assert_int_equal(plm_position_write(scratch_path(name), wild_type, scores, NULL), PLM_OK);
  assert_int_equal(plm_file_read(scratch_path(name), 1 << 24, &text, size, NULL), PLM_OK);
  return text;
}

static void csv(void **state)
{
  (void)state;
  const struct plm_wild_type wild_type = wild_type_of(2, "w");
  size_t size;
  scores[3] = -0.0000004; /* which is written as 0, without a sign */
  scores[4] = -0.0000006;
  char *text = written("table.csv", &wild_type, &size);
  assert_string_equal(
      text, "position,wild_type,A,C,D,E,F,G,H,I,K,L,M,N,P,Q,R,S,T,V,W,Y\n"
            "-2,A,0.000000,0.000000,0.000000,0.000000,-0.000001,-0.750000,-1.000000,-1.250000,"
            "-1.500000,-1.750000,-2.000000,-2.250000,-2.500000,-2.750000,-3.000000,-3.250000,"
            "-3.500000,-3.750000,-4.000000,-4.250000\n"
            "-1,N,0.000000,-0.100000,-0.350000,-0.600000,-0.850000,-1.100000,-1.350000,-1.600000,"
            "-1.850000,-2.100000,-2.350000,-2.600000,-2.850000,-3.100000,-3.350000,-3.600000,"
            "-3.850000,-4.100000,-4.350000,-4.600000\n");
  free(text);
}

static void npy(void **state)
{
  (void)state;
  const struct plm_wild_type wild_type = wild_type_of(5, "w");
  size_t size;
  char *bytes = written("table.npy", &wild_type, &size);
  static const char head[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 20), }";
  assert_int_equal(size, 128 + 5 * 20 * sizeof(float));
  assert_memory_equal(bytes + 10, head, sizeof head - 1);
  const float *values = (const float *)(const void *)(bytes + 128);
  for (uint32_t i = 0; i < 100; i++) assert_true(values[i] == (float)score_at(i / 20, i % 20));
  free(bytes);
}

/* ---- the picture ------------------------------------------------------------------------------
 */

/* Between white at -6, a blue half way and a dark blue at 0. */
static void color_of(double score, char color[8])
{
  static const int stops[3][3] = {{255, 255, 255}, {86, 160, 211}, {8, 29, 88}};
  const double x = score > 0 ? 2 : score < -6 ? 0 : (score + 6) / 3;
  const int from = x < 1 ? 0 : 1;
  int mixed[3];
  for (int c = 0; c < 3; c++)
    mixed[c] = (int)lround(stops[from][c] + (x - from) * (stops[from + 1][c] - stops[from][c]));
  if (isnan(score))
    strcpy(color, "#bbb");
  else
    snprintf(color, 8, "#%02x%02x%02x", (unsigned)mixed[0], (unsigned)mixed[1], (unsigned)mixed[2]);
}

static void put_cell(FILE *out, uint32_t x, uint32_t y, double score)
{
  char color[8];
  color_of(score, color);
  fprintf(out, "<rect x=\"%u\" y=\"%u\" width=\"12\" height=\"12\" fill=\"%s\"/>", x, y, color);
}

/* What the picture is said to be: blocks of 60 positions, each 284 pixels below the one before. */
static void put_picture(FILE *out, uint32_t length, const char *name)
{
  const uint32_t height = 56 + (length + 59) / 60 * 284;
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 776 %u\" width=\"776\" "
          "height=\"%u\">\n<style>text{font:10px sans-serif;fill:#222}.t{font:bold 13px "
          "sans-serif}.m{text-anchor:middle}circle{fill:#fff;stroke:#d95f02;stroke-width:1.5}"
          "</style>\n<rect width=\"776\" height=\"%u\" fill=\"#fff\"/>\n<text x=\"28\" y=\"20\" "
          "class=\"t\">%s</text>\n",
          height, height, height, name);
  for (uint32_t i = 0; i <= 24; i++) put_cell(out, 28 + 6 * i, 32, -6 + i / 4.0);
  fprintf(out, "\n<text x=\"190\" y=\"42\">log-probability, from -6 or less to 0; a ring marks the "
               "residue of the sequence</text>\n");
  for (uint32_t begin = 0; begin < length; begin += 60) {
    const uint32_t end = length - begin < 60 ? length : begin + 60, y = 86 + begin / 60 * 284;
    for (uint32_t c = 0; c < 20; c++) {
      const uint32_t row = y + 12 * (uint32_t)plm_heat_map_row((uint8_t)letters[c]);
      fprintf(out, "<text x=\"18\" y=\"%u\" class=\"m\">%c</text>", row + 10, letters[c]);
      for (uint32_t i = begin; i < end; i++)
        put_cell(out, 28 + 12 * (i - begin), row, scores[20 * i + c]);
      fprintf(out, "\n");
    }
    for (uint32_t i = begin; i < end; i++) {
      const uint32_t x = 28 + 12 * (i - begin);
      fprintf(out, "<text x=\"%u\" y=\"%u\" class=\"m\">%c</text>", x + 6, y - 4, residues[i]);
      if ((i - begin) % 10 == 0)
        fprintf(out, "<text x=\"%u\" y=\"%u\">%d</text>", x, y - 17, (int)i - 2);
      if (residues[i] != 'X')
        fprintf(out, "<circle cx=\"%u\" cy=\"%u\" r=\"3\"/>", x + 6,
                y + 12 * (uint32_t)plm_heat_map_row(residues[i]) + 6);
    }
    fprintf(out,
            "\n<rect x=\"28\" y=\"%u\" width=\"%u\" height=\"240\" fill=\"none\" "
            "stroke=\"#888\"/>\n",
            y, 12 * (end - begin));
  }
  fprintf(out, "</svg>\n");
}

static void is_drawn(uint32_t length, const char *name, const char *shown)
{
  const struct plm_wild_type wild_type = wild_type_of(length, name);
  char *expected;
  size_t size, expected_size;
  scores[21] = NAN;
  FILE *out = open_memstream(&expected, &expected_size);
  assert_non_null(out);
  put_picture(out, length, shown);
  fclose(out);
  char *text = written("map.svg", &wild_type, &size);
  for (char *a = text, *b = expected; *a != '\0' || *b != '\0';) { /* line by line */
    const size_t line = strcspn(a, "\n"), other = strcspn(b, "\n");
    if (line != other || memcmp(a, b, line) != 0)
      fail_msg("\n%.*s\nis not\n%.*s", (int)line, a, (int)other, b);
    a += line + (a[line] != '\0');
    b += other + (b[other] != '\0');
  }
  assert_int_equal(size, expected_size);
  free(text);
  free(expected);
}

static void pictures(void **state)
{
  (void)state;
  static const char sixty[] = "123456789 123456789 123456789 123456789 123456789 123456789 ";
  char name[80];
  is_drawn(2, "w", "w");
  is_drawn(60, "a <b> & \xff\x01\x7f \xc3\xa9", "a &lt;b> &amp; ??? \xc3\xa9");
  is_drawn(61, sixty, sixty);
  snprintf(name, sizeof name, "%sx", sixty);
  char shown[80];
  snprintf(shown, sizeof shown, "%s\u2026", sixty);
  is_drawn(LENGTH, name, shown);
  snprintf(name, sizeof name, "%.59s\u00e9\u00e9", sixty); /* a letter is not cut */
  snprintf(shown, sizeof shown, "%.59s\u00e9\u2026", sixty);
  is_drawn(3, name, shown);
}

static void names_say_the_form(void **state)
{
  (void)state;
  struct plm_error error = {0};
  assert_int_equal(plm_position_check_output("a.png", &error), PLM_USAGE);
  assert_string_equal(error.what, "--per-position cannot write a.png: PNG is not supported");
  assert_int_equal(plm_position_check_output("a.svg", NULL), PLM_OK);
  assert_int_equal(plm_position_check_output("-", NULL), PLM_OK);
  const struct plm_wild_type wild_type = wild_type_of(2, "w");
  assert_int_equal(plm_position_write(scratch_path("no/such.csv"), &wild_type, scores, NULL),
                   PLM_NOT_FOUND);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(csv),
      cmocka_unit_test(npy),
      cmocka_unit_test(pictures),
      cmocka_unit_test(names_say_the_form),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
