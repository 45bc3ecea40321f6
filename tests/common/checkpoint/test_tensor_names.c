/* What the names of tensors in a weights file mean: each name beside one that differs from it in a
 * single place, for each class that writes files. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "common/checkpoint/tensor_names.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

enum { MOST = 24 };

struct names_case {
  struct plm_tensor_shards *files;
  struct plm_tensor_naming naming;
  struct plm_parameter table[4];
};

static const float numbers[2] = {1, 2}, others[2] = {1, 3};

/* A table of two parameters of a block and of the head: the names of a class that writes them. */
static void describe(struct names_case *c, const char *trunk, bool labels)
{
  static const char *const ends[] = {"embeddings.word_embeddings.weight", "a.LayerNorm.weight",
                                     "a.LayerNorm.bias"};
  memset(c, 0, sizeof *c);
  for (size_t i = 0; i < 3; i++)
    (void)snprintf(c->table[i].name, sizeof c->table[i].name, "%s%s", trunk, ends[i]);
  (void)snprintf(c->table[3].name, sizeof c->table[3].name, "%s",
                 labels ? "classifier.dense.weight" : "lm_head.dense.weight");
  c->table[3].group = PLM_GROUP_HEAD;
}

/* Opens a file of tensors of two numbers; those whose name begins with '!' have other numbers. */
static void open_names(struct names_case *c, const char *const *names)
{
  struct plm_error error = {0};
  struct plm_tensor_info tensors[MOST] = {{0}};
  size_t count = 0;
  for (; names[count] != NULL; count++) {
    const bool other = names[count][0] == '!';
    tensors[count] = (struct plm_tensor_info){.name = names[count] + other,
                                              .dtype = PLM_F32,
                                              .rank = 1,
                                              .shape = {2},
                                              .bytes = sizeof numbers,
                                              .data = other ? others : numbers};
  }
  const char *path = scratch_path("names.safetensors");
  must_work(plm_safetensors_write(path, tensors, count, NULL, 0, &error), &error);
  must_work(plm_tensor_shards_open(path, &c->files, &error), &error);
  c->naming = plm_tensor_naming_of(c->files, c->table, 4);
}

static enum plm_tensor_use use_of(const struct names_case *c, const char *name)
{
  const struct plm_tensor_info *tensor = plm_tensor_shards_find(c->files, name);
  assert_non_null(tensor);
  return plm_tensor_use(c->files, &c->naming, c->table, 4, tensor);
}

static void a_name_means_what_it_says_to_its_last_letter(void **state)
{
  (void)state;
  static const struct {
    const char *name;
    enum plm_tensor_use use;
  } rows[] = {
      {"esm.embeddings.word_embeddings.weight", PLM_TENSOR_PARAMETER},
      {"esm.a.LayerNorm.gamma", PLM_TENSOR_PARAMETER}, /* .weight is not there */
      {"esm.a.LayerNorm.bias", PLM_TENSOR_PARAMETER},
      {"esm.a.LayerNorm.beta", PLM_TENSOR_UNKNOWN}, /* .bias is there */
      {"esm.b.LayerNorm.gamma", PLM_TENSOR_UNKNOWN},
      {"lm_head.dense.weight", PLM_TENSOR_PARAMETER},
      {"lm_head.dense.bias", PLM_TENSOR_UNKNOWN},
      {"lm_head.decoder.weight", PLM_TENSOR_TIED},
      {"esm.contact_head.regression.weight", PLM_TENSOR_CARRIED},
      {"esm.contact_head.regression.bias", PLM_TENSOR_CARRIED},
      {"esm_contact_head.regression.bias", PLM_TENSOR_UNKNOWN},
      {"contact_head.regression.bias", PLM_TENSOR_UNKNOWN},
      {"esm.contact_head.regression", PLM_TENSOR_UNKNOWN},
      {"esm.encoder.layer.12.attention.self.rotary_embeddings.inv_freq", PLM_TENSOR_IGNORED},
      {"esm.encoder.layer.*.attention.self.rotary_embeddings.inv_freq", PLM_TENSOR_IGNORED},
      {"esm.encoder.layer.1x.attention.self.rotary_embeddings.inv_freq", PLM_TENSOR_UNKNOWN},
      {"esm.rotary_embeddings.inv_freq", PLM_TENSOR_IGNORED},
      {"esm.embeddings.position_ids", PLM_TENSOR_IGNORED},
      {"esm.embeddings.position_embeddings.weight", PLM_TENSOR_IGNORED},
      {"esm.pooler.dense.weight", PLM_TENSOR_IGNORED},
      {"esm.pooler.dense.bias", PLM_TENSOR_IGNORED},
      {"esm.rotary_emb.inv_freq", PLM_TENSOR_UNKNOWN}, /* of another class */
  };
  enum { ROWS = sizeof rows / sizeof *rows };
  const char *names[ROWS + 1] = {NULL};
  struct names_case c;
  for (size_t i = 0; i < ROWS; i++) names[i] = rows[i].name;
  describe(&c, "esm.", false);
  open_names(&c, names);
  assert_string_equal(plm_tensor_trunk_class(&c.naming), "EsmModel");
  assert_true(plm_tensor_published(&c.naming));
  assert_int_equal(c.naming.prefix, 0);
  for (size_t i = 0; i < ROWS; i++) {
    if (use_of(&c, rows[i].name) != rows[i].use) fail_msg("%s", rows[i].name);
  }
  plm_tensor_shards_close(c.files);
}

