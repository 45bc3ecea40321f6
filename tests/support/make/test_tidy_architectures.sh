#!/usr/bin/env bash
# The rule of `make tidy` that only the rows of an architecture name it.
. "$PLM_ROOT/tests/support/shell/lib.sh"

complain() { echo "$*" >>found; }
# What the rule complains about in the sources below this folder.
look() {
  : >found
  . "$PLM_ROOT/tests/support/make/tidy_architectures.sh"
}

for folder in common kernels packer trainer evaluator stages; do (cd "$PLM_ROOT" && cp --parents -r "$folder" "$OLDPWD"); done
look
[ ! -s found ] || fail "$(cat found)"

echo 'if (model->architecture == PLM_UNET) return 1;' >trainer/new.c
look
says found 'trainer/new[.]c:1:if '
[ "$(wc -l <found)" -eq 1 ] || fail "$(cat found)"

echo 'enum { LIKE_UNET = 1 << PLM_ESMC };' >common/model/architecture.h
rm trainer/new.c
look
says found 'common/model/architecture[.]h:1:'

# An architecture that is added is known to the rule; a word that contains its name is another one.
sed -i 's/^  PLM_ESMC,$/&\n  PLM_NEW,/' common/model/model_config.h
echo 'PLM_NEW PLM_NEWER' >common/model/architecture.h
look
says found 'architecture[.]h:1:PLM_NEW PLM_NEWER'
echo 'PLM_NEWER' >common/model/architecture.h
look
[ ! -s found ] || fail "$(cat found)"

sed -i 's/^enum plm_architecture {/enum other {/' common/model/model_config.h
look
says found 'has no enumerator'
