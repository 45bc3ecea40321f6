/* Reads the files of a folder of proteins. */
#include "evaluator/contacts/protein_folder.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "common/sequences/sequence_reader.h"

/* The files of a protein. */
static const char *const endings[] = {".fasta", ".contacts"};
enum { CONTACTS_BYTES_MAX = 256 << 20, SHOWN_MAX = 60 };

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
static plm_status take_line(const char *line_text, const char *path, size_t line, size_t *room,
                            struct plm_contact_protein *protein, struct plm_error *error)
{
  const char *text = line_text;
  const uint32_t i = read_residue(&text, protein->length);
  const uint32_t j = i == 0 ? 0 : read_residue(&text, protein->length);
  if (j == 0 || i == j) {
    const size_t shown = strcspn(line_text, "\r");
    plm_error_set(error, PLM_FORMAT,
                  "%s:%zu: \"%.*s\": expected two different residue numbers from 1 to %u", path,
                  line, shown < SHOWN_MAX ? (int)shown : SHOWN_MAX, line_text, protein->length);
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

/* The length of the name of a protein that a file belongs to; 0: it belongs to none. */
static size_t protein_name(const char *file)
{
  const size_t length = strlen(file);
  for (size_t k = 0; file[0] != '.' && k < sizeof endings / sizeof *endings; k++)
    if (plm_text_ends_with(file, endings[k])) return length - strlen(endings[k]);
  return 0;
}

/* Each protein has two files. */
static void drop_second_names(struct plm_protein_folder *folder)
{
  size_t kept = 0;
  for (size_t i = 0; i < folder->count; i++) {
    if (kept > 0 && compare_names(&folder->proteins[kept - 1], &folder->proteins[i]) == 0)
      free(folder->proteins[i].name);
    else
      folder->proteins[kept++] = folder->proteins[i];
  }
  folder->count = kept;
}

static plm_status list_names(const char *path, struct plm_protein_folder *folder,
                             struct plm_error *error)
{
  DIR *opened = opendir(path);
  const struct dirent *entry = NULL;
  size_t room = 0;
  if (opened == NULL && errno == ENOTDIR) {
    plm_error_set(error, PLM_FORMAT, "%s is not a folder", path);
    return plm_error_hint(error, "contacts need a folder of NAME.fasta and NAME.contacts");
  }
  if (opened == NULL) return plm_error_errno(error, "cannot read %s", path);
  plm_status status;
  while ((status = plm_directory_next(opened, path, &entry, error)) == PLM_OK && entry != NULL) {
    const size_t name = protein_name(entry->d_name);
    if (name == 0) continue;
    if (folder->count == room) {
      room = room == 0 ? 64 : 2 * room;
      folder->proteins = plm_realloc(folder->proteins, room * sizeof *folder->proteins);
    }
    folder->proteins[folder->count++] =
        (struct plm_contact_protein){.name = plm_strndup(entry->d_name, name)};
  }
  closedir(opened);
  if (status != PLM_OK || folder->count == 0) return status;
  qsort(folder->proteins, folder->count, sizeof *folder->proteins, compare_names);
  drop_second_names(folder);
  return PLM_OK;
}

/* Both files of a protein. */
static plm_status find_files(const char *path, const struct plm_contact_protein *protein,
                             char files[2][PLM_PATH_SIZE], struct plm_error *error)
{
  for (size_t k = 0; k < 2; k++) {
    char *name = plm_format("%s%s", protein->name, endings[k]);
    const plm_status status = plm_path_join(files[k], path, name, error);
    free(name);
    PLM_TRY(status);
  }
  if (!plm_file_exists(files[0])) {
    plm_error_set(error, PLM_FORMAT, "%s has no sequence beside it", files[1]);
    return plm_error_hint(error, "write the sequence of %s into %.3000s", protein->name, files[0]);
  }
  if (plm_file_exists(files[1])) return PLM_OK;
  plm_error_set(error, PLM_FORMAT, "%s has no contacts beside it", files[0]);
  return plm_error_hint(error, "write them into %.3000s (an empty file if there are none)",
                        files[1]);
}

static plm_status read_protein(const char *path, enum plm_tokenizer_kind tokenizer,
                               struct plm_contact_protein *protein, struct plm_error *error)
{
  char files[2][PLM_PATH_SIZE];
  PLM_TRY(find_files(path, protein, files, error));
  PLM_TRY(read_protein_sequence(files[0], tokenizer, protein, error));
  return read_pairs(files[1], protein, error);
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
