#!/usr/bin/env bash
# `plm-pipeline manual` with the real programs: there is a page for each, with every option; two pages as a whole, and what
# the overview and some keys say. Names, sections and keys of all pages: test_command_pages.c.
. "$PLM_ROOT/tests/support/shell/lib.sh"

expect 0 plm-pipeline manual --all pages
commands=$(plm-pipeline --help | sed -n '/^commands:/,/^$/s/^  \([a-z0-9]*\) .*/\1/p')
[ "$(wc -w <<<"$commands")" -gt 20 ] || fail "the overview lists only: $commands"
for name in plm-pipeline plm-packer plm-trainer plm-evaluator $(printf 'plm-pipeline-%s ' $commands); do
  [ -s "pages/man1/$name.1" ] || fail "$name(1) is missing"
done
[ "$(find pages -type f | wc -l)" -eq $(($(wc -w <<<"$commands") + 5)) ] || fail "other pages: $(find pages -type f)"

# the pages say what the help says
plain() { tr -d '\\' <"$1"; }
for option in $(plm-pipeline up --help | grep -oE '^ +(-., )?--[a-z-]+' | grep -oE -- '--[a-z-]+'); do
  plain pages/man1/plm-pipeline-up.1 | matches -F "fB$option" || fail "plm-pipeline-up(1) has no $option"
done
for option in $(plm-packer --help | grep -oE '^ +(-., )?--[a-z-]+' | grep -oE -- '--[a-z-]+'); do
  plain pages/man1/plm-packer.1 | matches -F "fB$option" || fail "plm-packer(1) has no $option"
done

