/* See product_plans.cuh. */
#include "kernels/cuda/product_plans.cuh"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/relu2_products.cuh"

namespace
{

enum {
  MAX_PLANS = 2048,
  MAX_TUNED = MAX_PLANS / 2,
  SLOTS = 2 * MAX_PLANS, /* a power of two */
  NUMBERS = 15,          /* of a shape and its alignment */
  LINE_BYTES = 512,
  HEX_DIGITS = 16 /* of a word */
};

struct key {
  int64_t numbers[NUMBERS];
};

struct key key_of(const struct plm_cuda_shape *s, int64_t alignment)
{
  return {{s->M, s->N, s->K, s->lda, s->ldb, s->ldc, s->transpose_a, s->transpose_b, s->float_c,
           s->add, s->batch, s->stride_a, s->stride_b, s->stride_c, alignment}};
}

void from_key(const struct key *key, struct plm_cuda_plan *plan)
{
  const int64_t *n = key->numbers;
  struct plm_cuda_shape *s = &plan->shape;
  s->M = n[0], s->N = n[1], s->K = n[2];
  s->lda = n[3], s->ldb = n[4], s->ldc = n[5];
  s->transpose_a = n[6] != 0, s->transpose_b = n[7] != 0;
  s->float_c = n[8] != 0, s->add = n[9] != 0;
  s->batch = (int32_t)n[10];
  s->stride_a = n[11], s->stride_b = n[12], s->stride_c = n[13];
  plan->alignment = n[14];
}

/* splitmix64's finisher, number after number */
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

struct plm_cuda_plans {
  struct plm_cuda_plan plans[MAX_PLANS];
  struct key keys[MAX_PLANS];
  int16_t slots[SLOTS]; /* number of a plan + 1; 0: free */
  int count, tuned_count;
  bool tuning;
  struct plm_ops_tuned tuned; /* since opening */
};

namespace
{

/* The slot of the key, or the free one where it belongs. */
int16_t *slot_of(struct plm_cuda_plans *table, const struct key *key)
{
  unsigned at = hash(key);
  for (;; at = (at + 1) % SLOTS) {
    int16_t *slot = &table->slots[at];
    if (*slot == 0 || memcmp(&table->keys[*slot - 1], key, sizeof *key) == 0) return slot;
  }
}

/* Proposed plans are made again when they are wanted, the same. */
void drop_proposed(struct plm_cuda_plans *table)
{
  int kept = 0;
  for (int i = 0; i < table->count; i++) {
    if (!table->plans[i].tuned) {
      plm_cuda_plan_release(&table->plans[i]);
      continue;
    }
    table->keys[kept] = table->keys[i];
    table->plans[kept++] = table->plans[i];
  }
  table->count = kept;
  memset(table->slots, 0, sizeof table->slots);
  for (int i = 0; i < kept; i++) *slot_of(table, &table->keys[i]) = (int16_t)(i + 1);
}

/* A plan with neither algorithm nor tuning; there is room. */
struct plm_cuda_plan *add_plan(struct plm_cuda *cuda, const struct key *key,
                               struct plm_error *error)
{
  struct plm_cuda_plans *table = cuda->plans;
  if (table->count == MAX_PLANS) drop_proposed(table);
  struct plm_cuda_plan *plan = &table->plans[table->count];
  *plan = {};
  from_key(key, plan);
  if (plm_cuda_plan_make(cuda, plan, error) != PLM_OK) {
    plm_cuda_plan_release(plan);
    return nullptr;
  }
  table->keys[table->count++] = *key;
  *slot_of(table, key) = (int16_t)table->count;
  return plan;
}

void remove_last(struct plm_cuda_plans *table)
{
  *slot_of(table, &table->keys[table->count - 1]) = 0; /* the last of its run: it came last */
  plm_cuda_plan_release(&table->plans[--table->count]);
}

void measure(struct plm_cuda *cuda, struct plm_cuda_plan *plan,
             const struct plm_cuda_operands *operands)
{
  struct plm_cuda_plans *table = cuda->plans;
  if (!plm_cuda_plans_measure(cuda) || plan->tuned || table->tuned_count == MAX_TUNED) return;
  const double started = plm_cuda_plans_clock();
  plan->tuned = plm_cuda_plan_measure(cuda, plan, operands);
  table->tuned_count += plan->tuned;
  if (plan->tuned) plm_cuda_plans_measured(cuda, plm_cuda_plans_clock() - started);
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
  struct plm_cuda_plans *table = plm_cuda_of(ops)->plans;
  table->tuning = on;
  if (so_far != nullptr) *so_far = table->tuned;
}

plm_status export_plans(struct plm_ops *ops, char **text, struct plm_error *error)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  const struct plm_cuda_plans *table = cuda->plans;
  const size_t room = (size_t)(table->tuned_count + 1) * LINE_BYTES +
                      (size_t)plm_cuda_choices_count(cuda) * PLM_CHOICE_BYTES;
  char name[128], *out = static_cast<char *>(malloc(room));
  if (out == nullptr) return plm_error_set(error, PLM_NO_MEMORY, "no memory for plans");
  plm_cuda_library_name(cuda, name);
  size_t used = (size_t)snprintf(out, room, "%s, %s\n", name, cuda->narrow ? "bf16" : "fp32");
  for (int i = 0; i < table->count; i++) {
    const struct plm_cuda_plan *plan = &table->plans[i];
    if (!plan->tuned) continue;
    for (int j = 0; j < NUMBERS; j++)
      used +=
          (size_t)snprintf(out + used, room - used, "%lld ", (long long)table->keys[i].numbers[j]);
    for (uint64_t word : plan->algorithm.words)
      used += (size_t)snprintf(out + used, room - used, "%016llx", (unsigned long long)word);
    used += (size_t)snprintf(out + used, room - used, "\n");
  }
  plm_cuda_choices_print(cuda, out + used, room - used);
  *text = out;
  return PLM_OK;
}

bool parse_line(const char *line, struct key *key, struct plm_cuda_algorithm *algorithm)
{
  char digits[HEX_DIGITS + 1] = {}, *end;
  for (int64_t &number : key->numbers) {
    number = strtoll(line, &end, 10);
    if (end == line || *end != ' ' || number < 0) return false;
    line = end + 1;
  }
  for (uint64_t &word : algorithm->words) {
    for (int i = 0; i < HEX_DIGITS; i++)
      if (strchr("0123456789abcdef", line[i]) == nullptr || line[i] == '\0') return false;
    memcpy(digits, line, HEX_DIGITS);
    word = strtoull(digits, nullptr, 16);
    line += HEX_DIGITS;
  }
  const int64_t *n = key->numbers;
  return *line == '\n' && n[0] > 0 && n[1] > 0 && n[2] > 0 && n[10] > 0 && n[10] <= INT32_MAX;
}

plm_status import_line(struct plm_cuda *cuda, const char *line, struct plm_error *error)
{
  struct plm_cuda_plans *table = cuda->plans;
  struct key key;
  struct plm_cuda_algorithm algorithm;
  if (plm_cuda_choice_is(line)) return plm_cuda_choice_import(cuda, line, error);
  if (!parse_line(line, &key, &algorithm))
    return plm_error_set(error, PLM_FORMAT, "a plan of a product is not as it was written: %.60s",
                         line);
  if (*slot_of(table, &key) != 0 || table->tuned_count == MAX_TUNED) return PLM_OK;
  struct plm_cuda_plan *plan = add_plan(cuda, &key, error);
  if (plan == nullptr) return PLM_FAILURE;
  plan->algorithm = algorithm;
  if (!plm_cuda_plan_accepts(cuda, plan)) {
    remove_last(table);
    return plm_error_set(error, PLM_UNSUPPORTED, "the library refuses the algorithm of a product");
  }
  plan->tuned = true;
  table->tuned_count++;
  return PLM_OK;
}

plm_status import_plans(struct plm_ops *ops, const char *text, struct plm_error *error)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  char name[128], today[160];
  plm_cuda_library_name(cuda, name);
  const int length = snprintf(today, sizeof today, "%s, %s", name, cuda->narrow ? "bf16" : "fp32");
  const char *end = strchr(text, '\n');
  if (end == nullptr) return plm_error_set(error, PLM_FORMAT, "plans of products without a head");
  if (end - text != length || memcmp(text, today, (size_t)length) != 0)
    return plm_error_set(error, PLM_UNSUPPORTED, "the plans are of %.*s, this is %s",
                         (int)(end - text), text, today);
  for (const char *line = end + 1; *line != '\0'; line = strchr(line, '\n') + 1)
    PLM_TRY(import_line(cuda, line, error)); /* so it ends in a newline */
  return PLM_OK;
}

} // namespace

