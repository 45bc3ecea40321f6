/* Whether the reference file of a benchmark lists the ids that somebody asks for. */
#include "common/sequences/assay_ids.h"

#include <string.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static plm_status check(const char *text, const char *const *ids, uint32_t count,
                        struct plm_error *error)
{
  const char *path = scratch_path("reference.csv");
  scratch_write(path, text, strlen(text));
  *error = (struct plm_error){0};
  return plm_assay_ids_check(path, ids, count, error);
}

/* DMS_id is neither the first column nor the last one. The second row is too short for it. */
static const char reference[] =
    "name,DMS_id,file\nx,BLAT_ECOLX,a.csv\nshort\ny, PABP_YEAST ,b.csv\nz,GFP_AEQVI,c.csv\n";

static void ids_of_the_column_are_found(void **state)
{
  (void)state;
  static const char *const ids[] = {"GFP_AEQVI", "PABP_YEAST", "BLAT_ECOLX"};
  struct plm_error error;
  assert_int_equal(check(reference, ids, 3, &error), PLM_OK);
  assert_int_equal(check(reference, ids, 0, &error), PLM_OK);
}

static void misses(const char *text, const char *const *ids, uint32_t count, const char *what,
                   const char *hint)
{
  struct plm_error error;
  assert_int_equal(check(text, ids, count, &error), PLM_CONFIG);
  if (strstr(error.what, what) == NULL) fail_msg("%s", error.what);
  assert_string_equal(error.hint, hint);
}

/* The message names the first one that is missing, wherever it stands in the list. */
static void a_missing_id_is_named(void **state)
{
  (void)state;
  static const char none[] = "the ids are those of its column DMS_id";
  static const char *const near[] = {"BLAT_ECOLX", "GFP_AEQV", "BLAT"},
                           *const far[] = {"qqqqqqqqqq"}, *const longer[] = {"BLAT_ECOLX2"},
                           *const other[] = {"x"}, *const file[] = {"b.csv"};
  misses(reference, near, 3, "lists no assay \"GFP_AEQV\"", "did you mean \"GFP_AEQVI\"?");
  misses(reference, near, 2, "lists no assay \"GFP_AEQV\"", "did you mean \"GFP_AEQVI\"?");
  misses(reference, far, 1, "lists no assay \"qqqqqqqqqq\"", none);
  misses(reference, longer, 1, "lists no assay", "did you mean \"BLAT_ECOLX\"?");
  misses(reference, other, 1, "lists no assay \"x\"", none); /* it is in another column */
  misses(reference, file, 1, "lists no assay \"b.csv\"", none);
  misses("DMS_id\n", far, 1, "lists no assay", none);
}

/* Of several ids that are alike, the nearest is suggested, whichever comes first. */
static void the_nearest_id_is_suggested(void **state)
{
  (void)state;
  static const char *const wanted[] = {"ABCDEFGH"};
  misses("DMS_id\nABCDEFXX\nABCDEFGX\nABCXXFGH\n", wanted, 1, "", "did you mean \"ABCDEFGX\"?");
  misses("DMS_id\nABCDEFGX\nABCDEFXX\n", wanted, 1, "", "did you mean \"ABCDEFGX\"?");
}

static void other_files_are_refused(void **state)
{
  (void)state;
  static const char *const ids[] = {"a"};
  struct plm_error error = {0};
  assert_int_equal(check("id,DMS_ids\na,a\n", ids, 1, &error), PLM_CONFIG);
  assert_non_null(strstr(error.what, "has no column \"DMS_id\""));
  assert_int_equal(check("DMS_id\n\"b\n", ids, 1, &error), PLM_FORMAT); /* a quote is left open */
  assert_int_equal(check("\"DMS_id\na\n", ids, 1, &error), PLM_FORMAT); /* also in the heading */
  assert_int_not_equal(plm_assay_ids_check(scratch_path("none.csv"), ids, 1, &error), PLM_OK);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ids_of_the_column_are_found),
      cmocka_unit_test(a_missing_id_is_named),
      cmocka_unit_test(the_nearest_id_is_suggested),
      cmocka_unit_test(other_files_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
