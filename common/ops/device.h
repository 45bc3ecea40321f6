/* The device and the precision in which a process computes, as users choose them. */
#ifndef PLM_COMMON_OPS_DEVICE_H
#define PLM_COMMON_OPS_DEVICE_H

#include <stdbool.h>

enum plm_device { PLM_DEVICE_AUTO, PLM_DEVICE_CPU, PLM_DEVICE_CUDA };
/* INT8: products of the blocks read int8 weights and activations, and all else is fp32, except that
 * attention may round to bf16 where that is faster. Only for inference on a CPU. */
enum plm_precision {
  PLM_PRECISION_AUTO,
  PLM_PRECISION_FP32,
  PLM_PRECISION_BF16,
  PLM_PRECISION_INT8
};

/* How a CPU computes products of bf16 operands: with bf16 instructions, or as fp32 products of
 * their values. Sums are fp32 in both, in another order. AUTO: what is faster on the processor
 * (kernels/cpu/bf16_products.h). */
enum plm_bf16_products { PLM_BF16_AUTO, PLM_BF16_NATIVE, PLM_BF16_BY_FP32 };

/* Names of the values in files and options, in the order of the enum and terminated by NULL. */
extern const char *const plm_device_names[];
extern const char *const plm_precision_names[];
extern const char *const plm_training_precision_names[]; /* those in which a model is trained */
extern const char *const plm_bf16_products_names[];

/* Whether this is the name of the CPU, as in ops->name. */
bool plm_device_is_cpu(const char *name);

const char *plm_precision_name(enum plm_precision precision);

#endif
