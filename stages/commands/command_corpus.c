/* `plm-pipeline corpus DIR`: shows what a corpus holds, verifies it, or writes it back as FASTA. */
#include <stdio.h>
#include <string.h>

#include "common/base/log/log.h"
#include "common/base/log/progress.h"
#include "common/base/text/printable.h"
#include "common/run/stop.h"
#include "stages/commands/command.h"
#include "stages/commands/corpus_against.h"
#include "stages/ingest/corpus_upgrade.h"
#include "stages/views/corpus_summary.h"

static const struct plm_option options[] = {
    {0, "verify", NULL, "read the whole corpus and check every byte"},
    {0, "upgrade", NULL,
     "write a corpus of an older version again, in place, in the format that this version reads"},
    {0, "fasta", NULL, "write the sequences to stdout, in their order"},
    {0, "split", "NAME", "with --fasta and --against (default train): train, valid or test"},
    {0, "against", "DIR",
     "count what of this held-out corpus, or this set of evaluator.sets, is also in the split"},
    {0, "against-split", "NAME",
     "the split of the held-out corpus (default valid, or the set's own)"},
    {0, "identity", "SHARE", "with --against: least identity of a near-duplicate (default 0.9)"},
    {0, "cache", "DIR",
     "read a copy of the corpus in DIR on a local disk; make it if it does not exist"},
    {0, "allow-remote", NULL, "allow a corpus on a network file system"},
    {0, NULL, NULL, NULL},
};

static void corpus_show_progress(void *context, uint64_t done, uint64_t total)
{
  plm_progress_update(context, done, total, done, done, "byte");
}

static plm_status corpus_verify(const char *directory, struct plm_error *error)
{
  struct plm_progress progress;
  plm_progress_begin(&progress, "verify");
  const plm_status status = plm_corpus_verify(directory, corpus_show_progress, &progress, error);
  plm_progress_clear(&progress);
  return status;
}

static plm_status upgrade(const char *directory, struct plm_error *error)
{
  struct plm_corpus_info info;
  bool upgraded;
  PLM_TRY(plm_corpus_upgrade(directory, &info, &upgraded, error));
  if (upgraded)
    plm_info("%s: written again in format %d; every document was checked", directory,
             PLM_CORPUS_FORMAT);
  else
    plm_info("%s: has format %d already", directory, info.format);
  return plm_stop_check(" after the upgrade", error);
}

static plm_status write_split(struct plm_corpus *corpus, struct plm_corpus_cursor *cursor,
                              enum plm_split split, struct plm_error *error)
{
  const uint64_t documents = plm_corpus_info(corpus)->splits[split].documents;
  for (uint64_t d = 0; d < documents;) {
    const uint64_t group = d / PLM_GROUP_DOCUMENTS;
    const uint32_t *lengths = NULL;
    const uint8_t *residues;
    size_t size;
    PLM_TRY(plm_corpus_proven_lengths(cursor, split, group, &lengths, error));
    PLM_TRY(plm_corpus_group(cursor, split, group, &residues, &size, error));
    do {
      const uint32_t length = lengths[d % PLM_GROUP_DOCUMENTS];
      const char *name;
      PLM_TRY(plm_corpus_name(cursor, split, d, &name, error));
      putchar('>');
      plm_print_data(stdout, name);
      putchar('\n');
      fwrite(residues, 1, length, stdout);
      putchar('\n');
      residues += length;
      d++;
    } while (d < documents && d % PLM_GROUP_DOCUMENTS != 0);
    if (fflush(stdout) != 0) return plm_error_errno(error, "cannot write to stdout");
    plm_corpus_prefetch(corpus, split, group + 2, 1);
  }
  return PLM_OK;
}

static plm_status write_fasta(const char *directory, const struct plm_corpus_options *reading,
                              const char *split_name, struct plm_error *error)
{
  enum plm_split first = PLM_SPLIT_TRAIN, last = PLM_SPLIT_TEST;
  struct plm_corpus *corpus;
  struct plm_corpus_cursor *cursor;
  if (split_name != NULL) {
    PLM_TRY(plm_split_parse(split_name, &first, error));
    last = first;
  }
  PLM_TRY(plm_corpus_open(directory, reading, &corpus, error));
  plm_status status = plm_corpus_cursor_open(corpus, &cursor, error);
  for (int s = (int)first; status == PLM_OK && s <= (int)last; s++)
    status = write_split(corpus, cursor, (enum plm_split)s, error);
  plm_corpus_cursor_close(cursor);
  plm_corpus_close(corpus);
  return status;
}

