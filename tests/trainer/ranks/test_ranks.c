/* How the ranks decide together, how a rank fails, and how it ends, with a collective of one
 * process.
 */
#include "trainer/ranks/ranks.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/fake_collective.h"

static struct plm_text printed; /* by plm_ranks.say */

static void say(const struct plm_error *error)
{
  plm_text_printf(&printed, "%s (%s)", error->what, error->where);
}

struct test {
  struct fake_collective fake;
  struct plm_ranks ranks;
};

static struct test open_test(uint32_t rank, uint32_t ranks)
{
  struct test test;
  fake_collective_init(&test.fake, rank, ranks);
  test.ranks = (struct plm_ranks){.say = say, .rank = rank, .ranks = ranks};
  plm_text_deinit(&printed);
  return test;
}

/* The address of the collective is that of the test, which must not move afterwards. */
static struct plm_ranks *ranks_of(struct test *test)
{
  test->ranks.collective = &test->fake.base;
  return &test->ranks;
}

static const char *what_was_printed(void)
{
  return printed.length > 0 ? printed.data : "";
}

static void close_test(struct test *test)
{
  fake_collective_deinit(&test->fake);
  plm_text_deinit(&printed);
}

static void one_process_is_first_and_alone(void **state)
{
  (void)state;
  const struct plm_ranks first = {.rank = 0, .ranks = 3}, second = {.rank = 1, .ranks = 3};
  struct plm_ranks alone = plm_ranks_single();
  enum plm_rank_vote decision;
  struct plm_error error = {0};
  assert_int_equal(alone.ranks, 1);
  assert_true(plm_ranks_first(&alone) && plm_ranks_first(&first) && !plm_ranks_first(&second));
  for (int mine = PLM_RANK_GO; mine < PLM_RANK_ERROR; mine++) {
    assert_int_equal(plm_ranks_decide(&alone, (enum plm_rank_vote)mine, PLM_OK, &decision, &error),
                     PLM_OK);
    assert_int_equal(decision, mine);
  }
  plm_error_set(&error, PLM_IO, "its own");
  assert_int_equal(plm_ranks_decide(&alone, PLM_RANK_ERROR, PLM_IO, &decision, &error), PLM_IO);
  plm_ranks_agree(&alone);
  assert_int_equal(plm_ranks_close(&alone, PLM_IO, &error), PLM_IO);
  assert_string_equal(error.what, "its own"); /* the caller says it */
  assert_string_equal(error.where, "");
}

static void the_most_urgent_vote_counts(void **state)
{
  (void)state;
  enum { GO = PLM_RANK_GO, WAIT = PLM_RANK_WAIT, STOP = PLM_RANK_STOP, ERROR = PLM_RANK_ERROR };
  static const struct {
    int mine, others; /* votes; the other ranks' error is PLM_CONFIG */
    plm_status status, decided;
    int decision;
    bool silent;
    const char *what;
  } rows[] = {
      {GO, GO, PLM_OK, PLM_OK, GO, false, "mine"},
      {GO, WAIT, PLM_OK, PLM_OK, WAIT, false, "mine"},
      {STOP, WAIT, PLM_OK, PLM_OK, STOP, false, "mine"},
      {WAIT, STOP, PLM_OK, PLM_OK, STOP, false, "mine"},
      {STOP, ERROR, PLM_OK, PLM_CONFIG, ERROR, true, "another rank ended the run"},
      {ERROR, GO, PLM_IO, PLM_IO, ERROR, false, "mine"},
      {ERROR, ERROR, PLM_CONFIG, PLM_CONFIG, ERROR, false, "mine"},
      {ERROR, ERROR, PLM_IO, PLM_CONFIG, ERROR, true, "another rank ended the run"},
      {ERROR, ERROR, PLM_TIMEOUT, PLM_TIMEOUT, ERROR, false, "mine"},
      {GO, GO, PLM_CONFIG, PLM_OK, GO, false, "mine"}, /* the status is only that of an error */
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct test test = open_test(1, 3);
    struct plm_ranks *ranks = ranks_of(&test);
    struct plm_error error = {0};
    enum plm_rank_vote decision;
    const int64_t other = rows[i].others + (rows[i].others == ERROR ? (int64_t)PLM_CONFIG : 0);
    const int64_t answers[3] = {GO, 99, other};
    plm_error_set(&error, rows[i].status, "mine");
    test.fake.answers = answers;
    if (plm_ranks_decide(ranks, (enum plm_rank_vote)rows[i].mine, rows[i].status, &decision,
                         &error) != rows[i].decided)
      fail_msg("row %zu: %s", i, error.what);
    assert_int_equal(decision, rows[i].decision);
    assert_string_equal(error.what, rows[i].what);
    assert_int_equal(ranks->agreed, rows[i].decision == ERROR);
    assert_int_equal(ranks->silent, rows[i].silent);
    assert_false(ranks->alike);
    close_test(&test);
  }
}

