# plm-pipeline. `make help` lists the targets.
#
# Sources are found, not listed. Every .c file under common/, kernels/cpu/, packer/, trainer/, evaluator/
# and stages/ is built. Under tests/, a test_*.c file is a test program, a test_*.sh file a test script,
# a test_*.py file a Python test, and a tool_*.c file with the other files of its folder a program that
# scripts run; tests/gpu/gpu_*.c are the programs of `make gpu-check`.
#
# Files under kernels/cpu/isa/ are compiled once for each instruction set. For the tests, the files of
# kernels/cuda/ are also compiled for the CPU, where the emulation in tests/emulation/ runs them.
#
#   make SAN=address,undefined …   the same targets under sanitizers, in build/asan
#   make SAN=thread …              in build/tsan

VERSION := 0.3.0
SHELL := /bin/bash
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := all

ifeq ($(SAN),thread)
BUILD := build/tsan
else ifneq ($(findstring fuzzer,$(SAN)),)
BUILD := build/guided
else ifneq ($(SAN),)
BUILD := build/asan
else
BUILD := build
endif

CC := gcc
CXX := g++
# V=1 shows the commands
Q := $(if $(V),,@)
# `make` itself prints, and a shell starts mkdir only where a folder is missing: a build has 1500 such recipes.
EMPTY :=
say = $(if $(V),,$(info $(EMPTY)  $(1)$(if $(filter CC LD,$(1)),  ,$(if $(filter CXX,$(1)), )) $(2)))
in_folder = [ -d $(@D) ] || mkdir -p $(@D);
CCACHE := $(shell command -v ccache 2>/dev/null)
# ccache takes no precompiled header (KERNEL_HEADERS) without this.
export CCACHE_SLOPPINESS ?= pch_defines,time_macros
ARCH := $(shell uname -m)
JOBS ?= $(shell nproc)

WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes \
            -Wpointer-arith -Wundef -Wvla -Wno-sign-conversion -Werror=incompatible-pointer-types
OPTIMISE ?= $(if $(SAN),-O1,-O2)
# The debugging information of a stack trace, which takes a fifth less to compile than all of it (make CFLAGS=-ggdb).
CFLAGS ?= -g1
ALL_CFLAGS := -std=gnu17 $(WARNINGS) -fno-strict-aliasing -ffp-contract=off \
              -fstack-protector-strong -I. -D_GNU_SOURCE -DPLM_VERSION='"$(VERSION)"' \
              -pthread $(CFLAGS)
ALL_CXXFLAGS := -std=gnu++17 -Wall -Wextra -Wshadow -Wno-unknown-pragmas -fno-strict-aliasing \
                -ffp-contract=off -fPIC -fvisibility=hidden -I. -D_GNU_SOURCE \
                -DPLM_VERSION='"$(VERSION)"' -DPLM_EMULATE -Itests $(CFLAGS)
ALL_LDFLAGS := -pthread -Wl,--as-needed $(LDFLAGS)
ifneq ($(SAN),)
ALL_CFLAGS += -fsanitize=$(SAN) -fno-omit-frame-pointer -DPLM_SANITIZED=1
ALL_CXXFLAGS += -fsanitize=$(SAN) -fno-omit-frame-pointer
ifneq ($(SAN),thread)
ALL_CFLAGS += -fno-sanitize-recover=all
ALL_CXXFLAGS += -fno-sanitize-recover=all
else
# The emulation switches stacks, and TSan's record of function calls knows only one (stack_switch.h).
ALL_CXXFLAGS += --param=tsan-instrument-func-entry-exit=0
endif
ALL_LDFLAGS += -fsanitize=$(SAN)
ifneq ($(findstring fuzzer,$(SAN)),)
ALL_CFLAGS += -DPLM_LIBFUZZER -Wno-string-conversion -Wno-unneeded-internal-declaration
endif
endif

# A device faults at a misaligned access, so the emulated kernels are compiled with a check of it.
# Other sanitizers have their own (tests/emulation/alignment.cc).
ifeq ($(SAN),)
ALIGNMENT_CHECK := -fsanitize=alignment -fno-sanitize-recover=alignment
OWN_ALIGNMENT_CHECK := -DPLM_OWN_ALIGNMENT_CHECK
endif

