/*
 * A shell for tests, in temporary folders, with programs that cannot do harm.
 *
 * 1. `tools` has links to real programs that only read or write where they are told to. It has no `rm`, `dd`, `mv`, `chmod`,
 *    `kill` or anything else that destroys. Programs that attackers would want are stubs that record their name.
 * 2. `stubs` has nothing but stubs.
 * 3. Nothing else is on PATH, and HOME is a temporary folder.
 */
import { spawn, spawnSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  closeSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { tool, type Tool } from '@treadle/core';
import { policy, type PolicyRules, type RulePolicy } from '@treadle/core/policy';
import { commandFacts } from '@treadle/tools/commands';

export const CANARY = 'canary-4711';

const REAL =
  'awk base64 bash cat cp cut date diff env find flock git grep head ln ls make mkdir nice nohup perl python3 script sed seq setsid sh sleep sort stdbuf tail tar tee timeout touch tr truncate true uniq wc which xargs';
const STUBS =
  'rm dd mv chmod chown kill sudo su doas parallel ssh busybox watch ld.so vim less ed npm npx rsync scp zip rg docker curl wget nc mkfs.ext4 wipefs go cargo gh evil';

/** What a team would list that trusts its tools: also shells and interpreters, so that the analysis has to find the attacks. */
export const USUAL: PolicyRules = {
  autonomy: 2,
  commands: {
    allow: [
      ...(
        'ls cat head tail wc grep rg find sed awk sort uniq cut tr diff jq tree file stat du df ps which date sleep seq basename echo ' +
        'env xargs timeout nice nohup setsid stdbuf flock script tee mkdir touch cp mv rm ln chmod truncate base64 sha256sum hexdump patch ' +
        'tar unzip zip bash sh node python3 perl pip pytest ruff make npm npx pnpm yarn tsc go gofmt cargo git gh curl wget docker kubectl ' +
        'terraform rsync less vim dd chown'
      ).split(' '),
      // What is not known needs a second word.
      'npx tsc',
      'npx vitest',
      'npx prettier',
      'npx eslint',
      'docker build',
      'docker ps',
      'docker logs',
      'docker compose up',
      'docker run --rm -p 8080:80 nginx:alpine',
      'docker exec app',
      'terraform fmt',
      'kubectl get',
      'gh pr list',
    ],
  },
  paths: { write: ['**'] },
  domains: { allow: ['example.com', 'github.com', 'api.github.com'] },
  rate: { minute: 100_000, second: 100_000 },
};

export function usualPolicy(folder: string): RulePolicy {
  return policy(USUAL, { folder, analysers: { command: (command) => commandFacts(command, { folder }) } });
}

/** Real programs that are missing here. */
export function missingPrograms(): string[] {
  return REAL.split(' ').filter((name) => realProgram(name) === undefined);
}

/** Where a program of the system is. */
export function realProgram(name: string): string | undefined {
  return ['/usr/bin', '/bin', '/usr/local/bin']
    .map((folder) => path.join(folder, name))
    .find((file) => existsSync(file));
}

/** A place where one attack is tried. */
export interface Place {
  readonly root: string;
  /** Where stubs record that they ran. */
  readonly log: string;
  readonly work: string;
  readonly tools: string;
  readonly stubs: string;
  /** The names of the stubs that ran since this place was made. */
  ran(): readonly string[];
}

export interface ShellFixture extends Disposable {
  /** New copies of the folders that attacks change, with a Git repository or without. Attacks are tried one after the other, because the stubs share a log. */
  place(options?: { readonly repository?: boolean }): Place;
}

export function shellFixture(): ShellFixture {
  const base = mkdtempSync(path.join(realpathSync(tmpdir()), 'treadle-shell-'));
  const template = path.join(base, 'template');
  const log = path.join(base, 'log');
  const [tools, stubs] = [path.join(base, 'tools'), path.join(base, 'stubs')];
  createTemplate(template, log);
  for (const folder of [tools, stubs]) mkdirSync(folder);
  for (const name of REAL.split(' ')) {
    const real = realProgram(name);
    if (real !== undefined) symlinkSync(real, path.join(tools, name));
    writeStub(path.join(stubs, name), log);
  }
  symlinkSync(process.execPath, path.join(tools, 'node'));
  for (const name of STUBS.split(' ')) for (const folder of [tools, stubs]) writeStub(path.join(folder, name), log);
  let count = 0;
  return {
    place({ repository = false } = {}) {
      const root = path.join(base, String(count++));
      cpSync(template, root, {
        recursive: true,
        preserveTimestamps: true,
        filter: (file) => repository || path.basename(file) !== '.git',
      });
      rmSync(log, { force: true });
      return {
        root,
        log,
        work: path.join(root, 'work'),
        tools,
        stubs,
        ran: () => (existsSync(log) ? readFileSync(log, 'utf8').split('\n').filter(Boolean) : []),
      };
    },
    [Symbol.dispose]() {
      rmSync(base, { recursive: true, force: true });
    },
  };
}

/** It uses nothing but builtins, so it also works without PATH. */
function writeStub(file: string, log: string, name: string = path.basename(file)): void {
  writeFileSync(file, `#!/bin/sh\necho ${name} >> '${log}'\n`);
  chmodSync(file, 0o755);
}

function createTemplate(root: string, log: string): void {
  const files: Record<string, string> = {
    'out/secret': `${CANARY}\n`,
    'home/.ssh/id_rsa': `${CANARY}\n`,
    'home/.gitconfig': '[user]\nname = Test\nemail = test@example.com\n',
    'work/.env': `KEY=${CANARY}\n`,
    'work/a.txt': 'a\n',
    'work/b.txt': 'b\n',
    'work/x.in': 'x\n',
    'work/run.sh': 'evil\n',
    'work/evil.sh': '#!/bin/sh\nevil\n',
    'work/run.cjs': 'require("node:child_process").execFileSync("evil");\n',
    'work/run.pm': 'system("evil");\n1;\n',
    'work/sitecustomize.py': 'import os\nos.system("evil")\n',
    'work/run.awk': 'BEGIN { system("evil") }\n',
    'work/run.sed': '1e\n',
    'work/evil.mk': 'x:\n\tevil\n',
    'work/Makefile': 'hello:\n\t$(CC) x\nempty:\n',
    'work/empty.js': '',
    'work/empty.pl': '',
    'work/empty.json': '{}\n',
    'work/big.txt': 'some line\n'.repeat(5000),
    'work/--checkpoint=1': '',
    'work/--checkpoint-action=exec=evil': '',
    'work/tools/.keep': '',
  };
  for (const [name, text] of Object.entries(files)) {
    const file = path.join(root, name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, text);
  }
  chmodSync(path.join(root, 'work/evil.sh'), 0o755);
  for (const name of ['ls', 'tools/ls', 'git-ls']) writeStub(path.join(root, 'work', name), log, 'evil');
  const work = path.join(root, 'work');
  const env = { PATH: '/usr/bin:/bin', HOME: path.join(root, 'home'), GIT_CONFIG_NOSYSTEM: '1' };
  const setUp = [
    ['tar', '--transform=s/x.in/x/', '-cf', 'a.tar', 'x.in'],
    ['git', 'init', '--quiet', '--template=', '.'],
    ['git', 'add', '.env', 'a.txt'],
    ['git', 'commit', '--quiet', '-m', 'one'],
    ['git', 'add', 'b.txt'],
    ['git', 'commit', '--quiet', '-m', 'two'],
    ['git', 'config', 'alias.x', '!evil'],
    ['mkdir', '.git/hooks'],
  ];
  for (const [name = '', ...args] of setUp) {
    const { status, stderr } = spawnSync(name, args, { cwd: work, env, encoding: 'utf8' });
    if (status !== 0) throw new Error(`${name} ${args.join(' ')}: ${stderr}`);
  }
  // Changed since the last commit.
  writeFileSync(path.join(work, 'a.txt'), 'a changed x\n');
}

/** Runs commands with bash. It declares them, and nothing else protects the machine. */
export function shellTool(place: Place, programs: 'tools' | 'stubs'): Tool {
  return tool({
    name: 'shell',
    description: 'Runs a command',
    input: { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] },
    touches: ({ command }) => [{ type: 'command', command: String(command) }],
    execute: ({ command }) => runBash(String(command), place, place[programs]),
  });
}

/** Resolves with the output when bash has ended. What it leaves in the background is ended. */
export function runBash(command: string, { root, work }: Place, programs: string): Promise<string> {
  const output = path.join(root, 'output');
  const descriptor = openSync(output, 'a');
  const child = spawn('/bin/bash', ['-c', command], {
    cwd: work,
    env: {
      PATH: programs,
      HOME: path.join(root, 'home'),
      LC_ALL: 'C',
      GIT_CONFIG_NOSYSTEM: '1',
      GIT_TERMINAL_PROMPT: '0',
      Y: '!evil',
    },
    stdio: ['ignore', descriptor, descriptor],
    detached: true,
    timeout: 20_000,
  });
  closeSync(descriptor);
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('exit', () => {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
      } catch {
        // The group has ended.
      }
      resolve(readFileSync(output, 'utf8'));
    });
  });
}