static void without_an_exchange_nothing_is_decided(void **state)
{
  (void)state;
  struct test test = open_test(0, 2);
  enum plm_rank_vote decision;
  test.fake.wait_fails = PLM_FAILURE;
  assert_int_equal(plm_ranks_decide(ranks_of(&test), PLM_RANK_ERROR, PLM_IO, &decision, NULL),
                   PLM_FAILURE);
  assert_false(test.ranks.agreed || test.ranks.silent);
  close_test(&test);
}

static void rank_0_says_what_all_have_found(void **state)
{
  (void)state;
  static const struct {
    uint32_t rank;
    int32_t failed_by;
    bool agreed, silent;
  } rows[] = {
      {0, -1, true, false}, {1, -1, true, true}, {0, 0, false, false}, {1, 0, false, false}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct test test = open_test(rows[i].rank, 2);
    test.fake.failed_by = rows[i].failed_by;
    plm_ranks_agree(ranks_of(&test));
    assert_int_equal(test.ranks.agreed, rows[i].agreed);
    assert_int_equal(test.ranks.alike, rows[i].agreed);
    assert_int_equal(test.ranks.silent, rows[i].silent);
    close_test(&test);
  }
}

static void a_failure_names_the_rank_and_is_said_once(void **state)
{
  (void)state;
  static const struct {
    bool agreed, alike, silent;
    int32_t failed_by;
    const char *what, *where;
    const char *told, *said;
  } rows[] = {
      {false, false, false, -1, "no disk", "",
       "fail: no disk (rank 1 on here) [input/output error]\n", ""},
      {false, false, false, -1, "no disk", "a/file",
       "fail: no disk (rank 1 on here: a/file) [input/output error]\n", ""},
      {false, false, false, 0, "no disk", "a/file", "fail: no disk (a/file) [input/output error]\n",
       ""},
      {false, false, true, -1, "no disk", "",
       "fail: no disk (rank 1 on here) [input/output error]\n", ""},
      {false, false, false, -1, "rank 0 is late", "",
       "fail: rank 0 is late () [input/output error]\n", ""},
      {false, false, false, -1, "ranks", "", "fail: ranks (rank 1 on here) [input/output error]\n",
       ""},
      {true, false, false, -1, "no disk", "", "", "no disk (rank 1 on here)"},
      {true, false, false, 0, "no disk", "", "", "no disk (rank 1 on here)"},
      {true, true, false, -1, "no disk", "a/file", "", "no disk (a/file)"},
      {true, false, true, -1, "no disk", "", "", ""},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct test test = open_test(1, 3);
    struct plm_ranks *ranks = ranks_of(&test);
    struct plm_error error = {0};
    plm_error_set(&error, PLM_IO, "%s", rows[i].what);
    plm_error_where(&error, "%s", rows[i].where);
    ranks->agreed = rows[i].agreed;
    ranks->alike = rows[i].alike;
    ranks->silent = rows[i].silent;
    test.fake.failed_by = rows[i].failed_by;
    plm_ranks_fail(ranks, &error);
    assert_string_equal(fake_collective_told(&test.fake), rows[i].told);
    assert_string_equal(what_was_printed(), rows[i].said);
    assert_string_equal(error.what, "");
    assert_true(ranks->silent);
    close_test(&test);
  }
}

#define GOODBYE "note ending, step 0, patient\ngather of 8 on lane 0\n"

static void ranks_leave_together(void **state)
{
  (void)state;
  static const struct {
    plm_status status;
    bool agreed;
    plm_status wait_fails, expected;
    const char *told, *said;
  } rows[] = {
      {PLM_OK, false, PLM_OK, PLM_OK, GOODBYE "close\n", ""},
      {PLM_OK, false, PLM_TIMEOUT, PLM_TIMEOUT,
       GOODBYE "fail: the exchange has failed (rank 1 on here) [timed out]\nclose\n", ""},
      {PLM_IO, false, PLM_OK, PLM_IO, "fail: mine (rank 1 on here) [input/output error]\nclose\n",
       ""},
      {PLM_IO, true, PLM_OK, PLM_IO, GOODBYE "close\n", "mine (rank 1 on here)"},
      {PLM_IO, true, PLM_TIMEOUT, PLM_IO, GOODBYE "close\n", "mine (rank 1 on here)"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct test test = open_test(1, 2);
    struct plm_ranks *ranks = ranks_of(&test);
    struct plm_error error = {0};
    if (rows[i].status != PLM_OK) plm_error_set(&error, rows[i].status, "mine");
    ranks->agreed = rows[i].agreed;
    test.fake.wait_fails = rows[i].wait_fails;
    assert_int_equal(plm_ranks_close(ranks, rows[i].status, &error), rows[i].expected);
    assert_string_equal(fake_collective_told(&test.fake), rows[i].told);
    assert_string_equal(what_was_printed(), rows[i].said);
    close_test(&test);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_process_is_first_and_alone),
      cmocka_unit_test(the_most_urgent_vote_counts),
      cmocka_unit_test(without_an_exchange_nothing_is_decided),
      cmocka_unit_test(rank_0_says_what_all_have_found),
      cmocka_unit_test(a_failure_names_the_rank_and_is_said_once),
      cmocka_unit_test(ranks_leave_together),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
