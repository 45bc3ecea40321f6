/* The lines of the live block: their widths, what a narrow terminal leaves out, and the curve. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "stages/views/live_block.h"
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
static struct plm_live_facts some_facts(void)
{
  struct plm_live_facts facts = {.ready = 2,
                                 .stages = 3,
                                 .step = 174,
                                 .steps = 300,
                                 .loss = 2.7311,
                                 .tokens_per_second = 24512,
                                 .left_s = 133,
                                 .packers = "0: 25.1k/s  1: standby",
                                 .evaluation = "valid loss 2.7123, accuracy 21.5 % at step 150",
                                 .has_checkpoint = true,
                                 .checkpoint_step = 150};
  for (uint64_t step = 1; step <= facts.step; step++)
    plm_live_curve_add(&facts.curve, step, facts.steps, 3.5 - 0.01 * (double)step);
  return facts;
}

static size_t characters(const char *text)
{
  size_t count = 0;
  for (; *text != '\0'; text++) count += ((unsigned char)*text & 0xc0) != 0x80;
  return count;
}

static void no_line_is_wider_than_the_terminal(void **state)
{
  (void)state;
  const struct plm_live_facts facts = some_facts();
  struct plm_live_line lines[PLM_LIVE_LINES];
  for (size_t columns = 1; columns <= 200; columns++)
    for (int unicode = 0; unicode < 2; unicode++) {
      assert_int_equal(plm_live_compose(&facts, columns, unicode == 1, lines), PLM_LIVE_LINES);
      for (int i = 0; i < PLM_LIVE_LINES; i++) {
        assert_true(lines[i].columns <= columns);
        assert_int_equal(lines[i].columns, characters(lines[i].text));
        assert_true(lines[i].label <= strlen(lines[i].text));
        assert_null(strchr(lines[i].text, '\033'));
      }
    }
}

static void the_figures_stand_in_their_lines(void **state)
{
  (void)state;
  const struct plm_live_facts facts = some_facts();
  struct plm_live_line lines[PLM_LIVE_LINES];
  plm_live_compose(&facts, 79, false, lines);
  assert_string_equal(lines[0].text,
                      "[################.............]  58 %  step 174/300  2:13 left  "
                      "24.5k tokens/s");
  assert_string_equal(lines[2].text, "packers 0: 25.1k/s  1: standby");
  assert_string_equal(lines[3].text,
                      "checkpoint step 150 | valid loss 2.7123, accuracy 21.5 % at step 150");
  plm_live_compose(&facts, 40, false, lines);
  assert_string_equal(lines[0].text, " 58 %  step 174/300  2:13 left  24.5k to");
}

/* The loss falls evenly: each part of the curve is lower than the one before, over the part of the
 * run that is done. */
static void the_curve_falls_with_the_loss(void **state)
{
  (void)state;
  struct plm_live_facts facts = some_facts();
  struct plm_live_line lines[PLM_LIVE_LINES];
  plm_live_compose(&facts, 79, false, lines);
  assert_string_equal(lines[1].text, "loss 2.7311  ##***+++==--,_          ");
  facts.epoch = 1.239;
  plm_live_compose(&facts, 79, false, lines);
  assert_string_equal(lines[1].text, "loss 2.7311  ##***+++==--,_            epoch 1.24");
  strcpy(facts.warning, "gradient is 0");
  plm_live_compose(&facts, 79, false, lines);
  assert_string_equal(lines[1].text, "loss 2.7311  WARNING: gradient is 0");
  assert_int_equal(lines[1].label, strlen(lines[1].text));
  facts = (struct plm_live_facts){.step = 1, .steps = 1000, .loss = (double)NAN};
  plm_live_curve_add(&facts.curve, 1, 1000, (double)NAN);
  plm_live_curve_add(&facts.curve, 1001, 1000, 1);
  plm_live_compose(&facts, 79, true, lines);
  assert_string_equal(lines[1].text, "loss unknown                          ");
}

