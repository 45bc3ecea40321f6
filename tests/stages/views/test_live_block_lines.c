/* The lines of the live block: their widths, what a narrow terminal leaves out, and the curve. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "stages/views/live_block.h"
#include "tests/support/cmocka_all.h"

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
  facts = (struct plm_live_facts){.step = 1, .steps = 1000, .loss = (double)NAN};
  plm_live_curve_add(&facts.curve, 1, 1000, (double)NAN);
  plm_live_curve_add(&facts.curve, 1001, 1000, 1);
  plm_live_compose(&facts, 79, true, lines);
  assert_string_equal(lines[1].text, "loss unknown                          ");
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

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_line_is_wider_than_the_terminal),
      cmocka_unit_test(the_figures_stand_in_their_lines),
      cmocka_unit_test(the_curve_falls_with_the_loss),
      cmocka_unit_test(before_the_first_step_it_waits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
