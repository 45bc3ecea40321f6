/* Compares a misspelt word with the keys of the table of settings. */
#include "common/config/key_suggestion.h"

#include <stdio.h>
#include <string.h>

#include "common/base/text/suggest.h"
#include "common/config/config_include.h"
#include "common/config/settings.h"

/* The only key of the section that begins with the word; NULL: there is none, or several. */
static const char *only_beginning(const char *prefix, const char *word)
{
  const char *found = NULL;
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  for (size_t i = 0; i < count; i++) {
    const char *own = table[i].key + strlen(prefix);
    if (strncmp(table[i].key, prefix, strlen(prefix)) != 0 || strchr(own, '.') != NULL ||
        strncmp(own, word, strlen(word)) != 0)
      continue;
    if (found != NULL) return NULL;
    found = own;
  }
  return found;
}

/* The key that a misspelt word most likely means, or NULL. */
static const char *suggest_key(const char *prefix, const char *word, char buffer[PLM_KEY_SIZE])
{
  struct plm_suggestion near = {.word = word}, elsewhere = {.word = word};
  const size_t length = strlen(prefix), word_length = strlen(word);
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  static char names[2][PLM_KEY_SIZE]; /* plm_suggest keeps the best candidate by reference */
  unsigned slot = 0;
  for (size_t i = 0; i < count; i++) {
    if (strncmp(table[i].key, prefix, length) != 0) continue;
    snprintf(names[slot], PLM_KEY_SIZE, "%.*s", (int)strcspn(table[i].key + length, "."),
             table[i].key + length);
    plm_suggest(&near, names[slot]);
    if (near.best == names[slot]) slot ^= 1;
  }
  if (length == 0) plm_suggest(&near, PLM_INCLUDE_KEY);
  for (size_t i = 0; i < count && near.best == NULL; i++) {
    const char *own = table[i].key + length;
    if (strncmp(table[i].key, prefix, length) == 0 && strncmp(own, word, word_length) == 0 &&
        own[word_length] == '_' && strchr(own, '.') == NULL)
      return strcpy(buffer, own);
  }
  const char *beginning = near.best == NULL ? only_beginning(prefix, word) : NULL;
  if (beginning != NULL) return strcpy(buffer, beginning);
  for (size_t i = 0; i < count && near.best == NULL; i++) {
    const char *dot = strrchr(table[i].key, '.');
    if (dot != NULL && strcmp(dot + 1, word) == 0 && elsewhere.best == NULL) {
      elsewhere.best = table[i].key;
    }
  }
  const char *best = near.best != NULL ? near.best : elsewhere.best;
  if (best == NULL) return NULL;
  snprintf(buffer, PLM_KEY_SIZE, "%s", best);
  return buffer;
}

void plm_key_unknown(struct plm_config_problems *problems, struct plm_place place,
                     const char *prefix, const char *word)
{
  char buffer[PLM_KEY_SIZE];
  if (plm_problems_full(problems)) return; /* a suggestion takes time */
  if (strcmp(word, PLM_INCLUDE_KEY) == 0) {
    plm_problems_add(problems, place,
                     "\"" PLM_INCLUDE_KEY "\" may only stand at the top level of a configuration "
                     "file");
    return;
  }
  const char *suggestion = suggest_key(prefix, word, buffer);
  if (suggestion != NULL) {
    plm_problems_add(problems, place, "unknown key \"%.80s\"; did you mean \"%s\"?", word,
                     suggestion);
  } else {
    plm_problems_add(problems, place, "unknown key \"%.80s\"", word);
  }
}
