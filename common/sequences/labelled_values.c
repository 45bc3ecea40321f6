/* Numbers, classes and labels of residues from their texts. */
#include "common/sequences/labelled_values.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/numbers/hash.h"
#include "common/base/text/text.h"

/* Classes in the order in which they are met, found by their hash. */

struct class_names {
  char **names;
  size_t *sizes;
  uint32_t count, most;
  uint32_t slot_count; /* a power of two, several times `most` */
  int32_t *slots;      /* number + 1 */
};

bool plm_label_is_missing(const char *text, size_t size)
{
  static const char *const words[] = {"NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None"};
  if (size == 0) return true;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strlen(words[i]) == size && memcmp(words[i], text, size) == 0) return true;
  return false;
}

/* ---- numbers ---- */

/* The squares of greater numbers, and sums of them, may not be finite. */
static const double NUMBER_MOST = 1e100;

static bool read_number(const char *text, size_t size, double *number)
{
  char copy[64], *end;
  if (size == 0 || size >= sizeof copy) return false;
  memcpy(copy, text, size);
  copy[size] = '\0';
  if (strspn(copy, "0123456789+-.eE") != size) return false; /* no nan, inf or 0x */
  *number = strtod(copy, &end);
  return *end == '\0' && end != copy && isfinite(*number);
}

static bool is_array(const struct plm_label_text *label)
{
  return label->size > 0 && *label->text == PLM_CELL_ITEMS;
}

static plm_status refuse_array(const struct plm_labelled_cells *cells, uint64_t line,
                               const char *what, struct plm_error *error)
{
  plm_error_set(error, PLM_FORMAT, "an array is not %s", what);
  if (cells->request->corpus)
    plm_error_hint(error, "for several classes, give --labels COLUMN:classes");
  return plm_labelled_cells_where(cells, line, PLM_CELL_TARGET, error);
}

static plm_status refuse_number(const struct plm_labelled_cells *cells, uint64_t line,
                                const struct plm_label_text *label, struct plm_error *error)
{
  const int shown = (int)(label->size < 60 ? label->size : 60);
  if (is_array(label)) return refuse_array(cells, line, "a number", error);
  plm_error_set(error, PLM_FORMAT, "\"%.*s\" is not a finite number", shown, label->text);
  if (memchr(label->text, ',', label->size) != NULL)
    plm_error_hint(error, "write numbers with a decimal point and without separators: 1.5");
  else
    plm_error_hint(error, "a missing number is an empty field or NA; for classes, give %s",
                   cells->request->corpus ? "--labels COLUMN:class" : "--task classification");
  return plm_labelled_cells_where(cells, line, PLM_CELL_TARGET, error);
}

static plm_status set_numbers(const struct plm_labelled_cells *cells,
                              const struct plm_label_text *texts, struct plm_labelled_table *table,
                              struct plm_error *error)
{
  for (size_t i = 0; i < table->count; i++) {
    double *number = &table->rows[i].number;
    if (!read_number(texts[i].text, texts[i].size, number))
      return refuse_number(cells, table->rows[i].line, &texts[i], error);
    if (fabs(*number) <= NUMBER_MOST) continue;
    plm_error_set(error, PLM_FORMAT, "%g is beyond the limit of 1e100", *number);
    return plm_labelled_cells_where(cells, table->rows[i].line, PLM_CELL_TARGET, error);
  }
  return PLM_OK;
}

/* ---- classes ---- */

/* The number of a class, which is added if it is new; -1: there are too many. */
static int32_t class_number(struct class_names *classes, const char *name, size_t size)
{
  const uint64_t mask = classes->slot_count - 1;
  uint64_t slot = plm_hash64_bytes(name, size) & mask;
  for (; classes->slots[slot] != 0; slot = (slot + 1) & mask) {
    const int32_t number = classes->slots[slot] - 1;
    if (classes->sizes[number] == size && memcmp(classes->names[number], name, size) == 0)
      return number;
  }
  if (classes->count == classes->most) return -1;
  classes->sizes[classes->count] = size;
  classes->names[classes->count] = plm_strndup(name, size);
  classes->slots[slot] = (int32_t)++classes->count;
  return (int32_t)classes->count - 1;
}