# The programs and libplm_cuda.so must be compiled with the same headers: both carry their digest.
INTERFACE_HEADERS := $(sort $(wildcard common/ops/*.h common/collective/*.h)) common/base/status.h kernels/backend_library.h
INTERFACE := $(shell cat $(INTERFACE_HEADERS) | sha256sum | cut -c1-16)
INTERFACE_FLAG := -DPLM_BACKEND_INTERFACE='"$(INTERFACE)"'

# Libraries that every program links, and those that only trainer and evaluator link.
BASE_LIBS := -lcsv -lzmq -llmdb -lzstd -lyaml -lcjson -lxxhash -lsodium -lz -lm
# oneDNN if its headers are installed, else a CBLAS (fp32 only); `make PRODUCTS=cblas BUILD=…` chooses.
PRODUCTS ?= $(if $(wildcard /usr/include/oneapi/dnnl/dnnl.h),dnnl,cblas)
PRODUCT_LIBS_dnnl := -ldnnl -lgomp
PRODUCT_LIBS_cblas := -lopenblas
COMPUTE_LIBS := $(PRODUCT_LIBS_$(PRODUCTS)) $(BASE_LIBS) -ldl

# ---- sources ------------------------------------------------------------------------------------
find_c = $(shell find $(1) -name '*.c' -not -path '*/isa/*' 2>/dev/null | LC_ALL=C sort)
COMMON_SRC := $(call find_c,common)
CPU_SRC := $(wildcard kernels/*.c) \
           $(filter-out $(foreach p,$(filter-out $(PRODUCTS),dnnl cblas),%/product_$(p).c),\
             $(call find_c,kernels/cpu))
ISA_SRC := $(shell find kernels/cpu/isa -name '*.c' 2>/dev/null | LC_ALL=C sort)
CUDA_SRC := $(shell find kernels/cuda -name '*.cu' | LC_ALL=C sort)
# The CUDA library and the driver, which the emulation replaces (tests/emulation/*_plain.cc).
DEVICE_ONLY := kernels/cuda/products/products_cublaslt.cu kernels/cuda/sm90/tile_maps.cu
EMULATION_SRC := $(sort $(wildcard tests/emulation/*.cc))
NCCL_EMULATION_SRC := $(sort $(wildcard tests/emulation/nccl/*.cc))
STAGES := packer trainer evaluator stages
STAGE_SRC := $(filter-out %_main.c,$(call find_c,$(STAGES)))
# They replace functions of the C library, so only test programs link them, and not those that measure.
CHECKS := $(patsubst %,tests/support/harness/%.c,checked_memory unchecked_memory guarded_blocks checked_locks)
TEST_SUPPORT_SRC := $(filter-out $(CHECKS),$(call find_c,tests/support))
TEST_SRC := $(shell find tests -name 'test_*.c' -not -path 'tests/gpu/*' | LC_ALL=C sort)
FUZZ_SRC := $(shell find tests/fuzz -name 'fuzz_*.c' 2>/dev/null | LC_ALL=C sort)
TOOL_SRC := $(shell find tests -name 'tool_*.c' -not -path 'tests/gpu/*' | LC_ALL=C sort)
GPU_SRC := $(shell find tests/gpu -name 'gpu_*.c' 2>/dev/null | LC_ALL=C sort)
BENCH_SRC := $(shell find tests/bench -name 'bench_*.c' 2>/dev/null | LC_ALL=C sort)
TEST_SCRIPTS := $(shell find tests -name 'test_*.sh' -not -path 'tests/gpu/*' | LC_ALL=C sort)

ifeq ($(ARCH),x86_64)
ISAS := avx512 avx2 portable
else
ISAS := portable
endif
# Only the bf16 kernels use the bf16 instructions (kernels/cpu/cpu_backend.c).
ISA_FLAGS_avx512 := -march=x86-64-v4 -mavx512bf16 -mprefer-vector-width=512
ISA_FLAGS_avx2 := -march=x86-64-v3
ISA_FLAGS_portable :=

object = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
COMMON_OBJ := $(call object,$(COMMON_SRC))
CPU_OBJ := $(call object,$(CPU_SRC)) \
           $(foreach i,$(ISAS),$(patsubst kernels/cpu/isa/%.c,$(BUILD)/obj/kernels/cpu/isa/%.$(i).o,$(ISA_SRC)))
STAGE_OBJ := $(call object,$(STAGE_SRC))
EMULATED_OBJ := $(patsubst %,$(BUILD)/obj/emulated/%.o,$(filter-out $(DEVICE_ONLY),$(CUDA_SRC)) $(EMULATION_SRC))

BIN := $(BUILD)/bin
LIB := $(BUILD)/lib
# The CUDA backend is left out with CUDA=0, without nvcc, and under sanitizers.
NVCC ?= $(firstword $(wildcard $(CUDA_HOME:%=%/bin/nvcc)) $(shell command -v nvcc 2>/dev/null) \
          $(wildcard /usr/local/cuda/bin/nvcc))
# The shared libraries that the programs load have a folder of their own, because no other program can use them.
CUDA_LIBRARY := $(LIB)/plm-pipeline/libplm_cuda.so
MPI_LIBRARY := $(LIB)/plm-pipeline/libplm_mpi.so
# Those that CUDA=0 and MPI=0 leave out. What an earlier `make` built of them is removed, so that this folder has
# only what belongs to the programs. Their objects stay.
LEFT_OUT := $(if $(filter 0,$(CUDA)),$(CUDA_LIBRARY)) $(if $(filter 0,$(MPI)),$(MPI_LIBRARY))
CUDA ?= $(if $(NVCC),$(if $(SAN),0,1),0)
# The engine of several ranks is left out with MPI=0, without mpi.h, and under sanitizers.
MPI_FLAGS := $(shell pkg-config --cflags ompi-c 2>/dev/null)
MPI_LIBS := $(shell pkg-config --libs ompi-c 2>/dev/null)
MPI ?= $(if $(MPI_LIBS),$(if $(SAN),0,1),0)
# Tests of single files of the engine have functions of their own in place of MPI's, and need only mpi.h.
ifeq ($(MPI_LIBS),)
TEST_SRC := $(filter-out tests/kernels/mpi/%,$(TEST_SRC))
endif
PROGRAMS := $(BIN)/plm-pipeline $(BIN)/plm-packer $(BIN)/plm-trainer $(BIN)/plm-evaluator
TEST_BIN := $(patsubst tests/%.c,$(BUILD)/tests/%,$(TEST_SRC))
FUZZ_BIN := $(patsubst tests/%.c,$(BUILD)/tests/%,$(FUZZ_SRC))
TOOL_BIN := $(patsubst tests/%.c,$(BUILD)/tests/%,$(TOOL_SRC))
BENCH_BIN := $(patsubst tests/%.c,$(BUILD)/tests/%,$(BENCH_SRC))
GPU_BIN := $(patsubst tests/%.c,$(BUILD)/tests/%,$(GPU_SRC))

# ---- building -----------------------------------------------------------------------------------
.PHONY: all left-out
all: left-out $(PROGRAMS) $(if $(filter-out 0,$(CUDA)),$(CUDA_LIBRARY)) $(if $(filter-out 0,$(MPI)),$(MPI_LIBRARY)) ## build the four programs into build/bin, the CUDA backend if nvcc is found, and the MPI engine if Open MPI is (CUDA=0 and MPI=0 leave them out)
left-out:
	$(if $(strip $(LEFT_OUT)),@rm -f $(LEFT_OUT))

# The operators, and the tests' reference computations in double precision, are compiled with -O3.
$(BUILD)/obj/kernels/%.o: OPTIMISE := -O3
$(BUILD)/obj/tests/support/reference/%.o: OPTIMISE := -O3
# Emulated kernels spend their time in the emulation, and take a third less to compile with -O1 than with -O2.
$(BUILD)/obj/emulated/kernels/%.o $(BUILD)/obj/emulated/kernel_headers.h.gch: OPTIMISE := -O1
$(BUILD)/obj/emulated/tests/emulation/%.o: OPTIMISE := -O3
$(BUILD)/obj/emulated/kernels/%.o $(BUILD)/obj/emulated/tests/emulation/planted%.o: private ALL_CXXFLAGS += $(ALIGNMENT_CHECK)
$(BUILD)/obj/emulated/tests/emulation/alignment.cc.o: ALL_CXXFLAGS += $(OWN_ALIGNMENT_CHECK)
$(BUILD)/obj/tests/%.o: OPTIMISE := -O1
$(BUILD)/obj/tests/bench/%.o $(BUILD)/obj/tests/support/bench/%.o $(BUILD)/obj/tests/support/operators/%.o: OPTIMISE := -O2
$(BUILD)/obj/tests/support/operators/attention_case.o: OPTIMISE := -O3
# This one has loops over every received token, which GCC vectorises from -O3 on.
$(BUILD)/obj/common/wire/data.o: OPTIMISE := -O3

# These files hold the flags. A file is written when its flags change, so that objects are compiled again.
keep = @$(in_folder) printf '%s\n' "$$FLAGS" | cmp -s - $@ || printf '%s\n' "$$FLAGS" >$@
COMPILING := $(CC) $(CXX) $(OPTIMISE) $(ALL_CFLAGS) $(ALL_CXXFLAGS)
$(BUILD)/obj/flags: export FLAGS = $(COMPILING)
$(BUILD)/obj/flags: FORCE
	$(keep)
.PHONY: FORCE
COMPILED_BY := Makefile $(BUILD)/obj/flags

$(BUILD)/obj/%.o: %.c $(COMPILED_BY)
	$(call say,CC,$<)
	$(Q)$(in_folder) $(CCACHE) $(CC) $(OPTIMISE) $(ALL_CFLAGS) -MMD -MP -c $< -o $@

# The digest is compiled into these objects, so they depend on all of the headers.
$(BUILD)/obj/kernels/backend.o $(BUILD)/obj/emulated/kernels/cuda/library.cu.o \
$(BUILD)/obj/cuda/kernels/cuda/library.cu.o: $(INTERFACE_HEADERS)
$(BUILD)/obj/kernels/backend.o $(BUILD)/obj/tests/kernels/test_backend_choice.o: ALL_CFLAGS += $(INTERFACE_FLAG)
$(BUILD)/obj/emulated/kernels/cuda/library.cu.o: private ALL_CXXFLAGS += $(INTERFACE_FLAG)
$(BUILD)/obj/cuda/kernels/cuda/library.cu.o: NVCC_FLAGS += $(INTERFACE_FLAG)

# Anything here may change the bits of a step. A resume by another build reports that.
DIGESTED := $(sort $(shell find common kernels trainer -name '*.[ch]' -o -name '*.cu*' -o -name '*.cc'))
DIGEST := $(shell { cat $(DIGESTED); $(CC) --version 2>/dev/null; echo '$(OPTIMISE) $(ALL_CFLAGS) $(PRODUCTS)'; } | sha256sum | cut -c1-16)
$(BUILD)/obj/trainer/open/open_device.o: $(DIGESTED)
$(BUILD)/obj/trainer/open/open_device.o: ALL_CFLAGS += -DPLM_BUILD_DIGEST='"$(DIGEST)"'

$(BUILD)/obj/common/huggingface/modeling_text.o: common/huggingface/modeling_plm.py
$(BUILD)/obj/stages/kubernetes/kubernetes_files.o: stages/kubernetes/run.yaml.in stages/kubernetes/pod.yaml.in
$(BUILD)/obj/stages/slurm/slurm_script.o: stages/slurm/job.sh.in
$(BUILD)/obj/stages/views/report_css.o: stages/views/report.css

define isa_rule
$(BUILD)/obj/kernels/cpu/isa/%.$(1).o: kernels/cpu/isa/%.c $(COMPILED_BY)
	$$(call say,CC,$$< [$(1)])
	$(Q)$$(in_folder) $(CCACHE) $(CC) $(ALL_CFLAGS) -O3 -ffp-contract=fast -fno-math-errno -fno-trapping-math \
	  $(ISA_FLAGS_$(1)) -DPLM_ISA=$(1) -DPLM_ISA_$(1)=1 -MMD -MP -c $$< -o $$@
endef
$(foreach i,$(ISAS),$(eval $(call isa_rule,$(i))))

# The kernels' common headers take longer to read than most kernels, so they are compiled first, once.
KERNEL_HEADERS := $(BUILD)/obj/emulated/kernel_headers.h
ifeq ($(SAN),)
KERNEL_OBJ := $(filter $(BUILD)/obj/emulated/kernels/%,$(EMULATED_OBJ))
$(KERNEL_OBJ): private ALL_CXXFLAGS += -include $(KERNEL_HEADERS)
$(KERNEL_OBJ): $(KERNEL_HEADERS).gch
$(KERNEL_HEADERS): ;
$(KERNEL_HEADERS).gch: private ALL_CXXFLAGS += $(ALIGNMENT_CHECK)
$(KERNEL_HEADERS).gch: kernels/cuda/device/cuda_ops.cuh $(COMPILED_BY)
	$(call say,CXX,$< [emulated])
	$(Q)$(in_folder) echo '#include "$<"' >$(KERNEL_HEADERS); \
	  $(CCACHE) $(CXX) $(OPTIMISE) $(ALL_CXXFLAGS) -MMD -MP -x c++-header -c $(KERNEL_HEADERS) -o $@
endif

$(BUILD)/obj/emulated/%.o: % $(COMPILED_BY)
	$(call say,CXX,$< [emulated])
	$(Q)$(in_folder) $(CCACHE) $(CXX) $(OPTIMISE) $(ALL_CXXFLAGS) -MMD -MP -x c++ -c $< -o $@

archive = @$(in_folder) rm -f $@; $(AR) rcs $@ $^
$(LIB)/libplm_common.a: $(COMMON_OBJ)
	$(archive)
$(LIB)/libplm_cpu.a: $(CPU_OBJ)
	$(archive)

# A shared backend has its own copy of the error functions, so it needs no symbol of the program.
$(BUILD)/obj/library/%.o: %.c $(COMPILED_BY)
	$(call say,CC,$< [library])
	$(Q)$(in_folder) $(CCACHE) $(CC) $(OPTIMISE) $(ALL_CFLAGS) -fPIC -fvisibility=hidden -MMD -MP -c $< -o $@
LIBRARY_OBJ := $(BUILD)/obj/library/common/base/status.o
# What the CUDA backend needs besides, to exchange bytes with other ranks and to keep files.
DEVICE_LIBRARY_OBJ := $(LIBRARY_OBJ) $(patsubst %,$(BUILD)/obj/library/common/%.o,\
                        base/process/thread base/files/descriptors base/files/file ops/measured_folder collective/collective)
# The engine that moves bytes between ranks. Only this library is linked with MPI.
MPI_OBJ := $(patsubst %.c,$(BUILD)/obj/library/%.o,$(wildcard kernels/mpi/*.c) common/base/process/thread.c)
$(BUILD)/obj/library/kernels/mpi/%.o: ALL_CFLAGS += $(patsubst -I%,-isystem %,$(MPI_FLAGS))
$(MPI_LIBRARY): $(MPI_OBJ) $(LIBRARY_OBJ)
	$(call say,LD,$@)
	$(Q)$(in_folder) $(CC) -shared -o $@ $^ -Wl,-z,defs $(ALL_LDFLAGS) $(MPI_LIBS)
$(BUILD)/obj/tests/kernels/mpi/%.o: ALL_CFLAGS += $(patsubst -I%,-isystem %,$(MPI_FLAGS))
$(BUILD)/tests/kernels/mpi/test_mpi_watch $(BUILD)/tests/kernels/mpi/test_mpi_silence: \
  $(BUILD)/obj/library/kernels/mpi/mpi_watch.o $(BUILD)/obj/tests/kernels/mpi/post_office.o $(BUILD)/obj/tests/kernels/mpi/watched_ranks.o
$(BUILD)/tests/kernels/mpi/test_mpi_transfers: $(BUILD)/obj/library/kernels/mpi/mpi_carrier.o $(BUILD)/obj/library/kernels/mpi/mpi_library.o
# The emulated backend. Programs load it (PLM_CUDA_LIBRARY), and test programs are linked with it; because it is
# shared, they need not be linked again when a kernel changes.
EMULATED_LIBRARY := $(BUILD)/tests/lib/libplm_cuda_emulated.so
define link_emulation
$(call say,LD,$@)
	$(Q)$(in_folder) $(CXX) -shared -Wl,-soname,$(@F) -Wl,--build-id -o $@ $^ $(if $(SAN),,-Wl,-z,defs) $(ALL_LDFLAGS)
endef
$(EMULATED_LIBRARY): $(EMULATED_OBJ) $(DEVICE_LIBRARY_OBJ)
	$(link_emulation)
# Products by cuBLASLt on the CPU: a library of plain loops behind the real header, if that is installed. These
# tests are linked a second time, with it in place of tests/emulation/products_plain.cc.
CUBLASLT_HEADER := $(firstword $(wildcard $(addsuffix /cublasLt.h,$(CUDA_HOME:%=%/include) \
                     $(patsubst %/bin/nvcc,%/include,$(NVCC)) /usr/local/cuda/include /usr/include)))
CUBLASLT_OBJ := $(patsubst %,$(BUILD)/obj/emulated/%.o,\
                  kernels/cuda/products/products_cublaslt.cu $(sort $(wildcard tests/emulation/cublaslt/*.cc)))
$(BUILD)/obj/emulated/tests/emulation/cublaslt/%.o: OPTIMISE := -O3
CUBLASLT_LIBRARY := $(BUILD)/tests/lib/libplm_cuda_cublaslt.so
$(CUBLASLT_LIBRARY): $(filter-out %/products_plain.cc.o,$(EMULATED_OBJ)) $(CUBLASLT_OBJ) $(DEVICE_LIBRARY_OBJ)
	$(link_emulation)
$(CUBLASLT_OBJ): ALL_CXXFLAGS += -idirafter $(dir $(CUBLASLT_HEADER)) -include tests/emulation/cublaslt/cublaslt_header.h
CUBLASLT_TESTS := kernels/test_ops_products kernels/test_ops_optimizer kernels/test_ops_recordings kernels/test_ops_no_rows \
                  kernels/cuda/products/test_tuning_clocks
CUBLASLT_BIN := $(if $(CUBLASLT_HEADER),$(CUBLASLT_TESTS:%=$(BUILD)/tests/%_cublaslt))
# An emulated NCCL, in the form that the emulated backend loads (PLM_NCCL_LIBRARY).
EMULATED_NCCL := $(BUILD)/tests/lib/libnccl_emulated.so
NCCL_EMULATED_OBJ := $(NCCL_EMULATION_SRC:%=$(BUILD)/obj/emulated/%.o)
$(NCCL_EMULATED_OBJ): ALL_CXXFLAGS += -fvisibility=default
$(EMULATED_NCCL): $(NCCL_EMULATED_OBJ)
	$(call say,LD,$@)
	$(Q)$(in_folder) $(CXX) -shared -o $@ $^ $(if $(SAN),,-Wl,-z,defs) $(ALL_LDFLAGS)
# A preloaded library that makes calls that touch the disk fail (doc/faults.md). Not under sanitizers,
# whose own libraries have to be loaded first.
FAULTS_LIBRARY := $(BUILD)/tests/lib/faults.so
FAULTS_OBJ := $(patsubst %.c,$(BUILD)/obj/library/%.o,$(wildcard tests/faults/fault_*.c))
$(FAULTS_LIBRARY): $(FAULTS_OBJ)
	$(call say,LD,$@)
	$(Q)$(in_folder) $(CC) -shared -o $@ $^ $(ALL_LDFLAGS) -ldl
# Preloaded libraries with which a program stops itself before a given call, and counts its memory. Never
# sanitized, because a sanitizer would not start in a library that is loaded before its own.
STOP_LIBRARY := $(BUILD)/tests/lib/stop_at.so
COUNT_LIBRARY := $(BUILD)/tests/lib/count_memory.so
# The MPI engine with a fault.
STALE_ENGINE := $(BUILD)/tests/lib/stale_engine.so
$(STOP_LIBRARY) $(COUNT_LIBRARY) $(STALE_ENGINE): $(BUILD)/tests/lib/%.so: tests/faults/%.c $(COMPILED_BY)
	$(call say,CC,$< [library])
	$(Q)$(in_folder) $(CC) -O2 $(filter-out -fsanitize=% -fno-sanitize-recover=%,$(ALL_CFLAGS)) -fPIC -fvisibility=hidden -shared -o $@ $< -ldl
define stage_rule
$(LIB)/libplm_$(1).a: $(call object,$(filter-out %_main.c,$(call find_c,$(1))))
	@$$(in_folder) rm -f $$@; $(AR) rcs $$@ $$^
endef
$(foreach s,$(STAGES),$(eval $(call stage_rule,$(s))))

# Test programs are linked by gold, which takes 0.08 s for one, where GNU ld takes 0.2 s.
TEST_LINKER := $(if $(SAN),,$(if $(filter x86_64,$(ARCH)),$(if $(shell command -v ld.gold 2>/dev/null),-fuse-ld=gold)))
define link
$(call say,LD,$@)
	$(Q)$(in_folder) $(CC) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(ALL_LDFLAGS)
endef

# The packer and plm-pipeline link neither BLAS, oneDNN nor CUDA.
$(BIN)/plm-pipeline: $(call object,stages/pipeline_main.c) $(LIB)/libplm_stages.a $(LIB)/libplm_common.a
	$(link) $(BASE_LIBS)
$(BIN)/plm-packer: $(call object,packer/packer_main.c) $(LIB)/libplm_packer.a $(LIB)/libplm_common.a
	$(link) $(BASE_LIBS)
$(BIN)/plm-trainer: $(call object,trainer/trainer_main.c) $(LIB)/libplm_trainer.a $(LIB)/libplm_common.a $(LIB)/libplm_cpu.a
	$(link) $(COMPUTE_LIBS)
$(BIN)/plm-evaluator: $(call object,evaluator/evaluator_main.c) $(LIB)/libplm_evaluator.a $(LIB)/libplm_common.a $(LIB)/libplm_cpu.a
	$(link) $(COMPUTE_LIBS)

$(LIB)/libplm_test_support.a: $(call object,$(TEST_SUPPORT_SRC))
	$(archive)
# Tests of parsers need neither operators nor the emulation, so `make check-parsers` builds them under
# sanitizers within minutes.
PARSER_TESTS := fuzz/% common/base/% common/config/% common/corpus/% common/metrics/% common/run/% \
                common/sequences/% common/wire/% common/checkpoint/test_safetensors \
                evaluator/score/test_variant stages/views/%
PARSER_BIN := $(filter $(PARSER_TESTS:%=$(BUILD)/tests/%),$(TEST_BIN) $(FUZZ_BIN))
# Only what they link is compiled: these modules, and single files of others. A file that is missing here is an
# undefined reference of the first test that needs it.
PARSER_MODULES := $(patsubst %,common/%,base checkpoint config corpus huggingface labels metrics model plan proof run \
                    sequences wire) stages/supervisor stages/views $(patsubst %,tests/support/%,corpora expected harness)
PARSER_FILES := $(patsubst %,%.c,common/collective/collective_path common/ops/device evaluator/contacts/protein_folder \
                  evaluator/score/variant trainer/checkpoint/trainer_state trainer/input/data_cursor \
                  trainer/optimizer/schedule tests/support/cases/label_schemas tests/support/peers/raw_peer \
                  $(patsubst %,stages/ingest/%,corpus_store corpus_writer group_compressor label_statistics lmdb_error))
PARSER_SRC := $(filter $(PARSER_MODULES:%=%/%) $(PARSER_FILES),$(COMMON_SRC) $(STAGE_SRC) $(TEST_SUPPORT_SRC))
$(LIB)/libplm_parsers.a: $(call object,$(PARSER_SRC))
	$(archive)
TEST_ARCHIVES := $(LIB)/libplm_test_support.a $(foreach s,$(STAGES),$(LIB)/libplm_$(s).a) \
                 $(LIB)/libplm_common.a $(LIB)/libplm_cpu.a
# The emulated backend is only linked, not a prerequisite that links a program again. The programs find it
# relative to where they are.
with_emulation = $(1) -Wl,-rpath,'$$ORIGIN/$(shell realpath -m --relative-to=$(@D) $(dir $(1)))'
$(PARSER_BIN): $(LIB)/libplm_parsers.a
$(filter-out $(PARSER_BIN),$(TEST_BIN)) $(BENCH_BIN) $(GPU_BIN): $(TEST_ARCHIVES) | $(EMULATED_LIBRARY)
$(filter-out $(PARSER_BIN),$(TEST_BIN)) $(BENCH_BIN) $(GPU_BIN) $(TOOL_BIN): EMULATION = $(call with_emulation,$(EMULATED_LIBRARY))
$(TEST_BIN) $(CUBLASLT_BIN) $(TOOL_BIN): $(call object,$(CHECKS))
$(FUZZ_BIN): ALL_LDFLAGS += $(if $(findstring fuzzer,$(SAN)),-fsanitize=fuzzer)
$(TEST_BIN) $(FUZZ_BIN) $(BENCH_BIN) $(GPU_BIN): $(BUILD)/tests/%: $(BUILD)/obj/tests/%.o
	$(link) $(TEST_LINKER) $(EMULATION) $(COMPUTE_LIBS) -lcmocka
$(CUBLASLT_BIN): EMULATION = $(call with_emulation,$(CUBLASLT_LIBRARY))
$(CUBLASLT_BIN): $(BUILD)/tests/%_cublaslt: $(BUILD)/obj/tests/%.o $(TEST_ARCHIVES) | $(CUBLASLT_LIBRARY)
	$(link) $(TEST_LINKER) $(EMULATION) $(COMPUTE_LIBS) -lcmocka
$(TOOL_BIN): $(TEST_ARCHIVES) | $(EMULATED_LIBRARY)
	$(link) $(TEST_LINKER) $(EMULATION) $(COMPUTE_LIBS) -lcmocka
$(foreach t,$(TOOL_SRC),$(eval $(patsubst tests/%.c,$(BUILD)/tests/%,$(t)): $(call object,$(wildcard $(dir $(t))*.c))))

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

# ---- CUDA: a shared object that programs load at run time, on machines with nvcc ----------------
# CUDA_ARCHS chooses the architectures. The last one is also compiled to PTX, for later devices.
CUDA_ARCHS ?= 80 90
gencode = $(foreach a,$(1),-gencode arch=compute_$(a),code=sm_$(a))
CUDA_GENCODE := $(call gencode,$(CUDA_ARCHS)) \
                -gencode arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS))
# Instructions that only sm_90a has.
CUDA_GENCODE_sm90 := $(call gencode,90a)
NVCC_FLAGS := -std=c++17 -O3 -lineinfo -I. -DPLM_VERSION='"$(VERSION)"' \
              -Xcompiler -fPIC,-fvisibility=hidden,-Wall
CUDA_OBJ := $(patsubst %,$(BUILD)/obj/cuda/%.o,$(CUDA_SRC))
$(BUILD)/obj/cuda/kernels/cuda/sm90/%.o: CUDA_GENCODE := $(CUDA_GENCODE_sm90)
$(BUILD)/obj/cuda/said:
	@mkdir -p $(@D)
	@echo '  compiling the CUDA backend with $(NVCC) (some minutes of one core; make CUDA=0 leaves it out)'
	@touch $@
# What nvcc says is kept beside the object, for `make cuda-code`.
SAID = 2>$(@:.o=.said); status=$$?; cat $(@:.o=.said) >&2; exit $$status
COMPILING_CUDA := $(NVCC) $(NVCC_FLAGS) $(CUDA_GENCODE) $(CUDA_GENCODE_sm90) 2>said
$(BUILD)/obj/cuda/flags: export FLAGS = $(COMPILING_CUDA)
$(BUILD)/obj/cuda/flags: FORCE
	$(keep)
$(BUILD)/obj/cuda/%.cu.o: %.cu $(BUILD)/obj/cuda/flags | $(BUILD)/obj/cuda/said
	$(call say,NVCC,$<)
	$(Q)$(in_folder) $(CCACHE) $(NVCC) $(NVCC_FLAGS) $(CUDA_GENCODE) -MMD -MP -c $< -o $@ $(SAID)
comma := ,
define link_cuda
$(call say,LD,$@)
	$(Q)$(in_folder) $(NVCC) -shared -o $@ $(1) -lcublasLt -lcublas -Xlinker -z,defs -Xlinker --as-needed -Xlinker --build-id
endef
$(CUDA_LIBRARY): $(CUDA_OBJ) $(DEVICE_LIBRARY_OBJ)
	$(call link_cuda,$^ -Xlinker -rpath$(comma)$(dir $(realpath $(NVCC)))../lib64)
.PHONY: cuda
cuda: ## build only the CUDA backend (build/lib/plm-pipeline/libplm_cuda.so); needs nvcc
	@if [ -z "$(NVCC)" ]; then echo "cuda: no nvcc here: install the CUDA Toolkit, or set NVCC=PATH"; exit 1; fi
	@$(MAKE) --no-print-directory $(CUDA_LIBRARY)

# CUDA_ARCHS must have its default value, because the table is for it. It fails with another nvcc than the table's,
# unless OTHER_NVCC=1: `make check` allows that outside of continuous integration, which sets PLM_MAY_SKIP.
CUDA_CODE = "$(or $(PLM_VENV),build/venv)/bin/python" -B tests/cuda_code/cuda_code.py $(BUILD)/obj/cuda --nvcc "$(NVCC)"
.PHONY: cuda-code cuda-model
cuda-code: $(if $(filter-out 0,$(CUDA)),venv $(CUDA_LIBRARY)) ## check what nvcc made of the kernels against tests/cuda_code/table.tsv; UPDATE=1 writes it
ifneq ($(CUDA),0)
	@$(CUDA_CODE) $(if $(UPDATE),--update) || { [ $$? -eq 77 ] && [ -n "$(OTHER_NVCC)" ]; }
else
	@echo "cuda-code: without nvcc, the compiled CUDA code was NOT checked"
endif
cuda-model: venv $(CUDA_LIBRARY) ## estimate from the compiled kernels the cycles of a tile, a roofline and a training step on an H200
	@$(CUDA_CODE) --model

# ---- installing ---------------------------------------------------------------------------------
# Nothing is compiled here: root has other variables and another PATH than who ran `make`. DESTDIR is put before
# every path (for packages); programs find ../lib/plm-pipeline by themselves.
PREFIX ?= /usr/local
INSTALL_FILES = @BUILD='$(BUILD)' PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' ZSH_FOLDER='$(ZSH_FOLDER)' \
  MODULES='$(filter-out $(LEFT_OUT),$(CUDA_LIBRARY) $(MPI_LIBRARY))' stages/install/install_files.sh
.PHONY: install uninstall
install: ## install what `make` has built into PREFIX (/usr/local); DESTDIR for packages
	$(INSTALL_FILES) install
uninstall: ## remove what `make install` installed; takes the same PREFIX and DESTDIR
	$(INSTALL_FILES) uninstall

# The package's CUDA library looks for cuBLAS only where the loader does, because a package must not depend on
# the folders of the machine that built it.
DEB := $(BUILD)/deb
BUILD_DEB = @BUILD='$(BUILD)' DEB='$(DEB)' MODULES='$(if $(filter-out 0,$(CUDA)),$(DEB_CUDA_LIBRARY)) $(if $(filter-out 0,$(MPI)),$(MPI_LIBRARY))' \
  stages/debian/build_deb.sh
DEB_CUDA_LIBRARY := $(DEB)/modules/libplm_cuda.so
$(DEB_CUDA_LIBRARY): $(CUDA_LIBRARY)
	$(call link_cuda,$(CUDA_OBJ) $(DEVICE_LIBRARY_OBJ))
.PHONY: deb deb-files
deb: all $(if $(filter-out 0,$(CUDA)),$(DEB_CUDA_LIBRARY)) ## build and make a Debian package; prints where it is
	$(BUILD_DEB)
deb-files:
	$(BUILD_DEB)

# ---- dependencies -------------------------------------------------------------------------------
.PHONY: deps
deps: ## install the Debian packages that the build and the tests need
	@tests/support/make/deps.sh

.PHONY: venv
venv: ## create the Python environment of the tests, with PyTorch (build/venv, 5 GB)
	@tests/support/make/venv.sh torch
.PHONY: venvs
venvs: ## make venv, and the environments with older versions of transformers (300 MB)
	@tests/support/make/venv.sh transformers

# ---- running ------------------------------------------------------------------------------------
.PHONY: test test-quick test-all tests programs mpi-engine cublaslt-tests
programs: $(PROGRAMS)
mpi-engine: $(if $(filter-out 0,$(MPI)),$(MPI_LIBRARY))
cublaslt-tests: $(CUBLASLT_BIN)
# Tests do not need libplm_cuda.so: without a GPU they load the emulated backend instead. `make check`
# compiles it, and `make gpu-check` runs it.
tests: programs mpi-engine $(EMULATED_LIBRARY) $(EMULATED_NCCL) $(if $(SAN),,$(FAULTS_LIBRARY)) $(STOP_LIBRARY) $(COUNT_LIBRARY) $(STALE_ENGINE) $(TEST_BIN) $(CUBLASLT_BIN) $(FUZZ_BIN) $(TOOL_BIN) $(BENCH_BIN) $(GPU_BIN) ## build all test programs
# tests/tests.tsv says which tests belong to which set. Packages, Python environment and programs are those that
# the chosen tests need. PYTHON=0 installs no Python environment; the tests that need one are skipped.
PYTHON ?= 1
RUN_TESTS = @BUILD='$(BUILD)' JOBS='$(JOBS)' MAKE='$(MAKE)' PYTHON='$(PYTHON)' TESTS='$(TESTS)' tests/support/make/test.sh
test: deps ## install what is missing, build, and run the tests that take minutes; TESTS=PATTERN chooses from all tests
	$(RUN_TESTS) $(if $(TESTS),all,test)
test-quick: deps ## the tests that take seconds each; TESTS=PATTERN chooses
	$(RUN_TESTS) quick
test-all: deps ## every test: also those that need PyTorch (5 GB) or services, and those that take long; TESTS=PATTERN chooses
	$(RUN_TESTS) all

# The shells of the tests, then the programs, stand still at random moments. Results must not depend on it.
STALLED ?= [.]sh$$
.PHONY: test-stalled
test-stalled: deps ## run the scripts among the tests while their shells, then the programs, are stopped at random; TESTS=PATTERN chooses
	@$(MAKE) -j$(JOBS) tests
	@for who in shell stages; do \
	  PLM_BUILD=$(BUILD) PLM_VENV= PLM_TEST_LIMIT_S=3600 tests/support/make/stall.py $$who tests/support/runner/run_tests.py '$(or $(TESTS),$(STALLED))' || exit 1; \
	done

.PHONY: test-processors
test-processors: deps ## test the operators and a short training run on other processors, emulated by qemu; TESTS=PATTERN chooses
	@JOBS=$(JOBS) tests/processors/processors.sh $(TESTS:%='%')

# FAULTS chooses scenarios and calls: FAULTS="trainer --call CALL --how EIO" repeats one case.
.PHONY: faults
faults: $(PROGRAMS) $(FAULTS_LIBRARY) ## fail every call that touches the disk, one at a time, and cut the power at each (hours); FAULTS=
	@PLM_BIN=$(BIN) PLM_FAULTS_LIBRARY=$(FAULTS_LIBRARY) python3 -B tests/faults/faults.py $(FAULTS)

KILLS ?= 1000
.PHONY: chaos
chaos: $(PROGRAMS) ## whole runs while processes are killed, stopped or starved and connections break; SEED=, KILLS= (1000)
	@PLM_BIN=$(BIN) python3 -B tests/faults/chaos.py --kills $(KILLS) $(if $(SEED),--seed $(SEED))

.PHONY: soak
soak: $(PROGRAMS) ## an hour of a small run: memory, descriptors and threads of every process must not grow; MINUTES=
	@PLM_BIN=$(BIN) tests/faults/soak.sh $(or $(MINUTES),60)

# MUTANT='FILE:LINE:KIND:NUMBER' repeats one fault. SET=check adds the tests that only the whole gate runs.
.PHONY: mutants
mutants: ## try small faults at random places and list those that no test of the module finds; SEED=, COUNT=, MINUTES=, SET=, LIMIT=, FILES=, MUTANT=, AGAIN=1
	@python3 -B tests/mutants/mutants.py $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT)) \
	  $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SET),--set $(SET)) $(if $(LIMIT),--limit $(LIMIT)) \
	  $(if $(filter command environment,$(origin JOBS)),--jobs $(JOBS)) $(if $(MUTANT),--mutant '$(MUTANT)') \
	  $(if $(FILES),--files '$(FILES)') $(if $(AGAIN),--again)

FUZZ_SECONDS ?= 60
.PHONY: fuzz fuzz-guided fuzzers
fuzz: $(FUZZ_BIN) ## run every fuzzer for FUZZ_SECONDS (60) each; SAN=address,undefined finds more
	@for fuzzer in $(FUZZ_BIN); do \
	  echo "$$fuzzer"; PLM_FUZZ_SECONDS=$(FUZZ_SECONDS) $$fuzzer || exit 1; \
	done

fuzzers: $(FUZZ_BIN)
# libFuzzer watches which branches an input reaches, so it finds what is deep inside a parser.
fuzz-guided: deps ## run every fuzzer under libFuzzer, ASan and UBSan for FUZZ_SECONDS (60); FUZZERS=csv,wire
	@tests/support/make/deps.sh clang libclang-rt-dev
	@$(MAKE) --no-print-directory -j$(JOBS) CC=clang CXX=clang++ SAN=address,undefined,fuzzer-no-link fuzzers
	@tests/fuzz/guided.sh build/guided $(FUZZ_SECONDS) $(JOBS) $(FUZZERS)

.PHONY: bench
bench: all $(BENCH_BIN) ## run the benchmarks; each prints the machine and a table
	@for bench in $(BENCH_BIN); do echo "== $$bench"; $$bench || exit 1; done

.PHONY: bench-ranks
bench-ranks: all $(BUILD)/tests/bench/exchange/tool_exchange ## measure ranks on this machine, beside Open MPI's reduce-scatter; QUICK=1 only checks that it runs
	@PLM_BUILD=$(BUILD) QUICK=$(QUICK) tests/bench/bench_ranks.sh

# Takes about half an hour, and more on the first run, when PyTorch compiles its kernels. With QUICK=1 it
# takes seconds, and the figures mean nothing. Published models get every 20th to 200th sequence of the sample;
# with WHOLE=1 they get all sequences and positions, which takes hours. Without esm-cpp or mosaicml-streaming,
# their rows are missing.
.PHONY: bench-cpu
bench-cpu: all $(BENCH_BIN) venv ## compare with PyTorch and other programs on the CPU, and starts with what the disk allows; ONLY="PART..." chooses parts, OUT=FILE saves the table, WHOLE=1 takes all sequences with published models, QUICK=1 only checks that it runs
	@$(if $(QUICK),:,for peer in esm-cpp streaming; do tests/support/make/venv.sh $$peer || echo "bench-cpu: $$peer cannot be installed" >&2; done)
	@$(or $(PLM_VENV),build/venv)/bin/python tests/bench/bench_cpu.py --build $(BUILD) \
	  $(if $(QUICK),--quick) $(if $(WHOLE),--whole) $(addprefix --only ,$(ONLY)) $(if $(OUT),--out $(OUT))

# About half an hour on an idle core; STEPS=600 and more train longer (the default is 80). A training that
# is in RESULTS is not repeated.
.PHONY: learn
learn: all ## train small models at equal compute and print what they have learnt; STEPS=, SWEEP_STEPS=, RESULTS=FILE, QUICK=1
	@python3 -B tests/bench/bench_learn.py --build $(BUILD) $(if $(QUICK),--quick) $(if $(RESULTS),--results $(RESULTS)) \
	  $(if $(STEPS),--steps $(STEPS)) $(if $(SWEEP_STEPS),--sweep-steps $(SWEEP_STEPS))

# SET=first measures what says most: ceilings, a training beside PyTorch, time by operator. SET=rest does the rest:
# tests, races, parity, runs that are killed, benchmarks. Each takes less than nine minutes; without SET, both run. The
# report is in OUT (tests/gpu/results). LIBS is a folder of libraries that tests/gpu/pack.sh unpacked; MINUTES is a limit.
.PHONY: gpu-check
gpu-check: ## on a machine with a GPU: measure and test everything on it; SET=first or rest, LIBS=, OUT=, MINUTES=; NEEDS=1 only looks whether it can
	@PYTHONDONTWRITEBYTECODE=1 python3 tests/gpu/gpu_check.py --build $(BUILD) $(if $(LIBS),--libs $(LIBS)) \
	  $(if $(OUT),--out $(OUT)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SET),--set $(SET)) $(if $(NEEDS),--needs)

# Without a GPU, the demos do not wait for nvcc.
demo: ## install what is missing, build, train on the bundled protein families, show what was learnt
demo-labels: ## the same on labels: predict the secondary structure of bundled protein chains, by a probe and by fine-tuning
.PHONY: demo demo-labels
demo demo-labels: deps
	@$(MAKE) --no-print-directory -j$(JOBS) all $(if $(wildcard /dev/nvidia0),,CUDA=0)
	@tests/support/demo/$(subst -,_,$@).sh

# ---- checking -----------------------------------------------------------------------------------
.PHONY: tidy
tidy: ## check formatting, includes between layers, file names, lengths, parameters, references to doc/
	@tests/support/make/tidy.sh

.PHONY: lint
lint: $(BUILD)/lint.stamp ## run clang-tidy on every source file
# kernels/cpu/isa uses vector extensions of GCC that clang does not know. The analyzer gives up a function after 30,000
# steps instead of 225,000: almost all its time went into such functions, and it finds as good as all planted faults.
LINT_SRC := $(COMMON_SRC) $(CPU_SRC) $(call find_c,$(STAGES))
$(BUILD)/lint.stamp: $(LINT_SRC) $(shell find common kernels $(STAGES) -name '*.h') .clang-tidy
	@mkdir -p $(@D)
	@command -v clang-tidy >/dev/null || { echo "lint: clang-tidy is not installed"; exit 1; }
	@printf '%s\n' $(LINT_SRC) | xargs -P $(JOBS) -n 4 sh -c 'clang-tidy --quiet "$$@" -- \
	  -Xclang -analyzer-config -Xclang max-nodes=30000 -std=gnu17 -I. -D_GNU_SOURCE -DPLM_VERSION=\"$(VERSION)\" \
	  -DPLM_BUILD_DIGEST=\"\" -DPLM_BACKEND_INTERFACE=\"\" 2>/dev/null' lint
	@touch $@

.PHONY: sanitize
sanitize: deps ## run all tests under ASan and UBSan, then under TSan (takes hours)
	@$(MAKE) --no-print-directory SAN=address,undefined test-all TESTS='$(TESTS)'
	@$(MAKE) --no-print-directory SAN=thread test-all TESTS='$(TESTS)'

.PHONY: parser-tests check-parsers
parser-tests: $(PARSER_BIN)
check-parsers: deps ## test the parsers, and run each fuzzer for 5 s, under ASan and UBSan
	@$(MAKE) --no-print-directory -j$(JOBS) SAN=address,undefined parser-tests
	@PLM_BUILD=build/asan PLM_FUZZ_SECONDS=5 PLM_VENV=$(or $(PLM_VENV),$(CURDIR)/build/venv) tests/support/runner/run_tests.py \
	  $(patsubst %,'^%$$',$(PARSER_BIN:$(BUILD)/tests/%=%))

# A part of the gate, and how long it took.
part = begin=$$(date +%s); $(MAKE) --no-print-directory $(1) && s=$$(($$(date +%s) - begin)) && \
  echo "check: make $(1): $$s s" && printf '%s\t%s\n' '$(filter-out -j% OTHER_NVCC%,$(1))' $$s >>$(BUILD)/check-parts.tsv

# Packages for the tests and Python environments are installed while all that needs neither of them runs: they wait for
# the network and the disk, the other parts for the processors.
.PHONY: check check-installed check-sources
check: ## everything that a change has to pass: tidy, lint, build, cuda-code, check-parsers, test-all
	@tests/support/make/deps.sh clang-format clang-tidy shellcheck
	@mkdir -p $(BUILD) && printf 'part\tseconds\n' >$(BUILD)/check-parts.tsv
	@tests/support/make/venv.sh python
	@$(MAKE) --no-print-directory check-installed & installing=$$!; \
	  trap 'kill $$installing 2>/dev/null' EXIT; trap 'exit 130' INT TERM; \
	  $(MAKE) --no-print-directory check-sources && wait $$installing
	@$(call part,cuda-code OTHER_NVCC=$(if $(filter undefined,$(origin PLM_MAY_SKIP)),1))
	@$(call part,test-all)
	@python3 -B tests/support/make/measured.py --build $(BUILD)
check-installed:
	@tests/support/make/deps.sh $$(python3 -B tests/support/runner/run_tests.py --set all --packages)
	@$(call part,venvs)
check-sources:
	@$(call part,lint)
	@$(call part,tidy)
	@$(call part,-j$(JOBS) all)
	@$(call part,check-parsers)

.PHONY: clean
clean: ## remove build/
	rm -rf build

.PHONY: help
help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | LC_ALL=C sort | \
	  awk -F':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'
