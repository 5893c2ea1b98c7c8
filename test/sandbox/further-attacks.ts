import { calls, changes, inFolder, inHome, leaves, reads, succeeds, survives, type Attack } from './attack.ts';

/* Tricks of a second reader. They leave everything as it was, because the attacks of a run share a folder. */

/** Exchanges two paths at once, which neither removes nor creates one. Exchanges them back. */
function exchanges(name: string, one: string, other: string): Attack {
  return {
    name,
    promise: 'protected',
    py: `
import shutil
if not os.path.exists('${other}'): shutil.copytree('${one}', '${other}') if os.path.isdir('${one}') else shutil.copy('${one}', '${other}')
exchange = lambda: libc.renameat2(-100, b'${one}', -100, b'${other}', 2)
if exchange() == 0: exchange(); print('WORKED')`,
  };
}

/** Asks the kernel about another process. */
function asks(name: string, code: string): Attack {
  return { name, promise: 'processes', py: `victim = int(os.environ['VICTIM_PID'])\n${code}` };
}

/** Opens a connection to a port of the host. */
function connects(name: string, code: string): Attack {
  return { name, promise: 'network', py: `port = int(os.environ['PORT'])\n${code}\nprint('WORKED')` };
}

export const FURTHER_ATTACKS: readonly Attack[] = [
  // Private files.
  reads('compare a private file with nothing', 'private', 'git diff --no-index /dev/null .npmrc'),
  reads('run a private file', 'private', 'sh .npmrc 2>&1'),
  reads('read a private file as options', 'private', 'grep -f .npmrc -r . 2>/dev/null; xargs -a .npmrc echo'),
  reads('put a private file into an archive', 'private', 'tar cf - .npmrc config certs | strings'),
  reads('read a private file through its own folder', 'private', 'cat "/proc/$$/cwd/.npmrc"'),
  reads('read a private file through a thread', 'private', 'cat "/proc/thread-self/cwd/.npmrc"'),
  reads('read a private file by a long way', 'private', 'cat "config/../certs/../././.npmrc"'),
  reads('read a private file by two slashes', 'private', 'cat ".//certs//server.key"'),
  reads('read a private file whose name is a pattern for another', 'private', "cat 'odd/a[1].key'"),
  reads('read a private file with blanks in its name', 'private', "cat 'odd/b  c.key' 'odd/.env '"),
  reads(
    'move a private file',
    'private',
    'mv certs/server.key plain-key && cat plain-key; mv plain-key certs/server.key',
  ),
  reads(
    'move the folder of a private file',
    'private',
    'mv certs plain-certs && cat plain-certs/*; mv plain-certs certs',
  ),
  {
    name: 'exchange a private file with another',
    promise: 'private',
    py: `
open('decoy', 'w').close()
exchange = lambda: libc.renameat2(-100, b'.npmrc', -100, b'decoy', 2)
if exchange() == 0:
    if 'sk-attack' in open('decoy').read(): print('WORKED')
    exchange()`,
  },
  {
    name: 'map a private file',
    promise: 'private',
    py: `
import mmap
fd = os.open('certs/server.pem', os.O_RDONLY)
if mmap.mmap(fd, 0, prot=mmap.PROT_READ).read().startswith(b'sk-attack'): print('WORKED')`,
  },
  {
    name: 'let the kernel copy a private file',
    promise: 'private',
    py: `
source, target = os.open('.npmrc', os.O_RDONLY), os.open('copied', os.O_CREAT | os.O_RDWR)
os.copy_file_range(source, target, 100)
if 'sk-attack' in open('copied').read(): print('WORKED')`,
  },
  {
    name: 'send a private file',
    promise: 'private',
    py: `
one, other = socket.socketpair()
os.sendfile(one.fileno(), os.open('.npmrc', os.O_RDONLY), 0, 100)
if b'sk-attack' in other.recv(100): print('WORKED')`,
  },
  {
    name: 'open a private file without following the mount',
    promise: 'private',
    py: `
folder = os.open('.', os.O_PATH | os.O_DIRECTORY)
if 'sk-attack' in os.fdopen(os.open('.npmrc', os.O_RDONLY, dir_fd=folder)).read(): print('WORKED')`,
  },

  // Files that the host runs later.
  exchanges('exchange the hooks', '.git/hooks', '.git/exchanged'),
  exchanges('exchange the settings of git', '.git/config', 'exchanged-config'),
  exchanges('exchange the instructions for agents', 'AGENTS.md', 'exchanged.md'),
  exchanges('exchange the skills', '.agents', 'exchanged-agents'),
  exchanges('exchange the configuration', 'treadle.toml', 'exchanged.toml'),
  succeeds('make a hook executable', 'protected', 'chmod 777 .git/hooks/pre-commit'),
  succeeds('change the time of the settings of git', 'protected', 'touch -d 2001-01-01 .git/config'),
  succeeds(
    'empty the instructions for agents',
    'protected',
    'cp AGENTS.md kept.md && truncate -s 0 AGENTS.md && cat kept.md >AGENTS.md',
  ),
  succeeds(
    'remove a hook',
    'protected',
    'cp .git/hooks/pre-commit kept-hook && rm -f .git/hooks/pre-commit && cp kept-hook .git/hooks/pre-commit',
  ),
  succeeds(
    'put a link at the place of a hook',
    'protected',
    'ln -sf ../../plain.txt .git/hooks/post-rewrite && rm .git/hooks/post-rewrite',
  ),
  succeeds('move a nested repository', 'protected', 'mv nested elsewhere && mv elsewhere nested'),
  succeeds('move the folder of skills', 'protected', 'mv .agents/skills .agents/old && mv .agents/old .agents/skills'),
  succeeds('move the working folder', 'root', 'mv "$PWD" "$PWD-moved" && mv "$PWD-moved" "$PWD"'),
  succeeds(
    'mark a hook as unchangeable',
    'protected',
    "setfattr -n user.attack -v x .git/hooks/pre-commit 2>/dev/null || python3 -c \"import os; os.setxattr('.git/hooks/pre-commit', 'user.attack', b'x')\"",
  ),
  changes(
    'write through a hard link to the instructions',
    'protected',
    'ln AGENTS.md hard.md && echo ATTACK >>hard.md',
    inFolder('AGENTS.md'),
  ),
  {
    name: 'map the settings of git for writing',
    promise: 'protected',
    py: `
import mmap
fd = os.open('nested/.git/config', os.O_RDWR)
mmap.mmap(fd, 1); print('WORKED')`,
  },

  // Places outside.
  leaves(
    'add a key for logins',
    'root',
    'mkdir -p "$HOME/.ssh"; echo x >"$HOME/.ssh/authorized_keys"',
    inHome('.ssh', 'authorized_keys'),
  ),
  leaves(
    'add a program that starts at login',
    'root',
    'mkdir -p "$HOME/.config/autostart"; : >"$HOME/.config/autostart/x"',
    inHome('.config', 'autostart', 'x'),
  ),
  leaves(
    'add settings of git for the user',
    'root',
    'echo x >"$HOME/.gitconfig"; git config --global core.fsmonitor x',
    inHome('.gitconfig'),
  ),
  leaves(
    'add a program of the user',
    'root',
    'mkdir -p "$HOME/.local/bin"; : >"$HOME/.local/bin/ls"',
    inHome('.local', 'bin', 'ls'),
  ),
  succeeds(
    'add a program that starts at a time',
    'root',
    'mkdir -p /var/spool/cron && : >"/var/spool/cron/$MARK" && rm "/var/spool/cron/$MARK"',
  ),
  succeeds('write to /var', 'root', ': >"/var/$MARK" && rm "/var/$MARK"'),
  succeeds('write to /opt', 'root', 'mkdir -p /opt && : >"/opt/$MARK" && rm "/opt/$MARK"'),
  succeeds('write to the libraries of the system', 'root', ': >"/usr/lib/$MARK" && rm "/usr/lib/$MARK"'),
  {
    name: 'leave its control group',
    promise: 'count',
    sh: 'for file in /sys/fs/cgroup/pids/tasks /sys/fs/cgroup/cgroup.procs; do { echo $$ >"$file"; } 2>/dev/null && echo WORKED && break; done',
  },
  {
    name: 'give a file capabilities',
    promise: 'setuid-files',
    py: `
open('capable', 'w').close()
os.setxattr('capable', 'security.capability', struct.pack('<IIIII', 0x02000001, 0xffffffff, 0, 0xffffffff, 0)); print('WORKED')`,
  },

  // Other processes.
  {
    name: 'read the shared memory of another program',
    promise: 'processes',
    py: `
libc.shmat.restype = ctypes.c_void_p
memory = libc.shmat(libc.shmget(int(os.environ['SHARED_KEY']), 1, 0), None, 0)
if memory != ctypes.c_void_p(-1).value and ctypes.string_at(memory, 1)[0] == int(os.environ['SHARED_BYTE']): print('WORKED')`,
  },
  asks(
    'signal a thread of another process',
    `if libc.syscall(234 if platform.machine() == 'x86_64' else 131, victim, victim, 0) == 0: print('WORKED')`,
  ),
  asks(
    'read the limits of another process',
    `import resource\nresource.prlimit(victim, resource.RLIMIT_NOFILE); print('WORKED')`,
  ),
  asks(
    'change the limits of another process',
    `import resource\nresource.prlimit(victim, resource.RLIMIT_CORE, (0, 0)); print('WORKED')`,
  ),
  asks('read how another process is scheduled', `os.sched_getaffinity(victim); print('WORKED')`),
  asks(
    'change where another process runs',
    `os.sched_setaffinity(victim, os.sched_getaffinity(victim)); print('WORKED')`,
  ),
  asks(
    'change the policy of another process',
    `os.sched_setscheduler(victim, os.SCHED_BATCH, os.sched_param(0)); print('WORKED')`,
  ),
  asks('read the group of another process', `os.getpgid(victim); print('WORKED')`),
  asks('see what another process maps', `print('WORKED' if os.listdir('/proc/%d/map_files' % victim) else '')`),

  // The network.
  connects('connect by an address of both kinds', `socket.create_connection(('::ffff:127.0.0.1', port), 3)`),
  connects('connect to no address', `socket.create_connection(('0.0.0.0', port), 3)`),
  connects(
    'connect to another address of the host itself',
    `socket.create_connection(('127.0.0.2', int(os.environ['PORT_ALL'])), 3)`,
  ),
  connects(
    'send with the first packet',
    `
one = socket.socket()
one.sendto(b'x', 0x20000000, ('127.0.0.1', port)); one.getpeername()`,
  ),
  { name: 'connect by the shell', promise: 'network', sh: 'exec 3<>"/dev/tcp/127.0.0.1/$PORT" && echo WORKED' },
  {
    name: 'see the listening ports of the host',
    promise: 'network',
    py: `
text = open('/proc/net/tcp').read()
if ':%04X' % int(os.environ['PORT']) in text: print('WORKED')`,
  },
  {
    name: 'see the sockets of other programs',
    promise: 'sockets',
    sh: 'grep -q "$MARK" /proc/net/unix && echo WORKED',
  },

  // More rights.
  calls(
    'clone a user namespace by the newer call',
    'namespaces',
    [435, 435],
    'ctypes.create_string_buffer(struct.pack("<QQQQQQQQ", 0x10000000, 0, 0, 0, 17, 0, 0, 0)), 64',
  ),
  calls('open the mounts as a tree', 'namespaces', [428, 428], `-100, b'/', 1`),
  calls('mount a file system by the newer call', 'namespaces', [430, 430], `b'tmpfs', 0`),
  calls('change the root by the newer call', 'namespaces', [155, 41], `b'.', b'.'`),
  calls('open a file by its handle', 'private', [304, 265], '-100, 0, 0'),
  calls('take over a descriptor of another process', 'ptrace', [438, 438], '0, 0, 0'),

  // Processes that stay.
  survives('stop itself', 9, 'setsid sleep "$SLEEP"9 >/dev/null 2>&1 & sleep 0.2; kill -STOP $!'),
  survives(
    'fork again and again',
    10,
    `setsid python3 -c "
import os, time
for _ in range(60):
    if os.fork(): os._exit(0)
    time.sleep(0.01)
os.execvp('sleep', ['sleep', '$SLEEP' + '10'])" >/dev/null 2>&1 </dev/null & sleep 1.5`,
  ),
  survives(
    'take another name and terminal',
    11,
    `setsid script -qc "sleep $SLEEP"11 /dev/null >/dev/null 2>&1 </dev/null & sleep 0.3`,
  ),
  survives(
    'become the child of the first process',
    12,
    '( ( exec setsid env -i sh -c "exec sleep $SLEEP"12 >/dev/null 2>&1 </dev/null & ) ); sleep 0.2',
  ),
];
