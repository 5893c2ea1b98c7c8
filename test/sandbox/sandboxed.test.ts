import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  statfsSync,
  symlinkSync,
  writeFileSync,
  existsSync,
} from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { local, type ExecOps, type Room } from '@treadle/tools';
import { installedEngine, sandboxed } from '@treadle/tools/sandbox';
import { mcpServer } from '@treadle/tools/mcp';
import { needs } from '../needs.ts';
import { useDisk } from '../on-disk.ts';
import { PROCESS_ENV } from '../process-env.ts';

useDisk();

const engine = installedEngine('bubblewrap');

let folder: string;
beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-sandboxed-')));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

describe.runIf(needs('bubblewrap', engine !== undefined))('sandboxed', () => {
  const opened = (options = {}): ExecOps => sandboxed(local(folder), engine!, options).exec;

  async function run(
    exec: ExecOps,
    script: string,
    room?: Room,
  ): Promise<{ text: string; exitCode: number | undefined }> {
    const execution = await exec.start({ argv: ['bash', '-c', script], ...(room && { room }) });
    let text = '';
    for await (const { bytes } of execution.output) text += Buffer.from(bytes).toString();
    return { text, exitCode: (await execution.exit).exitCode };
  }

  it('runs a program in the folder, and returns its output and exit code', async () => {
    writeFileSync(join(folder, 'a.txt'), 'text');
    expect(await run(opened(), 'cat a.txt; echo >b.txt; exit 7')).toEqual({ text: 'text', exitCode: 7 });
    expect(existsSync(join(folder, 'b.txt'))).toBe(true);
  });

  it('reads /dev/null without an input, and is ended first when memory is short', async () => {
    const { text } = await run(opened(), 'test -c /dev/stdin && cat && cat /proc/self/oom_score_adj');
    expect(text).toBe('500\n');
  });

  it('lets no program hold up others that open a file', async () => {
    writeFileSync(join(folder, 'a.txt'), 'text');
    const lease = 'import fcntl, os; fcntl.fcntl(os.open("a.txt", os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_WRLCK)';
    const { text } = await run(opened(), `/usr/bin/python3 -c '${lease}'`);
    expect(text).toContain('PermissionError');
  });

  it('shares /tmp, the home folder and the loopback within a room only', async () => {
    const exec = opened();
    const [room, other] = await Promise.all([exec.sandbox!.openRoom(), exec.sandbox!.openRoom()]);
    const show = 'echo $(ls -A /tmp | wc -l) $(test -e ~/b && echo home) $(readlink /proc/self/ns/net)';
    const here = await run(exec, `touch /tmp/a ~/b; ${show}`, room);
    expect(await run(exec, show, room)).toEqual(here);
    expect((await run(exec, show, other)).text).not.toContain('home');
    await room.close();
    await expect(run(exec, 'true', room)).rejects.toThrow('closed');
    await other.close();
  });

  it('is busy while a program runs in the room', async () => {
    const exec = opened();
    const room = await exec.sandbox!.openRoom();
    const execution = await exec.start({ argv: ['cat'], writable: true, room });
    expect(room.isBusy()).toBe(true);
    execution.endInput();
    await execution.exit;
    expect(room.isBusy()).toBe(false);
    await room.close();
  });

  it('shows a private file that is exposed', async () => {
    mkdirSync(join(folder, 'sub'));
    for (const name of ['.npmrc', 'sub/.npmrc', '.env']) writeFileSync(join(folder, name), name);
    const exec = opened({ expose: ['.npmrc'] });
    expect((await run(exec, 'cat .npmrc; cat sub/.npmrc .env 2>/dev/null')).text).toBe('.npmrc');
  });

  it('masks sockets of other programs in what it shows', async () => {
    const shown = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-shown-')));
    const path = join(shown, 's');
    const server = createServer().listen(path);
    try {
      await once(server, 'listening');
      const { text } = await run(opened({ expose: [shown] }), `test -e ${path} && test ! -S ${path} && echo masked`);
      expect(text).toBe('masked\n');
    } finally {
      server.close();
      rmSync(shown, { recursive: true });
    }
  });

  it('hides the same files that the policy calls private', async () => {
    for (const name of ['.env.example', 'local.json', 'a.key', '.npmrc']) writeFileSync(join(folder, name), name);
    const exec = opened({ private: { paths: ['local.json'], except: ['a.key'] } });
    const { text } = await run(exec, 'cat .env.example a.key; cat local.json .npmrc 2>/dev/null');
    expect(text).toBe('.env.examplea.key');
  });

  it('renames a configuration that a program creates, and says so', async () => {
    const { text } = await run(opened(), 'echo x >treadle.toml');
    expect(text).toContain('commands may not create treadle.toml');
    expect(existsSync(join(folder, 'treadle.toml'))).toBe(false);
    expect(readFileSync(join(folder, 'treadle.toml.blocked'), 'utf8')).toBe('x\n');
  });

  it('renames instructions that a program creates, and leaves those of a tool and of a person', async () => {
    const ops = local(folder);
    const { exec } = sandboxed(ops, engine!);
    expect((await run(exec, 'echo x >AGENTS.md; mkdir -p .claude/skills/x')).text).toContain(
      'commands may not create AGENTS.md, skills',
    );
    expect(existsSync(join(folder, 'AGENTS.md'))).toBe(false);
    expect(existsSync(join(folder, '.claude', 'skills'))).toBe(false);
    // A tool writes while a command runs.
    const execution = await exec.start({ argv: ['cat'], writable: true });
    await ops.files.write('AGENTS.md', 'By a tool.');
    execution.endInput();
    for await (const { bytes } of execution.output) expect(Buffer.from(bytes).toString()).toBe('');
    expect(readFileSync(join(folder, 'AGENTS.md'), 'utf8')).toBe('By a tool.');
    // A person creates a file between two commands, and it is protected from then on.
    mkdirSync(join(folder, '.agents'));
    const { text } = await run(exec, 'echo x >>AGENTS.md; echo x >.agents/x; ls -A .agents');
    expect(text.match(/Read-only file system/g)).toHaveLength(2);
    expect(text).not.toContain('commands may not');
  });

  it('puts back a link to instructions that a program replaces', async () => {
    mkdirSync(join(folder, 'docs'));
    writeFileSync(join(folder, 'docs', 'agents.md'), 'Instructions.');
    symlinkSync('docs/agents.md', join(folder, 'AGENTS.md'));
    const { text } = await run(opened(), 'echo x >>docs/agents.md; rm AGENTS.md; echo x >AGENTS.md');
    expect(text).toContain('docs/agents.md: Read-only file system');
    expect(text).toContain('commands may not replace the link AGENTS.md, so it was put back');
    expect(readFileSync(join(folder, 'AGENTS.md'), 'utf8')).toBe('Instructions.');
    expect(readFileSync(join(folder, 'AGENTS.md.blocked'), 'utf8')).toBe('x\n');
  });

  it('lets a program create a repository with plain settings, and renames others', async () => {
    const exec = opened();
    const init = 'git init -q . && git config user.name me && git remote add origin https://example.com/a.git';
    expect((await run(exec, `${init} && git status --short`)).text).toBe('');
    rmSync(join(folder, '.git'), { recursive: true });
    const evil = `${init} && git config core.fsmonitor ./evil && echo >.git/hooks/pre-commit && echo /etc >.git/objects/info/alternates`;
    expect((await run(exec, evil)).text).toContain('commands may not create config, hooks, alternates');
    expect(readdirSync(join(folder, '.git'))).toEqual(expect.arrayContaining(['config.blocked', 'hooks.blocked']));
    expect(existsSync(join(folder, '.git', 'config'))).toBe(false);
    rmSync(join(folder, '.git'), { recursive: true });
    for (const other of ['ln -s elsewhere .git', 'echo gitdir: elsewhere >.git', 'git init -q --bare .']) {
      expect((await run(exec, other)).text).toMatch(/commands may not create (\.git|HEAD), so it was renamed/);
      rmSync(join(folder, '.git.blocked'), { recursive: true, force: true });
      rmSync(join(folder, 'HEAD.blocked'), { recursive: true, force: true });
    }
  });

  describe('a repository', () => {
    const git = (...args: string[]): string =>
      execFileSync('git', ['-c', 'user.name=me', '-c', 'user.email=me@example.com', ...args], {
        cwd: folder,
        encoding: 'utf8',
        stdio: 'pipe',
        env: { PATH: process.env['PATH'], HOME: '/nonexistent', GIT_CONFIG_NOSYSTEM: '1', GIT_EDITOR: 'true' },
      });
    const commit = 'git -c user.name=me -c user.email=me@example.com commit -q --allow-empty -m x';
    // Git would start it in the folder of the host.
    const evil = '"touch ../evil evil; false"';
    beforeEach(() => {
      git('init', '-q', '.');
      git('commit', '-q', '--allow-empty', '-m', 'one');
    });

    it('that a program creates in a subfolder may have plain settings, and is renamed in part otherwise', async () => {
      const exec = opened();
      const create = `git init -q sub && cd sub && echo >f && git add f && ${commit}`;
      expect((await run(exec, `${create} && cd .. && git add sub 2>/dev/null; git status --short`)).text).toBe(
        'A  sub\n',
      );
      rmSync(join(folder, 'sub'), { recursive: true });
      const { text } = await run(exec, `${create} && git config core.fsmonitor ${evil} && cd .. && git add -A`);
      expect(text).toContain('commands may not create config, so it was renamed');
      git('status');
      rmSync(join(folder, 'sub'), { recursive: true });
      const module = `${create} && git config core.fsmonitor ${evil} && cd .. && mkdir .git/modules && mv sub/.git .git/modules/sub && echo gitdir: ../.git/modules/sub >sub/.git`;
      expect((await run(exec, module)).text).toContain('commands may not create config, so it was renamed');
      git('status');
      rmSync(join(folder, 'sub'), { recursive: true });
      for (const elsewhere of ['gitdir: ../other', 'gitdir: /tmp'])
        expect((await run(exec, `mkdir -p sub other; echo ${elsewhere} >sub/.git`)).text).toContain('create .git, so');
      const bare = 'git init -q --bare bare; echo >bare/hooks/pre-receive';
      expect((await run(exec, bare)).text).toContain('create hooks, so it was renamed');
      expect([existsSync(join(folder, 'evil')), existsSync(join(folder, 'sub', 'evil'))]).toEqual([false, false]);
    });

    it('with programs in its settings is found wherever a program creates it', async () => {
      const exec = opened();
      const evilHere = JSON.stringify(`touch ${join(folder, 'evil')}; false`);
      const long = Array.from({ length: 42 }, () => 'd'.repeat(48)).join('/');
      const places = ['node_modules/a/b', '.aws/a', Array.from({ length: 45 }, () => 'd').join('/'), long];
      // The others are no text, and two of them look the same.
      const create = `create() { mkdir -p "$1" && git init -q "$1" && git -C "$1" config core.fsmonitor ${evilHere} && (cd "$1" && ${commit}) && git add -f "$1"; }`;
      const script = `${create}; for place in ${places.join(' ')} $(printf 'x\\377') $(printf 'x\\376') $(printf 'y\\377')/$(printf 'z\\377'); do create "$place"; done 2>&1`;
      const { text } = await run(exec, script);
      expect(text).toContain('no text, so they were moved: folder.blocked, folder.blocked-2, folder.blocked-3');
      expect(git('ls-files', '--stage').match(/^160000/gm)).toHaveLength(7);
      git('status');
      expect(existsSync(join(folder, 'evil'))).toBe(false);
      const settings = execFileSync('find', ['.', '-path', './.git', '-prune', '-o', '-name', 'config*', '-print'], {
        cwd: folder,
        encoding: 'utf8',
      });
      expect(settings.match(/config.*/g)).toEqual(Array.from({ length: 7 }, () => 'config.blocked'));
    });

    it('has no settings that a program can change later by another name, or that it has hidden in another repository', async () => {
      const exec = opened();
      const linked = 'git init -q sub && ln sub/.git/config other';
      const pipe = 'git init -q sub && rm sub/.git/config && mkfifo sub/.git/config';
      const hidden = (place: string): string =>
        `mkdir -p sub $(dirname ${place}); git init -q --bare ${place}; echo '[core] fsmonitor = evil' >>${place}/config; echo gitdir: ../${place} >sub/.git`;
      const inModule = `git init -q --bare .git/modules/a; ${hidden('.git/modules/a/b')}`;
      const deep = hidden('.git/modules/1/2/3/4/5/6/7/8/9/10/11/12');
      const worktree = `${hidden('.git/a/.git')}; mkdir -p .git/a/.git/worktrees/w; echo ../.. >.git/a/.git/worktrees/w/commondir; echo gitdir: ../.git/a/.git/worktrees/w >sub/.git`;
      for (const create of [linked, pipe, inModule, deep, worktree]) {
        for (const used of ['sub', '.git/modules']) rmSync(join(folder, used), { recursive: true, force: true });
        expect((await run(exec, create)).text).toContain('create config, so it was renamed');
      }
      const parts =
        'mkdir -p src lib/objects lib/refs; echo ref: refs/heads/main >src/HEAD; echo ../lib >src/commondir';
      expect((await run(exec, parts)).text).toContain('create commondir, so it was renamed');
    });

    it('gets no remote, worktree or replacement with programs from a command', async () => {
      git('config', 'extensions.worktreeConfig', 'true');
      const exec = opened();
      expect((await run(exec, 'git worktree add -q tree')).text).toBe('');
      git('worktree', 'remove', 'tree');
      const settings = `git worktree add -q tree; git -C tree config --worktree core.fsmonitor ${evil}`;
      expect((await run(exec, settings)).text).toContain('create config.worktree, so');
      expect((await run(exec, 'mkdir .git/remotes; echo URL: x >.git/remotes/origin')).text).toContain(
        'create remotes',
      );
      rmSync(join(folder, '.git', 'branches'), { recursive: true, force: true });
      expect((await run(exec, 'mkdir .git/branches; echo x >.git/branches/origin')).text).toContain('create branches');
      const replaced = 'mv .git/HEAD .git/head; mkdir objects refs; echo ref: refs/heads/main >HEAD; echo >config';
      expect((await run(exec, replaced)).text).toContain('create HEAD, so it was renamed');
    });

    it('has no rebase that starts programs when somebody continues it', async () => {
      for (const text of ['a', 'b']) {
        writeFileSync(join(folder, 'f'), text);
        git('add', 'f');
        git('commit', '-q', '-m', text);
      }
      const exec = opened();
      const stopped = 'GIT_SEQUENCE_EDITOR="sed -i 1s/pick/edit/" git rebase -q -i HEAD~1 2>/dev/null;';
      expect((await run(exec, `${stopped} echo pick HEAD >>.git/rebase-merge/git-rebase-todo`)).text).toBe('');
      const added = 'echo x touch evil >>.git/rebase-merge/git-rebase-todo';
      expect((await run(exec, added)).text).toContain('create git-rebase-todo, so it was renamed');
      // A rebase of the user stays as it is.
      renameSync(
        join(folder, '.git/rebase-merge/git-rebase-todo.blocked'),
        join(folder, '.git/rebase-merge/git-rebase-todo'),
      );
      expect((await run(exec, added)).text).toContain('Read-only file system');
      expect((await run(exec, 'echo x >.git/rebase-merge/strategy')).text).toContain('create strategy, so');
    });
  });

  it('renames the link, and nothing elsewhere, if a program leads the way to what it may not create out of the folder', async () => {
    const outside = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-sandboxed-')));
    for (const name of ['skills', 'info']) mkdirSync(join(outside, name));
    for (const name of ['skills/x', 'info/alternates', 'alternates']) writeFileSync(join(outside, name), 'mine');
    const exec = opened();
    const blocked = async (script: string): Promise<string> => (await run(exec, script)).text;
    expect(await blocked(`ln -s ${outside} .claude`)).toContain('commands may not create .claude, so it was renamed');
    expect(await blocked(`git init -q . && rm -rf .git/objects && ln -s ${outside} .git/objects`)).toContain(
      'commands may not create objects, so',
    );
    rmSync(join(folder, '.git'), { recursive: true });
    mkdirSync(join(folder, '.git', 'objects', 'info'), { recursive: true });
    expect(await blocked(`rmdir .git/objects/info && ln -s ${outside} .git/objects/info`)).toContain('create info, so');
    expect(readdirSync(outside, { recursive: true }).toSorted()).toEqual([
      'alternates',
      'info',
      'info/alternates',
      'skills',
      'skills/x',
    ]);
    rmSync(outside, { recursive: true });
  });

  it('reports a missing program as it is reported without a sandbox', async () => {
    await expect(opened().start({ argv: ['treadle-missing-program'] })).rejects.toMatchObject({ code: 'ENOENT' });
  });

  it('passes on no descriptor that this process has inherited', () => {
    const program = `
      import { local } from '@treadle/tools';
      import { installedEngine, sandboxed } from '@treadle/tools/sandbox';
      const { exec } = sandboxed(local(process.argv[1]), installedEngine('bubblewrap'));
      const { output } = await exec.start({ argv: ['bash', '-c', 'ls -l /proc/1/fd /proc/self/fd; cat /proc/self/fd/100/*'] });
      for await (const { bytes } of output) process.stdout.write(bytes);
      process.exit();`;
    const outside = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-outside-')));
    writeFileSync(join(outside, 'note'), 'of the host');
    const node = [process.execPath, '--conditions=treadle-source', '--input-type=module', '-e', program, folder];
    const text = execFileSync('bash', ['-c', 'exec 100<"$0"; exec "$@" 2>&1', outside, ...node], {
      encoding: 'utf8',
      env: PROCESS_ENV,
      cwd: import.meta.dirname,
    });
    expect(text).toContain('0 -> ');
    expect(text).not.toMatch(/100 -> |of the host/);
    rmSync(outside, { recursive: true });
  });

  it('refuses a folder that contains the home folder', () => {
    expect(() => sandboxed(local(folder), engine!, { home: join(folder, 'me') })).toThrow('cannot protect');
    expect(() => sandboxed(local('/'), engine!)).toThrow('cannot protect');
  });

  it('kills everything that a program has started', async () => {
    const execution = await opened().start({ argv: ['bash', '-c', 'setsid sleep 4321 & echo started; sleep 4321'] });
    for await (const { bytes } of execution.output) {
      if (Buffer.from(bytes).toString().includes('started')) break;
    }
    await execution.kill();
    expect((await execution.exit).signal).toBe('SIGKILL');
  });

  it('ends a program that fills the disk, with few or with many files', async () => {
    const bombs = [
      [
        'is nearly full',
        (free: number) => ({ reserveBytes: free - 30_000_000 }),
        'head -c 5000000 /dev/zero >$i; i=$((i+99))',
      ],
      ['nearly no more files', (_: number, files: number) => ({ reserveFiles: files - 300 }), ': >$i'],
    ] as const;
    for (const [reason, limitsFor, write] of bombs) {
      const { bavail, bsize, ffree } = statfsSync(folder);
      const exec = opened({ limits: limitsFor(bavail * bsize, ffree) });
      const { text } = await run(exec, `i=0; while [ $i -lt 20000 ]; do ${write}; i=$((i+1)); done`);
      expect(text).toContain(`[sandbox: the program was ended, because the disk of ${folder}`);
      expect(text).toContain(reason);
    }
  });

  it.each([
    ['a file in memory', 'fd = os.memfd_create("x")', 'os.write(fd, bytes(10_000_000))'],
    ['memory that processes share', '', 'm = mmap.mmap(-1, 10_000_000); m.write(bytes(10_000_000)); kept.append(m)'],
  ])('ends a program that fills the memory of the machine with %s', async (_, before, take) => {
    const free = Number(/^MemAvailable:\s+(\d+)/m.exec(readFileSync('/proc/meminfo', 'utf8'))![1]) * 1024;
    const exec = opened({ limits: { reserveMemoryBytes: free - 200_000_000, memoryBytes: 100_000_000 } });
    // At most half of what there is, because others may give some back meanwhile.
    const times = Math.floor(free / 2 / 10_000_000);
    const program = `import mmap, os, time\nkept = []\n${before}\nfor _ in range(${times}): ${take}; time.sleep(0.02)`;
    const { text } = await run(exec, `/usr/bin/python3 -c '${program}'; echo kept on`);
    expect(text).toContain('[sandbox: the program was ended, because the memory of the machine is nearly full]');
    expect(text).not.toContain('kept on');
  });

  it('says what it may have stopped', () => {
    const { blocked } = opened().sandbox!;
    expect(blocked('curl: (6) Could not resolve host: example.com')).toContain('there is no network');
    expect(blocked('touch: cannot touch /etc/x: Read-only file system')).toContain('can be written');
    expect(blocked('1 test failed')).toBeUndefined();
  });
});

