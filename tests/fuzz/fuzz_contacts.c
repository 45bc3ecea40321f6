/* Fuzzes the reader of contacts: what it accepts is sorted and within the protein, and what it
 * refuses has a message. */
#include "tests/support/harness/fuzz_seed.h"

#include "common/base/files/file.h"
#include "evaluator/contacts/protein_folder.h"
#include "tests/support/harness/scratch.h"

static const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("# residues\n1 8\n2,9 0 8 0.9\r\n\n10\t3\n"),
    FUZZ_TEXT("10 1"),
    FUZZ_TEXT(""),
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  static const char fasta[] = ">p\nMKTAYIAKQR\n";
  struct plm_protein_folder folder;
  struct plm_error error = {0};
  PLM_ASSERT(plm_directory_make(scratch_path("proteins"), &error) == PLM_OK);
  scratch_write(scratch_path("proteins/p.fasta"), fasta, sizeof fasta - 1);
  scratch_write(scratch_path("proteins/p.contacts"), bytes, size);
  if (plm_protein_folder_read(scratch_path("proteins"), PLM_TOKENIZER_ESM, &folder, &error) !=
      PLM_OK) {
    PLM_ASSERT(error.what[0] != '\0');
    return 0;
  }
  const struct plm_contact_protein *protein = &folder.proteins[0];
  PLM_ASSERT(folder.count == 1 && protein->length == 10);
  for (size_t k = 0; k < protein->count; k++) {
    const struct plm_contact_pair *pair = &protein->pairs[k];
    PLM_ASSERT(pair->i < pair->j && pair->j < protein->length);
    PLM_ASSERT(k == 0 || pair[-1].i < pair->i || (pair[-1].i == pair->i && pair[-1].j < pair->j));
  }
  plm_protein_folder_deinit(&folder);
  return 0;
}

#include "tests/support/harness/fuzz_main.h"
