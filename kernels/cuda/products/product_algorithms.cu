/* The table of product algorithms, tuning, and exporting them as text. */
#include "kernels/cuda/products/product_algorithms.cuh"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/products/kernel_choices.cuh"

namespace
{

enum {
  MAX_ALGORITHMS = 2048,
  MAX_TUNED = MAX_ALGORITHMS / 2,
  SLOTS = 2 * MAX_ALGORITHMS, /* a power of two */
  NUMBERS = 16,               /* of a shape, and its alignment */
  LINE_BYTES = 512,
  HEX_DIGITS = 16, /* of a word */
  WORDS = sizeof(plm_cuda_algorithm::words) / sizeof(uint64_t)
};

struct key {
  int64_t numbers[NUMBERS];
};

struct key key_of(const struct plm_cuda_shape *s, int64_t alignment)
{
  return {{s->M, s->N, s->K, s->lda, s->ldb, s->ldc, s->transpose_a, s->transpose_b, s->float_c,
           s->add, s->batch, s->stride_a, s->stride_b, s->stride_c, alignment, s->alike}};
}

void from_key(const struct key *key, struct plm_cuda_algorithm *algorithm)
{
  const int64_t *n = key->numbers;
  struct plm_cuda_shape *s = &algorithm->shape;
  s->M = n[0], s->N = n[1], s->K = n[2];
  s->lda = n[3], s->ldb = n[4], s->ldc = n[5];
  s->transpose_a = n[6] != 0, s->transpose_b = n[7] != 0;
  s->float_c = n[8] != 0, s->add = n[9] != 0;
  s->batch = (int32_t)n[10];
  s->stride_a = n[11], s->stride_b = n[12], s->stride_c = n[13];
  algorithm->alignment = n[14];
  s->alike = n[15] != 0;
}

/* The finisher of splitmix64, applied number by number. */
unsigned hash(const struct key *key)
{
  uint64_t h = 0;
  for (int i = 0; i < NUMBERS; i++) {
    h = (h ^ (uint64_t)key->numbers[i]) + 0x9e3779b97f4a7c15;
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9;
    h = (h ^ h >> 27) * 0x94d049bb133111eb;
    h ^= h >> 31;
  }
  return (unsigned)h % SLOTS;
}

} // namespace

struct plm_cuda_algorithms {
  struct plm_cuda_algorithm of[MAX_ALGORITHMS];
  struct key keys[MAX_ALGORITHMS];
  int16_t slots[SLOTS]; /* index of an algorithm + 1; 0 if free */
  int count, tuned_count;
  bool tuning;
  struct plm_ops_tuned tuned; /* since opening */
};

