/* Reads the files of a folder of proteins. */
#include "evaluator/contacts/protein_folder.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/sequences/sequence_reader.h"

static const char ending[] = ".contacts";
enum { CONTACTS_BYTES_MAX = 256 << 20 };

void plm_protein_folder_deinit(struct plm_protein_folder *folder)
{
  for (size_t i = 0; i < folder->count; i++) {
    free(folder->proteins[i].name);
    free(folder->proteins[i].residues);
    free(folder->proteins[i].pairs);
  }
  free(folder->proteins);
  *folder = (struct plm_protein_folder){0};
}

/* ---- the sequence ---- */

static plm_status next_record(struct plm_sequence_reader *reader, struct plm_sequence *sequence,
                              bool *ended, struct plm_error *error)
{
  const enum plm_sequence_result result =
      plm_sequence_reader_next_unless_stopped(reader, " while reading", sequence, error);
  *ended = result == PLM_SEQUENCE_END;
  return result == PLM_SEQUENCE_READ || *ended ? PLM_OK : error->status;
}

static plm_status read_only_record(struct plm_sequence_reader *reader, const char *path,
                                   struct plm_contact_protein *protein, struct plm_error *error)
{
  struct plm_sequence sequence;
  bool ended;
  PLM_TRY(next_record(reader, &sequence, &ended, error));
  if (ended) return plm_error_set(error, PLM_FORMAT, "%s has no sequence", path);
  if (sequence.too_long)
    return plm_error_set(error, PLM_LIMIT, "%s: a protein has at most %d residues, not %llu", path,
                         PLM_PROTEIN_LIMIT, (unsigned long long)sequence.length);
  protein->length = (uint32_t)sequence.size;
  protein->residues = plm_alloc(sequence.size);
  memcpy(protein->residues, sequence.residues, sequence.size);
  PLM_TRY(next_record(reader, &sequence, &ended, error));
  return ended ? PLM_OK : plm_error_set(error, PLM_FORMAT, "%s has more than one sequence", path);
}

static plm_status read_protein_sequence(const char *path, enum plm_tokenizer_kind tokenizer,
                                        struct plm_contact_protein *protein,
                                        struct plm_error *error)
{
  static const struct plm_sequence_choices any = {.nucleotides = true};
  struct plm_byte_stream *stream;
  PLM_TRY(plm_byte_stream_open(path, &stream, error));
  struct plm_sequence_reader *reader =
      plm_sequence_reader_open(stream, tokenizer, PLM_PROTEIN_LIMIT);
  plm_sequence_reader_choose(reader, &any);
  const plm_status status = read_only_record(reader, path, protein, error);
  plm_sequence_reader_close(reader);
  return status;
}

/* ---- the contacts ---- */

/* The number of a residue, from 1; 0: there is none, or it is not one of the protein's. */
static uint32_t read_residue(const char **text, uint32_t length)
{
  const char *at = *text;
  while (*at == ' ' || *at == '\t' || *at == ',') at++;
  if (isdigit((unsigned char)*at) == 0) return 0;
  char *end;
  errno = 0;
  const unsigned long long number = strtoull(at, &end, 10);
  if (errno != 0 || number > length) return 0;
  if (*end != '\0' && strchr(" \t,\r", *end) == NULL) return 0;
  *text = end;
  return (uint32_t)number;
}

static int compare_pairs(const void *a, const void *b)
{
  const struct plm_contact_pair *x = a, *y = b;
  if (x->i != y->i) return x->i < y->i ? -1 : 1;
  return x->j < y->j ? -1 : x->j > y->j;
}

static void sort_pairs(struct plm_contact_protein *protein)
{
  size_t kept = 0;
  if (protein->count == 0) return;
  qsort(protein->pairs, protein->count, sizeof *protein->pairs, compare_pairs);
  for (size_t k = 1; k < protein->count; k++)
    if (compare_pairs(&protein->pairs[kept], &protein->pairs[k]) != 0)
      protein->pairs[++kept] = protein->pairs[k];
  protein->count = kept + 1;
}

