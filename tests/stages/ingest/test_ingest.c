/* Ingest as a function: which records become documents, in which order and split, what is counted,
 * and what is said about tables of clusters. */
#include "stages/ingest/ingest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/text/text.h"
#include "common/corpus/corpus_description.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

enum { RESIDUES_MOST = 1000 };

static char fasta[PLM_PATH_SIZE], second[PLM_PATH_SIZE], table[PLM_PATH_SIZE],
    corpus[PLM_PATH_SIZE];
static const char *inputs[2] = {fasta, second};
static struct plm_error failure;
static char said[1 << 16];

static int setup(void **state)
{
  (void)state;
  char run[PLM_PATH_SIZE];
  scratch_run(run);
  must_work(plm_path_join(fasta, run, "in.fasta", NULL), NULL);
  must_work(plm_path_join(second, run, "second.fasta", NULL), NULL);
  must_work(plm_path_join(table, run, "clusters.tsv", NULL), NULL);
  must_work(plm_path_join(corpus, run, "corpus", NULL), NULL);
  return 0;
}

static struct plm_ingest_options options_of(const char *split)
{
  struct plm_ingest_options options = {
      .writer = {.directory = corpus, .tokenizer = PLM_TOKENIZER_ESM, .threads = 1},
      .inputs = inputs,
      .input_count = 1,
      .unclustered = 1,
      .min_length = 1,
      .max_residues = RESIDUES_MOST,
      .jobs = 1};
  must_work(plm_split_rule_parse(split, &options.splits, NULL), NULL);
  return options;
}

static void write_text(const char *path, const char *text)
{
  scratch_write(path, text, strlen(text));
}

static plm_status ingest(const struct plm_ingest_options *options, struct plm_ingest_result *result)
{
  failure = (struct plm_error){0};
  plm_log_init("t", PLM_LOG_INFO);
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_ingest(options, result, &failure);
  snprintf(said, sizeof said, "%s", captured_end());
  return status;
}

static void ingests(const struct plm_ingest_options *options, struct plm_ingest_result *result)
{
  if (ingest(options, result) != PLM_OK) fail_msg("%s", failure.what);
}

/* The names of the documents of a split, in order: ">a\n>b\n" as "a b ". */
static void expect_names(const char *split, const char *expected)
{
  char names[4096];
  size_t used = 0;
  assert_int_equal(COMMAND("corpus", corpus, "--fasta", "--split", split), 0);
  for (const char *at = command_out; (at = strchr(at, '>')) != NULL;) {
    const size_t size = strcspn(++at, "\n");
    used += (size_t)snprintf(names + used, sizeof names - used, "%.*s ", (int)size, at);
  }
  names[used] = '\0';
  assert_string_equal(names, expected);
}

/* ---- records -----------------------------------------------------------------------------------
 */

static void lengths_have_bounds(void **state)
{
  (void)state;
  struct plm_ingest_result result;
  struct plm_ingest_options options = options_of("train=1");
  options.min_length = 3;
  options.max_residues = 5;
  write_text(fasta, ">a\nLA\n>b\nLAG\n>c\nLAGVS\n>d\nLAGVSE\n>e\nLAGVSER\n>f\nL\n>g\nLAGV\n");
  ingests(&options, &result);
  expect_names("train", "b c g ");
  assert_int_equal(result.records, 7);
  assert_int_equal(result.too_short, 2);
  assert_int_equal(result.too_long, 2);
  assert_int_equal(result.bad, 0);
  assert_int_equal(result.duplicates, 0);
  assert_int_equal(result.bytes, 56);
  assert_true(result.seconds > 0 && result.cpu_seconds > 0);
  assert_int_equal(result.info.splits[PLM_SPLIT_TRAIN].documents, 3);
  assert_int_equal(result.info.splits[PLM_SPLIT_TRAIN].residues, 12);
  char expected[2 * PLM_PATH_SIZE];
  snprintf(expected, sizeof expected,
           "t: warning: %s:7: \"d\" has 6 residues, more than --max-residues 5; all such sequences "
           "are skipped\nt: warning: split train has only 3 documents; --split sets the shares\n",
           fasta);
  assert_string_equal(said, expected);
}

static void nothing_that_is_left_is_an_error(void **state)
{
  (void)state;
  struct plm_ingest_result result;
  struct plm_ingest_options options = options_of("train=1");
  options.min_length = 3;
  options.max_residues = 5;
  write_text(fasta, ">a\nLA\n>d\nLAGVSE\n>e\nL\n");
  assert_int_equal(ingest(&options, &result), PLM_FORMAT);
  assert_string_equal(failure.what, "no sequence is left: 2 shorter than --min-length, 1 longer "
                                    "than --max-residues");
  assert_false(plm_file_exists(corpus));
}

