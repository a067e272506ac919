#!/bin/sh
# Gives a host back the values that prepare-host.sh recorded, the last change first.
#
# Without --apply nothing is changed: it says what would be.
set -u
NAME=undo-host.sh
# shellcheck source=tuning/host-common.sh
. "$(dirname "$0")/host-common.sh"

while [ $# -gt 0 ]; do
    case $1 in
    --apply) APPLY=yes ;;
    --help)
        echo 'Usage: tuning/undo-host.sh [--apply]'
        echo
        echo '  --apply  change the host (as root); without it, only say what would be changed'
        exit 0
        ;;
    *) die "there is no option $1; there are --apply and --help" ;;
    esac
    shift
done
if [ "$APPLY" = yes ] && [ -z "$ROOT" ] && [ "$(id -u)" != 0 ]; then
    STATUS=1 die "--apply needs root: run it with sudo, or leave --apply out to see what it would do"
fi

# Gives back what one record holds; false if that is not possible.
give_back() {
    _what=$(sed -n 1p "$1")
    _old=$(sed -n 2p "$1")
    case $_what in
    "file "*)
        _path=${_what#file }
        if [ "$APPLY" = no ]; then say "would remove $_path"; return 0; fi
        rm -f "$ROOT$_path" || return 1
        say "removed $_path"
        case $_path in
        */grub.d/*) if command -v update-grub >/dev/null; then system update-grub; fi ;;
        *.service) system systemctl daemon-reload ;;
        esac
        ;;
    "service "*)
        system systemctl start "${_what#service }"
        ;;
    *)
        if [ "$APPLY" = no ]; then say "would set $_what back to $_old"; return 0; fi
        # What is gone (a CPU, an interrupt) needs nothing any more.
        [ -e "$ROOT$_what" ] || { say "gone: $_what"; return 0; }
        printf '%s\n' "$_old" 2>/dev/null >"$ROOT$_what" || return 1
        say "set $_what back to $_old"
        ;;
    esac
}

# The names are numbers, the last change first.
# shellcheck disable=SC2045
for record in $(ls -r "$STATE" 2>/dev/null); do
    case $record in *.old) ;; *) continue ;; esac
    CHANGES=$((CHANGES + 1))
    if give_back "$STATE/$record"; then
        [ "$APPLY" = no ] || rm -f "$STATE/$record"
    else
        say "FAILED: $(sed -n 1p "$STATE/$record"); its record stays"
        FAILED=$((FAILED + 1))
    fi
done
if [ "$CHANGES" = 0 ]; then say "nothing to undo"; fi
if [ "$APPLY" = yes ] && [ "$FAILED" = 0 ]; then rmdir "$STATE" 2>/dev/null || :; fi
if [ "$APPLY" = no ] && [ "$CHANGES" != 0 ]; then
    say "$CHANGES changes; nothing was changed: do it with --apply"
fi
[ "$FAILED" = 0 ] || exit 1