static plm_status too_many(const struct plm_labelled_cells *cells,
                           const struct class_names *classes, uint64_t line,
                           struct plm_error *error)
{
  plm_error_set(error, PLM_LIMIT, "there are more than %u classes; this row has one too many",
                classes->most);
  plm_error_hint(error, "is it a column of numbers (%s) or of names?",
                 cells->request->corpus ? "--labels COLUMN:number" : "--task regression");
  return plm_labelled_cells_where(cells, line, PLM_CELL_TARGET, error);
}

static int classes_by_bytes(const void *left, const void *right)
{
  return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Sorts the classes, renumbers the labels, and gives the names to the table. */
static void sort_classes(struct class_names *classes, struct plm_labelled_table *table)
{
  int32_t *numbers = plm_alloc(classes->count * sizeof *numbers);
  char **sorted = plm_alloc(classes->count * sizeof *sorted);
  if (classes->count > 0) memcpy(sorted, classes->names, classes->count * sizeof *sorted);
  qsort(sorted, classes->count, sizeof *sorted, classes_by_bytes);
  for (uint32_t i = 0; i < classes->count; i++) {
    char **found =
        bsearch(&classes->names[i], sorted, classes->count, sizeof *sorted, classes_by_bytes);
    numbers[i] = (int32_t)(found - sorted);
  }
  for (size_t i = 0; i < table->count; i++) {
    struct plm_labelled_row *row = &table->rows[i];
    if (table->kind == PLM_LABEL_CLASS) row->label = numbers[row->label];
    for (uint32_t t = 0; t < row->label_count; t++)
      if (row->labels[t] >= 0) row->labels[t] = numbers[row->labels[t]];
  }
  free(numbers);
  free(classes->names);
  table->classes = sorted;
  table->class_count = classes->count;
}

/* ---- labels of residues ---- */

/* Excludes one pair of brackets, as Python prints lists. */
static void strip_brackets(const char **text, size_t *size)
{
  if (*size >= 2 && **text == '[' && (*text)[*size - 1] == ']') {
    *text += 1;
    *size -= 2;
  }
}

static bool separates(char byte)
{
  return byte == ' ' || byte == '\t' || byte == '\n' || byte == ',' || byte == ';';
}

/* The next item of a JSON array, whatever is in it. False: there is none. */
static bool next_item(const char **at, const char *end, const char **item, size_t *size)
{
  if (*at == end) return false;
  *item = ++*at;
  while (*at < end && **at != PLM_CELL_ITEMS) ++*at;
  *size = (size_t)(*at - *item);
  return true;
}

/* The next item of an array, or the next word of a list of labels, without quotes around it. False:
 * there is none. */
static bool next_word(const char **at, const char *end, const char **word, size_t *size)
{
  if (*at < end && **at == PLM_CELL_ITEMS) return next_item(at, end, word, size);
  while (*at < end && separates(**at)) ++*at;
  if (*at == end) return false;
  *word = *at;
  while (*at < end && !separates(**at)) ++*at;
  *size = (size_t)(*at - *word);
  const bool quoted =
      *size >= 2 && (**word == '\'' || **word == '"') && (*word)[*size - 1] == **word;
  if (quoted) {
    *word += 1;
    *size -= 2;
  }
  return true;
}

static size_t count_words(const char *text, size_t size)
{
  const char *at = text, *word;
  size_t count = 0, length;
  while (next_word(&at, text + size, &word, &length)) count++;
  return count;
}

/* How many residues a text labels: one for each character if that fits, else one for each word. */
static size_t count_labels(const struct plm_label_text *label, uint32_t length)
{
  const char *text = label->text;
  size_t size = label->size;
  if (is_array(label)) return count_words(text, size);
  if (size == length) return size;
  strip_brackets(&text, &size);
  const size_t words = count_words(text, size);
  return words > 1 || length == 1 ? words : size;
}

static plm_status refuse_length(const struct plm_labelled_cells *cells,
                                const struct plm_labelled_row *row, size_t labels,
                                struct plm_error *error)
{
  plm_error_set(error, PLM_FORMAT, "there are %zu labels, but the sequence has %u residues", labels,
                row->length);
  plm_error_hint(error, "give one character or one word for each residue; ? is a missing label");
  return plm_labelled_cells_where(cells, row->line, PLM_CELL_TARGET, error);
}

static plm_status set_residues(const struct plm_labelled_cells *cells,
                               const struct plm_label_text *label, struct class_names *classes,
                               struct plm_labelled_row *row, struct plm_error *error)
{
  if (row->name != NULL) row->length = (uint32_t)count_labels(label, UINT32_MAX);
  const size_t labels = count_labels(label, row->length);
  bool characters = !is_array(label) && label->size == row->length;
  const char *at = label->text, *word;
  size_t size = label->size;
  if (labels != row->length) return refuse_length(cells, row, labels, error);
  row->labels = malloc(row->length * sizeof *row->labels);
  if (row->labels == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for the labels of %u residues",
                         row->length);
  row->label_count = row->length;
  if (!characters && !is_array(label)) {
    strip_brackets(&at, &size);
    characters = count_words(at, size) != labels; /* count_labels counted characters in brackets */
  }
  const char *end = at + size;
  for (uint32_t t = 0; t < row->length; t++) {
    word = at + t;
    size = 1;
    if (!characters) next_word(&at, end, &word, &size);
    const bool missing = size == 0 || (size == 1 && *word == '?');
    row->labels[t] = missing ? -1 : class_number(classes, word, size);
    if (row->labels[t] < 0 && !missing) return too_many(cells, classes, row->line, error);
  }
  return PLM_OK;
}

/* ---- several classes ---- */

/* The next name, which is empty between two separators. False: there is none. */
static bool next_name(const char **at, const char *end, bool array, const char **name, size_t *size)
{
  if (array) return next_item(at, end, name, size);
  if (*at > end) return false;
  *name = *at;
  while (*at < end && **at != ';' && **at != '|' && **at != ',') ++*at;
  *size = (size_t)(*at - *name);
  ++*at;
  plm_trim(name, size);
  if (*size >= 2 && (**name == '\'' || **name == '"') && (*name)[*size - 1] == **name) {
    *name += 1;
    *size -= 2;
  }
  return true;
}

static plm_status set_several(const struct plm_labelled_cells *cells,
                              const struct plm_label_text *label, struct class_names *classes,
                              struct plm_labelled_row *row, struct plm_error *error)
{
  const bool array = is_array(label);
  const char *text = label->text, *name;
  size_t size = label->size, most = 0;
  if (!array) strip_brackets(&text, &size);
  const char *end = text + size;
  for (const char *at = text; next_name(&at, end, array, &name, &size);) most++;
  row->labels = malloc(most * sizeof *row->labels);
  if (row->labels == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for %zu classes", most);
  for (const char *at = text; next_name(&at, end, array, &name, &size);) {
    if (size == 0) continue;
    const int32_t number = class_number(classes, name, size);
    if (number < 0) return too_many(cells, classes, row->line, error);
    row->labels[row->label_count++] = number;
  }
  return PLM_OK;
}

/* ---- all ---- */

/* The names of classes in a corpus are UTF-8 without control characters, and not too long. */
static plm_status check_text(const struct plm_labelled_cells *cells,
                             const struct plm_label_text *label, uint64_t line,
                             enum plm_label_kind kind, struct plm_error *error)
{
  const unsigned char *text = (const unsigned char *)label->text;
  const char *wrong = NULL;
  for (size_t i = 0, length; i < label->size && wrong == NULL; i += length) {
    length = plm_utf8_length(text + i, label->size - i);
    if (length == 0)
      wrong = "is not UTF-8";
    else if ((text[i] < 0x20 && text[i] != PLM_CELL_ITEMS && kind != PLM_LABEL_RESIDUES) ||
             text[i] == 0x7f)
      wrong = "has a control character";
  }
  if (kind == PLM_LABEL_CLASS && label->size > PLM_LABEL_NAME_MOST)
    wrong = "is longer than the 1024 bytes that the name of a class may have";
  if (wrong == NULL) return PLM_OK;
  plm_error_set(error, PLM_FORMAT, "this label %s", wrong);
  return plm_labelled_cells_where(cells, line, PLM_CELL_TARGET, error);
}

static plm_status set_classes(const struct plm_labelled_cells *cells,
                              const struct plm_label_text *texts, struct class_names *classes,
                              struct plm_labelled_table *table, struct plm_error *error)
{
  for (size_t i = 0; i < table->count; i++) {
    struct plm_labelled_row *row = &table->rows[i];
    if (cells->request->corpus)
      PLM_TRY(check_text(cells, &texts[i], row->line, table->kind, error));
    if (table->kind == PLM_LABEL_RESIDUES) {
      PLM_TRY(set_residues(cells, &texts[i], classes, row, error));
      continue;
    }
    if (table->kind == PLM_LABEL_CLASSES) {
      PLM_TRY(set_several(cells, &texts[i], classes, row, error));
      continue;
    }
    if (is_array(&texts[i])) return refuse_array(cells, row->line, "one class", error);
    row->label = class_number(classes, texts[i].text, texts[i].size);
    if (row->label < 0) return too_many(cells, classes, row->line, error);
  }
  return PLM_OK;
}

/* Whether a text is a number with a decimal comma. */
static bool has_decimal_comma(const struct plm_label_text *label)
{
  char copy[64];
  double number;
  const char *comma = memchr(label->text, ',', label->size);
  if (comma == NULL || label->size >= sizeof copy) return false;
  memcpy(copy, label->text, label->size);
  copy[comma - label->text] = '.';
  return read_number(copy, label->size, &number);
}

/* Residues if most labels fit their sequences, so that one wrong length is found; but numbers with
 * a point or a sign are numbers, however long the sequences (of peptides) are. In the same way, a
 * column of which most labels are numbers, not all of them digits only, is one of numbers, so that
 * a wrong one among them is found. */
static enum plm_label_kind guess_kind(bool corpus, const struct plm_label_text *texts,
                                      const struct plm_labelled_table *table)
{
  bool longer = false, binary = true, digits = true;
  size_t fitting = 0, numbers = 0, fractions = 0, commas = 0, lists = 0;
  for (size_t i = 0; i < table->count; i++) {
    double number;
    const struct plm_label_text *label = &texts[i];
    fitting += table->rows[i].length > 0 &&
               count_labels(label, table->rows[i].length) == table->rows[i].length;
    lists += is_array(label);
    longer |= table->rows[i].length > 1;
    const bool is_number = read_number(label->text, label->size, &number);
    const bool is_digits = strspn(label->text, "0123456789") == label->size;
    numbers += is_number;
    fractions += is_number && !is_digits;
    commas += has_decimal_comma(label);
    digits &= is_digits;
    binary &= label->size == 1 && (*label->text == '0' || *label->text == '1');
  }
  const bool all = numbers == table->count, most = longer && 2 * fitting > table->count;
  if (most && (!all || (digits && fitting == table->count))) return PLM_LABEL_RESIDUES;
  if (lists > 0 && corpus) return PLM_LABEL_CLASSES;
  if (all) return binary ? PLM_LABEL_CLASS : PLM_LABEL_NUMBER;
  const bool meant = fractions + commas > 0 && 2 * (numbers + commas) > table->count;
  return meant ? PLM_LABEL_NUMBER : PLM_LABEL_CLASS;
}

plm_status plm_labels_from_texts(const struct plm_labelled_cells *cells,
                                 const struct plm_label_text *texts,
                                 struct plm_labelled_table *table, struct plm_error *error)
{
  table->kind = cells->request->kind;
  if (table->kind == PLM_LABEL_GUESSED)
    table->kind = guess_kind(cells->request->corpus, texts, table);
  if (table->kind == PLM_LABEL_NUMBER) return set_numbers(cells, texts, table, error);
  struct class_names *classes = plm_alloc_zeroed(1, sizeof *classes);
  classes->most = cells->request->corpus ? plm_label_most_classes(table->kind) : PLM_MOST_CLASSES;
  for (classes->slot_count = 1; classes->slot_count < 4 * classes->most;) classes->slot_count *= 2;
  classes->slots = plm_alloc_zeroed(classes->slot_count, sizeof *classes->slots);
  classes->names = plm_alloc(classes->most * sizeof *classes->names);
  classes->sizes = plm_alloc(classes->most * sizeof *classes->sizes);
  const plm_status status = set_classes(cells, texts, classes, table, error);
  if (status == PLM_OK) {
    sort_classes(classes, table);
  } else {
    for (uint32_t i = 0; i < classes->count; i++) free(classes->names[i]);
    free(classes->names);
  }
  free(classes->sizes);
  free(classes->slots);
  free(classes);
  return status;
}
