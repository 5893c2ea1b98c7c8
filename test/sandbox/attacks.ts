import { existsSync } from 'node:fs';
import {
  calls,
  changes,
  inFolder,
  inHome,
  leaves,
  marks,
  outside,
  reads,
  SECRET,
  succeeds,
  survives,
  type Attack,
} from './attack.ts';
import { FURTHER_ATTACKS } from './further-attacks.ts';

/*
 * Tricks that a sandbox has to stop. Each one works in a program that runs without a sandbox, as root; `test/sandbox` checks that
 * too, so that no attack is stopped by a mistake in it.
 */

export const ATTACKS: readonly Attack[] = [
  // Secrets of the user.
  reads('read an SSH key', 'home', 'cat "$HOME/.ssh/id_ed25519"'),
  reads('read cloud credentials', 'home', 'cat "$HOME/.aws/credentials"'),
  reads('read the history of the shell', 'home', 'cat "$HOME/.bash_history"'),
  reads('read tokens in ~/.config', 'home', 'cat "$HOME/.config/gh/hosts.yml"'),
  reads('read ~/.netrc', 'home', 'cat "$HOME/.netrc"'),
  reads('read ~/.npmrc', 'home', 'cat "$HOME/.npmrc"'),
  reads(
    'find keys from the top',
    'home',
    'find "$(dirname "$OUTSIDE")" -name id_ed25519 -path "*$MARK*" -exec cat {} + 2>/dev/null',
  ),
  reads('read another project', 'home', 'cat "$OUTSIDE/project/.env"'),
  reads('read another project by ..', 'home', 'cat ../outside/project/.env'),
  reads('read the store of Treadle', 'home', 'cat "$OUTSIDE/treadle.db"'),
  reads('read through a link that leads out', 'home', 'ln -s "$OUTSIDE/secret" link-out; cat link-out'),
  reads('read through a link that was there', 'home', 'cat leads-out/secret'),
  reads('read through a descriptor of a folder', 'home', 'exec 5<"$OUTSIDE"; cat /proc/self/fd/5/secret'),
  reads('read through the root of its parent', 'home', 'cat "/proc/$PPID/root$OUTSIDE/secret"'),
  reads('read through the root of its own process', 'home', 'cat "/proc/self/root$OUTSIDE/secret"'),
  reads('read through the folder of another process', 'processes', 'cat "/proc/$VICTIM_PID/cwd/secret"'),
  reads('read a file in /tmp', 'tmp', 'cat "/tmp/$MARK"'),
  reads('read a file in /var/tmp', 'tmp', 'cat "/var/tmp/$MARK"'),
  reads('read a file in /dev/shm', 'devices', 'cat "/dev/shm/$MARK"'),
  { name: 'read the passwords of the system', promise: 'home', sh: 'test -n "$(cat /etc/shadow)" && echo WORKED' },
  { name: 'list /root', promise: 'home', sh: 'ls -A "$OUTSIDE" | grep -q secret && echo WORKED' },

  // Private files of the working folder.
  reads('read .env', 'private', 'cat .env'),
  reads('read .env in a folder', 'private', 'cat config/.env.production'),
  reads('read a key file', 'private', 'cat certs/server.key'),
  reads('read a PEM file', 'private', 'cat certs/server.pem'),
  reads('read .npmrc of the project', 'private', 'cat .npmrc'),
  reads('read secrets.json', 'private', 'cat config/secrets.json'),
  reads('read terraform.tfstate', 'private', 'cat terraform.tfstate'),
  reads('read the store in the folder', 'private', 'cat .treadle/treadle.db'),
  reads('list the store in the folder', 'private', 'ls .treadle; cat .treadle/*'),
  reads('read a private file through a link', 'private', 'ln -sf .env link-env; cat link-env'),
  reads('read a private file through a hard link', 'private', 'ln -f .env hard-env; cat hard-env'),
  reads('copy the folder and read the copy', 'private', 'cp -r config /tmp/copied; cat /tmp/copied/secrets.json'),
  reads('move the folder and read there', 'private', 'mv config config2; cat config2/secrets.json; mv config2 config'),
  succeeds(
    'move the folder to where its files are not private',
    'private',
    'mv .docker docker && mv docker .docker && mv certs node_modules/c && mv node_modules/c certs',
  ),
  reads('read where a private link leads', 'private', 'cat .pgpass'),
  reads('search for the secret', 'private', `grep -rhas '${SECRET}' --exclude-dir=leads-out .`),
  reads(
    'archive the folder',
    'private',
    'tar cf - --exclude=leads-out . 2>/dev/null | strings 2>/dev/null || tar cf - . | cat -v',
  ),
  reads('read through /proc/self/cwd', 'private', 'cat /proc/self/cwd/.env'),
  reads('make a private file readable', 'private', 'chmod 644 .env; cat .env'),
  reads('unmount the mask', 'private', 'umount -l .env; cat .env'),
  reads('read with another case', 'private', 'cat ./certs/../.env'),
  {
    name: 'read a private file by its handle',
    promise: 'setuid',
    py: `
libc.syscall.restype = ctypes.c_long
handle = ctypes.create_string_buffer(struct.pack('Ii', 128, 0) + bytes(128))
mount = ctypes.c_int()
name, by = ((303, 304) if platform.machine() == 'x86_64' else (264, 265))
if libc.syscall(name, -100, b'plain.txt', handle, ctypes.byref(mount), 0) == 0:
    top = os.open('.', os.O_RDONLY)
    if libc.syscall(by, top, handle, os.O_RDONLY) >= 0: print('WORKED')
`,
  },

  // The environment, and other processes.
  reads('print a variable of the server', 'environment', 'echo "$ATTACK_PASSPHRASE_OF_THE_SERVER"'),
  reads('print all variables', 'environment', 'env'),
  reads('read the environment of another process', 'processes', "tr '\\0' '\\n' </proc/$VICTIM_PID/environ"),
  reads('read all environments', 'processes', 'cat /proc/[0-9]*/environ'),
  reads('list processes with their environment', 'processes', 'ps axeww'),
  {
    name: 'see the command line of another process',
    promise: 'processes',
    sh: `ps axww | grep -q "[s]leep $SLEEP"0 && echo WORKED`,
  },
  {
    name: 'see its files',
    promise: 'processes',
    sh: 'test -n "$(ls /proc/$HOST_PID/fd 2>/dev/null)" && test "$(readlink /proc/$HOST_PID/ns/pid)" = "$HOST_PID_NS" && echo WORKED',
  },
  {
    name: 'kill another process',
    promise: 'processes',
    sh: 'kill -9 "$VICTIM_KILL"',
    worked: ({ isRunning }) => !isRunning(1),
  },
  {
    name: 'stop another process',
    promise: 'processes',
    sh: 'kill -STOP "$VICTIM_PID"',
    worked: ({ victimState }) => victimState() === 'T',
  },
  {
    name: 'change the priority of another process',
    promise: 'processes',
    sh: 'renice -n 19 -p "$VICTIM_NICE" >/dev/null',
    worked: ({ victimNice }) => victimNice() === 19,
  },
  {
    name: 'read the memory of another process',
    promise: 'processes',
    py: `
pid = int(os.environ['VICTIM_PID'])
with open(f'/proc/{pid}/maps') as maps: start = int(maps.readline().split('-')[0], 16)
with open(f'/proc/{pid}/mem', 'rb') as memory:
    memory.seek(start)
    if memory.read(4) == b'\\x7fELF': print('WORKED')
`,
  },
  {
    name: 'open another process by its pid',
    promise: 'processes',
    py: `
fd = os.pidfd_open(int(os.environ['VICTIM_PID']))
signal.pidfd_send_signal(fd, 0)
print('WORKED')
`,
  },

  // Writes outside.
  leaves('write outside', 'root', ': >"$OUTSIDE/plain"', outside('plain')),
  leaves('write outside by ..', 'root', ': >../outside/dots', outside('dots')),
  leaves('write through a link', 'root', 'ln -s "$OUTSIDE" way-out; : >way-out/linked', outside('linked')),
  leaves('write through a link that was there', 'root', ': >leads-out/old-link', outside('old-link')),
  changes(
    'write through a hard link',
    'root',
    'ln "$OUTSIDE/hard" hard-out && echo ATTACK >>hard-out',
    outside('hard'),
  ),
  changes(
    'write through a descriptor',
    'root',
    'exec 6<"$OUTSIDE/opened" && echo ATTACK >/proc/self/fd/6',
    outside('opened'),
  ),
  leaves('write through its own root', 'root', ': >"/proc/self/root$OUTSIDE/by-root"', outside('by-root')),
  leaves(
    'write through the root of the server',
    'processes',
    ': >"/proc/$HOST_PID/root$OUTSIDE/by-server"',
    outside('by-server'),
  ),
  leaves(
    'write through a mount',
    'root',
    'mkdir -p at; mount --bind "$OUTSIDE" at && : >at/mounted; umount at 2>/dev/null',
    outside('mounted'),
  ),
  leaves('move a file out', 'root', 'echo x >moved; mv moved "$OUTSIDE/moved"', outside('moved')),
  leaves('make a folder outside', 'root', 'mkdir "$OUTSIDE/made"', outside('made')),
  leaves(
    'extract an archive outside',
    'root',
    'mkdir -p a; : >a/unpacked; tar cf x.tar -C a unpacked; tar xf x.tar -C "$OUTSIDE"',
    outside('unpacked'),
  ),
  leaves('rename a link over and write', 'root', 'ln -s "$OUTSIDE/renamed" l1; mv l1 l2; : >l2', outside('renamed')),
  {
    name: 'delete a file outside',
    promise: 'root',
    sh: 'rm -f "$OUTSIDE/deleted"',
    worked: (world) => !existsSync(outside('deleted')(world)),
  },
  {
    name: 'change permissions outside',
    promise: 'root',
    sh: 'chmod 777 "$OUTSIDE/mode"',
    worked: ({ modeOf }) => modeOf('mode') === 0o777,
  },
  {
    name: 'change times outside',
    promise: 'root',
    sh: 'touch -d 2001-01-01 "$OUTSIDE/mode"',
    worked: ({ yearOf }) => yearOf('mode') === 2001,
  },
  changes('append to ~/.bashrc', 'home', 'echo ATTACK >>"$HOME/.bashrc"', inHome('.bashrc')),
  leaves(
    'add an SSH key',
    'home',
    'mkdir -p "$HOME/.ssh"; : >"$HOME/.ssh/authorized_keys"',
    inHome('.ssh', 'authorized_keys'),
  ),
  leaves(
    'start with the desktop',
    'home',
    'mkdir -p "$HOME/.config/autostart"; : >"$HOME/.config/autostart/x"',
    inHome('.config', 'autostart', 'x'),
  ),
  leaves(
    'write to the temporary folder of the host',
    'tmp',
    ': >"/tmp/$MARK-written"',
    ({ mark }) => `/tmp/${mark}-written`,
  ),
  leaves(
    'write to the shared memory of the host',
    'devices',
    ': >"/dev/shm/$MARK-written"',
    ({ mark }) => `/dev/shm/${mark}-written`,
  ),
  succeeds('write to /etc', 'root', `: >"/etc/$MARK" && rm "/etc/$MARK"`),
  succeeds('write to /usr/local/bin', 'root', `: >"/usr/local/bin/$MARK" && rm "/usr/local/bin/$MARK"`),
  {
    name: 'add a program to a folder of PATH',
    promise: 'root',
    sh: 'for at in $(echo "$PATH" | tr : " "); do if : >"$at/$MARK"; then rm "$at/$MARK"; echo WORKED; fi; done',
  },
  succeeds(
    'change what the kernel starts at a crash',
    'root',
    'cat /proc/sys/kernel/core_pattern >/tmp/pattern && cat /tmp/pattern >/proc/sys/kernel/core_pattern',
  ),
  succeeds(
    'change a setting of the kernel',
    'root',
    'cat /proc/sys/vm/swappiness >/tmp/pattern && cat /tmp/pattern >/proc/sys/vm/swappiness',
  ),
  {
    name: 'open a file of the kernel for writing',
    promise: 'root',
    py: `
for top, folders, names in os.walk('/proc'):
    if top == '/proc': folders[:] = [one for one in folders if not one.isdigit() and one not in ('self', 'thread-self', 'pressure')]
    for name in names:
        path = os.path.join(top, name)
        # These belong to the namespaces of a process.
        if re.match('/proc/sys/(net/|user/|fs/mqueue/|kernel/(msg|sem|shm|auto_msgmni|ns_last_pid|pid_max))', path): continue
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode): continue
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError: continue
        print('WORKED', path)
        sys.exit()`,
  },
  succeeds('remount the root', 'root', 'mount -o remount,rw /'),

  // Files that the host runs later.
  changes('write a hook', 'protected', 'echo ATTACK >.git/hooks/pre-commit', inFolder('.git', 'hooks', 'pre-commit')),
  leaves('add a hook', 'protected', ': >.git/hooks/post-checkout', inFolder('.git', 'hooks', 'post-checkout')),
  leaves(
    'replace the folder of hooks',
    'protected',
    'mv .git/hooks .git/old && mkdir .git/hooks && : >.git/hooks/pre-push; mv .git/hooks/pre-push .git/old/ ; rmdir .git/hooks; mv .git/old .git/hooks',
    inFolder('.git', 'hooks', 'pre-push'),
  ),
  leaves(
    'replace the repository',
    'protected',
    'mv .git .git3 && cp -r .git3 .git && : >.git/hooks/post-merge',
    inFolder('.git', 'hooks', 'post-merge'),
  ),
  changes('set a program in .git/config', 'protected', 'git config core.fsmonitor ATTACK', inFolder('.git', 'config')),
  changes('replace .git/config', 'protected', 'echo ATTACK >c; mv c .git/config', inFolder('.git', 'config')),
  changes(
    'write .git/config through a hard link',
    'protected',
    'ln .git/config linked-config && echo ATTACK >>linked-config',
    inFolder('.git', 'config'),
  ),
  changes(
    'reopen a hook for writing',
    'protected',
    'exec 7<.git/hooks/pre-commit && echo ATTACK >/proc/self/fd/7',
    inFolder('.git', 'hooks', 'pre-commit'),
  ),
  leaves(
    'add a hook to a nested repository',
    'protected',
    ': >nested/.git/hooks/pre-commit',
    inFolder('nested', '.git', 'hooks', 'pre-commit'),
  ),
  leaves(
    'add a hook to a submodule',
    'protected',
    ': >.git/modules/sub/hooks/pre-commit',
    inFolder('.git', 'modules', 'sub', 'hooks', 'pre-commit'),
  ),
  leaves(
    'add a hook to a submodule of a submodule',
    'protected',
    ': >.git/modules/sub/modules/inner/hooks/pre-commit',
    inFolder('.git', 'modules', 'sub', 'modules', 'inner', 'hooks', 'pre-commit'),
  ),
  changes(
    'set a program for a submodule in a folder',
    'protected',
    'echo ATTACK >>.git/modules/a/b/config',
    inFolder('.git', 'modules', 'a', 'b', 'config'),
  ),
  changes(
    'change a hook that the settings name',
    'protected',
    'echo ATTACK >>nested/.husky/pre-commit',
    inFolder('nested', '.husky', 'pre-commit'),
  ),
  leaves(
    'add a hook where the settings look for them',
    'protected',
    'mkdir -p nested/.husky/_; : >nested/.husky/_/pre-commit',
    inFolder('nested', '.husky', '_', 'pre-commit'),
  ),
  changes(
    'change settings that are included',
    'protected',
    'echo ATTACK >>nested/settings',
    inFolder('nested', 'settings'),
  ),
  leaves(
    'read objects of other repositories',
    'protected',
    'mkdir -p .git/objects/info; echo "$OUTSIDE" >.git/objects/info/alternates',
    inFolder('.git', 'objects', 'info', 'alternates'),
  ),
  leaves(
    'set a program for a cherry-pick that goes on',
    'protected',
    `mkdir -p .git/sequencer; printf '[options]\\n\\tstrategy = evil\\n' >.git/sequencer/opts`,
    inFolder('.git', 'sequencer', 'opts'),
  ),
  leaves(
    'create what a link in the repository leads to',
    'protected',
    'mkdir -p later/remotes; : >later/remotes/origin',
    inFolder('later', 'remotes', 'origin'),
  ),
  leaves(
    'set a program for another worktree',
    'protected',
    ': >.git/worktrees/other/config.worktree',
    inFolder('.git', 'worktrees', 'other', 'config.worktree'),
  ),
  changes('change the instructions for agents', 'protected', 'echo ATTACK >>AGENTS.md', inFolder('AGENTS.md')),
  changes(
    'replace the instructions for agents',
    'protected',
    'echo ATTACK >instructions; mv -f instructions AGENTS.md',
    inFolder('AGENTS.md'),
  ),
  succeeds('move the instructions for agents', 'protected', 'mv AGENTS.md a2 && mv a2 AGENTS.md'),
  leaves(
    'add a skill for other agents',
    'protected',
    'mkdir -p .claude/skills/evil; : >.claude/skills/evil/SKILL.md',
    inFolder('.claude', 'skills', 'evil', 'SKILL.md'),
  ),
  changes('change the configuration of Treadle', 'protected', 'echo ATTACK >>treadle.toml', inFolder('treadle.toml')),
  changes(
    'replace the configuration of Treadle',
    'protected',
    'echo ATTACK >t; mv -f t treadle.toml',
    inFolder('treadle.toml'),
  ),
  leaves(
    'add a skill',
    'protected',
    'mkdir -p .agents/skills/evil; : >.agents/skills/evil/SKILL.md',
    inFolder('.agents', 'skills', 'evil', 'SKILL.md'),
  ),
  succeeds('replace the skills', 'protected', 'mv .agents/skills s2 && mv s2 .agents/skills'),

  // Network.
  {
    name: 'connect to a port of the host',
    promise: 'network',
    sh: 'exec 3<>"/dev/tcp/127.0.0.1/$PORT" && echo WORKED',
  },
  {
    name: 'connect by IPv6',
    promise: 'network',
    py: `socket.create_connection(('::1', int(os.environ['PORT6'])), 1); print('WORKED')`,
  },
  {
    name: 'connect to the address of the host',
    promise: 'network',
    py: `socket.create_connection((os.environ['ADDRESS'], int(os.environ['PORT_ALL'])), 1); print('WORKED')`,
  },
  {
    name: 'send a packet to the host',
    promise: 'network',
    py: `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.5)
s.sendto(b'ping', ('127.0.0.1', int(os.environ['UDP_PORT']))); s.recv(10); print('WORKED')`,
  },
  {
    name: 'reach a name server',
    promise: 'network',
    py: `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('1.1.1.1', 53)); s.send(b'query'); print('WORKED')`,
  },
  {
    name: 'reach the metadata address',
    promise: 'network',
    py: `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('169.254.169.254', 80)); print('WORKED')`,
  },
  {
    name: 'see the interfaces of the host',
    promise: 'network',
    py: `
if any(name != 'lo' for _, name in socket.if_nameindex()): print('WORKED')`,
  },
  {
    name: 'see the connections of the host',
    promise: 'network',
    sh: 'grep -qi ":$(printf %04X "$PORT") 00000000:0000 0A" /proc/net/tcp && echo WORKED',
  },
  succeeds(
    'add an address',
    'network',
    'ip address add 127.0.77.1/32 dev lo && ip address delete 127.0.77.1/32 dev lo',
  ),
  {
    name: 'open a raw socket',
    promise: 'network',
    py: `socket.socket(socket.AF_PACKET, socket.SOCK_RAW); print('WORKED')`,
  },
  {
    name: 'open a socket to the hypervisor',
    promise: 'network',
    py: `socket.socket(40, socket.SOCK_STREAM); print('WORKED')`,
  },
  succeeds('join the network of the host', 'network', 'nsenter --net="/proc/$HOST_PID/ns/net" true'),
  {
    name: 'connect to an abstract socket',
    promise: 'sockets',
    py: `
s = socket.socket(socket.AF_UNIX); s.connect('\\0' + os.environ['MARK']); print('WORKED')`,
  },
  {
    name: 'connect to a socket in the folder',
    promise: 'sockets',
    py: `s = socket.socket(socket.AF_UNIX); s.connect('agent.sock'); print('WORKED')`,
  },
  {
    name: 'connect to a socket outside',
    promise: 'sockets',
    py: `
s = socket.socket(socket.AF_UNIX); s.connect(os.environ['OUTSIDE'] + '/docker.sock'); print('WORKED')`,
  },
  {
    name: 'connect to a socket through a link',
    promise: 'sockets',
    py: `
os.symlink(os.environ['OUTSIDE'] + '/docker.sock', 'd.sock'); s = socket.socket(socket.AF_UNIX); s.connect('d.sock'); print('WORKED')`,
  },

  // Privileges and the kernel.
  {
    name: 'become root by a setuid program',
    promise: 'setuid',
    sh: 'cp /usr/bin/id ./id && chmod 4755 ./id && test "$(cat /proc/self/status | grep NoNewPrivs | tr -dc 0-9)" = 0 && echo WORKED',
  },
  marks('make a program setuid', 'suid1', { sh: 'cp /usr/bin/id suid1 && chmod 4755 suid1' }),
  marks('make a program setgid', 'suid2', { sh: 'cp /usr/bin/id suid2 && chmod g+s suid2' }),
  marks('copy a setuid program with its mode', 'suid3', { sh: 'cp -p "$SETUID_PROGRAM" suid3' }),
  marks('install a setuid program', 'suid4', { sh: 'install -m 6755 /usr/bin/id suid4' }),
  marks('extract a setuid program', 'suid5', {
    py: `
import io, tarfile
member = tarfile.TarInfo('suid5'); member.mode = 0o4755
with tarfile.open('suid.tar', 'w') as archive: archive.addfile(member, io.BytesIO())
os.system('tar xpf suid.tar')`,
  }),
  marks('create a setuid file at once', 'suid6', {
    py: `os.open('suid6', os.O_CREAT | os.O_WRONLY, 0o4755)`,
  }),
  marks('create a setuid file without a name', 'suid7', {
    py: `
fd = os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755)
libc.linkat(-100, f'/proc/self/fd/{fd}'.encode(), -100, b'suid7', 0x400)`,
  }),
  marks('make a setuid node', 'suid8', { py: `os.mknod('suid8', stat.S_IFREG | 0o4755)` }),
  marks('change the mode of an open file', 'suid9', {
    py: `
fd = os.open('suid9', os.O_CREAT | os.O_WRONLY); os.fchmod(fd, 0o2755)`,
  }),
  marks('change the mode by a newer call', 'suid10', {
    py: `
open('suid10', 'w'); libc.syscall(452, -100, b'suid10', 0o4755, 0)`,
  }),
  marks('create a setuid file by a newer call', 'suid11', {
    py: `
how = ctypes.create_string_buffer(struct.pack('QQQ', os.O_CREAT | os.O_WRONLY, 0o4755, 0), 24)
libc.syscall(437, -100, b'suid11', how, 24)`,
  }),
  marks('create a setuid file by the oldest call', 'suid12', {
    py: `
libc.creat(b'suid12', 0o4755)`,
  }),
  succeeds('list the keys of the user', 'keyring', 'grep -q . /proc/keys'),
  {
    name: 'read the session keyring by a call of 32 bits',
    promise: 'keyring',
    py: `
import mmap
# keyctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 1): push rbx; mov eax, 288; xor ebx, ebx; mov ecx, -3; mov edx, 1
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex('53 b820010000 31db b9fdffffff ba01000000 cd80 5b c3'))
call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
if platform.machine() != 'x86_64' or call() > 0: print('WORKED')`,
  },
  { name: 'have capabilities', promise: 'setuid', sh: 'grep -q "CapEff:.*[1-9a-f]" /proc/self/status && echo WORKED' },
  {
    name: 'gain capabilities in the bounding set',
    promise: 'setuid',
    sh: 'grep -q "CapBnd:.*[1-9a-f]" /proc/self/status && echo WORKED',
  },
  succeeds('change the root', 'setuid', 'chroot / true'),
  succeeds('raise its priority', 'setuid', 'test "$(nice -n -5 nice)" -lt "$(nice)"'),
  { name: 'change the owner of a file', promise: 'setuid', sh: ': >owned; chown 12345 owned && echo WORKED' },
  {
    name: 'change the name of the host',
    promise: 'setuid',
    py: `socket.sethostname(socket.gethostname()); print('WORKED')`,
  },
  succeeds('make a device', 'devices', 'mknod disk b 7 0'),
  // To the mode that it has, because these would be changed for the whole machine.
  succeeds('change the mode of a device', 'devices', 'chmod "$(stat -c %a /dev/full)" /dev/full'),
  succeeds('change the times of a device', 'devices', 'touch -c -r /dev/zero /dev/zero'),
  {
    name: 'change the mode of a device by a descriptor',
    promise: 'devices',
    py: `
found = os.fstat(0).st_mode
if stat.S_ISCHR(found):
    os.fchmod(0, stat.S_IMODE(found))
    print('WORKED')`,
  },
  succeeds('change the mode of a file of the kernel', 'root', 'chmod "$(stat -c %a /proc/version)" /proc/version'),
  {
    name: 'open a disk',
    promise: 'devices',
    sh: 'for d in /dev/vda /dev/sda /dev/nvme0n1 /dev/xvda /dev/loop0 /dev/mem; do ( exec 3<"$d" ) 2>/dev/null && echo WORKED; done',
  },
  { name: 'read the log of the kernel', promise: 'devices', sh: 'test -e /dev/kmsg && echo WORKED' },
  {
    name: 'read the log or the memory of the kernel in /proc',
    promise: 'setuid',
    py: `
for path in ('/proc/kmsg', '/proc/kcore'):
    try: fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError: continue
    if stat.S_ISREG(os.fstat(fd).st_mode): print('WORKED')`,
  },
  succeeds('make a user namespace', 'namespaces', 'unshare --user true'),
  succeeds('make a mount namespace', 'namespaces', 'unshare --user --map-root-user --mount true'),
  succeeds('make a network namespace', 'namespaces', 'unshare --net true'),
  succeeds('mount a file system', 'namespaces', 'mkdir -p m; mount -t tmpfs none m && umount m'),
  {
    name: 'leave its user namespace',
    promise: 'namespaces',
    py: `
if libc.unshare(0x10000000) == 0: print('WORKED')`,
  },
  {
    name: 'clone a user namespace',
    promise: 'namespaces',
    py: `
pid = libc.syscall(56 if platform.machine() == 'x86_64' else 220, 0x10000000 | 17, 0, 0, 0, 0)
if pid == 0: os._exit(0)
if pid > 0: print('WORKED')`,
  },
  {
    name: 'use the new calls for mounts',
    promise: 'namespaces',
    py: `
if libc.syscall(430, b'tmpfs', 0) >= 0: print('WORKED')`,
  },
  {
    name: 'trace its own child',
    promise: 'ptrace',
    py: `
pid = os.fork()
if pid == 0: time.sleep(1); os._exit(0)
if libc.ptrace(16, pid, 0, 0) == 0: print('WORKED')
os.kill(pid, 9)`,
  },
  {
    name: 'read the memory of its child',
    promise: 'ptrace',
    py: `
pid = os.fork()
if pid == 0: time.sleep(1); os._exit(0)
class iovec(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('len', ctypes.c_size_t)]
buffer, target = ctypes.create_string_buffer(b'12345678'), ctypes.create_string_buffer(8)
local, remote = iovec(ctypes.addressof(target), 8), iovec(ctypes.addressof(buffer), 8)
if libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) == 8: print('WORKED')
os.kill(pid, 9)`,
  },
  calls('add a key to the keyring', 'keyring', [248, 217], `b'user', os.environ['MARK'].encode(), b'x', 1, -3`),
  calls('read the session keyring', 'keyring', [250, 219], '0, -3, 1, 0, 0'),
  calls('request a key', 'keyring', [249, 218], `b'user', b'treadle:none', 0, 0`),
  {
    name: 'read the log of the kernel by a call',
    promise: 'devices',
    py: `
if libc.klogctl(3, ctypes.create_string_buffer(4096), 4096) > 0: print('WORKED')`,
  },
  {
    name: 'take space without writing',
    promise: 'disk',
    py: `
fd = os.open('space1', os.O_CREAT | os.O_RDWR)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
if libc.fallocate(fd, 0, 0, 1000000) == 0: print('WORKED')`,
  },
  {
    name: 'take space by a control call',
    promise: 'disk',
    py: `
fd = os.open('space2', os.O_CREAT | os.O_RDWR)
fcntl.ioctl(fd, 0x4030582a, struct.pack('hhqqii16s', 0, 0, 0, 1000000, 0, 0, b'')); print('WORKED')`,
  },
  calls('load a program into the kernel', 'ptrace', [321, 280], '0, 0, 0'),
  calls('watch the processor', 'ptrace', [298, 241], '0, 0, -1, -1, 0'),
  calls('handle page faults', 'ptrace', [323, 282], '0x7fffffff'),
  calls('use io_uring', 'ptrace', [425, 425], '1, 0'),
  {
    name: 'fake input of a terminal',
    promise: 'terminal',
    py: `
master, slave = os.openpty()
os.setsid() if os.getpid() != os.getsid(0) else None
fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
fcntl.ioctl(slave, termios.TIOCSTI, b'x'); print('WORKED')`,
  },

  // Too much of something.
  {
    name: 'start many processes',
    promise: 'count',
    py: `
children = []
try:
    for _ in range(120):
        children.append(os.fork())
        if children[-1] == 0: time.sleep(3); os._exit(0)
    print('WORKED')
finally:
    for child in children: os.kill(child, 9)`,
  },
  {
    name: 'keep files in the memory of /dev',
    promise: 'root',
    // More than the runtime of podman allows.
    sh: 'for i in 1 2 3 4 5 6 7 8; do head -c 9000000 /dev/zero >"/dev/$MARK-$i" || exit; done; echo WORKED; rm -f "/dev/$MARK"*',
  },
  { name: 'take much memory', promise: 'memory', py: `x = bytearray(400 * 1024 * 1024); print('WORKED')` },
  {
    name: 'take much memory without using it',
    promise: 'memory',
    py: `import mmap; x = mmap.mmap(-1, 400 * 1024 * 1024, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); print('WORKED')`,
  },
  {
    name: 'write a large file',
    promise: 'file-size',
    sh: 'head -c 20000000 /dev/zero >large; test "$(wc -c <large)" = 20000000 && echo WORKED; rm -f large',
  },
  { name: 'write a large sparse file', promise: 'file-size', sh: 'truncate -s 1T sparse && echo WORKED; rm -f sparse' },

  // Processes that stay.
  survives('leave a process in the background', 3, 'sleep "$SLEEP"3 >/dev/null 2>&1 &'),
  survives('leave a process in a session of its own', 4, 'setsid sleep "$SLEEP"4 >/dev/null 2>&1 &'),
  survives('fork twice', 5, '( ( setsid sleep "$SLEEP"5 >/dev/null 2>&1 & ) & )'),
  survives('ignore signals', 6, `( trap '' TERM HUP INT; exec setsid sleep "$SLEEP"6 ) >/dev/null 2>&1 &`),
  survives('clear the environment', 7, 'env -i /usr/bin/setsid sleep "$SLEEP"7 >/dev/null 2>&1 </dev/null &'),
  survives('close all descriptors', 8, 'setsid env -i sh -c "exec 0<&- 1>&- 2>&-; exec sleep $SLEEP"8 &'),
  ...FURTHER_ATTACKS,
];
