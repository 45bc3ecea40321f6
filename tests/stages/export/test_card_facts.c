/* What a card learns from the files of a run: the state of the trainer, the evaluator's lines about
 * this checkpoint and these weights, and the corpus if it is still the same. */
#include "tests/support/harness/cmocka_all.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/corpus/corpus.h"
#include "stages/export/card_facts.h"
#include "stages/ingest/corpus_writer.h"
#include "tests/support/harness/scratch.h"

static struct plm_model_folder folder;

/* RUN/checkpoints/step_00000008, empty, and RUN without other files. */
static struct plm_card_facts new_facts(void)
{
  plm_log_init("t", PLM_LOG_ERROR);
  assert_int_equal(plm_path_remove(scratch_path("run"), NULL), PLM_OK);
  folder = (struct plm_model_folder){.checkpoint = true, .step = 8, .identity = {0xab, 0}};
  snprintf(folder.directory, sizeof folder.directory, "%s",
           scratch_path("run/checkpoints/step_00000008"));
  assert_int_equal(plm_directory_make(folder.directory, NULL), PLM_OK);
  return (struct plm_card_facts){.folder = &folder, .weights = "ema"};
}

static void put(const char *name, const char *text)
{
  scratch_write(scratch_path(name), text, strlen(text));
}

#define OURS "\"step\":8,\"identity\":\"000000000000000000000000000000ab\",\"weights\":\"ema\""

/* The values of `loss` in the lines that are kept, in their order. */
static void keeps(struct plm_card_facts *facts, const char *expected)
{
  char text[256] = "";
  assert_int_equal(plm_card_facts_gather(facts, NULL), PLM_OK);
  for (const cJSON *line = facts->evaluations->child; line != NULL; line = line->next) {
    const size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%g ",
             cJSON_GetObjectItem(line, "loss")->valuedouble);
  }
  assert_string_equal(text, expected);
  plm_card_facts_deinit(facts);
  assert_null(facts->evaluations);
}

static void the_last_line_of_each_subject_is_kept(void **state)
{
  (void)state;
  struct plm_card_facts facts = new_facts();
  keeps(&facts, "");
  put("run/evaluator.jsonl",
      "{" OURS ",\"split\":\"valid\",\"loss\":1}\n{" OURS ",\"split\":\"test\",\"loss\":2}\n"
      "{" OURS ",\"split\":\"valid\",\"loss\":3}\n"
      "{" OURS ",\"set\":\"far\",\"split\":\"valid\",\"loss\":4}\n"
      "{" OURS ",\"set\":\"far\",\"split\":\"test\",\"loss\":5}\n"
      "{" OURS ",\"set\":\"far\",\"split\":\"valid\",\"loss\":6}\n");
  keeps(&facts, "2 3 5 6 ");
  facts.weights = "model";
  keeps(&facts, "");
  facts.weights = "ema";
  folder.checkpoint = false; /* the folder is not one of a run */
  keeps(&facts, "");
}

/* The values of `spearman` in the lines of tasks that are kept, in their order. */
static void keeps_tasks(struct plm_card_facts *facts, const char *expected)
{
  char text[256] = "";
  assert_int_equal(plm_card_facts_gather(facts, NULL), PLM_OK);
  for (const cJSON *line = facts->tasks->child; line != NULL; line = line->next) {
    const size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%g ",
             cJSON_GetObjectItem(line, "spearman")->valuedouble);
  }
  assert_string_equal(text, expected);
  plm_card_facts_deinit(facts);
  assert_null(facts->tasks);
}

static void the_last_line_of_each_task_is_kept(void **state)
{
  (void)state;
  struct plm_card_facts facts = new_facts();
  put("run/evaluator.jsonl",
      "{" OURS ",\"set\":\"a\",\"split\":\"test\",\"spearman\":0.1}\n"
      "{" OURS ",\"set\":\"b\",\"split\":\"test\",\"spearman\":0.2}\n"
      "{" OURS ",\"set\":\"a\",\"split\":\"test\",\"spearman\":0.3}\n"
      "{" OURS ",\"set\":\"b\",\"split\":\"test\",\"task_skipped\":\"a newer one waits\"}\n"
      "{" OURS ",\"set\":\"c\",\"split\":\"test\",\"skipped\":\"deleted\"}\n"
      "{" OURS ",\"split\":\"test\",\"spearman\":0.4}\n" /* not of a task */
      "{\"step\":9,\"weights\":\"ema\",\"set\":\"a\",\"split\":\"test\",\"spearman\":0.5}\n");
  keeps_tasks(&facts, "0.2 0.3 ");
  facts.weights = "model";
  keeps_tasks(&facts, "");
  facts.weights = "ema";
  keeps(&facts, "");
}

/* With an adapter, the weights are not those that the evaluator measured. */
static void an_adapted_model_has_no_measures_of_its_base(void **state)
{
  (void)state;
  struct plm_card_facts facts = new_facts();
  put("run/evaluator.jsonl",
      "{" OURS ",\"split\":\"valid\",\"loss\":1,\"accuracy\":0.5,\"mcc\":0.25}\n"
      "{" OURS ",\"set\":\"a\",\"split\":\"test\",\"spearman\":0.1}\n");
  keeps(&facts, "1 ");
  keeps_tasks(&facts, "0.1 ");
  facts.adapter = "somewhere/theirs";
  keeps(&facts, "");
  keeps_tasks(&facts, "");
}