const struct plm_cuda_plan *plm_cuda_plan_find(struct plm_cuda *cuda,
                                               const struct plm_cuda_shape *shape,
                                               const struct plm_cuda_operands *operands)
{
  struct plm_cuda_plans *table = cuda->plans;
  const struct key key = key_of(shape, alignment_of(operands));
  const int16_t number = *slot_of(table, &key);
  struct plm_cuda_plan *plan = number > 0 ? &table->plans[number - 1] : nullptr;
  if (plan == nullptr) {
    struct plm_error error = {};
    plan = add_plan(cuda, &key, &error);
    if (plan != nullptr && plm_cuda_plan_propose(cuda, plan, &error) != PLM_OK) {
      remove_last(table);
      plan = nullptr;
    }
    if (plan == nullptr) {
      struct plm_error *to = cuda->recording ? &cuda->recording_error : &cuda->error;
      if (to->status == PLM_OK) *to = error;
      return nullptr;
    }
  }
  measure(cuda, plan, operands);
  return plan;
}

bool plm_cuda_plans_measure(const struct plm_cuda *cuda)
{
  return cuda->plans->tuning && !cuda->recording;
}

double plm_cuda_plans_clock(void)
{
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void plm_cuda_plans_measured(struct plm_cuda *cuda, double seconds)
{
  cuda->plans->tuned.seconds += seconds;
  cuda->plans->tuned.products++;
}

plm_status plm_cuda_plans_open(struct plm_cuda *cuda, struct plm_error *error)
{
  cuda->plans = static_cast<struct plm_cuda_plans *>(calloc(1, sizeof *cuda->plans));
  if (cuda->plans == nullptr) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  return plm_cuda_choices_open(cuda, error);
}

void plm_cuda_plans_close(struct plm_cuda *cuda)
{
  plm_cuda_choices_close(cuda);
  if (cuda->plans == nullptr) return;
  for (int i = 0; i < cuda->plans->count; i++) plm_cuda_plan_release(&cuda->plans->plans[i]);
  free(cuda->plans);
}

void plm_cuda_plans_register(struct plm_cuda *cuda)
{
  cuda->ops.tune = tune;
  cuda->ops.export_plans = export_plans;
  cuda->ops.import_plans = import_plans;
}
