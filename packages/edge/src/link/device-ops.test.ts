import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { runLoop, textOf, type Touch } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { guardedFiles, local, type Ops } from '@treadle/tools';
import { afterEach, beforeEach, describe, expect, it, test } from 'vitest';
import { execContract, fileContract, filesPlace, readWhole } from '@treadle/tools/testing';
import { startAgent, type DeviceAgent } from '../device/agent.ts';
import { openLedger } from '../device/ledger.ts';
import { operations } from '../device/operations.ts';
import type { Runner, ToolSettings } from '../device/runner.ts';
import { openBroker, type Broker } from '../mqtt/broker.ts';
import { deviceOps, devicePlaces } from './device-ops.ts';
import { deviceTools } from './device-tools.ts';
import { edgeLink, type DeviceOptions, type EdgeLink } from './link.ts';

let store: string;
let broker: Broker;
let agent: DeviceAgent | undefined;
let link: EdgeLink | undefined;

beforeEach(async () => {
  store = mkdtempSync(join(tmpdir(), 'treadle-ops-'));
  broker = await openBroker({ prefix: 'treadle' });
});
afterEach(async () => {
  await link?.close();
  await agent?.close(0);
  await broker.close();
  rmSync(store, { recursive: true });
  [link, agent] = [undefined, undefined];
});

async function goAway(): Promise<void> {
  await agent!.close(0);
  agent = undefined;
  while (link!.device('pi')!.status !== 'offline') await new Promise((done) => setImmediate(done));
}

/** A device with the files and programs of this machine, and its operations over MQTT. */
async function overMqtt(
  machine: Ops,
  capabilities: readonly string[] = ['file_read', 'file_write', 'shell', 'git'],
  options: Partial<DeviceOptions> = {},
): Promise<Ops> {
  const { folder } = machine.files;
  const settings = { folder, capabilities, rules: {} } as unknown as ToolSettings;
  const host = operations(settings, machine, { judge: (calls) => calls.map(() => ({ type: 'allow' })) });
  const described = { tools: [], notices: [], capabilities, folder, home: dirname(folder), ops: { exec: true } };
  const runner: Runner = {
    describe: async () => described,
    reload: async () => described,
    call: () => Promise.reject(new Error('no tools')),
    operate: (op, args) => host.operate(op, args),
    close: () => host.close(),
  };
  agent = await startAgent({
    id: 'pi',
    prefix: 'treadle',
    broker: { url: broker.url, protocol: 4 },
    ledger: await openLedger({ folder: store }),
    runner,
  });
  link = edgeLink({
    prefix: 'treadle',
    broker: { url: broker.url, protocol: 4 },
    devices: [{ name: 'pi', ...options }],
  });
  expect(await link.whenReady('pi', 10_000)).toBe(true);
  return deviceOps(link, 'pi');
}

describe('programs of a device', () => {
  execContract({ test, beforeEach, afterEach }, (folder) => overMqtt(local(folder)));
});

describe('tools of this side, with the files and programs of a device', () => {
  const place = filesPlace({ beforeEach, afterEach });

  it('read, change and search files, run commands and use git there', async () => {
    const folder = join(place.base(), 'work');
    await overMqtt(local(folder), undefined, { builtIns: 'ops' });
    const tools = deviceTools(link!, 'pi');
    const call = (name: string, input: object) => ({ calls: [{ name, arguments: input }] });
    const git = 'git -c user.name=Bowen -c user.email=b@example.com';
    const model = scriptedModel([
      call('read', { path: 'src/a.txt' }),
      call('write', { path: 'src/a.txt', content: 'func fix() {}\n' }),
      call('grep', { pattern: 'fix' }),
      call('bash', { command: `git init -q . && git add src && ${git} commit -qm "Fix bug"` }),
      call('git_log', { max_count: 3 }),
      'Done.',
    ]);
    const seen: Touch[] = [];
    const result = await runLoop({
      model,
      tools,
      input: 'x',
      policy: {
        judge: (calls) => calls.map(({ touches = [] }) => (seen.push(...touches), { type: 'allow' })),
      },
    });
    const texts = result.messages
      .flatMap((one) => (one.role === 'tool' ? one.content : []))
      .map(({ content }) => textOf(content));
    expect(texts).toEqual([
      expect.stringContaining('a'),
      expect.stringContaining('src/a.txt'),
      expect.stringContaining('src/a.txt'),
      '[exit code 0]',
      expect.stringContaining('Fix bug'),
    ]);
    expect(readFileSync(join(folder, 'src/a.txt'), 'utf8')).toBe('func fix() {}\n');
    expect(seen.filter(({ type }) => type !== 'device').every((one) => 'on' in one && one.on?.name === 'pi')).toBe(
      true,
    );
  });
});

describe('files of a device', () => {
  const place = filesPlace({ beforeEach, afterEach });
  fileContract({ test }, place, async () => {
    const folder = join(place.base(), 'work');
    const files = guardedFiles({ folder, home: join(place.base(), 'out') });
    return (await overMqtt({ files, exec: local(folder).exec })).files;
  });

  it('are read only as far as the device has the capability', async () => {
    const { files, exec } = await overMqtt(local(join(place.base(), 'work')), ['file_read']);
    expect(await readWhole(files, 'src/a.txt')).toBe('a');
    await expect(files.write('x', 'y')).rejects.toThrow('the capability file_write');
    await expect(exec.start({ argv: ['true'] })).rejects.toThrow('the capability shell');
  });

  it('fail if the device goes away, and nobody knows whether a change took effect', async () => {
    const { files } = await overMqtt(local(join(place.base(), 'work')));
    await goAway();
    await expect(files.write('x', 'y')).rejects.toMatchObject({ code: 'EHOSTDOWN' });
  });

  it('are judged when the device is back, if its calls wait for it', async () => {
    const work = join(place.base(), 'work');
    await overMqtt(local(work), undefined, { onOffline: 'wait' });
    const first = link!;
    await goAway();
    const judged = devicePlaces(first)({ type: 'device', name: 'pi' })!.path!('good');
    await overMqtt(local(work));
    expect(await judged).toMatchObject({ target: join(work, 'src/a.txt') });
    const other = link!;
    await goAway();
    await expect(devicePlaces(other)({ type: 'device', name: 'pi' })!.path!('good')).rejects.toThrow(
      'The device "pi" is offline (it was shut down).',
    );
    await expect.poll(() => first.device('pi')!.status).toBe('offline');
    const closed = devicePlaces(first)({ type: 'device', name: 'pi' })!.path!('good');
    const [rejected] = await Promise.allSettled([closed, first.close()]);
    expect(rejected).toMatchObject({ reason: { message: expect.stringContaining('is offline') } });
  });

  it('are judged with the facts of the device', async () => {
    await overMqtt(local(join(place.base(), 'work')));
    const known = devicePlaces(link!)({ type: 'device', name: 'pi' })!;
    expect(known).toMatchObject({ folder: join(place.base(), 'work'), home: place.base() });
    expect(await known.path!('good')).toEqual({
      path: join(place.base(), 'work/good'),
      target: join(place.base(), 'work/src/a.txt'),
    });
    expect(await known.command!('cat src/a.txt')).toMatchObject({ programs: [{ name: 'cat' }] });
    expect(devicePlaces(link!)({ type: 'ssh', name: 'pi' })).toBeUndefined();
    expect(devicePlaces(link!)({ type: 'device', name: 'nobody' })).toBeUndefined();
  });
});
