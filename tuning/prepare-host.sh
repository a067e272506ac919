#!/bin/sh
# Prepares a Linux host for Intervale: CPUs that run nothing else and wake fast, a clock rate that
# stays up, huge pages, interrupts kept away, io_uring and locked memory allowed.
#
# Without --apply nothing is changed: it says what would be. With it, the old values are recorded
# first and undo-host.sh gives them back. Run it as often as you like.
set -u
NAME=prepare-host.sh
# shellcheck source=tuning/host-common.sh
. "$(dirname "$0")/host-common.sh"

usage() {
    cat <<'TEXT'
Usage: tuning/prepare-host.sh [--apply] [--cores LIST] [--boot] [--unit] [--user NAME]
                              [--steady] [--no-smt]

  --apply       change the host (as root); without it, only say what would be changed
  --cores LIST  CPUs for joins, as the kernel writes them, such as 2-7: interrupts go to the others,
                and these enter no idle state that takes more than 10 us to leave
  --boot        isolate these CPUs from the next start on (a file for GRUB below /etc/default/grub.d)
  --unit        install intervale@.service and let it run on these CPUs
  --user NAME   the user that may lock memory for io_uring (default: intervale)
  --steady      no clock rate above the base one: slower, and figures that can be compared
  --no-smt      one thread a core: the second threads of all cores go offline (with --boot, from the
                next start on as well)
  --help        this text

Until the next start, unless --boot or --unit is given, every change but the limit on locked memory
is gone by itself. tuning/undo-host.sh undoes them all.
TEXT
}

CORES='' BOOT=no UNIT=no STEADY=no SMT=keep USER_NAME=intervale
while [ $# -gt 0 ]; do
    case $1 in
    --apply) APPLY=yes ;;
    --cores) [ $# -gt 1 ] || die "--cores: give a list of CPUs, such as 2-7"; CORES=$2; shift ;;
    --boot) BOOT=yes ;;
    --unit) UNIT=yes ;;
    --steady) STEADY=yes ;;
    --no-smt) SMT=off ;;
    --user) [ $# -gt 1 ] || die "--user: give the name of a user"; USER_NAME=$2; shift ;;
    --help) usage; exit 0 ;;
    *) usage >&2; die "there is no option $1" ;;
    esac
    shift
done
case $CORES in
*[!0-9,-]* | -* | *- | ,* | *, | *--* | *,,*) die "--cores $CORES: give CPUs like 2-7 or 2,3,6-7" ;;
esac
for RANGE in $(printf '%s' "$CORES" | tr , ' '); do
    # A zero in front would make an octal number of it; the others are no range.
    case $RANGE in
    0[0-9]* | *-0[0-9]* | *-*-* | -* | *-) die "--cores $CORES: give CPUs like 2-7 or 2,3,6-7" ;;
    esac
    [ "${RANGE%-*}" -le "${RANGE#*-}" ] || die "--cores $CORES: $RANGE begins after it ends"
done
case $USER_NAME in
'' | *[!A-Za-z0-9_-]*) die "--user $USER_NAME: this is no name of a user" ;;
esac
if [ -z "$CORES" ] && [ "$BOOT$UNIT" != nono ]; then die "--boot and --unit need --cores"; fi
# All CPUs of a list, one a line.
expand() {
    for _part in $(printf '%s' "$1" | tr ',' ' '); do
        _cpu=${_part%-*}
        while [ "$_cpu" -le "${_part#*-}" ]; do
            echo "$_cpu"
            _cpu=$((_cpu + 1))
        done
    done
}

# The CPUs that are online and not for joins, as a list.
housekeeping() {
    _ours=" $(expand "$CORES" | tr '\n' ' ')"
    for _cpu in $(expand "$ONLINE"); do
        case $_ours in *" $_cpu "*) ;; *) printf '%s,' "$_cpu" ;; esac
    done
}

