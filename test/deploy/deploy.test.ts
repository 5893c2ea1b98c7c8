import { execFile, spawnSync } from 'node:child_process';
import { existsSync, globSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { main } from 'treadle';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { deployFile, env, graceSeconds, prepareMachine, root, type Machine } from './serving.ts';

const manifest = (file: string) =>
  JSON.parse(readFileSync(path.join(root, file), 'utf8')) as {
    readonly scripts: Readonly<Record<string, string>>;
    readonly bin: Readonly<Record<string, string>>;
    readonly engines: { readonly node: string };
  };

const grace = graceSeconds(deployFile('treadle.toml'));

let machine: Machine;
beforeAll(async () => {
  machine = await prepareMachine(deployFile('treadle.toml'));
});
afterAll(() => machine[Symbol.dispose]());

describe('treadle.service', () => {
  const unit = deployFile('treadle.service');
  const directives = new Map(
    unit.split('\n').flatMap((line): [string, string][] => {
      const [, name, value] = /^([A-Z]\w+)=(.*)$/.exec(line) ?? [];
      return name === undefined ? [] : [[name, value!]];
    }),
  );

  test('starts the server with arguments that it accepts', async () => {
    const [program, ...args] = directives.get('ExecStart')!.split(' ');
    expect(Object.keys(manifest('packages/treadle/package.json').bin)).toEqual([path.basename(program!)]);
    const local = machine.localArguments(args, {
      '/etc/treadle/treadle.toml': 'treadle.toml',
      '/var/lib/treadle/work': 'work',
      '/var/lib/treadle/treadle.db': 'unit.db',
    });
    expect(local.join(' ')).not.toMatch(/\/(etc|var\/lib)\//);
    expect(await machine.whileServing(local, machine.expectAnswers)).toBe(0);
    expect(existsSync(path.join(machine.folder, 'unit.db'))).toBe(true);
  });

  test('gives the server its folders, the signals that it knows, and the time that it needs', () => {
    expect(directives.get('StateDirectory')).toBe('treadle treadle/work');
    expect(directives.get('StateDirectoryMode')).toBe('0700');
    expect(directives.get('KillSignal')).toBe('SIGTERM');
    expect(directives.get('ExecReload')).toContain('-HUP');
    expect(Number(directives.get('TimeoutStopSec'))).toBeGreaterThan(grace + 6);
    for (const name of ['DynamicUser', 'NoNewPrivileges', 'PrivateTmp', 'ProtectHome']) {
      expect([name, directives.get(name)]).toEqual([name, 'yes']);
    }
  });

  test.runIf(spawnSync('systemd-analyze', ['--version']).status === 0)('is accepted by systemd', () => {
    const file = path.join(machine.folder, 'treadle.service');
    writeFileSync(file, unit.replace(/^ExecStart=\S+/m, `ExecStart=${process.execPath}`));
    const { status, stderr } = spawnSync('systemd-analyze', ['verify', file], { encoding: 'utf8' });
    expect({ status, problems: stderr.split('\n').filter((line) => line.includes('treadle')) }).toEqual({
      status: 0,
      problems: [],
    });
  });
});

/** The instructions of the container file, with continued lines joined. */
const instructions = deployFile('Containerfile')
  .replaceAll(/^#.*\n/gm, '')
  .replaceAll(/\\\n\s*/g, '')
  .split('\n')
  .filter((line) => line !== '')
  .map((line) => ({ name: line.split(' ', 1)[0]!, value: line.slice(line.indexOf(' ') + 1) }));
const instruction = (name: string): string => instructions.findLast((one) => one.name === name)!.value;

describe('Containerfile', () => {
  const command = [...JSON.parse(instruction('ENTRYPOINT')), ...JSON.parse(instruction('CMD'))] as string[];

  test('starts the server as a user without rights, with arguments that it accepts and a health check that works', async () => {
    const [program, ...args] = command;
    expect(Object.keys(manifest('packages/treadle/package.json').bin)).toEqual([program]);
    expect(instruction('USER')).toBe('node');
    expect(instruction('EXPOSE')).toBe(args[args.indexOf('--port') + 1]);
    const paths = { '/etc/treadle/treadle.toml': 'treadle.toml', '/data/work': 'work', '/data/treadle.db': 'image.db' };
    const local = machine.localArguments(args, paths);
    expect(local.join(' ')).not.toMatch(/\/(etc|data)\//);
    const [node, ...check] = JSON.parse(/CMD (\[.*\])$/.exec(instruction('HEALTHCHECK'))![1]!) as string[];
    expect(node).toBe('node');
    let url = '';
    const health = async (): Promise<number | null> => {
      const checkArgs = check.map((arg) => arg.replace('http://127.0.0.1:3210', url));
      const { promise, resolve } = Promise.withResolvers<number | null>();
      execFile(process.execPath, checkArgs).once('close', resolve);
      return promise;
    };
    const code = await machine.whileServing(local, async (served) => {
      url = served;
      await machine.expectAnswers(url);
      expect(await health()).toBe(0);
    });
    expect(code).toBe(0);
    expect(await health()).toBe(1);
  });

  test('runs scripts that exist, on a version of Node that the packages support', () => {
    const { scripts, engines } = manifest('package.json');
    const run = instructions.filter(({ name }) => name === 'RUN').map(({ value }) => value);
    const used = run.flatMap((line) => [...line.matchAll(/npm run (\S+)/g)].map(([, script]) => script!));
    expect(used).toEqual(['pack']);
    for (const script of used) expect(scripts).toHaveProperty(script);
    const images = instructions.filter(({ name }) => name === 'FROM').map(({ value }) => value.split(' ')[0]);
    expect(new Set(images).size).toBe(1);
    expect(engines.node).toContain(`^${/node:(\d+)/.exec(images[0]!)![1]}.`);
  });

  test('copies no keys and stores of the checkout, but everything that the build reads', () => {
    const lines = deployFile('Containerfile.dockerignore')
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('#'));
    expect(lines[0]).toBe('*');
    const kept = lines.filter((line) => line.startsWith('!')).map((line) => line.slice(1));
    for (const name of kept) expect([name, globSync(name, { cwd: root }).length > 0]).toEqual([name, true]);
    const { include } = JSON.parse(readFileSync(path.join(root, 'tsconfig.tests.json'), 'utf8')) as {
      readonly include: readonly string[];
    };
    const read = [...include.map((one) => one.split('/')[0]!), 'package.json', 'package-lock.json', 'tsconfig.json'];
    for (const name of read) {
      for (const file of globSync(name, { cwd: root })) {
        expect([file, kept.some((pattern) => path.matchesGlob(file, pattern))]).toEqual([file, true]);
      }
    }
    for (const secret of ['.env', 'treadle.toml', '.git', '.treadle']) expect(kept).not.toContain(secret);
    for (const name of ['**/node_modules', '**/.treadle']) expect(lines).toContain(name);
  });
});

test('compose.yaml builds the image, and gives it the files and the time that it needs', () => {
  const { services, volumes } = parse(deployFile('compose.yaml')) as {
    readonly services: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
    readonly volumes: object;
  };
  const { treadle } = services as { readonly treadle: Readonly<Record<string, unknown>> };
  const { context, dockerfile } = treadle!['build'] as Readonly<Record<string, string>>;
  expect(existsSync(path.join(root, 'deploy', context!, dockerfile!))).toBe(true);
  expect(Object.keys(volumes)).toEqual(['data']);
  expect(treadle!['volumes']).toEqual([`data:${instruction('VOLUME')}`, './treadle.toml:/etc/treadle/treadle.toml:ro']);
  // Other machines reach it only through a proxy.
  expect(treadle!['ports']).toEqual([`127.0.0.1:3210:${instruction('EXPOSE')}`]);
  expect(Number.parseInt(String(treadle!['stop_grace_period']), 10)).toBeGreaterThan(grace + 6);
  expect(treadle).toMatchObject({ init: true, read_only: true, restart: 'unless-stopped', cap_drop: ['ALL'] });
});

test('the example configuration does not start beyond this machine before it has a key', async () => {
  const { io, written } = machine.io();
  const file = path.join(root, 'deploy', 'treadle.toml');
  const args = [
    'serve',
    '--host',
    '0.0.0.0',
    '--port',
    '0',
    '--config',
    file,
    '--store',
    'memory:',
    '--cwd',
    machine.folder,
  ];
  expect(await main(args, { ...io, env })).toBe(2);
  expect(written.stderr).toContain('key');
});