namespace
{

/* The slot of the key, or the free slot where it belongs. */
int16_t *slot_of(struct plm_cuda_algorithms *table, const struct key *key)
{
  unsigned at = hash(key);
  for (;; at = (at + 1) % SLOTS) {
    int16_t *slot = &table->slots[at];
    if (*slot == 0 || memcmp(&table->keys[*slot - 1], key, sizeof *key) == 0) return slot;
  }
}

struct plm_cuda_algorithm *lookup(struct plm_cuda_algorithms *table, const struct key *key)
{
  const int16_t number = *slot_of(table, key);
  return number > 0 ? &table->of[number - 1] : nullptr;
}

/* Drops the proposed algorithms: the library proposes the same ones again when they are needed. */
void drop_proposed(struct plm_cuda_algorithms *table)
{
  int kept = 0;
  for (int i = 0; i < table->count; i++) {
    if (!table->of[i].tuned) {
      plm_cuda_algorithm_release(&table->of[i]);
      continue;
    }
    table->keys[kept] = table->keys[i];
    table->of[kept++] = table->of[i];
  }
  table->count = kept;
  memset(table->slots, 0, sizeof table->slots);
  for (int i = 0; i < kept; i++) *slot_of(table, &table->keys[i]) = (int16_t)(i + 1);
}

/* An entry without words. Makes room if the table is full. */
struct plm_cuda_algorithm *add_algorithm(struct plm_cuda *cuda, const struct key *key,
                                         struct plm_error *error)
{
  struct plm_cuda_algorithms *table = cuda->algorithms;
  if (table->count == MAX_ALGORITHMS) drop_proposed(table);
  struct plm_cuda_algorithm *algorithm = &table->of[table->count];
  *algorithm = {};
  from_key(key, algorithm);
  if (plm_cuda_algorithm_make(cuda, algorithm, error) != PLM_OK) {
    plm_cuda_algorithm_release(algorithm);
    return nullptr;
  }
  table->keys[table->count++] = *key;
  *slot_of(table, key) = (int16_t)table->count;
  return algorithm;
}

void remove_last(struct plm_cuda_algorithms *table)
{
  *slot_of(table, &table->keys[table->count - 1]) =
      0; /* no later key probes past it, since it came last */
  plm_cuda_algorithm_release(&table->of[--table->count]);
}

void measure(struct plm_cuda *cuda, struct plm_cuda_algorithm *algorithm,
             const struct plm_cuda_operands *operands)
{
  struct plm_cuda_algorithms *table = cuda->algorithms;
  if (!plm_cuda_tuning_allowed(cuda) || algorithm->tuned || table->tuned_count == MAX_TUNED) return;
  const double started = plm_cuda_tuning_clock();
  algorithm->tuned = plm_cuda_algorithm_measure(cuda, algorithm, operands);
  table->tuned_count += algorithm->tuned;
  if (algorithm->tuned) plm_cuda_tuning_count(cuda, plm_cuda_tuning_clock() - started);
}

int64_t alignment_of(const struct plm_cuda_operands *o)
{
  const uintptr_t all = (uintptr_t)o->c | (uintptr_t)o->a | (uintptr_t)o->b | (uintptr_t)o->addend;
  const uintptr_t lowest = all & (~all + 1);
  return lowest == 0 || lowest > 16 ? 16 : (int64_t)lowest;
}

/* ---- the table's functions ---- */

void tune(struct plm_ops *ops, bool on, struct plm_ops_tuned *so_far)
{
  struct plm_cuda_algorithms *table = plm_cuda_of(ops)->algorithms;
  table->tuning = on;
  if (so_far != nullptr) *so_far = table->tuned;
}

plm_status export_algorithms(struct plm_ops *ops, char **text, struct plm_error *error)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  const struct plm_cuda_algorithms *table = cuda->algorithms;
  const size_t room = (size_t)(table->tuned_count + 1) * LINE_BYTES +
                      (size_t)plm_cuda_choices_count(cuda) * PLM_CHOICE_BYTES;
  char name[128], *out = static_cast<char *>(malloc(room));
  if (out == nullptr)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the product algorithms");
  plm_cuda_library_name(cuda, name);
  size_t used = (size_t)snprintf(out, room, "%s, %s\n", name, cuda->bf16 ? "bf16" : "fp32");
  for (int i = 0; i < table->count; i++) {
    const struct plm_cuda_algorithm *algorithm = &table->of[i];
    if (!algorithm->tuned) continue;
    for (int j = 0; j < NUMBERS; j++)
      used +=
          (size_t)snprintf(out + used, room - used, "%lld ", (long long)table->keys[i].numbers[j]);
    for (uint64_t word : algorithm->words)
      used += (size_t)snprintf(out + used, room - used, "%016llx", (unsigned long long)word);
    used += (size_t)snprintf(out + used, room - used, "\n");
  }
  plm_cuda_choices_print(cuda, out + used, room - used);
  *text = out;
  return PLM_OK;
}

bool parse_line(const char *line, struct key *key, uint64_t words[WORDS])
{
  char digits[HEX_DIGITS + 1] = {}, *end;
  for (int64_t &number : key->numbers) {
    number = strtoll(line, &end, 10);
    if (end == line || *end != ' ' || number < 0) return false;
    line = end + 1;
  }
  for (int word = 0; word < WORDS; word++) {
    for (int i = 0; i < HEX_DIGITS; i++)
      if (strchr("0123456789abcdef", line[i]) == nullptr || line[i] == '\0') return false;
    memcpy(digits, line, HEX_DIGITS);
    words[word] = strtoull(digits, nullptr, 16);
    line += HEX_DIGITS;
  }
  const int64_t *n = key->numbers;
  return *line == '\n' && n[0] > 0 && n[1] > 0 && n[2] > 0 && n[10] > 0 && n[10] <= INT32_MAX;
}