describe.runIf(needs('bubblewrap', engine !== undefined))('the network', () => {
  it('reaches only the hosts that the check allows, through the proxy', async () => {
    const server = createServer((_, response) => response.end('answer'));
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    const { port } = server.address() as AddressInfo;
    const asked: string[] = [];
    const hosts = (url: string): string | undefined => {
      asked.push(url);
      return url.includes(`//127.0.0.1:${port}/`) ? undefined : 'it is not listed';
    };
    try {
      const { exec } = sandboxed(local(folder), engine!, { hosts });
      // Without NO_PROXY, because the server is on this host.
      const curl = 'curl -s --noproxy ""';
      const script = `${curl} http://127.0.0.1:${port}/; ${curl} http://127.0.0.1:1/; ${curl} --noproxy "*" http://127.0.0.1:${port}/ || echo direct fails`;
      const execution = await exec.start({ argv: ['bash', '-c', script] });
      let text = '';
      for await (const { bytes } of execution.output) text += Buffer.from(bytes).toString();
      expect(text).toBe('answerThe sandbox does not allow 127.0.0.1: it is not listed\ndirect fails\n');
      expect(asked).toEqual([`http://127.0.0.1:${port}/`, 'http://127.0.0.1:1/']);
    } finally {
      server.close();
    }
  });
});

