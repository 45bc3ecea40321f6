/* The table of choices between two ways, and its text. */
#include "kernels/cuda/products/kernel_choices.cuh"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/products/product_algorithms.cuh"

namespace
{

enum { MAX_CHOICES = 512 };

struct choice {
  struct plm_choice_shape shape;
  bool second;
};

/* What can be chosen, and how it is called in the text and in messages. */
const struct kind {
  const char *name, *ways[2], *variable;
} kinds[PLM_CHOICES] = {
    {"relu2_forward", {"library", "fused"}, "PLM_CUDA_RELU2"},
    {"relu2_backward", {"library", "fused"}, "PLM_CUDA_RELU2"},
    {"attention_backward", {"split", "onepass"}, "PLM_CUDA_ATTENTION_BACKWARD"},
};

enum plm_ways ways_of(const struct plm_cuda *cuda, enum plm_choice what)
{
  return what == PLM_CHOICE_ATTENTION_BACKWARD ? cuda->attention_backward : cuda->relu2;
}

} // namespace

struct plm_cuda_choices {
  struct choice of[MAX_CHOICES];
  int count;
};

namespace
{

bool same(const struct plm_choice_shape *a, const struct plm_choice_shape *b)
{
  return a->what == b->what && memcmp(a->numbers, b->numbers, sizeof a->numbers) == 0;
}

/* A linear search: few shapes are measured, and the first are the most frequent. */
struct choice *find(const struct plm_cuda *cuda, const struct plm_choice_shape *wanted)
{
  struct plm_cuda_choices *choices = cuda->choices;
  for (int i = 0; i < choices->count; i++)
    if (same(&choices->of[i].shape, wanted)) return &choices->of[i];
  return nullptr;
}

/* Replaces what the shape had. Nothing happens if the table is full. */
void keep(struct plm_cuda *cuda, const struct choice *choice)
{
  struct choice *known = find(cuda, &choice->shape);
  if (known != nullptr)
    *known = *choice;
  else if (cuda->choices->count < MAX_CHOICES)
    cuda->choices->of[cuda->choices->count++] = *choice;
}

/* Skips a word and the character `end` after it. */
bool skip_word(const char **line, const char *word, char end)
{
  const size_t length = strlen(word);
  if (strncmp(*line, word, length) != 0 || (*line)[length] != end) return false;
  *line += length + 1;
  return true;
}

bool parse(const char *line, struct choice *choice)
{
  int what = 0;
  while (what < PLM_CHOICES && !skip_word(&line, kinds[what].name, ' ')) what++;
  if (what == PLM_CHOICES) return false;
  choice->shape.what = (enum plm_choice)what;
  for (int64_t &number : choice->shape.numbers) {
    char *end;
    number = strtoll(line, &end, 10);
    if (end == line || *end != ' ' || number < 1) return false;
    line = end + 1;
  }
  choice->second = skip_word(&line, kinds[what].ways[1], '\n');
  return choice->second || skip_word(&line, kinds[what].ways[0], '\n');
}

} // namespace

/* A forced choice is also kept, so that a resume without the environment variable does the same. */
bool plm_cuda_takes_second(struct plm_cuda *cuda, const struct plm_choice_shape *shape,
                           plm_choice_run run, const void *context)
{
  const enum plm_ways ways = ways_of(cuda, shape->what);
  if (ways == PLM_WAYS_FIRST) return false;
  struct choice choice = {*shape, ways == PLM_WAYS_SECOND};
  const struct choice *known = find(cuda, shape);
  if (known != nullptr) return known->second;
  if (!plm_cuda_tuning_allowed(cuda) || cuda->choices->count == MAX_CHOICES) return choice.second;
  const double started = plm_cuda_tuning_clock();
  if (!choice.second && !plm_cuda_choice_measure(cuda, shape, run, context, &choice.second))
    return false;
  plm_cuda_tuning_count(cuda, plm_cuda_tuning_clock() - started);
  keep(cuda, &choice);
  return choice.second;
}

plm_status plm_cuda_choices_open(struct plm_cuda *cuda, struct plm_error *error)
{
  cuda->choices = static_cast<struct plm_cuda_choices *>(calloc(1, sizeof *cuda->choices));
  if (cuda->choices == nullptr) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  return PLM_OK;
}

void plm_cuda_choices_close(struct plm_cuda *cuda)
{
  free(cuda->choices);
}

int plm_cuda_choices_count(const struct plm_cuda *cuda)
{
  return cuda->choices->count;
}

size_t plm_cuda_choices_print(const struct plm_cuda *cuda, char *out, size_t room)
{
  size_t used = 0;
  for (int i = 0; i < cuda->choices->count; i++) {
    const struct choice *at = &cuda->choices->of[i];
    const struct kind *kind = &kinds[at->shape.what];
    const int64_t *n = at->shape.numbers;
    used +=
        (size_t)snprintf(out + used, room - used, "%s %lld %lld %lld %s\n", kind->name,
                         (long long)n[0], (long long)n[1], (long long)n[2], kind->ways[at->second]);
  }
  return used;
}

bool plm_cuda_choice_is(const char *line)
{
  return strncmp(line, "relu2_", strlen("relu2_")) == 0 ||
         strncmp(line, "attention_", strlen("attention_")) == 0;
}

plm_status plm_cuda_choice_import(struct plm_cuda *cuda, const char *line, struct plm_error *error)
{
  struct choice choice;
  if (!parse(line, &choice))
    return plm_error_set(error, PLM_FORMAT,
                         "the saved algorithms have a line that cannot be read: %.*s",
                         (int)std::min<size_t>(strcspn(line, "\n"), 60), line);
  const struct kind *kind = &kinds[choice.shape.what];
  const enum plm_ways ways = ways_of(cuda, choice.shape.what);
  if (ways == (choice.second ? PLM_WAYS_FIRST : PLM_WAYS_SECOND))
    return plm_error_set(
        error, PLM_UNSUPPORTED,
        "the saved algorithms want \"%s\" for %s, but this device does not support it, or the "
        "environment variable %s forbids it",
        kind->ways[choice.second], kind->name, kind->variable);
  keep(cuda, &choice);
  return PLM_OK;
}