/* A repeated sequence is dropped, whatever its name, also if it is in another file. */
static void repeats_are_dropped_if_asked(void **state)
{
  (void)state;
  struct plm_ingest_result result;
  struct plm_ingest_options options = options_of("train=1");
  write_text(fasta, ">a\nLAGV\n>b\nLAGV\n>c\nLAGVS\n");
  write_text(second, ">d\nLAGVS\n>e\nGAVLGAVL\n>f\nLAGV\n");
  options.input_count = 2;
  ingests(&options, &result);
  expect_names("train", "a b c d e f ");
  assert_int_equal(result.duplicates, 0);
  options.deduplicate = true;
  options.writer.force = true;
  ingests(&options, &result);
  expect_names("train", "a c e ");
  assert_int_equal(result.duplicates, 3);
  assert_int_equal(result.records, 6);
  assert_string_equal(said, "t: --deduplicate takes 16 to 25 bytes of memory for each sequence\n"
                            "t: warning: split train has only 3 documents; --split sets the "
                            "shares\n");
  struct plm_corpus_description about;
  must_work(plm_corpus_description_read(corpus, &about, NULL), NULL);
  assert_int_equal(about.ingested_count, 2);
  for (int i = 0; i < 2; i++) assert_string_equal(about.ingested[i].name, inputs[i]);
  assert_true(about.ingested[0].bytes == 25 && about.ingested[1].bytes == 29);
  assert_true(about.ingested[0].documents == 2 && about.ingested[1].documents == 1);
  plm_corpus_description_deinit(&about);
}

/* Without clusters, the hash of the sequence decides. A split with a share should have as many
 * documents as a group. */
static void splits_follow_from_the_sequence(void **state)
{
  enum { DOCUMENTS = 700, GROUP = 256 };
  (void)state;
  struct plm_ingest_result result;
  const struct plm_ingest_options options = options_of("train=0.4,valid=0.35,test=0.25");
  struct plm_text text = {0}, names[PLM_SPLIT_COUNT] = {0}, expected = {0};
  uint64_t counts[PLM_SPLIT_COUNT] = {0};
  for (int i = 0; i < DOCUMENTS; i++) {
    char residues[16];
    for (int r = 0; r < 12; r++) residues[r] = "LAGVSERTIDPKQNFYMHWC"[(i * (r + 1) + i / 20) % 20];
    residues[12] = '\0';
    plm_text_printf(&text, ">n%d\n%s\n", i, residues);
    const struct plm_hash hash = plm_hash_bytes(residues, 12);
    const enum plm_split split = plm_split_rule_choose(&options.splits, hash.low);
    plm_text_printf(&names[split], "n%d ", i);
    counts[split]++;
  }
  write_text(fasta, text.data);
  ingests(&options, &result);
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    assert_int_equal(result.info.splits[s].documents, counts[s]);
    expect_names(plm_split_name((enum plm_split)s), names[s].data);
    if (counts[s] < GROUP)
      plm_text_printf(&expected,
                      "t: warning: split %s has only %d documents; --split sets the shares\n",
                      plm_split_name((enum plm_split)s), (int)counts[s]);
    plm_text_deinit(&names[s]);
  }
  assert_true(counts[0] >= GROUP && counts[2] < GROUP);
  assert_string_equal(said, expected.data);
  plm_text_deinit(&text);
  plm_text_deinit(&expected);
}

/* Both sides of the number of documents that a split should have. */
static void few_documents_are_warned_about(void **state)
{
  (void)state;
  for (int count = 255; count <= 256; count++) {
    struct plm_ingest_result result;
    struct plm_ingest_options options = options_of("valid=1");
    struct plm_text text = {0};
    options.writer.force = true;
    for (int i = 0; i < count; i++) plm_text_puts(&text, ">a\nLAGV\n");
    write_text(fasta, text.data);
    plm_text_deinit(&text);
    ingests(&options, &result);
    assert_int_equal(result.info.splits[PLM_SPLIT_VALID].documents, count);
    assert_string_equal(said, count < 256 ? "t: warning: split valid has only 255 documents; "
                                            "--split sets the shares\n"
                                          : "");
  }
}