plm_status import_line(struct plm_cuda *cuda, const char *line, struct plm_error *error)
{
  struct plm_cuda_algorithms *table = cuda->algorithms;
  struct key key;
  uint64_t words[WORDS];
  if (plm_cuda_choice_is(line)) return plm_cuda_choice_import(cuda, line, error);
  if (!parse_line(line, &key, words))
    return plm_error_set(error, PLM_FORMAT, "a line is not the algorithm of a product: %.*s",
                         (int)std::min<size_t>(strcspn(line, "\n"), 60), line);
  struct plm_cuda_algorithm *algorithm = lookup(table, &key);
  const bool is_new = algorithm == nullptr;
  if (table->tuned_count == MAX_TUNED && (is_new || !algorithm->tuned)) return PLM_OK;
  if (is_new) algorithm = add_algorithm(cuda, &key, error);
  if (algorithm == nullptr) return PLM_FAILURE;
  const struct plm_cuda_algorithm before = *algorithm;
  memcpy(algorithm->words, words, sizeof words);
  if (!plm_cuda_algorithm_accepts(cuda, algorithm)) {
    *algorithm = before;
    if (is_new) remove_last(table);
    return plm_error_set(error, PLM_UNSUPPORTED, "the library refuses the algorithm of a product");
  }
  algorithm->tuned = true;
  table->tuned_count += !before.tuned;
  return PLM_OK;
}

plm_status import_algorithms(struct plm_ops *ops, const char *text, struct plm_error *error)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  char name[128], today[160];
  plm_cuda_library_name(cuda, name);
  const int length = snprintf(today, sizeof today, "%s, %s", name, cuda->bf16 ? "bf16" : "fp32");
  const char *end = strchr(text, '\n');
  if (end == nullptr)
    return plm_error_set(error, PLM_FORMAT,
                         "the product algorithms have no first line that names the library");
  if (end - text != length || memcmp(text, today, (size_t)length) != 0)
    return plm_error_set(error, PLM_UNSUPPORTED, "the algorithms are for %.*s, and this is %s",
                         (int)(end - text), text, today);
  for (const char *line = end + 1; *line != '\0'; line = strchr(line, '\n') + 1)
    PLM_TRY(import_line(cuda, line, error)); /* checks that the line ends in a newline */
  return PLM_OK;
}

/* ---- products ---- */

/* The shape's algorithm. A new shape gets the proposed one; if tuning is on, it is measured.
 * Returns NULL after a failure. Valid until the next call. */
const struct plm_cuda_algorithm *find(struct plm_cuda *cuda, const struct plm_cuda_shape *shape,
                                      const struct plm_cuda_operands *operands,
                                      struct plm_error *error)
{
  struct plm_cuda_algorithms *table = cuda->algorithms;
  const struct key key = key_of(shape, alignment_of(operands));
  struct plm_cuda_algorithm *algorithm = lookup(table, &key);
  if (algorithm == nullptr) {
    algorithm = add_algorithm(cuda, &key, error);
    if (algorithm == nullptr) return nullptr;
    if (plm_cuda_algorithm_propose(cuda, algorithm, error) != PLM_OK) {
      remove_last(table);
      return nullptr;
    }
  }
  measure(cuda, algorithm, operands);
  return algorithm;
}

/* One product of a batch. */
struct plm_cuda_shape single_of(const struct plm_cuda_shape *shape)
{
  struct plm_cuda_shape single = *shape;
  single.batch = 1;
  single.stride_a = single.stride_b = single.stride_c = 0;
  return single;
}

/* The same for a batch whose products are alike: the algorithm of one of them. */
const struct plm_cuda_algorithm *find_for_batch(struct plm_cuda *cuda,
                                                const struct plm_cuda_shape *shape,
                                                const struct plm_cuda_operands *operands,
                                                struct plm_error *error)
{
  struct plm_cuda_algorithms *table = cuda->algorithms;
  const struct plm_cuda_shape single = single_of(shape);
  const struct plm_cuda_algorithm *one = find(cuda, &single, operands, error);
  if (one == nullptr) return nullptr;
  uint64_t words[WORDS];
  memcpy(words, one->words, sizeof words);
  const struct key key = key_of(shape, alignment_of(operands));
  struct plm_cuda_algorithm *algorithm = lookup(table, &key);
  if (algorithm != nullptr && memcmp(algorithm->words, words, sizeof words) == 0) return algorithm;
  if (algorithm == nullptr) algorithm = add_algorithm(cuda, &key, error);
  if (algorithm == nullptr) return nullptr;
  memcpy(algorithm->words, words, sizeof words);
  algorithm->refused = !plm_cuda_algorithm_accepts(cuda, algorithm);
  return algorithm;
}

