/* A growing string, and the length of UTF-8 sequences. */
#include "common/base/text/text.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

static void text_reserve(struct plm_text *text, size_t extra)
{
  if (text->length + extra + 1 <= text->capacity) return;
  size_t capacity = text->capacity != 0 ? text->capacity : 64;
  while (capacity < text->length + extra + 1) capacity *= 2;
  text->data = plm_realloc(text->data, capacity);
  text->capacity = capacity;
}

void plm_text_append(struct plm_text *text, const void *bytes, size_t size)
{
  text_reserve(text, size);
  if (size != 0) memcpy(text->data + text->length, bytes, size);
  text->length += size;
  text->data[text->length] = '\0';
}

void plm_text_puts(struct plm_text *text, const char *string)
{
  plm_text_append(text, string, strlen(string));
}

void plm_text_printf(struct plm_text *text, const char *format, ...)
{
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  const int needed = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  if (needed >= 0) {
    text_reserve(text, (size_t)needed);
    vsnprintf(text->data + text->length, (size_t)needed + 1, format, again);
    text->length += (size_t)needed;
  }
  va_end(again);
}

void plm_text_put_csv(struct plm_text *text, const char *field, size_t size, char delimiter)
{
  bool plain = true;
  for (size_t i = 0; i < size && plain; i++)
    plain = field[i] != delimiter && field[i] != '"' && field[i] != '\n' && field[i] != '\r';
  if (plain) {
    plm_text_append(text, field, size);
    return;
  }
  plm_text_append(text, "\"", 1);
  for (size_t i = 0; i < size; i++) {
    if (field[i] == '"') plm_text_append(text, "\"", 1);
    plm_text_append(text, field + i, 1);
  }
  plm_text_append(text, "\"", 1);
}

void plm_text_put_word(struct plm_text *text, const char *word)
{
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                              "-_./:=@%+,";
  if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
    plm_text_puts(text, word);
    return;
  }
  plm_text_puts(text, "'");
  for (; *word != '\0'; word++) {
    if (*word == '\'')
      plm_text_puts(text, "'\\''");
    else
      plm_text_append(text, word, 1);
  }
  plm_text_puts(text, "'");
}

void plm_text_put_list(struct plm_text *text, const char *const *words, const char *last)
{
  for (size_t i = 0; words[i] != NULL; i++) {
    if (i > 0) plm_text_puts(text, words[i + 1] == NULL ? last : ", ");
    plm_text_puts(text, words[i]);
  }
}

int plm_text_find(const char *const *words, const char *word)
{
  for (int i = 0; word != NULL && words[i] != NULL; i++)
    if (strcmp(words[i], word) == 0) return i;
  return -1;
}

void plm_text_clear(struct plm_text *text)
{
  text->length = 0;
  if (text->data != NULL) text->data[0] = '\0';
}

void plm_text_deinit(struct plm_text *text)
{
  free(text->data);
  *text = (struct plm_text){0};
}

size_t plm_utf8_length(const unsigned char *text, size_t left)
{
  static const struct {
    unsigned char first_low, first_high, second_low, second_high, length;
  } forms[] = {
      {0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
      {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
      {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
  };
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    if (text[0] < forms[i].first_low || text[0] > forms[i].first_high) continue;
    if (left < forms[i].length) return 0;
    if (forms[i].length > 1 && (text[1] < forms[i].second_low || text[1] > forms[i].second_high))
      return 0;
    for (size_t k = 2; k < forms[i].length; k++)
      if ((text[k] & 0xc0) != 0x80) return 0;
    return forms[i].length;
  }
  return 0;
}

void plm_trim(const char **text, size_t *size)
{
  while (*size != 0 && isspace((unsigned char)**text)) {
    (*text)++;
    (*size)--;
  }
  while (*size != 0 && isspace((unsigned char)(*text)[*size - 1])) (*size)--;
}

bool plm_text_ends_with(const char *string, const char *ending)
{
  const size_t length = strlen(string), tail = strlen(ending);
  return length >= tail && strcmp(string + length - tail, ending) == 0;
}