static void each_class_has_its_own_tables(void **state)
{
  (void)state;
  struct names_case c;
  describe(&c, "esmc.", false);
  open_names(&c,
             (const char *const[]){"esmc.rotary_emb.inv_freq", "esmc.rotary_emb.original_inv_freq",
                                   "esmc.contact_head.regression.bias", "esmc.a.LayerNorm.gamma",
                                   "lm_head.x", NULL});
  assert_string_equal(plm_tensor_trunk_class(&c.naming), "EsmcModel");
  assert_int_equal(c.naming.head, PLM_HEAD_LM);
  assert_int_equal(use_of(&c, "esmc.rotary_emb.inv_freq"), PLM_TENSOR_IGNORED);
  assert_int_equal(use_of(&c, "esmc.rotary_emb.original_inv_freq"), PLM_TENSOR_IGNORED);
  assert_int_equal(use_of(&c, "esmc.contact_head.regression.bias"), PLM_TENSOR_UNKNOWN);
  assert_int_equal(use_of(&c, "esmc.a.LayerNorm.gamma"), PLM_TENSOR_PARAMETER);
  plm_tensor_shards_close(c.files);
  describe(&c, "plm.", false);
  open_names(&c, (const char *const[]){"plm.a.LayerNorm.gamma", "plm.rotary_emb.inv_freq", NULL});
  assert_string_equal(plm_tensor_trunk_class(&c.naming), "PLMModel");
  assert_false(plm_tensor_published(&c.naming));
  /* A file of our own without the head is not complete; one of transformers may lack it. */
  assert_int_equal(c.naming.head, PLM_HEAD_LM);
  assert_int_equal(use_of(&c, "plm.a.LayerNorm.gamma"), PLM_TENSOR_UNKNOWN);
  assert_int_equal(use_of(&c, "plm.rotary_emb.inv_freq"), PLM_TENSOR_UNKNOWN);
  assert_null(plm_tensor_of_parameter(c.files, &c.naming, &c.table[1])); /* no alias either */
  plm_tensor_shards_close(c.files);
}

static void a_trunk_without_a_head_lacks_the_prefix(void **state)
{
  (void)state;
  struct names_case c;
  describe(&c, "esm.", false);
  open_names(&c, (const char *const[]){"embeddings.word_embeddings.weight", "a.LayerNorm.gamma",
                                       "a.LayerNorm.beta", "pooler.dense.bias",
                                       "esm.pooler.dense.bias", "lm_head.dense.weight", NULL});
  assert_int_equal(c.naming.head, PLM_HEAD_NONE);
  assert_int_equal(c.naming.prefix, strlen("esm."));
  assert_false(c.naming.reads_head);
  assert_int_equal(use_of(&c, "pooler.dense.bias"), PLM_TENSOR_IGNORED);
  assert_int_equal(use_of(&c, "esm.pooler.dense.bias"), PLM_TENSOR_UNKNOWN);
  assert_int_equal(use_of(&c, "lm_head.dense.weight"), PLM_TENSOR_UNKNOWN);
  assert_int_equal(use_of(&c, "a.LayerNorm.beta"), PLM_TENSOR_PARAMETER);
  assert_true(plm_tensor_wanted(&c.naming, &c.table[2]));
  assert_false(plm_tensor_wanted(&c.naming, &c.table[3]));
  const struct plm_tensor_info *found = plm_tensor_of_parameter(c.files, &c.naming, &c.table[1]);
  assert_non_null(found);
  assert_string_equal(found->name, "a.LayerNorm.gamma");
  found = plm_tensor_of_parameter(c.files, &c.naming, &c.table[2]);
  assert_non_null(found);
  assert_string_equal(found->name, "a.LayerNorm.beta");
  found = plm_tensor_of_trunk(c.files, "esm.a.LayerNorm.beta");
  assert_non_null(found);
  assert_string_equal(found->name, "a.LayerNorm.beta");
  found = plm_tensor_of_trunk(c.files, "esm.pooler.dense.bias"); /* the whole name comes first */
  assert_non_null(found);
  assert_string_equal(found->name, "esm.pooler.dense.bias");
  assert_null(plm_tensor_of_trunk(c.files, "esm_a.LayerNorm.beta"));
  plm_tensor_shards_close(c.files);
}

