/* The rows of `predict` for each kind of label, in each format, with the columns of the input. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "evaluator/predict/predict_text.h"

static char *letters[] = {"C", "E", "H"}, *words[] = {"cold", "E", "H"}, *two[] = {"Tm", "half"};
static double means[] = {50, -1}, deviations[] = {8, 0.5};
static const struct plm_label_names of_letters = {.count = 3, .names = letters},
                                    of_words = {.count = 3, .names = words},
                                    of_numbers = {.count = 2, .names = two},
                                    of_scaled = {2, two, means, deviations};
static const struct plm_head_config numbers = {PLM_PREDICTS_SEQUENCES, PLM_LOSS_SQUARES,
                                               .outputs = 2},
                                    one_class = {PLM_PREDICTS_SEQUENCES, PLM_LOSS_CLASS,
                                                 .outputs = 3},
                                    classes = {PLM_PREDICTS_SEQUENCES, PLM_LOSS_CLASSES,
                                               .outputs = 2},
                                    residues = {PLM_PREDICTS_RESIDUES, PLM_LOSS_CLASS,
                                                .outputs = 3};

/* The second output is the largest, with half of the probability; then the first one, and of equal
 * ones the first. */
static const float outputs[] = {0, 0.6931472F, 0, 3, 3 - 1.0986123F, 3 - 1.0986123F, 1, 1, 1};

static void expect(const struct plm_predict_text *form, const struct plm_predicted *predicted,
                   const char *header, const char *rows)
{
  struct plm_text text = {0};
  plm_predict_put_header(form, &text);
  assert_string_equal(text.data == NULL ? "" : text.data, header);
  plm_text_clear(&text);
  plm_predict_put(form, predicted, &text);
  assert_string_equal(text.data, rows);
  plm_text_deinit(&text);
}

static struct plm_predicted named(const char *name, uint32_t count, const float *of)
{
  return (struct plm_predicted){
      .name = name, .name_size = strlen(name), .residues = "MKV", .count = count, .outputs = of};
}

static void numbers_have_the_units_of_the_table(void **state)
{
  (void)state;
  static const float values[] = {0.5F, -2};
  struct plm_predict_text form = {.head = &numbers, .names = &of_scaled};
  const struct plm_predicted predicted = named("a", 1, values);
  expect(&form, &predicted, "name,Tm,half\n", "a,54,-2\n");
  form.logits = true;
  expect(&form, &predicted, "name,Tm,half\n", "a,0.5,-2\n");
  form.logits = false;
  form.names = &of_numbers;
  expect(&form, &predicted, "name,Tm,half\n", "a,0.5,-2\n");
  form.names = &of_scaled;
  form.format = PLM_PREDICT_JSONL;
  expect(&form, &predicted, "", "{\"name\": \"a\", \"Tm\": 54, \"half\": -2}\n");
}

static void numbers_have_nine_digits(void **state)
{
  (void)state;
  const float values[] = {0.1F, NAN};
  struct plm_predict_text form = {.head = &numbers, .names = &of_numbers};
  const struct plm_predicted predicted = named("a", 1, values);
  expect(&form, &predicted, "name,Tm,half\n", "a,0.100000001,NaN\n");
  form.format = PLM_PREDICT_JSONL;
  expect(&form, &predicted, "", "{\"name\": \"a\", \"Tm\": 0.100000001, \"half\": null}\n");
}

static void classes_have_probabilities(void **state)
{
  (void)state;
  static const float values[] = {0, -1.0986123F};
  struct plm_predict_text form = {
      .format = PLM_PREDICT_TSV, .head = &classes, .names = &of_numbers};
  const struct plm_predicted predicted = named("a", 1, values);
  expect(&form, &predicted, "name\tTm\thalf\n", "a\t0.5\t0.249999996\n");
  form.logits = true;
  expect(&form, &predicted, "name\tTm\thalf\n", "a\t0\t-1.09861231\n");
}

static void one_class_is_named(void **state)
{
  (void)state;
  struct plm_predict_text form = {.head = &one_class, .names = &of_letters};
  const struct plm_predicted first = named("a", 1, outputs), tied = named("b", 1, outputs + 6);
  expect(&form, &first, "name,prediction,probability\n", "a,E,0.5\n");
  expect(&form, &tied, "name,prediction,probability\n", "b,C,0.333333333\n");
  form.logits = true;
  expect(&form, &first, "name,C,E,H\n", "a,0,0.693147182,0\n");
}

