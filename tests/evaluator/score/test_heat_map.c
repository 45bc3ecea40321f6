/* The map of a scan has every score in its row and column, shades by size, and blocks by width. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "evaluator/score/heat_map.h"

static const struct plm_wild_type wild_type = {.name = "w",
                                               .residues = (const uint8_t *)"GAGAGAGAGAGA",
                                               .length = 12,
                                               .first = 7,
                                               .tokenizer = PLM_TOKENIZER_ESM};

static char *draw(const double *scores, int columns, bool color)
{
  char *text;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  assert_non_null(out);
  plm_heat_map_draw(out, &wild_type, scores, columns, color);
  fclose(out);
  return text;
}

static void every_amino_acid_has_a_row(void **state)
{
  (void)state;
  bool taken[PLM_HEAT_MAP_ROWS] = {false};
  for (const char *letter = "ACDEFGHIKLMNPQRSTVWY"; *letter != '\0'; letter++) {
    const int row = plm_heat_map_row((uint8_t)*letter);
    assert_in_range(row, 0, PLM_HEAT_MAP_ROWS - 1);
    assert_false(taken[row]);
    taken[row] = true;
  }
  assert_int_equal(plm_heat_map_row('X'), -1);
  assert_int_equal(plm_heat_map_row('\0'), -1);
}

static void scores_are_where_they_belong(void **state)
{
  (void)state;
  static double scores[12 * PLM_HEAT_MAP_ROWS];
  for (size_t i = 0; i < 12 * PLM_HEAT_MAP_ROWS; i++) scores[i] = 0;
  for (size_t place = 0; place < 12; place++) {
    const int row = plm_heat_map_row(wild_type.residues[place]);
    scores[place * PLM_HEAT_MAP_ROWS + (size_t)row] = NAN;
  }
  const size_t d = (size_t)plm_heat_map_row('D'), e = (size_t)plm_heat_map_row('E');
  scores[0 * PLM_HEAT_MAP_ROWS + d] = -4;
  scores[1 * PLM_HEAT_MAP_ROWS + d] = -3;
  scores[2 * PLM_HEAT_MAP_ROWS + d] = -2;
  scores[3 * PLM_HEAT_MAP_ROWS + d] = -1;
  scores[11 * PLM_HEAT_MAP_ROWS + e] = 4;
  char *text = draw(scores, 80, false);
  assert_non_null(strstr(text, "w, scores from -4.00 (█) to 4.00 (+)\n"));
  assert_non_null(strstr(text, "\n    7         17        \n    GAGAGAGAGAGA\n"));
  assert_non_null(strstr(text, "\n  G · · · · · · \n"));
  assert_non_null(strstr(text, "\n  A  · · · · · ·\n"));
  assert_non_null(strstr(text, "\n  D █▓▒░        \n  E            +\n"));
  free(text);
  text = draw(scores, 24, false); /* room for two blocks of ten */
  assert_non_null(strstr(text, "\n    GAGAGAGAGAGA\n"));
  free(text);
  text = draw(scores, 1, false); /* a block has at least ten columns */
  assert_non_null(strstr(text, "\n    7         \n    GAGAGAGAGA\n"));
  assert_non_null(strstr(text, "\n    17        \n    GA\n"));
  free(text);
  text = draw(scores, 80, true);
  assert_non_null(strstr(text, "\n  D \x1b[48;5;88m \x1b[48;5;160m \x1b[48;5;203m \x1b[48;5;217m "
                               "\x1b[48;5;255m "));
  assert_non_null(strstr(text, "\x1b[48;5;18m \x1b[0m\n"));
  free(text);
  for (size_t i = 0; i < 12 * PLM_HEAT_MAP_ROWS; i++) scores[i] /= 8;
  text = draw(scores, 80, false);
  assert_non_null(strstr(text, "w, scores from -0.50 (█) to 0.50 (+)\n"));
  free(text);
}

/* If all scores are 0, there is no strongest shade. */
static void nothing_is_drawn_as_nothing(void **state)
{
  (void)state;
  static double scores[12 * PLM_HEAT_MAP_ROWS];
  for (size_t i = 0; i < 12 * PLM_HEAT_MAP_ROWS; i++) scores[i] = 0;
  char *text = draw(scores, 80, false);
  assert_non_null(strstr(text, "\n  D             \n"));
  free(text);
}

/* Eight shades: from a sixteenth of the largest score on, a positive one is drawn. */
static void the_weakest_shade_is_drawn(void **state)
{
  (void)state;
  static double scores[12 * PLM_HEAT_MAP_ROWS];
  const size_t row = (size_t)plm_heat_map_row('D');
  for (size_t i = 0; i < 12 * PLM_HEAT_MAP_ROWS; i++) scores[i] = 0;
  scores[row] = -16;
  scores[PLM_HEAT_MAP_ROWS + row] = 1.01;
  scores[2 * PLM_HEAT_MAP_ROWS + row] = 0.99;
  scores[3 * PLM_HEAT_MAP_ROWS + row] = 16;
  char *text = draw(scores, 80, false);
  if (strstr(text, "\n  D █+ +        \n") == NULL) fail_msg("%s", text);
  free(text);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_amino_acid_has_a_row),
      cmocka_unit_test(scores_are_where_they_belong),
      cmocka_unit_test(nothing_is_drawn_as_nothing),
      cmocka_unit_test(the_weakest_shade_is_drawn),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