describe.runIf(needs('bubblewrap', engine !== undefined))('an MCP server', () => {
  it('starts inside, and answers', async () => {
    writeFileSync(join(folder, 'server.sh'), SERVER);
    const { exec } = sandboxed(local(folder), engine!);
    const server = mcpServer({ name: 'inside', command: 'bash', args: ['server.sh'], cwd: folder, exec });
    try {
      const { name } = await server.connect();
      expect(name).toMatch(/^pid:/);
      expect(name).not.toBe(readlinkSync('/proc/self/ns/pid'));
    } finally {
      await server.close();
    }
  });
});

/** Its name is the namespace of its processes. */
const SERVER = `while IFS= read -r line; do
  id=\${line##*\\"id\\":}
  id=\${id%%[,\\}]*}
  case $line in
    *'"method":"initialize"'*)
      info="\\"serverInfo\\":{\\"name\\":\\"$(readlink /proc/self/ns/pid)\\",\\"version\\":\\"1\\"}"
      result="\\"result\\":{\\"protocolVersion\\":\\"2025-11-25\\",\\"capabilities\\":{},$info}"
      ;;
    *'"method":"notifications/'*) continue ;;
    *) result='"error":{"code":-32601,"message":"Method not found"}' ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,%s}\\n' "$id" "$result"
done
`;
