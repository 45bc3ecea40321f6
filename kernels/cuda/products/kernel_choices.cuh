/* Work that two ways of kernels can do: which way was chosen for each shape. A choice is measured
 * while a run's first step tunes, or forced by the environment, and is kept as a line of text with
 * the product algorithms (product_algorithms.cuh). */
#ifndef PLM_KERNELS_CUDA_PRODUCTS_KERNEL_CHOICES_CUH
#define PLM_KERNELS_CUDA_PRODUCTS_KERNEL_CHOICES_CUH

#include "kernels/cuda/device/cuda_ops.cuh"

/* What is computed; the three numbers of its shape; its first and its second way. */
enum plm_choice {
  PLM_CHOICE_RELU2_FORWARD,      /* N I O: library, fused */
  PLM_CHOICE_RELU2_BACKWARD,     /* N I O: library, fused */
  PLM_CHOICE_ATTENTION_BACKWARD, /* B x heads, L, K: split, onepass */
  PLM_CHOICES
};
enum { PLM_CHOICE_NUMBERS = 3 };
struct plm_choice_shape {
  enum plm_choice what;
  int64_t numbers[PLM_CHOICE_NUMBERS];
};

/* Runs one of the two ways with `context`. Returns false after a failure. */
typedef bool (*plm_choice_run)(struct plm_cuda *cuda, const void *context, bool second);

/* Whether the shape takes the second way. If it is not known yet, and tuning is on, both are run
 * and measured; otherwise it is the first way, or the forced one. */
bool plm_cuda_takes_second(struct plm_cuda *cuda, const struct plm_choice_shape *shape,
                           plm_choice_run run, const void *context);

enum { PLM_CHOICE_BYTES = 128 }; /* the most that a line takes */
plm_status plm_cuda_choices_open(struct plm_cuda *cuda, struct plm_error *error);
void plm_cuda_choices_close(struct plm_cuda *cuda);
int plm_cuda_choices_count(const struct plm_cuda *cuda);
/* Prints lines such as "relu2_forward N I O fused" and returns their bytes. */
size_t plm_cuda_choices_print(const struct plm_cuda *cuda, char *out, size_t room);
/* Whether a line is a choice. */
bool plm_cuda_choice_is(const char *line);
/* Takes a choice. PLM_FORMAT: the line is damaged. PLM_UNSUPPORTED: the choice is not possible
 * here. */
plm_status plm_cuda_choice_import(struct plm_cuda *cuda, const char *line, struct plm_error *error);

/* ---- the library's side: products_cublaslt.cu, tests/emulation/products_plain.cc ---- */
/* Runs and measures both ways; *second becomes whether the second one is faster by more than the
 * noise of measuring. Returns false if it could not be measured now. */
bool plm_cuda_choice_measure(struct plm_cuda *cuda, const struct plm_choice_shape *shape,
                             plm_choice_run run, const void *context, bool *second);

#endif