static void lines_about_others_are_left_out(void **state)
{
  (void)state;
  struct plm_card_facts facts = new_facts();
  put("run/evaluator.jsonl",
      "{\"step\":9,\"weights\":\"ema\",\"split\":\"valid\",\"loss\":1}\n"
      "{\"step\":8,\"identity\":\"000000000000000000000000000000ac\",\"weights\":\"ema\","
      "\"split\":\"valid\",\"loss\":2}\n"
      "{\"step\":8,\"weights\":\"model\",\"split\":\"valid\",\"loss\":3}\n"
      "{\"step\":8,\"split\":\"valid\",\"loss\":4}\n"
      "{\"weights\":\"ema\",\"split\":\"valid\",\"loss\":5}\n"
      "{" OURS ",\"split\":\"valid\"}\n{" OURS ",\"loss\":6}\n"
      "{" OURS ",\"split\":\"other\",\"loss\":7}\n"
      "{" OURS ",\"set\":\"a b\",\"split\":\"valid\",\"loss\":8}\n"
      "{\"step\":8,\"weights\":\"ema\",\"split\":\"valid\",\"loss\":9}\n"); /* of an older version
                                                                             */
  keeps(&facts, "9 ");
}

/* ---- the trainer's state -----------------------------------------------------------------------
 */

static void put_state(const char *corpus, const char *fingerprint, const char *precision)
{
  char text[1024];
  snprintf(text, sizeof text,
           "{\"configuration\":\"version: 1\\ncorpus: %s\\ntrainer:\\n  steps: 77\\n\","
           "\"counters\":{\"tokens\":123456},\"resolved\":{\"precision\":\"%s\"},"
           "\"cursor\":{\"fingerprint\":\"%s\"}}",
           corpus, precision, fingerprint);
  put("run/checkpoints/step_00000008/trainer.json", text);
}

static void write_corpus(const char *path, char fingerprint[PLM_HASH_HEX_SIZE])
{
  struct plm_corpus_writer *writer;
  struct plm_corpus_info info;
  const struct plm_corpus_writer_options options = {.directory = path, .threads = 1};
  const struct plm_ingested_file source = {.name = "made", .bytes = 1, .documents = 1};
  assert_int_equal(plm_corpus_writer_open(&options, &writer, NULL), PLM_OK);
  assert_int_equal(
      plm_corpus_writer_add(writer, PLM_SPLIT_VALID, "x", 1, (const uint8_t *)"LAGVSERT", 8, NULL),
      PLM_OK);
  assert_int_equal(plm_corpus_writer_finish(writer, &source, 1, NULL, NULL, &info, NULL), PLM_OK);
  plm_corpus_writer_close(writer);
  plm_hash_to_hex(info.fingerprint, fingerprint);
}

static void the_state_and_its_corpus_are_read(void **state)
{
  (void)state;
  char corpus[200], fingerprint[PLM_HASH_HEX_SIZE];
  static const char other[] = "00112233445566778899aabbccddeeff";
  struct plm_card_facts facts = new_facts();
  assert_int_equal(plm_card_facts_gather(&facts, NULL), PLM_OK);
  assert_false(facts.trained || facts.corpus_known); /* an exported model */
  plm_card_facts_deinit(&facts);
  snprintf(corpus, sizeof corpus, "%.199s", scratch_path("corpus"));
  write_corpus(corpus, fingerprint);
  put_state(corpus, fingerprint, "bf16");
  assert_int_equal(plm_card_facts_gather(&facts, NULL), PLM_OK);
  assert_true(facts.trained && facts.corpus_known);
  assert_int_equal(facts.tokens, 123456);
  assert_int_equal(facts.config.trainer.steps, 77);
  assert_string_equal(facts.config.corpus, corpus);
  assert_string_equal(facts.precision, "bf16");
  assert_string_equal(facts.fingerprint, fingerprint);
  assert_int_equal(facts.corpus.info.splits[PLM_SPLIT_VALID].residues, 8);
  plm_card_facts_deinit(&facts);
  assert_false(facts.trained || facts.corpus_known);
  put_state(corpus, other, "fp32"); /* the corpus has changed since */
  assert_int_equal(plm_card_facts_gather(&facts, NULL), PLM_OK);
  assert_true(facts.trained && !facts.corpus_known);
  assert_string_equal(facts.precision, "fp32");
  assert_string_equal(facts.fingerprint, other);
  plm_card_facts_deinit(&facts);
  struct plm_card_facts without = new_facts();
  put_state(scratch_path("missing"), "none", "odd"); /* nothing of it is known */
  assert_int_equal(plm_card_facts_gather(&without, NULL), PLM_OK);
  assert_true(without.trained && !without.corpus_known);
  assert_string_equal(without.fingerprint, "");
  assert_string_equal(without.precision, "fp32");
  plm_card_facts_deinit(&without);
}

static void a_damaged_state_is_an_error(void **state)
{
  (void)state;
  struct plm_card_facts facts = new_facts();
  struct plm_error error = {0};
  put("run/checkpoints/step_00000008/trainer.json", "{\"configuration\":\"no: such\\nkey\"}");
  assert_int_not_equal(plm_card_facts_gather(&facts, &error), PLM_OK);
  assert_string_equal(error.where, scratch_path("run/checkpoints/step_00000008/trainer.json"));
  assert_false(facts.trained);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_last_line_of_each_subject_is_kept),
      cmocka_unit_test(the_last_line_of_each_task_is_kept),
      cmocka_unit_test(an_adapted_model_has_no_measures_of_its_base),
      cmocka_unit_test(lines_about_others_are_left_out),
      cmocka_unit_test(the_state_and_its_corpus_are_read),
      cmocka_unit_test(a_damaged_state_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
