# shellcheck shell=bash
# Sourced by tidy.sh. Only the files with the rows of an architecture name it (CONTRIBUTING.md#an-architecture).
# All others ask for a rule, so that another architecture means no edit there.

rows='common/model/(model_config[.]h|architecture[.]c)|common/huggingface/published_config[.]c|common/config/presets[.]c'
architectures=$(sed -n '/^enum plm_architecture {/,/^}/s/^  \(PLM_[A-Z0-9_]*\),$/\1/p' common/model/model_config.h | paste -sd'|')
[ -n "$architectures" ] || complain "common/model/model_config.h: enum plm_architecture has no enumerator on a line of its own"
while IFS= read -r line; do complain "names an architecture instead of asking for a rule: $line"; done < <(
  grep -rnwE "${architectures:-none}" --include='*.[ch]' --include='*.cu' --include='*.cuh' --include='*.cc' \
    common kernels packer trainer evaluator stages | grep -vE "^($rows):")
