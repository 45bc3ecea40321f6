/* The names of splits, databases and keys, and what a record holds. */
#include "common/corpus/corpus_format.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "common/base/text/text.h"

const char *const plm_split_names[] = {"train", "valid", "test", NULL};
static const char *const record_names[PLM_RECORD_KINDS] = {
    "groups", "lengths", "names", "checks", "clusters", "digests", "roots", "labels"};

const char *plm_split_name(enum plm_split split)
{
  PLM_ASSERT((unsigned)split < PLM_SPLIT_COUNT);
  return plm_split_names[split];
}

plm_status plm_split_parse(const char *name, enum plm_split *split, struct plm_error *error)
{
  const int found = plm_text_find(plm_split_names, name);
  if (found < 0)
    return plm_error_set(error, PLM_USAGE,
                         "no split is called \"%.40s\"; the splits are train, valid and test",
                         name);
  *split = (enum plm_split)found;
  return PLM_OK;
}

const char *plm_corpus_split_words(bool clustered)
{
  return clustered ? "by clusters: homologues are in one split"
                   : "without clusters: homologues may be shared";
}

void plm_corpus_database_name(enum plm_split split, enum plm_record_kind kind,
                              char name[PLM_DATABASE_NAME_SIZE])
{
  snprintf(name, PLM_DATABASE_NAME_SIZE, "%s.%s", plm_split_name(split), record_names[kind]);
}

void plm_corpus_key(uint64_t index, uint8_t key[8])
{
  const uint64_t big = htobe64(index);
  memcpy(key, &big, sizeof big);
}

int plm_corpus_record_kinds(uint32_t format)
{
  if (format == PLM_CORPUS_FORMAT_LABELS) return PLM_RECORD_KINDS;
  if (format == PLM_CORPUS_FORMAT) return PLM_RECORD_LABELS;
  return format == PLM_CORPUS_FORMAT_CLUSTERS ? PLM_RECORD_DIGESTS : PLM_RECORD_CLUSTERS;
}

const struct plm_corpus_table plm_corpus_tables[PLM_RECORD_KINDS] = {
    [PLM_RECORD_LENGTHS] = {sizeof(uint32_t), PLM_LENGTHS_BLOCK},
    [PLM_RECORD_CHECKS] = {sizeof(struct plm_group_check), PLM_CHECKS_BLOCK},
    [PLM_RECORD_CLUSTERS] = {sizeof(uint32_t), PLM_CLUSTERS_BLOCK},
    [PLM_RECORD_DIGESTS] = {sizeof(struct plm_proof_digest), PLM_DIGESTS_BLOCK},
    [PLM_RECORD_ROOTS] = {PLM_PROOF_HASH_BYTES, PLM_ROOTS_BLOCK},
};

uint64_t plm_corpus_group_count(uint64_t documents)
{
  return (documents + PLM_GROUP_DOCUMENTS - 1) / PLM_GROUP_DOCUMENTS;
}

uint32_t plm_corpus_group_documents(uint64_t documents, uint64_t group)
{
  const uint64_t left = documents - group * PLM_GROUP_DOCUMENTS;
  return left < PLM_GROUP_DOCUMENTS ? (uint32_t)left : PLM_GROUP_DOCUMENTS;
}
