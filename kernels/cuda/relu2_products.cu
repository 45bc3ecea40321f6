/* Chooses how each product with relu2 is computed, and keeps the choices as text. */
#include "kernels/cuda/relu2_products.cuh"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/product_algorithms.cuh"

namespace
{

enum { MAX_CHOICES = 512 };

struct choice {
  bool backward, fused;
  int64_t N, I, O;
};

const char *const names[] = {"relu2_forward", "relu2_backward"};
const char *const ways[] = {"library", "fused"};

} // namespace

struct plm_cuda_choices {
  struct choice of[MAX_CHOICES];
  int count;
};

namespace
{

/* A linear search: few shapes are measured, and the first are the most frequent. */
const struct choice *find(const struct plm_cuda *cuda, const struct choice *wanted)
{
  const struct plm_cuda_choices *choices = cuda->choices;
  for (int i = 0; i < choices->count; i++) {
    const struct choice *at = &choices->of[i];
    if (at->N == wanted->N && at->I == wanted->I && at->O == wanted->O &&
        at->backward == wanted->backward)
      return at;
  }
  return nullptr;
}

void keep(struct plm_cuda *cuda, const struct choice *choice)
{
  if (cuda->choices->count < MAX_CHOICES) cuda->choices->of[cuda->choices->count++] = *choice;
}

/* A forced choice is also kept, so that a resume without the environment variable does the same. */
bool goes_fused(struct plm_cuda *cuda, const struct plm_relu2_product *p, plm_relu2_library library)
{
  if (cuda->relu2 == PLM_RELU2_LIBRARY || !plm_cuda_product_sm90_takes(cuda, p)) return false;
  struct choice choice = {plm_relu2_is_backward(p), cuda->relu2 == PLM_RELU2_FUSED, p->N, p->I,
                          p->O};
  const struct choice *known = find(cuda, &choice);
  if (known != nullptr) return known->fused;
  if (!plm_cuda_tuning_allowed(cuda) || cuda->choices->count == MAX_CHOICES) return choice.fused;
  const double started = plm_cuda_tuning_clock();
  /* a product that overwrites its own operand cannot be run several times */
  if (!choice.fused && (p->out == p->hidden || p->out == p->a ||
                        !plm_cuda_choice_measure(cuda, p, library, &choice.fused)))
    return false;
  plm_cuda_tuning_count(cuda, plm_cuda_tuning_clock() - started);
  keep(cuda, &choice);
  return choice.fused;
}

/* Skips a word and the character `end` after it. */
bool take_word(const char **line, const char *word, char end)
{
  const size_t length = strlen(word);
  if (strncmp(*line, word, length) != 0 || (*line)[length] != end) return false;
  *line += length + 1;
  return true;
}

bool take_either(const char **line, const char *const words[2], char end, bool *second)
{
  *second = take_word(line, words[1], end);
  return *second || take_word(line, words[0], end);
}

bool parse(const char *line, struct choice *choice)
{
  if (!take_either(&line, names, ' ', &choice->backward)) return false;
  for (int64_t *number : {&choice->N, &choice->I, &choice->O}) {
    char *end;
    *number = strtoll(line, &end, 10);
    if (end == line || *end != ' ' || *number < 1) return false;
    line = end + 1;
  }
  return take_either(&line, ways, '\n', &choice->fused);
}

} // namespace

void plm_cuda_relu2_product(struct plm_cuda *cuda, const struct plm_relu2_product *p,
                            plm_relu2_library library)
{
  if (p->N <= 0) return;
  if (goes_fused(cuda, p, library) && plm_cuda_product_sm90(cuda, p)) return;
  library(cuda, p);
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
    used += (size_t)snprintf(out + used, room - used, "%s %lld %lld %lld %s\n", names[at->backward],
                             (long long)at->N, (long long)at->I, (long long)at->O, ways[at->fused]);
  }
  return used;
}

bool plm_cuda_choice_is(const char *line)
{
  return strncmp(line, "relu2_", strlen("relu2_")) == 0;
}

plm_status plm_cuda_choice_import(struct plm_cuda *cuda, const char *line, struct plm_error *error)
{
  struct choice choice;
  if (!parse(line, &choice))
    return plm_error_set(error, PLM_FORMAT,
                         "a line is not a choice for a product with relu2: %.60s", line);
  if (choice.fused ? cuda->relu2 == PLM_RELU2_LIBRARY : cuda->relu2 == PLM_RELU2_FUSED)
    return plm_error_set(
        error, PLM_UNSUPPORTED,
        "the algorithms have relu2 %s products, which this device or PLM_CUDA_RELU2 does not allow",
        choice.fused ? "fused with" : "separate from");
  keep(cuda, &choice);
  return PLM_OK;
}
