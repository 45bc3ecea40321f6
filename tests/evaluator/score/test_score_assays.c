/* A benchmark as a whole: what of a request does not fit a model or a list is said. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "evaluator/score/score_assays.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

#define HEADER \
  "DMS_id,DMS_filename,UniProt_ID,target_seq,coarse_selection_type,DMS_binarization_cutoff\n"

static char model[200], list[200], folder[200], scores[200];

static void put(const char *path, const char *text)
{
  scratch_write(path, text, strlen(text));
}

static struct plm_assays_request request_of(struct inference_case *c, enum plm_objective objective)
{
  plm_log_init("t", PLM_LOG_ERROR);
  snprintf(folder, sizeof folder, "%.199s", scratch_directory());
  snprintf(model, sizeof model, "%.199s", scratch_path("model"));
  snprintf(list, sizeof list, "%.199s", scratch_path("list.csv"));
  snprintf(scores, sizeof scores, "%.199s", scratch_path("scores"));
  inference_case_open(c, PLM_TRANSFORMER, objective, PLM_TOKENIZER_ESM, 32, 2);
  inference_case_save(c, model);
  put(list, HEADER "one,one.csv,P,LAGV,t,1.5\n");
  put(scratch_path("one.csv"), "mutant,DMS_score\nL1A,1\nA2G:V4S,2\n");
  return (struct plm_assays_request){
      .checkpoint = model, .reference = list, .assays = folder, .scores = scores, .json = true};
}

static plm_status run(const struct plm_assays_request *request, struct inference_case *c,
                      struct plm_error *error)
{
  *error = (struct plm_error){0};
  captured_begin(STDOUT_FILENO);
  const plm_status status = plm_score_assays(request, c->inference.ops, error);
  captured_end();
  return status;
}

static void a_causal_model_takes_no_masking(void **state)
{
  (void)state;
  for (int causal = 0; causal < 2; causal++) {
    struct inference_case c;
    struct plm_error error;
    struct plm_assays_request request =
        request_of(&c, causal ? PLM_OBJECTIVE_CAUSAL : PLM_OBJECTIVE_MLM);
    request.masking_given = true;
    const plm_status status = run(&request, &c, &error);
    assert_int_equal(status, causal ? PLM_USAGE : PLM_OK);
    if (causal)
      assert_non_null(strstr(error.what, "is a causal model, which masks nothing: leave it out"));
    assert_int_equal(plm_file_exists(scores), !causal);
    request.masking_given = false;
    assert_int_equal(run(&request, &c, &error), PLM_OK);
    assert_int_equal(plm_path_remove(scores, NULL), PLM_OK);
    inference_case_close(&c);
  }
}

/* The name of the file of its scores would be too long. */
static void a_name_without_a_file_is_said(void **state)
{
  struct inference_case c;
  struct plm_error error;
  (void)state;
  struct plm_assays_request request = request_of(&c, PLM_OBJECTIVE_MLM);
  char *text = must(malloc(sizeof HEADER + PLM_PATH_SIZE + 100)), *at = stpcpy(text, HEADER);
  memset(at, 'a', PLM_PATH_SIZE);
  strcpy(at + PLM_PATH_SIZE, ",one.csv,P,LAGV,t,1.5\n");
  put(list, text);
  free(text);
  assert_int_equal(run(&request, &c, &error), PLM_LIMIT);
  assert_non_null(strstr(error.what, "DMS_id aaa"));
  inference_case_close(&c);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_causal_model_takes_no_masking),
      cmocka_unit_test(a_name_without_a_file_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
