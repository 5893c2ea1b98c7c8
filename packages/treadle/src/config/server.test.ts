import { describe, expect, test } from 'vitest';
import { CommandError } from '../command-line/command.ts';
import { parseConfig } from './load.ts';

const HASH = `sha256:${'0123456789abcdef'.repeat(4)}`;
const OTHER = `sha256:${'f'.repeat(64)}`;
const key = (name: string, hash: string): string => `[[server.keys]]\nname = "${name}"\nhash = "${hash}"\n`;

test('parses all settings of [server]', () => {
  const toml = `
[server]
host = "0.0.0.0"
port = 0
cors_origins = ["https://app.example.com", "http://localhost:5173"]
requests_per_minute = 600
max_concurrent_runs = 50
tools = ["coding"]
default_tools = ["read"]
requires_action_status = true
max_body_bytes = 1000000
max_bytes_in_progress = 10000000
max_duration_ms = 60000
heartbeat_ms = 5000
shutdown_grace_ms = 0
retention_days = 7
log_level = "silent"
[[server.keys]]
name = "ci"
hash = "${HASH}"
scopes = ["agents:invoke", "tools:execute:read"]
tenant = "acme"
requests_per_minute = 10
max_concurrent_requests = 4
expires_at = "2027-01-31T00:00:00+01:00"
[[server.keys]]
name = "me@home"
hash = "${OTHER}"
`;
  expect(parseConfig(toml, 't').server).toMatchObject({
    host: '0.0.0.0',
    port: 0,
    shutdown_grace_ms: 0,
    retention_days: 7,
    log_level: 'silent',
    keys: [
      {
        name: 'ci',
        hash: HASH,
        scopes: ['agents:invoke', 'tools:execute:read'],
        tenant: 'acme',
        requests_per_minute: 10,
        max_concurrent_requests: 4,
        expires_at: '2027-01-31T00:00:00+01:00',
      },
      { name: 'me@home', hash: OTHER },
    ],
  });
});

test.each(['127.0.0.1', '0.0.0.0', '::', '::1', 'fe80::1%eth0', 'localhost', 'my-host.example'])(
  'accepts the host %s',
  (host) => {
    expect(parseConfig(`[server]\nhost = "${host}"`, 't').server?.host).toBe(host);
  },
);