static void a_silence_replaces_the_speed(void **state)
{
  (void)state;
  struct plm_live_facts facts = some_facts();
  struct plm_live_line lines[PLM_LIVE_LINES];
  snprintf(facts.evaluator, sizeof facts.evaluator, "no sign for 1:01: evaluating step 150");
  assert_int_equal(plm_live_compose(&facts, 300, false, lines), PLM_LIVE_LINES);
  assert_non_null(
      strstr(lines[3].text, " | evaluator: no sign for 1:01: evaluating step 150 | valid loss"));
  snprintf(facts.activity, sizeof facts.activity, "no step for 3:05");
  plm_live_compose(&facts, 50, false, lines);
  assert_string_equal(lines[0].text, "[#####....]  58 %  step 174/300  no step for 3:05");
  strcpy(facts.activity, "x"); /* however short */
  plm_live_compose(&facts, 50, false, lines);
  assert_string_equal(lines[0].text, "[#############...........]  58 %  step 174/300  x");
  facts.step = 0;
  plm_live_compose(&facts, 79, false, lines);
  assert_string_equal(lines[0].text, "starting: 2 of 3 stages are ready, x");
  snprintf(facts.activity, sizeof facts.activity, "no step for 3:05");
  plm_live_compose(&facts, 79, false, lines);
  assert_string_equal(lines[0].text, "starting: 2 of 3 stages are ready, no step for 3:05");
}

static void before_the_first_step_it_waits(void **state)
{
  (void)state;
  struct plm_live_facts facts = some_facts();
  struct plm_live_line lines[PLM_LIVE_LINES];
  facts.step = 0;
  assert_int_equal(plm_live_compose(&facts, 79, true, lines), 1);
  assert_string_equal(lines[0].text, "starting: 2 of 3 stages are ready");
}

static void assert_line(const struct plm_live_line *line, const char *text, size_t label,
                        const char *color)
{
  assert_string_equal(line->text, text);
  assert_int_equal(line->label, label);
  assert_string_equal(line->color, color);
}

static void what_is_not_known_is_left_out(void **state)
{
  (void)state;
  const struct plm_live_facts facts = {
      .step = 1, .steps = 3, .loss = NAN, .tokens_per_second = NAN, .left_s = NAN};
  struct plm_live_facts known = some_facts();
  struct plm_live_line lines[PLM_LIVE_LINES];
  plm_live_compose(&facts, 79, false, lines);
  assert_line(&lines[0], "[##########....................]  33 %  step 1/3", 32, "\033[32m");
  assert_line(&lines[1], "loss unknown                          ", 4, "\033[32m");
  assert_line(&lines[2], "packers none serves", 7, "\033[33m");
  assert_line(&lines[3], "checkpoint none yet", 10, "\033[36m");
  known.evaluation[0] = '\0';
  known.step = 400; /* more than planned */
  known.left_s = NAN;
  plm_live_compose(&known, 100, false, lines);
  assert_line(&lines[0], "[##############################] 100 %  step 400/300  24.5k tokens/s", 32,
              "\033[32m");
  assert_line(&lines[3], "checkpoint step 150", 10, "\033[36m");
  strcpy(known.packers, "x"); /* however short */
  plm_live_compose(&known, 100, false, lines);
  assert_line(&lines[2], "packers x", 7, "\033[33m");
  known.step = 0;
  plm_live_compose(&known, 5, false, lines);
  assert_line(&lines[0], "start", 5, "\033[33m");
  assert_int_equal(lines[0].columns, 5);
}