static plm_status corpus_summarise(const char *directory, bool json, struct plm_error *error)
{
  struct plm_corpus_description description;
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(path, directory, PLM_CORPUS_DATA, error));
  PLM_TRY(plm_corpus_description_read(directory, &description, error));
  plm_status status = plm_corpus_check_edges(path, &description.files, error);
  if (status == PLM_OK && json)
    status = plm_corpus_summary_json(&description, error);
  else if (status == PLM_OK)
    plm_corpus_summary_print(directory, &description);
  for (int s = 0; status == PLM_OK && s < PLM_SPLIT_COUNT; s++) {
    const uint64_t documents = description.info.splits[s].documents;
    if (documents != 0 && documents < 256) /* an empty split is intentional */
      plm_warning("split %s has only %llu documents", plm_split_name((enum plm_split)s),
                  (unsigned long long)documents);
  }
  plm_corpus_description_deinit(&description);
  return status;
}

static plm_status corpus_run(const struct plm_command_context *context, struct plm_error *error)
{
  const struct plm_arguments *arguments = context->arguments;
  const struct plm_corpus_options reading = {
      .allow_remote = plm_arguments_has(arguments, "allow-remote"),
      .cache_dir = plm_arguments_get(arguments, "cache"),
  };
  const bool fasta = plm_arguments_has(arguments, "fasta");
  const char *split = plm_arguments_get(arguments, "split");
  if (arguments->positional_count == 0)
    return plm_error_set(error, PLM_USAGE, "which corpus? Name its folder");
  PLM_TRY(plm_command_operands(context, 1, error));
  const bool against = plm_arguments_has(arguments, "against");
  if (split != NULL && !fasta && !against)
    return plm_error_set(error, PLM_USAGE, "--split needs --fasta or --against");
  for (size_t i = 0; i < 2 && !against; i++) {
    static const char *const only[] = {"against-split", "identity"};
    if (plm_arguments_has(arguments, only[i]))
      return plm_error_set(error, PLM_USAGE, "--%s needs --against DIR", only[i]);
  }
  if (against && fasta)
    return plm_error_set(error, PLM_USAGE, "--against cannot be combined with --fasta");
  const char *directory = arguments->positionals[0];
  if (plm_arguments_has(arguments, "upgrade")) {
    if (fasta || against || reading.cache_dir != NULL)
      return plm_error_set(error, PLM_USAGE,
                           "--upgrade cannot be combined with --fasta, --against "
                           "or --cache");
    PLM_TRY(upgrade(directory, error));
  }
  if (plm_arguments_has(arguments, "verify")) {
    PLM_TRY(corpus_verify(directory, error));
    plm_info("%s: intact; every byte was checked", directory);
  }
  if (against) return plm_corpus_against(context, directory, &reading, error);
  if (fasta) return write_fasta(directory, &reading, split, error);
  return corpus_summarise(directory, context->json, error);
}

const struct plm_command plm_command_corpus = {
    .name = "corpus",
    .sets = true,
    .operands = "DIR",
    .summary = "show what a corpus holds; --verify checks every byte, --fasta writes it back, "
               "--against finds duplicates",
    .details = "Prints the documents and residues of each split, the lengths, the composition and "
               "its entropy, and the fingerprint, which identifies the documents and their order. "
               "--verify exits with 1 if a single bit differs from what ingest wrote.\n\n"
               "--upgrade is for a corpus that an older version wrote. It verifies the corpus, "
               "writes the new one beside DIR, and then swaps the two. While it works, it needs "
               "free disk space of about twice the size of the corpus. Documents, their order and "
               "clusters stay the same, and runs that began with the old corpus continue with the "
               "new one.\n\n"
               "--against compares a split with a held-out one, of another corpus or of the same: "
               "it counts the exact duplicates, and the near-duplicates by shared words of five "
               "residues, and names the most similar pairs.",
    .options = options,
    .run = corpus_run,
};