# what roff would obey is text: a point or a quote at the beginning of a line
! grep -E "^\.[a-z]|^'" pages/man*/* | grep -vE ':\.(sp|nf|fi)$' || fail "a line that roff takes for a request"

# ---- two pages of commands as a whole: one without options of its own, one with them -------------------------
common_options() {
  cat <<'END'
.TP
\fB\-c\fR, \fB\-\-config\fR \fIFILE\fR
the configuration (default ./pipeline.yaml)
.TP
\fB\-\-run\fR \fIDIR\fR
the run folder (default: the configuration\(aqs)
.TP
\fB\-\-set\fR \fIKEY=VALUE\fR
change one key of the configuration; may be repeated
.TP
\fB\-\-json\fR
print results as JSON
.TP
\fB\-q\fR, \fB\-\-quiet\fR
print no progress or information, only results, warnings and errors
.TP
\fB\-v\fR, \fB\-\-verbose\fR
print more messages
.TP
\fB\-\-color\fR \fIWHEN\fR
auto, always or never (NO_COLOR is respected)
.TP
\fB\-h\fR, \fB\-\-help\fR
this help
.TP
\fB\-\-version\fR
print the version
.SH "EXIT STATUS"
.PP
0 done, 1 failed, 2 wrong usage or configuration, 3 the run is not running, 4 timed out, 5 a value was not finite, 6 a cause that may pass did not pass in time, 7 a stage failed for a cause that stays, 130 or 143 stopped by a signal.
.SH "SEE ALSO"
\fBplm\-pipeline\fR(1),
\fBpipeline.yaml\fR(5)
END
}
same_as() { # same_as PAGE: standard input, but for the version
  cat >wanted
  sed 's/plm\\-pipeline [0-9.]*"/plm\\-pipeline VERSION"/' "pages/man1/$1" | diff wanted - || fail "$1 differs"
}
{
  cat <<'END'
.\" Printed by `plm-pipeline manual`. Do not edit this page.
.TH "PLM\-PIPELINE\-COMPLETION" 1 "" "plm\-pipeline VERSION" "plm\-pipeline"
.SH NAME
plm\-pipeline\-completion \- print a completion script for bash, zsh or fish
.SH "SYNOPSIS"
.PP
\fBplm\-pipeline completion\fR bash|zsh|fish [PROGRAM]
.SH "DESCRIPTION"
.PP
PROGRAM is plm\-pipeline (the default), plm\-packer, plm\-trainer or plm\-evaluator. \fBmake install\fR installs the scripts of all four. Otherwise, put this line into the shell\(aqs start\-up file:
.sp
.RS 2
.nf
bash: source <(plm\-pipeline completion bash)
zsh: source <(plm\-pipeline completion zsh), after compinit
fish: plm\-pipeline completion fish | source
.fi
.RE
.PP
Or save the script where the shell looks for it: for zsh as _PROGRAM in a folder of $fpath, for fish as PROGRAM.fish in \(ti/.config/fish/completions.
.SH "OPTIONS"
END
  common_options
} | same_as plm-pipeline-completion.1
{
  cat <<'END'
.\" Printed by `plm-pipeline manual`. Do not edit this page.
.TH "PLM\-PIPELINE\-KEYS" 1 "" "plm\-pipeline VERSION" "plm\-pipeline"
.SH NAME
plm\-pipeline\-keys \- make CURVE keys, with which packers on other hosts can join
.SH "SYNOPSIS"
.PP
\fBplm\-pipeline keys\fR DIR [\-\-client NAME]
.SH "DESCRIPTION"
.PP
Writes server.key and server.pub and, with \-\-client, a pair in clients/. Existing keys are kept. Secret keys have mode 0600, and the folders that it makes have mode 0700. A packer may join the run if its public key is among clients/*.pub, which is read again whenever one connects.
.SH "OPTIONS"
.TP
\fB\-\-client\fR \fINAME\fR
also make a pair for a packer\(aqs host: clients/NAME.key and clients/NAME.pub
.SS "Options of every command"
END
  common_options
} | same_as plm-pipeline-keys.1

# ---- the overview: its sections, every command with its summary, and references to all pages ----------------
overview=pages/man1/plm-pipeline.1
COLUMNS=900 plm-pipeline --help | sed -n '/^commands:/,/^$/s/^  \([a-z0-9]*\)  *\(.*\)/\1\t\2/p' >summaries
sed -n '/^.SH "COMMANDS"/,/^.SH "OPTIONS/p' "$overview" | tr -d '\\' |
  sed -n '/^fB/{s/^fB\(.*\)fR$/\1/;N;s/\n/\t/;p}' | sed 's/(aq/'"'"'/g; s/f[BR]\([a-z ]*\)fR/`\1`/g' >items
diff summaries items || fail "plm-pipeline(1) has other commands"
plain "$overview" | sed -n '/^.SH "SEE ALSO"/,$p' | sed 1d >references
for name in $(printf 'plm-pipeline-%s ' $commands) plm-packer plm-trainer plm-evaluator; do echo "fB${name}fR(1),"; done >wanted
echo 'fBpipeline.yamlfR(5)' >>wanted
diff wanted references || fail "plm-pipeline(1) refers to other pages"
plain "$overview" | sed -n '/^.SH "ENVIRONMENT"/,/^.SH "SEE/{/^fB/p}' >items
diff items - <<'END' || fail "the environment and files of plm-pipeline(1)"
fBPLM_CONFIGfR
fBPLM_TRAINER_STEPS, ...fR
fBNO_COLORfR
fB&./pipeline.yamlfR
fBruns/NAME/fR
END

# ---- pipeline.yaml: keys of all kinds ---------------------------------------------------------------------
settings=pages/man5/pipeline.yaml.5
key() { plain $settings | sed -n "/^fB$1fR\$/,/^\.\(TP\|SS\|SH\)/p" | sed -n 4p; }
[ "$(key seed)" = 'a whole number, 0 to 18446744073709551615; default fB1fR; on resume: refused' ] || fail "$(key seed)"
[ "$(key trainer.steps)" = \
  'a whole number, in steps, 1 to 1000000000000; default fB300fR; on resume: changes the run' ] ||
  fail "$(key trainer.steps)"
[ "$(key run)" = 'a path; default fBruns/demofR; on resume: free' ] || fail "$(key run)"
[ "$(tail -n 3 $settings | tr -d '\\')" = $'fBplm-pipelinefR(1),\nfBplm-pipeline-configfR(1),\nfBplm-pipeline-validatefR(1)' ] ||
  fail "pipeline.yaml(5) ends with $(tail -n 3 $settings)"