static void inputs_have_a_limit(void **state)
{
  enum { LIMIT = 1 << 16 };
  (void)state;
  struct plm_ingest_result result;
  struct plm_ingest_options options = options_of("train=1");
  const char **many = must(malloc((LIMIT + 1) * sizeof *many));
  for (int i = 0; i <= LIMIT; i++) many[i] = "/nowhere/in.fasta";
  options.inputs = many;
  options.input_count = LIMIT + 1;
  assert_int_equal(ingest(&options, &result), PLM_LIMIT);
  assert_string_equal(failure.what, "65537 files are too many; 65536 is the limit");
  options.input_count = LIMIT;
  assert_int_equal(ingest(&options, &result), PLM_NOT_FOUND);
  free(many);
}

/* ---- clusters ----------------------------------------------------------------------------------
 */

static struct plm_ingest_options clustered(const char *split)
{
  struct plm_ingest_options options = options_of(split);
  options.clusters = table;
  options.writer.clustered = options.writer.force = true;
  return options;
}

/* Fails unless exactly this is said, after the size of the table and the warning of a small split.
 */
static void expect_said(int members, const char *lines, int documents)
{
  char expected[4096], *at;
  snprintf(expected, sizeof expected,
           "t: TABLE: %d sequences in clusters\nt: TABLE: names as they are\nt: warning: split "
           "train has only %d documents; --split sets the shares\n%s",
           members, documents, lines);
  struct plm_text found = {0};
  const char *from = said;
  for (; (at = strstr(from, table)) != NULL; from = at + strlen(table))
    plm_text_printf(&found, "%.*sTABLE", (int)(at - from), from);
  plm_text_puts(&found, from);
  assert_string_equal(found.data, expected);
  plm_text_deinit(&found);
}

/* Clusters come in the order of their first document, and their documents in the order of the
 * file. */
static void documents_lie_cluster_by_cluster(void **state)
{
  (void)state;
  struct plm_ingest_result result;
  const struct plm_ingest_options options = clustered("train=1");
  write_text(fasta, ">b2\nLA\n>c1\nLAG\n>a1\nLAGV\n>b1\nLAGVS\n>c2\nLAGVSE\n>b3\nLAGVSER\n");
  write_text(table, "a1\ta1\nb1\tb1\nb1\tb2\nb1\tb3\nc1\tc2\nc1\tc1\n");
  ingests(&options, &result);
  expect_names("train", "b2 b1 b3 c1 c2 a1 ");
  assert_int_equal(result.info.splits[PLM_SPLIT_TRAIN].clusters, 3);
  expect_said(6, "", 6);
}

/* All documents of a cluster are in the split that the hash of the representative's name says. */
static void a_cluster_is_in_one_split(void **state)
{
  enum { CLUSTERS = 40 };
  (void)state;
  struct plm_ingest_result result;
  const struct plm_ingest_options options = clustered("train=0.4,valid=0.3,test=0.3");
  struct plm_text text = {0}, lines = {0}, names[PLM_SPLIT_COUNT] = {0};
  uint64_t clusters[PLM_SPLIT_COUNT] = {0};
  for (int i = 0; i < CLUSTERS; i++) {
    char name[16];
    snprintf(name, sizeof name, "r%d", i);
    plm_text_printf(&text, ">m%d\nLAGV\n>%s\nSERT\n", i, name);
    plm_text_printf(&lines, "%s\t%s\n%s\tm%d\n", name, name, name, i);
    const enum plm_split split =
        plm_split_rule_choose(&options.splits, plm_hash64_bytes(name, strlen(name)));
    plm_text_printf(&names[split], "m%d %s ", i, name);
    clusters[split]++;
  }
  write_text(fasta, text.data);
  write_text(table, lines.data);
  ingests(&options, &result);
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    assert_true(clusters[s] > 0);
    assert_int_equal(result.info.splits[s].clusters, clusters[s]);
    expect_names(plm_split_name((enum plm_split)s), names[s].data);
    plm_text_deinit(&names[s]);
  }
  plm_text_deinit(&text);
  plm_text_deinit(&lines);
}