describe('errors name the path and what is allowed', () => {
  const aHost =
    'server.host must be a host such as 127.0.0.1, 0.0.0.0, ::1 or localhost, without "http://", port and brackets.';
  const anOrigin =
    'server.cors_origins must contain only origins of web pages such as "https://app.example.com", scheme and host without ' +
    'a path, or "*".';
  const aHash =
    'server.keys[0].hash must be "sha256:" and 64 hex digits, and not the key itself. "treadle key new" creates a key and ' +
    'prints its hash.';
  test.each([
    ['host = "http://127.0.0.1"', aHost],
    ['host = "127.0.0.1:80"', aHost],
    ['host = "[::1]"', aHost],
    ['host = "-x"', aHost],
    ['host = ""', 'server.host must be a string in quotes, but is empty.'],
    ['port = 65536', 'server.port must be a whole number from 0 to 65535, but is 65536.'],
    ['port = -1', 'server.port must be a whole number from 0 to 65535, but is -1.'],
    ['port = "3210"', 'server.port must be a whole number from 0 to 65535, but is a string.'],
    [
      'prot = 1',
      'server.prot is not known, did you mean port? Allowed here: host, port, keys, cors_origins, requests_per_minute, ' +
        'max_concurrent_runs, max_concurrent_runs_per_tenant, max_open_streams, tools, default_tools, instructions, model_aliases, requires_action_status, wait_for_answers, record_unstored, chat_titles, max_body_bytes, max_bytes_in_progress, max_duration_ms, heartbeat_ms, send_timeout_ms, ' +
        'shutdown_grace_ms, retention_days, log_level, log_file, log_file_max_bytes, log_files, webhooks, budgets, tenants, reload.',
    ],
    ['log_level = "loud"', 'server.log_level must be one of fatal, error, warn, info, debug, trace, silent.'],
    ['requires_action_status = 1', 'server.requires_action_status must be true or false, but is 1.'],
    ['max_concurrent_runs = 0', 'server.max_concurrent_runs must be a whole number from 1, but is 0.'],
    ['shutdown_grace_ms = -1', 'server.shutdown_grace_ms must be a whole number from 0, but is -1.'],
    ['default_tools = "read"', 'server.default_tools must be a list of strings such as ["a", "b"], but is a string.'],
    ['cors_origins = ["app.example.com"]', anOrigin],
    ['cors_origins = ["https://app.example.com/"]', anOrigin],
    ['cors_origins = ["file:///x"]', anOrigin],
    [
      'cors_origins = ["*"]',
      'server.cors_origins = ["*"] allows every web page to use a server without keys. Add [[server.keys]], or list origins.',
    ],
    ['keys = "x"', 'server.keys must be a list of tables, each under a line [[server.keys]], but is a string.'],
    ['keys = ["x"]', 'server.keys must be a list of tables, each under a line [[server.keys]], but is a list.'],
    [
      '[server.keys]\nname = "a"',
      'server.keys must be a list of tables, each under a line [[server.keys]], but is a table.',
    ],
    [
      '[server.webhooks]\nevents = []',
      'server.webhooks.url is missing: where requests are sent.\n' +
        't: server.webhooks.secret_env is missing: the environment variable with the secret for signatures.\n' +
        't: server.webhooks.events is empty. Remove it for all events.',
    ],
    [
      '[server.webhooks]\nsecret = "x"',
      'server.webhooks.secret must not be here: secrets do not belong in a file. Put it in an environment variable, and name the variable with secret_env.',
    ],
    ['[server.webhooks]\nurl = "x"', 'server.webhooks.url must be a URL such as "https://example.com/hook".'],
    [
      '[server.webhooks]\nevents = ["run.started"]',
      'server.webhooks.events must contain only run.waiting, run.completed, run.exhausted, run.failed, run.cancelled.',
    ],
    [
      '[[server.keys]]',
      'server.keys[0].name is missing: the name of the key in logs.\n' +
        't: server.keys[0].hash is missing. "treadle key new" creates a key and prints its hash.',
    ],
    [
      `${key('a', HASH)}scope = ["x"]`,
      'server.keys[0].scope is not known, did you mean scopes? Allowed here: name, hash, scopes, tenant, ' +
        'requests_per_minute, max_concurrent_requests, expires_at, budgets.',
    ],
    [
      `${key('a', HASH)}scopes = ["all"]`,
      'server.keys[0].scopes must contain only agents:invoke, agents:invoke:NAME, agents:write, tools:execute, tools:execute:TOOL, runs:read, runs:write, chat:read, chat:write, metrics:read, logs:read, memory:read or memory:write.',
    ],
    [
      `${key('a', HASH)}scopes = []`,
      'server.keys[0].scopes is empty. Remove it for the default agents:invoke, or name scopes.',
    ],
    [
      `${key('a', HASH)}tenant = "a b"`,
      'server.keys[0].tenant must be at most 64 letters, digits and . _ @ -, starting with a letter or a digit.',
    ],
    [key('a', 'md5:0'), aHash],
    [key('a', HASH.slice(0, -1)), aHash],
    [key('a', HASH.replace('a', 'g')), aHash],
    [
      key('a', HASH) + key('a', OTHER),
      'server.keys[1].name is already the name of server.keys[0]. Choose another name.',
    ],
    [
      key('a', OTHER) + key('b', OTHER.toUpperCase().replace('SHA', 'sha')),
      'server.keys[1].hash is already the hash of server.keys[0]. Create another key with "treadle key new".',
    ],
  ])('%s', (toml, problem) => {
    const whole = toml.startsWith('[') ? toml : `[server]\n${toml}`;
    expect(() => parseConfig(whole, 't')).toThrow(new CommandError(`t: ${problem}`));
  });
});

describe('a plain key is rejected, and not shown', () => {
  const secret = 'tk_0123456789abcdefghijklmnopqrstuvwxyz';
  const message = (toml: string): string => {
    try {
      parseConfig(toml, 't');
    } catch (error) {
      return (error as Error).message;
    }
    return '';
  };
  test.each([
    `[server]\nkey = "${secret}"`,
    `[server]\napi_key = "${secret}"`,
    `[[server.keys]]\nname = "a"\nkey = "${secret}"`,
    `[[server.keys]]\nname = "a"\ntoken = "${secret}"`,
    `[[server.keys]]\nname = "a"\nsecret = "${secret}"`,
    key('a', secret),
    `[server]\nkeys = ["${secret}"]`,
  ])('%s', (toml) => {
    expect(message(toml)).toMatch(/treadle key new|\[\[server\.keys\]\]/);
    expect(message(toml)).not.toContain(secret);
  });
});
