/* Finds the characters that must not be printed, and writes something else for them. */
#include "common/base/text/printable.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum symbol { SAFE, NEWLINE_OR_TAB, UNSAFE, NOT_UTF8 };

static uint32_t code_point(const unsigned char *bytes, size_t length)
{
  static const unsigned char first_bits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
  uint32_t code = bytes[0] & first_bits[length];
  for (size_t i = 1; i < length; i++) code = code << 6 | (bytes[i] & 0x3f);
  return code;
}

/* C0, DEL and C1 controls; marks and overrides of the direction of text; line separators. */
static bool is_unsafe(uint32_t code)
{
  return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x061c || code == 0x200e ||
         code == 0x200f || (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

/* The kind of the character at bytes, and its length; left > 0 bytes exist. */
static enum symbol symbol_at(const char *bytes, size_t left, size_t *length)
{
  const unsigned char *at = (const unsigned char *)bytes;
  *length = plm_utf8_length(at, left);
  if (*length == 0) {
    *length = 1;
    return NOT_UTF8;
  }
  if (*at == '\n' || *at == '\t') return NEWLINE_OR_TAB;
  return is_unsafe(code_point(at, *length)) ? UNSAFE : SAFE;
}

static bool is_kept(enum symbol symbol, enum plm_printable_kind kind)
{
  return symbol == SAFE || (symbol == NEWLINE_OR_TAB && kind == PLM_PRINTABLE_LINES);
}

/* Writes "\xNN" for each of length bytes and a NUL. */
static void escape(char *out, const char *bytes, size_t length)
{
  for (size_t i = 0; i < length; i++)
    snprintf(out + 4 * i, 5, "\\x%02x", (unsigned)(unsigned char)bytes[i]);
}

const char *plm_printable(char *out, size_t size, const char *text, enum plm_printable_kind kind)
{
  size_t used = 0, length;
  for (size_t left = strlen(text); left > 0; text += length, left -= length) {
    char escaped[4 * 4 + 1];
    const bool kept = is_kept(symbol_at(text, left, &length), kind);
    const size_t needed = kept ? length : 4 * length;
    if (used + needed >= size) break;
    if (!kept) escape(escaped, text, length);
    memcpy(out + used, kept ? text : escaped, needed);
    used += needed;
  }
  out[used] = '\0';
  return out;
}

void plm_text_put_printable(struct plm_text *text, const char *bytes, size_t size,
                            enum plm_printable_kind kind)
{
  size_t length;
  for (; size > 0; bytes += length, size -= length) {
    char escaped[4 * 4 + 1];
    if (is_kept(symbol_at(bytes, size, &length), kind)) {
      plm_text_append(text, bytes, length);
      continue;
    }
    escape(escaped, bytes, length);
    plm_text_puts(text, escaped);
  }
}

void plm_print(FILE *file, const char *format, ...)
{
  char *made = NULL;
  struct plm_text text = {0};
  va_list arguments;
  va_start(arguments, format);
  const int length = vasprintf(&made, format, arguments);
  va_end(arguments);
  if (length < 0) return;
  plm_text_put_printable(&text, made, (size_t)length, PLM_PRINTABLE_LINES);
  if (text.length > 0) fwrite(text.data, 1, text.length, file);
  plm_text_deinit(&text);
  free(made);
}

void plm_print_data(FILE *file, const char *text)
{
  struct plm_text printable = {0};
  const bool terminal = isatty(fileno(file)) == 1;
  if (terminal) plm_text_put_printable(&printable, text, strlen(text), PLM_PRINTABLE_LINE);
  fputs(!terminal ? text : printable.data != NULL ? printable.data : "", file);
  plm_text_deinit(&printable);
}

void plm_text_put_json(struct plm_text *text, const char *json, size_t size)
{
  size_t length;
  for (; size > 0; json += length, size -= length) {
    const enum symbol symbol = symbol_at(json, size, &length);
    if (symbol == NOT_UTF8)
      plm_text_puts(text, "\xef\xbf\xbd");
    else if (symbol == UNSAFE)
      plm_text_printf(text, "\\u%04x", (unsigned)code_point((const unsigned char *)json, length));
    else
      plm_text_append(text, json, length);
  }
}