/* One line without its end, unless it is empty or a comment. */
static plm_status take_line(const char *text, const char *path, size_t line, size_t *room,
                            struct plm_contact_protein *protein, struct plm_error *error)
{
  const uint32_t i = read_residue(&text, protein->length);
  const uint32_t j = i == 0 ? 0 : read_residue(&text, protein->length);
  if (i == 0 || j == 0 || i == j) {
    plm_error_set(error, PLM_FORMAT,
                  "%s:%zu: a line begins with two different residues from 1 to %u", path, line,
                  protein->length);
    return plm_error_hint(error, "for example: 3 41");
  }
  if (protein->count == *room) {
    *room = *room == 0 ? 256 : 2 * *room;
    protein->pairs = plm_realloc(protein->pairs, *room * sizeof *protein->pairs);
  }
  const struct plm_contact_pair pair = {i < j ? i - 1 : j - 1, i < j ? j - 1 : i - 1};
  protein->pairs[protein->count++] = pair;
  return PLM_OK;
}

static plm_status read_pairs(const char *path, struct plm_contact_protein *protein,
                             struct plm_error *error)
{
  char *bytes;
  size_t size, room = 0, line = 0;
  plm_status status = PLM_OK;
  PLM_TRY(plm_file_read(path, CONTACTS_BYTES_MAX, &bytes, &size, error));
  for (char *at = bytes; at < bytes + size && status == PLM_OK;) {
    char *end = memchr(at, '\n', (size_t)(bytes + size - at));
    if (end == NULL) end = bytes + size;
    *end = '\0';
    line++;
    const char *text = at + strspn(at, " \t\r");
    if (*text != '\0' && *text != '#') status = take_line(text, path, line, &room, protein, error);
    at = end + 1;
  }
  free(bytes);
  if (status == PLM_OK) sort_pairs(protein);
  return status;
}

/* ---- the folder ---- */

static int compare_names(const void *a, const void *b)
{
  const struct plm_contact_protein *x = a, *y = b;
  return strcmp(x->name, y->name);
}

static plm_status list_names(const char *path, struct plm_protein_folder *folder,
                             struct plm_error *error)
{
  DIR *opened = opendir(path);
  const struct dirent *entry = NULL;
  size_t room = 0;
  if (opened == NULL) return plm_error_errno(error, "cannot read %s", path);
  plm_status status;
  while ((status = plm_directory_next(opened, path, &entry, error)) == PLM_OK && entry != NULL) {
    const size_t length = strlen(entry->d_name);
    const size_t name = length > strlen(ending) ? length - strlen(ending) : 0;
    if (entry->d_name[0] == '.' || name == 0 || strcmp(entry->d_name + name, ending) != 0) continue;
    if (folder->count == room) {
      room = room == 0 ? 64 : 2 * room;
      folder->proteins = plm_realloc(folder->proteins, room * sizeof *folder->proteins);
    }
    folder->proteins[folder->count++] =
        (struct plm_contact_protein){.name = plm_strndup(entry->d_name, name)};
  }
  closedir(opened);
  if (status == PLM_OK && folder->count > 0)
    qsort(folder->proteins, folder->count, sizeof *folder->proteins, compare_names);
  return status;
}

static plm_status read_protein(const char *path, enum plm_tokenizer_kind tokenizer,
                               struct plm_contact_protein *protein, struct plm_error *error)
{
  char file[PLM_PATH_SIZE];
  char *name = plm_format("%s.fasta", protein->name);
  plm_status status = plm_path_join(file, path, name, error);
  free(name);
  PLM_TRY(status);
  if (!plm_file_exists(file)) {
    plm_error_set(error, PLM_FORMAT, "%s/%s%s has no sequence beside it", path, protein->name,
                  ending);
    return plm_error_hint(error, "write the sequence of %s into %.3000s", protein->name, file);
  }
  PLM_TRY(read_protein_sequence(file, tokenizer, protein, error));
  name = plm_format("%s%s", protein->name, ending);
  status = plm_path_join(file, path, name, error);
  free(name);
  PLM_TRY(status);
  return read_pairs(file, protein, error);
}

plm_status plm_protein_folder_read(const char *path, enum plm_tokenizer_kind tokenizer,
                                   struct plm_protein_folder *folder, struct plm_error *error)
{
  struct plm_error unseen;
  if (error == NULL) error = &unseen;
  *folder = (struct plm_protein_folder){0};
  plm_status status = list_names(path, folder, error);
  for (size_t i = 0; i < folder->count && status == PLM_OK; i++)
    status = read_protein(path, tokenizer, &folder->proteins[i], error);
  if (status != PLM_OK) plm_protein_folder_deinit(folder);
  return status;
}