static void residues_are_joined(void **state)
{
  (void)state;
  struct plm_predict_text form = {.head = &residues, .names = &of_letters};
  const struct plm_predicted predicted = named("a b", 3, outputs), none = named("n", 0, outputs);
  expect(&form, &predicted, "name,prediction\n", "a b,ECC\n");
  expect(&form, &none, "name,prediction\n", "n,\n");
  form.names = &of_words;
  expect(&form, &predicted, "name,prediction\n", "a b,E cold cold\n");
  form.format = PLM_PREDICT_JSONL;
  expect(&form, &predicted, "", "{\"name\": \"a b\", \"prediction\": \"E cold cold\"}\n");
}

static void each_residue_has_a_row(void **state)
{
  (void)state;
  struct plm_predict_text form = {.head = &residues, .names = &of_letters, .per_residue = true};
  const struct plm_predicted predicted = named("a,b", 2, outputs), none = named("n", 0, outputs);
  expect(&form, &predicted, "name,position,residue,prediction,probability\n",
         "\"a,b\",1,M,E,0.5\n\"a,b\",2,K,C,0.600000005\n");
  expect(&form, &none, "name,position,residue,prediction,probability\n", "");
  form.per_residue = false;
  form.logits = true;
  form.format = PLM_PREDICT_TSV;
  expect(&form, &predicted, "name\tposition\tresidue\tC\tE\tH\n",
         "a,b\t1\tM\t0\t0.693147182\t0\na,b\t2\tK\t3\t1.90138769\t1.90138769\n");
}

/* Columns of the input keep their names unless the predictions have them. */
static void columns_of_the_input(void **state)
{
  (void)state;
  struct plm_predict_text form = {.head = &one_class, .names = &of_letters};
  struct plm_predicted predicted = named("a", 1, outputs);
  plm_predict_take_columns(&form, "[\"set\", \"H\", \"probability\", \"given_H\", \"given_set\"]");
  predicted.given = "[\"x,y\", \"2\", \"3\", \"4\", \"5\"]";
  expect(&form, &predicted,
         "name,set,given_given_H,given_probability,given_H,given_set,prediction,probability\n",
         "a,\"x,y\",2,3,4,5,E,0.5\n");
  form.format = PLM_PREDICT_JSONL;
  expect(&form, &predicted, "",
         "{\"name\": \"a\", \"set\": \"x,y\", \"given_given_H\": \"2\", \"given_probability\": "
         "\"3\", \"given_H\": \"4\", \"given_set\": \"5\", \"prediction\": \"E\", "
         "\"probability\": 0.5}\n");
  plm_predict_release(&form);
  assert_null(form.given);
}

/* The last class counts as well, and names of columns that are only alike are kept. */
static void only_own_names_get_a_prefix(void **state)
{
  (void)state;
  struct plm_predict_text form = {.head = &residues, .names = &of_letters, .per_residue = true};
  struct plm_predicted predicted = named("a", 1, outputs);
  plm_predict_take_columns(&form, "[\"name\", \"position\", \"residue\", \"prediction\", \"C\", "
                                  "\"h\", \"sequence\"]");
  predicted.given = "[\"1\", \"2\", \"3\", \"4\", \"5\", \"6\", \"7\"]";
  expect(&form, &predicted,
         "name,given_name,given_position,given_residue,given_prediction,given_C,h,sequence,"
         "position,residue,prediction,probability\n",
         "a,1,2,3,4,5,6,7,1,M,E,0.5\n");
  plm_predict_release(&form);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers_have_the_units_of_the_table),
      cmocka_unit_test(numbers_have_nine_digits),
      cmocka_unit_test(classes_have_probabilities),
      cmocka_unit_test(one_class_is_named),
      cmocka_unit_test(residues_are_joined),
      cmocka_unit_test(each_residue_has_a_row),
      cmocka_unit_test(columns_of_the_input),
      cmocka_unit_test(only_own_names_get_a_prefix),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
