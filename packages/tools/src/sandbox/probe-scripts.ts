/*
 * What the probe runs inside. Each line says `NAME ok` or `NAME no WHAT`; others are judged outside. A check that cannot run
 * prints nothing, and the promise counts as broken.
 */

const FUNCTIONS = `
ok() { echo "$1 ok"; }
no() { echo "$1 no $2"; }
writes() { ( : >"$1" ) 2>/dev/null; }
report() { if [ -n "$2" ]; then no "$1" "$2"; else ok "$1"; fi; }
`;

const EVERYWHERE = `
seen=; for path in .git/hooks/pre-commit .git/config treadle.toml AGENTS.md; do writes "$path" && seen="$seen $path"; done
mv .git moved 2>/dev/null && seen="$seen moved"; report protected "$seen"
seen=$(cat .env 2>/dev/null); report private "$seen"
seen=$(cat "$1/secret" 2>/dev/null); report tmp "$seen"
echo "env $(env | while IFS= read -r line; do echo "\${line%%=*}"; done | tr '\\n' ' ')"
( head -c 3000000 /dev/zero >large ) 2>/dev/null; size=$(wc -c <large 2>/dev/null | tr -d ' '); [ "\${size:-0}" -lt 3000000 ] && ok file-size || no file-size "$size bytes"
: >bits; chmod u+s bits 2>/dev/null; seen=$(find bits -perm -4000); rm -f bits; report setuid-files "$seen"
size=$(ulimit -t); [ "$size" = 30 ] && ok cpu || no cpu "$size seconds"
`;

/** Argument: the folder outside. */
export const LINUX_SCRIPT: string = `${FUNCTIONS}
field() { while read -r name value rest; do [ "$name" = "$1:" ] && echo "$value"; done </proc/self/status; }

seen=; for path in /usr /etc / $(echo "$PATH" | tr : ' '); do writes "$path/.treadle-probe" && rm "$path/.treadle-probe" && seen="$seen $path"; done
( exec 3>>/proc/sys/kernel/core_pattern ) 2>/dev/null && seen="$seen /proc/sys"
touch -c -r /proc/version /proc/version 2>/dev/null && seen="$seen /proc"
mkdir -p "$1" 2>/dev/null; writes "$1/written"; report root "$seen"
${EVERYWHERE}
[ -S socket ] && no sockets socket || ok sockets
report setuid "$([ "$(field NoNewPrivs)" = 1 ] && [ "$(field CapEff)" = 0000000000000000 ] || echo "capabilities $(field CapEff)")"
if [ "$(field Seccomp)" = 2 ]; then ok ptrace; ok keyring; else no ptrace "no filter of system calls"; no keyring "no filter of system calls"; fi
if ( : >/dev/tty ) 2>/dev/null; then no terminal /dev/tty; elif [ "$(field Seccomp)" = 2 ]; then ok terminal; else no terminal "no filter of system calls"; fi
if ! command -v unshare >/dev/null; then [ "$(field Seccomp)" = 2 ] && ok namespaces || no namespaces "no filter of system calls"
elif unshare --user true 2>/dev/null || unshare --user --map-root-user --mount true 2>/dev/null; then no namespaces unshare; else ok namespaces; fi
echo "ns-net $(readlink /proc/self/ns/net)"
echo "ns-pid $(readlink /proc/self/ns/pid) $(ls /proc | grep -c '^[0-9]')"
echo "dev $(ls /dev | tr '\\n' ' ')"; touch -c -r /dev/full /dev/full 2>/dev/null
echo "home $(for name in $(ls -A ~); do cmp -s ~/"$name" /etc/skel/"$name" || echo "$name"; done | tr '\\n' ' ')"
interfaces=$(grep : /proc/net/dev | grep -v '^ *lo:'); report interfaces "$interfaces"
size=$(head -c 200000000 /dev/zero | tail -c 190000000 2>/dev/null | wc -c); [ "$size" -lt 190000000 ] && ok memory || no memory "$size bytes"
`;

/** Arguments: the folder outside, a process outside, a port of it on 127.0.0.1, the home folder of the user. */
export const MACOS_SCRIPT: string = `${FUNCTIONS}
connects() { perl -MSocket -e "$1" "$2" 2>/dev/null; }
closed() { [ "$2" = closed ] && ok "$1" || no "$1" "$2"; }

seen=; for path in "$1/written" "$4/.treadle-probe" /private/tmp/.treadle-probe /usr/local/.treadle-probe; do writes "$path" && seen="$seen $path"; done
report root "$seen"
${EVERYWHERE}
report home "$(ls -A "$4" 2>/dev/null | head -n 3 | tr '\\n' ' ')"
closed network "$(connects 'socket(S, PF_INET, SOCK_STREAM, 0); print connect(S, pack_sockaddr_in($ARGV[0], inet_aton("127.0.0.1"))) ? "a port of this host" : "closed"' "$3")"
closed sockets "$(connects 'socket(S, PF_UNIX, SOCK_STREAM, 0); print connect(S, pack_sockaddr_un($ARGV[0])) ? "a socket" : "closed"' socket)"
kill -0 "$2" 2>/dev/null && no processes "process $2" || ok processes
( : <>/dev/ptmx ) 2>/dev/null && no devices /dev/ptmx || ok devices
ps -p $$ >/dev/null 2>&1 && no setuid ps || ok setuid
( : >/dev/tty ) 2>/dev/null && no terminal /dev/tty || ok terminal
mkdir -p mounted; mount -t devfs devfs mounted 2>/dev/null && no namespaces mount || ok namespaces
`;

/** Its own program, because a shell that cannot start processes ends. */
export const FORKS = `i=0; while [ $i -lt 120 ]; do sleep 2 & i=$((i+1)); done; echo "count no $i processes"`;

/** Many files, because the size of each is limited. */
export const FILLS =
  'i=0; while [ $i -lt 400 ]; do head -c 1000000 /dev/zero >filled$i; i=$((i+1)); done; rm -f filled*';