/* The head of the file and that of the model may be of different kinds. */
static void another_head_is_known_and_not_read(void **state)
{
  (void)state;
  static const char *const classifiers[] = {"classifier.dense.weight", "score.weight"};
  struct names_case c;
  for (size_t i = 0; i < 2; i++) {
    describe(&c, "esm.", false);
    open_names(&c, (const char *const[]){"esm.embeddings.word_embeddings.weight", classifiers[i],
                                         "classifier_weight", "lm_head.dense.weight", NULL});
    assert_int_equal(c.naming.head, PLM_HEAD_CLASSIFIER);
    assert_false(c.naming.reads_head);
    assert_int_equal(use_of(&c, classifiers[i]), PLM_TENSOR_OTHER_HEAD);
    assert_int_equal(use_of(&c, "classifier_weight"), PLM_TENSOR_UNKNOWN);
    assert_int_equal(use_of(&c, "lm_head.dense.weight"), PLM_TENSOR_UNKNOWN);
    plm_tensor_shards_close(c.files);
  }
  describe(&c, "esm.", true); /* the model predicts labels */
  open_names(&c, (const char *const[]){"esm.embeddings.word_embeddings.weight",
                                       "lm_head.dense.weight", "lm_head_dense", NULL});
  assert_int_equal(c.naming.head, PLM_HEAD_LM);
  assert_false(c.naming.reads_head);
  assert_int_equal(use_of(&c, "lm_head.dense.weight"), PLM_TENSOR_OTHER_HEAD);
  assert_int_equal(use_of(&c, "lm_head_dense"), PLM_TENSOR_UNKNOWN);
  plm_tensor_shards_close(c.files);
  describe(&c, "esm.", true);
  open_names(&c, (const char *const[]){"classifier.dense.weight", "classifier.x", NULL});
  assert_true(c.naming.reads_head);
  assert_int_equal(use_of(&c, "classifier.dense.weight"), PLM_TENSOR_PARAMETER);
  assert_int_equal(use_of(&c, "classifier.x"), PLM_TENSOR_OTHER_HEAD);
  plm_tensor_shards_close(c.files);
}

static void a_decoder_that_is_not_the_embedding_table_is_left_over(void **state)
{
  (void)state;
  struct names_case c;
  describe(&c, "esm.", false);
  open_names(&c, (const char *const[]){"esm.embeddings.word_embeddings.weight",
                                       "!lm_head.decoder.weight", NULL});
  assert_int_equal(use_of(&c, "lm_head.decoder.weight"), PLM_TENSOR_UNKNOWN);
  plm_tensor_shards_close(c.files);
  open_names(&c, (const char *const[]){"lm_head.decoder.weight", NULL}); /* there is no table */
  assert_int_equal(use_of(&c, "lm_head.decoder.weight"), PLM_TENSOR_UNKNOWN);
  plm_tensor_shards_close(c.files);
}

static void adapters_are_wanted_unless_the_file_has_none(void **state)
{
  (void)state;
  struct names_case c;
  describe(&c, "esm.", false);
  open_names(&c, (const char *const[]){"lm_head.dense.weight", NULL});
  c.table[1].adapter = 1;
  assert_true(plm_tensor_wanted(&c.naming, &c.table[1]));
  c.naming.reads_adapters = false;
  assert_false(plm_tensor_wanted(&c.naming, &c.table[1]));
  assert_true(plm_tensor_wanted(&c.naming, &c.table[2]));
  plm_tensor_shards_close(c.files);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_name_means_what_it_says_to_its_last_letter),
      cmocka_unit_test(each_class_has_its_own_tables),
      cmocka_unit_test(a_trunk_without_a_head_lacks_the_prefix),
      cmocka_unit_test(another_head_is_known_and_not_read),
      cmocka_unit_test(a_decoder_that_is_not_the_embedding_table_is_left_over),
      cmocka_unit_test(adapters_are_wanted_unless_the_file_has_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