/* What is unusual is said from the first one on, and only then. */
static void what_is_unusual_is_said(void **state)
{
  static const struct {
    const char *fasta, *table;
    int members, documents;
    const char *names, *lines;
  } cases[] = {
      /* a sequence that no line names is a cluster of its own */
      {">a\nLA\n>w\nLAG\n>b\nLAGV\n", "a\ta\na\tb\n", 2, 3, "a b w ",
       "t: warning: sequences in no cluster of TABLE: 1; each counts as its own cluster: \"w\"\n"},
      {">a\nLA\n>w1\nLAG\n>w2\nLAG\n>w3\nLAG\n", "a\ta\n", 1, 4, "a w1 w2 w3 ",
       "t: warning: sequences in no cluster of TABLE: 3; each counts as its own cluster: \"w1\", "
       "\"w2\", \"w3\"\n"},
      {">a\nLA\n>w1\nLAG\n>w2\nLAG\n>w3\nLAG\n>w4\nLAG\n", "a\ta\n", 1, 5, "a w1 w2 w3 w4 ",
       "t: warning: sequences in no cluster of TABLE: 4; each counts as its own cluster: \"w1\", "
       "\"w2\", \"w3\", ...\n"},
      /* a member stays in its first cluster */
      {">a\nLA\n>b\nLAG\n>c\nLAGV\n", "a\ta\nb\tb\na\tc\nb\tc\n", 3, 3, "a c b ",
       "t: warning: lines of TABLE whose member is already in another cluster: 1, the first is "
       "line 4; a member stays in its first cluster\n"},
      {">a\nLA\n>b\nLAG\n>c\nLAGV\n", "a\ta\nb\ta\nb\tb\na\tc\nb\tc\n", 3, 3, "a c b ",
       "t: warning: lines of TABLE whose member is already in another cluster: 2, the first is "
       "line 2; a member stays in its first cluster\n"},
      {">a\nLA\n>b\nLAG\n", "a\ta\na\tb\na\tb\n", 2, 2, "a b ",
       "t: lines of TABLE that repeat an earlier one: 1; they are ignored\n"},
      {">a\nLA\n", "a\ta\na\tb\n", 2, 1, "a ",
       "t: members in TABLE without a sequence: 1; they are ignored\n"},
      {">a\nLA\n>b\nLAG\n>a\nLAGV\n", "a\ta\nb\tb\n", 2, 3, "a a b ",
       "t: sequences that have the name of an earlier member: 1; they are in its cluster\n"},
  };
  (void)state;
  const struct plm_ingest_options options = clustered("train=1");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_ingest_result result;
    write_text(fasta, cases[i].fasta);
    write_text(table, cases[i].table);
    ingests(&options, &result);
    expect_names("train", cases[i].names);
    assert_int_equal(result.info.splits[PLM_SPLIT_TRAIN].documents, cases[i].documents);
    expect_said(cases[i].members, cases[i].lines, cases[i].documents);
  }
}

/* Both sides of the share that the table may lack. */
static void too_few_names_are_an_error(void **state)
{
  (void)state;
  struct plm_ingest_options options = clustered("train=1");
  struct plm_ingest_result result;
  char expected[PLM_PATH_SIZE + 100];
  write_text(fasta, ">a\nLA\n>w1\nLAG\n>w2\nLAG\n>w3\nLAG\n");
  write_text(table, "a\ta\n");
  options.unclustered = 0.75;
  ingests(&options, &result);
  options.unclustered = 0.74;
  assert_int_equal(ingest(&options, &result), PLM_FORMAT);
  snprintf(expected, sizeof expected, "%s does not name 3 of 4 sequences: \"w1\", \"w2\", \"w3\"",
           table);
  assert_string_equal(failure.what, expected);
  write_text(fasta, ">a\nLA\n>w1\nLAG\n>w2\nLAG\n>w3\nLAG\n>w4\nLAG\n");
  assert_int_equal(ingest(&options, &result), PLM_FORMAT);
  snprintf(expected, sizeof expected,
           "%s does not name 4 of 5 sequences: \"w1\", \"w2\", \"w3\", ...", table);
  assert_string_equal(failure.what, expected);
  options.unclustered = 0; /* all are named */
  write_text(table, "a\ta\na\tw1\na\tw2\na\tw3\na\tw4\n");
  ingests(&options, &result);
}

/* Of the rules by which names are shortened, the one by which most are found holds, and of equal
 * ones the first. */
