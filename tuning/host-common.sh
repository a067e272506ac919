# shellcheck shell=sh
# Read by prepare-host.sh and undo-host.sh; does nothing by itself. POSIX sh.
#
# Old values are kept below $STATE, one file a setting, named by a number and holding the path (or
# the kind of change) in the first line and the old value in the second. A value that was recorded
# is never recorded again, so however often a host is prepared, undo gives back what stood first.

# A copy of a host's files can stand in for the host: nothing outside of it is touched then.
ROOT=${INTERVALE_HOST_ROOT:-}
STATE=${INTERVALE_HOST_STATE:-$ROOT/var/lib/intervale-tuning}
APPLY=no
# shellcheck disable=SC2034 # counted by those who read this
CHANGES=0
FAILED=0

say() { printf '%s\n' "$*"; }

# Words for an error; the script ends.
die() {
    printf '%s: %s\n' "$NAME" "$*" >&2
    exit "${STATUS:-2}"
}

# The first line of a file, or nothing.
value() {
    _line=
    # A last line without an end is read as well, though `read` says false then.
    if [ -r "$1" ]; then IFS= read -r _line <"$1" 2>/dev/null || :; fi
    printf '%s' "$_line"
}

# The record of a path, if there is one.
record_of() {
    for _record in "$STATE"/*.old; do
        [ -f "$_record" ] || continue
        if [ "$(value "$_record")" = "$1" ]; then
            printf '%s' "$_record"
            return
        fi
    done
}

# Keeps the old value of a path, unless it is kept already.
record() {
    [ -z "$(record_of "$1")" ] || return 0
    mkdir -p "$STATE" || return 1
    _number=1000
    while [ -e "$STATE/$_number.old" ]; do _number=$((_number + 1)); done
    printf '%s\n%s\n' "$1" "$2" >"$STATE/$_number.old.new" || return 1
    mv "$STATE/$_number.old.new" "$STATE/$_number.old"
}

# Runs a command of the system, or says that it would. Not on a copy of a host.
system() {
    if [ "$APPLY" = no ]; then
        say "would run: $*"
    elif [ -n "$ROOT" ]; then
        say "not run on a copy of a host: $*"
    elif "$@"; then
        say "ran: $*"
    else
        say "FAILED: $*"
        FAILED=$((FAILED + 1))
    fi
}