/* The products of a batch for which the library does not take the algorithm. */
plm_status multiply_singly(struct plm_cuda *cuda, const struct plm_cuda_shape *shape,
                           const struct plm_cuda_operands *operands, struct plm_error *error)
{
  const struct plm_cuda_shape single = single_of(shape);
  const size_t act_bytes = cuda->ops.act_bytes;
  const size_t c_bytes = shape->float_c ? sizeof(float) : act_bytes;
  for (int32_t i = 0; i < shape->batch; i++) {
    struct plm_cuda_operands o = *operands;
    const size_t c_offset = (size_t)(i * shape->stride_c) * c_bytes;
    o.a = static_cast<const char *>(o.a) + (size_t)(i * shape->stride_a) * act_bytes;
    o.b = static_cast<const char *>(o.b) + (size_t)(i * shape->stride_b) * act_bytes;
    o.c = static_cast<char *>(o.c) + c_offset;
    if (o.addend != nullptr) o.addend = static_cast<const char *>(o.addend) + c_offset;
    const struct plm_cuda_algorithm *algorithm = find(cuda, &single, &o, error);
    if (algorithm == nullptr) return PLM_FAILURE;
    PLM_TRY(plm_cuda_algorithm_run(cuda, algorithm, &o, error));
  }
  return PLM_OK;
}

plm_status multiply(struct plm_cuda *cuda, const struct plm_cuda_shape *shape,
                    const struct plm_cuda_operands *operands, struct plm_error *error)
{
  const struct plm_cuda_shape single = single_of(shape);
  const struct plm_cuda_algorithm *algorithm =
      shape->batch == 1 ? find(cuda, &single, operands, error)
      : shape->alike    ? find_for_batch(cuda, shape, operands, error)
                        : find(cuda, shape, operands, error);
  if (algorithm == nullptr) return PLM_FAILURE;
  return algorithm->refused ? multiply_singly(cuda, shape, operands, error)
                            : plm_cuda_algorithm_run(cuda, algorithm, operands, error);
}

} // namespace

void plm_cuda_multiply(struct plm_cuda *cuda, const struct plm_cuda_shape *shape, void *c,
                       const void *a, const void *b, const void *addend)
{
  const struct plm_cuda_operands operands = {
      c, a, b, shape->add ? addend : nullptr, shape->alpha, shape->add ? shape->beta : 0};
  struct plm_error error = {};
  if (shape->M <= 0) return; /* no rows */
  if (multiply(cuda, shape, &operands, &error) == PLM_OK) return;
  struct plm_error *to = cuda->recording ? &cuda->recording_error : &cuda->error;
  if (to->status == PLM_OK) *to = error;
}

bool plm_cuda_tuning_allowed(const struct plm_cuda *cuda)
{
  return cuda->algorithms->tuning && !cuda->recording;
}

double plm_cuda_tuning_clock(void)
{
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void plm_cuda_tuning_count(struct plm_cuda *cuda, double seconds)
{
  cuda->algorithms->tuned.seconds += seconds;
  cuda->algorithms->tuned.products++;
}

plm_status plm_cuda_algorithms_open(struct plm_cuda *cuda, struct plm_error *error)
{
  cuda->algorithms = static_cast<struct plm_cuda_algorithms *>(calloc(1, sizeof *cuda->algorithms));
  if (cuda->algorithms == nullptr) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  return plm_cuda_choices_open(cuda, error);
}

void plm_cuda_algorithms_close(struct plm_cuda *cuda)
{
  plm_cuda_choices_close(cuda);
  if (cuda->algorithms == nullptr) return;
  for (int i = 0; i < cuda->algorithms->count; i++)
    plm_cuda_algorithm_release(&cuda->algorithms->of[i]);
  free(cuda->algorithms);
}

void plm_cuda_algorithms_register(struct plm_cuda *cuda)
{
  cuda->ops.tune = tune;
  cuda->ops.export_algorithms = export_algorithms;
  cuda->ops.import_algorithms = import_algorithms;
}
