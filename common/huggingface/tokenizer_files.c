/* Writes the tokenizer in the form that Hugging Face's `tokenizers` and `transformers` read, and
 * for our own architectures modeling_plm.py. ESM-2 and ESM-C have tokenizers in transformers, which
 * only need the vocabulary and the names of special tokens. Each character is one token, with <cls>
 * before and <eos> after the text.
 *
 * esm: blanks are dropped and lower-case letters become upper case, as in ingest. byte: each byte
 * of the text is one token. The vocabulary lists bytes as the printable characters to which
 * ByteLevel maps them: 33..126, 161..172 and 174..255 are kept, and the others are mapped to U+0100
 * onwards.
 */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/text/json.h"
#include "common/base/text/text.h"
#include "common/corpus/tokenizer.h"
#include "common/huggingface/huggingface.h"
#include "common/model/architecture.h"

enum { TOKEN_TEXT_SIZE = 16 };

struct special {
  const char *role; /* key in special_tokens_map.json */
  uint32_t id;
};
enum { SPECIALS = 5 };

static void specials_of(const struct plm_tokenizer *tokenizer, struct special specials[SPECIALS])
{
  const struct special all[SPECIALS] = {
      {"cls_token", tokenizer->cls}, {"pad_token", tokenizer->pad},   {"eos_token", tokenizer->eos},
      {"unk_token", tokenizer->unk}, {"mask_token", tokenizer->mask},
  };
  memcpy(specials, all, sizeof all);
}

/* ---- the vocabulary ---------------------------------------------------------------------------*/

