import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { checkedBroker } from '../mqtt/transport.ts';
import { loadDeviceConfig, type DeviceConfig, type DeviceFlags } from './config.ts';

let cwd: string;
beforeEach(() => {
  cwd = mkdtempSync(join(tmpdir(), 'treadle-edge-config-'));
});
afterEach(() => rmSync(cwd, { recursive: true }));

function load(toml: string, flags: DeviceFlags = {}, env: Record<string, string> = {}): Promise<DeviceConfig> {
  writeFileSync(join(cwd, 'edge.toml'), toml);
  return loadDeviceConfig(flags, { cwd, env });
}

/** As the design document has it. */
const DOCUMENT = `
[agent]
id = "living-room-pi"
type = "desktop"
capabilities = ["file_read", "file_write", "shell"]

[tools]
sandboxing = "firejail"
timeout_ms = 30000

[tools.paths]
bin = "skills/desktop-tools/bin"
`;

test('reads the keys of the design document', async () => {
  mkdirSync(join(cwd, 'skills/desktop-tools/bin'), { recursive: true });
  await expect(load(DOCUMENT)).rejects.toThrow('tools.paths.bin is not the bin folder of a package');
  writeFileSync(join(cwd, 'skills/desktop-tools/skill.toml'), '');
  expect(await load(DOCUMENT)).toEqual({
    id: 'living-room-pi',
    type: 'desktop',
    prefix: 'treadle',
    broker: { url: 'mqtt://127.0.0.1:1883' },
    store: join(homedir(), '.treadle/edge/living-room-pi'),
    tools: {
      folder: cwd,
      capabilities: ['file_read', 'file_write', 'shell'],
      offer: ['coding', 'packages'],
      skills: [join(homedir(), '.treadle/skills'), join(cwd, 'skills/desktop-tools')],
      sandboxing: 'firejail',
      timeoutMs: 30_000,
      rules: {},
      onAsk: 'allow',
      ops: true,
      hide: [join(homedir(), '.treadle/edge'), join(cwd, 'edge.toml')],
    },
  });
});

test('reads broker, credentials and certificates, which flags override', async () => {
  for (const name of ['ca', 'cert', 'key']) writeFileSync(join(cwd, `${name}.pem`), name);
  const toml = `[agent]
id = "pi"
capabilities = []
[edge]
broker = "mqtts://broker.example:8883"
topic_prefix = "evoclaw"
username = "pi"
password_env = "MQTT_PASSWORD"
ca = "ca.pem"
cert = "cert.pem"
key = "key.pem"
store = "store"
`;
  await expect(load(toml)).rejects.toThrow('edge.password_env names MQTT_PASSWORD, which is not set');
  const config = await load(toml, { id: 'other', broker: 'mqtt://[::1]:1' }, { MQTT_PASSWORD: 'secret' });
  expect(config).toMatchObject({
    id: 'other',
    prefix: 'evoclaw',
    store: join(cwd, 'store', 'other'),
    broker: { url: 'mqtt://[::1]:1', tls: { ca: 'ca', cert: 'cert', key: 'key' }, username: 'pi', password: 'secret' },
  });
  expect(config.tools.hide).toContain(join(cwd, 'key.pem'));
});

test.each([
  ['', 'agent.capabilities is missing'],
  ['[agent]\nid = "a/b"\ncapabilities = []', 'edge.toml:2: agent.id must be a name of at most 64'],
  ['[agent]\ncapabilities = ["root"]', 'agent.capabilities must contain only file_read'],
  ['[agent]\ncapabilites = []', 'did you mean capabilities?'],
  ['[edge]\nbroker = "http://x"', 'edge.toml:2: edge.broker must be an address such as mqtt://'],
  ['[edge]\npassword = "x"', 'passwords do not belong in a file'],
  [
    '[agent]\ncapabilities = []\n[edge]\npassword_env = "X"',
    'edge.password_env is the password of edge.username, which is missing',
  ],
  ['[agent]\ncapabilities = []\n[tools]\nfolder = "missing"', 'tools.folder is not a folder: /'],
  ['[agent]\ncapabilities = []\n[tools]\nskills_path = "edge.toml"', 'tools.skills_path is not a folder: /'],
  ['[agent', 'edge.toml:1:'],
  ['[agent]\nid = "pi"\ncapabilities = []\n[edge]\nca = "missing.pem"', 'edge.ca cannot be read'],
])('refuses %j', async (toml, problem) => {
  await expect(load(toml)).rejects.toThrow(problem);
});

test('a broker on another machine needs TLS and credentials', async () => {
  const toml = '[agent]\nid = "pi"\ncapabilities = []\n';
  await expect(load(toml, { broker: 'mqtt://10.0.0.1' })).rejects.toThrow('so it needs TLS');
  await expect(load(toml, { broker: 'mqtts://10.0.0.1' })).rejects.toThrow('so it needs credentials');
  expect(() => checkedBroker('wss://host/mqtt', { hasCredentials: true })).not.toThrow();
  expect(() => checkedBroker('mqtt://localhost', { hasCredentials: false })).not.toThrow();
  await expect(loadDeviceConfig({ config: 'other.toml' }, { cwd, env: {} })).rejects.toThrow(
    'other.toml cannot be read',
  );
  rmSync(join(cwd, 'edge.toml'));
  await expect(loadDeviceConfig({}, { cwd, env: {} })).rejects.toThrow('There is no edge.toml');
});
