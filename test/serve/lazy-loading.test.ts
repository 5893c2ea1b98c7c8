import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { PROCESS_ENV } from '../process-env.ts';

const MAIN = fileURLToPath(new URL('../../packages/treadle/src/main.ts', import.meta.url));
/** Prints at exit which packages were imported. */
const SPY = `
  import { registerHooks } from 'node:module';
  const names = new Set();
  registerHooks({
    resolve(name, context, next) {
      if (!/^[./]|:/.test(name)) names.add(name);
      return next(name, context);
    },
  });
  process.on('exit', () => console.error('loaded ' + JSON.stringify([...names])));
`;

function loadedBy(...args: readonly string[]): readonly string[] {
  const spy = `data:text/javascript,${encodeURIComponent(SPY)}`;
  const { stderr } = spawnSync(process.execPath, ['--conditions=treadle-source', '--import', spy, MAIN, ...args], {
    cwd: tmpdir(),
    env: PROCESS_ENV,
    encoding: 'utf8',
  });
  return JSON.parse(/^loaded (.*)$/m.exec(stderr)![1]!) as string[];
}

const SERVER_PACKAGES = ['@treadle/server', 'hono', 'pino', 'zod', '@hono/node-server'];
const SHELL_PACKAGES = ['@treadle/tools/commands', 'unbash'];
const TELEMETRY_PACKAGES = ['@treadle/core/otel', '@opentelemetry/api'];

test.each(['--version', '--help'])('%j loads no package but two small modules', (flag) => {
  expect(loadedBy(flag)).toEqual(['@treadle/core/nearest', '@treadle/core/node-version']);
});

test.each([[['serve', '--help']], [['models', '--no-test']], [['run', 'hello', '--store', 'memory:']]])(
  '%j does not load the server package, the shell grammar and telemetry',
  (args) => {
    const loaded = loadedBy(...args);
    expect(loaded).toContain('@treadle/core');
    expect(
      loaded.filter((name) => [...SERVER_PACKAGES, ...SHELL_PACKAGES, ...TELEMETRY_PACKAGES].includes(name)),
    ).toEqual([]);
  },
);

test('a run loads telemetry if the configuration names a collector', () => {
  const folder = mkdtempSync(join(tmpdir(), 'treadle-lazy-'));
  const file = join(folder, 'treadle.toml');
  try {
    // Nothing listens there.
    writeFileSync(file, '[telemetry]\notlp_endpoint = "http://127.0.0.1:1"\n');
    const loaded = loadedBy('run', 'hello', '--store', 'memory:', '--config', file);
    expect(loaded).toEqual(expect.arrayContaining(TELEMETRY_PACKAGES));
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('"key new" loads the server package', () => {
  expect(loadedBy('key', 'new')).toEqual(expect.arrayContaining(['@treadle/server']));
});

test('a command that is judged loads the shell grammar', () => {
  expect(loadedBy('policy', 'explain', 'shell', '--touch', 'command=ls')).toEqual(
    expect.arrayContaining(SHELL_PACKAGES),
  );
});