static bool byte_stays(uint32_t byte)
{
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

/* The character to which ByteLevel maps a byte, as UTF-8. */
static void byte_character(uint32_t byte, char text[TOKEN_TEXT_SIZE])
{
  uint32_t code = byte;
  if (!byte_stays(byte)) {
    code = 256;
    for (uint32_t before = 0; before < byte; before++) code += !byte_stays(before);
  }
  memset(text, 0, TOKEN_TEXT_SIZE);
  if (code < 0x80) {
    text[0] = (char)code;
  } else { /* below U+0800 */
    text[0] = (char)(0xc0 | code >> 6);
    text[1] = (char)(0x80 | (code & 0x3f));
  }
}

static const char chain_break[] = "|";

/* The token between chains; 0: there is none. */
static uint32_t chain_break_of(const struct plm_model_config *model)
{
  return plm_architecture_rules(model->architecture)->chain_break;
}

static void token_text(const struct plm_model_config *model, const struct plm_tokenizer *tokenizer,
                       uint32_t id, char text[TOKEN_TEXT_SIZE])
{
  const bool breaks = id != 0 && id == chain_break_of(model);
  if (!breaks && tokenizer->kind == PLM_TOKENIZER_BYTE && id < 256)
    byte_character(id, text);
  else
    snprintf(text, TOKEN_TEXT_SIZE, "%s", breaks ? chain_break : plm_token_text(tokenizer, id));
}

/* ---- tokenizer.json ---------------------------------------------------------------------------*/

static cJSON *typed(const char *type)
{
  cJSON *object = cJSON_CreateObject();
  cJSON_AddStringToObject(object, "type", type);
  return object;
}

/* Returns {"type": "Sequence", NAME: []}, with the array in *list. */
static cJSON *sequence(const char *name, cJSON **list)
{
  cJSON *object = typed("Sequence");
  *list = cJSON_AddArrayToObject(object, name);
  return object;
}

static cJSON *pattern(const char *kind, const char *text)
{
  cJSON *object = cJSON_CreateObject();
  cJSON_AddStringToObject(object, kind, text);
  return object;
}

static cJSON *tokenizer_files_split(const char *regex, const char *behavior)
{
  cJSON *object = typed("Split");
  plm_json_put(object, "pattern", pattern("Regex", regex));
  cJSON_AddStringToObject(object, "behavior", behavior);
  cJSON_AddBoolToObject(object, "invert", false);
  return object;
}

static cJSON *byte_level(void)
{
  cJSON *object = typed("ByteLevel");
  cJSON_AddBoolToObject(object, "add_prefix_space", false);
  cJSON_AddBoolToObject(object, "trim_offsets", false);
  cJSON_AddBoolToObject(object, "use_regex", false);
  return object;
}

static void add_token(cJSON *list, uint32_t id, const char *content)
{
  static const char *const off[] = {"single_word", "lstrip", "rstrip", "normalized"};
  cJSON *token = cJSON_CreateObject();
  cJSON_AddNumberToObject(token, "id", id);
  cJSON_AddStringToObject(token, "content", content);
  for (size_t k = 0; k < sizeof off / sizeof *off; k++) cJSON_AddBoolToObject(token, off[k], false);
  cJSON_AddBoolToObject(token, "special", true);
  plm_json_append(list, token);
}

static cJSON *added_tokens(const struct plm_model_config *model,
                           const struct plm_tokenizer *tokenizer)
{
  struct special specials[SPECIALS];
  cJSON *list = cJSON_CreateArray();
  specials_of(tokenizer, specials);
  for (int i = 0; i < SPECIALS; i++)
    add_token(list, specials[i].id, plm_token_text(tokenizer, specials[i].id));
  if (chain_break_of(model) != 0) add_token(list, chain_break_of(model), chain_break);
  return list;
}

/* Turns lower-case letters into upper case with one replacement for each, because the library has
 * no normalizer for that. */
static cJSON *normalizer(const struct plm_tokenizer *tokenizer)
{
  if (tokenizer->kind == PLM_TOKENIZER_BYTE) return cJSON_CreateNull();
  cJSON *list, *all = sequence("normalizers", &list);
  for (int i = 0; i < 26; i++) {
    const char small[2] = {(char)('a' + i), '\0'}, capital[2] = {(char)('A' + i), '\0'};
    cJSON *replace = typed("Replace");
    plm_json_put(replace, "pattern", pattern("String", small));
    cJSON_AddStringToObject(replace, "content", capital);
    plm_json_append(list, replace);
  }
  return all;
}

static cJSON *pre_tokenizer(const struct plm_tokenizer *tokenizer)
{
  cJSON *list, *all = sequence("pretokenizers", &list);
  if (tokenizer->kind == PLM_TOKENIZER_BYTE)
    plm_json_append(list, byte_level());
  else
    plm_json_append(list, tokenizer_files_split("\\s+", "Removed"));
  plm_json_append(list, tokenizer_files_split("[\\s\\S]", "Isolated"));
  return all;
}

static void add_template_part(cJSON *list, const char *kind, const char *id, int type)
{
  cJSON *entry = cJSON_CreateObject();
  cJSON *body = cJSON_AddObjectToObject(entry, kind);
  cJSON_AddStringToObject(body, "id", id);
  cJSON_AddNumberToObject(body, "type_id", type);
  plm_json_append(list, entry);
}

static void add_template_special(cJSON *map, const char *token, uint32_t id)
{
  cJSON *body = cJSON_AddObjectToObject(map, token);
  cJSON_AddStringToObject(body, "id", token);
  plm_json_append(cJSON_AddArrayToObject(body, "ids"), cJSON_CreateNumber(id));
  plm_json_append(cJSON_AddArrayToObject(body, "tokens"), cJSON_CreateString(token));
}

static cJSON *post_processor(const struct plm_tokenizer *tokenizer)
{
  cJSON *object = typed("TemplateProcessing");
  cJSON *single = cJSON_AddArrayToObject(object, "single");
  add_template_part(single, "SpecialToken", "<cls>", 0);
  add_template_part(single, "Sequence", "A", 0);
  add_template_part(single, "SpecialToken", "<eos>", 0);
  cJSON *pair = cJSON_AddArrayToObject(object, "pair");
  add_template_part(pair, "SpecialToken", "<cls>", 0);
  add_template_part(pair, "Sequence", "A", 0);
  add_template_part(pair, "SpecialToken", "<eos>", 0);
  add_template_part(pair, "Sequence", "B", 1);
  add_template_part(pair, "SpecialToken", "<eos>", 1);
  cJSON *map = cJSON_AddObjectToObject(object, "special_tokens");
  add_template_special(map, "<cls>", tokenizer->cls);
  add_template_special(map, "<eos>", tokenizer->eos);
  return object;
}

static cJSON *vocabulary_model(const struct plm_model_config *model,
                               const struct plm_tokenizer *tokenizer, bool bpe)
{
  cJSON *object = typed(bpe ? "BPE" : "WordLevel");
  cJSON *vocabulary = cJSON_AddObjectToObject(object, "vocab");
  for (uint32_t id = 0; id < tokenizer->vocab_size; id++) {
    char text[TOKEN_TEXT_SIZE];
    token_text(model, tokenizer, id, text);
    cJSON_AddNumberToObject(vocabulary, text, id);
  }
  cJSON_AddStringToObject(object, "unk_token", "<unk>");
  if (bpe) cJSON_AddArrayToObject(object, "merges");
  return object;
}

static char *print_and_delete(cJSON *json)
{
  char *text = plm_json_bytes(json, true);
  cJSON_Delete(json);
  return text;
}

static char *tokenizer_json(const struct plm_model_config *model,
                            const struct plm_tokenizer *tokenizer)
{
  const enum plm_tokenizer_json form = plm_architecture_rules(model->architecture)->tokenizer_json;
  const bool bpe = form == PLM_TOKENIZER_JSON_BPE;
  if (form == PLM_TOKENIZER_JSON_NONE) return NULL;
  cJSON *json = cJSON_CreateObject();
  cJSON_AddStringToObject(json, "version", "1.0");
  cJSON_AddNullToObject(json, "truncation");
  cJSON_AddNullToObject(json, "padding");
  plm_json_put(json, "added_tokens", added_tokens(model, tokenizer));
  plm_json_put(json, "normalizer", bpe ? cJSON_CreateNull() : normalizer(tokenizer));
  plm_json_put(json, "pre_tokenizer", bpe ? cJSON_CreateNull() : pre_tokenizer(tokenizer));
  plm_json_put(json, "post_processor", post_processor(tokenizer));
  if (bpe)
    cJSON_AddNullToObject(json, "decoder");
  else
    plm_json_put(json, "decoder",
                 tokenizer->kind == PLM_TOKENIZER_BYTE ? byte_level() : typed("Fuse"));
  plm_json_put(json, "model", vocabulary_model(model, tokenizer, bpe));
  return print_and_delete(json);
}

/* ---- the other files --------------------------------------------------------------------------*/

static void add_roles(cJSON *json, const struct plm_model_config *model,
                      const struct plm_tokenizer *tokenizer)
{
  struct special specials[SPECIALS];
  specials_of(tokenizer, specials);
  for (int i = 0; i < SPECIALS; i++)
    cJSON_AddStringToObject(json, specials[i].role, plm_token_text(tokenizer, specials[i].id));
  if (chain_break_of(model) == 0) return;
  cJSON_AddStringToObject(json, "bos_token", plm_token_text(tokenizer, tokenizer->cls));
  cJSON_AddStringToObject(json, "chain_break_token", chain_break);
}

static char *tokenizer_config_json(const struct plm_model_config *model,
                                   const struct plm_tokenizer *tokenizer)
{
  const struct plm_architecture_rules *rules = plm_architecture_rules(model->architecture);
  cJSON *json = cJSON_CreateObject();
  cJSON_AddStringToObject(json, "tokenizer_class",
                          rules->tokenizer_class != NULL ? rules->tokenizer_class
                                                         : "PreTrainedTokenizerFast");
  if (!rules->published) /* the classes of published weights take sequences of any length */
    cJSON_AddNumberToObject(json, "model_max_length", model->max_length);
  cJSON_AddBoolToObject(json, "clean_up_tokenization_spaces", false);
  cJSON *inputs = cJSON_AddArrayToObject(json, "model_input_names");
  plm_json_append(inputs, cJSON_CreateString("input_ids"));
  plm_json_append(inputs, cJSON_CreateString("attention_mask"));
  add_roles(json, model, tokenizer);
  return print_and_delete(json);
}

static char *special_tokens_map_json(const struct plm_model_config *model,
                                     const struct plm_tokenizer *tokenizer)
{
  cJSON *json = cJSON_CreateObject();
  add_roles(json, model, tokenizer);
  return print_and_delete(json);
}

static char *vocab_txt(const struct plm_model_config *model, const struct plm_tokenizer *tokenizer)
{
  struct plm_text text = {0};
  for (uint32_t id = 0; id < tokenizer->vocab_size; id++) {
    char token[TOKEN_TEXT_SIZE];
    token_text(model, tokenizer, id, token);
    plm_text_printf(&text, "%s\n", token);
  }
  return text.data;
}

static char *modeling_py(const struct plm_model_config *model,
                         const struct plm_tokenizer *tokenizer)
{
  (void)tokenizer;
  if (plm_architecture_rules(model->architecture)->published) return NULL;
  return plm_strdup(plm_huggingface_modeling); /* config.json holds the differences of models */
}

/* Each file with the function that makes its text (malloc), or NULL if the architecture has none.
 */
static const struct {
  const char *name;
  char *(*text)(const struct plm_model_config *model, const struct plm_tokenizer *tokenizer);
} files[] = {
    {"modeling_plm.py", modeling_py},
    {"vocab.txt", vocab_txt},
    {"tokenizer.json", tokenizer_json},
    {"tokenizer_config.json", tokenizer_config_json},
    {"special_tokens_map.json", special_tokens_map_json},
};

plm_status plm_huggingface_write(const char *directory, const struct plm_model_config *model,
                                 enum plm_tokenizer_kind tokenizer, struct plm_error *error)
{
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    char path[PLM_PATH_SIZE];
    PLM_TRY(plm_path_join(path, directory, files[i].name, error));
    char *text = files[i].text(model, plm_tokenizer_of(tokenizer));
    if (text == NULL) continue;
    const plm_status status = plm_file_write(path, text, strlen(text), 0644, error);
    free(text);
    PLM_TRY(status);
  }
  return PLM_OK;
}
