/* A folder of proteins and their contacts: what is read, and what each error says. */
#include "tests/support/harness/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "evaluator/contacts/protein_folder.h"
#include "tests/support/harness/scratch.h"

/* Takes the place of libc's function in this program: what succeeds may leave anything in errno. */
int close(int descriptor)
{
  const int result = (int)syscall(SYS_close, descriptor);
  if (result == 0) errno = ERANGE;
  return result;
}

static void put(const char *name, const char *text)
{
  scratch_write(scratch_path(name), text, strlen(text));
}

static plm_status read_folder(struct plm_protein_folder *folder, struct plm_error *error)
{
  *error = (struct plm_error){0};
  return plm_protein_folder_read(scratch_path("proteins"), PLM_TOKENIZER_ESM, folder, error);
}

static void begin(void)
{
  assert_int_equal(plm_path_remove(scratch_path("proteins"), NULL), PLM_OK);
  assert_int_equal(plm_directory_make(scratch_path("proteins"), NULL), PLM_OK);
}

static void proteins_are_sorted_and_contacts_too(void **state)
{
  struct plm_protein_folder folder;
  struct plm_error error;
  (void)state;
  begin();
  put("proteins/b.fasta", ">sp|B|what it is\nmktay\nIAKQR\n");
  put("proteins/b.contacts", "# one\n\n9 2\n\t1,10\n 3 7 0 8 0.9\r\n2 9\n10 1");
  put("proteins/a.fasta", ">a\nACGTNNACGTACGTACGTACGTACGTACGTAC\n"); /* whatever it is */
  put("proteins/a.contacts", "");
  put("proteins/.hidden.contacts", "x");
  put("proteins/.fasta", "x");
  put("proteins/c.pdb", "x");
  assert_int_equal(read_folder(&folder, &error), PLM_OK);
  assert_int_equal(folder.count, 2);
  const struct plm_contact_protein *a = &folder.proteins[0], *b = &folder.proteins[1];
  assert_string_equal(a->name, "a");
  assert_int_equal(a->length, 32);
  assert_int_equal(a->count, 0);
  assert_string_equal(b->name, "b");
  assert_memory_equal(b->residues, "MKTAYIAKQR", b->length);
  static const struct plm_contact_pair pairs[] = {{0, 9}, {1, 8}, {2, 6}};
  assert_int_equal(b->count, 3);
  assert_memory_equal(b->pairs, pairs, sizeof pairs);
  plm_protein_folder_deinit(&folder);
  assert_int_equal(folder.count, 0);
}

static void what_is_wrong_is_named(void **state)
{
  static const struct {
    const char *fasta, *contacts, *what;
  } cases[] = {
#define LINE "expected two different residue numbers from 1 to 4"
      {">a\nLAGV\n", "1 4\n2", "p.contacts:2: \"2\": " LINE},
      {">a\nLAGV\n", " 1 5 0.9\r\n", "p.contacts:1: \"1 5 0.9\": " LINE},
      {">a\nLAGV\n", "0 3\n", "p.contacts:1: \"0 3\": " LINE},
      {">a\nLAGV\n", "\n3 3\n", "p.contacts:2: \"3 3\": " LINE},
      {">a\nLAGV\n", "1-4\n", "p.contacts:1: \"1-4\": " LINE},
      {">a\nLAGV\n", "1 4x\n", "p.contacts:1: \"1 4x\": " LINE},
      {">a\nLAGV\n", "1 4.5\n", "p.contacts:1: \"1 4.5\": " LINE},
      {">a\nLAGV\n", "-1 4\n", "p.contacts:1: \"-1 4\": " LINE},
      {">a\nLAGV\n", "1 99999999999999999999999\n",
       "p.contacts:1: \"1 99999999999999999999999\": " LINE},
      {">a\nLAGV\n", "PFRMAT RR\n", "p.contacts:1: \"PFRMAT RR\": " LINE},
      {">a\nLAGV\n>b\nL\n", "1 4\n", "p.fasta has more than one sequence"},
      {"", "1 4\n", "p.fasta has no sequence"},
      {NULL, "1 4\n", "p.contacts has no sequence beside it"},
      {">a\nLAGV\n", NULL, "p.fasta has no contacts beside it"},
#undef LINE
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_protein_folder folder;
    struct plm_error error;
    begin();
    if (cases[i].fasta != NULL) put("proteins/p.fasta", cases[i].fasta);
    if (cases[i].contacts != NULL) put("proteins/p.contacts", cases[i].contacts);
    put("proteins/p.contacts.gz", "not read");
    put("proteins/z.fasta", ">z\nLAGV\n"); /* nothing is wrong with the last one */
    put("proteins/z.contacts", "1 4\n");
    assert_int_equal(read_folder(&folder, &error), PLM_FORMAT);
    const char *found = strstr(error.what, "p.");
    if (found == NULL || strcmp(found, cases[i].what) != 0) fail_msg("%zu: %s", i, error.what);
    assert_int_equal(folder.count, 0);
    assert_int_equal(
        plm_protein_folder_read(scratch_path("proteins"), PLM_TOKENIZER_ESM, &folder, NULL),
        PLM_FORMAT);
  }
  static char longest[PLM_PROTEIN_LIMIT + 4] = ">p\n";
  struct plm_protein_folder folder;
  struct plm_error error;
  for (int more = 0; more < 2; more++) {
    begin();
    memset(longest + 3, 'A', (size_t)(PLM_PROTEIN_LIMIT + more));
    scratch_write(scratch_path("proteins/p.fasta"), longest,
                  (size_t)(PLM_PROTEIN_LIMIT + more + 3));
    put("proteins/p.contacts", "");
    assert_int_equal(read_folder(&folder, &error), more ? PLM_LIMIT : PLM_OK);
    if (more)
      assert_non_null(
          strstr(error.what, "p.fasta: a protein has at most 65536 residues, not 65537"));
    plm_protein_folder_deinit(&folder);
  }
  assert_int_equal(plm_path_remove(scratch_path("proteins"), NULL), PLM_OK);
  assert_int_equal(read_folder(&folder, &error), PLM_NOT_FOUND);
  put("proteins", "a file");
  assert_int_equal(read_folder(&folder, &error), PLM_FORMAT);
  assert_string_equal(error.hint, "contacts need a folder of NAME.fasta and NAME.contacts");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(proteins_are_sorted_and_contacts_too),
      cmocka_unit_test(what_is_wrong_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