# What is asked for must be possible before anything is changed.
if [ -n "$CORES" ]; then
    ONLINE=$(value "$ROOT/sys/devices/system/cpu/online")
    [ -n "$ONLINE" ] || die "--cores $CORES: this host does not say which CPUs it has; leave it out"
    KNOWN=" $(expand "$ONLINE" | tr '\n' ' ')"
    for RANGE in $(printf '%s' "$CORES" | tr , ' '); do
        # The ends first: a slip of the finger may be a range of millions.
        for CPU in "${RANGE%-*}" "${RANGE#*-}" $(
            [ $((${RANGE#*-} - ${RANGE%-*})) -gt 4096 ] || expand "$RANGE"
        ); do
            case $KNOWN in
            *" $CPU "*) ;;
            *) die "--cores $CORES: there is no CPU $CPU at work; there are $ONLINE" ;;
            esac
        done
    done
    TWICE=$(expand "$CORES" | sort | uniq -d | head -n 1)
    [ -z "$TWICE" ] || die "--cores $CORES: CPU $TWICE stands there twice"
    OTHERS=$(housekeeping)
    OTHERS=${OTHERS%,}
    [ -n "$OTHERS" ] || die "--cores $CORES are all there are: leave one CPU for everything else"
fi
# A second thread of a core would go offline, and could not be a worker's.
if [ "$SMT" = off ] && [ -n "$CORES" ]; then
    for CPU in $(expand "$CORES"); do
        FIRST=$(value "$ROOT/sys/devices/system/cpu/cpu$CPU/topology/thread_siblings_list")
        FIRST=${FIRST%%[,-]*}
        [ "${FIRST:-$CPU}" = "$CPU" ] ||
            die "--no-smt: CPU $CPU is the second thread of CPU $FIRST's core; leave it out of --cores"
    done
fi
if [ "$UNIT" = yes ] && [ ! -r "$(dirname "$0")/intervale@.service" ]; then
    die "--unit: there is no intervale@.service beside this script; run it in its folder"
fi
if [ "$APPLY" = yes ] && [ -z "$ROOT" ] && [ "$(id -u)" != 0 ]; then
    STATUS=1 die "--apply needs root: run it with sudo, or leave --apply out to see what it would do"
fi

# Writes a value of the kernel, once it is recorded. $1 path below the root, $2 value, $3 why.
# $4 "or leave" is for values that some hosts do not let change: they are left without a failure.
kernel_value() {
    _path=$ROOT$1
    [ -e "$_path" ] || return 0
    _old=$(value "$_path")
    [ "$_old" != "$2" ] || return 0
    # "[always] madvise never" stands for always.
    case $_old in *"[$2]"*) return 0 ;; *"["*"]"*) _old=${_old#*"["}; _old=${_old%%"]"*} ;; esac
    CHANGES=$((CHANGES + 1))
    if [ "$APPLY" = no ]; then
        say "would set $1: $_old -> $2 ($3)"
    elif record "$1" "$_old" && printf '%s\n' "$2" 2>/dev/null >"$_path"; then
        say "set $1: $_old -> $2 ($3)"
    elif [ "${4:-}" = "or leave" ]; then
        rm -f "$(record_of "$1")"
        say "left $1: it cannot be changed"
    else
        say "FAILED to set $1 to $2; it stays $_old"
        FAILED=$((FAILED + 1))
    fi
}

# Writes a file of ours. $1 path below the root, $2 content, $3 why.
own_file() {
    _path=$ROOT$1
    if [ -e "$_path" ] && [ "$(cat "$_path")" = "$2" ]; then return 0; fi
    if [ -e "$_path" ] && [ -z "$(record_of "file $1")" ]; then
        say "FAILED: there is a $1 that is not ours; look at it, and remove it"
        FAILED=$((FAILED + 1))
        return 0
    fi
    CHANGES=$((CHANGES + 1))
    if [ "$APPLY" = no ]; then
        say "would write $1 ($3)"
    elif record "file $1" "" && mkdir -p "${_path%/*}" && printf '%s\n' "$2" >"$_path"; then
        say "wrote $1 ($3)"
    else
        say "FAILED to write $1"
        FAILED=$((FAILED + 1))
    fi
}

for path in "$ROOT"/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor; do
    [ -e "$path" ] || continue
    kernel_value "${path#"$ROOT"}" performance "the clock rate stays up while a worker waits"
done
if [ "$STEADY" = yes ]; then
    kernel_value /sys/devices/system/cpu/intel_pstate/no_turbo 1 "the clock rate does not go by heat"
    kernel_value /sys/devices/system/cpu/cpufreq/boost 0 "the clock rate does not go by heat"
fi
kernel_value /proc/sys/kernel/nmi_watchdog 0 "no look for hung CPUs interrupts a worker"
kernel_value /sys/kernel/mm/transparent_hugepage/enabled always "fewer misses of the TLB in state"
kernel_value /proc/sys/kernel/numa_balancing 0 "no page is taken away to see who uses it"
kernel_value /proc/sys/kernel/io_uring_disabled 0 "--runtime auto can use io_uring"
own_file /etc/security/limits.d/90-intervale.conf "$USER_NAME - memlock unlimited" \
    "io_uring locks its rings in memory; from the next login of $USER_NAME on"

if [ -n "$CORES" ]; then
    for CPU in $(expand "$CORES"); do
        for path in "$ROOT/sys/devices/system/cpu/cpu$CPU"/cpuidle/state[0-9]*; do
            latency=$(value "$path/latency")
            [ "${latency:-0}" -gt 10 ] || continue
            kernel_value "${path#"$ROOT"}/disable" 1 "$latency us to wake from $(value "$path/name")"
        done
    done
    # It would move interrupts back.
    if [ -z "$ROOT" ] && command -v systemctl >/dev/null &&
        systemctl -q is-active irqbalance 2>/dev/null; then
        CHANGES=$((CHANGES + 1))
        [ "$APPLY" = no ] || record "service irqbalance" active
        system systemctl stop irqbalance
    fi
    for path in "$ROOT"/proc/irq/[0-9]*/smp_affinity_list; do
        [ -e "$path" ] || continue
        # Some interrupts belong to a CPU.
        kernel_value "${path#"$ROOT"}" "$OTHERS" "interrupts stay away from CPUs $CORES" \
            "or leave"
    done
fi
if [ "$BOOT" = yes ]; then
    NOSMT=
    if [ "$SMT" = off ]; then NOSMT=' nosmt'; fi
    own_file /etc/default/grub.d/90-intervale.cfg \
        "GRUB_CMDLINE_LINUX=\"\$GRUB_CMDLINE_LINUX isolcpus=managed_irq,domain,$CORES nohz_full=$CORES rcu_nocbs=$CORES$NOSMT\"" \
        "nothing else is scheduled on CPUs $CORES, and their clock does not tick, from the next start on"
    if command -v update-grub >/dev/null; then system update-grub; else
        say "note: make GRUB's configuration anew (no update-grub here), or add its line to your loader"
    fi
fi
# Last, so that undo brings the CPUs back before it gives their files their old values.
if [ "$SMT" = off ]; then
    case $(value "$ROOT/sys/devices/system/cpu/smt/control") in
    on) kernel_value /sys/devices/system/cpu/smt/control off "two workers never share a core" ;;
    off | forceoff) ;;
    *) say "left /sys/devices/system/cpu/smt/control: these cores have one thread each" ;;
    esac
fi
if [ "$UNIT" = yes ]; then
    unit=$(sed "s/@CORES@/$CORES/g; s/@USER@/$USER_NAME/g" "$(dirname "$0")/intervale@.service")
    own_file /etc/systemd/system/intervale@.service "$unit" "joins run as a service on CPUs $CORES"
    system systemctl daemon-reload
fi

if [ "$CHANGES" = 0 ]; then say "nothing to change"; fi
if [ "$APPLY" = no ] && [ "$CHANGES" != 0 ]; then
    say "$CHANGES changes; nothing was changed: do it with --apply, see the effect with: intervale doctor"
fi
[ "$FAILED" = 0 ] || exit 1