/* "[........] " and the figures have 11 + 23 columns. */
static void the_bar_needs_eight_columns(void **state)
{
  (void)state;
  const struct plm_live_facts facts = {
      .step = 150, .steps = 300, .loss = NAN, .tokens_per_second = NAN, .left_s = NAN};
  struct plm_live_line lines[PLM_LIVE_LINES];
  const char figures[] = " 50 %  step 150/300";
  plm_live_compose(&facts, strlen(figures) + 4 + 8, false, lines);
  assert_line(&lines[0], "[####....]  50 %  step 150/300", 10, "\033[32m");
  plm_live_compose(&facts, strlen(figures) + 4 + 7, false, lines);
  assert_line(&lines[0], figures, 0, "\033[32m");
  plm_live_compose(&facts, strlen(figures) + 4 + 29, false, lines);
  assert_int_equal(lines[0].label, 31);
  plm_live_compose(&facts, strlen(figures) + 4 + 30, false, lines);
  assert_int_equal(lines[0].label, 32);
  plm_live_compose(&facts, strlen(figures) + 4 + 31, false, lines);
  assert_int_equal(lines[0].label, 32);
  plm_live_compose(&facts, 2, false, lines);
  assert_line(&lines[0], " 5", 0, "\033[32m");
}

static void values_belong_to_equal_parts_of_the_run(void **state)
{
  (void)state;
  struct plm_live_curve curve = {0};
  static const struct {
    uint64_t step;
    size_t bucket;
  } cases[] = {{1, 0}, {2, 0}, {3, 1}, {46, 22}, {47, 23}, {48, 23}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    memset(&curve, 0, sizeof curve);
    plm_live_curve_add(&curve, cases[i].step, 48, 2.5);
    plm_live_curve_add(&curve, cases[i].step, 48, 0.5);
    for (size_t b = 0; b < PLM_LIVE_BUCKETS; b++) {
      assert_int_equal(curve.counts[b], b == cases[i].bucket ? 2 : 0);
      assert_true(curve.sums[b] == (b == cases[i].bucket ? 3.0 : 0.0));
    }
  }
  memset(&curve, 0, sizeof curve);
  plm_live_curve_add(&curve, 0, 48, 1);
  plm_live_curve_add(&curve, 49, 48, 1);
  plm_live_curve_add(&curve, 5, 48, INFINITY);
  for (size_t b = 0; b < PLM_LIVE_BUCKETS; b++) assert_int_equal(curve.counts[b], 0);
}

/* Means from 0 to 49, of which the root is shown: 0, 1/7, ... of the height. */
static void the_curve_has_eight_heights(void **state)
{
  (void)state;
  struct plm_live_facts facts = {
      .step = 24, .steps = 24, .loss = 1, .tokens_per_second = NAN, .left_s = NAN};
  struct plm_live_line lines[PLM_LIVE_LINES];
  for (uint64_t i = 0; i < 8; i++) {
    plm_live_curve_add(&facts.curve, i + 1, 24, (double)(i * i) + 1);
    plm_live_curve_add(&facts.curve, i + 1, 24, (double)(i * i) - 1);
  }
  plm_live_curve_add(&facts.curve, 24, 24, 49);
  plm_live_compose(&facts, 79, false, lines);
  assert_string_equal(lines[1].text, "loss 1.0000  _.,-=+*#               #");
  plm_live_compose(&facts, 79, true, lines);
  assert_string_equal(lines[1].text, "loss 1.0000  \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
                                     "               \u2588");
  assert_int_equal(lines[1].columns, 37);
  plm_live_compose(&facts, 15, true, lines); /* cut behind a whole character */
  assert_string_equal(lines[1].text, "loss 1.0000  \u2581\u2582");
  assert_int_equal(lines[1].columns, 15);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_line_is_wider_than_the_terminal),
      cmocka_unit_test(the_figures_stand_in_their_lines),
      cmocka_unit_test(the_curve_falls_with_the_loss),
      cmocka_unit_test(a_silence_replaces_the_speed),
      cmocka_unit_test(before_the_first_step_it_waits),
      cmocka_unit_test(what_is_not_known_is_left_out),
      cmocka_unit_test(the_bar_needs_eight_columns),
      cmocka_unit_test(values_belong_to_equal_parts_of_the_run),
      cmocka_unit_test(the_curve_has_eight_heights),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