static void the_rule_that_finds_most_holds(void **state)
{
  static const struct {
    const char *fasta, *table, *names, *rule;
  } cases[] = {
      {">sp|a|X\nLA\n>sp|b|X\nLAG\n", "a\ta\na\tb\n", "sp|a|X sp|b|X ",
       "names as MMseqs2 shortens them"},
      {">sp|a|X\nLA\n>sp|b|X\nLAG\n", "sp|a|X\tsp|a|X\nb\tb\n", "sp|a|X sp|b|X ",
       "names as they are"},
      {">uca\nLA\n>ucb\nLAG\n", "a\ta\na\tb\n", "uca ucb ",
       "names as MMseqs2 up to release 15 shortens them"},
      {">x\nLA\n", "a\ta\n", "x ", "names as they are"},
      {">sp|a|X\nLA\n", "a\ta\n", "sp|a|X ", "names as MMseqs2 shortens them"},
  };
  (void)state;
  const struct plm_ingest_options options = clustered("train=1");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_ingest_result result;
    char expected[PLM_PATH_SIZE + 100];
    write_text(fasta, cases[i].fasta);
    write_text(table, cases[i].table);
    ingests(&options, &result);
    expect_names("train", cases[i].names);
    snprintf(expected, sizeof expected, "t: %s: %s\n", table, cases[i].rule);
    assert_non_null(strstr(said, expected));
  }
}

static void bad_lines_of_the_table(void **state)
{
  static const struct {
    const char *table;
    bool strict;
    const char *what; /* NULL: it is taken */
    int line;         /* 0: the error names none */
  } cases[] = {
      {"a\ta\nb\n", false, "this line has no tab", 2},
      {"a\ta\n\tb\n", false, "this line has an empty name", 2},
      {"a\ta\nb\t\n", false, "this line has an empty name", 2},
      {"a\ta\nb\t\tc\n", false, "this line has an empty name", 2},
      {"a\ta\tmore\t\n", false, NULL, 0},
      {"\n\na\ta\n\n", false, NULL, 0},
      {"a\ta", false, NULL, 0},
      {"a\ta\n\nb\tb\nb\ta\nc\tc\n", true, "the member of this line is already in another cluster",
       4},
      {"a\ta\nb\tb\nb\ta\n", false, NULL, 0},
      {"a\ta\na\ta\n", true, NULL, 0},
      {"\n", false, "TABLE holds no clusters", 0},
  };
  (void)state;
  write_text(fasta, ">a\nLA\n");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_ingest_options options = clustered("train=1");
    struct plm_ingest_result result;
    char expected[PLM_PATH_SIZE + 100];
    options.strict = cases[i].strict;
    write_text(table, cases[i].table);
    if (cases[i].what == NULL) {
      ingests(&options, &result);
      continue;
    }
    assert_int_equal(ingest(&options, &result), PLM_FORMAT);
    const bool named = strncmp(cases[i].what, "TABLE", 5) == 0;
    snprintf(expected, sizeof expected, "%s%s", named ? table : "",
             cases[i].what + (named ? 5 : 0));
    assert_string_equal(failure.what, expected);
    snprintf(expected, sizeof expected, "%s:%d", table, cases[i].line);
    assert_string_equal(failure.where, cases[i].line > 0 ? expected : "");
  }
}

/* A line may have as many bytes as the buffer. */
static void long_lines_are_refused(void **state)
{
  enum { LIMIT = 1 << 16 };
  (void)state;
  char *line = must(malloc(LIMIT + 3));
  write_text(fasta, ">a\nLA\n");
  for (int more = 0; more < 2; more++) {
    const struct plm_ingest_options options = clustered("train=1");
    struct plm_ingest_result result;
    memset(line, 'b', LIMIT + 1);
    memcpy(line, "a\ta\t", 4);
    line[LIMIT + more] = '\n';
    scratch_write(table, line, LIMIT + (size_t)more + 1);
    if (more == 0) {
      ingests(&options, &result);
    } else {
      assert_int_equal(ingest(&options, &result), PLM_FORMAT);
      assert_string_equal(failure.what, "this line is too long");
    }
  }
  free(line);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(lengths_have_bounds, setup),
      cmocka_unit_test_setup(nothing_that_is_left_is_an_error, setup),
      cmocka_unit_test_setup(repeats_are_dropped_if_asked, setup),
      cmocka_unit_test_setup(splits_follow_from_the_sequence, setup),
      cmocka_unit_test_setup(few_documents_are_warned_about, setup),
      cmocka_unit_test_setup(inputs_have_a_limit, setup),
      cmocka_unit_test_setup(documents_lie_cluster_by_cluster, setup),
      cmocka_unit_test_setup(a_cluster_is_in_one_split, setup),
      cmocka_unit_test_setup(what_is_unusual_is_said, setup),
      cmocka_unit_test_setup(too_few_names_are_an_error, setup),
      cmocka_unit_test_setup(the_rule_that_finds_most_holds, setup),
      cmocka_unit_test_setup(bad_lines_of_the_table, setup),
      cmocka_unit_test_setup(long_lines_are_refused, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
